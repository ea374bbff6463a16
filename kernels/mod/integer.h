/* SPDX-License-Identifier: Apache-2.0 */
/**
 * integer.h - the language's integer operations, defined for every operand
 */
#ifndef PAGED_KERNELS_MOD_INTEGER_H
#define PAGED_KERNELS_MOD_INTEGER_H

#include <stdint.h>

static inline int32_t
integer_add(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a + (uint32_t)b);
}

static inline int32_t
integer_sub(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a - (uint32_t)b);
}

static inline int32_t
integer_mul(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a * (uint32_t)b);
}

/* Towards minus infinity; by 0 gives 0; INT32_MIN / -1 wraps. */
static inline int32_t
integer_div(int32_t a, int32_t b)
{
	int32_t quotient;

	if (b == 0)
		return 0;
	if (b == -1)
		return integer_sub(0, a);
	quotient = a / b;
	return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

/* The sign of the divisor; by 0 gives 0. */
static inline int32_t
integer_mod(int32_t a, int32_t b)
{
	int32_t rest;

	if (b == 0 || b == -1)
		return 0;
	rest = a % b;
	return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static inline int32_t
integer_shl(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a << (b & 31));
}

static inline int32_t
integer_shr(int32_t a, int32_t b)
{
	return a >> (b & 31);
}

static inline int32_t
integer_from(double x)
{
	if (!(x > -2147483648.0))
		return x != x ? 0 : INT32_MIN;
	return x >= 2147483647.0 ? INT32_MAX : (int32_t)x;
}

#endif
