/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random expressions and inputs.  Evaluators agree:
 *   - canonical text: parses to the same mod
 *   - tiles: every instruction set gives the same bits
 *   - tiles and scalar: exactly where no float is involved; else both lie in
 *     the interval of their point, whose width is the stated accuracy of each
 *     operation
 *   - tiles with some active elements: the same values there, no faults elsewhere
 *   - intervals: hold at every point of a box, independent of earlier calls, and
 *     are the same for every instruction set and in grids
 */
#include <math.h>
#include <string.h>

#include "kernels/mod/interval_bounds.h"
#include "tests/support/kernel_test.h"
#include "tests/support/mod_generator.h"

static uint64_t seed;

/* The canonical text may use fewer names than the text; both are parsed with all names. */
static void
check_text(const struct mod_fixture *fixture, const struct generator_text *text)
{
	struct paged_error error = { 0 };
	struct mod *reparsed;
	const char *canonical = mod_text(fixture->mod);

	cr_assert_eq(mod_parse(mod_kind(fixture->mod), canonical, strlen(canonical), generator_arrays,
			       GENERATOR_N_ARRAYS, &reparsed, &error),
		     PAGED_OK, "seed %llu: %s\n%s\n%s", (unsigned long long)seed, error.text, text->at, canonical);
	cr_assert(reparsed->n_nodes == fixture->mod->n_nodes &&
			  memcmp(reparsed->nodes, fixture->mod->nodes, reparsed->n_nodes * sizeof(*reparsed->nodes)) ==
				  0,
		  "seed %llu: %s\n%s", (unsigned long long)seed, text->at, canonical);
	mod_destroy(reparsed);
}

struct tile {
	int32_t b, h[MOD_TILE_Q_ROWS], q_idx[MOD_TILE_Q_ROWS], kv_idx;
	uint32_t n_q_rows, n_keys;
	float scale; /* mod_vm_score() multiplies scores by it */
	float scores[MOD_TILE_Q_ROWS][MOD_TILE_KEYS];
};

static struct tile
random_tile(void)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY, -0.0f, 1e-40f, 3e38f };
	struct tile tile = { .b = (int32_t)generator_pick(3),
			     .n_q_rows = 1 + generator_pick(MOD_TILE_Q_ROWS),
			     .n_keys = 1 + generator_pick(MOD_TILE_KEYS),
			     .scale = generator_pick(2) == 0 ? 1 : 0.3f };

	if (generator_pick(3) == 0)
		tile.n_keys = MOD_TILE_KEYS;
	tile.kv_idx = generator_pick(8) == 0 ? INT32_MAX - 70 : (int32_t)generator_pick(40);
	for (uint32_t i = 0; i < tile.n_q_rows; i++) {
		tile.h[i] = (int32_t)generator_pick(4);
		tile.q_idx[i] = (int32_t)generator_pick(60);
		for (uint32_t j = 0; j < tile.n_keys; j++)
			tile.scores[i][j] = generator_pick(50) == 0 ? odd[generator_pick(6)] : generator_float(4);
	}
	return tile;
}

/* Evaluate all q_rows in one call, or the first third and then the others. */
static void
run_scores(struct mod_vm *vm, const struct tile *tile, const uint64_t *active, float (*results)[MOD_TILE_KEYS])
{
	uint32_t first = tile->n_q_rows / 3;

	if (first == 0 && tile->scale == 1) {
		mod_vm_score(vm, tile->kv_idx, tile->n_keys, active, results[0], MOD_TILE_KEYS);
		return;
	}
	if (first == 0)
		first = tile->n_q_rows;
	mod_vm_score_q_rows(vm, 0, first, tile->kv_idx, tile->n_keys, active, tile->scale, results[0], MOD_TILE_KEYS);
	if (first < tile->n_q_rows)
		mod_vm_score_q_rows(vm, first, tile->n_q_rows - first, tile->kv_idx, tile->n_keys,
				    active != NULL ? active + first : NULL, tile->scale, results[first], MOD_TILE_KEYS);
}

/* The score that the mod reads: rounded after the multiplication. */
static double
tile_score(const struct tile *tile, uint32_t q_row, uint32_t key)
{
	return (double)(tile->scores[q_row][key] * tile->scale);
}

