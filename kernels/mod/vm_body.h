/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body.h - vm.h's operations over the compiler's vectors
 *
 * Included once by each vm_*.c, which before that gives LANES and vec.h, and
 * vec_sqrt(fvec), vec_bits(ivec): one bit a lane; and, unless COMPARE_BITS says
 * that comparisons give bits at once, bits_int_lt(ivec, ivec) and its like are
 * made of that.
 *
 * No product is fused with a sum (-ffp-contract=off), so that every
 * instruction set gives the same bits.
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

INLINE dvec
low_double(ivec v)
{
	half part;

	memcpy(&part, &v, sizeof(part));
	return __builtin_convertvector(part, dvec);
}

INLINE dvec
high_double(ivec v)
{
	half part;

	memcpy(&part, (const char *)&v + sizeof(part), sizeof(part));
	return __builtin_convertvector(part, dvec);
}

INLINE ivec
truncate_both(dvec low, dvec high)
{
	half part[2] = { __builtin_convertvector(low, half), __builtin_convertvector(high, half) };
	ivec v;

	memcpy(&v, part, sizeof(v));
	return v;
}

/*
 * Quotient towards minus infinity and rest.  The product with the reciprocal
 * misses the quotient by one at most, and the rest tells; the reciprocal of
 * a divisor that is the same for a row is computed once.
 */
INLINE void
divide(ivec a, ivec b, ivec *quotient, ivec *rest)
{
	ivec zero = b == 0, minus = b == -1, q, r, more, less;

	a = choose(minus, subtract(splat(0), a), a);
	b = choose(zero | minus, splat(1), b);
	q = truncate_both(low_double(a) * (1.0 / low_double(b)), high_double(a) * (1.0 / high_double(b)));
	r = subtract(a, multiply(q, b));
	less = (r != 0) & ((r ^ b) < 0);
	q = add(q, less);
	r = add(r, b & less);
	more = choose(b > 0, r >= b, r <= b);
	q = subtract(q, more);
	r = subtract(r, b & more);
	*quotient = ~zero & q;
	*rest = ~zero & r;
}

INLINE ivec
int_div(ivec a, ivec b)
{
	ivec quotient, rest;

	divide(a, b, &quotient, &rest);
	return quotient;
}

INLINE ivec
int_mod(ivec a, ivec b)
{
	ivec quotient, rest;

	divide(a, b, &quotient, &rest);
	return rest;
}

INLINE ivec
int_min(ivec a, ivec b)
{
	return choose(a < b, a, b);
}

INLINE ivec
int_max(ivec a, ivec b)
{
	return choose(a > b, a, b);
}

INLINE ivec
int_neg(ivec a)
{
	return subtract(splat(0), a);
}

INLINE ivec
int_abs(ivec a)
{
	return choose(a < 0, int_neg(a), a);
}

INLINE ivec
bit_and(ivec a, ivec b)
{
	return a & b;
}

INLINE ivec
bit_or(ivec a, ivec b)
{
	return a | b;
}

INLINE ivec
bit_xor(ivec a, ivec b)
{
	return a ^ b;
}

INLINE ivec
bit_not(ivec a)
{
	return ~a;
}

INLINE ivec
int_shl(ivec a, ivec b)
{
	return (ivec)((uvec)a << (uvec)(b & 31));
}

INLINE ivec
int_shr(ivec a, ivec b)
{
	return a >> (b & 31);
}

INLINE ivec
int_lt(ivec a, ivec b)
{
	return a < b;
}

INLINE ivec
int_le(ivec a, ivec b)
{
	return a <= b;
}

INLINE ivec
int_eq(ivec a, ivec b)
{
	return a == b;
}

INLINE ivec
int_ne(ivec a, ivec b)
{
	return a != b;
}

INLINE ivec
float_lt(ivec a, ivec b)
{
	return (fvec)a < (fvec)b;
}

INLINE ivec
float_le(ivec a, ivec b)
{
	return (fvec)a <= (fvec)b;
}

INLINE ivec
float_eq(ivec a, ivec b)
{
	return (fvec)a == (fvec)b;
}

INLINE ivec
float_ne(ivec a, ivec b)
{
	return (fvec)a != (fvec)b;
}

INLINE ivec
float_add(ivec a, ivec b)
{
	return (ivec)((fvec)a + (fvec)b);
}

