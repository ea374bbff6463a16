/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body.h - vm.h's operations over the compiler's vectors
 *
 * Included once by each vm_*.c, which before that gives LANES, the types
 * ivec, uvec, fvec (LANES of 32 bits) and dvec, half (LANES / 2 of 64 and of
 * 32 bits), and vec_sqrt(fvec), vec_bits(ivec): one bit a lane; and, unless
 * COMPARE_BITS says that comparisons give bits at once, bits_int_lt(ivec,
 * ivec) and its like are made of that.
 *
 * No product is fused with a sum (-ffp-contract=off), so that every
 * instruction set gives the same bits.
 */
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef ivec (*one_fn)(ivec a);
typedef ivec (*two_fn)(ivec a, ivec b);
typedef uint32_t (*bits_fn)(ivec a, ivec b);

INLINE ivec
splat(int32_t x)
{
	return (ivec){ 0 } + x;
}

INLINE fvec
fsplat(float x)
{
	return (fvec)splat((union {
				   float f;
				   int32_t i;
			   }){ .f = x }
				   .i);
}

INLINE ivec
load(const int32_t *at)
{
	ivec v;

	memcpy(&v, at, sizeof(v));
	return v;
}

INLINE void
store(int32_t *at, ivec v)
{
	memcpy(at, &v, sizeof(v));
}

