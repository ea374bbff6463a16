/* SPDX-License-Identifier: Apache-2.0 */
/**
 * row_cursor.h - find the row that a work item belongs to
 *
 * The work items of a call are numbered consecutively over its rows.  A thread takes increasing numbers, so
 * it walks the rows once per call and needs no table.
 */
#ifndef PAGED_KERNELS_CPU_ROW_CURSOR_H
#define PAGED_KERNELS_CPU_ROW_CURSOR_H

#include "kernels/kernels.h"

struct row_cursor {
	uint32_t row;
	uint64_t first; /* number of the row's first work item */
};

/** row_items_fn - number of work items of a row */
typedef uint64_t (*row_items_fn)(const void *context, const struct kernel_row *row);

/** row_cursor_find - advance to the row of `item`, never backwards; false if `item` is past the last row */
static inline bool
row_cursor_find(struct row_cursor *cursor, uint64_t item, const struct kernel_row *rows, uint32_t n_rows,
		row_items_fn items, const void *context)
{
	for (; cursor->row < n_rows; cursor->row++) {
		uint64_t n = items(context, &rows[cursor->row]);

		if (item - cursor->first < n)
			return true;
		cursor->first += n;
	}
	return false;
}

#endif
