/* SPDX-License-Identifier: Apache-2.0 */
/**
 * interval.h - bounds of what operations give over a box
 */
#ifndef PAGED_KERNELS_MOD_INTERVAL_H
#define PAGED_KERNELS_MOD_INTERVAL_H

#include <string.h>

#include "kernels/mod/grid.h"

/**
 * Every value lies in [low, high]: ints and bools as they are, floats by
 * mod_float_key().  The largest bounds hold for any value, NaN included.
 */
struct mod_bounds {
	int32_t low, high;
};

static const struct mod_bounds mod_bounds_any = { INT32_MIN, INT32_MAX };

static inline bool
mod_bounds_are_any(struct mod_bounds bounds)
{
	return bounds.low == INT32_MIN && bounds.high == INT32_MAX;
}

/** mod_float_key - an int in the order of the floats; -0 is 0, and NaN has none */
static inline int32_t
mod_float_key(float value)
{
	int32_t bits;

	value += 0.0f; /* -0 + 0 is 0 */
	memcpy(&bits, &value, sizeof(bits));
	return bits ^ (bits >> 31 & INT32_MAX);
}

static inline float
mod_float_of_key(int32_t key)
{
	int32_t bits = key ^ (key >> 31 & INT32_MAX);
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/** mod_bounds_exactly - of one value */
static inline struct mod_bounds
mod_bounds_exactly(bool is_float, struct mod_value value)
{
	int32_t key = is_float ? mod_float_key(value.f) : value.i;

	return is_float && value.f != value.f ? mod_bounds_any : (struct mod_bounds){ key, key };
}

/** mod_bounds_float - of floats from low to high, rounded outwards; any if either is NaN */
struct mod_bounds mod_bounds_float(double low, double high);

/** Minima and maxima of an array's runs of elements, of runs of runs, ... */
struct mod_pyramid;

/** mod_pyramid_reserve - memory for so many elements; what is there stays.  PAGED_ERR_NOMEM */
enum paged_status mod_pyramid_reserve(struct mod_pyramid *pyramid, uint32_t n_elements, struct paged_error *error);

/** mod_pyramid_fill - from the bound array's elements, for which memory is reserved */
void mod_pyramid_fill(struct mod_bound *bound, enum mod_dtype dtype);

/** mod_pyramid_free - takes NULL */
void mod_pyramid_free(struct mod_pyramid *pyramid);

/** mod_bounds_of_ints - of an operation that grid_body.h lacks; what may wrap may be any int */
struct mod_bounds mod_bounds_of_ints(enum mod_op op, struct mod_bounds a, struct mod_bounds b);

/**
 * mod_bounds_of_floats - of an operation from or to floats (b is ignored where there is one operand)
 *
 * Wider by what f32 and the functions' accuracy may lose, so that the bounds
 * hold for mod_scalar() and for the tiles.
 */
struct mod_bounds mod_bounds_of_floats(enum mod_op op, struct mod_bounds a, struct mod_bounds b);

/**
 * mod_bounds_load - of an array's elements over ranges of indexes, for each column of a row
 *
 * Any where those leave the array: what is known is not evaluated, and only
 * evaluation records an index out of bounds.
 */
void mod_bounds_load(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
		     const struct grid_bounds *const *indexes, struct grid_bounds *to, uint32_t n_columns);

/** mod_interval_bounds - of a mod's result over a box and scores from score[0] to score[1]; all infinite: or NaN */
void mod_interval_bounds(struct mod_interval *interval, const struct mod_box *box, const double *score, double *result);

#endif
