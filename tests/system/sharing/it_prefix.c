/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes that processes publish and share: twins, deaths, eviction between match and start. */
#include "config.h"

#include <string.h>

#include "tests/support/sequences.h"
#include "tests/system/prompt_fixture.h"

#define PROMPT_SEED 20261122u
#define LENGTH 34u /* tokens of the prompt; the last page is not full */
#define PUBLISHED 32u
#define N_PUBLISHED (PUBLISHED / WORKER_PAGE_SIZE)
#define N_PAGES (N_PUBLISHED + 1)

static uint32_t
evict_all(struct worker_fixture *worker)
{
	uint32_t n;

	worker_ok(worker, paged_admin_evict(worker->client, "test", 0, &n));
	return n;
}

/* The test tells the worker by a byte when to take its next step, and the worker says by a byte that it has. */
static void
step_wait(int from)
{
	char word;

	it_receive(from, &word, 1);
}

static void
step_tell(int to)
{
	it_send(to, "s", 1);
}

static void
worker_step(struct it_worker *child)
{
	step_tell(child->to);
	step_wait(child->from);
}

/* Computes and publishes the prompt, step by step. */
static void
publisher(int from, int to, void *argument)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	uint32_t n_shared;
	struct worker_fixture worker;
	paged_seq_id seq;

	(void)argument;
	worker_open(&worker, NULL, 0);
	step_wait(from);
	seq = prompt_start(&worker, &prompt, &n_shared);
	prompt_write(&worker, seq, &prompt, n_shared, LENGTH);
	it_send(to, &n_shared, 1);
	step_wait(from);
	it_require(prompt_publish(&worker, seq, &prompt, LENGTH) == PUBLISHED);
	step_tell(to);
	step_wait(from);
	prompt_verify(&worker, seq, &prompt, LENGTH);
	it_require(prompt_info(&worker, seq, NULL).writable_from == PUBLISHED);
	worker_close(&worker);
}

/*
 * vLLM's maybe_evict_cached_block: two chains of the same content, of which one is the index's.  LMCache's
 * store_and_lookup, store_retrieve_verify: a third process finds it and has the writers' bits.
 */
IT_TEST(twins_publish_the_same_prefix)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	struct paged_node_entry *nodes;
	struct it_worker twin[2];
	struct worker_fixture third;
	struct it_daemon daemon;
	uint32_t n_shared;
	paged_seq_id seq;
	size_t n;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&third, NULL, 0);
	for (int i = 0; i < 2; i++)
		it_fork(&twin[i], publisher, NULL);
	for (int i = 0; i < 2; i++)
		worker_step(&twin[i]);
	it_require(prompt_match(&third, &prompt) == 0);
	/* Both publish at once. */
	for (int i = 0; i < 2; i++)
		step_tell(twin[i].to);
	for (int i = 0; i < 2; i++)
		step_wait(twin[i].from);
	it_require(prompt_match(&third, &prompt) == PUBLISHED);
	it_require(worker_pool_entry(&third, "test").n_published == N_PUBLISHED, "one chain");
	prompt_expect_pages(&third, WORKER_PAGES - 2 * N_PAGES, 2 * N_PAGES, 0);

	seq = prompt_start(&third, &prompt, &n_shared);
	it_require(n_shared == PUBLISHED, "%u", n_shared);
	prompt_verify(&third, seq, &prompt, PUBLISHED);
	prompt_write(&third, seq, &prompt, PUBLISHED, LENGTH);
	prompt_verify(&third, seq, &prompt, LENGTH);
	prompt_expect_pages(&third, WORKER_PAGES - 2 * N_PAGES - 1, 2 * N_PAGES + 1, 0);
	worker_ok(&third, paged_admin_prefixes(third.client, "test", sizeof(*nodes), &nodes, &n));
	it_require(n == N_PUBLISHED);
	for (size_t i = 0; i < n; i++)
		it_require(nodes[i].n_references == 2 && nodes[i].hits == 1, "page %u: %u references, %u hits",
			   nodes[i].page, nodes[i].n_references, nodes[i].hits);
	paged_free(nodes);

	for (int i = 0; i < 2; i++) {
		step_tell(twin[i].to);
		it_join(&twin[i]);
	}
	prompt_verify(&third, seq, &prompt, LENGTH);
	prompt_expect_pages(&third, WORKER_PAGES - N_PAGES, N_PAGES, 0);
	worker_ok(&third, paged_seq_erase(third.client, 1, &seq));
	prompt_expect_pages(&third, WORKER_PAGES - N_PUBLISHED, 0, N_PUBLISHED);
	worker_close(&third);
	it_daemon_stop(&daemon);
}

