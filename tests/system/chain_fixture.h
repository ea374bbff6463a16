/* SPDX-License-Identifier: Apache-2.0 */
/**
 * chain_fixture.h - prefixes of many pages that are published without K and V, for programs that watch the index
 *
 * Token i of chain c is c * 4096 + i, so a page tells its place.  Any failure in
 * these functions ends the test.
 */
#ifndef TESTS_CHAIN_FIXTURE_H
#define TESTS_CHAIN_FIXTURE_H

#include "tests/support/worker_fixture.h"

#define CHAIN_PAGE_SIZE 4 /* tokens */
#define CHAIN_MAX_PAGES 256

/** Pool "test" with no pages evicted ahead, so that a reserve evicts exactly what it lacks. */
#define CHAIN_POOL(n_pages, more)       \
	"pool test { " SMALL_POOL_SHAPE \
	" page-size = 4 sequences = 64 free-pages = 0 pages = " GEOMETRY_TEXT(n_pages) " " more " }\n"

/** chain_token - token i of a chain */
static inline uint32_t
chain_token(uint32_t chain, uint32_t i)
{
	return chain * 4096 + i;
}

/** chain_tokens - the first n_pages pages of a chain; [n_pages * CHAIN_PAGE_SIZE] */
void chain_tokens(uint32_t chain, uint32_t n_pages, uint32_t *tokens);

/** chain_create - publish the first n_pages pages of a chain; salt NULL: none; erase the sequence afterwards */
paged_seq_id chain_create(struct worker_fixture *worker, uint32_t chain, uint32_t n_pages, const uint8_t *salt);

/** chain_publish - chain_create(), after which the pages are cached, as no sequence has them */
void chain_publish(struct worker_fixture *worker, uint32_t chain, uint32_t n_pages);

/** chain_erase - end a sequence */
void chain_erase(struct worker_fixture *worker, paged_seq_id seq);

#endif
