/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body.h - vm_ops.h's operations in the compiler's vectors
 *
 * Each vm_*.c includes it once, after the vec_*.h of its instruction set.  A vec_*.h that defines
 * COMPARE_BITS also defines bits_int_lt(ivec, ivec) and its siblings, because its comparisons give
 * bits directly; else they are derived from vec_bits().
 *
 * No product is fused with a sum (-ffp-contract=off), so every instruction set gives the same bits.
 */
#include "kernels/mod/vm_body_ops.h"

#include "kernels/mod/vm_body_math.h"

INLINE void
vm_apply_unary(const struct vm_call *call, vm_unary_fn f)
{
	for (uint32_t tile_row = 0; tile_row < call->n_tile_rows; tile_row++) {
		const int32_t *a = call->in[0].values + tile_row * call->in[0].step;
		int32_t *to = call->to + tile_row * MOD_TILE_KEYS;

		for (uint32_t i = 0; i < call->n; i += LANES)
			ivec_store(to + i, f(call->in[0].scalar ? ivec_splat(*a) : ivec_load(a + i)));
	}
}

INLINE void
vm_apply_binary_rows(const struct vm_call *call, vm_binary_fn f, bool a_scalar, bool b_scalar, uint32_t n)
{
	for (uint32_t tile_row = 0; tile_row < call->n_tile_rows; tile_row++) {
		const int32_t *a = call->in[0].values + tile_row * call->in[0].step;
		const int32_t *b = call->in[1].values + tile_row * call->in[1].step;
		int32_t *to = call->to + tile_row * MOD_TILE_KEYS;
		ivec all_a = ivec_splat(*a), all_b = ivec_splat(*b);

#pragma GCC unroll 4
		for (uint32_t i = 0; i < n; i += LANES)
			ivec_store(to + i, f(a_scalar ? all_a : ivec_load(a + i), b_scalar ? all_b : ivec_load(b + i)));
	}
}

/* For a whole tile row, the usual case, n is a constant and the compiler unrolls the loop. */
INLINE void
vm_apply_binary_as(const struct vm_call *call, vm_binary_fn f, bool a_scalar, bool b_scalar)
{
	if (call->n == MOD_TILE_KEYS)
		vm_apply_binary_rows(call, f, a_scalar, b_scalar, MOD_TILE_KEYS);
	else
		vm_apply_binary_rows(call, f, a_scalar, b_scalar, call->n);
}

INLINE void
vm_apply_binary(const struct vm_call *call, vm_binary_fn f)
{
	if (call->in[0].scalar && call->in[1].scalar)
		vm_apply_binary_as(call, f, true, true);
	else if (call->in[0].scalar)
		vm_apply_binary_as(call, f, true, false);
	else if (call->in[1].scalar)
		vm_apply_binary_as(call, f, false, true);
	else
		vm_apply_binary_as(call, f, false, false);
}

static void
vm_apply_select(const struct vm_call *call)
{
	for (uint32_t tile_row = 0; tile_row < call->n_tile_rows; tile_row++) {
		int32_t *to = call->to + tile_row * MOD_TILE_KEYS;
		ivec all[3];
		const int32_t *at[3];

		for (uint32_t j = 0; j < 3; j++) {
			at[j] = call->in[j].values + tile_row * call->in[j].step;
			all[j] = ivec_splat(*at[j]);
		}
		for (uint32_t i = 0; i < call->n; i += LANES)
			ivec_store(to + i, ivec_select(call->in[0].scalar ? all[0] : ivec_load(at[0] + i),
						       call->in[1].scalar ? all[1] : ivec_load(at[1] + i),
						       call->in[2].scalar ? all[2] : ivec_load(at[2] + i)));
	}
}