/* The results of a mask are 0 and 1; `active` may be NULL: all elements. */
static struct mod_bad_index
run_tile(const struct mod_fixture *fixture, enum kernel_isa isa, const struct tile *tile, const uint64_t *active,
	 float results[MOD_TILE_Q_ROWS][MOD_TILE_KEYS])
{
	struct paged_error error = { 0 };
	uint64_t bits[MOD_TILE_Q_ROWS], inside = UINT64_MAX >> (64 - tile->n_keys);
	struct mod_bad_index range;
	struct mod_vm *vm;

	cr_assert_eq(mod_vm_create(fixture->mod, isa, &vm, &error), PAGED_OK, "%s", error.text);
	mod_vm_bind(vm, fixture->binding);
	mod_vm_set_q_rows(vm, tile->b, tile->h, tile->q_idx, tile->n_q_rows);
	memcpy(results, tile->scores, sizeof(tile->scores));
	if (mod_kind(fixture->mod) == MOD_SCORE)
		run_scores(vm, tile, active, results);
	else
		mod_vm_mask(vm, tile->kv_idx, tile->n_keys, active, bits);
	for (uint32_t i = 0; mod_kind(fixture->mod) == MOD_MASK && i < tile->n_q_rows; i++) {
		cr_assert_eq(bits[i] & ~(active != NULL ? active[i] & inside : inside), 0);
		for (uint32_t j = 0; j < tile->n_keys; j++)
			results[i][j] = (float)(bits[i] >> j & 1);
	}
	range = *mod_vm_bad_index(vm);
	mod_vm_destroy(vm);
	return range;
}

/* Bounds of -inf to inf include NaN. */
static bool
within(double x, const double *bounds)
{
	return isnan(x) ? bounds[0] == -INFINITY && bounds[1] == INFINITY : x >= bounds[0] && x <= bounds[1];
}

static void
check_point(const struct mod_fixture *fixture, struct mod_interval *interval, const struct generator_text *text,
	    const struct mod_point *point, float tile, struct mod_bad_index *range)
{
	const struct mod_box box = mod_point_box(point);
	double score[2] = { point->score, point->score }, bounds[2];
	struct mod_bad_index here = { 0 };
	double scalar = mod_scalar(fixture->binding, point, &here);

	mod_interval_bounds(interval, &box, score, bounds);
	if (!range->found)
		*range = here;
	cr_assert(within(scalar, bounds) && within((double)tile, bounds),
		  "seed %llu: %s\n"
		  "b %d h %d q_idx %d kv_idx %d score %.9g: scalar %.17g tile %.9g in [%.17g, %.17g]",
		  (unsigned long long)seed, text->at, point->b, point->h, point->q_idx, point->kv_idx, point->score,
		  scalar, (double)tile, bounds[0], bounds[1]);
	if (!text->floats)
		cr_assert(scalar == (double)tile && (bounds[0] == bounds[1] || here.found), "seed %llu: %s\n %g %g",
			  (unsigned long long)seed, text->at, scalar, (double)tile);
}

static void
check_tile(const struct mod_fixture *fixture, const struct generator_text *text)
{
	static float results[KERNEL_N_ISAS][MOD_TILE_Q_ROWS][MOD_TILE_KEYS];
	struct tile tile = random_tile();
	struct mod_bad_index range = { 0 }, first;
	struct mod_interval *interval = mod_fixture_interval(fixture, kernel_isa_best());

	first = run_tile(fixture, KERNEL_GENERIC, &tile, NULL, results[KERNEL_GENERIC]);
	for (enum kernel_isa isa = 1; isa < KERNEL_N_ISAS; isa++) {
		if (!kernel_isa_supported(isa))
			continue;
		cr_assert_eq(run_tile(fixture, isa, &tile, NULL, results[isa]).found, first.found);
		for (uint32_t i = 0; i < tile.n_q_rows * MOD_TILE_KEYS; i++) {
			float a = results[0][i / 64][i % 64], b = results[isa][i / 64][i % 64];

			cr_assert(memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b)),
				  "seed %llu: %s: %s %.9g, generic %.9g", (unsigned long long)seed, text->at,
				  kernel_isa_name(isa), (double)b, (double)a);
		}
	}
	for (uint32_t i = 0; i < tile.n_q_rows; i++) {
		for (uint32_t j = 0; j < tile.n_keys; j++) {
			struct mod_point point = { tile_score(&tile, i, j), tile.b, tile.h[i], tile.q_idx[i],
						   (int32_t)((uint32_t)tile.kv_idx + j) };

			check_point(fixture, interval, text, &point, results[0][i][j], &range);
		}
	}
	if (!text->floats)
		cr_assert_eq(range.found, first.found, "seed %llu: %s", (unsigned long long)seed, text->at);
	mod_interval_destroy(interval);
}

