/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of every node over a box.  Ints are doubles here (32 bits are exact)
 * but for their operations, which are interval_int.c's.  Bools are 0 and 1.
 */
#include "config.h"

#include <float.h>
#include <math.h>

#include "kernels/mod/interval.h"

/* Wider than f32's rounding, and than what the tile's functions stray by. */
#define ARITHMETIC 0x1p-22
#define FUNCTION 0x1p-19
#define SMALLEST 0x1p-147

static const struct mod_bounds any_float = { -INFINITY, INFINITY, true };

/* Bounds are no NaN. */
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

static struct mod_bounds
exactly(double value)
{
	return isnan(value) ? any_float : (struct mod_bounds){ value, value, false };
}

static struct mod_bounds
truth(bool may_be_false, bool may_be_true)
{
	return (struct mod_bounds){ !may_be_false, may_be_true, false };
}

static bool
is_point(const struct mod_bounds *x)
{
	return x->low == x->high && !x->nan;
}

static bool
has_infinity(const struct mod_bounds *x)
{
	return isinf(x->low) || isinf(x->high);
}

static bool
has_zero(const struct mod_bounds *x)
{
	return x->low <= 0 && x->high >= 0;
}

static struct mod_bounds
join(const struct mod_bounds *a, const struct mod_bounds *b)
{
	return (struct mod_bounds){ least(a->low, b->low), most(a->high, b->high), a->nan || b->nan };
}

static double
corner_low(const double *c)
{
	return least(least(c[0], c[1]), least(c[2], c[3]));
}

static double
corner_high(const double *c)
{
	return most(most(c[0], c[1]), most(c[2], c[3]));
}

/* Floats: what rounding and f32's narrower range may do. */
static struct mod_bounds
widened(double low, double high, bool nan, double relative)
{
	if (isnan(low) || isnan(high))
		return any_float;
	if (!isinf(low))
		low -= fabs(low) * relative + SMALLEST;
	if (!isinf(high))
		high += fabs(high) * relative + SMALLEST;
	return (struct mod_bounds){ low < -(double)FLT_MAX ? -INFINITY : low, high > (double)FLT_MAX ? INFINITY : high,
				    nan };
}

static struct mod_bounds
int_operation(enum mod_op op, const struct mod_bounds *a, const struct mod_bounds *b)
{
	struct mod_ints bounds = mod_ints_operation(op, (struct mod_ints){ (int64_t)a->low, (int64_t)a->high },
						    (struct mod_ints){ (int64_t)b->low, (int64_t)b->high });

	return (struct mod_bounds){ (double)bounds.low, (double)bounds.high, false };
}

static struct mod_bounds
float_multiply(const struct mod_bounds *a, const struct mod_bounds *b)
{
	const double c[] = { a->low * b->low, a->low * b->high, a->high * b->low, a->high * b->high };

	if ((has_zero(a) && has_infinity(b)) || (has_zero(b) && has_infinity(a)))
		return any_float;
	return widened(corner_low(c), corner_high(c), a->nan || b->nan, ARITHMETIC);
}

static struct mod_bounds
float_divide(const struct mod_bounds *a, const struct mod_bounds *b, double relative)
{
	const double c[] = { a->low / b->low, a->low / b->high, a->high / b->low, a->high / b->high };

	if (has_zero(b) || (has_infinity(a) && has_infinity(b)))
		return any_float;
	return widened(corner_low(c), corner_high(c), a->nan || b->nan, relative);
}

static struct mod_bounds
float_add(const struct mod_bounds *a, double b_low, double b_high, bool b_nan)
{
	bool opposite = (a->high == INFINITY && b_low == -INFINITY) || (a->low == -INFINITY && b_high == INFINITY);

	if (opposite)
		return any_float;
	return widened(a->low + b_low, a->high + b_high, a->nan || b_nan, ARITHMETIC);
}

