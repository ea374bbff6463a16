/* SPDX-License-Identifier: Apache-2.0 */
/**
 * block_mask_case.h - helpers to test block masks through the public API, with the pool of client_fixture.h
 */
#ifndef TESTS_BLOCK_MASK_CASE_H
#define TESTS_BLOCK_MASK_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/client_fixture.h"
#include "tests/support/random.h"

/** case_made - create the block mask of a mask mod's text; fails the test on error */
struct paged_block_mask *case_made(const struct paged_block_mask_params *params, const char *text, size_t n_arrays,
				   const struct paged_array *arrays);

/** case_mod - parse a mask mod */
struct paged_mod *case_mod(const char *text, size_t n_arrays, const struct paged_array *arrays);

struct paged_block_mask_info case_info(const struct paged_block_mask *mask);
struct paged_block_mask_row case_row(const struct paged_block_mask *mask, size_t row);

struct case_list {
	const uint32_t *blocks;
	uint64_t n;
};

struct case_list case_list(const struct paged_block_mask *mask, enum paged_block_kind kind, uint32_t r, uint32_t h,
			   uint64_t q_block);

/** case_expect_same - both masks have the same shape, lengths, sequences and block lists, in the same order */
void case_expect_same(const struct paged_block_mask *got, const struct paged_block_mask *expected, const char *what);

/** A mask rule as a C predicate (sees) and as the text of the equivalent mask mod. */
struct case_rule {
	const char *text;
	bool (*sees)(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx);
	bool has_heads;
};

/** Arrays that the rules read: a window of 5, and the document of each position 0 .. CASE_TOKENS - 1. */
#define CASE_TOKENS 64u
extern const struct paged_array case_arrays[2];
extern const struct case_rule case_rules[];
extern const size_t case_n_rules;

/** case_expect_brute_force - a logical mask equals the one computed by evaluating the rule for every element */
void case_expect_brute_force(const struct paged_block_mask *mask, const struct case_rule *rule);

/** case_random_rows - n random rows: q_len and kv_len up to CASE_TOKENS, and a q_base each */
void case_random_rows(struct paged_batch_row *rows, uint32_t n, uint64_t *state);

#endif
