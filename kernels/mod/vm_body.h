/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body.h - vm.h's operations in the compiler's vectors
 *
 * Each vm_*.c includes it once, after it defines LANES, vec.h, vec_sqrt(fvec) and vec_bits(ivec), one
 * bit per lane.  A file that defines COMPARE_BITS also defines bits_int_lt(ivec, ivec) and its
 * siblings, because its comparisons give bits directly; else they are derived from vec_bits().
 *
 * No product is fused with a sum (-ffp-contract=off), so every instruction set gives the same bits.
 */
#include <math.h>
#include <string.h>

typedef ivec (*vm_unary_fn)(ivec a);
typedef ivec (*vm_binary_fn)(ivec a, ivec b);

INLINE fvec
fvec_splat(float x)
{
	return (fvec)ivec_splat((union {
					float f;
					int32_t i;
				}){ .f = x }
					.i);
}

INLINE void
ivec_store(int32_t *at, ivec v)
{
	memcpy(at, &v, sizeof(v));
}

INLINE fvec
fvec_select(ivec condition, fvec yes, fvec no)
{
	return (fvec)ivec_select(condition, (ivec)yes, (ivec)no);
}

INLINE bool
ivec_any(ivec condition)
{
	return vec_bits(condition) != 0;
}

/*
 * Quotient rounded towards minus infinity, and remainder.  The product with the reciprocal differs
 * from the quotient by at most one, which the remainder corrects.  If all lanes of a tile row have the same
 * divisor, the compiler computes the reciprocal once.
 */
struct divmod {
	ivec quotient, remainder;
};

INLINE struct divmod
int_divmod(ivec a, ivec b)
{
	ivec zero = b == 0, minus = b == -1, q, r, more, less;

	a = ivec_select(minus, ivec_sub(ivec_splat(0), a), a);
	b = ivec_select(zero | minus, ivec_splat(1), b);
	q = vec_truncate(vec_double(a, 0) * (1.0 / vec_double(b, 0)), vec_double(a, 1) * (1.0 / vec_double(b, 1)));
	r = ivec_sub(a, ivec_mul(q, b));
	less = (r != 0) & ((r ^ b) < 0);
	q = ivec_add(q, less);
	r = ivec_add(r, b & less);
	more = ivec_select(b > 0, r >= b, r <= b);
	return (struct divmod){ ~zero & ivec_sub(q, more), ~zero & ivec_sub(r, b & more) };
}

/* Operations whose value is an expression. */
#define DEFINE_UNARY(name, value) \
	INLINE ivec name(ivec a)  \
	{                         \
		return value;     \
	}
#define DEFINE_BINARY(name, value)       \
	INLINE ivec name(ivec a, ivec b) \
	{                                \
		return value;            \
	}

#define SIGN INT32_MIN

DEFINE_UNARY(int_neg, ivec_sub(ivec_splat(0), a))
DEFINE_UNARY(int_abs, ivec_select(a < 0, int_neg(a), a))
DEFINE_UNARY(bit_not, ~a)
DEFINE_UNARY(from_bool, a & 1)
DEFINE_UNARY(to_float, (ivec) __builtin_convertvector(a, fvec))
DEFINE_UNARY(float_neg, a ^ SIGN)
DEFINE_UNARY(float_abs, a &INT32_MAX)
DEFINE_UNARY(float_sqrt, (ivec)vec_sqrt((fvec)a))
DEFINE_BINARY(int_div, int_divmod(a, b).quotient)
DEFINE_BINARY(int_mod, int_divmod(a, b).remainder)
DEFINE_BINARY(int_min, ivec_select(a < b, a, b))
DEFINE_BINARY(int_max, ivec_select(a > b, a, b))
DEFINE_BINARY(bit_and, a &b)
DEFINE_BINARY(bit_or, a | b)
DEFINE_BINARY(bit_xor, a ^ b)
DEFINE_BINARY(int_shl, (ivec)((uvec)a << (uvec)(b & 31)))
DEFINE_BINARY(int_shr, a >> (b & 31))
DEFINE_BINARY(int_lt, a < b)
DEFINE_BINARY(int_le, a <= b)
DEFINE_BINARY(int_eq, a == b)
DEFINE_BINARY(int_ne, a != b)
DEFINE_BINARY(float_lt, (fvec)a < (fvec)b)
DEFINE_BINARY(float_le, (fvec)a <= (fvec)b)
DEFINE_BINARY(float_eq, (fvec)a == (fvec)b)
DEFINE_BINARY(float_ne, (fvec)a != (fvec)b)
DEFINE_BINARY(float_add, (ivec)((fvec)a + (fvec)b))
DEFINE_BINARY(float_sub, (ivec)((fvec)a - (fvec)b))
DEFINE_BINARY(float_mul, (ivec)((fvec)a *(fvec)b))
DEFINE_BINARY(float_div, (ivec)((fvec)a / (fvec)b))

INLINE ivec
nan_or(ivec a, ivec b, ivec chosen)
{
	return ivec_select(float_ne(a, a), a, ivec_select(float_ne(b, b), b, chosen));
}

DEFINE_BINARY(float_min, nan_or(a, b, ivec_select(float_lt(a, b), a, b)))
DEFINE_BINARY(float_max, nan_or(a, b, ivec_select(float_lt(b, a), a, b)))

/* Rounds towards 0 and saturates; NaN gives 0. */
INLINE ivec
to_int(ivec a)
{
	fvec x = (fvec)a;
	ivec small = (fvec)float_abs(a) < fvec_splat(0x1p31f);
	ivec whole = __builtin_convertvector(fvec_select(small, x, fvec_splat(0)), ivec);

	return ivec_select(x >= fvec_splat(0x1p31f), ivec_splat(INT32_MAX),
			   ivec_select(x <= fvec_splat(-0x1p31f), ivec_splat(INT32_MIN), whole));
}

/* From 2^23 on all floats are integers. */
INLINE ivec
float_floor(ivec a)
{
	fvec x = (fvec)a, whole;
	ivec small = (fvec)float_abs(a) < fvec_splat(0x1p23f);

	whole = __builtin_convertvector(__builtin_convertvector(fvec_select(small, x, fvec_splat(0)), ivec), fvec);
	whole -= fvec_select(whole > x, fvec_splat(1), fvec_splat(0));
	return ivec_select(small, (ivec)whole | (a & SIGN), a);
}

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
