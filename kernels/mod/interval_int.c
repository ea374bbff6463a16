/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of operations on ints; and the whole of a mod that has nothing else, box after box. */
#include "config.h"

#include <stdlib.h>

#include "kernels/mod/interval.h"

static const struct mod_ints any_int = { INT32_MIN, INT32_MAX };

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

static struct mod_ints
truth(bool may_be_false, bool may_be_true)
{
	return (struct mod_ints){ !may_be_false, may_be_true };
}

static bool
is_point(struct mod_ints x)
{
	return x.low == x.high;
}

static bool
has_zero(struct mod_ints x)
{
	return x.low <= 0 && x.high >= 0;
}

static struct mod_ints
join(struct mod_ints a, struct mod_ints b)
{
	return (struct mod_ints){ least(a.low, b.low), most(a.high, b.high) };
}

/* Any, if the operation may have wrapped. */
static struct mod_ints
unwrapped(int64_t low, int64_t high)
{
	return low >= INT32_MIN && high <= INT32_MAX ? (struct mod_ints){ low, high } : any_int;
}

static struct mod_ints
of_corners(int64_t a, int64_t b, int64_t c, int64_t d)
{
	return unwrapped(least(least(a, b), least(c, d)), most(most(a, b), most(c, d)));
}

/* Towards minus infinity; b is not 0. */
static int64_t
quotient(int64_t a, int64_t b)
{
	return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static struct mod_ints
divide(struct mod_ints a, struct mod_ints b)
{
	int64_t top = most(llabs(a.low), llabs(a.high));

	if (has_zero(b))
		return unwrapped(-top, top);
	return of_corners(quotient(a.low, b.low), quotient(a.low, b.high), quotient(a.high, b.low),
			  quotient(a.high, b.high));
}

static struct mod_ints
modulo(struct mod_ints a, struct mod_ints b)
{
	if (is_point(b) && b.low > 0) {
		int64_t turn = quotient(a.low, b.low) * b.low;

		if (a.high - turn < b.low)
			return (struct mod_ints){ a.low - turn, a.high - turn };
	}
	return (struct mod_ints){ least(b.low + 1, 0), most(b.high - 1, 0) };
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

static struct mod_ints
bitwise(enum mod_op op, struct mod_ints a, struct mod_ints b)
{
	if (op == MOD_OP_BITAND && a.low >= 0 && b.low >= 0)
		return (struct mod_ints){ 0, least(a.high, b.high) };
	if (op == MOD_OP_BITAND && (a.low >= 0 || b.low >= 0))
		return (struct mod_ints){ 0, a.low >= 0 ? a.high : b.high };
	if (op != MOD_OP_BITAND && a.low >= 0 && b.low >= 0)
		return (struct mod_ints){ op == MOD_OP_BITOR ? most(a.low, b.low) : 0, all_bits(most(a.high, b.high)) };
	return any_int;
}

static struct mod_ints
shift(enum mod_op op, struct mod_ints a, struct mod_ints b)
{
	int64_t count = is_point(b) ? b.low & 31 : -1;

	if (op == MOD_OP_SHL)
		return count < 0 || count == 31 ? any_int : unwrapped(a.low * (1 << count), a.high * (1 << count));
	if (count >= 0)
		return (struct mod_ints){ a.low >> count, a.high >> count };
	/* Towards 0 from above, towards -1 from below. */
	return (struct mod_ints){ least(a.low, 0), most(a.high, -1) };
}

static struct mod_ints
absolute(struct mod_ints a)
{
	int64_t low = llabs(a.low), high = llabs(a.high);

	return unwrapped(has_zero(a) ? 0 : least(low, high), most(low, high));
}

struct mod_ints
mod_ints_operation(enum mod_op op, struct mod_ints a, struct mod_ints b)
{
	if (is_point(a) && is_point(b)) {
		int32_t value = mod_int_operation(op, (int32_t)a.low, (int32_t)b.low);

		return (struct mod_ints){ value, value };
	}
	switch (op) {
	case MOD_OP_ADD:
		return unwrapped(a.low + b.low, a.high + b.high);
	case MOD_OP_SUB:
		return unwrapped(a.low - b.high, a.high - b.low);
	case MOD_OP_MUL:
		return of_corners(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high);
	case MOD_OP_DIV:
		return divide(a, b);
	case MOD_OP_MOD:
		return modulo(a, b);
	case MOD_OP_MIN:
		return (struct mod_ints){ least(a.low, b.low), least(a.high, b.high) };
	case MOD_OP_MAX:
		return (struct mod_ints){ most(a.low, b.low), most(a.high, b.high) };
	case MOD_OP_NEG:
		return unwrapped(-a.high, -a.low);
	case MOD_OP_ABS:
		return absolute(a);
	case MOD_OP_BITNOT:
		return (struct mod_ints){ -1 - a.high, -1 - a.low };
	case MOD_OP_SHL:
	case MOD_OP_SHR:
		return shift(op, a, b);
	default:
		return bitwise(op, a, b);
	}
}

enum { SIDE_B, SIDE_H, SIDE_Q, SIDE_KV, N_SIDES };

static const struct side {
	enum mod_op op;
	enum mod_inputs input;
} sides[N_SIDES] = {
	[SIDE_B] = { MOD_OP_B, MOD_ON_B },
	[SIDE_H] = { MOD_OP_H, MOD_ON_H },
	[SIDE_Q] = { MOD_OP_Q, MOD_ON_Q },
	[SIDE_KV] = { MOD_OP_KV, MOD_ON_KV },
};

struct mod_prober {
	const struct mod_binding *binding;
	bool exact;             /* else nothing below is used */
	uint16_t leaf[N_SIDES]; /* its node, which is there once; one behind all if the mod does not name it */
	uint16_t n_inner;
	uint16_t inner[MOD_MAX_NODES];                /* nodes with operands, in order */
	struct mod_ints all[MOD_MAX_NODES + N_SIDES]; /* over the last box asked about */
};

static struct mod_ints
compare(const struct mod_node *node, struct mod_ints a, struct mod_ints b)
{
	bool same = node->args[0] == node->args[1], apart = a.high < b.low || a.low > b.high;
	bool one = same || (is_point(a) && is_point(b) && a.low == b.low);

	switch ((enum mod_op)node->op) {
	case MOD_OP_LT:
		return truth(same || a.high >= b.low, !same && a.low < b.high);
	case MOD_OP_LE:
		return truth(!same && a.high > b.low, same || a.low <= b.high);
	case MOD_OP_EQ:
		return truth(!one, !apart);
	default:
		return truth(!apart, !one);
	}
}

static struct mod_ints
load(const struct mod_prober *prober, const struct mod_node *node)
{
	const struct mod_bound *bound = &prober->binding->names[node->name];
	struct mod_ints indexes[MOD_MAX_INDEXES];

	if (node->guard != MOD_NO_NODE && prober->all[node->guard].high == 0)
		return (struct mod_ints){ 0, 0 };
	for (uint32_t i = 0; i < node->n_args; i++)
		indexes[i] = prober->all[node->args[i]];
	return mod_ints_load(bound, prober->binding->mod->names[node->name].dtype, node->n_args, indexes);
}

static struct mod_ints
inner(const struct mod_prober *prober, const struct mod_node *node)
{
	const struct mod_ints *all = prober->all;
	struct mod_ints a = all[node->args[0]], b = node->n_args > 1 ? all[node->args[1]] : a;

	switch ((enum mod_op)node->op) {
	case MOD_OP_LOAD:
		return load(prober, node);
	case MOD_OP_NOT:
		return (struct mod_ints){ 1 - a.high, 1 - a.low };
	case MOD_OP_AND:
		return (struct mod_ints){ a.low & b.low, a.high & b.high };
	case MOD_OP_OR:
		return (struct mod_ints){ a.low | b.low, a.high | b.high };
	case MOD_OP_SELECT:
		if (is_point(a))
			return a.low != 0 ? b : all[node->args[2]];
		return join(b, all[node->args[2]]);
	case MOD_OP_FROM_BOOL:
		return a;
	case MOD_OP_LT:
	case MOD_OP_LE:
	case MOD_OP_EQ:
	case MOD_OP_NE:
		return compare(node, a, b);
	default:
		return mod_ints_operation(node->op, a, b);
	}
}

/* Set a side of the box; MOD_ON_* if that changes it. */
static uint32_t
set_side(struct mod_prober *prober, uint32_t side, const int32_t *range)
{
	const struct mod_ints bounds = { range[0], range[1] };
	struct mod_ints *old = &prober->all[prober->leaf[side]];

	if (old->low == bounds.low && old->high == bounds.high)
		return 0;
	*old = bounds;
	return sides[side].input;
}

enum mod_truth
mod_prober_ask(struct mod_prober *prober, const struct mod_box *box)
{
	const struct mod *mod = prober->binding->mod;
	const struct mod_ints *result = &prober->all[mod->n_nodes - 1];
	uint32_t changed;

	if (!prober->exact)
		return mod_interval(prober->binding, box);
	changed = set_side(prober, SIDE_B, box->b) | set_side(prober, SIDE_H, box->h) |
		  set_side(prober, SIDE_Q, box->q_idx) | set_side(prober, SIDE_KV, box->kv_idx);
	for (uint32_t i = 0; changed != 0 && i < prober->n_inner; i++) {
		uint16_t number = prober->inner[i];
		const struct mod_node *node = &mod->nodes[number];

		if ((node->inputs & changed) != 0)
			prober->all[number] = inner(prober, node);
	}
	if (!is_point(*result))
		return MOD_UNKNOWN;
	return result->low != 0 ? MOD_ALL_TRUE : MOD_ALL_FALSE;
}

/* Leaves that never change, and what is computed of them alone; the sides start with no box at all. */
static void
prepare(struct mod_prober *prober)
{
	const struct mod *mod = prober->binding->mod;
	const struct mod_ints none = { 1, 0 };

	for (uint32_t side = 0; side < N_SIDES; side++) {
		prober->leaf[side] = MOD_MAX_NODES + (uint16_t)side;
		prober->all[prober->leaf[side]] = none;
	}
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		const struct mod_node *node = &mod->nodes[i];
		int32_t value = node->op == MOD_OP_PARAM ? prober->binding->names[node->name].value.i : node->i;

		prober->all[i] = (struct mod_ints){ value, value };
		for (uint32_t side = 0; side < N_SIDES; side++) {
			if (node->op != sides[side].op)
				continue;
			prober->leaf[side] = (uint16_t)i;
			prober->all[i] = none;
		}
		if (node->n_args > 0 && node->inputs == 0)
			prober->all[i] = inner(prober, node);
		else if (node->n_args > 0)
			prober->inner[prober->n_inner++] = (uint16_t)i;
	}
}

enum paged_status
mod_prober_create(const struct mod_binding *binding, struct mod_prober **prober_p, struct paged_error *error)
{
	struct mod_prober *prober = calloc(1, sizeof(*prober));

	if (prober == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of a mod");
	prober->binding = binding;
	prober->exact = mod_is_exact(binding->mod);
	if (prober->exact)
		prepare(prober);
	*prober_p = prober;
	return PAGED_OK;
}

void
mod_prober_destroy(struct mod_prober *prober)
{
	free(prober);
}
