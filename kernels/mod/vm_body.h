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

typedef ivec (*one_fn)(ivec a);
typedef ivec (*two_fn)(ivec a, ivec b);

INLINE fvec
fsplat(float x)
{
	return (fvec)splat((union {
				   float f;
				   int32_t i;
			   }){ .f = x }
				   .i);
}

INLINE void
store(int32_t *at, ivec v)
{
	memcpy(at, &v, sizeof(v));
}

INLINE fvec
fchoose(ivec condition, fvec yes, fvec no)
{
	return (fvec)choose(condition, (ivec)yes, (ivec)no);
}

INLINE bool
any(ivec condition)
{
	return vec_bits(condition) != 0;
}

/*
 * Quotient rounded towards minus infinity, and remainder.  The product with the reciprocal differs
 * from the quotient by at most one, which the remainder corrects.  If all lanes of a row have the same
 * divisor, the compiler computes the reciprocal once.
 */
struct division {
	ivec quotient, rest;
};

INLINE struct division
divide(ivec a, ivec b)
{
	ivec zero = b == 0, minus = b == -1, q, r, more, less;

	a = choose(minus, subtract(splat(0), a), a);
	b = choose(zero | minus, splat(1), b);
	q = vec_truncate(vec_double(a, 0) * (1.0 / vec_double(b, 0)), vec_double(a, 1) * (1.0 / vec_double(b, 1)));
	r = subtract(a, multiply(q, b));
	less = (r != 0) & ((r ^ b) < 0);
	q = add(q, less);
	r = add(r, b & less);
	more = choose(b > 0, r >= b, r <= b);
	return (struct division){ ~zero & subtract(q, more), ~zero & subtract(r, b & more) };
}

/* Operations whose value is an expression. */
#define VALUE_OF_ONE(name, value) \
	INLINE ivec name(ivec a)  \
	{                         \
		return value;     \
	}
#define VALUE_OF_TWO(name, value)        \
	INLINE ivec name(ivec a, ivec b) \
	{                                \
		return value;            \
	}

#define SIGN INT32_MIN

VALUE_OF_ONE(int_neg, subtract(splat(0), a))
VALUE_OF_ONE(int_abs, choose(a < 0, int_neg(a), a))
VALUE_OF_ONE(bit_not, ~a)
VALUE_OF_ONE(from_bool, a & 1)
VALUE_OF_ONE(to_float, (ivec) __builtin_convertvector(a, fvec))
VALUE_OF_ONE(float_neg, a ^ SIGN)
VALUE_OF_ONE(float_abs, a &INT32_MAX)
VALUE_OF_ONE(float_sqrt, (ivec)vec_sqrt((fvec)a))
VALUE_OF_TWO(int_div, divide(a, b).quotient)
VALUE_OF_TWO(int_mod, divide(a, b).rest)
VALUE_OF_TWO(int_min, choose(a < b, a, b))
VALUE_OF_TWO(int_max, choose(a > b, a, b))
VALUE_OF_TWO(bit_and, a &b)
VALUE_OF_TWO(bit_or, a | b)
VALUE_OF_TWO(bit_xor, a ^ b)
VALUE_OF_TWO(int_shl, (ivec)((uvec)a << (uvec)(b & 31)))
VALUE_OF_TWO(int_shr, a >> (b & 31))
VALUE_OF_TWO(int_lt, a < b)
VALUE_OF_TWO(int_le, a <= b)
VALUE_OF_TWO(int_eq, a == b)
VALUE_OF_TWO(int_ne, a != b)
VALUE_OF_TWO(float_lt, (fvec)a < (fvec)b)
VALUE_OF_TWO(float_le, (fvec)a <= (fvec)b)
VALUE_OF_TWO(float_eq, (fvec)a == (fvec)b)
VALUE_OF_TWO(float_ne, (fvec)a != (fvec)b)
VALUE_OF_TWO(float_add, (ivec)((fvec)a + (fvec)b))
VALUE_OF_TWO(float_sub, (ivec)((fvec)a - (fvec)b))
VALUE_OF_TWO(float_mul, (ivec)((fvec)a *(fvec)b))
VALUE_OF_TWO(float_div, (ivec)((fvec)a / (fvec)b))

INLINE ivec
nan_or(ivec a, ivec b, ivec chosen)
{
	return choose(float_ne(a, a), a, choose(float_ne(b, b), b, chosen));
}

VALUE_OF_TWO(float_min, nan_or(a, b, choose(float_lt(a, b), a, b)))
VALUE_OF_TWO(float_max, nan_or(a, b, choose(float_lt(b, a), a, b)))

/* Rounds towards 0 and saturates; NaN gives 0. */
INLINE ivec
to_int(ivec a)
{
	fvec x = (fvec)a;
	ivec small = (fvec)float_abs(a) < fsplat(0x1p31f);
	ivec whole = __builtin_convertvector(fchoose(small, x, fsplat(0)), ivec);

	return choose(x >= fsplat(0x1p31f), splat(INT32_MAX), choose(x <= fsplat(-0x1p31f), splat(INT32_MIN), whole));
}

