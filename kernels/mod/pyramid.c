/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of array elements over ranges of indexes. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mod/interval.h"

#define RUN_BITS 6u    /* log2: elements in a run of the lowest level */
#define FAN_BITS 3u    /* log2: runs of the level below in one of those above */
#define MAX_LEVELS 10u /* 64 * 8^9 > 2^32 */
#define MAX_SCAN 512u  /* elements that are read one by one */

/* Bounds of ints. */
struct pair {
	int32_t low, high;
};

/* Of an array of floats runs are mod_bounds, of one of ints pairs. */
struct mod_pyramid {
	uint32_t n_levels;
	uint32_t length[MAX_LEVELS];
	uint64_t first[MAX_LEVELS]; /* of each level, in runs */
	union {
		void *memory;
		struct mod_bounds *runs;
		struct pair *pairs;
	};
	uint64_t capacity; /* runs of either kind */
};

static const struct pair no_pair = { INT32_MAX, INT32_MIN };

static struct mod_bounds
nothing(void)
{
	return (struct mod_bounds){ INFINITY, -INFINITY, false };
}

static void
include(struct mod_bounds *bounds, const struct mod_bounds *more)
{
	bounds->low = more->low < bounds->low ? more->low : bounds->low;
	bounds->high = more->high > bounds->high ? more->high : bounds->high;
	bounds->nan |= more->nan;
}

static struct mod_bounds
element(enum mod_dtype dtype, const uint8_t *at)
{
	struct mod_value value = mod_load(dtype, at);
	double number = mod_dtype_is_float(dtype) ? (double)value.f : value.i;

	return isnan(number) ? (struct mod_bounds){ INFINITY, -INFINITY, true }
			     : (struct mod_bounds){ number, number, false };
}

static void
include_elements(struct mod_bounds *bounds, enum mod_dtype dtype, const uint8_t *at, int64_t stride, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		struct mod_bounds one = element(dtype, at + (int64_t)i * stride);

		include(bounds, &one);
	}
}

static uint32_t
bits_of(uint32_t level)
{
	return level == 0 ? RUN_BITS : FAN_BITS;
}

/* What level k is made of, [begin, end): elements, or runs of the level below. */
static void
include_below(struct mod_bounds *bounds, const struct mod_bound *bound, enum mod_dtype dtype,
	      const struct mod_pyramid *pyramid, uint32_t k, uint64_t begin, uint64_t end)
{
	if (k == 0) {
		include_elements(bounds, dtype, bound->data + (int64_t)begin * bound->strides[0], bound->strides[0],
				 end - begin);
		return;
	}
	for (uint64_t i = begin; i < end; i++)
		include(bounds, &pyramid->runs[pyramid->first[k - 1] + i]);
}

static void
include_pair(struct pair *bounds, struct pair more)
{
	bounds->low = more.low < bounds->low ? more.low : bounds->low;
	bounds->high = more.high > bounds->high ? more.high : bounds->high;
}

static struct pair
int_element(const struct mod_bound *bound, enum mod_dtype dtype, uint64_t i)
{
	const uint8_t *at = bound->data + (int64_t)i * bound->strides[0];
	int32_t value = *at;

	if (dtype == MOD_I32)
		memcpy(&value, at, sizeof(value));
	return (struct pair){ value, value };
}

static void
include_ints_below(struct pair *bounds, const struct mod_bound *bound, enum mod_dtype dtype,
		   const struct mod_pyramid *pyramid, uint32_t k, uint64_t begin, uint64_t end)
{
	for (uint64_t i = begin; i < end; i++)
		include_pair(bounds, k == 0 ? int_element(bound, dtype, i) : pyramid->pairs[pyramid->first[k - 1] + i]);
}

/* Levels over so many elements; returns the runs of all. */
static uint64_t
lay_out(struct mod_pyramid *pyramid, uint32_t n_elements)
{
	uint64_t total = 0, n = n_elements;
	uint32_t k = 0;

	for (; n >> bits_of(k) > 0 && k < MAX_LEVELS; k++) {
		n = (n + (1u << bits_of(k)) - 1) >> bits_of(k);
		pyramid->first[k] = total;
		pyramid->length[k] = (uint32_t)n;
		total += n;
	}
	pyramid->n_levels = k;
	return total;
}

