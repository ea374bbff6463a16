/* SPDX-License-Identifier: Apache-2.0 */
/* paged_prefix_wait(): sleeps until another process publishes, or the daemon or the session ends. */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/prompt_fixture.h"

#define PROMPT_SEED 20261123u
#define LENGTH 32u
#define TIMEOUT_MS ((uint32_t)IT_LIMIT_MS)

struct wait_result {
	enum paged_status status;
	uint32_t n_matched;
	char error[256];
};

struct waiter {
	bool observer;
};

static enum paged_status
wait_for(struct worker_fixture *worker, const struct prompt *prompt, uint32_t n_tokens, uint32_t timeout_ms)
{
	struct paged_prefix prefix = prompt_prefix(prompt, prompt->n);

	return paged_prefix_wait(worker->pool, &prefix, n_tokens, timeout_ms);
}

/* Sends its session, waits for the whole prompt, and sends what came of it. */
static void
waiter_run(int from, int to, void *argument)
{
	const struct waiter *waiter = argument;
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	struct worker_fixture worker;
	struct wait_result result = { 0 };
	uint32_t session;

	(void)from;
	if (waiter->observer)
		worker_observe(&worker);
	else
		worker_open(&worker, NULL, 0);
	session = paged_client_session(worker.client);
	it_send(to, &session, sizeof(session));
	result.status = wait_for(&worker, &prompt, LENGTH, TIMEOUT_MS);
	snprintf(result.error, sizeof(result.error), "%s", paged_client_error(worker.client));
	if (result.status == PAGED_OK)
		result.n_matched = prompt_match(&worker, &prompt);
	it_send(to, &result, sizeof(result));
	worker_close(&worker);
}

/* Returns the waiter's session once it sleeps. */
static uint32_t
waiter_start(struct it_worker *child, bool observer)
{
	struct waiter waiter = { observer };
	uint32_t session;

	it_fork(child, waiter_run, &waiter);
	it_receive(child->from, &session, sizeof(session));
	usleep(100000);
	return session;
}

static void
waiter_expect(struct it_worker *child, enum paged_status status)
{
	struct wait_result result;

	it_receive(child->from, &result, sizeof(result));
	it_require(result.status == status, "%s: %s", paged_status_name(result.status), result.error);
	it_require(status != PAGED_OK || result.n_matched == LENGTH, "%u", result.n_matched);
	it_join(child);
}

IT_TEST(waiters_wake_when_another_process_publishes)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH), other = prompt_make(1, LENGTH);
	struct it_worker children[3];
	struct worker_fixture worker;
	struct it_daemon daemon;
	paged_seq_id seq;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, LENGTH);
	prompt_write(&worker, seq, &prompt, 0, LENGTH);
	for (int i = 0; i < 3; i++)
		waiter_start(&children[i], i == 2);
	/* These do not suffice. */
	prompt_compute(&worker, &other);
	it_require(prompt_publish(&worker, seq, &prompt, LENGTH - 4) == LENGTH - 4);
	usleep(50000);
	it_require(prompt_publish(&worker, seq, &prompt, LENGTH) == LENGTH);
	for (int i = 0; i < 3; i++)
		waiter_expect(&children[i], PAGED_OK);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(wait_ends_at_its_timeout)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	struct worker_fixture worker;
	struct it_daemon daemon;
	uint64_t began_ms;
	paged_seq_id seq;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_expect(&worker, wait_for(&worker, &prompt, LENGTH, 0), PAGED_ERR_TIMEOUT);
	seq = worker_create_seq(&worker, LENGTH);
	prompt_write(&worker, seq, &prompt, 0, LENGTH);
	prompt_publish(&worker, seq, &prompt, 8);
	began_ms = it_now_ms();
	worker_expect(&worker, wait_for(&worker, &prompt, LENGTH, 200), PAGED_ERR_TIMEOUT);
	it_require(it_now_ms() - began_ms >= 200);
	it_require(strstr(paged_client_error(worker.client),
			  "pool test: 8 of 32 tokens of the prefix are published after 200 ms") != NULL,
		   "%s", paged_client_error(worker.client));
	/* What is there is not waited for; a page that is not whole does not count. */
	worker_ok(&worker, wait_for(&worker, &prompt, 11, 0));
	worker_ok(&worker, wait_for(&worker, &prompt, 0, 0));
	worker_expect(&worker, wait_for(&worker, &prompt, LENGTH + 4, 1000), PAGED_ERR_LIMIT);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(wait_ends_with_the_daemon)
{
	struct it_worker children[2];
	struct it_daemon daemon;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	for (int i = 0; i < 2; i++)
		waiter_start(&children[i], i == 1);
	it_daemon_kill(&daemon);
	for (int i = 0; i < 2; i++)
		waiter_expect(&children[i], PAGED_ERR_GONE);
}

IT_TEST(wait_ends_with_the_session)
{
	struct worker_fixture admin;
	struct it_worker child;
	struct it_daemon daemon;
	uint32_t session;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_observe(&admin);
	session = waiter_start(&child, false);
	worker_ok(&admin, paged_admin_kick(admin.client, session, 0));
	waiter_expect(&child, PAGED_ERR_GONE);
	worker_close(&admin);
	it_daemon_stop(&daemon);
}

static void *
wait_in_thread(void *argument)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);

	worker_ok((struct worker_fixture *)argument, wait_for(argument, &prompt, LENGTH, TIMEOUT_MS));
	return NULL;
}

/* A wait holds no lock: the thread that publishes uses the same client. */
IT_TEST(other_calls_of_the_client_proceed)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	struct worker_fixture worker;
	struct it_daemon daemon;
	pthread_t thread;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	it_require(pthread_create(&thread, NULL, wait_in_thread, &worker) == 0);
	usleep(100000);
	prompt_compute(&worker, &prompt);
	pthread_join(thread, NULL);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