/* Per q_row: all elements active, none, or some. */
static void
random_active(uint64_t *active)
{
	for (uint32_t i = 0; i < MOD_TILE_Q_ROWS; i++) {
		uint64_t bits = generator_bits();

		switch (generator_pick(5)) {
		case 0:
			active[i] = UINT64_MAX;
			break;
		case 1:
			active[i] = 0;
			break;
		case 2:
			active[i] = bits & bits >> 7 & bits << 13;
			break;
		default:
			active[i] = bits;
			break;
		}
	}
	if (generator_pick(4) == 0)
		memset(active, 0, (MOD_TILE_Q_ROWS - 1) * sizeof(*active));
}

/* Inactive elements do not change the results of active ones, and their indices are not reported. */
static void
check_active(const struct mod_fixture *fixture, const struct generator_text *text)
{
	static float all[MOD_TILE_Q_ROWS][MOD_TILE_KEYS], some[MOD_TILE_Q_ROWS][MOD_TILE_KEYS];
	struct tile tile = random_tile();
	uint64_t active[MOD_TILE_Q_ROWS];
	struct mod_bad_index expected = { 0 };

	random_active(active);
	for (uint32_t at = 0; at < tile.n_q_rows * tile.n_keys; at++) {
		uint32_t i = at / tile.n_keys, j = at % tile.n_keys;
		const struct mod_point point = { tile_score(&tile, i, j), tile.b, tile.h[i], tile.q_idx[i],
						 (int32_t)((uint32_t)tile.kv_idx + j) };

		if (active[i] >> j & 1)
			mod_scalar(fixture->binding, &point, &expected);
	}
	for (enum kernel_isa isa = 0; isa < KERNEL_N_ISAS; isa++) {
		struct mod_bad_index range;

		if (!kernel_isa_supported(isa))
			continue;
		run_tile(fixture, isa, &tile, NULL, all);
		range = run_tile(fixture, isa, &tile, active, some);
		for (uint32_t at = 0; at < tile.n_q_rows * tile.n_keys; at++) {
			uint32_t i = at / tile.n_keys, j = at % tile.n_keys;

			if (active[i] >> j & 1)
				cr_assert(memcmp(&all[i][j], &some[i][j], sizeof(float)) == 0, "seed %llu: %s",
					  (unsigned long long)seed, text->at);
		}
		cr_assert(text->floats || range.found == expected.found, "seed %llu: %s", (unsigned long long)seed,
			  text->at);
		cr_assert(!range.found || range.index < 0 || (uint32_t)range.index >= range.extent);
	}
}

static void
random_range(int32_t range[2], uint32_t max, uint32_t width)
{
	range[0] = (int32_t)generator_pick(max);
	range[1] = range[0] + (int32_t)generator_pick(width);
}

static int32_t
pick_within(const int32_t *range)
{
	return range[0] + (int32_t)generator_pick((uint32_t)(range[1] - range[0]) + 1);
}

/* Any point of a box, with a score from -2 to 2. */
static struct mod_point
random_point(const struct mod_box *box)
{
	return (struct mod_point){ (double)generator_float(2), pick_within(box->b), pick_within(box->h),
				   pick_within(box->q_idx), pick_within(box->kv_idx) };
}

static void
check_box(const struct mod_fixture *fixture, const struct generator_text *text)
{
	struct mod_interval *interval = mod_fixture_interval(fixture, kernel_isa_best());
	const double score[2] = { -2, 2 };
	double bounds[2];
	struct mod_box box;

	random_range(box.b, 3, 2);
	random_range(box.h, 4, 3);
	random_range(box.q_idx, 60, generator_pick(2) ? 4 : 20);
	random_range(box.kv_idx, 60, generator_pick(2) ? 4 : 20);
	mod_interval_bounds(interval, &box, score, bounds);
	mod_interval_destroy(interval);
	for (uint32_t i = 0; i < 120; i++) {
		const struct mod_point point = random_point(&box);
		double scalar = mod_scalar(fixture->binding, &point, NULL);

		cr_assert(within(scalar, bounds), "seed %llu: %s\n%.17g in [%.17g, %.17g]", (unsigned long long)seed,
			  text->at, scalar, bounds[0], bounds[1]);
	}
}

