/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the block mask of a rule.  Query blocks are processed in bands, each of which is split into
 * at most eight, down to single query blocks.  A band inherits from its parent the verdicts about runs
 * of KV blocks.  For runs that are still unknown, the rule is asked about all parts of the band at
 * once, in grids of areas about as wide as they are high.  So the work is proportional to the border
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

/* KV blocks of the rest of a list that are asked about at once: about as many as fit in a part. */
#define REST_BLOCKS (MASK_PART_MAX / 2)

_Static_assert(MOD_GRID_ROWS == MOD_GRID_COLUMNS, "bands are split as runs are");

/*
 * Consecutive KV blocks with one verdict.  MASK_SOME means unknown, unless the band is one query block
 * high: then it is final.  MASK_NONE runs are not stored.
 */
struct run {
	uint32_t begin, end;
	enum mask_verdict verdict;
	/* If unknown: the verdicts for each part of the band, in columns. */
	uint32_t column; /* blocks per column; the last may have fewer */
	struct mask_cells cells;
};

struct scan {
	struct build build; /* if `part` is set, has no mask and only holds the status */
	struct runs_writer *part;
	const struct block_mask_shape *shape;
	const struct mask_rule *rule;
	const struct block_mask_row *row;
	struct mask_area area; /* b and h of the current head; the rest is scratch */
	struct run *runs;      /* a stack: the runs of each band follow those of its parent */
	size_t n_runs, capacity;
};

/* A band of query blocks, and the index of its first run. */
struct band {
	uint64_t q_begin, q_end;
	size_t first_run;
};

static bool
goes_on(const struct scan *scan)
{
	return scan->build.status == PAGED_OK && (scan->part == NULL || !scan->part->full);
}

/* Bounds the stack by the size limit of the mask: the mod may come from a hostile peer. */
static bool
more_runs(struct scan *scan)
{
	size_t capacity = scan->capacity != 0 ? 2 * scan->capacity : 256;
	struct run *runs;

	if (capacity > 256 && capacity > scan->build.max_bytes / sizeof(*runs)) {
		build_fail(&scan->build, PAGED_ERR_LIMIT,
			   "block mask: %zu runs of blocks to look at pass the limit of %" PRIu64 " bytes",
			   scan->n_runs, scan->build.max_bytes);
		return false;
	}
	runs = realloc(scan->runs, capacity * sizeof(*runs));
	if (runs == NULL) {
		build_fail(&scan->build, PAGED_ERR_NOMEM, "block mask: no memory for %zu runs of blocks", capacity);
		return false;
	}
	scan->runs = runs;
	scan->capacity = capacity;
	return true;
}

static void
push_run(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end, enum mask_verdict verdict)
{
	struct run *last = scan->n_runs > band->first_run ? &scan->runs[scan->n_runs - 1] : NULL;

	if (verdict == MASK_NONE)
		return;
	/* Unknown runs are not merged: a merged run would be asked about as one again. */
	if (last != NULL && last->end == begin && last->verdict == verdict &&
	    (verdict == MASK_ALL || band->q_end - band->q_begin == 1)) {
		last->end = end;
		return;
	}
	if (scan->n_runs == scan->capacity && !more_runs(scan))
		return;
	scan->runs[scan->n_runs++] = (struct run){ .begin = begin, .end = end, .verdict = verdict };
}

/* The elements of a band and a run of KV blocks, cut to the row's lengths. */
static const struct mask_area *
area_of(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end)
{
	const struct block_mask_shape *shape = scan->shape;
	struct mask_area *area = &scan->area;

	area->q_begin = scan->row->q_base + (int64_t)(band->q_begin * shape->q_block);
	area->q_end = scan->row->q_base + (int64_t)mask_smaller(band->q_end * shape->q_block, scan->row->q_len);
	area->kv_begin = (int64_t)((uint64_t)begin * shape->kv_block);
	area->kv_end = (int64_t)mask_smaller((uint64_t)end * shape->kv_block, scan->row->kv_len);
	return area;
}

/* Fails the build if the caller has cancelled it. */
static void
heed(struct scan *scan)
{
	const atomic_bool *cancelled = scan->rule->cancelled;

	if (cancelled != NULL && atomic_load_explicit(cancelled, memory_order_relaxed))
		build_fail(&scan->build, PAGED_ERR_AGAIN, "block mask: cancelled");
}

