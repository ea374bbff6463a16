/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates one point in float64, recursively from the result; skips the side of && || ?: that is not taken. */
#include "config.h"

#include <math.h>

#include "kernels/mod/ir.h"

struct evaluation {
	const struct mod_binding *binding;
	const struct mod_point *point;
	struct mod_bad_index *bad_index;
};

/* A bool or int is in i, a float in f. */
struct value {
	int32_t i;
	double f;
};

static struct value eval_node(const struct evaluation *evaluation, uint16_t number);

static struct value
value_of_int(int32_t i)
{
	return (struct value){ .i = i };
}

static struct value
value_of_float(double f)
{
	return (struct value){ .f = f };
}

static struct value
eval_load(const struct evaluation *evaluation, const struct mod_node *node)
{
	const struct mod_bound *bound = &evaluation->binding->names[node->name];
	enum mod_dtype dtype = evaluation->binding->mod->names[node->name].dtype;
	const uint8_t *address = bound->data;
	int32_t index[MOD_MAX_INDEXES];
	struct mod_value element;

	for (uint32_t i = 0; i < node->n_args; i++)
		index[i] = eval_node(evaluation, node->args[i]).i;
	for (uint32_t i = 0; i < node->n_args; i++) {
		if (index[i] < 0 || (uint32_t)index[i] >= bound->extents[i]) {
			mod_bad_index_record(evaluation->bad_index, node->name, i, index[i], bound->extents[i]);
			return (struct value){ 0 };
		}
		address += index[i] * bound->strides[i];
	}
	element = mod_load_element(dtype, address);
	return (struct value){ element.i, (double)element.f };
}

static struct value
eval_compare(enum mod_op op, bool is_float, struct value a, struct value b)
{
	switch (op) {
	case MOD_OP_LT:
		return value_of_int(is_float ? a.f < b.f : a.i < b.i);
	case MOD_OP_LE:
		return value_of_int(is_float ? a.f <= b.f : a.i <= b.i);
	case MOD_OP_EQ:
		return value_of_int(is_float ? a.f == b.f : a.i == b.i);
	default:
		return value_of_int(is_float ? a.f != b.f : a.i != b.i);
	}
}

static double
eval_sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

double (*const mod_float_functions[MOD_N_OPS])(double) = {
	[MOD_OP_EXP] = exp,     [MOD_OP_EXP2] = exp2,
	[MOD_OP_LOG] = log,     [MOD_OP_TANH] = tanh,
	[MOD_OP_SIN] = sin,     [MOD_OP_COS] = cos,
	[MOD_OP_TAN] = tan,     [MOD_OP_SQRT] = sqrt,
	[MOD_OP_FLOOR] = floor, [MOD_OP_SIGMOID] = eval_sigmoid,
};

static double
eval_float_operation(enum mod_op op, double a, double b)
{
	switch (op) {
	case MOD_OP_ADD:
		return a + b;
	case MOD_OP_SUB:
		return a - b;
	case MOD_OP_MUL:
		return a * b;
	case MOD_OP_DIV:
		return a / b;
	case MOD_OP_MIN:
		return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
	case MOD_OP_MAX:
		return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
	case MOD_OP_NEG:
		return -a;
	case MOD_OP_ABS:
		return fabs(a);
	default:
		return mod_float_functions[op](a);
	}
}

