/* SPDX-License-Identifier: Apache-2.0 */
/* examples/engine.c: its answers are the known ones, also when it preempts, waits for other sessions and is drained. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/worker_fixture.h"

enum { REQUESTS = 8, PROMPT = 24, ANSWER = 60, VOCABULARY = 251 };

static struct it_daemon daemon_;
static struct worker_fixture holder;
static paged_seq_id held;

struct result {
	int code;
	char text[8192];
};

static void
run(int from, int to, void *argument)
{
	static const char *const example[] = { "examples/engine", "test", "8", "24", "60", NULL };
	struct result result = { 0 };

	(void)from;
	(void)argument;
	snprintf(result.text, sizeof(result.text), "%s", it_command(&result.code, example));
	it_send(to, &result, sizeof(result));
}

/* The answers, computed with integers: the sum of all tokens before decides the next one. */
static void
expect_answers(const struct result *result)
{
	it_require(result->code == 0, "%d: %s", result->code, result->text);
	for (unsigned int r = 0; r < REQUESTS; r++) {
		char line[512];
		unsigned int sum = 0, n = 0;
		int at = snprintf(line, sizeof(line), "request %u:", r);

		for (unsigned int t = 0; t < PROMPT; t++, n++)
			sum += (13 * t + (t < PROMPT / 2 ? 0 : 31 * r)) % VOCABULARY;
		for (unsigned int t = 0; t < ANSWER; t++, n++) {
			unsigned int token = (sum + 7 * n) % VOCABULARY;

			at += snprintf(line + at, sizeof(line) - (size_t)at, " %u", token);
			sum += token;
		}
		snprintf(line + at, sizeof(line) - (size_t)at, "\n");
		it_require(strstr(result->text, line) != NULL, "no %s in %s", line, result->text);
	}
}

static unsigned int
summary(const struct result *result, unsigned int *preempted_p, unsigned int *cached_p)
{
	const char *line = strstr(result->text, "requests not started");
	unsigned int n_left;

	while (line != NULL && line > result->text && line[-1] != '\n')
		line--;
	it_require(line != NULL && sscanf(line, "%u requests not started, %u preemptions, %u tokens", &n_left,
					  preempted_p, cached_p) == 3,
		   "%s", result->text);
	return n_left;
}

static void
expect_empty(void)
{
	struct paged_pool_counts counts = { .struct_size = sizeof(counts) };

	worker_ok(&holder, paged_pool_get_counts(holder.pool, &counts));
	it_require(counts.n_referenced == 0 && counts.n_quarantined == 0, "%u, %u", counts.n_referenced,
		   counts.n_quarantined);
	worker_check_pool(&holder);
	worker_close(&holder);
	it_daemon_stop(&daemon_);
}

/* 8 requests end with 21 pages each, of a pool of 64. */
IT_TEST(preempted_requests_get_the_right_answers)
{
	unsigned int n_preempted, n_cached;
	struct it_worker engine;
	struct result result;

	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	worker_open(&holder, NULL, 0);
	it_fork(&engine, run, NULL);
	it_receive(engine.from, &result, sizeof(result));
	it_join(&engine);
	expect_answers(&result);
	it_require(summary(&result, &n_preempted, &n_cached) == 0);
	it_require(n_preempted > 0 && n_cached > 0, "%s", result.text);
	expect_empty();
}

/* Leaves the engine n pages. */
static void
begin_with(struct it_worker *engine, uint32_t n)
{
	it_daemon_start(&daemon_, worker_pool_config, NULL, NULL);
	worker_open(&holder, NULL, 0);
	held = worker_create_seq(&holder, 32 * WORKER_PAGE_SIZE);
	worker_create_seq(&holder, (WORKER_PAGES - 32 - n) * WORKER_PAGE_SIZE);
	it_fork(engine, run, NULL);
}

static bool
engine_is_attached(void *argument)
{
	uint32_t *session = argument;
	struct paged_session_entry *list;
	size_t n;

	worker_ok(&holder, paged_admin_sessions(holder.client, sizeof(*list), &list, &n));
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i].name, "engine") == 0 && list[i].n_requests > 3)
			*session = list[i].session;
	paged_free(list);
	return *session != 0;
}

IT_TEST(it_waits_for_pages_of_another_session)
{
	unsigned int n_preempted, n_cached;
	struct it_worker engine;
	struct result result;
	uint32_t session = 0;

	begin_with(&engine, 2);
	it_require(it_wait(engine_is_attached, &session));
	worker_ok(&holder, paged_seq_erase(holder.client, 1, &held));
	it_receive(engine.from, &result, sizeof(result));
	it_join(&engine);
	expect_answers(&result);
	it_require(summary(&result, &n_preempted, &n_cached) == 0 && n_preempted > 0);
	worker_close(&holder);
	it_daemon_stop(&daemon_);
}

IT_TEST(a_drained_engine_ends)
{
	unsigned int n_preempted, n_cached;
	char number[16];
	struct it_worker engine;
	struct result result;
	uint32_t session = 0;
	int code;

	begin_with(&engine, 2);
	it_require(it_wait(engine_is_attached, &session));
	snprintf(number, sizeof(number), "%u", session);
	it_pagedctl(&code, "drain", number, NULL);
	it_require(code == 0);
	it_receive(engine.from, &result, sizeof(result));
	it_join(&engine);
	it_require(result.code == 0 && summary(&result, &n_preempted, &n_cached) == REQUESTS, "%s", result.text);
	worker_close(&holder);
	it_daemon_stop(&daemon_);
}

/* A request that is larger than the pool is refused at once. */
IT_TEST(it_gives_up_what_never_fits)
{
	static const char *const example[] = { "examples/engine", "test", "1", "2000", "1", NULL };
	const char *output;
	int code;

	it_daemon_start(&daemon_, "pool test { " WORKER_POOL_SHAPE " page-size = 4 pages = 64 max-length = 4096 }\n",
			NULL, NULL);
	output = it_command(&code, example);
	it_require(code == 1 && strstr(output, "engine: pool test: 500 pages requested, 64 free") != NULL, "%d: %s",
		   code, output);
	it_daemon_stop(&daemon_);
}

IT_MAIN
