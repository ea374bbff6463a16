/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interval arithmetic over the boxes of a grid: bounds of every node.  Nodes that depend only on keys
 * are computed once for all rows; nodes that depend only on query rows are computed once for
 * consecutive grids with the same rows.
 *
 * Guards of loads are ignored: a guard only says where a load's value is used, and the &&, || or ?:
 * that it comes from bounds what is computed from the value.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mod/interval_bounds.h"

struct interval_step {
	const struct mod_node *node;
	uint8_t inputs; /* enum mod_inputs */
	grid_fn fn;     /* NULL: evaluated box by box */
	struct grid_call call;
};

struct mod_interval {
	const struct mod *mod;
	const struct grid_ops *ops;
	const struct mod_binding *binding;
	struct mod_grid grid;    /* the last one; no rows after mod_interval_bind() */
	struct mod_bounds score; /* of score mods: bounds of the score */
	uint32_t n_steps;
	struct interval_step *steps;   /* nodes with operands that depend on some input, in order */
	struct grid_bounds *values;    /* [node][row] */
	uint8_t inputs[MOD_MAX_NODES]; /* inputs of a node, without its guard's */
};

static struct grid_bounds *
interval_rows(const struct mod_interval *interval, uint32_t node)
{
	return interval->values + (size_t)node * MOD_GRID_ROWS;
}

static void
row_fill(struct grid_bounds *row, struct mod_bounds bounds)
{
	for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c++) {
		row->low[c] = bounds.low;
		row->high[c] = bounds.high;
	}
}

static void
row_fill_range(struct grid_bounds *row, const int32_t *side)
{
	row_fill(row, (struct mod_bounds){ side[0], side[1] });
}

/* One row of an operation without a vector function. */
static void
step_run_row(const struct mod_interval *interval, const struct mod_node *node, const struct grid_bounds *const *in,
	     struct grid_bounds *to, uint32_t n_columns)
{
	const bool floats = node->type == MOD_FLOAT || node->op == MOD_OP_TO_INT;

	if (node->op == MOD_OP_LOAD) {
		mod_bounds_load(&interval->binding->names[node->name], interval->mod->names[node->name].dtype,
				node->n_args, in, to, n_columns);
		return;
	}
	for (uint32_t c = 0; c < n_columns; c++) {
		const struct mod_bounds a = { in[0]->low[c], in[0]->high[c] }, b = { in[1]->low[c], in[1]->high[c] };
		struct mod_bounds bounds = (floats ? mod_bounds_of_floats : mod_bounds_of_ints)(node->op, a, b);

		to->low[c] = bounds.low;
		to->high[c] = bounds.high;
	}
}

static void
step_run(const struct mod_interval *interval, struct interval_step *step)
{
	uint32_t n_columns = (step->inputs & MOD_ON_KV) != 0 ? interval->grid.n_columns : 1;

	step->call.n_rows = (step->inputs & MOD_ON_Q) != 0 ? interval->grid.n_rows : 1;
	if (step->fn != NULL) {
		step->fn(&step->call);
		return;
	}
	for (uint32_t r = 0; r < step->call.n_rows; r++) {
		const struct grid_bounds *in[MOD_MAX_INDEXES];
		struct grid_bounds *to = &step->call.to[r];

		for (uint32_t i = 0; i < MOD_MAX_INDEXES; i++)
			in[i] = step->call.in[i].rows + r * step->call.in[i].step;
		step_run_row(interval, step->node, in, to, n_columns);
		if (n_columns == 1)
			row_fill(to, (struct mod_bounds){ to->low[0], to->high[0] });
	}
}

