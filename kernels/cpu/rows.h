/* SPDX-License-Identifier: Apache-2.0 */
/**
 * rows.h - find the row that a unit of work belongs to
 *
 * The units of a call are numbered consecutively over its rows.  A thread takes increasing numbers, so
 * it walks the rows once per call and needs no table.
 */
#ifndef PAGED_KERNELS_CPU_ROWS_H
#define PAGED_KERNELS_CPU_ROWS_H

#include "kernels/kernels.h"

struct rows_cursor {
	uint32_t row;
	uint64_t first; /* number of the row's first unit */
};

/** rows_units_fn - number of units of a row */
typedef uint64_t (*rows_units_fn)(const void *context, const struct kernel_row *row);

/** rows_find - advance to the row of `unit`, never backwards; false if `unit` is past the last row */
static inline bool
rows_find(struct rows_cursor *cursor, uint64_t unit, const struct kernel_row *rows, uint32_t n_rows,
	  rows_units_fn units, const void *context)
{
	for (; cursor->row < n_rows; cursor->row++) {
		uint64_t n = units(context, &rows[cursor->row]);

		if (unit - cursor->first < n)
			return true;
		cursor->first += n;
	}
	return false;
}

static inline uint64_t
rows_divide_up(uint64_t n, uint64_t by)
{
	return n / by + (n % by != 0);
}

static inline uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/** tensor_at - address of one head of one packed token */
static inline void *
tensor_at(const struct kernel_tensor *tensor, uint64_t token, uint32_t head)
{
	uint8_t *at =
		(uint8_t *)tensor->data + (int64_t)token * tensor->token_stride + (int64_t)head * tensor->head_stride;

	return tensor->batch_skip == 0 ? at : at + (int64_t)(token / tensor->batch_tokens) * tensor->batch_skip;
}

/** tensor_fetch - prefetch the cache lines of tensor_at() */
static inline void
tensor_fetch(const struct kernel_tensor *tensor, uint64_t token, uint32_t head)
{
	const uint8_t *at = tensor_at(tensor, token, head);
	const size_t bytes = tensor->dim * paged_dtype_size(tensor->dtype);

	for (size_t b = 0; b < bytes; b += 64)
		__builtin_prefetch(at + b);
}

#endif
