/* SPDX-License-Identifier: Apache-2.0 */
/**
 * vm_ops.h - operations of the tile VM on many values at once, for each instruction set
 *
 * A value has a shape: one number for all (VM_UNIFORM), one per q_row (VM_PER_Q_ROW), one per key (VM_PER_KEY), or one
 * per q_row and key (VM_PER_ELEMENT).  All values are 32 bits: an int, a float, or a condition with all or no bits set.
 * A tile row is MOD_TILE_KEYS values; the values past the last key (or q_row) are computed and ignored.
 *
 * An int such as q_idx - kv_idx changes by a constant from key to key.  For such values the value at
 * the first key may suffice (VM_LINEAR): < and <= of two ints whose slopes differ by 1 or -1 give a run of
 * ones at one end of a bitmask.
 */
#ifndef PAGED_KERNELS_MOD_VM_OPS_H
#define PAGED_KERNELS_MOD_VM_OPS_H

#include "kernels/mod/ir.h"

/** q_rows of a VM_PER_ELEMENT value that one operation processes: small enough to stay in the L1 cache. */
#define VM_GROUP_Q_ROWS 32u

/** Most bitmasks that a logic operation processes at once. */
#define VM_BITMASKS_ROUND 8u

struct vm_operand {
	const int32_t *values;
	uint32_t step; /* values from one tile row to the next */
	bool scalar;   /* each tile row has a single value */
};

struct vm_call {
	int32_t *to;
	uint32_t n_tile_rows, n; /* tile rows of `to`, MOD_TILE_KEYS apart, and values in each */
	struct vm_operand in[3];
	int32_t slopes[2]; /* for bitmasks_of_linear; sum_of_ramp uses the first */
	bool negative;     /* for sum_of_product and sum_of_ramp: subtract instead of add */
	float scale;       /* for fused operations: in[0] is multiplied by it first */
};

typedef void (*vm_fn)(const struct vm_call *call);

struct vm_ops {
	vm_fn of_int[MOD_N_OPS]; /* by the type of the last operand; operations on bools are in both */
	vm_fn of_float[MOD_N_OPS];
	/*
	 * fused operations on in[0] * scale; in[0] has a tile row per q_row, in[1] a value per q_row.
	 * sum_of_product adds in[1] * in[2]; sum_of_ramp adds in[1] * (float)(in[2] + i * slope) for
	 * key i, where in[2] has a value per q_row
	 */
	vm_fn sum_of_product, sum_of_ramp;
	/* in[2] * f(in[0] * in[1]) and in[2] * f(in[0] / in[1]), in[0] scaled as above; NULL for most operations */
	vm_fn of_scaled[MOD_N_OPS];
	vm_fn of_divided[MOD_N_OPS];
	/* comparisons that write a bitmask per tile row: bit i is condition i */
	vm_fn bitmasks_of_int[MOD_N_OPS];
	vm_fn bitmasks_of_float[MOD_N_OPS];
	/*
	 * comparisons of ints that change linearly: a tile row's first value is in in[].values and each further
	 * value adds slopes[], wrapping; the difference of the slopes is 1 or -1
	 */
	vm_fn bitmasks_of_linear[MOD_N_OPS];
	/*
	 * && || ! ?: on one bitmask per tile row, contiguous in `to` and in[].values; the memory must have room for
	 * n_tile_rows rounded up to VM_BITMASKS_ROUND
	 */
	vm_fn bitmasks_of_logic[MOD_N_OPS];
	/* bit i of bits[r] is condition i of tile row r */
	void (*bits)(uint64_t *bits, const int32_t *conditions, uint32_t n_tile_rows);
};

extern const struct vm_ops vm_ops_generic;
extern const struct vm_ops vm_ops_avx2;
extern const struct vm_ops vm_ops_avx512;

#endif
