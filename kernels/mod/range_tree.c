/* SPDX-License-Identifier: Apache-2.0 */
/* Min/max tree over array elements.  Bounds are ints for all element types: see mod_float_key(). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/interval_bounds.h"

#define RUN_BITS 6u    /* log2 of the number of elements in a run of the lowest level */
#define FAN_BITS 3u    /* log2 of the number of runs of one level in a run of the next */
#define MAX_LEVELS 10u /* 64 * 8^9 > 2^32 */
#define MAX_SCAN 512u  /* most elements that are read one by one */

struct mod_range_tree {
	uint32_t n_levels;
	uint32_t length[MAX_LEVELS];
	uint64_t first[MAX_LEVELS]; /* index of each level's first run */
	struct mod_bounds *runs;
	uint64_t capacity;
};

static const struct mod_bounds empty_bounds = { INT32_MAX, INT32_MIN };

static void
bounds_include(struct mod_bounds *bounds, struct mod_bounds more)
{
	bounds->low = more.low < bounds->low ? more.low : bounds->low;
	bounds->high = more.high > bounds->high ? more.high : bounds->high;
}

static struct mod_bounds
element_bounds(enum mod_dtype dtype, const uint8_t *element)
{
	int32_t value;

	if (dtype != MOD_I32)
		return mod_bounds_exactly(dtype != MOD_U8, mod_load_element(dtype, element));
	memcpy(&value, element, sizeof(value));
	return (struct mod_bounds){ value, value };
}

static uint32_t
level_bits(uint32_t level)
{
	return level == 0 ? RUN_BITS : FAN_BITS;
}

/* Includes [begin, end) of what level k summarises: elements, or runs of the level below. */
static void
range_tree_include(struct mod_bounds *bounds, const struct mod_bound *bound, enum mod_dtype dtype, uint32_t k,
		   uint64_t begin, uint64_t end)
{
	const struct mod_range_tree *range_tree = bound->range_tree;

	if (k == 0)
		for (uint64_t i = begin; i < end; i++)
			bounds_include(bounds, element_bounds(dtype, bound->data + (int64_t)i * bound->strides[0]));
	else
		for (uint64_t i = begin; i < end; i++)
			bounds_include(bounds, range_tree->runs[range_tree->first[k - 1] + i]);
}

/* Computes the levels over n_elements; returns the total number of runs. */
static uint64_t
range_tree_layout(struct mod_range_tree *range_tree, uint32_t n_elements)
{
	uint64_t total = 0, n = n_elements;
	uint32_t k = 0;

	for (; n >> level_bits(k) > 0 && k < MAX_LEVELS; k++) {
		n = (n + (1u << level_bits(k)) - 1) >> level_bits(k);
		range_tree->first[k] = total;
		range_tree->length[k] = (uint32_t)n;
		total += n;
	}
	range_tree->n_levels = k;
	return total;
}

