/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mask_fixture.h - block masks computed by brute force, and random block masks
 */
#ifndef PAGED_TESTS_MASK_FIXTURE_H
#define PAGED_TESTS_MASK_FIXTURE_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/mask/mask.h"
#include "tests/support/random.h"

/** A dense mask [row][head][q_len][kv_len] with its shape; both owned. */
struct mask_dense {
	struct block_mask_shape shape;
	uint8_t *elements;
	uint64_t n;
};

/** mask_dense_open - a dense mask of all 0 */
void mask_dense_open(struct mask_dense *dense, const struct block_mask_shape *shape);
void mask_dense_close(struct mask_dense *dense);
/** mask_dense_at - the element (b, h, q, kv); q counts from the row's first query row */
uint8_t *mask_dense_at(const struct mask_dense *dense, uint32_t b, uint32_t h, uint64_t q, uint64_t kv);

/** mask_dense_random - rows of random lengths and kv_first and a random block size; many blocks are full or empty */
void mask_dense_random(struct mask_dense *dense, uint64_t *state);

/** mask_from_dense - the block mask of a dense mask, by block_mask_from_dense() */
struct block_mask *mask_from_dense(const struct mask_dense *dense);

/** expect_dense_mask - a mask has exactly the blocks of a dense one, in ascending order */
void expect_dense_mask(const struct block_mask *mask, const struct mask_dense *dense, const char *what);

/**
 * mask_encode_by_parts - the block mask of an evaluator, written and read in parts of at most `capacity` numbers
 *
 * @param[out] n_parts_p  number of parts; may be NULL
 */
struct block_mask *mask_encode_by_parts(const struct block_mask_shape *shape, const struct mask_evaluator *evaluator,
					uint32_t capacity, uint32_t *n_parts_p);

/** expect_equal_masks - both masks are equal; fails the test with a line about the first difference */
void expect_equal_masks(const struct block_mask *got, const struct block_mask *expected, const char *what);

#endif
