/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/sharing/cached_pool.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <unistd.h>

#include "bench/base.h"
#include "bench/random.h"

#define N_SLOTS 8192u
#define MAX_PAGES (CACHED_PARENT_PAGES + 63) /* of a sequence */
#define MAX_TOKENS (MAX_PAGES * CACHED_PAGE_SIZE)
#define PIN_SECONDS (24u * 3600)
#define MAX_GROWING (CACHED_MAX_CHAINS + CACHED_MAX_PARENTS + 32)

/* Sequences of the pool other than chains and parents. */
static const uint32_t lengths[] = { 8, 32, 128, 512, 2048 }; /* pages */

double
cached_pool_bytes(uint32_t n_pages)
{
	/* Node and block key, up to four buckets, count; in the core: struct pool_page, stack, scratch memory. */
	return n_pages * (192.0 + 16 + 8 + 16 + 4 + 8) + 128e6;
}

const struct region_view *
cached_pool_view(const struct cached_pool *pool)
{
	return core_pool_view(pool->core, 0);
}

void
cached_pool_tokens(uint64_t number, uint32_t n, uint32_t *tokens)
{
	uint64_t state = number * 0x9e3779b97f4a7c15u;

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = bench_random(&state, 128000);
}

uint32_t
cached_pool_chain(struct cached_pool *pool)
{
	return pool->next_chain++ % pool->n_chains;
}

paged_seq_id
cached_pool_parent(struct cached_pool *pool)
{
	return pool->parents[pool->next_parent++ % pool->n_parents];
}

void
cached_pool_create(const struct cached_pool *pool, uint32_t n, uint32_t n_tokens, paged_seq_id *seqs)
{
	struct seq_spec specs[PAGED_MAX_REQUEST_SEQS];
	struct paged_error error;

	for (uint32_t i = 0; i < n; i++)
		specs[i] = (struct seq_spec){ .n_tokens = n_tokens, .tag = "" };
	bench_must(core_seq_create(pool->core, pool->session, n, specs, seqs, &error), &error);
}

void
cached_pool_reserve(const struct cached_pool *pool, uint32_t n, const paged_seq_id *seqs, uint32_t n_tokens)
{
	struct paged_seq_item items[PAGED_MAX_REQUEST_SEQS];
	struct paged_error error;

	for (uint32_t i = 0; i < n; i++)
		items[i] = (struct paged_seq_item){ .seq = seqs[i], .n_tokens = n_tokens };
	bench_must(core_seq_reserve(pool->core, pool->session, n, items, &error), &error);
}

void
cached_pool_erase(const struct cached_pool *pool, uint32_t n, const paged_seq_id *seqs)
{
	struct paged_error error;

	bench_must(core_seq_erase(pool->core, pool->session, n, seqs, &error), &error);
}

void
cached_pool_publish(const struct cached_pool *pool, paged_seq_id seq, uint32_t from, uint32_t n, const uint32_t *tokens)
{
	struct core_publish publish = { .seq = seq, .from = from, .keys = { .n_pages = n, .tokens = tokens } };
	struct region_snapshot snapshot;
	struct paged_error error;
	uint32_t n_published, end;

	region_snapshot_begin(cached_pool_view(pool), seq, &snapshot);
	publish.version = snapshot.version;
	bench_must(core_seq_publish(pool->core, pool->session, 1, &publish, &n_published, &end, &error), &error);
	if (n_published != from + n)
		bench_die("%u of %u pages published", n_published, from + n);
}

/* Filling */

/* Puts the free list out of order: random sequences take all pages, and end. */
static void
pool_scatter(const struct cached_pool *pool)
{
	static paged_seq_id seqs[N_SLOTS];
	static uint32_t n_has[N_SLOTS];
	uint32_t n = MIN(N_SLOTS, pool->n_pages / 64);
	uint64_t random = 2;

	for (uint32_t i = 0; i < n; i++) {
		cached_pool_create(pool, 1, 0, &seqs[i]);
		n_has[i] = 0;
	}
	for (uint32_t left = pool->n_pages; left > 0; left--) {
		uint32_t i = bench_random(&random, n);

		while (n_has[i] == MAX_PAGES)
			i = (i + 1) % n;
		cached_pool_reserve(pool, 1, &seqs[i], ++n_has[i] * CACHED_PAGE_SIZE);
	}
	for (uint32_t i = 0; i < n; i++)
		cached_pool_erase(pool, 1, &seqs[i]);
}

/* A sequence that grows page by page until it has n_pages. */
struct growing {
	paged_seq_id seq;
	uint64_t number;
	uint32_t n_has, n_pages;
};

static void
growing_begin(struct cached_pool *pool, struct growing *growing, uint64_t *random)
{
	uint64_t number = pool->n_seqs++;
	uint32_t n_pages = lengths[bench_random(random, BENCH_N(lengths))];

	if (number < pool->n_chains)
		n_pages = CACHED_CHAIN_PAGES;
	else if (number < pool->n_chains + pool->n_parents)
		n_pages = CACHED_PARENT_PAGES;
	*growing = (struct growing){ .number = number, .n_pages = n_pages };
	cached_pool_create(pool, 1, 0, &growing->seq);
}

