/* SPDX-License-Identifier: Apache-2.0 */
/** interval_bounds.h - bounds of the results of operations over a box */
#ifndef PAGED_KERNELS_MOD_INTERVAL_BOUNDS_H
#define PAGED_KERNELS_MOD_INTERVAL_BOUNDS_H

#include <string.h>

#include "kernels/mod/interval_grid.h"

/**
 * Every value lies in [low, high]: ints and bools as they are, floats as mod_float_key().  The widest
 * bounds also include NaN.
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

/** mod_float_key - map a float to an int with the same order; -0 maps to 0; NaN has no key */
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

/** mod_bounds_exactly - the bounds of a single value */
static inline struct mod_bounds
mod_bounds_exactly(bool is_float, struct mod_value value)
{
	int32_t key = is_float ? mod_float_key(value.f) : value.i;

	return is_float && value.f != value.f ? mod_bounds_any : (struct mod_bounds){ key, key };
}

/** mod_bounds_float - bounds of the floats from low to high, rounded outwards; the widest bounds if either is NaN */
struct mod_bounds mod_bounds_float(double low, double high);

/** Min/max tree of an array: minima and maxima of runs of elements, of runs of runs, and so on. */
struct mod_range_tree;

/** mod_range_tree_reserve - allocate memory for n_elements; keeps the contents.  PAGED_ERR_NOMEM */
enum paged_status mod_range_tree_reserve(struct mod_range_tree *range_tree, uint32_t n_elements,
					 struct paged_error *error);

/** mod_range_tree_build - compute the tree from the bound array's elements; memory must be reserved */
void mod_range_tree_build(struct mod_bound *bound, enum mod_dtype dtype);

/** mod_range_tree_free - takes NULL */
void mod_range_tree_free(struct mod_range_tree *range_tree);

/**
 * mod_bounds_of_ints - bounds of an integer operation that interval_grid_body.h
 * lacks; the widest if the result may wrap
 */
struct mod_bounds mod_bounds_of_ints(enum mod_op op, struct mod_bounds a, struct mod_bounds b);

/**
 * mod_bounds_of_floats - bounds of an operation from or to floats (unary operations ignore b)
 *
 * Widened by the rounding errors of f32 and of the functions, so that the bounds hold for mod_scalar()
 * and for the tile VM.
 */
struct mod_bounds mod_bounds_of_floats(enum mod_op op, struct mod_bounds a, struct mod_bounds b);

/**
 * mod_bounds_load - bounds of an array's elements over ranges of indexes, for each column of a row
 *
 * Returns the widest bounds if the ranges leave the array: a box that is decided is not evaluated, and
 * only evaluation records an index out of bounds.
 */
void mod_bounds_load(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
		     const struct grid_bounds *const *indexes, struct grid_bounds *to, uint32_t n_columns);

/**
 * mod_interval_bounds - bounds of a mod's result over a box and scores score[0] .. score[1]; infinite
 * bounds include NaN
 */
void mod_interval_bounds(struct mod_interval *interval, const struct mod_box *box, const double *score, double *result);

#endif
