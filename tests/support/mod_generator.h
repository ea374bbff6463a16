/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_generator.h - generates random mods and the random arrays that they read
 *
 * The seed of the last generator_seed() determines all results, so a test
 * that prints its seed can be repeated.  There is one random stream; only one
 * thread may use it.
 */
#ifndef PAGED_TESTS_MOD_GENERATOR_H
#define PAGED_TESTS_MOD_GENERATOR_H

#include "tests/support/mod_fixture.h"

/** generator_seed - restart the stream with a seed and fill the arrays from it */
void generator_seed(uint64_t seed);

/** The next number of the stream: below n; 64 random bits; an f32 in [-amplitude, amplitude). */
uint32_t generator_pick(uint32_t n);
uint64_t generator_bits(void);
float generator_float(float amplitude);

/** The arrays that every generated text may read; a text need not use them. */
enum generator_array {
	GENERATOR_DOC,    /* i32[40]; one entry is INT32_MAX */
	GENERATOR_BYTES,  /* u8[40] */
	GENERATOR_SLOPE,  /* f32[40]; one entry is infinite */
	GENERATOR_CAP,    /* f32 */
	GENERATOR_WINDOW, /* i32 */
	GENERATOR_GRID,   /* i32[6][7] */
	GENERATOR_TABLE,  /* f32[6][7] */
	GENERATOR_N_ARRAYS,
};

extern const struct mod_array generator_arrays[GENERATOR_N_ARRAYS];

struct generator_text {
	char at[2048];
	size_t length;
	bool score; /* the text may use `score` */
	bool floats;
};

/** generator_expression - a text with any construct of the language; may exceed the language's limits */
struct generator_text generator_expression(enum mod_kind kind);

/** generator_comparisons - a mask mod that compares sums and differences, some near the limits of the integer range */
struct generator_text generator_comparisons(enum mod_kind kind);

/** generator_mod - a mod from a text of make() that is within the limits, bound to the arrays; may be indexed */
struct mod_fixture generator_mod(enum mod_kind kind, struct generator_text (*make)(enum mod_kind kind),
				 struct generator_text *text);

#endif
