/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body.h - vm.h's operations over the compiler's vectors
 *
 * Included once by each vm_*.c, which before that gives LANES, the types
 * ivec, uvec, fvec (LANES of 32 bits) and dvec, half (LANES / 2 of 64 and of
 * 32 bits), and vec_sqrt(fvec), vec_bits(ivec): one bit a lane.
 *
 * No product is fused with a sum (-ffp-contract=off), so that every
 * instruction set gives the same bits.
 */
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef ivec (*one_fn)(ivec a);
typedef ivec (*two_fn)(ivec a, ivec b);

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

/* 1.5 * 2^23: adding it leaves a float's integer part in its low bits. */
#define ROUNDER fsplat(12582912.0f)

/* y * 2^n, in two steps, since 2^n itself may be no normal float. */
INLINE fvec
scale(fvec y, fvec n)
{
	ivec whole = subtract((ivec)(n + ROUNDER), (ivec)ROUNDER);
	ivec part = whole >> 1;

	return y * (fvec)((uvec)add(part, splat(127)) << 23) *
	       (fvec)((uvec)add(subtract(whole, part), splat(127)) << 23);
}

/* e^r for |r| <= ln 2 / 2 */
INLINE fvec
exp_reduced(fvec r)
{
	fvec y = fsplat(1.9875691500e-4f);

	y = y * r + fsplat(1.3981999507e-3f);
	y = y * r + fsplat(8.3334519073e-3f);
	y = y * r + fsplat(4.1665795894e-2f);
	y = y * r + fsplat(1.6666665459e-1f);
	y = y * r + fsplat(5.0000001201e-1f);
	return y * (r * r) + r + fsplat(1);
}

/* NaN passes both. */
INLINE fvec
within(fvec x, float low, float high)
{
	x = fchoose(x < fsplat(low), fsplat(low), x);
	return fchoose(x > fsplat(high), fsplat(high), x);
}

INLINE ivec
float_exp(ivec a)
{
	fvec x = within((fvec)a, -105, 90), n, r;

	n = (x * fsplat(1.44269504f) + ROUNDER) - ROUNDER;
	r = x - n * fsplat(0.693359375f);
	r = r + n * fsplat(2.12194440e-4f);
	return (ivec)scale(exp_reduced(r), n);
}

INLINE ivec
float_exp2(ivec a)
{
	fvec x = within((fvec)a, -151, 129), n = (x + ROUNDER) - ROUNDER;

	return (ivec)scale(exp_reduced((x - n) * fsplat(0.69314718f)), n);
}

INLINE ivec
float_log(ivec a)
{
	ivec tiny = (fvec)a < fsplat(0x1p-126f), small, exponent;
	fvec x = fchoose(tiny, (fvec)a * fsplat(0x1p25f), (fvec)a), e, y, z, result;

	/* x = m 2^e, m in [sqrt(1/2), sqrt(2)) */
	exponent = subtract(((ivec)x >> 23) & 255, splat(126));
	x = (fvec)(((ivec)x & 0x7fffff) | 0x3f000000);
	small = x < fsplat(0.707106781f);
	e = __builtin_convertvector(add(add(exponent, small), tiny & -25), fvec);
	x = x + fchoose(small, x, fsplat(0)) - fsplat(1);
	z = x * x;
	y = fsplat(7.0376836292e-2f);
	y = y * x - fsplat(1.1514610310e-1f);
	y = y * x + fsplat(1.1676998740e-1f);
	y = y * x - fsplat(1.2420140846e-1f);
	y = y * x + fsplat(1.4249322787e-1f);
	y = y * x - fsplat(1.6668057665e-1f);
	y = y * x + fsplat(2.0000714765e-1f);
	y = y * x - fsplat(2.4999993993e-1f);
	y = y * x + fsplat(3.3333331174e-1f);
	y = y * x * z - e * fsplat(2.12194440e-4f) - z * fsplat(0.5f);
	result = x + y + e * fsplat(0.693359375f);
	result = fchoose((fvec)a == fsplat(0), fsplat(-INFINITY), result);
	result = fchoose((fvec)a == fsplat(INFINITY), fsplat(INFINITY), result);
	return choose((fvec)a >= fsplat(0), (ivec)result, (ivec)fsplat(NAN));
}