static bool
is_one_high(const struct band *band)
{
	return band->q_end - band->q_begin == 1;
}

/* True if the run must be split into columns before the band is split into parts. */
static bool
is_wide(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end)
{
	const struct mask_area *area = area_of(scan, band, begin, end);

	return end - begin > 1 && (is_one_high(band) || area->kv_end - area->kv_begin > area->q_end - area->q_begin);
}

/* The largest power of 8 that divides n into more than one part; 1 if n is 1. */
static uint64_t
part_of(uint64_t n)
{
	uint64_t part = 1;

	while (part * MOD_GRID_COLUMNS < n)
		part *= MOD_GRID_COLUMNS;
	return part;
}

/* Asks the rule about a run, in parts of `row` query blocks and `column` KV blocks. */
static struct mask_cells
ask(struct scan *scan, const struct band *band, uint64_t row, uint32_t begin, uint32_t end, uint32_t column)
{
	const struct block_mask_shape *shape = scan->shape;
	struct mod_grid grid = {
		.b = { (int32_t)scan->area.b, (int32_t)scan->area.b },
		.h = { (int32_t)scan->area.h, (int32_t)scan->area.h },
		.n_rows = (uint32_t)mask_count_parts(band->q_end - band->q_begin, row),
		.n_columns = (uint32_t)mask_count_parts(end - begin, column),
	};

	if (scan->rule->grid == NULL)
		return (struct mask_cells){ 0 };
	for (uint32_t r = 0; r < grid.n_rows; r++) {
		uint64_t q = band->q_begin + r * row, q_end = mask_smaller(q + row, band->q_end);

		grid.q_idx[r][0] = (int32_t)(scan->row->q_base + (int64_t)(q * shape->q_block));
		grid.q_idx[r][1] = (int32_t)(scan->row->q_base +
					     (int64_t)mask_smaller(q_end * shape->q_block, scan->row->q_len) - 1);
	}
	for (uint32_t c = 0; c < grid.n_columns; c++) {
		uint64_t kv = begin + (uint64_t)c * column, kv_end = mask_smaller(kv + column, end);

		grid.kv_idx[c][0] = (int32_t)(kv * shape->kv_block);
		grid.kv_idx[c][1] = (int32_t)mask_smaller(kv_end * shape->kv_block, scan->row->kv_len) - 1;
	}
	return scan->rule->grid(scan->rule->context, &grid, row == 1 && column == 1);
}

static void push_columns(struct scan *scan, const struct band *band, const struct run *run, uint32_t part);

/* Asks about an unknown run in columns, for the whole band, and pushes the results. */
static void
split(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end, uint32_t column)
{
	struct run run = { begin, end, MASK_SOME, column, { 0 } };

	run.cells = ask(scan, band, band->q_end - band->q_begin, begin, end, column);
	push_columns(scan, band, &run, 0);
}

/* Pushes a column that is still unknown for a band. */
static void
push_unknown(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end, bool is_some)
{
	const struct mask_rule *rule = scan->rule;
	enum mask_verdict verdict = MASK_SOME;

	heed(scan);
	if (is_wide(scan, band, begin, end)) {
		split(scan, band, begin, end, (uint32_t)part_of(end - begin));
		return;
	}
	if (is_one_high(band) && !is_some) {
		verdict = rule->exactly(rule->context, area_of(scan, band, begin, end));
		heed(scan);
	}
	push_run(scan, band, begin, end, verdict);
}

/* Pushes the columns of a run for one part of the band; the columns were asked about for all parts at once. */
static void
push_columns(struct scan *scan, const struct band *band, const struct run *run, uint32_t part)
{
	uint32_t n = (uint32_t)mask_count_parts(run->end - run->begin, run->column), shift = part * MOD_GRID_COLUMNS;
	uint32_t left = ~(uint32_t)(run->cells.none >> shift) & ((1u << n) - 1);
	uint32_t all = (uint32_t)(run->cells.all >> shift) & left, some = (uint32_t)(run->cells.some >> shift) & left;

	while (left != 0 && goes_on(scan)) {
		uint32_t first = (uint32_t)__builtin_ctz(left), end = first + 1;
		uint32_t from = run->begin + first * run->column, to;

		if ((all >> first & 1) != 0)
			end = first + (uint32_t)__builtin_ctz(~(all >> first));
		to = end == n ? run->end : run->begin + end * run->column;
		if ((all >> first & 1) != 0)
			push_run(scan, band, from, to, MASK_ALL);
		else
			push_unknown(scan, band, from, to, (some >> first & 1) != 0);
		left &= ~((1u << end) - 1);
	}
}

