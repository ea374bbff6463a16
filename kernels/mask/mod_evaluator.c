/* SPDX-License-Identifier: Apache-2.0 */
/* Proves areas of a mask full or empty: by intervals (grids), by corners, or by their elements. */
#include "kernels/mask/mod_evaluator.h"

/* Keys at each end of a block that are evaluated first. */
#define CORNER_KEYS 8u

/* The corners of an area: the first or last query row, and the first or last key. */
static const struct {
	bool last_q, last_kv;
} corner_kinds[MOD_EVALUATOR_CORNERS] = { { false, true }, { true, false }, { false, false }, { true, true } };

/* Evaluates the grid's corners of one kind, each as a box of one point. */
static void
sample_corners(struct mod_grid_truth *known, const struct mod_evaluator *mod_evaluator, const struct mod_grid *grid,
	       int kind)
{
	struct mod_grid points = *grid;
	struct mod_grid_truth more;

	for (uint32_t r = 0; r < grid->n_rows; r++)
		points.q_idx[r][0] = points.q_idx[r][1] = grid->q_idx[r][corner_kinds[kind].last_q];
	for (uint32_t c = 0; c < grid->n_columns; c++)
		points.kv_idx[c][0] = points.kv_idx[c][1] = grid->kv_idx[c][corner_kinds[kind].last_kv];
	more = mod_interval_grid(mod_evaluator->intervals[kind], &points);
	known->all_true |= more.all_true;
	known->all_false |= more.all_false;
}

/* Decides a grid: first whole areas, then corners until each unknown area has both a visible and a hidden corner. */
static struct mask_cells
mod_evaluate_grid(void *context, const struct mod_grid *grid, bool blocks)
{
	const struct mod_evaluator *mod_evaluator = context;
	struct mod_grid_truth truth = mod_interval_grid(mod_evaluator->intervals[MOD_EVALUATOR_AREAS], grid),
			      known = { 0 };

	for (int i = 0; i < MOD_EVALUATOR_CORNERS && blocks; i++) {
		if ((truth.unknown & ~(known.all_true & known.all_false)) == 0)
			break;
		sample_corners(&known, mod_evaluator, grid, i);
	}
	return (struct mask_cells){ truth.all_false, truth.all_true, known.all_true & known.all_false };
}

/* Sets n q_rows of the VM, from q on, `step` apart. */
static void
vm_set_area_q_rows(struct mod_vm *vm, const struct mask_area *area, int64_t q, int64_t step, uint32_t n)
{
	int32_t h[MOD_TILE_Q_ROWS], q_idx[MOD_TILE_Q_ROWS];

	for (uint32_t i = 0; i < n; i++) {
		h[i] = (int32_t)area->h;
		q_idx[i] = (int32_t)(q + i * step);
	}
	mod_vm_set_q_rows(vm, (int32_t)area->b, h, q_idx, n);
}

static uint32_t
length_up_to(int64_t n, uint32_t limit)
{
	return n < limit ? (uint32_t)n : limit;
}

/* Whether visible (true) and hidden (false) elements of an area were found. */
struct visibility {
	bool any_visible, any_hidden;
};

static void
visibility_add_keys(struct visibility *visibility, struct mod_vm *vm, int64_t kv, uint32_t n_keys, uint32_t n_q_rows)
{
	uint64_t bits[MOD_TILE_Q_ROWS], all = n_keys < 64 ? (UINT64_C(1) << n_keys) - 1 : UINT64_MAX;
	uint64_t known = 0, unseen = 0;

	mod_vm_mask(vm, (int32_t)kv, n_keys, NULL, bits);
	for (uint32_t i = 0; i < n_q_rows; i++) {
		known |= bits[i];
		unseen |= ~bits[i] & all;
	}
	visibility->any_visible |= known != 0;
	visibility->any_hidden |= unseen != 0;
}

static bool
visibility_is_mixed(const struct visibility *visibility)
{
	return visibility->any_visible && visibility->any_hidden;
}