/* The result for a box as the first box after binding. */
static enum mod_truth
box_truth_without_cache(struct mod_interval *interval, const struct mod_binding *binding, const struct mod_box *box)
{
	mod_interval_bind(interval, binding);
	return mod_interval_box(interval, box);
}

/* Boxes that differ from the previous one in some sides only: results do not depend on earlier boxes. */
static void
check_sequence(const struct mod_fixture *fixture, const struct generator_text *text)
{
	struct mod_interval *interval = mod_fixture_interval(fixture, kernel_isa_best());
	struct mod_interval *other = mod_fixture_interval(fixture, KERNEL_GENERIC);
	struct mod_box box = { 0 };

	for (uint32_t i = 0; i < 40; i++) {
		if (generator_pick(8) == 0)
			random_range(box.b, 3, 2);
		if (generator_pick(4) == 0)
			random_range(box.h, 4, 3);
		if (generator_pick(2) == 0)
			random_range(box.q_idx, 60, generator_pick(2) ? 2 : 20);
		if (generator_pick(2) == 0)
			random_range(box.kv_idx, 60, generator_pick(2) ? 2 : 20);
		cr_assert_eq(mod_interval_box(interval, &box), box_truth_without_cache(other, fixture->binding, &box),
			     "seed %llu: %s", (unsigned long long)seed, text->at);
	}
	mod_interval_destroy(other);
	mod_interval_destroy(interval);
}

