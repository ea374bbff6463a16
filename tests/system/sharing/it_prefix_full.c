/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools whose pages are all in use: cached pages are evicted in order, referenced ones never.  The scenarios of other
 * projects' tests have their names in a comment.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/sequences.h"
#include "tests/system/prompt_fixture.h"

#define N_PROMPTS 4u
#define PROMPT_PAGES (WORKER_PAGES / N_PROMPTS)
#define PROMPT_TOKENS (PROMPT_PAGES * WORKER_PAGE_SIZE)

static struct it_daemon daemon_;
static struct worker_fixture worker;
static struct prompt prompts[N_PROMPTS];

/* Publishes four prompts, which take all pages; the first is the coldest.  They stay cached. */
static void
pool_fill(const char *config)
{
	paged_seq_id seq;

	it_daemon_start(&daemon_, config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	for (uint32_t i = 0; i < N_PROMPTS; i++) {
		prompts[i] = prompt_make(i, PROMPT_TOKENS);
		seq = prompt_compute(&worker, &prompts[i]);
		worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	}
}

static void
pool_end(void)
{
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon_);
}

static void
expect_matches(const uint32_t (*pages)[N_PROMPTS])
{
	for (uint32_t i = 0; i < N_PROMPTS; i++)
		it_require(prompt_match(&worker, &prompts[i]) == (*pages)[i] * WORKER_PAGE_SIZE,
			   "prompt %u: %u tokens, %u pages expected", i, prompt_match(&worker, &prompts[i]),
			   (*pages)[i]);
}
#define EXPECT_MATCHES(...) expect_matches(&(const uint32_t[N_PROMPTS]){ __VA_ARGS__ })

static void
expect_full(enum paged_status status, uint32_t n_requested, uint32_t n_free)
{
	char text[64];

	snprintf(text, sizeof(text), "pool test: %u pages requested, %u free", n_requested, n_free);
	it_require(status == PAGED_ERR_FULL && strstr(paged_client_error(worker.client), text) != NULL, "%s: %s",
		   paged_status_name(status), paged_client_error(worker.client));
}

/* vLLM's evict: tails go before heads, and the prefix that was used last stays. */
IT_TEST(eviction_takes_the_oldest_tails)
{
	uint32_t n_shared;
	paged_seq_id seq, other;

	pool_fill(PROMPT_POOL(""));
	prompt_expect_pages(&worker, 0, 0, WORKER_PAGES);
	EXPECT_MATCHES(16, 16, 16, 16);
	seq = prompt_start(&worker, &prompts[0], &n_shared);
	it_require(n_shared == PROMPT_TOKENS);
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	seq = worker_create_seq(&worker, 4 * WORKER_PAGE_SIZE);
	prompt_expect_pages(&worker, 0, 4, WORKER_PAGES - 4);
	EXPECT_MATCHES(16, 12, 16, 16);
	other = worker_create_seq(&worker, 14 * WORKER_PAGE_SIZE);
	EXPECT_MATCHES(16, 0, 14, 16);
	worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ 5 * WORKER_PAGE_SIZE }));
	EXPECT_MATCHES(16, 0, 13, 16);

	/* Free pages are taken before any are evicted. */
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &other));
	worker_create_seq(&worker, 14 * WORKER_PAGE_SIZE);
	EXPECT_MATCHES(16, 0, 13, 16);
	pool_end();
}

/* The same for a part of the cached pages, by the administrator's request. */
IT_TEST(administrator_evicts_the_oldest_tails)
{
	uint32_t n;

	pool_fill(PROMPT_POOL(""));
	worker_ok(&worker, paged_admin_evict(worker.client, "test", 5, &n));
	it_require(n == 5);
	EXPECT_MATCHES(11, 16, 16, 16);
	worker_ok(&worker, paged_admin_evict(worker.client, "test", 20, &n));
	it_require(n == 20);
	EXPECT_MATCHES(0, 7, 16, 16);
	worker_ok(&worker, paged_admin_evict(worker.client, "test", 1000, &n));
	it_require(n == 39);
	prompt_expect_pages(&worker, WORKER_PAGES, 0, 0);
	pool_end();
}

