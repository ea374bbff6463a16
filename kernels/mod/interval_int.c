/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of operations on ints that have no vectors in grid_body.h, one box at a time. */
#include "config.h"

#include <stdlib.h>

#include "kernels/mod/interval.h"

static int64_t
least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t
most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static bool
is_point(struct mod_bounds x)
{
	return x.low == x.high;
}

/* Any, if the operation may have wrapped. */
static struct mod_bounds
unwrapped(int64_t low, int64_t high)
{
	return low >= INT32_MIN && high <= INT32_MAX ? (struct mod_bounds){ (int32_t)low, (int32_t)high }
						     : mod_bounds_any;
}

/* Towards minus infinity; b is not 0. */
static int64_t
quotient(int64_t a, int64_t b)
{
	return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static struct mod_bounds
divide(struct mod_bounds a, struct mod_bounds b)
{
	int64_t top = most(llabs(a.low), llabs(a.high)), c[4];

	if (b.low <= 0 && b.high >= 0)
		return unwrapped(-top, top);
	c[0] = quotient(a.low, b.low);
	c[1] = quotient(a.low, b.high);
	c[2] = quotient(a.high, b.low);
	c[3] = quotient(a.high, b.high);
	return unwrapped(least(least(c[0], c[1]), least(c[2], c[3])), most(most(c[0], c[1]), most(c[2], c[3])));
}

static struct mod_bounds
modulo(struct mod_bounds a, struct mod_bounds b)
{
	if (is_point(b) && b.low > 0) {
		int64_t turn = quotient(a.low, b.low) * b.low;

		if (a.high - turn < b.low)
			return unwrapped(a.low - turn, a.high - turn);
	}
	return unwrapped(least((int64_t)b.low + 1, 0), most((int64_t)b.high - 1, 0));
}

/* All bits below the highest that either may have. */
static int64_t
all_bits(int64_t x)
{
	int64_t bits = 1;

	while (bits <= x)
		bits *= 2;
	return bits - 1;
}

static struct mod_bounds
bitwise(enum mod_op op, struct mod_bounds a, struct mod_bounds b)
{
	if (op == MOD_OP_BITAND && a.low >= 0 && b.low >= 0)
		return unwrapped(0, least(a.high, b.high));
	if (op == MOD_OP_BITAND && (a.low >= 0 || b.low >= 0))
		return unwrapped(0, a.low >= 0 ? a.high : b.high);
	if (op != MOD_OP_BITAND && a.low >= 0 && b.low >= 0)
		return unwrapped(op == MOD_OP_BITOR ? most(a.low, b.low) : 0, all_bits(most(a.high, b.high)));
	return mod_bounds_any;
}

static struct mod_bounds
shift(enum mod_op op, struct mod_bounds a, struct mod_bounds b)
{
	int64_t count = is_point(b) ? b.low & 31 : -1;

	if (op == MOD_OP_SHL)
		return count < 0 || count == 31
			       ? mod_bounds_any
			       : unwrapped(a.low * (INT64_C(1) << count), a.high * (INT64_C(1) << count));
	if (count >= 0)
		return (struct mod_bounds){ a.low >> count, a.high >> count };
	/* Towards 0 from above, towards -1 from below. */
	return unwrapped(least(a.low, 0), most(a.high, -1));
}

struct mod_bounds
mod_bounds_of_ints(enum mod_op op, struct mod_bounds a, struct mod_bounds b)
{
	if (is_point(a) && is_point(b)) {
		int32_t value = mod_int_operation(op, a.low, b.low);

		return (struct mod_bounds){ value, value };
	}
	switch (op) {
	case MOD_OP_DIV:
		return divide(a, b);
	case MOD_OP_MOD:
		return modulo(a, b);
	case MOD_OP_SHL:
	case MOD_OP_SHR:
		return shift(op, a, b);
	default:
		return bitwise(op, a, b);
	}
}
