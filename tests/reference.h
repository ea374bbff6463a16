/* SPDX-License-Identifier: Apache-2.0 */
/**
 * reference.h - attention in float64, and the numbers that tests feed to kernels
 *
 * Plain arrays and plain loops: nothing here knows of pages, tiles or splits.
 */
#ifndef PAGED_TESTS_REFERENCE_H
#define PAGED_TESTS_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/mod/mod.h"

/** reference_random - f32 number i of a stream, in [-amplitude, amplitude); tests/golden/README.md has the formula */
float reference_random(uint64_t seed, uint64_t i, float amplitude);

/** reference_fill - the first n numbers of a stream, in [-1, 1) */
void reference_fill(float *to, size_t n, uint64_t seed);

/** reference_bits - 64 random bits, number i of a stream */
uint64_t reference_bits(uint64_t seed, uint64_t i);

/** reference_store - element i of an array of dtype, rounded to nearest even; i8 without its scale */
void reference_store(void *array, enum paged_dtype dtype, size_t i, float value);

float reference_load(const void *array, enum paged_dtype dtype, size_t i);

/** reference_unit - half the distance of neighbouring numbers of a dtype, relative; i8 has none */
double reference_unit(enum paged_dtype dtype);

/** One query row of one head against the keys that lengths let it see. */
struct reference_line {
	const float *q; /* [k_dim] */
	const float *k; /* [n_keys] rows of k_dim, k_stride floats apart */
	const float *v;
	size_t k_stride, v_stride;
	uint32_t k_dim, v_dim, n_keys;
	double scale;
	const float *sink;    /* this head's, or NULL */
	const uint8_t *shown; /* [n_keys] 0: not seen; or NULL */
	/* Mods by mod_scalar(), or NULL; `at` says b, h and q_idx, key i is kv_idx i. */
	const struct mod_binding *mask, *score;
	struct mod_point at;
};

struct reference_result {
	double out[PAGED_MAX_DIM];
	double lse; /* -inf: no key and no sink */
	double lse_without_sink;
	double maximum; /* -inf: no key */

	/*
	 * What an f32 implementation may miss `out` by, before it is rounded
	 * to the output's dtype, and `lse` and `maximum` by.  Expected NaN means NaN.
	 */
	double out_tolerance;
	double score_tolerance;
};

/**
 * reference_attend - softmax(scale q.k) v in float64
 *
 * Tolerances: a dot product of n products with magnitudes adding up to S
 * strays by about sqrt(n) 2^-24 S; four times that is allowed, and 32 units
 * for exponential, sums and rescaling; a weight's relative error is its
 * score's absolute one, and both numerator and denominator have it.  Through
 * a score mod that error goes as the mod takes it from either side, and 64
 * units of the numbers before and after are allowed for its own arithmetic.
 */
void reference_attend(const struct reference_line *line, struct reference_result *result);

#endif
