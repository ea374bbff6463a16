/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of operations without a vector function in interval_grid_body.h, one box at a time.
 *
 * Divisions, remainders and left shifts of ints, and all operations of floats, are computed in double.  For 32-bit
 * ints that is exact: a quotient is used only rounded down, and a shift multiplies by a power of two.
 */
#include "config.h"

#include <float.h>
#include <math.h>

#include "kernels/mod/interval_bounds.h"

/* Relative errors that exceed f32's rounding and the errors of the tile VM's functions. */
#define ARITHMETIC_ERROR 0x1p-22
#define FUNCTION_ERROR 0x1p-19
#define SUBNORMAL_ERROR 0x1p-147

/* Neither bound is NaN. */
struct interval {
	double low, high;
};

static double
min_double(double a, double b)
{
	return a < b ? a : b;
}

static double
max_double(double a, double b)
{
	return a > b ? a : b;
}

static struct interval
interval_hull(const double corners[4])
{
	return (struct interval){ min_double(min_double(corners[0], corners[1]), min_double(corners[2], corners[3])),
				  max_double(max_double(corners[0], corners[1]), max_double(corners[2], corners[3])) };
}

static struct interval
interval_quotient(struct interval a, struct interval b)
{
	return interval_hull((double[]){ a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high });
}

static bool
interval_has_infinity(struct interval x)
{
	return isinf(x.low) || isinf(x.high);
}

static bool
interval_has_zero(struct interval x)
{
	return x.low <= 0 && x.high >= 0;
}

/* Ints */

/* Bounds low .. high; the widest bounds if the operation may have wrapped. */
static struct mod_bounds
ints_unless_wrapped(double low, double high)
{
	return low >= INT32_MIN && high <= INT32_MAX ? (struct mod_bounds){ (int32_t)low, (int32_t)high }
						     : mod_bounds_any;
}

static struct mod_bounds
ints_divide(struct interval a, struct interval b)
{
	double top = max_double(fabs(a.low), fabs(a.high));
	struct interval to;

	if (interval_has_zero(b))
		return ints_unless_wrapped(-top, top);
	to = interval_quotient(a, b);
	return ints_unless_wrapped(floor(to.low), floor(to.high));
}

static struct mod_bounds
ints_modulo(struct interval a, struct interval b)
{
	if (b.low == b.high && b.low > 0) {
		double multiple = floor(a.low / b.low) * b.low;

		if (a.high - multiple < b.low)
			return ints_unless_wrapped(a.low - multiple, a.high - multiple);
	}
	return ints_unless_wrapped(min_double(b.low + 1, 0), max_double(b.high - 1, 0));
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
		return count < 0 || count == 31 ? mod_bounds_any : ints_unless_wrapped(a.low * factor, a.high * factor);
	if (count >= 0)
		return (struct mod_bounds){ a.low >> count, a.high >> count };
	/* For an unknown count: values above 0 move towards 0, values below towards -1. */
	return ints_unless_wrapped(min_double(a.low, 0), max_double(a.high, -1));
}

