/* SPDX-License-Identifier: Apache-2.0 */
/**
 * block_mask_fixture.h - helpers to test block masks through the public API, with the pool of client_fixture.h
 */
#ifndef TESTS_BLOCK_MASK_FIXTURE_H
#define TESTS_BLOCK_MASK_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/client_fixture.h"
#include "tests/support/mask_fixture.h"

/** fixture_mask_create - create the block mask of a mask mod's text; fails the test on error */
struct paged_block_mask *fixture_mask_create(const struct paged_block_mask_params *params, const char *text,
					     size_t n_arrays, const struct paged_array *arrays);

/** fixture_mod_parse - parse a mask mod */
struct paged_mod *fixture_mod_parse(const char *text, size_t n_arrays, const struct paged_array *arrays);

struct paged_block_mask_info fixture_mask_info(const struct paged_block_mask *mask);
struct paged_block_mask_row fixture_mask_row(const struct paged_block_mask *mask, size_t row);

struct fixture_mask_list {
	const uint32_t *blocks;
	uint64_t n;
};

struct fixture_mask_list fixture_mask_list(const struct paged_block_mask *mask, enum paged_block_kind kind, uint32_t r,
					   uint32_t h, uint64_t q_block);

/** expect_same_mask - both masks have the same shape, lengths, sequences and block lists, in the same order */
void expect_same_mask(const struct paged_block_mask *got, const struct paged_block_mask *expected, const char *what);

/** A mask rule as a C predicate (attends) and as the text of the equivalent mask mod. */
struct mask_rule {
	const char *text;
	bool (*attends)(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx);
	bool has_heads;
};

/** Arrays that the rules read: a window of 5, and the document of each position 0 .. MASK_RULE_TOKENS - 1. */
#define MASK_RULE_TOKENS 64u
extern const struct paged_array mask_rule_arrays[2];
extern const struct mask_rule mask_rules[];
extern const size_t n_mask_rules;

/** expect_brute_force_mask - a logical mask equals the one computed by evaluating the rule for every element */
void expect_brute_force_mask(const struct paged_block_mask *mask, const struct mask_rule *rule);

/** mask_random_rows - n random rows: q_len, kv_len up to MASK_RULE_TOKENS, kv_first and q_base */
void mask_random_rows(struct paged_batch_row *rows, uint32_t n, uint64_t *state);

#endif
