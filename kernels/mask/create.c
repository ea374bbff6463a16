/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the block mask of an evaluator.  Query blocks are processed in bands, each of which is split into
 * at most eight, down to single query blocks.  A band inherits from its parent the coverage of runs
 * of KV blocks.  For runs that are still unknown, the evaluator decides all parts of the band at
 * once, in grids of areas about as wide as they are high.  Therefore the work is proportional to the border
 * of the visible region, and lists come out in order in a single pass.
 *
 * The lists go into a mask, or, from a given list on, into a part of the mask's run-length encoding
 * until the part is full.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/builder.h"
#include "kernels/mask/rle.h"

/* KV blocks of the rest of a list that are evaluated at once: about as many as fit in a part. */
#define REST_BLOCKS (MASK_PART_MAX / 2)

_Static_assert(MOD_GRID_ROWS == MOD_GRID_COLUMNS, "bands are split as runs are");

/*
 * Consecutive KV blocks of one coverage.  MASK_PARTIAL means unknown, unless the band is one query block
 * high: then it is final.  MASK_EMPTY runs are not stored.
 */
struct kv_run {
	uint32_t begin, end;
	enum mask_coverage coverage;
	/* If unknown: the coverage of each part of the band, in columns. */
	uint32_t column; /* blocks per column; the last may have fewer */
	struct mask_cells cells;
};

struct scan {
	struct mask_builder builder; /* if `part` is set, has no mask and only holds the status */
	struct rle_writer *part;
	const struct block_mask_shape *shape;
	const struct mask_evaluator *evaluator;
	const struct block_mask_row *row;
	struct mask_area area; /* b and h of the current head; the rest is scratch */
	struct kv_run *runs;   /* a stack: the runs of each band follow those of its parent */
	size_t n_runs, capacity;
};

/* A band of query blocks, and the index of its first run. */
struct band {
	uint64_t q_begin, q_end;
	size_t first_run;
};

static bool
scan_continues(const struct scan *scan)
{
	return scan->builder.status == PAGED_OK && (scan->part == NULL || !scan->part->full);
}

/* Bounds the stack by the size limit of the mask: the mod may come from a hostile peer. */
static bool
scan_grow_runs(struct scan *scan)
{
	size_t capacity = scan->capacity != 0 ? 2 * scan->capacity : 256;
	struct kv_run *runs;

	if (capacity > 256 && capacity > scan->builder.max_bytes / sizeof(*runs)) {
		mask_builder_fail(&scan->builder, PAGED_ERR_LIMIT,
				  "block mask: %zu runs of blocks to evaluate exceed the limit of %" PRIu64 " bytes",
				  scan->n_runs, scan->builder.max_bytes);
		return false;
	}
	runs = realloc(scan->runs, capacity * sizeof(*runs));
	if (runs == NULL) {
		mask_builder_fail(&scan->builder, PAGED_ERR_NOMEM, "block mask: no memory for %zu runs of blocks",
				  capacity);
		return false;
	}
	scan->runs = runs;
	scan->capacity = capacity;
	return true;
}

static void
scan_push_run(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end, enum mask_coverage coverage)
{
	struct kv_run *last = scan->n_runs > band->first_run ? &scan->runs[scan->n_runs - 1] : NULL;

	if (coverage == MASK_EMPTY)
		return;
	/*
	 * In a band of several query blocks, MASK_PARTIAL means undecided.  Undecided runs stay separate: a merged run
	 * would be evaluated again as one area, with the same result.
	 */
	if (last != NULL && last->end == begin && last->coverage == coverage &&
	    (coverage == MASK_FULL || band->q_end - band->q_begin == 1)) {
		last->end = end;
		return;
	}
	if (scan->n_runs == scan->capacity && !scan_grow_runs(scan))
		return;
	scan->runs[scan->n_runs++] = (struct kv_run){ .begin = begin, .end = end, .coverage = coverage };
}