struct mod_bounds
mod_bounds_of_ints(enum mod_op op, struct mod_bounds a, struct mod_bounds b)
{
	const struct interval x = { a.low, a.high }, y = { b.low, b.high };

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
floats_widened(double low, double high, double relative)
{
	if (!isinf(low))
		low -= fabs(low) * relative + SUBNORMAL_ERROR;
	if (!isinf(high))
		high += fabs(high) * relative + SUBNORMAL_ERROR;
	return mod_bounds_float(low < -(double)FLT_MAX ? -INFINITY : low, high > (double)FLT_MAX ? INFINITY : high);
}

static struct mod_bounds
floats_multiply(struct interval a, struct interval b)
{
	struct interval to =
		interval_hull((double[]){ a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high });

	if ((interval_has_zero(a) && interval_has_infinity(b)) || (interval_has_zero(b) && interval_has_infinity(a)))
		return mod_bounds_any;
	return floats_widened(to.low, to.high, ARITHMETIC_ERROR);
}

static struct mod_bounds
floats_divide(struct interval a, struct interval b, double relative)
{
	struct interval to = interval_quotient(a, b);

	if (interval_has_zero(b) || (interval_has_infinity(a) && interval_has_infinity(b)))
		return mod_bounds_any;
	return floats_widened(to.low, to.high, relative);
}

static struct mod_bounds
floats_add(struct interval a, double b_low, double b_high)
{
	if ((a.high == INFINITY && b_low == -INFINITY) || (a.low == -INFINITY && b_high == INFINITY))
		return mod_bounds_any;
	return floats_widened(a.low + b_low, a.high + b_high, ARITHMETIC_ERROR);
}

/* sin and cos change by at most the change of their argument: the derivative is at most 1. */
static struct interval
interval_sin_or_cos(double (*sin_or_cos)(double), struct interval a)
{
	double half = (a.high - a.low) / 2, middle;

	if (half > 1)
		return (struct interval){ -1, 1 };
	middle = sin_or_cos(a.low + half);
	half += FUNCTION_ERROR;
	return (struct interval){ max_double(middle - half, -1), min_double(middle + half, 1) };
}

static struct mod_bounds
floats_function(enum mod_op op, struct interval a)
{
	struct interval to;

	switch (op) {
	case MOD_OP_TAN:
		return interval_has_infinity(a) ? mod_bounds_any
						: floats_divide(interval_sin_or_cos(sin, a),
								interval_sin_or_cos(cos, a), FUNCTION_ERROR);
	case MOD_OP_SIN:
	case MOD_OP_COS:
		to = interval_sin_or_cos(mod_float_functions[op], a);
		return interval_has_infinity(a) ? mod_bounds_any : mod_bounds_float(to.low, to.high);
	case MOD_OP_FLOOR:
		return mod_bounds_float(floor(a.low), floor(a.high));
	default:
		if ((op == MOD_OP_LOG || op == MOD_OP_SQRT) && a.low < 0)
			return mod_bounds_any;
		/* The other functions are monotonically increasing. */
		return floats_widened(mod_float_functions[op](a.low), mod_float_functions[op](a.high), FUNCTION_ERROR);
	}
}

struct mod_bounds
mod_bounds_of_floats(enum mod_op op, struct mod_bounds first, struct mod_bounds second)
{
	const struct interval a = { (double)mod_float_of_key(first.low), (double)mod_float_of_key(first.high) };
	const struct interval b = { (double)mod_float_of_key(second.low), (double)mod_float_of_key(second.high) };

	if (op == MOD_OP_TO_FLOAT)
		return first.low >= -(1 << 24) && first.high <= 1 << 24
			       ? mod_bounds_float(first.low, first.high)
			       : floats_widened(first.low, first.high, ARITHMETIC_ERROR);
	if (mod_bounds_are_any(first) || mod_bounds_are_any(second))
		return mod_bounds_any;
	switch (op) {
	case MOD_OP_ADD:
		return floats_add(a, b.low, b.high);
	case MOD_OP_SUB:
		return floats_add(a, -b.high, -b.low);
	case MOD_OP_MUL:
		return floats_multiply(a, b);
	case MOD_OP_DIV:
		return floats_divide(a, b, ARITHMETIC_ERROR);
	case MOD_OP_MIN:
		return mod_bounds_float(min_double(a.low, b.low), min_double(a.high, b.high));
	case MOD_OP_MAX:
		return mod_bounds_float(max_double(a.low, b.low), max_double(a.high, b.high));
	case MOD_OP_NEG:
		return mod_bounds_float(-a.high, -a.low);
	case MOD_OP_ABS:
		return mod_bounds_float(interval_has_zero(a) ? 0 : min_double(fabs(a.low), fabs(a.high)),
					max_double(fabs(a.low), fabs(a.high)));
	case MOD_OP_TO_INT:
		return (struct mod_bounds){ (int32_t)min_double(max_double(a.low, INT32_MIN), INT32_MAX),
					    (int32_t)min_double(max_double(a.high, INT32_MIN), INT32_MAX) };
	default:
		return floats_function(op, a);
	}
}
