/* SPDX-License-Identifier: Apache-2.0 */
/**
 * row_cursor.h - find the row that a unit of work belongs to
 *
 * The units of a call are numbered consecutively over its rows.  A thread takes increasing numbers, so
 * it walks the rows once per call and needs no table.
 */
#ifndef PAGED_KERNELS_CPU_ROW_CURSOR_H
#define PAGED_KERNELS_CPU_ROW_CURSOR_H

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

#endif