/* Every operation on 32-bit values: its table in struct vm_ops, and the function that computes a vector. */
#define VM_OPERATIONS(ONE, TWO)               \
	ONE(of_int, NOT, bit_not)             \
	TWO(of_int, AND, bit_and)             \
	TWO(of_int, OR, bit_or)               \
	TWO(of_int, LT, int_lt)               \
	TWO(of_int, LE, int_le)               \
	TWO(of_int, EQ, int_eq)               \
	TWO(of_int, NE, int_ne)               \
	TWO(of_int, ADD, ivec_add)            \
	TWO(of_int, SUB, ivec_sub)            \
	TWO(of_int, MUL, ivec_mul)            \
	TWO(of_int, DIV, int_div)             \
	TWO(of_int, MIN, int_min)             \
	TWO(of_int, MAX, int_max)             \
	ONE(of_int, NEG, int_neg)             \
	ONE(of_int, ABS, int_abs)             \
	TWO(of_int, MOD, int_mod)             \
	TWO(of_int, BITAND, bit_and)          \
	TWO(of_int, BITOR, bit_or)            \
	TWO(of_int, BITXOR, bit_xor)          \
	TWO(of_int, SHL, int_shl)             \
	TWO(of_int, SHR, int_shr)             \
	ONE(of_int, BITNOT, bit_not)          \
	ONE(of_int, TO_FLOAT, to_float)       \
	ONE(of_int, FROM_BOOL, from_bool)     \
	TWO(of_float, LT, float_lt)           \
	TWO(of_float, LE, float_le)           \
	TWO(of_float, EQ, float_eq)           \
	TWO(of_float, NE, float_ne)           \
	TWO(of_float, ADD, float_add)         \
	TWO(of_float, SUB, float_sub)         \
	TWO(of_float, MUL, float_mul)         \
	TWO(of_float, DIV, float_div)         \
	TWO(of_float, MIN, float_min)         \
	TWO(of_float, MAX, float_max)         \
	ONE(of_float, NEG, float_neg)         \
	ONE(of_float, ABS, float_abs)         \
	ONE(of_float, EXP, float_exp)         \
	ONE(of_float, EXP2, float_exp2)       \
	ONE(of_float, LOG, float_log)         \
	ONE(of_float, TANH, float_tanh)       \
	ONE(of_float, SIN, float_sin)         \
	ONE(of_float, COS, float_cos)         \
	ONE(of_float, TAN, float_tan)         \
	ONE(of_float, SIGMOID, float_sigmoid) \
	ONE(of_float, SQRT, float_sqrt)       \
	ONE(of_float, FLOOR, float_floor)     \
	ONE(of_float, TO_INT, to_int)

#define DEFINE_UNARY_ENTRY(table, op, name)                  \
	static void table##_##op(const struct vm_call *call) \
	{                                                    \
		vm_apply_unary(call, name);                  \
	}
#define DEFINE_BINARY_ENTRY(table, op, name)                 \
	static void table##_##op(const struct vm_call *call) \
	{                                                    \
		vm_apply_binary(call, name);                 \
	}

VM_OPERATIONS(DEFINE_UNARY_ENTRY, DEFINE_BINARY_ENTRY)

#include "kernels/mod/vm_body_fused.h"
#include "kernels/mod/vm_body_bitmasks.h"

#define VM_ENTRY(table, op, name) .table[MOD_OP_##op] = table##_##op,

/* clang-format off: one entry per line */
#define VM_OPS                                                \
	{                                                     \
		.of_int[MOD_OP_SELECT] = vm_apply_select,   \
		.of_float[MOD_OP_SELECT] = vm_apply_select, \
		.sum_of_product = sum_of_product,      \
		.sum_of_ramp = sum_of_ramp,            \
		.bitmasks_of_logic = {                    \
			[MOD_OP_NOT] = bitmasks_not,      \
			[MOD_OP_AND] = bitmasks_and,      \
			[MOD_OP_OR] = bitmasks_or,        \
			[MOD_OP_SELECT] = bitmasks_select, \
		},                                     \
		.bits = conditions_to_bitmasks,                       \
		VM_OPERATIONS(VM_ENTRY, VM_ENTRY)      \
		VM_FUNCTIONS(VM_ENTRY)                 \
		VM_COMPARISONS(VM_ENTRY) \
	}
/* clang-format on */
