/* SPDX-License-Identifier: Apache-2.0 */
/* Min/max tree over array elements.  Bounds are ints for all element types: see mod_float_key(). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/interval.h"

#define RUN_BITS 6u    /* log2 of the number of elements in a run of the lowest level */
#define FAN_BITS 3u    /* log2 of the number of runs of one level in a run of the next */
#define MAX_LEVELS 10u /* 64 * 8^9 > 2^32 */
#define MAX_SCAN 512u  /* most elements that are read one by one */

struct mod_pyramid {
	uint32_t n_levels;
	uint32_t length[MAX_LEVELS];
	uint64_t first[MAX_LEVELS]; /* index of each level's first run */
	struct mod_bounds *runs;
	uint64_t capacity;
};

static const struct mod_bounds nothing = { INT32_MAX, INT32_MIN };

static void
include(struct mod_bounds *bounds, struct mod_bounds more)
{
	bounds->low = more.low < bounds->low ? more.low : bounds->low;
	bounds->high = more.high > bounds->high ? more.high : bounds->high;
}

static struct mod_bounds
element(enum mod_dtype dtype, const uint8_t *at)
{
	int32_t value;

	if (dtype != MOD_I32)
		return mod_bounds_exactly(dtype != MOD_U8, mod_load(dtype, at));
	memcpy(&value, at, sizeof(value));
	return (struct mod_bounds){ value, value };
}

static uint32_t
bits_of(uint32_t level)
{
	return level == 0 ? RUN_BITS : FAN_BITS;
}

/* Includes [begin, end) of what level k summarises: elements, or runs of the level below. */
static void
include_below(struct mod_bounds *bounds, const struct mod_bound *bound, enum mod_dtype dtype, uint32_t k,
	      uint64_t begin, uint64_t end)
{
	const struct mod_pyramid *pyramid = bound->pyramid;

	if (k == 0)
		for (uint64_t i = begin; i < end; i++)
			include(bounds, element(dtype, bound->data + (int64_t)i * bound->strides[0]));
	else
		for (uint64_t i = begin; i < end; i++)
			include(bounds, pyramid->runs[pyramid->first[k - 1] + i]);
}

/* Computes the levels over n_elements; returns the total number of runs. */
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
	struct mod_bounds *runs;

	if (n_runs <= pyramid->capacity)
		return PAGED_OK;
	runs = realloc(pyramid->runs, n_runs * sizeof(*runs));
	if (runs == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of %u elements", n_elements);
	pyramid->runs = runs;
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
			uint64_t begin = i << bits_of(k), end = (i + 1) << bits_of(k);
			struct mod_bounds *run = &pyramid->runs[pyramid->first[k] + i];

			*run = nothing;
			include_below(run, bound, dtype, k, begin, end < below ? end : below);
		}
	}
}

void
mod_pyramid_free(struct mod_pyramid *pyramid)
{
	if (pyramid == NULL)
		return;
	free(pyramid->runs);
	free(pyramid);
}

/*
 * Bounds of elements [begin, end): includes the partial runs at both ends, then climbs to the next
 * level for the whole runs.
 */
static void
climb(struct mod_bounds *bounds, const struct mod_bound *bound, enum mod_dtype dtype, uint64_t begin, uint64_t end)
{
	for (uint32_t k = 0; k < bound->pyramid->n_levels; k++) {
		const uint32_t bits = bits_of(k);
		uint64_t first = (begin + (1u << bits) - 1) >> bits, last = end >> bits;

		if (first >= last) {
			include_below(bounds, bound, dtype, k, begin, end);
			return;
		}
		include_below(bounds, bound, dtype, k, begin, first << bits);
		include_below(bounds, bound, dtype, k, last << bits, end);
		begin = first;
		end = last;
	}
	include_below(bounds, bound, dtype, bound->pyramid->n_levels, begin, end);
}

/* Bounds of a small rectangle of elements, all in bounds. */
static void
enumerate(struct mod_bounds *bounds, const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
	  const struct mod_bounds *indexes, uint32_t dim, const uint8_t *at)
{
	for (int64_t i = indexes[dim].low; i <= indexes[dim].high; i++) {
		if (dim + 1 == n_dims)
			include(bounds, element(dtype, at + i * bound->strides[dim]));
		else
			enumerate(bounds, bound, dtype, n_dims, indexes, dim + 1, at + i * bound->strides[dim]);
	}
}

static struct mod_bounds
everything(enum mod_dtype dtype)
{
	return dtype == MOD_U8 ? (struct mod_bounds){ 0, UINT8_MAX } : mod_bounds_any;
}

static inline struct mod_bounds
look_up(const struct mod_bound *bound, enum mod_dtype dtype, int32_t low, int32_t high)
{
	struct mod_bounds bounds = nothing;

	if (low < 0 || high >= (int64_t)bound->extents[0])
		return everything(dtype);
	if (low == high)
		return element(dtype, bound->data + low * bound->strides[0]);
	climb(&bounds, bound, dtype, (uint64_t)low, (uint64_t)high + 1);
	return bounds;
}

static struct mod_bounds
scan(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims, const struct grid_bounds *const *indexes,
     uint32_t column)
{
	struct mod_bounds range[MOD_MAX_INDEXES], bounds = nothing;
	double count = 1;

	for (uint32_t i = 0; i < n_dims; i++) {
		range[i] = (struct mod_bounds){ indexes[i]->low[column], indexes[i]->high[column] };
		if (range[i].low < 0 || range[i].high >= (int64_t)bound->extents[i])
			return everything(dtype);
		count *= (double)range[i].high - range[i].low + 1;
	}
	if (count > MAX_SCAN)
		return everything(dtype);
	enumerate(&bounds, bound, dtype, n_dims, range, 0, bound->data);
	return bounds;
}

void
mod_bounds_load(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
		const struct grid_bounds *const *indexes, struct grid_bounds *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c++) {
		struct mod_bounds bounds = bound->pyramid != NULL
						   ? look_up(bound, dtype, indexes[0]->low[c], indexes[0]->high[c])
						   : scan(bound, dtype, n_dims, indexes, c);

		to->low[c] = bounds.low;
		to->high[c] = bounds.high;
	}
}

enum paged_status
mod_binding_index(struct mod_binding *binding, struct paged_error *error)
{
	for (uint32_t i = 0; i < binding->mod->n_names; i++) {
		const struct mod_symbol *symbol = &binding->mod->names[i];
		struct mod_bound *bound = &binding->names[i];
		struct mod_pyramid *pyramid;
		enum paged_status status;

		if (symbol->n_dims != 1 || bound->pyramid != NULL)
			continue;
		pyramid = calloc(1, sizeof(*pyramid));
		if (pyramid == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of '%s'",
					  symbol->name);
		status = mod_pyramid_reserve(pyramid, bound->extents[0], error);
		if (status != PAGED_OK) {
			mod_pyramid_free(pyramid);
			return status;
		}
		bound->pyramid = pyramid;
		mod_pyramid_fill(bound, symbol->dtype);
	}
	return PAGED_OK;
}