IT_TEST(cached_pages_never_make_a_request_fail)
{
	paged_seq_id seq, child;

	pool_fill(PROMPT_POOL(""));
	seq = worker_create_seq(&worker, PROMPT_TOKENS);
	prompt_write(&worker, seq, &prompts[0], 0, 10);
	worker_ok(&worker, paged_batch_fork(worker.batch, 1, &seq, (uint32_t[]){ 9 }, &child));
	prompt_verify(&worker, child, &prompts[0], 9);
	prompt_expect_pages(&worker, 0, 17, WORKER_PAGES - 17);
	prompts[0] = prompt_make(100, 128);
	prompt_start(&worker, &prompts[0], NULL);
	prompt_expect_pages(&worker, 0, 49, WORKER_PAGES - 49);
	worker_ok(&worker, seqs_reserve(worker.client, 1, &child, (uint32_t[]){ 17 * WORKER_PAGE_SIZE }));
	prompt_expect_pages(&worker, 0, 63, 1);
	expect_full(seqs_reserve(worker.client, 1, &child, (uint32_t[]){ 19 * WORKER_PAGE_SIZE }), 2, 0);
	it_require(strstr(paged_client_error(worker.client), "0 free and 1 cached (0 quarantined)") != NULL, "%s",
		   paged_client_error(worker.client));
	prompt_expect_pages(&worker, 0, 63, 1);
	pool_end();
}

/* Referenced pages, published or not, are never evicted. */
IT_TEST(pool_of_referenced_pages_is_full)
{
	paged_seq_id seq[N_PROMPTS], more = 0;

	pool_fill(PROMPT_POOL(""));
	for (uint32_t i = 0; i < N_PROMPTS; i++)
		seq[i] = prompt_start(&worker, &prompts[i], NULL);
	prompt_expect_pages(&worker, 0, WORKER_PAGES, 0);
	expect_full(seqs_reserve(worker.client, 1, &seq[3], (uint32_t[]){ PROMPT_TOKENS + 1 }), 1, 0);
	expect_full(paged_batch_fork(worker.batch, 1, &seq[3], (uint32_t[]){ 3 }, &more), 1, 0);
	expect_full(paged_seq_start(worker.pool, 1, &(struct paged_start){ .reserve = 8 }, &more, NULL), 2, 0);
	it_require(more == 0);
	/* Whole pages need no page. */
	worker_ok(&worker, paged_batch_fork(worker.batch, 1, &seq[3], (uint32_t[]){ PROMPT_TOKENS }, &more));
	prompt_expect_pages(&worker, 0, WORKER_PAGES, 0);
	for (uint32_t i = 0; i < N_PROMPTS; i++)
		prompt_verify(&worker, seq[i], &prompts[i], PROMPT_TOKENS);
	prompt_verify(&worker, more, &prompts[3], PROMPT_TOKENS);
	pool_end();
}

/* vLLM's prefill_not_enough_free_blocks_with_computed_blocks: a start that is refused takes no reference. */
IT_TEST(refused_start_changes_nothing)
{
	struct paged_prefix prefix;
	struct paged_start starts[2];
	paged_seq_id ids[2] = { 7, 7 };
	struct prompt prompt;

	pool_fill(PROMPT_POOL(""));
	worker_create_seq(&worker, 32 * WORKER_PAGE_SIZE);
	EXPECT_MATCHES(0, 0, 16, 16);
	/* The first needs the 16 cached pages of prompt 2 and 16 others, the second one more. */
	prompt = prompt_diverge(&prompts[2], PROMPT_TOKENS, 9, WORKER_MAX_LENGTH);
	prefix = prompt_prefix(&prompt, WORKER_MAX_LENGTH);
	starts[0] = (struct paged_start){ .prefix = &prefix, .reserve = 32 * WORKER_PAGE_SIZE };
	starts[1] = (struct paged_start){ .reserve = 1 };
	expect_full(paged_seq_start(worker.pool, 2, starts, ids, NULL), 17, 0);
	it_require(strstr(paged_client_error(worker.client), "and 16 cached") != NULL, "%s",
		   paged_client_error(worker.client));
	it_require(ids[0] == 7 && ids[1] == 7);
	prompt_expect_pages(&worker, 0, 32, 32);
	EXPECT_MATCHES(0, 0, 16, 16);
	/* vLLM's computed_blocks_not_evicted: what is shared is not evicted to make room for the rest. */
	worker_ok(&worker, paged_seq_start(worker.pool, 1, starts, ids, NULL));
	prompt_expect_pages(&worker, 0, WORKER_PAGES, 0);
	prompt_verify(&worker, ids[0], &prompt, PROMPT_TOKENS);
	pool_end();
}