static void
add(struct scan *scan, enum block_mask_kind kind, uint32_t first, uint32_t n)
{
	if (scan->part != NULL)
		runs_add(scan->part, kind, first, n);
	else
		build_add(&scan->build, kind, first, n);
}

/* Adds the blocks of a band's runs to the lists of a query block. */
static void
emit_runs(struct scan *scan, const struct band *band, uint64_t q_block)
{
	struct build_cut cut = build_cut(scan->shape, scan->row, q_block);

	for (size_t i = band->first_run; i < scan->n_runs; i++) {
		const struct run *run = &scan->runs[i];
		uint32_t n_full = 0;

		if (run->verdict == MASK_ALL && run->begin < cut.n_whole)
			n_full = run->end < cut.n_whole ? run->end - run->begin : (uint32_t)cut.n_whole - run->begin;
		add(scan, BLOCK_MASK_FULL, run->begin, n_full);
		add(scan, BLOCK_MASK_PARTIAL, run->begin + n_full, run->end - run->begin - n_full);
	}
}

/* Writes the lists of a query block whose runs are all decided. */
static void
emit(struct scan *scan, const struct band *band, uint64_t q_block)
{
	if (scan->part != NULL)
		runs_list(scan->part, 0);
	emit_runs(scan, band, q_block);
	if (scan->part == NULL)
		build_end_list(&scan->build);
}