/* Evaluates a few elements at the corners. */
static void
visibility_of_corners(struct visibility *visibility, struct mod_vm *vm, const struct mask_area *area)
{
	uint32_t n_q_rows = length_up_to(area->q_end - area->q_begin, 2);
	uint32_t n_keys = length_up_to(area->kv_end - area->kv_begin, CORNER_KEYS);

	vm_set_area_q_rows(vm, area, area->q_begin, area->q_end - 1 - area->q_begin, n_q_rows);
	visibility_add_keys(visibility, vm, area->kv_begin, n_keys, n_q_rows);
	if (!visibility_is_mixed(visibility))
		visibility_add_keys(visibility, vm, area->kv_end - n_keys, n_keys, n_q_rows);
}

/* A single block can take hours.  After a cancellation the result is not used, so any may be returned. */
static void
visibility_of_area(struct visibility *visibility, const struct mod_evaluator *mod_evaluator,
		   const struct mask_area *area)
{
	const atomic_bool *cancelled = mod_evaluator->base.cancelled;

	for (int64_t q = area->q_begin; q < area->q_end; q += MOD_TILE_Q_ROWS) {
		uint32_t n_q_rows = length_up_to(area->q_end - q, MOD_TILE_Q_ROWS);

		vm_set_area_q_rows(mod_evaluator->vm, area, q, 1, n_q_rows);
		for (int64_t kv = area->kv_begin; kv < area->kv_end; kv += MOD_TILE_KEYS) {
			visibility_add_keys(visibility, mod_evaluator->vm, kv,
					    length_up_to(area->kv_end - kv, MOD_TILE_KEYS), n_q_rows);
			if (visibility_is_mixed(visibility) ||
			    (cancelled != NULL && atomic_load_explicit(cancelled, memory_order_relaxed)))
				return;
		}
	}
}

/* Part i of n of [begin, end), with inclusive bounds. */
static void
range_part(int32_t *part, int64_t begin, int64_t end, uint32_t i, uint32_t n)
{
	part[0] = (int32_t)(begin + (end - begin) * i / n);
	part[1] = (int32_t)(begin + (end - begin) * (i + 1) / n - 1);
}

/*
 * Evaluates the unknown parts element by element.  In each row of parts, evaluates the range from the
 * first unknown part to the last.
 */
static void
visibility_of_unknown(struct visibility *visibility, const struct mod_evaluator *mod_evaluator,
		      const struct mod_grid *parts, uint64_t left)
{
	for (uint32_t r = 0; r < parts->n_rows && !visibility_is_mixed(visibility); r++) {
		uint32_t row = (uint32_t)(left >> r * MOD_GRID_COLUMNS) & ((1u << MOD_GRID_COLUMNS) - 1);
		struct mask_area area = { .b = (uint32_t)parts->b[0], .h = (uint32_t)parts->h[0] };

		if (row == 0)
			continue;
		area.q_begin = parts->q_idx[r][0];
		area.q_end = (int64_t)parts->q_idx[r][1] + 1;
		area.kv_begin = parts->kv_idx[__builtin_ctz(row)][0];
		area.kv_end = (int64_t)parts->kv_idx[31 - __builtin_clz(row)][1] + 1;
		visibility_of_area(visibility, mod_evaluator, &area);
	}
}

/*
 * Decides an area by intervals over its parts, then by one point of each unknown part, then by the
 * elements of the unknown parts.
 */
static void
visibility_of_parts(struct visibility *visibility, const struct mod_evaluator *mod_evaluator,
		    const struct mask_area *area)
{
	struct mod_grid parts = {
		.b = { (int32_t)area->b, (int32_t)area->b },
		.h = { (int32_t)area->h, (int32_t)area->h },
		.n_rows = length_up_to(area->q_end - area->q_begin, MOD_GRID_ROWS),
		.n_columns = length_up_to(area->kv_end - area->kv_begin, MOD_GRID_COLUMNS),
	};
	struct mod_grid_truth truth;
	bool nothing_known;

	for (uint32_t r = 0; r < parts.n_rows; r++)
		range_part(parts.q_idx[r], area->q_begin, area->q_end, r, parts.n_rows);
	for (uint32_t c = 0; c < parts.n_columns; c++)
		range_part(parts.kv_idx[c], area->kv_begin, area->kv_end, c, parts.n_columns);
	truth = mod_interval_grid(mod_evaluator->intervals[MOD_EVALUATOR_AREAS], &parts);
	nothing_known = (truth.all_true | truth.all_false) == 0;
	if (truth.unknown != 0 && (truth.all_true == 0 || truth.all_false == 0))
		sample_corners(&truth, mod_evaluator, &parts, 0);
	visibility->any_visible = truth.all_true != 0;
	visibility->any_hidden = truth.all_false != 0;
	if (nothing_known && !visibility_is_mixed(visibility))
		visibility_of_area(visibility, mod_evaluator, area);
	else
		visibility_of_unknown(visibility, mod_evaluator, &parts, truth.unknown);
}