/* The elements of a band and a run of KV blocks, clipped to the row's lengths and kv_first. */
static const struct mask_area *
scan_area_of(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end)
{
	const struct block_mask_shape *shape = scan->shape;
	struct mask_area *area = &scan->area;

	area->q_begin = scan->row->q_base + (int64_t)(band->q_begin * shape->q_block);
	area->q_end = scan->row->q_base + (int64_t)mask_min(band->q_end * shape->q_block, scan->row->q_len);
	area->kv_begin = (int64_t)mask_max((uint64_t)begin * shape->kv_block, scan->row->kv_first);
	area->kv_end = (int64_t)mask_min((uint64_t)end * shape->kv_block, scan->row->kv_len);
	return area;
}

/* Fails the build if the caller has cancelled it. */
static void
scan_check_cancelled(struct scan *scan)
{
	const atomic_bool *cancelled = scan->evaluator->cancelled;

	if (cancelled != NULL && atomic_load_explicit(cancelled, memory_order_relaxed))
		mask_builder_fail(&scan->builder, PAGED_ERR_AGAIN, "block mask: cancelled");
}

static bool
band_is_one_q_block(const struct band *band)
{
	return band->q_end - band->q_begin == 1;
}

/* True if the run must be split into columns before the band is split into parts. */
static bool
scan_is_wide(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end)
{
	const struct mask_area *area = scan_area_of(scan, band, begin, end);

	return end - begin > 1 &&
	       (band_is_one_q_block(band) || area->kv_end - area->kv_begin > area->q_end - area->q_begin);
}

/* The largest power of 8 that divides n into more than one part; 1 if n is 1. */
static uint64_t
grid_part_size(uint64_t n)
{
	uint64_t part = 1;

	while (part * MOD_GRID_COLUMNS < n)
		part *= MOD_GRID_COLUMNS;
	return part;
}

/* Evaluates a run, in parts of `row` query blocks and `column` KV blocks. */
static struct mask_cells
scan_evaluate_grid(struct scan *scan, const struct band *band, uint64_t row, uint32_t begin, uint32_t end,
		   uint32_t column)
{
	const struct block_mask_shape *shape = scan->shape;
	struct mod_grid grid = {
		.b = { (int32_t)scan->area.b, (int32_t)scan->area.b },
		.h = { (int32_t)scan->area.h, (int32_t)scan->area.h },
		.n_rows = (uint32_t)mask_ceil_div(band->q_end - band->q_begin, row),
		.n_columns = (uint32_t)mask_ceil_div(end - begin, column),
	};

	if (scan->evaluator->evaluate_grid == NULL)
		return (struct mask_cells){ 0 };
	for (uint32_t r = 0; r < grid.n_rows; r++) {
		uint64_t q = band->q_begin + r * row, q_end = mask_min(q + row, band->q_end);

		grid.q_idx[r][0] = (int32_t)(scan->row->q_base + (int64_t)(q * shape->q_block));
		grid.q_idx[r][1] =
			(int32_t)(scan->row->q_base + (int64_t)mask_min(q_end * shape->q_block, scan->row->q_len) - 1);
	}
	for (uint32_t c = 0; c < grid.n_columns; c++) {
		uint64_t kv = begin + (uint64_t)c * column, kv_end = mask_min(kv + column, end);

		grid.kv_idx[c][0] = (int32_t)mask_max(kv * shape->kv_block, scan->row->kv_first);
		grid.kv_idx[c][1] = (int32_t)mask_min(kv_end * shape->kv_block, scan->row->kv_len) - 1;
	}
	return scan->evaluator->evaluate_grid(scan->evaluator->context, &grid, row == 1 && column == 1);
}

static void scan_push_columns(struct scan *scan, const struct band *band, const struct kv_run *run, uint32_t part);