/* vLLM's hash_block_correct_reuse: pages that are written again are not found under what they held. */
IT_TEST(evicted_pages_are_used_for_other_content)
{
	struct prompt other = prompt_make(50, WORKER_MAX_LENGTH), another = prompt_make(51, WORKER_MAX_LENGTH);
	paged_seq_id seq;

	pool_fill(PROMPT_POOL(""));
	seq = prompt_compute(&worker, &other);
	EXPECT_MATCHES(0, 0, 16, 16);
	prompt_compute(&worker, &another);
	EXPECT_MATCHES(0, 0, 0, 0);
	prompt_verify(&worker, seq, &other, WORKER_MAX_LENGTH);
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	it_require(prompt_match(&worker, &other) == WORKER_MAX_LENGTH);
	seq = prompt_start(&worker, &other, NULL);
	prompt_verify(&worker, seq, &other, WORKER_MAX_LENGTH);
	pool_end();
}

/* Pinned prefixes are evicted after all others, also by requests; the limit is the pool's. */
IT_TEST(pinned_prefixes_are_evicted_last)
{
	struct paged_prefix prefix;
	paged_seq_id seq;
	uint32_t n;

	pool_fill(PROMPT_POOL("pin-limit = 16"));
	prefix = prompt_prefix(&prompts[0], PROMPT_TOKENS);
	worker_ok(&worker, paged_prefix_pin(worker.pool, &prefix, 3600, &n));
	it_require(n == PROMPT_TOKENS);
	prefix = prompt_prefix(&prompts[1], PROMPT_TOKENS);
	worker_expect(&worker, paged_prefix_pin(worker.pool, &prefix, 3600, &n), PAGED_ERR_LIMIT);
	seq = worker_create_seq(&worker, 17 * WORKER_PAGE_SIZE);
	EXPECT_MATCHES(16, 0, 15, 16);
	worker_create_seq(&worker, 31 * WORKER_PAGE_SIZE);
	EXPECT_MATCHES(16, 0, 0, 0);
	worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ 20 * WORKER_PAGE_SIZE }));
	EXPECT_MATCHES(13, 0, 0, 0);
	it_require(worker_pool_entry(&worker, "test").n_pinned == 13, "%u",
		   worker_pool_entry(&worker, "test").n_pinned);
	pool_end();
}

static bool
no_page_is_pinned(void *argument)
{
	(void)argument;
	return worker_pool_entry(&worker, "test").n_pinned == 0;
}

/* A pin that has ended counts no more. */
IT_TEST(pins_end)
{
	struct paged_prefix prefix;
	uint32_t n;

	pool_fill(PROMPT_POOL(""));
	prefix = prompt_prefix(&prompts[0], PROMPT_TOKENS);
	worker_ok(&worker, paged_prefix_pin(worker.pool, &prefix, 1, &n));
	it_require(worker_pool_entry(&worker, "test").n_pinned == PROMPT_PAGES);
	it_require(it_wait(no_page_is_pinned, NULL), "the pin has not ended");
	worker_ok(&worker, paged_prefix_pin(worker.pool, &prefix, 3600, &n));
	worker_ok(&worker, paged_prefix_pin(worker.pool, &prefix, 0, &n));
	it_require(n == PROMPT_TOKENS && worker_pool_entry(&worker, "test").n_pinned == 0);
	worker_expect(&worker, paged_prefix_pin(worker.pool, &prefix, 366 * 24 * 3600 + 1, &n), PAGED_ERR_LIMIT);
	pool_end();
}

static bool
eight_pages_are_free(void *argument)
{
	(void)argument;
	return worker_pool_entry(&worker, "test").n_free == 8;
}

/* free-pages: the daemon evicts ahead, between requests. */
IT_TEST(pages_are_evicted_ahead)
{
	pool_fill("pool test { " WORKER_POOL_SETTINGS " free-pages = 8 }\n");
	it_require(it_wait(eight_pages_are_free, NULL), "%u pages are free", worker_pool_entry(&worker, "test").n_free);
	EXPECT_MATCHES(8, 16, 16, 16);
	pool_end();
}

/* LMCache's retrieve_partial_miss: nothing behind a gap is found or shared. */
IT_TEST(prefix_ends_before_a_gap)
{
	struct prompt prompt = prompt_make(200, WORKER_MAX_LENGTH);
	uint32_t n_shared;
	paged_seq_id seq;

	pool_fill(PROMPT_POOL(""));
	prompt_compute(&worker, &prompt);
	prompt.tokens[33]++;
	it_require(prompt_match(&worker, &prompt) == 32);
	seq = prompt_start(&worker, &prompt, &n_shared);
	it_require(n_shared == 32);
	prompt_verify(&worker, seq, &prompt, 32);
	pool_end();
}

IT_MAIN