/* Columns after the last one repeat it, so that no undefined values are computed. */
static void
interval_fill_leaf(const struct mod_interval *interval, uint32_t number)
{
	const struct mod_grid *grid = &interval->grid;
	struct grid_bounds *rows = interval_rows(interval, number);

	switch ((enum mod_op)interval->mod->nodes[number].op) {
	case MOD_OP_SCORE:
		row_fill(rows, interval->score);
		break;
	case MOD_OP_B:
		row_fill_range(rows, grid->b);
		break;
	case MOD_OP_H:
		row_fill_range(rows, grid->h);
		break;
	case MOD_OP_Q:
		for (uint32_t r = 0; r < grid->n_rows; r++)
			row_fill_range(&rows[r], grid->q_idx[r]);
		break;
	default:
		for (uint32_t c = 0; c < MOD_GRID_COLUMNS; c++) {
			uint32_t from = c < grid->n_columns ? c : grid->n_columns - 1;

			rows->low[c] = grid->kv_idx[from][0];
			rows->high[c] = grid->kv_idx[from][1];
		}
	}
}

/* Bounds of the result: one row, or one for each row of the grid. */
static struct grid_bounds *
interval_run(struct mod_interval *interval, const struct mod_grid *grid)
{
	const struct mod_grid *last = &interval->grid;
	uint32_t changed = MOD_ON_KV | MOD_ON_SCORE;

	if (memcmp(last->b, grid->b, sizeof(grid->b)) != 0 || last->n_rows == 0)
		changed |= MOD_ON_B;
	if (memcmp(last->h, grid->h, sizeof(grid->h)) != 0 || last->n_rows == 0)
		changed |= MOD_ON_H;
	if (last->n_rows != grid->n_rows ||
	    memcmp(last->q_idx, grid->q_idx, grid->n_rows * sizeof(grid->q_idx[0])) != 0)
		changed |= MOD_ON_Q;
	interval->grid = *grid;
	for (uint32_t i = 0; i < interval->mod->n_nodes; i++)
		if (interval->mod->nodes[i].n_args == 0 && (interval->inputs[i] & changed) != 0)
			interval_fill_leaf(interval, i);
	for (uint32_t i = 0; i < interval->n_steps; i++)
		if ((interval->steps[i].inputs & changed) != 0)
			step_run(interval, &interval->steps[i]);
	return interval_rows(interval, interval->mod->n_nodes - 1);
}

struct mod_grid_truth
mod_interval_grid(struct mod_interval *interval, const struct mod_grid *grid)
{
	struct grid_bounds *result = interval_run(interval, grid);
	uint64_t row = (UINT64_C(1) << grid->n_columns) - 1, boxes = 0;
	struct mod_grid_truth truth;

	if ((interval->inputs[interval->mod->n_nodes - 1] & MOD_ON_Q) == 0)
		for (uint32_t r = 1; r < grid->n_rows; r++)
			result[r] = result[0];
	interval->ops->bits(result, grid->n_rows, &truth.all_true, &truth.all_false);
	for (uint32_t r = 0; r < grid->n_rows; r++)
		boxes |= row << r * MOD_GRID_COLUMNS;
	truth.all_true &= boxes;
	truth.all_false &= boxes;
	truth.unknown = boxes & ~(truth.all_true | truth.all_false);
	return truth;
}

static struct mod_bounds
interval_run_box(struct mod_interval *interval, const struct mod_box *box)
{
	const struct mod_grid grid = {
		.b = { box->b[0], box->b[1] },
		.h = { box->h[0], box->h[1] },
		.n_rows = 1,
		.n_columns = 1,
		.q_idx = { { box->q_idx[0], box->q_idx[1] } },
		.kv_idx = { { box->kv_idx[0], box->kv_idx[1] } },
	};
	const struct grid_bounds *result = interval_run(interval, &grid);

	return (struct mod_bounds){ result->low[0], result->high[0] };
}

enum mod_truth
mod_interval_box(struct mod_interval *interval, const struct mod_box *box)
{
	struct mod_bounds bounds = interval_run_box(interval, box);

	if (bounds.low != bounds.high)
		return MOD_UNKNOWN;
	return bounds.low != 0 ? MOD_ALL_TRUE : MOD_ALL_FALSE;
}

void
mod_interval_bounds(struct mod_interval *interval, const struct mod_box *box, const double *score, double *result)
{
	struct mod_bounds bounds;

	interval->score = isinf(score[0]) && isinf(score[1]) && score[0] < score[1]
				  ? mod_bounds_any
				  : mod_bounds_float(score[0], score[1]);
	bounds = interval_run_box(interval, box);
	if (interval->mod->kind == MOD_MASK) {
		result[0] = bounds.low;
		result[1] = bounds.high;
	} else if (mod_bounds_are_any(bounds)) {
		result[0] = -INFINITY;
		result[1] = INFINITY;
	} else {
		result[0] = (double)mod_float_of_key(bounds.low);
		result[1] = (double)mod_float_of_key(bounds.high);
	}
}