/* Evaluates an unknown run in columns, for the whole band, and pushes the results. */
static void
scan_split(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end, uint32_t column)
{
	struct kv_run run = { begin, end, MASK_PARTIAL, column, { 0 } };

	run.cells = scan_evaluate_grid(scan, band, band->q_end - band->q_begin, begin, end, column);
	scan_push_columns(scan, band, &run, 0);
}

/* Pushes a column that is still unknown for a band. */
static void
scan_push_unknown(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end, bool is_partial)
{
	const struct mask_evaluator *evaluator = scan->evaluator;
	enum mask_coverage coverage = MASK_PARTIAL;

	scan_check_cancelled(scan);
	if (scan_is_wide(scan, band, begin, end)) {
		scan_split(scan, band, begin, end, (uint32_t)grid_part_size(end - begin));
		return;
	}
	if (band_is_one_q_block(band) && !is_partial) {
		coverage = evaluator->evaluate_area(evaluator->context, scan_area_of(scan, band, begin, end));
		scan_check_cancelled(scan);
	}
	scan_push_run(scan, band, begin, end, coverage);
}

/* Pushes the columns of a run for one part of the band; the columns were evaluated for all parts at once. */
static void
scan_push_columns(struct scan *scan, const struct band *band, const struct kv_run *run, uint32_t part)
{
	uint32_t n = (uint32_t)mask_ceil_div(run->end - run->begin, run->column), shift = part * MOD_GRID_COLUMNS;
	uint32_t left = ~(uint32_t)(run->cells.empty >> shift) & ((1u << n) - 1);
	uint32_t all = (uint32_t)(run->cells.full >> shift) & left,
		 some = (uint32_t)(run->cells.partial >> shift) & left;

	while (left != 0 && scan_continues(scan)) {
		uint32_t first = (uint32_t)__builtin_ctz(left), end = first + 1;
		uint32_t from = run->begin + first * run->column, to;

		if ((all >> first & 1) != 0)
			end = first + (uint32_t)__builtin_ctz(~(all >> first));
		to = end == n ? run->end : run->begin + end * run->column;
		if ((all >> first & 1) != 0)
			scan_push_run(scan, band, from, to, MASK_FULL);
		else
			scan_push_unknown(scan, band, from, to, (some >> first & 1) != 0);
		left &= ~((1u << end) - 1);
	}
}

static void
scan_append(struct scan *scan, enum block_mask_kind kind, uint32_t first, uint32_t n)
{
	if (scan->part != NULL)
		rle_write_run(scan->part, kind, first, n);
	else
		mask_builder_append(&scan->builder, kind, first, n);
}

/* Adds the blocks of a band's runs to the lists of a query block. */
static void
scan_emit_runs(struct scan *scan, const struct band *band, uint64_t q_block)
{
	struct mask_clip clip = mask_clip(scan->shape, scan->row, q_block);

	for (size_t i = band->first_run; i < scan->n_runs; i++) {
		const struct kv_run *run = &scan->runs[i];
		uint32_t begin = run->begin, n_full = 0;

		if (run->coverage == MASK_FULL && begin < clip.first_unclipped)
			scan_append(scan, BLOCK_MASK_PARTIAL, begin++, 1);
		if (run->coverage == MASK_FULL && begin < clip.n_unclipped)
			n_full = run->end < clip.n_unclipped ? run->end - begin : (uint32_t)clip.n_unclipped - begin;
		scan_append(scan, BLOCK_MASK_FULL, begin, n_full);
		scan_append(scan, BLOCK_MASK_PARTIAL, begin + n_full, run->end - begin - n_full);
	}
}

/* Writes the lists of a query block whose runs are all decided. */
static void
scan_emit_list(struct scan *scan, const struct band *band, uint64_t q_block)
{
	if (scan->part != NULL)
		rle_write_list(scan->part, 0);
	scan_emit_runs(scan, band, q_block);
	if (scan->part == NULL)
		mask_builder_end_list(&scan->builder);
}