/* The twin's own pages can be published when the chain that stood for them has been evicted. */
IT_TEST(twin_publishes_again_after_eviction)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	uint32_t n_shared, n_pages, own[WORKER_MAX_LENGTH], found[WORKER_MAX_LENGTH];
	struct worker_fixture first, second;
	struct it_daemon daemon;
	paged_seq_id one, two;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&first, NULL, 0);
	worker_open(&second, NULL, 0);
	two = worker_create_seq(&second, LENGTH);
	prompt_write(&second, two, &prompt, 0, LENGTH);
	one = prompt_compute(&first, &prompt);
	it_require(prompt_publish(&second, two, &prompt, LENGTH) == PUBLISHED);
	worker_ok(&first, paged_seq_erase(first.client, 1, &one));
	it_require(evict_all(&first) == N_PUBLISHED);
	it_require(prompt_match(&first, &prompt) == 0);
	prompt_verify(&second, two, &prompt, LENGTH);

	/* The first publish finds that the chain was evicted; the second one starts from page 0. */
	worker_ok(&second, seqs_reserve(second.client, 1, &two, (uint32_t[]){ 48 }));
	prompt = prompt_diverge(&prompt, LENGTH, 7, 48);
	prompt_write(&second, two, &prompt, LENGTH, 48);
	for (int i = 0; i < 2; i++)
		n_pages = prompt_publish(&second, two, &prompt, 48) / WORKER_PAGE_SIZE;
	it_require(n_pages == 12, "%u", n_pages);
	one = prompt_start(&first, &prompt, &n_shared);
	it_require(n_shared == 48);
	prompt_verify(&first, one, &prompt, 48);
	prompt_info(&second, two, own);
	prompt_info(&first, one, found);
	it_require(memcmp(own, found, 12 * sizeof(own[0])) == 0);
	worker_close(&second);
	prompt_verify(&first, one, &prompt, 48);
	worker_close(&first);
	it_daemon_stop(&daemon);
}

struct reference_wait {
	struct worker_fixture *observer;
	uint32_t n_referenced;
};

static bool
are_referenced(void *argument)
{
	const struct reference_wait *wait = argument;

	return worker_pool_entry(wait->observer, "test").n_referenced == wait->n_referenced;
}

static void
wait_referenced(struct worker_fixture *observer, uint32_t n)
{
	it_require(it_wait(are_referenced, &(struct reference_wait){ observer, n }), "%u pages are referenced",
		   worker_pool_entry(observer, "test").n_referenced);
}

IT_TEST(publisher_killed_before_publish)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	struct worker_fixture observer;
	struct it_daemon daemon;
	struct it_worker child;

	it_daemon_start(&daemon, PROMPT_POOL("quarantine = 60min"), NULL, NULL);
	worker_observe(&observer);
	it_fork(&child, publisher, NULL);
	worker_step(&child);
	it_kill(&child);
	wait_referenced(&observer, 0);
	prompt_expect_pages(&observer, WORKER_PAGES - N_PAGES, 0, 0);
	it_require(worker_pool_entry(&observer, "test").n_quarantined == N_PAGES);
	it_require(prompt_match(&observer, &prompt) == 0);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/*
 * Published pages need no quarantine: they are used while the dead worker's other pages wait.  LMCache's
 * disconnect_reclaim: a worker that lives keeps what it has.
 */