INLINE ivec
float_sub(ivec a, ivec b)
{
	return (ivec)((fvec)a - (fvec)b);
}

INLINE ivec
float_mul(ivec a, ivec b)
{
	return (ivec)((fvec)a * (fvec)b);
}

INLINE ivec
float_div(ivec a, ivec b)
{
	return (ivec)((fvec)a / (fvec)b);
}

INLINE ivec
nan_or(ivec a, ivec b, ivec chosen)
{
	return choose(float_ne(a, a), a, choose(float_ne(b, b), b, chosen));
}

INLINE ivec
float_min(ivec a, ivec b)
{
	return nan_or(a, b, choose(float_lt(a, b), a, b));
}

INLINE ivec
float_max(ivec a, ivec b)
{
	return nan_or(a, b, choose(float_lt(b, a), a, b));
}

#define SIGN INT32_MIN

INLINE ivec
float_neg(ivec a)
{
	return a ^ SIGN;
}

INLINE ivec
float_abs(ivec a)
{
	return a & INT32_MAX;
}

INLINE ivec
from_bool(ivec a)
{
	return a & 1;
}

INLINE ivec
to_float(ivec a)
{
	return (ivec) __builtin_convertvector(a, fvec);
}

/* Towards 0, saturating; NaN is 0. */
INLINE ivec
to_int(ivec a)
{
	fvec x = (fvec)a;
	ivec small = (fvec)float_abs(a) < fsplat(0x1p31f);
	ivec whole = __builtin_convertvector(fchoose(small, x, fsplat(0)), ivec);

	return choose(x >= fsplat(0x1p31f), splat(INT32_MAX), choose(x <= fsplat(-0x1p31f), splat(INT32_MIN), whole));
}

/* From 2^23 on all floats are whole. */
INLINE ivec
float_floor(ivec a)
{
	fvec x = (fvec)a, whole;
	ivec small = (fvec)float_abs(a) < fsplat(0x1p23f);

	whole = __builtin_convertvector(__builtin_convertvector(fchoose(small, x, fsplat(0)), ivec), fvec);
	whole -= fchoose(whole > x, fsplat(1), fsplat(0));
	return choose(small, (ivec)whole | (a & SIGN), a);
}

INLINE ivec
float_sqrt(ivec a)
{
	return (ivec)vec_sqrt((fvec)a);
}

#include "kernels/mod/vm_math.h"

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

/* A whole row, the usual case, is a loop that the compiler writes out. */
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

#define ONE(name)                                          \
	static void run_##name(const struct vm_call *call) \
	{                                                  \
		run_one(call, name);                       \
	}
#define TWO(name)                                          \
	static void run_##name(const struct vm_call *call) \
	{                                                  \
		run_two(call, name);                       \
	}

ONE(int_neg)
ONE(int_abs)
ONE(bit_not)
ONE(from_bool)
ONE(to_float)
ONE(to_int)
ONE(float_neg)
ONE(float_abs)
ONE(float_exp)
ONE(float_exp2)
ONE(float_log)
ONE(float_tanh)
ONE(float_sin)
ONE(float_cos)
ONE(float_tan)
ONE(float_sigmoid)
ONE(float_sqrt)
ONE(float_floor)
TWO(add)
TWO(subtract)
TWO(multiply)
TWO(int_div)
TWO(int_mod)
TWO(int_min)
TWO(int_max)
TWO(bit_and)
TWO(bit_or)
TWO(bit_xor)
TWO(int_shl)
TWO(int_shr)
TWO(int_lt)
TWO(int_le)
TWO(int_eq)
TWO(int_ne)
TWO(float_lt)
TWO(float_le)
TWO(float_eq)
TWO(float_ne)
TWO(float_add)
TWO(float_sub)
TWO(float_mul)
TWO(float_div)
TWO(float_min)
TWO(float_max)

#include "kernels/mod/vm_joined.h"
#include "kernels/mod/vm_words.h"