/* The derivative is at most 1. */
static struct mod_bounds
wave(double (*function)(double), const struct mod_bounds *a)
{
	double half = (a->high - a->low) / 2, middle;

	if (has_infinity(a))
		return (struct mod_bounds){ -1, 1, true };
	if (half > 1)
		return (struct mod_bounds){ -1, 1, a->nan };
	middle = function(a->low + half);
	half += FUNCTION;
	return (struct mod_bounds){ most(middle - half, -1), least(middle + half, 1), a->nan };
}

static double
sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static struct mod_bounds
float_rising(double (*function)(double), const struct mod_bounds *a)
{
	return widened(function(a->low), function(a->high), a->nan, FUNCTION);
}

/* log and sqrt: NaN below 0. */
static struct mod_bounds
float_partial(double (*function)(double), const struct mod_bounds *a)
{
	if (a->high < 0)
		return any_float;
	return widened(function(most(a->low, 0)), function(a->high), a->nan || a->low < 0, FUNCTION);
}

static struct mod_bounds
float_function(enum mod_op op, const struct mod_bounds *a)
{
	struct mod_bounds sine, cosine;

	switch (op) {
	case MOD_OP_EXP:
		return float_rising(exp, a);
	case MOD_OP_EXP2:
		return float_rising(exp2, a);
	case MOD_OP_TANH:
		return float_rising(tanh, a);
	case MOD_OP_SIGMOID:
		return float_rising(sigmoid, a);
	case MOD_OP_LOG:
		return float_partial(log, a);
	case MOD_OP_SQRT:
		return float_partial(sqrt, a);
	case MOD_OP_SIN:
		return wave(sin, a);
	case MOD_OP_COS:
		return wave(cos, a);
	case MOD_OP_TAN:
		sine = wave(sin, a);
		cosine = wave(cos, a);
		return float_divide(&sine, &cosine, FUNCTION);
	default:
		return (struct mod_bounds){ floor(a->low), floor(a->high), a->nan };
	}
}

static struct mod_bounds
float_operation(enum mod_op op, const struct mod_bounds *a, const struct mod_bounds *b)
{
	switch (op) {
	case MOD_OP_ADD:
		return float_add(a, b->low, b->high, b->nan);
	case MOD_OP_SUB:
		return float_add(a, -b->high, -b->low, b->nan);
	case MOD_OP_MUL:
		return float_multiply(a, b);
	case MOD_OP_DIV:
		return float_divide(a, b, ARITHMETIC);
	case MOD_OP_MIN:
		return (struct mod_bounds){ least(a->low, b->low), least(a->high, b->high), a->nan || b->nan };
	case MOD_OP_MAX:
		return (struct mod_bounds){ most(a->low, b->low), most(a->high, b->high), a->nan || b->nan };
	case MOD_OP_NEG:
		return (struct mod_bounds){ -a->high, -a->low, a->nan };
	case MOD_OP_ABS:
		return (struct mod_bounds){ has_zero(a) ? 0 : least(fabs(a->low), fabs(a->high)),
					    most(fabs(a->low), fabs(a->high)), a->nan };
	case MOD_OP_TO_FLOAT:
		if (fabs(a->low) <= 0x1p24 && fabs(a->high) <= 0x1p24)
			return *a;
		return widened(a->low, a->high, false, ARITHMETIC);
	default:
		return float_function(op, a);
	}
}

static struct mod_bounds
compare(enum mod_op op, const struct mod_bounds *a, const struct mod_bounds *b)
{
	bool nan = a->nan || b->nan, apart = a->high < b->low || a->low > b->high;
	bool one = a->low == a->high && b->low == b->high && a->low == b->low;

	switch (op) {
	case MOD_OP_LT:
		return truth(nan || a->high >= b->low, a->low < b->high);
	case MOD_OP_LE:
		return truth(nan || a->high > b->low, a->low <= b->high);
	case MOD_OP_EQ:
		return truth(nan || !one, !apart);
	default:
		return truth(!apart, nan || !one);
	}
}

/* int(x): NaN is 0. */
static struct mod_bounds
to_int(const struct mod_bounds *a)
{
	struct mod_bounds bounds = { least(most(trunc(a->low), INT32_MIN), INT32_MAX),
				     least(most(trunc(a->high), INT32_MIN), INT32_MAX), false };

	return a->nan ? join(&bounds, &(struct mod_bounds){ 0, 0, false }) : bounds;
}

