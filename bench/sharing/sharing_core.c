/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/sharing/sharing_core.h"

#include "bench/base.h"
#include "bench/sharing/cached_pool.h"

#define N_SEQS 64u
#define N_PAGES_EACH 16u
#define N_PAGES (N_SEQS * N_PAGES_EACH) /* of a sample of publish and reserve */
#define PUBLISH_PAGES 128u              /* of a request; 8 KiB of tokens */
#define N_CHILDREN 64u
#define FORK_TOKENS (CACHED_CHAIN_TOKENS + 5)

static uint32_t tokens[CACHED_CHAIN_TOKENS];
static uint32_t found[CACHED_CHAIN_PAGES];

/* Searches a chain; returns the serial of its last node. */
static uint64_t
chain_find(const struct cached_pool *pool, uint32_t n_pages)
{
	const struct prefix_keys keys = { .n_pages = n_pages, .tokens = tokens };
	struct prefix_position at = prefix_root(cached_pool_view(pool));

	if (prefix_find(cached_pool_view(pool), &keys, &at, found) != n_pages)
		bench_die("a chain of %u pages was not found", n_pages);
	return at.serial;
}

double
sharing_match_us(const void *context)
{
	struct cached_pool *pool = (struct cached_pool *)context;
	uint64_t start;

	cached_pool_tokens(cached_pool_chain(pool), CACHED_CHAIN_TOKENS, tokens);
	start = bench_now_ns();
	chain_find(pool, CACHED_CHAIN_PAGES);
	return bench_since_us(start);
}

double
sharing_start_us(const void *context)
{
	struct cached_pool *pool = (struct cached_pool *)context;
	struct seq_start_spec spec = { .n_pages = CACHED_CHAIN_PAGES, .n_asked = 1, .tag = "" };
	struct seq_start_list list = { .n = 1, .specs = &spec, .n_pages = CACHED_CHAIN_PAGES, .pages = found };
	struct paged_error error;
	paged_seq_id seq;
	uint64_t since;
	double us;

	cached_pool_tokens(cached_pool_chain(pool), CACHED_CHAIN_TOKENS, tokens);
	spec.serial = chain_find(pool, CACHED_CHAIN_PAGES);
	since = bench_now_ns();
	bench_must(core_seq_start(pool->core, pool->session, &list, &seq, &error), &error);
	us = bench_since_us(since);
	cached_pool_erase(pool, 1, &seq);
	return us;
}

static double
fork_us(struct cached_pool *pool, uint32_t n)
{
	paged_seq_id parent = cached_pool_parent(pool), children[N_CHILDREN];
	struct seq_fork forks[N_CHILDREN];
	struct paged_error error;
	uint64_t start;
	double us;

	for (uint32_t i = 0; i < n; i++)
		forks[i] = (struct seq_fork){ .parent = parent, .n_tokens = FORK_TOKENS };
	start = bench_now_ns();
	bench_must(core_seq_fork(pool->core, pool->session, n, forks, children, &error), &error);
	us = bench_since_us(start);
	cached_pool_erase(pool, n, children);
	return us;
}

double
sharing_fork_us(const void *pool)
{
	return fork_us((struct cached_pool *)pool, 1);
}

double
sharing_forks_us(const void *pool)
{
	return fork_us((struct cached_pool *)pool, N_CHILDREN);
}

/*
 * Sequences with pages to publish.  A sample uses those that the sample before it created, so that the cache does not
 * hold what the eviction of their pages touched.
 */
static paged_seq_id
waiting_take(struct cached_pool *pool)
{
	paged_seq_id seq = pool->waiting;

	if (seq == 0)
		cached_pool_create(pool, 1, N_PAGES * CACHED_PAGE_SIZE, &seq);
	cached_pool_create(pool, 1, N_PAGES * CACHED_PAGE_SIZE, &pool->waiting);
	return seq;
}

double
sharing_publish_ns(const void *context)
{
	struct cached_pool *pool = (struct cached_pool *)context;
	paged_seq_id seq = waiting_take(pool);
	uint64_t start;
	double us;

	cached_pool_tokens(pool->n_seqs++, N_PAGES * CACHED_PAGE_SIZE, tokens);
	start = bench_now_ns();
	for (uint32_t page = 0; page < N_PAGES; page += PUBLISH_PAGES)
		cached_pool_publish(pool, seq, page, PUBLISH_PAGES, tokens + page * CACHED_PAGE_SIZE);
	us = bench_since_us(start);
	cached_pool_erase(pool, 1, &seq);
	return us * 1e3 / N_PAGES;
}

/* Publishes page `page` of each sequence in one request. */
static void
publish_step(const struct cached_pool *pool, const paged_seq_id *seqs, uint32_t page)
{
	struct core_publish publishes[N_SEQS];
	struct region_snapshot snapshot;
	uint32_t n_published[N_SEQS], ends[N_SEQS];
	struct paged_error error;

	for (uint32_t i = 0; i < N_SEQS; i++) {
		region_snapshot_begin(cached_pool_view(pool), seqs[i], &snapshot);
		publishes[i] = (struct core_publish){
			.seq = seqs[i],
			.version = snapshot.version,
			.from = page,
			.keys = { .n_pages = 1, .tokens = &tokens[(i * N_PAGES_EACH + page) * CACHED_PAGE_SIZE] },
		};
	}
	bench_must(core_seq_publish(pool->core, pool->session, N_SEQS, publishes, n_published, ends, &error), &error);
}

