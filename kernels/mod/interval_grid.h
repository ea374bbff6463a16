/* SPDX-License-Identifier: Apache-2.0 */
/**
 * interval_grid.h - bounds over the boxes of a grid, for each instruction set
 *
 * A value has bounds for each of MOD_GRID_COLUMNS columns: one grid_bounds per row of the grid, or a
 * single one if all rows have the same bounds.
 */
#ifndef PAGED_KERNELS_MOD_INTERVAL_GRID_H
#define PAGED_KERNELS_MOD_INTERVAL_GRID_H

#include "kernels/mod/ir.h"

/** Bounds of a value in one row. */
struct grid_bounds {
	int32_t low[MOD_GRID_COLUMNS], high[MOD_GRID_COLUMNS];
};

struct grid_operand {
	const struct grid_bounds *rows;
	uint32_t step; /* 1, or 0: one row for all */
};

struct grid_call {
	struct grid_bounds *to;
	uint32_t n_rows;
	struct grid_operand in[MOD_MAX_INDEXES];
};

typedef void (*grid_fn)(const struct grid_call *call);

struct grid_ops {
	/*
	 * operations on ints, and those that only compare or select floats as mod_float_key(); NULL:
	 * evaluated one by one
	 */
	grid_fn of[MOD_N_OPS];
	/* bit r * MOD_GRID_COLUMNS + c: the condition is certainly true (all_true) or certainly false (all_false) */
	void (*bits)(const struct grid_bounds *rows, uint32_t n_rows, uint64_t *all_true, uint64_t *all_false);
};

extern const struct grid_ops grid_ops_generic;
extern const struct grid_ops grid_ops_avx2;

#endif