static void
chain_keep(const struct cached_pool *pool, paged_seq_id seq, struct cached_chain *chain)
{
	const struct region_view *view = cached_pool_view(pool);
	uint32_t last, n_pages;
	struct paged_error error;

	core_seq_pages(pool->core, seq, 0, chain->pages, CACHED_CHAIN_PAGES);
	for (uint32_t i = 0; i < CACHED_CHAIN_PAGES; i++)
		chain->hashes[i] = region_node(view, chain->pages[i])->hash;
	last = chain->pages[CACHED_CHAIN_PAGES - 1];
	bench_must(core_prefix_pin(pool->core, &(struct core_pinner){ .session = pool->session }, 0, last,
				   region_node(view, last)->serial, PIN_SECONDS, &n_pages, &error),
		   &error);
}

/* Publishes what it has, and ends it unless it is a parent. */
static void
growing_end(struct cached_pool *pool, const struct growing *growing)
{
	static uint32_t tokens[MAX_TOKENS];

	if (growing->n_has == 0)
		return;
	cached_pool_tokens(growing->number, growing->n_has * CACHED_PAGE_SIZE, tokens);
	cached_pool_publish(pool, growing->seq, 0, growing->n_has, tokens);
	if (growing->number < pool->n_chains) {
		chain_keep(pool, growing->seq, &pool->chains[growing->number]);
	} else if (growing->number < pool->n_chains + pool->n_parents) {
		pool->parents[growing->number - pool->n_chains] = growing->seq;
		return;
	}
	cached_pool_erase(pool, 1, &growing->seq);
}

/* Chains, parents and some others grow at a time; then others until no page is free. */
static void
pool_fill(struct cached_pool *pool)
{
	uint32_t n_long = pool->n_chains + pool->n_parents, n = n_long + MAX(1, n_long / 4);
	struct growing growing[MAX_GROWING];
	uint64_t random = 3;

	for (uint32_t i = 0; i < n; i++)
		growing_begin(pool, &growing[i], &random);
	for (uint32_t left = pool->n_pages; left > 0; left--) {
		struct growing *one = &growing[bench_random(&random, n)];

		cached_pool_reserve(pool, 1, &one->seq, ++one->n_has * CACHED_PAGE_SIZE);
		if (one->n_has < one->n_pages)
			continue;
		growing_end(pool, one);
		growing_begin(pool, one, &random);
	}
	for (uint32_t i = 0; i < n; i++) {
		if (growing[i].number < n_long)
			bench_die("%u pages are too few for %u sequences of 32k tokens", pool->n_pages, n_long);
		growing_end(pool, &growing[i]);
	}
}

/* As the daemon maps a region: a memfd in pages of 4 KiB. */
static void *
pool_map(size_t size)
{
	int fd = memfd_create("paged-bench", MFD_CLOEXEC);
	void *region;

	if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
		bench_die("memfd of %zu bytes: %m", size);
	region = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (region == MAP_FAILED)
		bench_die("mmap of %zu bytes: %m", size);
	close(fd);
	return region;
}

void
cached_pool_open(struct cached_pool *pool)
{
	const struct core_pool_params params = { .name = "bench",
						 .n_pages = pool->n_pages,
						 .page_size = CACHED_PAGE_SIZE,
						 .n_slots = N_SLOTS,
						 .max_length = MAX_TOKENS,
						 .publish = true,
						 .pin_limit = pool->n_pages,
						 .seed = 1 };
	static const uint8_t boot_id[REGION_BOOT_ID_SIZE] = { 1 };
	uint32_t number, member;
	struct paged_error error;

	pool->region = pool_map(core_region_size(&params));
	bench_must(core_create(boot_id, &pool->core, &error), &error);
	bench_must(core_pool_add(pool->core, &params, pool->region, &number, &error), &error);
	bench_must(core_session_open(pool->core, &pool->session, &member, &error), &error);
	core_set_now(pool->core, 1000);
	if (pool->fill == CACHED_POOL_FULL) {
		pool->n_chains = MIN(CACHED_MAX_CHAINS, pool->n_pages / 5000);
		pool->n_parents = MIN(CACHED_MAX_PARENTS, pool->n_pages / 10000);
	}
	pool->chains = bench_alloc(pool->n_chains, sizeof(*pool->chains));
	pool->parents = bench_alloc(pool->n_parents, sizeof(*pool->parents));
	if (pool->fill != CACHED_POOL_FRESH)
		pool_scatter(pool);
	if (pool->fill == CACHED_POOL_FULL)
		pool_fill(pool);
}

void
cached_pool_close(struct cached_pool *pool)
{
	size_t size = pool->core != NULL ? ((const struct region_header *)pool->region)->total_size : 0;

	core_destroy(pool->core);
	if (size > 0)
		munmap(pool->region, size);
	free(pool->chains);
	free(pool->parents);
}
