/* SPDX-License-Identifier: Apache-2.0 */
/**
 * vm.h - one operation over many values, for each instruction set
 *
 * A value has a shape: one number for all (ONE), one a line (LINES), one a
 * key (KEYS) or one for each of both (BOTH).  All are 32 bits: an int, a
 * float, or a condition with all bits set or none.  A row is MOD_TILE_KEYS
 * values; what lies in it past the last key (or line) is computed and
 * ignored.
 *
 * Of ints such as q_idx - kv_idx, which grow or shrink by one with each key,
 * the value at the first key may be enough (SLOPE): a comparison with what is
 * the same for all keys is a run of ones or zeros at either end of a word.
 */
#ifndef PAGED_KERNELS_MOD_VM_H
#define PAGED_KERNELS_MOD_VM_H

#include "kernels/mod/ir.h"

/** Lines of a BOTH value that one operation works on: small enough to stay in the first cache. */
#define VM_GROUP 32u

/** Words that logic works on at once, at most. */
#define VM_WORDS_ROUND 8u

struct vm_operand {
	const int32_t *at;
	uint32_t step; /* values from one row to the next */
	bool scalar;   /* a row is one value */
};

struct vm_call {
	int32_t *to;
	uint32_t n_rows, n; /* rows of `to`, MOD_TILE_KEYS apart, and values in each */
	struct vm_operand in[3];
	int32_t slopes[2]; /* for words_of_slopes, and of ramps the first */
	bool negative;     /* sums with a product or ramp alone: that is subtracted */
	float scale;       /* of several operations at once: in[0] is multiplied by it first */
};

typedef void (*vm_fn)(const struct vm_call *call);

struct vm_ops {
	vm_fn of_int[MOD_N_OPS]; /* by the type of the last operand; bools are in both */
	vm_fn of_float[MOD_N_OPS];
	/*
	 * several operations at once, of in[0], times scale, with a row a line, in[1] a
	 * value a line: in[0] + in[1] * in[2]; and the same with (float)(in[2] + i * slope)
	 * of key i instead, of a value a line
	 */
	vm_fn sum_of_product, sum_of_ramp;
	/* and in[2] * f(in[0] * in[1]), in[2] * f(in[0] / in[1]); NULL but for some operations */
	vm_fn of_scaled[MOD_N_OPS];
	vm_fn of_divided[MOD_N_OPS];
	/* comparisons whose `to` is a word a row instead, bit i: condition i */
	vm_fn words_of_int[MOD_N_OPS];
	vm_fn words_of_float[MOD_N_OPS];
	/*
	 * comparisons of ints a row of which has its first value in in[].at,
	 * and slopes[] more in each further one, wrapping; together they
	 * have slope 1 or -1
	 */
	vm_fn words_of_slopes[MOD_N_OPS];
	/*
	 * && || ! ?: on a word a row, one behind the other in `to` and in[].at;
	 * there is room for VM_WORDS_ROUND, to which n_rows is rounded up
	 */
	vm_fn words_of_logic[MOD_N_OPS];
	/* bit i of bits[r]: row r's condition i */
	void (*bits)(uint64_t *bits, const int32_t *conditions, uint32_t n_rows);
};

extern const struct vm_ops vm_ops_generic;
extern const struct vm_ops vm_ops_avx2;
extern const struct vm_ops vm_ops_avx512;

#endif
