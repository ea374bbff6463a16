/* SPDX-License-Identifier: Apache-2.0 */
/* What the samples of sharing_core.c must do at least. */
#define XXH_INLINE_ALL
#include <string.h>
#include <xxhash.h>

#include "bench/base.h"
#include "bench/sharing/cached_pool.h"
#include "bench/sharing/sharing_core.h"

#define PAGES_AHEAD 16u /* two lines each: 32 in flight */
#define N_TABLES 64u
#define N_KEY_PAGES 1024u

static uint8_t *
key_address(const struct cached_pool *pool, uint32_t page)
{
	return (uint8_t *)region_block_key(cached_pool_view(pool), page);
}

double
sharing_lines_us(const void *context)
{
	struct cached_pool *pool = (struct cached_pool *)context;
	const struct cached_chain *chain = &pool->chains[cached_pool_chain(pool)];
	const struct region_view *view = cached_pool_view(pool);
	volatile uint64_t sink;
	uint64_t sum = 0, start = bench_now_ns();

	for (uint32_t i = 0; i < CACHED_CHAIN_PAGES + PAGES_AHEAD; i++) {
		if (i < CACHED_CHAIN_PAGES) {
			__builtin_prefetch((const void *)region_bucket(view, chain->hashes[i]));
			__builtin_prefetch(region_node(view, chain->pages[i]));
		}
		if (i >= PAGES_AHEAD)
			sum += *region_bucket(view, chain->hashes[i - PAGES_AHEAD]) +
			       region_node(view, chain->pages[i - PAGES_AHEAD])->hash;
	}
	sink = sum;
	(void)sink;
	return bench_since_us(start);
}

double
sharing_counts_us(const void *context)
{
	static uint32_t table[CACHED_CHAIN_PAGES];
	struct cached_pool *pool = (struct cached_pool *)context;
	const uint32_t *pages = pool->chains[cached_pool_chain(pool)].pages;
	uint64_t start = 0;

	for (int pass = 0; pass < 2; pass++) {
		start = bench_now_ns();
		for (uint32_t i = 0; i < CACHED_CHAIN_PAGES; i++) {
			struct region_page *page = region_page(cached_pool_view(pool), pages[i]);
			uint32_t count = atomic_load_explicit(&page->count, memory_order_relaxed);

			/* The same value, so that the pool stays as it is. */
			atomic_store_explicit(&page->count, count, memory_order_relaxed);
			*(volatile uint32_t *)&table[i] = pages[i];
		}
	}
	return bench_since_us(start);
}

static double
tables_us(struct cached_pool *pool, uint32_t n)
{
	static uint32_t tables[N_TABLES][CACHED_CHAIN_PAGES];
	paged_seq_id parent = cached_pool_parent(pool);
	const void *table = (const void *)region_page_table(cached_pool_view(pool), PAGED_SEQ_SLOT(parent));
	uint64_t start = bench_now_ns();

	for (uint32_t i = 0; i < n; i++) {
		memcpy(tables[i], table, sizeof(tables[i]));
		__asm__ volatile("" : : "r"(tables[i]) : "memory");
	}
	return bench_since_us(start);
}

double
sharing_table_us(const void *pool)
{
	return tables_us((struct cached_pool *)pool, 1);
}

double
sharing_tables_us(const void *pool)
{
	return tables_us((struct cached_pool *)pool, N_TABLES);
}

double
sharing_keys_ns(const void *context)
{
	static uint32_t tokens[N_KEY_PAGES][CACHED_PAGE_SIZE], pages[N_KEY_PAGES];
	struct cached_pool *pool = (struct cached_pool *)context;
	uint64_t hash = 0, start;
	paged_seq_id seq;
	double us;

	cached_pool_create(pool, 1, N_KEY_PAGES * CACHED_PAGE_SIZE, &seq);
	core_seq_pages(pool->core, seq, 0, pages, N_KEY_PAGES);
	cached_pool_tokens(pool->n_seqs++, N_KEY_PAGES * CACHED_PAGE_SIZE, tokens[0]);
	start = bench_now_ns();
	for (uint32_t i = 0; i < N_KEY_PAGES; i++) {
		uint8_t *key = key_address(pool, pages[i]); /* unused, as the page is not published */

		if (i + PAGES_AHEAD < N_KEY_PAGES) {
			__builtin_prefetch(key_address(pool, pages[i + PAGES_AHEAD]), 1);
			__builtin_prefetch(key_address(pool, pages[i + PAGES_AHEAD]) + REGION_EXTRA_SIZE, 1);
		}
		hash = XXH3_64bits_withSeed(tokens[i], sizeof(tokens[i]), hash);
		memset(key, 0, REGION_EXTRA_SIZE);
		memcpy(key + REGION_EXTRA_SIZE, tokens[i], sizeof(tokens[i]));
	}
	us = bench_since_us(start);
	cached_pool_erase(pool, 1, &seq);
	return us * 1e3 / N_KEY_PAGES + (hash == 0);
}
