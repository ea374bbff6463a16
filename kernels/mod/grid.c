/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of every node over the boxes of a grid.  What depends on keys alone
 * is computed once for all rows, what depends on query rows alone once for
 * all grids of the same rows.
 *
 * Guards of loads are left out: they say where a load's value counts, and
 * the node that they come from bounds what is made of it.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/mod/grid.h"
#include "kernels/mod/interval.h"

struct step {
	uint8_t op;     /* enum mod_op */
	uint8_t name;   /* of a load */
	uint8_t inputs; /* enum mod_inputs */
	uint8_t n_args;
	grid_fn fn; /* NULL: one by one */
	struct grid_call call;
};

struct mod_gridder {
	const struct mod_binding *binding;
	const struct grid_ops *ops;
	struct mod_grid grid; /* the last one; of no rows at first */
	uint32_t n_steps;
	struct step *steps;            /* nodes with operands, in order */
	struct grid_bounds *values;    /* [node][row] */
	uint8_t inputs[MOD_MAX_NODES]; /* a node's, without its guard's */
};

static struct grid_bounds *
rows_of(const struct mod_gridder *gridder, uint32_t node)
{
	return gridder->values + (size_t)node * MOD_GRID_ROWS;
}

static void
fill(struct grid_bounds *row, int32_t low, int32_t high)
{
	for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c++) {
		row->low[c] = low;
		row->high[c] = high;
	}
}

static struct mod_ints
step_one(const struct mod_gridder *gridder, const struct step *step, uint32_t r, uint32_t c)
{
	const struct mod_binding *binding = gridder->binding;
	struct mod_ints in[MOD_MAX_INDEXES];

	for (uint32_t i = 0; i < step->n_args; i++) {
		const struct grid_bounds *row = step->call.in[i].rows + r * step->call.in[i].step;

		in[i] = (struct mod_ints){ row->low[c], row->high[c] };
	}
	if (step->op == MOD_OP_LOAD)
		return mod_ints_load(&binding->names[step->name], binding->mod->names[step->name].dtype, step->n_args,
				     in);
	return mod_ints_operation(step->op, in[0], in[step->n_args - 1]);
}

static void
step_row(const struct mod_gridder *gridder, const struct step *step, uint32_t r, uint32_t n_columns)
{
	struct grid_bounds *to = &step->call.to[r];

	for (uint32_t c = 0; c < n_columns; c++) {
		struct mod_ints bounds = step_one(gridder, step, r, c);

		to->low[c] = (int32_t)bounds.low;
		to->high[c] = (int32_t)bounds.high;
	}
}

static void
step_load_row(const struct mod_gridder *gridder, const struct step *step, uint32_t r, uint32_t n_columns)
{
	const struct grid_bounds *index = step->call.in[0].rows + r * step->call.in[0].step;
	struct grid_bounds *to = &step->call.to[r];

	mod_ints_load_row(&gridder->binding->names[step->name], gridder->binding->mod->names[step->name].dtype,
			  n_columns, index->low, index->high, to->low, to->high);
}

static void
step_one_by_one(const struct mod_gridder *gridder, const struct step *step, uint32_t n_columns)
{
	for (uint32_t r = 0; r < step->call.n_rows; r++) {
		struct grid_bounds *to = &step->call.to[r];

		if (step->op == MOD_OP_LOAD && step->n_args == 1)
			step_load_row(gridder, step, r, n_columns);
		else
			step_row(gridder, step, r, n_columns);
		if (n_columns == 1)
			fill(to, to->low[0], to->high[0]);
	}
}

static void
step_run(const struct mod_gridder *gridder, struct step *step)
{
	step->call.n_rows = (step->inputs & MOD_ON_Q) != 0 ? gridder->grid.n_rows : 1;
	if (step->fn != NULL)
		step->fn(&step->call);
	else
		step_one_by_one(gridder, step, (step->inputs & MOD_ON_KV) != 0 ? gridder->grid.n_columns : 1);
}

/* Columns past the last repeat it, so that nothing is computed of chance values. */
static void
fill_leaf(const struct mod_gridder *gridder, uint32_t number)
{
	const struct mod_grid *grid = &gridder->grid;
	struct grid_bounds *rows = rows_of(gridder, number);

	switch ((enum mod_op)gridder->binding->mod->nodes[number].op) {
	case MOD_OP_B:
		fill(rows, grid->b, grid->b);
		break;
	case MOD_OP_H:
		fill(rows, grid->h, grid->h);
		break;
	case MOD_OP_Q:
		for (uint32_t r = 0; r < grid->n_rows; r++)
			fill(&rows[r], grid->q_idx[r][0], grid->q_idx[r][1]);
		break;
	default:
		for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c++) {
			uint32_t from = c < grid->n_columns ? c : grid->n_columns - 1;

			rows->low[c] = grid->kv_idx[from][0];
			rows->high[c] = grid->kv_idx[from][1];
		}
	}
}

static uint32_t
changed_inputs(const struct mod_grid *a, const struct mod_grid *b)
{
	uint32_t changed = MOD_ON_KV;

	if (a->b != b->b || a->n_rows == 0)
		changed |= MOD_ON_B;
	if (a->h != b->h || a->n_rows == 0)
		changed |= MOD_ON_H;
	if (a->n_rows != b->n_rows || memcmp(a->q_idx, b->q_idx, b->n_rows * sizeof(b->q_idx[0])) != 0)
		changed |= MOD_ON_Q;
	return changed;
}