/* What the mods of everyday are made of; the rest by type. */
static struct mod_bounds
operation(const struct mod *mod, const struct mod_node *node, const struct mod_bounds *all)
{
	const struct mod_bounds *a = &all[node->args[0]], *b = node->n_args > 1 ? &all[node->args[1]] : a;

	switch ((enum mod_op)node->op) {
	case MOD_OP_NOT:
		return (struct mod_bounds){ 1 - a->high, 1 - a->low, false };
	case MOD_OP_AND:
		return (struct mod_bounds){ least(a->low, b->low), least(a->high, b->high), false };
	case MOD_OP_OR:
		return (struct mod_bounds){ most(a->low, b->low), most(a->high, b->high), false };
	case MOD_OP_SELECT:
		if (is_point(a))
			return a->low != 0 ? all[node->args[1]] : all[node->args[2]];
		return join(&all[node->args[1]], &all[node->args[2]]);
	case MOD_OP_FROM_BOOL:
		return *a;
	case MOD_OP_TO_INT:
		return to_int(a);
	case MOD_OP_LT:
	case MOD_OP_LE:
	case MOD_OP_EQ:
	case MOD_OP_NE:
		/* One int compared with itself. */
		if (node->args[0] == node->args[1] && mod->nodes[node->args[0]].type == MOD_INT)
			return exactly(node->op == MOD_OP_LE || node->op == MOD_OP_EQ);
		return compare(node->op, a, b);
	default:
		return node->type == MOD_FLOAT ? float_operation(node->op, a, b) : int_operation(node->op, a, b);
	}
}

static struct mod_bounds
load(const struct mod_binding *binding, const struct mod_node *node, const struct mod_bounds *all)
{
	struct mod_bounds indexes[MOD_MAX_INDEXES];

	if (node->guard != MOD_NO_NODE && all[node->guard].high == 0)
		return (struct mod_bounds){ 0, 0, false };
	for (uint32_t i = 0; i < node->n_args; i++)
		indexes[i] = all[node->args[i]];
	return mod_bounds_load(&binding->names[node->name], binding->mod->names[node->name].dtype, node->n_args,
			       indexes);
}

static struct mod_bounds
leaf(const struct mod_binding *binding, const struct mod_node *node, const struct mod_box *box,
     const struct mod_bounds *score)
{
	const struct mod_bound *bound = &binding->names[node->name];
	const int32_t *range;

	switch ((enum mod_op)node->op) {
	case MOD_OP_CONST:
		return exactly(node->type == MOD_FLOAT ? (double)node->f : node->i);
	case MOD_OP_PARAM:
		return exactly(node->type == MOD_FLOAT ? (double)bound->value.f : bound->value.i);
	case MOD_OP_SCORE:
		return *score;
	case MOD_OP_B:
		range = box->b;
		break;
	case MOD_OP_H:
		range = box->h;
		break;
	case MOD_OP_Q:
		range = box->q_idx;
		break;
	default:
		range = box->kv_idx;
		break;
	}
	return (struct mod_bounds){ range[0], range[1], false };
}

struct mod_bounds
mod_bounds(const struct mod_binding *binding, const struct mod_box *box, const struct mod_bounds *score)
{
	const struct mod *mod = binding->mod;
	struct mod_bounds all[MOD_MAX_NODES];

	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		const struct mod_node *node = &mod->nodes[i];

		if (node->op == MOD_OP_LOAD)
			all[i] = load(binding, node, all);
		else if (node->n_args == 0)
			all[i] = leaf(binding, node, box, score);
		else
			all[i] = operation(mod, node, all);
	}
	return all[mod->n_nodes - 1];
}

enum mod_truth
mod_interval(const struct mod_binding *binding, const struct mod_box *box)
{
	struct mod_bounds bounds = mod_bounds(binding, box, &any_float);

	if (bounds.low != bounds.high)
		return MOD_UNKNOWN;
	return bounds.low != 0 ? MOD_ALL_TRUE : MOD_ALL_FALSE;
}
