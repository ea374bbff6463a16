/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cached_pool.h - a core with one pool that is full of published sequences, as after hours of work
 *
 * Pages have 16 tokens.  All are cached, those of the parents excepted.  Sequences have different lengths and grew
 * interleaved, from a free list that is out of order, so that a sequence's pages are scattered.  Each sequence has
 * token ids of its own.
 *
 * Chains are prefixes of 32k tokens.  They are pinned, so that no case of the benchmark evicts them.
 */
#ifndef PAGED_BENCH_SHARING_CACHED_POOL_H
#define PAGED_BENCH_SHARING_CACHED_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/core.h"

#define CACHED_PAGE_SIZE 16u
#define CACHED_CHAIN_PAGES 2048u
#define CACHED_CHAIN_TOKENS (CACHED_CHAIN_PAGES * CACHED_PAGE_SIZE)
#define CACHED_MAX_CHAINS 64u
/** Pages of a parent: those of a chain, and one that is not full. */
#define CACHED_PARENT_PAGES (CACHED_CHAIN_PAGES + 1)
#define CACHED_MAX_PARENTS 16u

enum cached_pool_fill {
	CACHED_POOL_FULL,  /* of cached pages */
	CACHED_POOL_FREE,  /* all pages are free, and were used */
	CACHED_POOL_FRESH, /* all pages are free, and their memory was never written */
};

/** A chain's pages, and the hashes of its nodes. */
struct cached_chain {
	uint32_t pages[CACHED_CHAIN_PAGES];
	uint64_t hashes[CACHED_CHAIN_PAGES];
};

struct cached_pool {
	uint32_t n_pages;
	enum cached_pool_fill fill;
	struct core *core;
	void *region;
	uint32_t session;
	uint32_t n_chains, next_chain;
	struct cached_chain *chains; /* [n_chains] */
	uint32_t n_parents, next_parent;
	paged_seq_id *parents; /* [n_parents] live sequences of CACHED_PARENT_PAGES published pages */
	uint64_t n_seqs;       /* numbers used */
	paged_seq_id waiting;  /* a sequence of the next sample; 0: none */
};

/** cached_pool_bytes - memory that a full pool uses */
double cached_pool_bytes(uint32_t n_pages);

/** cached_pool_open - create and fill the pool of pool->n_pages; FULL needs 10,000 pages at least */
void cached_pool_open(struct cached_pool *pool);
void cached_pool_close(struct cached_pool *pool);

const struct region_view *cached_pool_view(const struct cached_pool *pool);

/** cached_pool_tokens - n token ids of the sequence of this number; those of chains are 0 to n_chains - 1 */
void cached_pool_tokens(uint64_t number, uint32_t n, uint32_t *tokens);

/** cached_pool_chain - the next chain in turn, so that the cache holds little of it */
uint32_t cached_pool_chain(struct cached_pool *pool);

/** cached_pool_parent - the next parent in turn */
paged_seq_id cached_pool_parent(struct cached_pool *pool);

/* Requests of the pool's session; n is at most PAGED_MAX_REQUEST_SEQS. */
void cached_pool_create(const struct cached_pool *pool, uint32_t n, uint32_t n_tokens, paged_seq_id *seqs);
void cached_pool_reserve(const struct cached_pool *pool, uint32_t n, const paged_seq_id *seqs, uint32_t n_tokens);
void cached_pool_erase(const struct cached_pool *pool, uint32_t n, const paged_seq_id *seqs);

/** cached_pool_publish - publish pages [from, from + n) of a sequence; tokens: those of the page `from` and after */
void cached_pool_publish(const struct cached_pool *pool, paged_seq_id seq, uint32_t from, uint32_t n,
			 const uint32_t *tokens);

#endif