/* Asks about all unknown runs of a band, for each of its parts; false: no run is unknown. */
static bool
look_ahead(struct scan *scan, const struct band *band, uint64_t part)
{
	const struct block_mask_shape *shape = scan->shape;
	uint64_t square = part * shape->q_block / shape->kv_block;
	bool unknown = false;

	for (size_t i = band->first_run; i < scan->n_runs && !is_one_high(band) && goes_on(scan); i++) {
		struct run *run = &scan->runs[i];
		uint64_t least = mask_count_parts(run->end - run->begin, MOD_GRID_COLUMNS);

		heed(scan);
		if (run->verdict != MASK_SOME)
			continue;
		run->column = (uint32_t)(square > least ? square : least);
		run->cells = ask(scan, band, part, run->begin, run->end, run->column);
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
	uint64_t part = part_of(band.q_end - band.q_begin);

	band.first_run = scan->n_runs;
	for (size_t i = first; i < first + n && goes_on(scan); i++) {
		struct run run = scan->runs[i];

		if (run.verdict == MASK_SOME)
			push_columns(scan, &band, &run, number);
		else
			push_run(scan, &band, run.begin, run.end, run.verdict);
	}
	n = scan->n_runs - band.first_run;
	if (look_ahead(scan, &band, part)) {
		for (uint64_t q = band.q_begin, i = 0; q < band.q_end && goes_on(scan); q += part, i++)
			scan_band(scan, (struct band){ q, q + part < band.q_end ? q + part : band.q_end, 0 },
				  band.first_run, n, (uint32_t)i);
	} else {
		for (uint64_t q = band.q_begin; q < band.q_end && goes_on(scan); q++)
			emit(scan, &band, q);
	}
	scan->n_runs = band.first_run;
}

/* Writes the rest of a list in steps, so that the cost of a part is proportional to what it holds. */
static void
scan_rest(struct scan *scan, uint64_t q_block, uint32_t begin, uint32_t end)
{
	const struct band band = { q_block, q_block + 1, 0 };

	runs_list(scan->part, begin);
	while (begin < end && goes_on(scan)) {
		uint32_t step = end - begin < REST_BLOCKS ? end - begin : REST_BLOCKS;

		scan->n_runs = 0;
		split(scan, &band, begin, begin + step, step);
		emit_runs(scan, &band, q_block);
		begin += step;
	}
}

/* Position in a row where scanning begins. */
struct start {
	uint32_t head;
	uint64_t q_block;
	uint32_t kv_block;
};

static void
scan_head(struct scan *scan, uint32_t r, const struct start *start)
{
	const struct block_mask_shape *shape = scan->shape;
	struct band top = { start->q_block, mask_count_parts(scan->row->q_len, shape->q_block), 0 };
	uint32_t end = (uint32_t)mask_count_parts(scan->row->kv_len, shape->kv_block);

	heed(scan);
	scan->area.b = scan->rule->b != NULL ? (uint32_t)scan->rule->b[r] : r;
	scan->area.h = start->head;
	if (start->kv_block != 0)
		scan_rest(scan, top.q_begin++, start->kv_block, end);
	if (top.q_begin == top.q_end || !goes_on(scan))
		return;
	scan->n_runs = 0;
	if (end != 0)
		push_run(scan, &top, 0, end, MASK_SOME);
	if (scan->build.status != PAGED_OK)
		return;
	if (end != 0) {
		scan->runs[0].column = end;
		scan->runs[0].cells = ask(scan, &top, top.q_end - top.q_begin, 0, end, end);
	}
	scan_band(scan, top, 0, scan->n_runs, 0);
}

/* The next n lists are copies of the previous n. */
static void
repeat(struct scan *scan, uint32_t value, uint64_t n)
{
	if (scan->part != NULL)
		runs_same(scan->part, value);
	else
		build_repeat(&scan->build, scan->build.n_ended - n, n);
}

static void
scan_row(struct scan *scan, uint32_t r, struct start start)
{
	const struct block_mask_row *row = &scan->shape->rows[r];
	uint64_t n_q_blocks = mask_count_parts(row->q_len, scan->shape->q_block);

	if (!block_mask_row_counts(row)) {
		build_fail(&scan->build, PAGED_ERR_LIMIT,
			   "block mask: row %" PRIu32 ": %" PRIu64 " query rows from %" PRId64 " on over %" PRIu64
			   " keys: mods count in 32 bits",
			   r, row->q_len, row->q_base, row->kv_len);
		return;
	}
	if (n_q_blocks == 0)
		return;
	scan->row = row;
	if (start.head == 0 && start.q_block == 0 && start.kv_block == 0 && scan->rule->same_rows && r > 0 &&
	    memcmp(row, row - 1, sizeof(*row)) == 0) {
		repeat(scan, RUNS_SAME_ROW, n_q_blocks * scan->shape->n_heads);
		return;
	}
	for (; start.head < scan->shape->n_heads && goes_on(scan); start = (struct start){ .head = start.head + 1 }) {
		if (scan->rule->same_heads && start.head > 0 && start.q_block == 0 && start.kv_block == 0)
			repeat(scan, RUNS_SAME_HEAD, n_q_blocks);
		else
			scan_head(scan, r, &start);
	}
}

enum paged_status
block_mask_create(const struct block_mask_shape *shape, const struct mask_rule *rule, uint64_t max_bytes,
		  struct block_mask **mask_p, struct paged_error *error)
{
	struct scan scan = { .shape = shape, .rule = rule };

	build_begin(&scan.build, shape, max_bytes, error);
	for (uint32_t r = 0; scan.build.status == PAGED_OK && r < shape->n_rows; r++)
		scan_row(&scan, r, (struct start){ 0 });
	free(scan.runs);
	return build_finish(&scan.build, mask_p);
}

enum paged_status
block_mask_runs(const struct block_mask_shape *shape, const struct mask_rule *rule, uint64_t max_bytes,
		uint64_t first_list, uint32_t first_block, struct runs_writer *part, struct paged_error *error)
{
	struct scan scan = {
		.build = { .max_bytes = max_bytes, .error = error }, .part = part, .shape = shape, .rule = rule
	};
	struct start start = { .kv_block = first_block };

	for (uint32_t r = 0; r < shape->n_rows && goes_on(&scan); r++) {
		uint64_t n_q_blocks = mask_count_parts(shape->rows[r].q_len, shape->q_block);
		uint64_t n_lists = n_q_blocks * shape->n_heads;

		if (first_list >= n_lists) {
			first_list -= n_lists;
			continue;
		}
		start.head = (uint32_t)(first_list / n_q_blocks);
		start.q_block = first_list % n_q_blocks;
		scan_row(&scan, r, start);
		start = (struct start){ 0 };
		first_list = 0;
	}
	free(scan.runs);
	return scan.build.status;
}
