/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of operations without a vector function in interval_grid_body.h, one box at a time.
 *
 * Ints and floats are both computed in double, where sums and products of 32-bit ints, and the
 * integral parts of their quotients, are exact.
 */
#include "config.h"

#include <float.h>
#include <math.h>

#include "kernels/mod/interval.h"

/* Relative errors that exceed f32's rounding and the errors of the tile VM's functions. */
#define ARITHMETIC 0x1p-22
#define FUNCTION 0x1p-19
#define SMALLEST 0x1p-147

/* Neither bound is NaN. */
struct range {
	double low, high;
};

static double
least(double a, double b)
{
	return a < b ? a : b;
}

static double
most(double a, double b)
{
	return a > b ? a : b;
}

static struct range
range_of(const double corners[4])
{
	return (struct range){ least(least(corners[0], corners[1]), least(corners[2], corners[3])),
			       most(most(corners[0], corners[1]), most(corners[2], corners[3])) };
}

static struct range
quotients(struct range a, struct range b)
{
	return range_of((double[]){ a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high });
}

static bool
has_infinity(struct range x)
{
	return isinf(x.low) || isinf(x.high);
}

static bool
has_zero(struct range x)
{
	return x.low <= 0 && x.high >= 0;
}

/* Ints */

/* The widest bounds if the operation may have wrapped. */
static struct mod_bounds
unwrapped(double low, double high)
{
	return low >= INT32_MIN && high <= INT32_MAX ? (struct mod_bounds){ (int32_t)low, (int32_t)high }
						     : mod_bounds_any;
}

static struct mod_bounds
ints_divide(struct range a, struct range b)
{
	double top = most(fabs(a.low), fabs(a.high));
	struct range to;

	if (has_zero(b))
		return unwrapped(-top, top);
	to = quotients(a, b);
	return unwrapped(floor(to.low), floor(to.high));
}

static struct mod_bounds
ints_modulo(struct range a, struct range b)
{
	if (b.low == b.high && b.low > 0) {
		double turn = floor(a.low / b.low) * b.low;

		if (a.high - turn < b.low)
			return unwrapped(a.low - turn, a.high - turn);
	}
	return unwrapped(least(b.low + 1, 0), most(b.high - 1, 0));
}

static struct mod_bounds
ints_bitwise(enum mod_op op, struct mod_bounds a, struct mod_bounds b)
{
	int32_t high = a.high > b.high ? a.high : b.high, all = 0;

	if (op == MOD_OP_BITAND && a.low >= 0 && b.low >= 0)
		return (struct mod_bounds){ 0, a.high < b.high ? a.high : b.high };
	if (op == MOD_OP_BITAND && (a.low >= 0 || b.low >= 0))
		return (struct mod_bounds){ 0, a.low >= 0 ? a.high : b.high };
	if (op == MOD_OP_BITAND || a.low < 0 || b.low < 0)
		return mod_bounds_any;
	/* All bits up to the highest that either operand may have. */
	while (all < high)
		all = 2 * all + 1;
	return (struct mod_bounds){ op == MOD_OP_BITXOR ? 0 : a.low > b.low ? a.low : b.low, all };
}

static struct mod_bounds
ints_shift(enum mod_op op, struct mod_bounds a, struct mod_bounds b)
{
	int32_t count = b.low == b.high ? b.low & 31 : -1;
	double factor = 1u << (count & 31);

	if (op == MOD_OP_SHL)
		return count < 0 || count == 31 ? mod_bounds_any : unwrapped(a.low * factor, a.high * factor);
	if (count >= 0)
		return (struct mod_bounds){ a.low >> count, a.high >> count };
	/* For an unknown count: values above 0 move towards 0, values below towards -1. */
	return unwrapped(least(a.low, 0), most(a.high, -1));
}

struct mod_bounds
mod_bounds_of_ints(enum mod_op op, struct mod_bounds a, struct mod_bounds b)
{
	const struct range x = { a.low, a.high }, y = { b.low, b.high };

	if (a.low == a.high && b.low == b.high) {
		int32_t value = mod_int_operation(op, a.low, b.low);

		return (struct mod_bounds){ value, value };
	}
	switch (op) {
	case MOD_OP_DIV:
		return ints_divide(x, y);
	case MOD_OP_MOD:
		return ints_modulo(x, y);
	case MOD_OP_SHL:
	case MOD_OP_SHR:
		return ints_shift(op, a, b);
	default:
		return ints_bitwise(op, a, b);
	}
}

/* Floats */

