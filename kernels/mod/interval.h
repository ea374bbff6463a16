/* SPDX-License-Identifier: Apache-2.0 */
/**
 * interval.h - bounds of what operations give over a box
 */
#ifndef PAGED_KERNELS_MOD_INTERVAL_H
#define PAGED_KERNELS_MOD_INTERVAL_H

#include "kernels/mod/ir.h"

/** Minima and maxima of an array's runs of elements, of runs of runs, ... */
struct mod_pyramid;

/** mod_pyramid_reserve - memory for so many elements; what is there stays.  PAGED_ERR_NOMEM */
enum paged_status mod_pyramid_reserve(struct mod_pyramid *pyramid, uint32_t n_elements, struct paged_error *error);

/** mod_pyramid_fill - from the bound array's elements, for which memory is reserved */
void mod_pyramid_fill(struct mod_bound *bound, enum mod_dtype dtype);

/** mod_pyramid_free - takes NULL */
void mod_pyramid_free(struct mod_pyramid *pyramid);

/** Every value lies in [low, high], or is NaN and `nan` is set. */
struct mod_bounds {
	double low, high;
	bool nan;
};

/** Of ints and bools: every value lies in [low, high], which fit in 32 bits. */
struct mod_ints {
	int64_t low, high;
};

/** mod_ints_operation - of an operation on ints (b is ignored where there is one); what may wrap may be any int */
struct mod_ints mod_ints_operation(enum mod_op op, struct mod_ints a, struct mod_ints b);

/** mod_bounds_load - of an array's elements over ranges of indexes; 0 where those leave it */
struct mod_bounds mod_bounds_load(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
				  const struct mod_bounds *indexes);

/** mod_ints_load - the same of an array of ints */
struct mod_ints mod_ints_load(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
			      const struct mod_ints *indexes);

/** mod_ints_load_row - of an array of one dimension, over the ranges low[i] .. high[i] of n indexes */
void mod_ints_load_row(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n, const int32_t *low,
		       const int32_t *high, int32_t *to_low, int32_t *to_high);

/**
 * mod_bounds - of a mod's result over a box and the scores in [score.low, score.high]
 *
 * Holds for mod_scalar() and for the tiles: each float operation widens its
 * bounds by what f32 and the functions' accuracy may lose.
 */
struct mod_bounds mod_bounds(const struct mod_binding *binding, const struct mod_box *box,
			     const struct mod_bounds *score);

#endif