INLINE ivec
float_tanh(ivec a)
{
	fvec x = (fvec)float_abs(a), z = x * x, y, far;

	far = fsplat(1) - fsplat(2) / ((fvec)float_exp((ivec)(x + x)) + fsplat(1));
	y = fsplat(-5.70498872745e-3f);
	y = y * z + fsplat(2.06390887954e-2f);
	y = y * z - fsplat(5.37397155531e-2f);
	y = y * z + fsplat(1.33314422036e-1f);
	y = y * z - fsplat(3.33332819422e-1f);
	y = y * z * x + x;
	return (ivec)fchoose(x < fsplat(0.625f), y, far) | (a & SIGN);
}

INLINE ivec
float_sigmoid(ivec a)
{
	fvec e = (fvec)float_exp(a | SIGN);

	return (ivec)(fchoose((fvec)a < fsplat(0), e, fsplat(1)) / (fsplat(1) + e));
}

/* Sine and cosine in float64 of what lies within a quarter turn's half. */
INLINE dvec
sine(dvec r)
{
	dvec z = r * r, s = z * r;

	return (r + s * (-0x15555554cbac77.0p-55 + z * 0x111110896efbb2.0p-59)) +
	       s * (z * z) * (-0x1a00f9e2cae774.0p-65 + z * 0x16cd878c3b46a7.0p-71);
}

INLINE dvec
cosine(dvec r)
{
	dvec z = r * r, w = z * z;

	return ((1.0 + z * -0x1ffffffd0c5e81.0p-54) + w * 0x155553e1053a42.0p-57) +
	       (w * z) * (-0x16c087e80f1e27.0p-62 + z * 0x199342e0ee5069.0p-68);
}

enum wave { SINE, COSINE, TANGENT };

/* Half a vector: x minus the quarter turns n, in two pieces of pi / 2. */
INLINE dvec
wave_half(dvec x, dvec n, dvec odd, dvec negative, enum wave wave)
{
	dvec r = x - n * 0x1.921fb544p+0 - n * 0x1.0b4611a626331p-34;
	dvec s = sine(r), c = cosine(r), even = 1.0 - odd;

	/* Products with 0 and 1, and sums with 0, are exact. */
	if (wave == TANGENT)
		return (even * s - odd * c) / (even * c + odd * s);
	return (wave == SINE ? even * s + odd * c : even * c + odd * s) * negative;
}

INLINE ivec
wave_far(ivec a, enum wave wave)
{
	fvec x = (fvec)a;

	for (unsigned int i = 0; i < LANES; i++) {
		double d = (double)x[i];

		x[i] = (float)(wave == SINE ? sin(d) : wave == COSINE ? cos(d) : tan(d));
	}
	return (ivec)x;
}

typedef float fhalf __attribute__((vector_size(4 * LANES / 2)));

INLINE dvec
widen(fvec v, unsigned int part)
{
	fhalf narrow;

	memcpy(&narrow, (const char *)&v + part * sizeof(narrow), sizeof(narrow));
	return __builtin_convertvector(narrow, dvec);
}

/* Quarter turns are counted up to 2^19; farther out (and for infinity) libm does it. */
INLINE ivec
float_wave(ivec a, enum wave wave)
{
	fvec x = (fvec)a, n, sign, odd;
	fhalf result[2];
	ivec turn, out;

	if (any(~((fvec)float_abs(a) < fsplat(0x1p19f))))
		return wave_far(a, wave);
	n = (x * fsplat(0.636619772f) + ROUNDER) - ROUNDER;
	turn = __builtin_convertvector(n, ivec);
	odd = __builtin_convertvector(turn & 1, fvec);
	if (wave == COSINE)
		turn = add(turn, splat(1));
	sign = fchoose((turn & 2) != 0, fsplat(-1), fsplat(1));
	/* Of odd turns sine and cosine change places; the cosine's sign is that of the next turn. */
	for (unsigned int i = 0; i < 2; i++)
		result[i] = __builtin_convertvector(
			wave_half(widen(x, i), widen(n, i), widen(odd, i), widen(sign, i), wave), fhalf);
	memcpy(&out, result, sizeof(out));
	return out;
}

INLINE ivec
float_sin(ivec a)
{
	return float_wave(a, SINE);
}

INLINE ivec
float_cos(ivec a)
{
	return float_wave(a, COSINE);
}

INLINE ivec
float_tan(ivec a)
{
	return float_wave(a, TANGENT);
}

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
		.bits = bits_of, \
	}