/* From 2^23 on all floats are integers. */
INLINE ivec
float_floor(ivec a)
{
	fvec x = (fvec)a, whole;
	ivec small = (fvec)float_abs(a) < fsplat(0x1p23f);

	whole = __builtin_convertvector(__builtin_convertvector(fchoose(small, x, fsplat(0)), ivec), fvec);
	whole -= fchoose(whole > x, fsplat(1), fsplat(0));
	return choose(small, (ivec)whole | (a & SIGN), a);
}

#include "kernels/mod/vm_body_math.h"

INLINE void
run_one(const struct vm_call *call, one_fn f)
{
	for (uint32_t row = 0; row < call->n_rows; row++) {
		const int32_t *a = call->in[0].at + row * call->in[0].step;
		int32_t *to = call->to + row * MOD_TILE_KEYS;

		for (uint32_t i = 0; i < call->n; i += LANES)
			store(to + i, f(call->in[0].scalar ? splat(*a) : load(a + i)));
	}
}

INLINE void
run_two_rows(const struct vm_call *call, two_fn f, bool a_scalar, bool b_scalar, uint32_t n)
{
	for (uint32_t row = 0; row < call->n_rows; row++) {
		const int32_t *a = call->in[0].at + row * call->in[0].step;
		const int32_t *b = call->in[1].at + row * call->in[1].step;
		int32_t *to = call->to + row * MOD_TILE_KEYS;
		ivec all_a = splat(*a), all_b = splat(*b);

#pragma GCC unroll 4
		for (uint32_t i = 0; i < n; i += LANES)
			store(to + i, f(a_scalar ? all_a : load(a + i), b_scalar ? all_b : load(b + i)));
	}
}

/* For a whole row, the usual case, n is a constant and the compiler unrolls the loop. */
INLINE void
run_two_as(const struct vm_call *call, two_fn f, bool a_scalar, bool b_scalar)
{
	if (call->n == MOD_TILE_KEYS)
		run_two_rows(call, f, a_scalar, b_scalar, MOD_TILE_KEYS);
	else
		run_two_rows(call, f, a_scalar, b_scalar, call->n);
}

INLINE void
run_two(const struct vm_call *call, two_fn f)
{
	if (call->in[0].scalar && call->in[1].scalar)
		run_two_as(call, f, true, true);
	else if (call->in[0].scalar)
		run_two_as(call, f, true, false);
	else if (call->in[1].scalar)
		run_two_as(call, f, false, true);
	else
		run_two_as(call, f, false, false);
}

static void
run_select(const struct vm_call *call)
{
	for (uint32_t row = 0; row < call->n_rows; row++) {
		int32_t *to = call->to + row * MOD_TILE_KEYS;
		ivec all[3];
		const int32_t *at[3];

		for (uint32_t j = 0; j < 3; j++) {
			at[j] = call->in[j].at + row * call->in[j].step;
			all[j] = splat(*at[j]);
		}
		for (uint32_t i = 0; i < call->n; i += LANES)
			store(to + i, choose(call->in[0].scalar ? all[0] : load(at[0] + i),
					     call->in[1].scalar ? all[1] : load(at[1] + i),
					     call->in[2].scalar ? all[2] : load(at[2] + i)));
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
	TWO(of_int, ADD, add)                 \
	TWO(of_int, SUB, subtract)            \
	TWO(of_int, MUL, multiply)            \
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

#define RUN_ONE(table, op, name)                             \
	static void table##_##op(const struct vm_call *call) \
	{                                                    \
		run_one(call, name);                         \
	}
#define RUN_TWO(table, op, name)                             \
	static void table##_##op(const struct vm_call *call) \
	{                                                    \
		run_two(call, name);                         \
	}

VM_OPERATIONS(RUN_ONE, RUN_TWO)

#include "kernels/mod/vm_body_fused.h"
#include "kernels/mod/vm_body_bitmasks.h"

#define VM_ENTRY(table, op, name) .table[MOD_OP_##op] = table##_##op,

/* clang-format off: one entry per line */
#define VM_OPS                                           \
	{                                                \
		.of_int[MOD_OP_SELECT] = run_select,   \
		.of_float[MOD_OP_SELECT] = run_select, \
		.sum_of_product = sum_of_product,      \
		.sum_of_ramp = sum_of_ramp,            \
		.words_of_logic = {                    \
			[MOD_OP_NOT] = words_not,      \
			[MOD_OP_AND] = words_and,      \
			[MOD_OP_OR] = words_or,        \
			[MOD_OP_SELECT] = words_select, \
		},                                     \
		.bits = bits_of,                       \
		VM_OPERATIONS(VM_ENTRY, VM_ENTRY)      \
		VM_FUNCTIONS(VM_ENTRY)                 \
		VM_COMPARISONS(VM_ENTRY) \
	}
/* clang-format on */
