/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of operations on floats, one box at a time. */
#include "config.h"

#include <float.h>
#include <math.h>

#include "kernels/mod/interval.h"

/* Wider than f32's rounding, and than what the tile's functions stray by. */
#define ARITHMETIC 0x1p-22
#define FUNCTION 0x1p-19
#define SMALLEST 0x1p-147

/* No NaN is among them. */
struct floats {
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

static bool
has_infinity(struct floats x)
{
	return isinf(x.low) || isinf(x.high);
}

static bool
has_zero(struct floats x)
{
	return x.low <= 0 && x.high >= 0;
}

static struct floats
floats_of(struct mod_bounds bounds)
{
	return (struct floats){ (double)mod_float_of_key(bounds.low), (double)mod_float_of_key(bounds.high) };
}

struct mod_bounds
mod_bounds_float(double low, double high)
{
	/* A finite number past f32's range is infinite in a tile, and is not in mod_scalar(). */
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

/* What rounding and f32's narrower range may do. */
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
of_corners(const double *c, double relative)
{
	return widened(least(least(c[0], c[1]), least(c[2], c[3])), most(most(c[0], c[1]), most(c[2], c[3])), relative);
}

static struct mod_bounds
multiply(struct floats a, struct floats b)
{
	const double c[] = { a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high };

	if ((has_zero(a) && has_infinity(b)) || (has_zero(b) && has_infinity(a)))
		return mod_bounds_any;
	return of_corners(c, ARITHMETIC);
}

static struct mod_bounds
divide(struct floats a, struct floats b, double relative)
{
	const double c[] = { a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high };

	if (has_zero(b) || (has_infinity(a) && has_infinity(b)))
		return mod_bounds_any;
	return of_corners(c, relative);
}

static struct mod_bounds
add(struct floats a, double b_low, double b_high)
{
	if ((a.high == INFINITY && b_low == -INFINITY) || (a.low == -INFINITY && b_high == INFINITY))
		return mod_bounds_any;
	return widened(a.low + b_low, a.high + b_high, ARITHMETIC);
}

/* The derivative is at most 1. */
static struct floats
wave(double (*function)(double), struct floats a)
{
	double half = (a.high - a.low) / 2, middle;

	if (half > 1)
		return (struct floats){ -1, 1 };
	middle = function(a.low + half);
	half += FUNCTION;
	return (struct floats){ most(middle - half, -1), least(middle + half, 1) };
}

static double
sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static struct mod_bounds
rising(double (*function)(double), struct floats a)
{
	return widened(function(a.low), function(a.high), FUNCTION);
}

/* int(x) */
static struct mod_bounds
to_int(struct floats a)
{
	return (struct mod_bounds){ (int32_t)least(most(a.low, INT32_MIN), INT32_MAX),
				    (int32_t)least(most(a.high, INT32_MIN), INT32_MAX) };
}

static struct mod_bounds
from_int(struct mod_bounds a)
{
	bool is_exact = a.low >= -(1 << 24) && a.high <= 1 << 24;

	return is_exact ? mod_bounds_float(a.low, a.high) : widened(a.low, a.high, ARITHMETIC);
}

static struct mod_bounds
function(enum mod_op op, struct floats a)
{
	struct floats bounds;

	switch (op) {
	case MOD_OP_EXP:
		return rising(exp, a);
	case MOD_OP_EXP2:
		return rising(exp2, a);
	case MOD_OP_TANH:
		return rising(tanh, a);
	case MOD_OP_SIGMOID:
		return rising(sigmoid, a);
	case MOD_OP_LOG:
	case MOD_OP_SQRT:
		return a.low < 0 ? mod_bounds_any : rising(op == MOD_OP_LOG ? log : sqrt, a);
	case MOD_OP_TAN:
		return has_infinity(a) ? mod_bounds_any : divide(wave(sin, a), wave(cos, a), FUNCTION);
	case MOD_OP_FLOOR:
		return mod_bounds_float(floor(a.low), floor(a.high));
	default:
		bounds = wave(op == MOD_OP_SIN ? sin : cos, a);
		return has_infinity(a) ? mod_bounds_any : mod_bounds_float(bounds.low, bounds.high);
	}
}

struct mod_bounds
mod_bounds_of_floats(enum mod_op op, struct mod_bounds first, struct mod_bounds second)
{
	const struct floats a = floats_of(first), b = floats_of(second);

	if (op == MOD_OP_TO_FLOAT)
		return from_int(first);
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
		return to_int(a);
	default:
		return function(op, a);
	}
}
