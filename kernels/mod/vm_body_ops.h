/* SPDX-License-Identifier: Apache-2.0 */
/* vm_body_ops.h - arithmetic, comparisons and conversions of vectors; a part of vm_body.h */
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
