/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_generator.h - random mods, and random arrays for them to read
 *
 * Everything follows from the seed given last: a test that names its seed can
 * be repeated.  One stream, one thread.
 */
#ifndef PAGED_TESTS_MOD_GENERATOR_H
#define PAGED_TESTS_MOD_GENERATOR_H

#include "tests/mod_fixture.h"

/** generator_start - begin the stream of a seed, and fill the arrays from it */
void generator_start(uint64_t seed);

/** The next of the stream: a number below n, 64 bits, an f32 in [-amplitude, amplitude). */
uint32_t generator_pick(uint32_t n);
uint64_t generator_bits(void);
float generator_float(float amplitude);

/** What every text may read, used or not. */
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
	bool score; /* may be named */
	bool floats;
};

/** generator_expression - anything that the language has; may be past its limits */
struct generator_text generator_expression(enum mod_kind kind);

/** generator_comparisons - sums and differences that are compared, near the ends of the range too; a mask */
struct generator_text generator_comparisons(enum mod_kind kind);

/** generator_mod - a text of `make` that is within the limits, bound to the arrays; perhaps indexed */
struct mod_fixture generator_mod(enum mod_kind kind, struct generator_text (*make)(enum mod_kind kind),
				 struct generator_text *text);

#endif
