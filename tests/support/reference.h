/* SPDX-License-Identifier: Apache-2.0 */
/**
 * reference.h - attention in float64, and elements of any dtype
 *
 * Uses plain arrays and loops: no pages, no tiles, no split-KV.
 */
#ifndef PAGED_TESTS_REFERENCE_H
#define PAGED_TESTS_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/mod/mod.h"
#include "tests/support/random.h"

/** reference_store - write element i of an array of dtype, rounded to nearest even; i8 without its scale */
void reference_store(void *array, enum paged_dtype dtype, size_t i, float value);

float reference_load(const void *array, enum paged_dtype dtype, size_t i);

/** reference_unit - unit roundoff of a dtype: half the relative distance of neighbouring numbers; undefined for i8 */
double reference_unit(enum paged_dtype dtype);

/** One query row of one head, and the keys within kv_len. */
struct reference_q_row {
	const float *q; /* [k_dim] */
	const float *k; /* [n_keys] rows of k_dim, k_stride floats apart */
	const float *v;
	size_t k_stride, v_stride;
	uint32_t k_dim, v_dim, n_keys;
	uint32_t first_key; /* keys before it are masked */
	double scale;
	const float *sink;      /* this head's, or NULL */
	const uint8_t *visible; /* [n_keys] 0: the key is masked; NULL: no mask */
	/* Mods, evaluated by mod_scalar(), or NULL; `at` has b, h and q_idx; the kv_idx of key i is i. */
	const struct mod_binding *mask, *score;
	struct mod_point at;
};

struct reference_result {
	double out[PAGED_MAX_DIM];
	double lse; /* -inf: no key and no sink */
	double lse_without_sink;
	double max_score; /* -inf: no key */

	/*
	 * Largest allowed error of an f32 implementation: out_tolerance for
	 * `out` before rounding to the output's dtype, score_tolerance for `lse`
	 * and `max_score`.  If the expected value is NaN, only NaN is correct.
	 */
	double out_tolerance;
	double score_tolerance;
};

/**
 * reference_attend - softmax(scale q.k) v in float64
 *
 * Tolerances: the error of a dot product of n products whose magnitudes sum to
 * S is about sqrt(n) 2^-24 S.  Four times that is allowed, plus 32 units for
 * exponential, sums and rescaling.  The relative error of a weight is the
 * absolute error of its score; numerator and denominator both have it.  With a
 * score mod, the mod is evaluated at both ends of the score's error interval
 * to find the error after it, and 64 units of the scores before and after the
 * mod are allowed for its own arithmetic.
 */
void reference_attend(const struct reference_q_row *q_row, struct reference_result *result);

#endif