/* Evaluates all unknown runs of a band, for each of its parts; false: no run is unknown. */
static bool
scan_evaluate_unknown(struct scan *scan, const struct band *band, uint64_t part)
{
	const struct block_mask_shape *shape = scan->shape;
	uint64_t square = part * shape->q_block / shape->kv_block;
	bool unknown = false;

	for (size_t i = band->first_run; i < scan->n_runs && !band_is_one_q_block(band) && scan_continues(scan); i++) {
		struct kv_run *run = &scan->runs[i];
		uint64_t least = mask_ceil_div(run->end - run->begin, MOD_GRID_COLUMNS);

		scan_check_cancelled(scan);
		if (run->coverage != MASK_PARTIAL)
			continue;
		run->column = (uint32_t)(square > least ? square : least);
		run->cells = scan_evaluate_grid(scan, band, part, run->begin, run->end, run->column);
		unknown = true;
	}
	return unknown;
}

/*
 * Refines the parent's runs first .. first + n - 1 for part `number` of the parent, then recurses into
 * the band's parts.
 */
static void
scan_band(struct scan *scan, struct band band, size_t first, size_t n, uint32_t number)
{
	uint64_t part = grid_part_size(band.q_end - band.q_begin);

	band.first_run = scan->n_runs;
	for (size_t i = first; i < first + n && scan_continues(scan); i++) {
		struct kv_run run = scan->runs[i];

		if (run.coverage == MASK_PARTIAL)
			scan_push_columns(scan, &band, &run, number);
		else
			scan_push_run(scan, &band, run.begin, run.end, run.coverage);
	}
	n = scan->n_runs - band.first_run;
	if (scan_evaluate_unknown(scan, &band, part)) {
		for (uint64_t q = band.q_begin, i = 0; q < band.q_end && scan_continues(scan); q += part, i++)
			scan_band(scan, (struct band){ q, q + part < band.q_end ? q + part : band.q_end, 0 },
				  band.first_run, n, (uint32_t)i);
	} else {
		for (uint64_t q = band.q_begin; q < band.q_end && scan_continues(scan); q++)
			scan_emit_list(scan, &band, q);
	}
	scan->n_runs = band.first_run;
}

/* Writes the rest of a list in steps, so that the cost of a part is proportional to what it holds. */
static void
scan_rest(struct scan *scan, uint64_t q_block, uint32_t begin, uint32_t end)
{
	const struct band band = { q_block, q_block + 1, 0 };

	rle_write_list(scan->part, begin);
	while (begin < end && scan_continues(scan)) {
		uint32_t step = end - begin < REST_BLOCKS ? end - begin : REST_BLOCKS;

		scan->n_runs = 0;
		scan_split(scan, &band, begin, begin + step, step);
		scan_emit_runs(scan, &band, q_block);
		begin += step;
	}
}

/* Position in a row where scanning begins. */
struct scan_start {
	uint32_t head;
	uint64_t q_block;
	uint32_t kv_block;
};

static void
scan_head(struct scan *scan, uint32_t r, const struct scan_start *start)
{
	const struct block_mask_shape *shape = scan->shape;
	struct band top = { start->q_block, mask_ceil_div(scan->row->q_len, shape->q_block), 0 };
	uint32_t begin = (uint32_t)block_mask_row_first_block(scan->row, shape->kv_block);
	uint32_t end = (uint32_t)mask_ceil_div(scan->row->kv_len, shape->kv_block);

	scan_check_cancelled(scan);
	scan->area.b = scan->evaluator->b != NULL ? (uint32_t)scan->evaluator->b[r] : r;
	scan->area.h = start->head;
	if (start->kv_block != 0)
		scan_rest(scan, top.q_begin++, start->kv_block > begin ? start->kv_block : begin, end);
	if (top.q_begin == top.q_end || !scan_continues(scan))
		return;
	scan->n_runs = 0;
	if (begin < end)
		scan_push_run(scan, &top, begin, end, MASK_PARTIAL);
	if (scan->builder.status != PAGED_OK)
		return;
	if (begin < end) {
		scan->runs[0].column = end - begin;
		scan->runs[0].cells = scan_evaluate_grid(scan, &top, top.q_end - top.q_begin, begin, end, end - begin);
	}
	scan_band(scan, top, 0, scan->n_runs, 0);
}