#define VM_OPS                                                                                                     \
	{                                                                                                          \
		.of_int = {                                                                                      \
			[MOD_OP_NOT] = run_bit_not, [MOD_OP_AND] = run_bit_and, [MOD_OP_OR] = run_bit_or,        \
			[MOD_OP_SELECT] = run_select, [MOD_OP_LT] = run_int_lt, [MOD_OP_LE] = run_int_le,        \
			[MOD_OP_EQ] = run_int_eq, [MOD_OP_NE] = run_int_ne, [MOD_OP_ADD] = run_add,              \
			[MOD_OP_SUB] = run_subtract, [MOD_OP_MUL] = run_multiply, [MOD_OP_DIV] = run_int_div,    \
			[MOD_OP_MIN] = run_int_min, [MOD_OP_MAX] = run_int_max, [MOD_OP_NEG] = run_int_neg,      \
			[MOD_OP_ABS] = run_int_abs, [MOD_OP_MOD] = run_int_mod, [MOD_OP_BITAND] = run_bit_and,   \
			[MOD_OP_BITOR] = run_bit_or, [MOD_OP_BITXOR] = run_bit_xor, [MOD_OP_SHL] = run_int_shl,  \
			[MOD_OP_SHR] = run_int_shr, [MOD_OP_BITNOT] = run_bit_not,                               \
			[MOD_OP_TO_FLOAT] = run_to_float, [MOD_OP_FROM_BOOL] = run_from_bool,                    \
		},                                                                                               \
		.of_float = {                                                                                    \
			[MOD_OP_SELECT] = run_select, [MOD_OP_LT] = run_float_lt, [MOD_OP_LE] = run_float_le,    \
			[MOD_OP_EQ] = run_float_eq, [MOD_OP_NE] = run_float_ne, [MOD_OP_ADD] = run_float_add,    \
			[MOD_OP_SUB] = run_float_sub, [MOD_OP_MUL] = run_float_mul,                              \
			[MOD_OP_DIV] = run_float_div, [MOD_OP_MIN] = run_float_min,                              \
			[MOD_OP_MAX] = run_float_max, [MOD_OP_NEG] = run_float_neg,                              \
			[MOD_OP_ABS] = run_float_abs, [MOD_OP_EXP] = run_float_exp,                              \
			[MOD_OP_EXP2] = run_float_exp2, [MOD_OP_LOG] = run_float_log,                            \
			[MOD_OP_TANH] = run_float_tanh, [MOD_OP_SIN] = run_float_sin,                            \
			[MOD_OP_COS] = run_float_cos, [MOD_OP_TAN] = run_float_tan,                              \
			[MOD_OP_SIGMOID] = run_float_sigmoid, [MOD_OP_SQRT] = run_float_sqrt,                    \
			[MOD_OP_FLOOR] = run_float_floor, [MOD_OP_TO_INT] = run_to_int,                          \
		},                                                                                               \
		.sum_of_product = sum_of_product,                                                                \
		.sum_of_ramp = sum_of_ramp,                                                                      \
		.of_scaled = {                                                                                   \
			[MOD_OP_EXP] = scaled_float_exp, [MOD_OP_EXP2] = scaled_float_exp2,                      \
			[MOD_OP_TANH] = scaled_float_tanh, [MOD_OP_SIGMOID] = scaled_float_sigmoid,              \
		},                                                                                               \
		.of_divided = {                                                                                  \
			[MOD_OP_EXP] = divided_float_exp, [MOD_OP_EXP2] = divided_float_exp2,                    \
			[MOD_OP_TANH] = divided_float_tanh, [MOD_OP_SIGMOID] = divided_float_sigmoid,            \
		},                                                                                               \
		.words_of_int = {                                                                                \
			[MOD_OP_LT] = words_int_lt, [MOD_OP_LE] = words_int_le,                                  \
			[MOD_OP_EQ] = words_int_eq, [MOD_OP_NE] = words_int_ne,                                  \
		},                                                                                               \
		.words_of_float = {                                                                              \
			[MOD_OP_LT] = words_float_lt, [MOD_OP_LE] = words_float_le,                              \
			[MOD_OP_EQ] = words_float_eq, [MOD_OP_NE] = words_float_ne,                              \
		},                                                                                               \
		.words_of_slopes = {                                                                             \
			[MOD_OP_LT] = slopes_lt, [MOD_OP_LE] = slopes_le,                                        \
			[MOD_OP_EQ] = slopes_eq, [MOD_OP_NE] = slopes_ne,                                        \
		},                                                                                               \
		.words_of_logic = {                                                                              \
			[MOD_OP_NOT] = words_not, [MOD_OP_AND] = words_and,                                      \
			[MOD_OP_OR] = words_or, [MOD_OP_SELECT] = words_select,                                  \
		},                                                                                               \
		.bits = bits_of, \
	}