static void
interval_add_step(struct mod_interval *interval, uint32_t number)
{
	const struct mod_node *node = &interval->mod->nodes[number];
	struct interval_step *step = &interval->steps[interval->n_steps];

	*step = (struct interval_step){ .node = node, .call.to = interval_rows(interval, number) };
	/*
	 * Bools and floats compare in the order of their int keys, so the int functions compute all
	 * operations except float arithmetic.
	 */
	if (node->type != MOD_FLOAT || node->op == MOD_OP_SELECT)
		step->fn = interval->ops->of[node->op];
	for (uint32_t i = 0; i < node->n_args; i++) {
		uint8_t inputs = interval->inputs[node->args[i]];

		step->inputs |= inputs;
		step->call.in[i].rows = interval_rows(interval, node->args[i]);
		step->call.in[i].step = (inputs & MOD_ON_Q) != 0;
	}
	/* Unused operands are valid too: vector functions always read two. */
	for (uint32_t i = node->n_args; i < MOD_MAX_INDEXES; i++)
		step->call.in[i] = step->call.in[0];
	interval->inputs[number] = step->inputs;
	if (step->inputs == 0)
		step_run(interval, step);
	else
		interval->n_steps++;
}

/* Fills in constants and parameters, and evaluates nodes that depend on nothing else. */
void
mod_interval_bind(struct mod_interval *interval, const struct mod_binding *binding)
{
	const struct mod *mod = interval->mod;

	interval->binding = binding;
	interval->grid = (struct mod_grid){ 0 };
	interval->n_steps = 0;
	for (uint32_t i = 0; i < mod->n_nodes; i++) {
		const struct mod_node *node = &mod->nodes[i];
		struct mod_value value = { node->i, node->f };

		if (node->op == MOD_OP_PARAM)
			value = binding->names[node->name].value;
		/* The comparison of an int with itself is a constant. */
		if (node->op >= MOD_OP_LT && node->op <= MOD_OP_NE && node->args[0] == node->args[1] &&
		    mod->nodes[node->args[0]].type == MOD_INT)
			value.i = node->op == MOD_OP_LE || node->op == MOD_OP_EQ;
		else if (node->n_args > 0) {
			interval_add_step(interval, i);
			continue;
		}
		interval->inputs[i] = node->n_args == 0 ? node->inputs : 0;
		row_fill(interval_rows(interval, i), mod_bounds_exactly(node->type == MOD_FLOAT, value));
	}
}

enum paged_status
mod_interval_create(const struct mod *mod, enum kernel_isa isa, struct mod_interval **interval_p,
		    struct paged_error *error)
{
	struct mod_interval *interval;

	if (!kernel_isa_supported(isa))
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "mod: no %s here", kernel_isa_name(isa));
	interval = calloc(1, sizeof(*interval));
	if (interval != NULL) {
		interval->steps = calloc(mod->n_nodes, sizeof(*interval->steps));
		interval->values = calloc((size_t)mod->n_nodes * MOD_GRID_ROWS, sizeof(*interval->values));
	}
	if (interval == NULL || interval->steps == NULL || interval->values == NULL) {
		mod_interval_destroy(interval);
		return paged_fail(error, PAGED_ERR_NOMEM, "mod: no memory for the bounds of a mod");
	}
	interval->mod = mod;
	interval->ops = &grid_ops_generic;
#ifdef PAGED_X86_64
	if (isa != KERNEL_GENERIC && kernel_isa_supported(KERNEL_AVX2))
		interval->ops = &grid_ops_avx2;
#endif
	*interval_p = interval;
	return PAGED_OK;
}

void
mod_interval_destroy(struct mod_interval *interval)
{
	if (interval == NULL)
		return;
	free(interval->steps);
	free(interval->values);
	free(interval);
}