/*
 * Compares the mod's values at two opposite corners: first query row and last key, last query row and first key.
 * The border of the visible region mostly runs between these corners.
 */
static bool
corners_differ(const struct mod_binding *binding, const struct mask_area *area)
{
	struct mod_point one = { .b = (int32_t)area->b, .h = (int32_t)area->h }, other = one;

	one.q_idx = (int32_t)area->q_begin;
	one.kv_idx = (int32_t)(area->kv_end - 1);
	other.q_idx = (int32_t)(area->q_end - 1);
	other.kv_idx = (int32_t)area->kv_begin;
	return mod_scalar(binding, &one, NULL) != mod_scalar(binding, &other, NULL);
}

/*
 * Tries the cheapest check first.  Intervals over the whole area are not tried: create.c calls this
 * because they were not enough.
 */
static enum mask_coverage
mod_evaluate_area(void *context, const struct mask_area *area)
{
	const struct mod_evaluator *mod_evaluator = context;
	struct visibility visibility = { 0 };

	if ((area->q_end - area->q_begin) * (area->kv_end - area->kv_begin) > MOD_TILE_Q_ROWS * MOD_TILE_KEYS) {
		visibility_of_parts(&visibility, mod_evaluator, area);
	} else if (mod_is_exact(mod_binding_mod(mod_evaluator->binding)) &&
		   corners_differ(mod_evaluator->binding, area)) {
		return MASK_PARTIAL;
	} else {
		visibility_of_corners(&visibility, mod_evaluator->vm, area);
		if (!visibility_is_mixed(&visibility))
			visibility_of_area(&visibility, mod_evaluator, area);
	}
	if (visibility_is_mixed(&visibility))
		return MASK_PARTIAL;
	return visibility.any_visible ? MASK_FULL : MASK_EMPTY;
}

enum paged_status
mod_evaluator_open(struct mod_evaluator *mod_evaluator, const struct mod_binding *binding, enum kernel_isa isa,
		   struct paged_error *error)
{
	const struct mod *mod = mod_binding_mod(binding);
	uint32_t inputs = mod_inputs(mod);
	enum paged_status status;

	*mod_evaluator = (struct mod_evaluator){ .binding = binding };
	if (mod_kind(mod) != MOD_MASK)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: '%.80s' is a score mod, not a mask mod",
				  mod_text(mod));
	status = mod_vm_create(mod, isa, &mod_evaluator->vm, error);
	for (int i = 0; i < MOD_EVALUATOR_N_INTERVALS && status == PAGED_OK; i++)
		status = mod_interval_create(mod, isa, &mod_evaluator->intervals[i], error);
	if (status != PAGED_OK) {
		mod_evaluator_close(mod_evaluator);
		return status;
	}
	mod_vm_bind(mod_evaluator->vm, binding);
	for (int i = 0; i < MOD_EVALUATOR_N_INTERVALS; i++)
		mod_interval_bind(mod_evaluator->intervals[i], binding);
	mod_evaluator->base = (struct mask_evaluator){
		.evaluate_grid = mod_evaluate_grid,
		.evaluate_area = mod_evaluate_area,
		.context = mod_evaluator,
		.same_rows = (inputs & MOD_ON_B) == 0,
		.same_heads = (inputs & MOD_ON_H) == 0,
	};
	return PAGED_OK;
}

void
mod_evaluator_close(struct mod_evaluator *mod_evaluator)
{
	for (int i = 0; i < MOD_EVALUATOR_N_INTERVALS; i++)
		mod_interval_destroy(mod_evaluator->intervals[i]);
	mod_vm_destroy(mod_evaluator->vm);
	*mod_evaluator = (struct mod_evaluator){ 0 };
}

enum paged_status
mod_evaluator_bad_index(const struct mod_evaluator *mod_evaluator, struct paged_error *error)
{
	return mod_bad_index_fail(mod_binding_mod(mod_evaluator->binding), mod_vm_bad_index(mod_evaluator->vm), error);
}
