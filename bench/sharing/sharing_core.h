/* SPDX-License-Identifier: Apache-2.0 */
/**
 * sharing_core.h - samples of requests of the core on a cached_pool, and of their limits
 *
 * The context of each sample is a struct cached_pool.
 */
#ifndef PAGED_BENCH_SHARING_SHARING_CORE_H
#define PAGED_BENCH_SHARING_SHARING_CORE_H

/* Microseconds for a chain of 32k tokens. */
double sharing_match_us(const void *pool);
double sharing_start_us(const void *pool);

/* Microseconds for one child, and for 64 in one request, of 32k tokens and a page that is not full. */
double sharing_fork_us(const void *pool);
double sharing_forks_us(const void *pool);

/* Nanoseconds for a page: of a prompt in requests of 128 pages, and of 64 sequences with one page each. */
double sharing_publish_ns(const void *pool);
double sharing_publish_decode_ns(const void *pool);

/*
 * Nanoseconds for a page: of a pool with free pages; of a pool full of cached pages, as many of which were evicted
 * before as are reserved; of one that evicts them in the request.
 */
double sharing_reserve_free_ns(const void *pool);
double sharing_reserve_evicted_ns(const void *pool);
double sharing_reserve_evicting_ns(const void *pool);

/*
 * Nanoseconds for a page, of 64 sequences that give back one page each in a request: published pages, which become
 * cached, and private ones, which become free; and of as many pages of sequences that end.
 */
double sharing_trim_published_ns(const void *pool);
double sharing_trim_private_ns(const void *pool);
double sharing_erase_ns(const void *pool);

/* Limits */

/** sharing_lines_us - read two lines for each page of a chain: its bucket and its node, 32 in flight */
double sharing_lines_us(const void *pool);

/** sharing_counts_us - write the counts of a chain's pages and a page table; all in the cache */
double sharing_counts_us(const void *pool);

/* Copying the page table of a parent, once and 64 times. */
double sharing_table_us(const void *pool);
double sharing_tables_us(const void *pool);

/** sharing_keys_ns - hash the tokens of new pages by XXH3, and copy them to where their block keys will be */
double sharing_keys_ns(const void *pool);

#endif