INLINE ivec
choose(ivec condition, ivec yes, ivec no)
{
	return (condition & yes) | (~condition & no);
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

/* Wrapping: signed sums of vectors are undefined as those of ints are. */
INLINE ivec
add(ivec a, ivec b)
{
	return (ivec)((uvec)a + (uvec)b);
}

INLINE ivec
subtract(ivec a, ivec b)
{
	return (ivec)((uvec)a - (uvec)b);
}

INLINE ivec
multiply(ivec a, ivec b)
{
	return (ivec)((uvec)a * (uvec)b);
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

INLINE void
compare_rows(const struct vm_call *call, bits_fn f, bool a_scalar, bool b_scalar)
{
	uint64_t *words = (uint64_t *)(void *)call->to;

	for (uint32_t row = 0; row < call->n_rows; row++) {
		const int32_t *a = call->in[0].at + row * call->in[0].step;
		const int32_t *b = call->in[1].at + row * call->in[1].step;
		ivec all_a = splat(*a), all_b = splat(*b);
		uint64_t word = 0;

#pragma GCC unroll 4
		for (uint32_t i = 0; i < MOD_TILE_KEYS; i += LANES)
			word |= (uint64_t)f(a_scalar ? all_a : load(a + i), b_scalar ? all_b : load(b + i)) << i;
		words[row] = word;
	}
}

INLINE void
compare(const struct vm_call *call, bits_fn f)
{
	if (call->in[0].scalar && call->in[1].scalar)
		compare_rows(call, f, true, true);
	else if (call->in[0].scalar)
		compare_rows(call, f, true, false);
	else if (call->in[1].scalar)
		compare_rows(call, f, false, true);
	else
		compare_rows(call, f, false, false);
}

typedef int64_t lvec __attribute__((vector_size(4 * LANES)));
typedef uint64_t wvec __attribute__((vector_size(4 * LANES)));

INLINE lvec
wide(const struct vm_operand *operand, uint32_t row)
{
	half narrow;

	if (operand->scalar)
		return (lvec){ 0 } + *operand->at;
	memcpy(&narrow, operand->at + row, sizeof(narrow));
	return __builtin_convertvector(narrow, lvec);
}

/* The first n bits; of 64 and more all, below 0 none. */
INLINE wvec
first_bits(lvec n)
{
	wvec count = (wvec)(n & (n > 0));

	count = (count & (wvec)(n < 64)) | (64 & (wvec)(n >= 64));
	return ((((wvec){ 0 } + 1) << (count & 63)) - 1) | (0 - (count >> 6));
}

/* Whether a row of some lines leaves the range of ints, and wraps. */
INLINE lvec
wraps(lvec first, int32_t slope)
{
	return (first > INT32_MAX - (slope > 0 ? (int32_t)MOD_TILE_KEYS - 1 : 0)) |
	       (first < INT32_MIN + (slope < 0 ? (int32_t)MOD_TILE_KEYS - 1 : 0));
}

/* Key after key, as ints are. */
static uint64_t
slope_exactly(const struct vm_call *call, uint32_t row, enum mod_op op)
{
	uint32_t a = (uint32_t)call->in[0].at[call->in[0].scalar ? 0 : row];
	uint32_t b = (uint32_t)call->in[1].at[call->in[1].scalar ? 0 : row];
	uint64_t word = 0;

	for (uint32_t i = 0; i < MOD_TILE_KEYS; i++) {
		bool less = (int32_t)a < (int32_t)b, equal = a == b;

		word |= (uint64_t)(op == MOD_OP_LT   ? less
				   : op == MOD_OP_LE ? less || equal
						     : equal == (op == MOD_OP_EQ))
			<< i;
		a += (uint32_t)call->slopes[0];
		b += (uint32_t)call->slopes[1];
	}
	return word;
}

/*
 * a < b is i < n, or with the other slope i > n, where a + slope * i = b at
 * i = n; so with <=, and == is what < and <= differ in.
 */
INLINE void
compare_slopes(const struct vm_call *call, enum mod_op op)
{
	bool rises = call->slopes[0] > call->slopes[1];
	uint64_t *words = (uint64_t *)(void *)call->to;
	lvec wrapped = { 0 };

	for (uint32_t row = 0; row < call->n_rows; row += LANES / 2) {
		lvec a = wide(&call->in[0], row), b = wide(&call->in[1], row), n = rises ? b - a : a - b;
		wvec word;

		if (op == MOD_OP_EQ || op == MOD_OP_NE)
			word = first_bits(n) ^ first_bits(n + 1);
		else
			word = first_bits((op == MOD_OP_LT) == rises ? n : n + 1);
		if (op == MOD_OP_NE || (op != MOD_OP_EQ && !rises))
			word = ~word;
		memcpy(words + row, &word, sizeof(word));
		wrapped |= wraps(a, call->slopes[0]) | wraps(b, call->slopes[1]);
	}
	if (!any((ivec)wrapped))
		return;
	for (uint32_t row = 0; row < call->n_rows; row++)
		words[row] = slope_exactly(call, row, op);
}

static void
slopes_lt(const struct vm_call *call)
{
	compare_slopes(call, MOD_OP_LT);
}

static void
slopes_le(const struct vm_call *call)
{
	compare_slopes(call, MOD_OP_LE);
}

static void
slopes_eq(const struct vm_call *call)
{
	compare_slopes(call, MOD_OP_EQ);
}

static void
slopes_ne(const struct vm_call *call)
{
	compare_slopes(call, MOD_OP_NE);
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

#ifndef COMPARE_BITS
#define BITS(name)                                  \
	INLINE uint32_t bits_##name(ivec a, ivec b) \
	{                                           \
		return vec_bits(name(a, b));        \
	}
BITS(int_lt)
BITS(int_le)
BITS(int_eq)
BITS(int_ne)
BITS(float_lt)
BITS(float_le)
BITS(float_eq)
BITS(float_ne)
#endif

#define WORDS(name)                                          \
	static void words_##name(const struct vm_call *call) \
	{                                                    \
		compare(call, bits_##name);                  \
	}

WORDS(int_lt)
WORDS(int_le)
WORDS(int_eq)
WORDS(int_ne)
WORDS(float_lt)
WORDS(float_le)
WORDS(float_eq)
WORDS(float_ne)

_Static_assert(LANES / 2 <= VM_WORDS_ROUND, "words fill whole vectors");

static void
words_not(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_rows; i += LANES)
		store(call->to + i, ~load(call->in[0].at + i));
}

static void
words_and(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_rows; i += LANES)
		store(call->to + i, load(call->in[0].at + i) & load(call->in[1].at + i));
}

static void
words_or(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_rows; i += LANES)
		store(call->to + i, load(call->in[0].at + i) | load(call->in[1].at + i));
}

static void
words_select(const struct vm_call *call)
{
	for (uint32_t i = 0; i < 2 * call->n_rows; i += LANES)
		store(call->to + i,
		      choose(load(call->in[0].at + i), load(call->in[1].at + i), load(call->in[2].at + i)));
}

static void
bits_of(uint64_t *bits, const int32_t *conditions, uint32_t n_rows)
{
	for (uint32_t row = 0; row < n_rows; row++, conditions += MOD_TILE_KEYS) {
		uint64_t word = 0;

		for (uint32_t i = 0; i < MOD_TILE_KEYS; i += LANES)
			word |= (uint64_t)vec_bits(load(conditions + i)) << i;
		bits[row] = word;
	}
}

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