/* Rounds towards minus infinity; division by 0 gives 0; INT32_MIN / -1 wraps. */
static int32_t
int_floor_div(int32_t a, int32_t b)
{
	if (b == 0)
		return 0;
	if (b == -1)
		return (int32_t)(0u - (uint32_t)a);
	return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The result has the divisor's sign; modulo 0 gives 0. */
static int32_t
int_floor_mod(int32_t a, int32_t b)
{
	int32_t rest = b == 0 || b == -1 ? 0 : a % b;

	return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int32_t
mod_int_operation(enum mod_op op, int32_t a, int32_t b)
{
	const uint32_t x = (uint32_t)a, y = (uint32_t)b;

	switch (op) {
	case MOD_OP_ADD:
		return (int32_t)(x + y);
	case MOD_OP_SUB:
		return (int32_t)(x - y);
	case MOD_OP_MUL:
		return (int32_t)(x * y);
	case MOD_OP_DIV:
		return int_floor_div(a, b);
	case MOD_OP_MOD:
		return int_floor_mod(a, b);
	case MOD_OP_MIN:
		return a < b ? a : b;
	case MOD_OP_MAX:
		return a > b ? a : b;
	case MOD_OP_NEG:
		return (int32_t)(0u - x);
	case MOD_OP_ABS:
		return a < 0 ? (int32_t)(0u - x) : a;
	case MOD_OP_BITAND:
		return a & b;
	case MOD_OP_BITOR:
		return a | b;
	case MOD_OP_BITXOR:
		return a ^ b;
	case MOD_OP_SHL:
		return (int32_t)(x << (b & 31));
	case MOD_OP_SHR:
		return a >> (b & 31);
	default:
		return ~a;
	}
}

static int32_t
int_saturated(double x)
{
	if (!(x > -2147483648.0))
		return isnan(x) ? 0 : INT32_MIN;
	return x >= 2147483647.0 ? INT32_MAX : (int32_t)x;
}

static struct value
eval_operation(const struct evaluation *evaluation, const struct mod_node *node)
{
	struct value a = eval_node(evaluation, node->args[0]);
	struct value b = node->n_args > 1 ? eval_node(evaluation, node->args[1]) : (struct value){ 0 };

	if (node->op >= MOD_OP_LT && node->op <= MOD_OP_NE)
		return eval_compare(node->op, evaluation->binding->mod->nodes[node->args[0]].type == MOD_FLOAT, a, b);
	if (node->op == MOD_OP_TO_INT)
		return value_of_int(int_saturated(a.f));
	if (node->op == MOD_OP_TO_FLOAT)
		return value_of_float(a.i);
	if (node->op == MOD_OP_FROM_BOOL)
		return a;
	if (node->type == MOD_FLOAT)
		return value_of_float(eval_float_operation(node->op, a.f, b.f));
	return value_of_int(mod_int_operation(node->op, a.i, b.i));
}

static struct value
eval_node(const struct evaluation *evaluation, uint16_t number)
{
	const struct mod_node *node = &evaluation->binding->mod->nodes[number];
	const struct mod_bound *bound = &evaluation->binding->names[node->name];

	switch ((enum mod_op)node->op) {
	case MOD_OP_CONST:
		return (struct value){ node->i, (double)node->f };
	case MOD_OP_SCORE:
		return value_of_float(evaluation->point->score);
	case MOD_OP_B:
		return value_of_int(evaluation->point->b);
	case MOD_OP_H:
		return value_of_int(evaluation->point->h);
	case MOD_OP_Q:
		return value_of_int(evaluation->point->q_idx);
	case MOD_OP_KV:
		return value_of_int(evaluation->point->kv_idx);
	case MOD_OP_PARAM:
		return (struct value){ bound->value.i, (double)bound->value.f };
	case MOD_OP_LOAD:
		return eval_load(evaluation, node);
	case MOD_OP_NOT:
		return value_of_int(!eval_node(evaluation, node->args[0]).i);
	case MOD_OP_AND:
		return eval_node(evaluation, node->args[0]).i ? eval_node(evaluation, node->args[1]) : value_of_int(0);
	case MOD_OP_OR:
		return eval_node(evaluation, node->args[0]).i ? value_of_int(1) : eval_node(evaluation, node->args[1]);
	case MOD_OP_SELECT:
		return eval_node(evaluation, node->args[0]).i ? eval_node(evaluation, node->args[1])
							      : eval_node(evaluation, node->args[2]);
	default:
		return eval_operation(evaluation, node);
	}
}

double
mod_scalar(const struct mod_binding *binding, const struct mod_point *point, struct mod_bad_index *bad_index)
{
	const struct evaluation evaluation = { binding, point, bad_index };
	struct value value = eval_node(&evaluation, (uint16_t)(binding->mod->n_nodes - 1));

	return binding->mod->kind == MOD_MASK ? value.i : value.f;
}