double
sharing_publish_decode_ns(const void *context)
{
	struct cached_pool *pool = (struct cached_pool *)context;
	paged_seq_id seqs[N_SEQS];
	uint64_t start;
	double us;

	cached_pool_create(pool, N_SEQS, N_PAGES_EACH * CACHED_PAGE_SIZE, seqs);
	cached_pool_tokens(pool->n_seqs++, N_PAGES * CACHED_PAGE_SIZE, tokens);
	start = bench_now_ns();
	for (uint32_t page = 0; page < N_PAGES_EACH; page++)
		publish_step(pool, seqs, page);
	us = bench_since_us(start);
	cached_pool_erase(pool, N_SEQS, seqs);
	return us * 1e3 / N_PAGES;
}

/* Reserves pages for new sequences; then publishes them, if the pool is to be full of cached pages, and ends them. */
static double
reserve_ns(struct cached_pool *pool)
{
	paged_seq_id seqs[N_SEQS];
	uint64_t start;
	double us;

	cached_pool_create(pool, N_SEQS, 0, seqs);
	start = bench_now_ns();
	cached_pool_reserve(pool, N_SEQS, seqs, N_PAGES_EACH * CACHED_PAGE_SIZE);
	us = bench_since_us(start);
	if (pool->fill == CACHED_POOL_FULL) {
		cached_pool_tokens(pool->n_seqs++, N_PAGES * CACHED_PAGE_SIZE, tokens);
		for (uint32_t page = 0; page < N_PAGES_EACH; page++)
			publish_step(pool, seqs, page);
	}
	cached_pool_erase(pool, N_SEQS, seqs);
	return us * 1e3 / N_PAGES;
}

double
sharing_reserve_free_ns(const void *pool)
{
	return reserve_ns((struct cached_pool *)pool);
}

/*
 * The pages were evicted by the sample before, as those of sharing_reserve_free_ns() were freed by the sample before:
 * they are in no cache.
 */
double
sharing_reserve_evicted_ns(const void *context)
{
	struct cached_pool *pool = (struct cached_pool *)context;
	const struct region_header *header = cached_pool_view(pool)->header;
	double ns = reserve_ns(pool);

	while (header->n_free < N_PAGES)
		core_prefix_evict(pool->core, 0, N_PAGES - header->n_free);
	return ns;
}

double
sharing_reserve_evicting_ns(const void *context)
{
	struct cached_pool *pool = (struct cached_pool *)context;
	uint32_t n_free = cached_pool_view(pool)->header->n_free;
	paged_seq_id others;
	double ns;

	cached_pool_create(pool, 1, n_free * CACHED_PAGE_SIZE, &others);
	ns = reserve_ns(pool);
	cached_pool_erase(pool, 1, &others);
	return ns;
}

/* Gives back page `page` of each sequence in one request. */
static void
trim_step(const struct cached_pool *pool, const paged_seq_id *seqs, uint32_t page)
{
	struct paged_seq_item items[N_SEQS];
	struct paged_error error;

	for (uint32_t i = 0; i < N_SEQS; i++)
		items[i] = (struct paged_seq_item){ .seq = seqs[i], .n_tokens = (page + 1) * CACHED_PAGE_SIZE };
	bench_must(core_seq_trim(pool->core, pool->session, N_SEQS, items, &error), &error);
}

static double
trim_ns(struct cached_pool *pool, bool publish)
{
	paged_seq_id seqs[N_SEQS];
	uint64_t start;
	double us;

	cached_pool_create(pool, N_SEQS, N_PAGES_EACH * CACHED_PAGE_SIZE, seqs);
	if (publish) {
		cached_pool_tokens(pool->n_seqs++, N_PAGES * CACHED_PAGE_SIZE, tokens);
		for (uint32_t page = 0; page < N_PAGES_EACH; page++)
			publish_step(pool, seqs, page);
	}
	start = bench_now_ns();
	for (uint32_t page = 0; page < N_PAGES_EACH; page++)
		trim_step(pool, seqs, page);
	us = bench_since_us(start);
	cached_pool_erase(pool, N_SEQS, seqs);
	return us * 1e3 / N_PAGES;
}

double
sharing_trim_published_ns(const void *pool)
{
	return trim_ns((struct cached_pool *)pool, true);
}

double
sharing_trim_private_ns(const void *pool)
{
	return trim_ns((struct cached_pool *)pool, false);
}

double
sharing_erase_ns(const void *context)
{
	const struct cached_pool *pool = context;
	paged_seq_id seqs[N_SEQS];
	uint64_t start;
	double us;

	cached_pool_create(pool, N_SEQS, N_PAGES_EACH * CACHED_PAGE_SIZE, seqs);
	start = bench_now_ns();
	cached_pool_erase(pool, N_SEQS, seqs);
	us = bench_since_us(start);
	return us * 1e3 / N_PAGES;
}
