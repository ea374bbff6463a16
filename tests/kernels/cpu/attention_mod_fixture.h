/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_mod_fixture.h - fixtures of the tests of attention with mods: arrays that mods read, and a chunk of queries
 */
#ifndef PAGED_TESTS_ATTENTION_MOD_FIXTURE_H
#define PAGED_TESTS_ATTENTION_MOD_FIXTURE_H

#include "tests/support/kernel_fixture.h"
#include "tests/support/mod_fixture.h"

#define MOD_ARRAYS_TOKENS 1200u
#define MOD_ARRAYS_HEADS 8u

/** Arrays with the names doc, tree, slope and bias. */
struct mod_arrays {
	int32_t doc[MOD_ARRAYS_TOKENS], tree[64];
	float slope[MOD_ARRAYS_HEADS], bias[64][64];
	struct mod_array list[4];
};

/** mod_arrays_fill - fill the arrays with random contents; list[] points into the struct, so do not move it */
void mod_arrays_fill(struct mod_arrays *arrays, uint64_t seed);

/** mod_arrays_bind - parse a text and bind it to those arrays; any failure fails the test */
struct mod_fixture mod_arrays_bind(enum mod_kind kind, const char *text, const struct mod_arrays *arrays);

/** mod_chunk_params - params of a batch with 60 query rows at the end of 1100 tokens */
struct kernel_fixture_params mod_chunk_params(void);

/** assert_outputs_equal - fails the test unless kernel_fixture_equal() is true */
void assert_outputs_equal(const struct kernel_fixture *a, uint64_t a_row, const struct kernel_fixture *b,
			  uint64_t b_row, uint64_t n, const char *what);

#endif