IT_TEST(publisher_killed_after_publish)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH), other = prompt_make(1, WORKER_PAGE_SIZE);
	struct worker_fixture worker;
	struct it_daemon daemon;
	struct it_worker child;
	paged_seq_id seq, kept;
	uint32_t n_shared;

	it_daemon_start(&daemon, PROMPT_POOL("quarantine = 60min"), NULL, NULL);
	worker_open(&worker, NULL, 0);
	kept = worker_create_seq(&worker, WORKER_PAGE_SIZE);
	prompt_write(&worker, kept, &other, 0, WORKER_PAGE_SIZE);
	it_fork(&child, publisher, NULL);
	worker_step(&child);
	worker_step(&child);
	it_kill(&child);
	wait_referenced(&worker, 1);
	prompt_expect_pages(&worker, WORKER_PAGES - N_PAGES - 1, 1, N_PUBLISHED);
	it_require(worker_pool_entry(&worker, "test").n_quarantined == 1, "the page that is not full");
	seq = prompt_start(&worker, &prompt, &n_shared);
	it_require(n_shared == PUBLISHED);
	prompt_verify(&worker, seq, &prompt, PUBLISHED);
	prompt_verify(&worker, kept, &other, WORKER_PAGE_SIZE);
	it_require(worker_pool_entry(&worker, "test").n_quarantined == 1);
	worker_ok(&worker, paged_seq_erase(worker.client, 2, (paged_seq_id[]){ seq, kept }));
	prompt_expect_pages(&worker, WORKER_PAGES - N_PUBLISHED - 1, 0, N_PUBLISHED);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* A match is a hint. */
IT_TEST(eviction_between_match_and_start)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	struct worker_fixture worker, admin;
	struct it_daemon daemon;
	uint32_t n_shared;
	paged_seq_id seq;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_observe(&admin);
	seq = prompt_compute(&worker, &prompt);
	it_require(evict_all(&admin) == 0, "referenced pages are not evicted");
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	it_require(prompt_match(&worker, &prompt) == PUBLISHED);
	it_require(evict_all(&admin) == N_PUBLISHED);
	seq = prompt_start(&worker, &prompt, &n_shared);
	it_require(n_shared == 0, "%u", n_shared);
	prompt_write(&worker, seq, &prompt, 0, LENGTH);
	prompt_verify(&worker, seq, &prompt, LENGTH);
	prompt_expect_pages(&worker, WORKER_PAGES - N_PAGES, N_PAGES, 0);
	worker_close(&admin);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

#define EVICT_MS 1000

static void
evict_repeatedly(int from, int to, void *argument)
{
	uint64_t end = it_now_ms() + EVICT_MS;
	struct worker_fixture admin;
	uint32_t n_evicted = 0;

	(void)from, (void)argument;
	worker_observe(&admin);
	while (n_evicted == 0 || it_now_ms() < end)
		n_evicted += evict_all(&admin);
	it_send(to, &n_evicted, sizeof(n_evicted));
	worker_close(&admin);
}

/* Starts that find pages which are evicted at the same time share less, but never something else. */
IT_TEST(starts_race_with_eviction)
{
	struct prompt prompt = prompt_make(PROMPT_SEED, LENGTH);
	uint32_t n_shared, n_evicted, n_starts = 0, n_hits = 0;
	uint64_t end = it_now_ms() + EVICT_MS;
	struct worker_fixture worker;
	struct it_daemon daemon;
	struct it_worker child;
	paged_seq_id seq;

	it_daemon_start(&daemon, PROMPT_POOL(""), NULL, NULL);
	worker_open(&worker, NULL, 0);
	it_fork(&child, evict_repeatedly, NULL);
	for (; it_now_ms() < end; n_starts++) {
		seq = prompt_start(&worker, &prompt, &n_shared);
		n_hits += n_shared > 0;
		prompt_verify(&worker, seq, &prompt, n_shared);
		prompt_write(&worker, seq, &prompt, n_shared, LENGTH);
		prompt_verify(&worker, seq, &prompt, LENGTH);
		prompt_publish(&worker, seq, &prompt, LENGTH);
		worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	}
	it_receive(child.from, &n_evicted, sizeof(n_evicted));
	it_join(&child);
	it_note("%u starts, %u of them shared pages; %u pages were evicted", n_starts, n_hits, n_evicted);
	it_require(n_evicted > 0);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
