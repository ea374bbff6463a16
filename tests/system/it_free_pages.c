/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The setting free-pages: whatever makes pages cached, the daemon evicts until enough are free, without another
 * request.
 */
#include "config.h"

#include "tests/support/sequences.h"
#include "tests/system/prompt_fixture.h"

#define N_PROMPTS 4u
#define PROMPT_PAGES (WORKER_PAGES / N_PROMPTS)
#define PROMPT_TOKENS (PROMPT_PAGES * WORKER_PAGE_SIZE)
#define WANTED 8u /* free pages */

static const char config[] = "pool test {\n" WORKER_POOL_SETTINGS "\n free-pages = 8\n}\n";

static struct it_daemon daemon_;
static struct worker_fixture worker;
static paged_seq_id seqs[N_PROMPTS];

/* All pages of the pool are published and in sequences of the worker. */
static void
pool_fill(struct worker_fixture *filler)
{
	for (uint32_t i = 0; i < N_PROMPTS; i++) {
		struct prompt prompt = prompt_make(i, PROMPT_TOKENS);

		seqs[i] = prompt_compute(filler, &prompt);
	}
}

static void
setup(void)
{
	it_daemon_start(&daemon_, config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	pool_fill(&worker);
}

/* From shared memory, so that no request makes the daemon look. */
static struct paged_pool_counts
counts_read(void)
{
	struct paged_pool_counts counts = { .struct_size = sizeof(counts) };

	worker_ok(&worker, paged_pool_get_counts(worker.pool, &counts));
	return counts;
}

static bool
enough_are_free(void *argument)
{
	(void)argument;
	return counts_read().n_free >= WANTED;
}

static void
expect_evicted(void)
{
	struct paged_pool_counts counts;

	it_require(it_wait(enough_are_free, NULL), "%u free, %u cached", counts_read().n_free, counts_read().n_cached);
	counts = counts_read();
	it_require(counts.n_free == WANTED, "%u free: more were evicted than wanted", counts.n_free);
	it_require(counts.n_cached > 0);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon_);
}

IT_TEST(after_erase)
{
	setup();
	it_require(counts_read().n_free == 0);
	worker_ok(&worker, paged_seq_erase(worker.client, 1, seqs));
	expect_evicted();
}

IT_TEST(after_truncate)
{
	setup();
	worker_ok(&worker, paged_seq_truncate(worker.client, 1, &(struct paged_seq_item){ .seq = seqs[0] }));
	expect_evicted();
}

IT_TEST(after_trim)
{
	setup();
	worker_ok(&worker, paged_seq_trim(worker.client, 1,
					  &(struct paged_seq_item){ .seq = seqs[0], .n_tokens = PROMPT_TOKENS - 1 }));
	expect_evicted();
}

IT_TEST(after_the_release_of_a_hold)
{
	struct prompt prompt = prompt_make(0, PROMPT_TOKENS);
	struct paged_prefix prefix = prompt_prefix(&prompt, PROMPT_TOKENS);
	uint64_t serials[PROMPT_PAGES];
	uint32_t pages[PROMPT_PAGES];
	paged_seq_id hold;
	size_t n;

	setup();
	worker_ok(&worker, paged_prefix_pages(worker.pool, &prefix, PROMPT_PAGES, pages, serials, &n));
	it_require(n == PROMPT_PAGES, "%zu", n);
	worker_ok(&worker, paged_pages_hold(worker.pool, n, pages, serials, &hold));
	worker_ok(&worker, paged_seq_erase(worker.client, 1, seqs));
	it_require(counts_read().n_cached == 0 && counts_read().n_free == 0);
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &hold));
	expect_evicted();
}

static void
session_fill(int from, int to, void *argument)
{
	struct worker_fixture filler;
	char c;

	(void)argument;
	worker_open(&filler, NULL, 0);
	pool_fill(&filler);
	it_send(to, "x", 1);
	it_receive(from, &c, 1);
	worker_close(&filler);
}

static void
expect_evicted_after_end(bool kill_session)
{
	struct it_worker session;
	char c;

	it_daemon_start(&daemon_, config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	it_fork(&session, session_fill, NULL);
	it_receive(session.from, &c, 1);
	it_require(counts_read().n_free == 0);
	if (kill_session) {
		it_kill(&session);
	} else {
		it_send(session.to, "x", 1);
		it_join(&session);
	}
	expect_evicted();
}

IT_TEST(after_a_session_is_closed)
{
	expect_evicted_after_end(false);
}

IT_TEST(after_a_session_is_killed)
{
	expect_evicted_after_end(true);
}

IT_MAIN