/* Rebinding with arrays that grow and shrink in place equals a first binding. */
static void
check_rebinding(const struct mod_fixture *fixture, const struct generator_text *text)
{
	static int32_t ids[40000], window;
	struct mod_interval *interval = mod_fixture_interval(fixture, kernel_isa_best());
	struct mod_array others[GENERATOR_N_ARRAYS];
	struct paged_error error;

	memcpy(others, generator_arrays, sizeof(others));
	others[GENERATOR_DOC].data = ids;
	others[GENERATOR_WINDOW].data = &window;
	for (uint32_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		ids[i] = (int32_t)(i / 100);
	cr_assert_eq(mod_binding_add_range_trees(fixture->binding, &error), PAGED_OK);
	for (uint32_t i = 0; i < 6; i++) {
		struct mod_binding *fresh;

		others[GENERATOR_DOC].extents[0] = generator_pick(3) == 0 ? generator_pick(40000) : generator_pick(200);
		window = (int32_t)generator_pick(20);
		cr_assert_eq(mod_rebind(fixture->binding, others, GENERATOR_N_ARRAYS, &error), PAGED_OK);
		cr_assert_eq(mod_bind(fixture->mod, others, GENERATOR_N_ARRAYS, &fresh, &error), PAGED_OK);
		cr_assert_eq(mod_binding_add_range_trees(fresh, &error), PAGED_OK);
		for (uint32_t j = 0; j < 20; j++) {
			struct mod_box box = { { 0, 1 }, { 0, 1 }, { 0, 0 }, { 0, 0 } };

			random_range(box.q_idx, 60, 4);
			random_range(box.kv_idx, 40000, generator_pick(2) ? 64 : 3000);
			cr_assert_eq(box_truth_without_cache(interval, fixture->binding, &box),
				     box_truth_without_cache(interval, fresh, &box), "seed %llu: %s",
				     (unsigned long long)seed, text->at);
		}
		mod_binding_destroy(fresh);
	}
	mod_interval_destroy(interval);
}

static void
random_sides(int32_t (*sides)[2], uint32_t n)
{
	uint32_t width = generator_pick(3) == 0 ? 1 : 20;

	for (uint32_t i = 0; i < n; i++)
		random_range(sides[i], 60, width);
}

static enum mod_truth
truth_of(const struct mod_grid_truth *truth, uint32_t bit)
{
	if ((truth->all_true >> bit & 1) != 0)
		return MOD_ALL_TRUE;
	return (truth->all_false >> bit & 1) != 0 ? MOD_ALL_FALSE : MOD_UNKNOWN;
}

/*
 * Each box of a grid has the result that it has alone, and that its points have;
 * the result for an empty box is unknown.
 */
static void
check_boxes(const struct mod_fixture *fixture, struct mod_interval *interval, const struct mod_grid *boxes,
	    const struct mod_grid_truth *truth, const struct generator_text *text)
{
	for (uint32_t bit = 0; bit < MOD_GRID_ROWS * MOD_GRID_COLUMNS; bit++) {
		uint32_t r = bit / MOD_GRID_COLUMNS, c = bit % MOD_GRID_COLUMNS;
		enum mod_truth expected = MOD_UNKNOWN;

		if (r < boxes->n_rows && c < boxes->n_columns) {
			const struct mod_box box = {
				.b = { boxes->b[0], boxes->b[1] },
				.h = { boxes->h[0], boxes->h[1] },
				.q_idx = { boxes->q_idx[r][0], boxes->q_idx[r][1] },
				.kv_idx = { boxes->kv_idx[c][0], boxes->kv_idx[c][1] },
			};
			const struct mod_point point = random_point(&box);
			double scalar = mod_scalar(fixture->binding, &point, NULL);

			expected = box_truth_without_cache(interval, fixture->binding, &box);
			cr_assert(expected == MOD_UNKNOWN || (expected == MOD_ALL_TRUE) == (scalar == 1),
				  "seed %llu: %s", (unsigned long long)seed, text->at);
		}
		cr_assert_eq(truth_of(truth, bit), expected, "seed %llu, box %u: %s", (unsigned long long)seed, bit,
			     text->at);
	}
}

/* Several grids in turn, some with equal sides. */
static void
check_grids(const struct mod_fixture *fixture, const struct generator_text *text)
{
	enum kernel_isa isa = generator_pick(2) ? kernel_isa_best() : KERNEL_GENERIC;
	struct mod_interval *interval = mod_fixture_interval(fixture, isa);
	struct mod_interval *other = mod_fixture_interval(fixture, KERNEL_GENERIC);
	struct mod_grid boxes = { 0 };

	for (uint32_t i = 0; i < 12; i++) {
		struct mod_grid_truth truth;

		if (i == 0 || generator_pick(2) == 0) {
			boxes.n_rows = 1 + generator_pick(MOD_GRID_ROWS);
			random_sides(boxes.q_idx, boxes.n_rows);
		}
		boxes.n_columns = 1 + generator_pick(MOD_GRID_COLUMNS);
		random_sides(boxes.kv_idx, boxes.n_columns);
		random_range(boxes.b, 3, 1 + generator_pick(2));
		random_range(boxes.h, 4, 1 + generator_pick(2));
		truth = mod_interval_grid(interval, &boxes);
		check_boxes(fixture, other, &boxes, &truth, text);
	}
	mod_interval_destroy(other);
	mod_interval_destroy(interval);
}

static void
rounds_of(struct generator_text (*make)(enum mod_kind kind), enum mod_kind kind, uint32_t n,
	  void (*check)(const struct mod_fixture *fixture, const struct generator_text *text))
{
	uint64_t base = test_seed();

	for (uint32_t i = 0; i < n; i++) {
		struct mod_fixture fixture;
		struct generator_text text;

		seed = base + i;
		generator_seed(seed);
		fixture = generator_mod(kind, make, &text);
		check(&fixture, &text);
		mod_fixture_close(&fixture);
	}
}

static void
rounds(enum mod_kind kind, uint32_t n,
       void (*check)(const struct mod_fixture *fixture, const struct generator_text *text))
{
	rounds_of(generator_expression, kind, n, check);
}

Test(mod_property, canonical_text)
{
	rounds(MOD_MASK, 1500, check_text);
	rounds(MOD_SCORE, 1500, check_text);
}

Test(mod_property, boxes_in_sequence)
{
	rounds(MOD_MASK, 1500, check_sequence);
}

Test(mod_property, rebinding)
{
	rounds(MOD_MASK, 500, check_rebinding);
}

Test(mod_property, grids_of_boxes)
{
	rounds(MOD_MASK, 3000, check_grids);
}

Test(mod_property, masks_over_tiles)
{
	rounds(MOD_MASK, 600, check_tile);
}

Test(mod_property, comparisons_over_tiles)
{
	rounds_of(generator_comparisons, MOD_MASK, 1500, check_tile);
}

Test(mod_property, scores_over_tiles)
{
	rounds(MOD_SCORE, 600, check_tile);
}

Test(mod_property, mask_results_of_live_keys)
{
	rounds(MOD_MASK, 600, check_active);
}

Test(mod_property, score_results_of_live_keys)
{
	rounds(MOD_SCORE, 600, check_active);
}

Test(mod_property, masks_over_boxes)
{
	rounds(MOD_MASK, 4000, check_box);
}

Test(mod_property, scores_over_boxes)
{
	rounds(MOD_SCORE, 4000, check_box);
}
