/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of array elements over ranges of indexes. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/mod/interval.h"

#define RUN 64u        /* elements in a run of the lowest level */
#define FAN 8u         /* runs of the level below in one of those above */
#define MAX_LEVELS 10u /* 64 * 8^9 > 2^32 */
#define MAX_SCAN 512u  /* elements that are read one by one */

struct mod_pyramid {
	uint32_t n_levels;
	uint32_t length[MAX_LEVELS];
	struct mod_bounds *level[MAX_LEVELS]; /* all in one allocation behind level[0] */
};

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

static struct mod_bounds
scan(enum mod_dtype dtype, const uint8_t *at, int64_t stride, uint64_t n)
{
	struct mod_bounds bounds = nothing();

	for (uint64_t i = 0; i < n; i++) {
		struct mod_bounds one = element(dtype, at + (int64_t)i * stride);

		include(&bounds, &one);
	}
	return bounds;
}

static struct mod_bounds
of_runs(const struct mod_bounds *runs, uint64_t n)
{
	struct mod_bounds bounds = nothing();

	for (uint64_t i = 0; i < n; i++)
		include(&bounds, &runs[i]);
	return bounds;
}

/* How many of what is `below` a level make one of its runs. */
static uint32_t
fan_of(uint32_t level)
{
	return level == 0 ? RUN : FAN;
}

static enum paged_status
pyramid_create(struct mod_bound *bound, enum mod_dtype dtype, struct paged_error *error)
{
	struct mod_pyramid *pyramid = calloc(1, sizeof(*pyramid));
	uint64_t total = 0, length = bound->extents[0], at = 0;

	while (pyramid != NULL && length > fan_of(pyramid->n_levels) && pyramid->n_levels < MAX_LEVELS) {
		uint32_t fan = fan_of(pyramid->n_levels);

		length = (length + fan - 1) / fan;
		pyramid->length[pyramid->n_levels++] = (uint32_t)length;
		total += length;
	}
	if (pyramid != NULL)
		pyramid->level[0] = calloc(total + 1, sizeof(struct mod_bounds));
	if (pyramid == NULL || pyramid->level[0] == NULL) {
		free(pyramid);
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of %u elements",
				  bound->extents[0]);
	}
	for (uint32_t k = 0; k < pyramid->n_levels; at += pyramid->length[k++]) {
		struct mod_bounds *level = pyramid->level[k] = pyramid->level[0] + at;
		uint64_t below = k == 0 ? bound->extents[0] : pyramid->length[k - 1];

		for (uint64_t i = 0; i < pyramid->length[k]; i++) {
			uint64_t begin = i * fan_of(k), left = below - begin, n = left < fan_of(k) ? left : fan_of(k);

			level[i] = k == 0 ? scan(dtype, bound->data + (int64_t)begin * bound->strides[0],
						 bound->strides[0], n)
					  : of_runs(pyramid->level[k - 1] + begin, n);
		}
	}
	bound->pyramid = pyramid;
	return PAGED_OK;
}

void
mod_pyramid_free(struct mod_pyramid *pyramid)
{
	if (pyramid == NULL)
		return;
	free(pyramid->level[0]);
	free(pyramid);
}

/* Elements [begin, end): those before and behind whole runs, then the runs by the level above. */
static struct mod_bounds
climb(const struct mod_bound *bound, enum mod_dtype dtype, uint64_t begin, uint64_t end)
{
	const struct mod_pyramid *pyramid = bound->pyramid;
	struct mod_bounds bounds = nothing();

	for (uint32_t k = 0;; k++) {
		const uint32_t fan = fan_of(k);
		bool top = k >= pyramid->n_levels || end - begin < fan;
		uint64_t head = top ? end : (begin + fan - 1) / fan * fan, tail = top ? end : end / fan * fan;
		struct mod_bounds part;

		if (head > tail)
			head = tail = end;
		if (k == 0) {
			part = scan(dtype, bound->data + (int64_t)begin * bound->strides[0], bound->strides[0],
				    head - begin);
			include(&bounds, &part);
			part = scan(dtype, bound->data + (int64_t)tail * bound->strides[0], bound->strides[0],
				    end - tail);
		} else {
			part = of_runs(pyramid->level[k - 1] + begin, head - begin);
			include(&bounds, &part);
			part = of_runs(pyramid->level[k - 1] + tail, end - tail);
		}
		include(&bounds, &part);
		if (head == tail)
			return bounds;
		begin = head / fan;
		end = tail / fan;
	}
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
static struct mod_bounds
enumerate(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims, const uint32_t (*range)[2],
	  const uint8_t *at)
{
	struct mod_bounds bounds = nothing(), part;

	at += range[0][0] * bound->strides[0];
	if (n_dims == 1)
		return scan(dtype, at, bound->strides[0], (uint64_t)range[0][1] - range[0][0] + 1);
	for (uint64_t i = range[0][0]; i <= range[0][1]; i++, at += bound->strides[0]) {
		struct mod_bound rest = { .pyramid = NULL };

		for (uint32_t d = 1; d < n_dims; d++)
			rest.strides[d - 1] = bound->strides[d];
		part = enumerate(&rest, dtype, n_dims - 1, range + 1, at);
		include(&bounds, &part);
	}
	return bounds;
}

struct mod_bounds
mod_bounds_load(const struct mod_bound *bound, enum mod_dtype dtype, uint32_t n_dims, const struct mod_bounds *indexes)
{
	uint32_t range[MOD_MAX_INDEXES][2];
	struct mod_bounds bounds;
	bool outside = false;
	double count = 1;

	for (uint32_t i = 0; i < n_dims; i++) {
		double last = (double)bound->extents[i] - 1;
		double low = indexes[i].low > 0 ? indexes[i].low : 0;
		double high = indexes[i].high < last ? indexes[i].high : last;

		outside |= indexes[i].low < 0 || indexes[i].high > last;
		if (low > high)
			return (struct mod_bounds){ 0, 0, false };
		range[i][0] = (uint32_t)low;
		range[i][1] = (uint32_t)high;
		count *= high - low + 1;
	}
	if (bound->pyramid != NULL)
		bounds = climb(bound, dtype, range[0][0], (uint64_t)range[0][1] + 1);
	else if (count <= MAX_SCAN)
		bounds = enumerate(bound, dtype, n_dims, (const uint32_t(*)[2])range, bound->data);
	else
		bounds = everything(dtype);
	if (bounds.low > bounds.high) /* NaN alone */
		bounds = everything(dtype);
	if (outside)
		include(&bounds, &(struct mod_bounds){ 0, 0, false });
	return bounds;
}

enum paged_status
mod_binding_index(struct mod_binding *binding, struct paged_error *error)
{
	for (uint32_t i = 0; i < binding->mod->n_names; i++) {
		const struct mod_symbol *symbol = &binding->mod->names[i];
		enum paged_status status;

		if (symbol->n_dims != 1 || binding->names[i].pyramid != NULL)
			continue;
		status = pyramid_create(&binding->names[i], symbol->dtype, error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}