struct mod_bounds
mod_bounds_float(double low, double high)
{
	/* A finite number beyond f32's range is infinite in a tile, but finite in mod_scalar(). */
	float below = low > (double)FLT_MAX && !isinf(low) ? FLT_MAX : (float)low;
	float above = high < -(double)FLT_MAX && !isinf(high) ? -FLT_MAX : (float)high;

	if (isnan(low) || isnan(high))
		return mod_bounds_any;
	if ((double)below > low)
		below = nextafterf(below, -INFINITY);
	if ((double)above < high)
		above = nextafterf(above, INFINITY);
	return (struct mod_bounds){ mod_float_key(below), mod_float_key(above) };
}

/* Widens bounds by rounding errors and by overflow to f32's infinity. */
static struct mod_bounds
widened(double low, double high, double relative)
{
	if (!isinf(low))
		low -= fabs(low) * relative + SMALLEST;
	if (!isinf(high))
		high += fabs(high) * relative + SMALLEST;
	return mod_bounds_float(low < -(double)FLT_MAX ? -INFINITY : low, high > (double)FLT_MAX ? INFINITY : high);
}

static struct mod_bounds
multiply(struct range a, struct range b)
{
	struct range to = range_of((double[]){ a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high });

	if ((has_zero(a) && has_infinity(b)) || (has_zero(b) && has_infinity(a)))
		return mod_bounds_any;
	return widened(to.low, to.high, ARITHMETIC);
}

static struct mod_bounds
divide(struct range a, struct range b, double relative)
{
	struct range to = quotients(a, b);

	if (has_zero(b) || (has_infinity(a) && has_infinity(b)))
		return mod_bounds_any;
	return widened(to.low, to.high, relative);
}

static struct mod_bounds
add(struct range a, double b_low, double b_high)
{
	if ((a.high == INFINITY && b_low == -INFINITY) || (a.low == -INFINITY && b_high == INFINITY))
		return mod_bounds_any;
	return widened(a.low + b_low, a.high + b_high, ARITHMETIC);
}

/* sin and cos change by at most the change of their argument: the derivative is at most 1. */
static struct range
wave(double (*function)(double), struct range a)
{
	double half = (a.high - a.low) / 2, middle;

	if (half > 1)
		return (struct range){ -1, 1 };
	middle = function(a.low + half);
	half += FUNCTION;
	return (struct range){ most(middle - half, -1), least(middle + half, 1) };
}

static struct mod_bounds
function(enum mod_op op, struct range a)
{
	struct range to;

	switch (op) {
	case MOD_OP_TAN:
		return has_infinity(a) ? mod_bounds_any : divide(wave(sin, a), wave(cos, a), FUNCTION);
	case MOD_OP_SIN:
	case MOD_OP_COS:
		to = wave(mod_float_functions[op], a);
		return has_infinity(a) ? mod_bounds_any : mod_bounds_float(to.low, to.high);
	case MOD_OP_FLOOR:
		return mod_bounds_float(floor(a.low), floor(a.high));
	default:
		if ((op == MOD_OP_LOG || op == MOD_OP_SQRT) && a.low < 0)
			return mod_bounds_any;
		/* The other functions are monotonically increasing. */
		return widened(mod_float_functions[op](a.low), mod_float_functions[op](a.high), FUNCTION);
	}
}

struct mod_bounds
mod_bounds_of_floats(enum mod_op op, struct mod_bounds first, struct mod_bounds second)
{
	const struct range a = { (double)mod_float_of_key(first.low), (double)mod_float_of_key(first.high) };
	const struct range b = { (double)mod_float_of_key(second.low), (double)mod_float_of_key(second.high) };

	if (op == MOD_OP_TO_FLOAT)
		return first.low >= -(1 << 24) && first.high <= 1 << 24 ? mod_bounds_float(first.low, first.high)
									: widened(first.low, first.high, ARITHMETIC);
	if (mod_bounds_are_any(first) || mod_bounds_are_any(second))
		return mod_bounds_any;
	switch (op) {
	case MOD_OP_ADD:
		return add(a, b.low, b.high);
	case MOD_OP_SUB:
		return add(a, -b.high, -b.low);
	case MOD_OP_MUL:
		return multiply(a, b);
	case MOD_OP_DIV:
		return divide(a, b, ARITHMETIC);
	case MOD_OP_MIN:
		return mod_bounds_float(least(a.low, b.low), least(a.high, b.high));
	case MOD_OP_MAX:
		return mod_bounds_float(most(a.low, b.low), most(a.high, b.high));
	case MOD_OP_NEG:
		return mod_bounds_float(-a.high, -a.low);
	case MOD_OP_ABS:
		return mod_bounds_float(has_zero(a) ? 0 : least(fabs(a.low), fabs(a.high)),
					most(fabs(a.low), fabs(a.high)));
	case MOD_OP_TO_INT:
		return (struct mod_bounds){ (int32_t)least(most(a.low, INT32_MIN), INT32_MAX),
					    (int32_t)least(most(a.high, INT32_MIN), INT32_MAX) };
	default:
		return function(op, a);
	}
}