/* The next n lists are copies of the previous n. */
static void
scan_repeat(struct scan *scan, uint32_t value, uint64_t n)
{
	if (scan->part != NULL)
		rle_write_repeat(scan->part, value);
	else
		mask_builder_repeat(&scan->builder, scan->builder.n_ended - n, n);
}

static void
scan_row(struct scan *scan, uint32_t r, struct scan_start start)
{
	const struct block_mask_row *row = &scan->shape->rows[r];
	uint64_t n_q_blocks = mask_ceil_div(row->q_len, scan->shape->q_block);

	if (!block_mask_row_fits_int32(row)) {
		mask_builder_fail(&scan->builder, PAGED_ERR_LIMIT,
				  "block mask: row %" PRIu32 ": %" PRIu64 " query rows from %" PRId64
				  " on over %" PRIu64 " keys: mods count in 32 bits",
				  r, row->q_len, row->q_base, row->kv_len);
		return;
	}
	if (n_q_blocks == 0)
		return;
	scan->row = row;
	if (start.head == 0 && start.q_block == 0 && start.kv_block == 0 && scan->evaluator->same_rows && r > 0 &&
	    memcmp(row, row - 1, sizeof(*row)) == 0) {
		scan_repeat(scan, RLE_REPEAT_ROW, n_q_blocks * scan->shape->n_heads);
		return;
	}
	for (; start.head < scan->shape->n_heads && scan_continues(scan);
	     start = (struct scan_start){ .head = start.head + 1 }) {
		if (scan->evaluator->same_heads && start.head > 0 && start.q_block == 0 && start.kv_block == 0)
			scan_repeat(scan, RLE_REPEAT_HEAD, n_q_blocks);
		else
			scan_head(scan, r, &start);
	}
}

enum paged_status
block_mask_create(const struct block_mask_shape *shape, const struct mask_evaluator *evaluator, uint64_t max_bytes,
		  struct block_mask **mask_p, struct paged_error *error)
{
	struct scan scan = { .shape = shape, .evaluator = evaluator };

	mask_builder_begin(&scan.builder, shape, max_bytes, error);
	for (uint32_t r = 0; scan.builder.status == PAGED_OK && r < shape->n_rows; r++)
		scan_row(&scan, r, (struct scan_start){ 0 });
	free(scan.runs);
	return mask_builder_finish(&scan.builder, mask_p);
}

enum paged_status
block_mask_encode_part(const struct block_mask_shape *shape, const struct mask_evaluator *evaluator, uint64_t max_bytes,
		       uint64_t first_list, uint32_t first_block, struct rle_writer *part, struct paged_error *error)
{
	struct scan scan = { .builder = { .max_bytes = max_bytes, .error = error },
			     .part = part,
			     .shape = shape,
			     .evaluator = evaluator };
	struct scan_start start = { .kv_block = first_block };

	for (uint32_t r = 0; r < shape->n_rows && scan_continues(&scan); r++) {
		uint64_t n_q_blocks = mask_ceil_div(shape->rows[r].q_len, shape->q_block);
		uint64_t n_lists = n_q_blocks * shape->n_heads;

		if (first_list >= n_lists) {
			first_list -= n_lists;
			continue;
		}
		start.head = (uint32_t)(first_list / n_q_blocks);
		start.q_block = first_list % n_q_blocks;
		scan_row(&scan, r, start);
		start = (struct scan_start){ 0 };
		first_list = 0;
	}
	free(scan.runs);
	return scan.builder.status;
}