/* Bits of the grid's boxes. */
static uint64_t
boxes_of(const struct mod_grid *grid)
{
	uint64_t row = (UINT64_C(1) << grid->n_columns) - 1, boxes = 0;

	for (uint32_t r = 0; r < grid->n_rows; r++)
		boxes |= row << r * MOD_GRID_COLUMNS;
	return boxes;
}

struct mod_grid_truth
mod_gridder_ask(struct mod_gridder *gridder, const struct mod_grid *grid)
{
	const struct mod *mod = gridder->binding->mod;
	const uint32_t last = mod->n_nodes - 1, changed = changed_inputs(&gridder->grid, grid);
	struct grid_bounds *result = rows_of(gridder, last);
	uint64_t boxes = boxes_of(grid);
	struct mod_grid_truth truth;

	gridder->grid = *grid;
	for (uint32_t i = 0; i <= last; i++)
		if (mod->nodes[i].n_args == 0 && (gridder->inputs[i] & changed) != 0)
			fill_leaf(gridder, i);
	for (uint32_t i = 0; i < gridder->n_steps; i++)
		if ((gridder->steps[i].inputs & changed) != 0)
			step_run(gridder, &gridder->steps[i]);
	if ((gridder->inputs[last] & MOD_ON_Q) == 0)
		for (uint32_t r = 1; r < grid->n_rows; r++)
			result[r] = result[0];
	gridder->ops->bits(result, grid->n_rows, &truth.all_true, &truth.all_false);
	truth.all_true &= boxes;
	truth.all_false &= boxes;
	return truth;
}

static uint8_t
leaf_input(enum mod_op op)
{
	switch (op) {
	case MOD_OP_B:
		return MOD_ON_B;
	case MOD_OP_H:
		return MOD_ON_H;
	case MOD_OP_Q:
		return MOD_ON_Q;
	case MOD_OP_KV:
		return MOD_ON_KV;
	default:
		return 0;
	}
}

/* A comparison of an int with itself is known; `to` is filled once. */
static bool
is_reflexive(const struct mod_node *node)
{
	return node->op >= MOD_OP_LT && node->op <= MOD_OP_NE && node->args[0] == node->args[1];
}

static void
add_step(struct mod_gridder *gridder, uint32_t number)
{
	const struct mod_node *node = &gridder->binding->mod->nodes[number];
	struct step *step = &gridder->steps[gridder->n_steps];

	*step = (struct step){ .op = node->op,
			       .name = node->name,
			       .n_args = node->n_args,
			       .fn = gridder->ops->of[node->op],
			       .call.to = rows_of(gridder, number) };
	for (uint32_t i = 0; i < node->n_args; i++) {
		uint8_t inputs = gridder->inputs[node->args[i]];

		step->inputs |= inputs;
		step->call.in[i].rows = rows_of(gridder, node->args[i]);
		step->call.in[i].step = (inputs & MOD_ON_Q) != 0;
	}
	if (node->n_args == 1) /* operations of two are handed two */
		step->call.in[1] = step->call.in[0];
	gridder->inputs[number] = step->inputs;
	if (step->inputs == 0)
		step_run(gridder, step);
	else
		gridder->n_steps++;
}

/* Numbers are filled in for good, and what is computed of them alone. */
static void
prepare(struct mod_gridder *gridder)
{
	const struct mod *mod = gridder->binding->mod;

	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		const struct mod_node *node = &mod->nodes[i];
		int32_t value = node->op == MOD_OP_PARAM ? gridder->binding->names[node->name].value.i : node->i;

		if (is_reflexive(node))
			value = node->op == MOD_OP_LE || node->op == MOD_OP_EQ;
		else if (node->n_args > 0) {
			add_step(gridder, i);
			continue;
		}
		gridder->inputs[i] = leaf_input(node->op);
		fill(rows_of(gridder, i), value, value);
	}
}

enum paged_status
mod_gridder_create(const struct mod_binding *binding, enum kernel_isa isa, struct mod_gridder **gridder_p,
		   struct paged_error *error)
{
	const struct mod *mod = binding->mod;
	struct mod_gridder *gridder;

	if (!mod_is_exact(mod))
		return paged_fail(error, PAGED_ERR_INVALID, "mod: '%.80s' has floats, grids are of ints", mod->text);
	if (!kernel_isa_supported(isa))
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "mod: no %s here", kernel_isa_name(isa));
	gridder = calloc(1, sizeof(*gridder));
	if (gridder != NULL) {
		gridder->steps = calloc(mod->n_nodes, sizeof(*gridder->steps));
		gridder->values = calloc((size_t)mod->n_nodes * MOD_GRID_ROWS, sizeof(*gridder->values));
	}
	if (gridder == NULL || gridder->steps == NULL || gridder->values == NULL) {
		mod_gridder_destroy(gridder);
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of a mod");
	}
	gridder->binding = binding;
#ifdef PAGED_X86_64
	gridder->ops = isa == KERNEL_GENERIC || !kernel_isa_supported(KERNEL_AVX2) ? &grid_ops_generic : &grid_ops_avx2;
#else
	gridder->ops = &grid_ops_generic;
#endif
	prepare(gridder);
	*gridder_p = gridder;
	return PAGED_OK;
}

void
mod_gridder_destroy(struct mod_gridder *gridder)
{
	if (gridder == NULL)
		return;
	free(gridder->steps);
	free(gridder->values);
	free(gridder);
}