enum paged_status
mod_pyramid_reserve(struct mod_pyramid *pyramid, uint32_t n_elements, struct paged_error *error)
{
	struct mod_pyramid wanted;
	uint64_t n_runs = lay_out(&wanted, n_elements);
	void *memory;

	if (n_runs <= pyramid->capacity)
		return PAGED_OK;
	memory = realloc(pyramid->memory, n_runs * sizeof(*wanted.runs));
	if (memory == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of %u elements", n_elements);
	pyramid->memory = memory;
	pyramid->capacity = n_runs;
	return PAGED_OK;
}

void
mod_pyramid_fill(struct mod_bound *bound, enum mod_dtype dtype)
{
	struct mod_pyramid *pyramid = bound->pyramid;

	lay_out(pyramid, bound->extents[0]);
	for (uint32_t k = 0; k < pyramid->n_levels; k++) {
		uint64_t below = k == 0 ? bound->extents[0] : pyramid->length[k - 1];

		for (uint64_t i = 0; i < pyramid->length[k]; i++) {
			uint64_t at = pyramid->first[k] + i, begin = i << bits_of(k), end = (i + 1) << bits_of(k);

			end = end < below ? end : below;
			if (mod_dtype_is_float(dtype)) {
				pyramid->runs[at] = nothing();
				include_below(&pyramid->runs[at], bound, dtype, pyramid, k, begin, end);
			} else {
				pyramid->pairs[at] = no_pair;
				include_ints_below(&pyramid->pairs[at], bound, dtype, pyramid, k, begin, end);
			}
		}
	}
}

void
mod_pyramid_free(struct mod_pyramid *pyramid)
{
	if (pyramid == NULL)
		return;
	free(pyramid->memory);
	free(pyramid);
}

/* Elements (or runs) [begin, end) of level k: whole runs of the next level [*first, *last); false: there is none. */
static bool
whole_runs(const struct mod_pyramid *pyramid, uint32_t k, uint64_t begin, uint64_t end, uint64_t *first, uint64_t *last)
{
	const uint32_t bits = bits_of(k);

	*first = (begin + (1u << bits) - 1) >> bits;
	*last = end >> bits;
	return k < pyramid->n_levels && *first < *last;
}

/* Elements [begin, end): those before and behind whole runs, then the runs by the level above. */
static void
climb(struct mod_bounds *bounds, const struct mod_bound *bound, enum mod_dtype dtype, uint64_t begin, uint64_t end)
{
	const struct mod_pyramid *pyramid = bound->pyramid;
	uint64_t first, last;
	uint32_t k = 0;

	for (; whole_runs(pyramid, k, begin, end, &first, &last); k++, begin = first, end = last) {
		include_below(bounds, bound, dtype, pyramid, k, begin, first << bits_of(k));
		include_below(bounds, bound, dtype, pyramid, k, last << bits_of(k), end);
	}
	include_below(bounds, bound, dtype, pyramid, k, begin, end);
}

static struct pair
climb_ints(const struct mod_bound *bound, enum mod_dtype dtype, uint64_t begin, uint64_t end)
{
	const struct mod_pyramid *pyramid = bound->pyramid;
	struct pair bounds = no_pair;
	uint64_t first, last;
	uint32_t k = 0;

	for (; whole_runs(pyramid, k, begin, end, &first, &last); k++, begin = first, end = last) {
		include_ints_below(&bounds, bound, dtype, pyramid, k, begin, first << bits_of(k));
		include_ints_below(&bounds, bound, dtype, pyramid, k, last << bits_of(k), end);
	}
	include_ints_below(&bounds, bound, dtype, pyramid, k, begin, end);
	return bounds;
}

/*
 * Over the indexes low .. high.  Nothing is known where those leave the array,
 * though 0 is what would be read: what is known is not evaluated, and an index
 * out of bounds is told by evaluation alone.
 */
static struct pair
look_up(const struct mod_bound *bound, enum mod_dtype dtype, int64_t low, int64_t high)
{
	if (low < 0 || high >= (int64_t)bound->extents[0])
		return dtype == MOD_U8 ? (struct pair){ 0, UINT8_MAX } : (struct pair){ INT32_MIN, INT32_MAX };
	if (low == high)
		return int_element(bound, dtype, (uint64_t)low);
	return climb_ints(bound, dtype, (uint64_t)low, (uint64_t)high + 1);
}

static struct mod_bounds
everything(enum mod_dtype dtype)
{
	if (mod_dtype_is_float(dtype))
		return (struct mod_bounds){ -INFINITY, INFINITY, true };
	return dtype == MOD_U8 ? (struct mod_bounds){ 0, UINT8_MAX, false }
			       : (struct mod_bounds){ INT32_MIN, INT32_MAX, false };
}

/* A rectangle of few elements; first and last index of each dimension, in bounds. */
static void
enumerate(struct mod_bounds *bounds, const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
	  const uint32_t (*range)[2], const uint8_t *at)
{
	at += range[0][0] * bound->strides[0];
	if (n_dims == 1) {
		include_elements(bounds, dtype, at, bound->strides[0], (uint64_t)range[0][1] - range[0][0] + 1);
		return;
	}
	for (uint64_t i = range[0][0]; i <= range[0][1]; i++, at += bound->strides[0]) {
		struct mod_bound rest = { .pyramid = NULL };

		for (uint32_t d = 1; d < n_dims; d++)
			rest.strides[d - 1] = bound->strides[d];
		enumerate(bounds, &rest, dtype, n_dims - 1, range + 1, at);
	}
}

/*
 * Outside of the array as look_up() has it.  Bounds are written in place
 * throughout: a copy right behind the writing would wait for it.
 */
struct mod_bounds
mod_bounds_load(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims, const struct mod_bounds *indexes)
{
	uint32_t range[MOD_MAX_INDEXES][2];
	struct mod_bounds bounds = nothing();
	double count = 1;

	if (bound->pyramid != NULL && !mod_dtype_is_float(dtype)) {
		struct pair ints = look_up(bound, dtype, (int64_t)indexes[0].low, (int64_t)indexes[0].high);

		bounds.low = (double)ints.low;
		bounds.high = (double)ints.high;
		return bounds;
	}
	for (uint32_t i = 0; i < n_dims; i++) {
		double low = indexes[i].low, high = indexes[i].high;

		if (low < 0 || high > (double)bound->extents[i] - 1)
			return everything(dtype);
		range[i][0] = (uint32_t)low;
		range[i][1] = (uint32_t)high;
		count *= high - low + 1;
	}
	if (bound->pyramid != NULL)
		climb(&bounds, bound, dtype, range[0][0], (uint64_t)range[0][1] + 1);
	else if (count <= MAX_SCAN)
		enumerate(&bounds, bound, dtype, n_dims, (const uint32_t(*)[2])range, bound->data);
	else
		bounds = everything(dtype);
	if (bounds.low > bounds.high) /* NaN alone */
		bounds = everything(dtype);
	return bounds;
}

static enum paged_status
index_array(struct mod_bound *bound, enum mod_dtype dtype, struct paged_error *error)
{
	struct mod_pyramid *pyramid = calloc(1, sizeof(*pyramid));
	enum paged_status status;

	if (pyramid == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of %u elements",
				  bound->extents[0]);
	status = mod_pyramid_reserve(pyramid, bound->extents[0], error);
	if (status != PAGED_OK) {
		mod_pyramid_free(pyramid);
		return status;
	}
	bound->pyramid = pyramid;
	mod_pyramid_fill(bound, dtype);
	return PAGED_OK;
}

struct mod_ints
mod_ints_load(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims, const struct mod_ints *indexes)
{
	struct mod_bounds as_floats[MOD_MAX_INDEXES], bounds;

	if (bound->pyramid != NULL) {
		struct pair ints = look_up(bound, dtype, indexes[0].low, indexes[0].high);

		return (struct mod_ints){ ints.low, ints.high };
	}
	for (uint32_t i = 0; i < n_dims; i++)
		as_floats[i] = (struct mod_bounds){ (double)indexes[i].low, (double)indexes[i].high, false };
	bounds = mod_bounds_load(bound, dtype, n_dims, as_floats);
	return (struct mod_ints){ (int64_t)bounds.low, (int64_t)bounds.high };
}

void
mod_ints_load_row(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n, const int32_t *low,
		  const int32_t *high, int32_t *to_low, int32_t *to_high)
{
	for (uint32_t i = 0; i < n; i++) {
		struct mod_ints index = { low[i], high[i] };
		struct pair bounds;

		if (bound->pyramid != NULL) {
			bounds = look_up(bound, dtype, low[i], high[i]);
		} else {
			index = mod_ints_load(bound, dtype, 1, &index);
			bounds = (struct pair){ (int32_t)index.low, (int32_t)index.high };
		}
		to_low[i] = bounds.low;
		to_high[i] = bounds.high;
	}
}

enum paged_status
mod_binding_index(struct mod_binding *binding, struct paged_error *error)
{
	for (uint32_t i = 0; i < binding->mod->n_names; i++) {
		const struct mod_symbol *symbol = &binding->mod->names[i];
		enum paged_status status;

		if (symbol->n_dims != 1 || binding->names[i].pyramid != NULL)
			continue;
		status = index_array(&binding->names[i], symbol->dtype, error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}