enum paged_status
mod_range_tree_reserve(struct mod_range_tree *range_tree, uint32_t n_elements, struct paged_error *error)
{
	struct mod_range_tree wanted;
	uint64_t n_runs = range_tree_layout(&wanted, n_elements);
	struct mod_bounds *runs;

	if (n_runs <= range_tree->capacity)
		return PAGED_OK;
	runs = realloc(range_tree->runs, n_runs * sizeof(*runs));
	if (runs == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of %u elements", n_elements);
	range_tree->runs = runs;
	range_tree->capacity = n_runs;
	return PAGED_OK;
}

void
mod_range_tree_build(struct mod_bound *bound, enum mod_dtype dtype)
{
	struct mod_range_tree *range_tree = bound->range_tree;

	range_tree_layout(range_tree, bound->extents[0]);
	for (uint32_t k = 0; k < range_tree->n_levels; k++) {
		uint64_t below = k == 0 ? bound->extents[0] : range_tree->length[k - 1];

		for (uint64_t i = 0; i < range_tree->length[k]; i++) {
			uint64_t begin = i << level_bits(k), end = (i + 1) << level_bits(k);
			struct mod_bounds *run = &range_tree->runs[range_tree->first[k] + i];

			*run = empty_bounds;
			range_tree_include(run, bound, dtype, k, begin, end < below ? end : below);
		}
	}
}

void
mod_range_tree_free(struct mod_range_tree *range_tree)
{
	if (range_tree == NULL)
		return;
	free(range_tree->runs);
	free(range_tree);
}

/*
 * Bounds of elements [begin, end): includes the partial runs at both ends, then climbs to the next
 * level for the whole runs.
 */
static void
range_tree_query(struct mod_bounds *bounds, const struct mod_bound *bound, enum mod_dtype dtype, uint64_t begin,
		 uint64_t end)
{
	for (uint32_t k = 0; k < bound->range_tree->n_levels; k++) {
		const uint32_t bits = level_bits(k);
		uint64_t first = (begin + (1u << bits) - 1) >> bits, last = end >> bits;

		if (first >= last) {
			range_tree_include(bounds, bound, dtype, k, begin, end);
			return;
		}
		range_tree_include(bounds, bound, dtype, k, begin, first << bits);
		range_tree_include(bounds, bound, dtype, k, last << bits, end);
		begin = first;
		end = last;
	}
	range_tree_include(bounds, bound, dtype, bound->range_tree->n_levels, begin, end);
}

/* Bounds of a small rectangle of elements, all in bounds. */
static void
rectangle_include(struct mod_bounds *bounds, const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
		  const struct mod_bounds *indexes, uint32_t dim, const uint8_t *element)
{
	for (int64_t i = indexes[dim].low; i <= indexes[dim].high; i++) {
		if (dim + 1 == n_dims)
			bounds_include(bounds, element_bounds(dtype, element + i * bound->strides[dim]));
		else
			rectangle_include(bounds, bound, dtype, n_dims, indexes, dim + 1,
					  element + i * bound->strides[dim]);
	}
}

static struct mod_bounds
dtype_bounds(enum mod_dtype dtype)
{
	return dtype == MOD_U8 ? (struct mod_bounds){ 0, UINT8_MAX } : mod_bounds_any;
}

static inline struct mod_bounds
range_tree_lookup(const struct mod_bound *bound, enum mod_dtype dtype, int32_t low, int32_t high)
{
	struct mod_bounds bounds = empty_bounds;

	if (low < 0 || high >= (int64_t)bound->extents[0])
		return dtype_bounds(dtype);
	if (low == high)
		return element_bounds(dtype, bound->data + low * bound->strides[0]);
	range_tree_query(&bounds, bound, dtype, (uint64_t)low, (uint64_t)high + 1);
	return bounds;
}

static struct mod_bounds
rectangle_bounds(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
		 const struct grid_bounds *const *indexes, uint32_t column)
{
	struct mod_bounds index_bounds[MOD_MAX_INDEXES], bounds = empty_bounds;
	double count = 1;

	for (uint32_t i = 0; i < n_dims; i++) {
		index_bounds[i] = (struct mod_bounds){ indexes[i]->low[column], indexes[i]->high[column] };
		if (index_bounds[i].low < 0 || index_bounds[i].high >= (int64_t)bound->extents[i])
			return dtype_bounds(dtype);
		count *= (double)index_bounds[i].high - index_bounds[i].low + 1;
	}
	if (count > MAX_SCAN)
		return dtype_bounds(dtype);
	rectangle_include(&bounds, bound, dtype, n_dims, index_bounds, 0, bound->data);
	return bounds;
}

void
mod_bounds_load(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims,
		const struct grid_bounds *const *indexes, struct grid_bounds *to, uint32_t n_columns)
{
	for (uint32_t c = 0; c < n_columns; c++) {
		struct mod_bounds bounds =
			bound->range_tree != NULL
				? range_tree_lookup(bound, dtype, indexes[0]->low[c], indexes[0]->high[c])
				: rectangle_bounds(bound, dtype, n_dims, indexes, c);

		to->low[c] = bounds.low;
		to->high[c] = bounds.high;
	}
}

enum paged_status
mod_binding_add_range_trees(struct mod_binding *binding, struct paged_error *error)
{
	for (uint32_t i = 0; i < binding->mod->n_names; i++) {
		const struct mod_symbol *symbol = &binding->mod->names[i];
		struct mod_bound *bound = &binding->names[i];
		struct mod_range_tree *range_tree;
		enum paged_status status;

		if (symbol->n_dims != 1 || bound->range_tree != NULL)
			continue;
		range_tree = calloc(1, sizeof(*range_tree));
		if (range_tree == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of '%s'",
					  symbol->name);
		status = mod_range_tree_reserve(range_tree, bound->extents[0], error);
		if (status != PAGED_OK) {
			mod_range_tree_free(range_tree);
			return status;
		}
		bound->range_tree = range_tree;
		mod_range_tree_build(bound, symbol->dtype);
	}
	return PAGED_OK;
}
