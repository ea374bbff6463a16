/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block mask of a rule.  Query blocks are taken in bands, halved down to
 * one block.  A band inherits what its parent found out about runs of KV
 * blocks; only runs still unknown are asked about again, in pieces about as
 * wide as the band is high.  So the work follows the border between seen and
 * unseen, and lists come out in order without a second pass.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/mask/build.h"

/* Consecutive KV blocks; MASK_SOME is "unknown" until the band is one block high, then true.  MASK_NONE is left out. */
struct run {
	uint32_t begin, end;
	enum mask_verdict verdict;
};

struct scan {
	struct build build;
	const struct mask_rule *rule;
	const struct block_mask_row *row;
	struct mask_area area; /* b and h of the present head; the rest is scratch */
	struct run *runs;      /* a stack: each band's behind its parent's */
	size_t n_runs, capacity;
};

/* A band of query blocks, and where its own runs begin. */
struct band {
	uint64_t q_begin, q_end;
	size_t first_run;
};

/* The stack may be as large as the mask, no larger: the mod may be a hostile peer's. */
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
	/* Unknown runs stay apart: joined, they would be asked about as one again. */
	if (last != NULL && last->end == begin && last->verdict == verdict &&
	    (verdict == MASK_ALL || band->q_end - band->q_begin == 1)) {
		last->end = end;
		return;
	}
	if (scan->n_runs == scan->capacity && !more_runs(scan))
		return;
	scan->runs[scan->n_runs++] = (struct run){ begin, end, verdict };
}

static int64_t
shorter(uint64_t a, uint64_t b)
{
	return (int64_t)(a < b ? a : b);
}

/* The elements of a band and a run of KV blocks that lengths leave. */
static const struct mask_area *
area_of(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end)
{
	const struct block_mask_shape *shape = &scan->build.mask->shape;
	struct mask_area *area = &scan->area;

	area->q_begin = scan->row->q_base + (int64_t)(band->q_begin * shape->q_block);
	area->q_end = scan->row->q_base + shorter(band->q_end * shape->q_block, scan->row->q_len);
	area->kv_begin = (int64_t)((uint64_t)begin * shape->kv_block);
	area->kv_end = shorter((uint64_t)end * shape->kv_block, scan->row->kv_len);
	return area;
}

static void ask(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end);

static bool
is_one_high(const struct band *band)
{
	return band->q_end - band->q_begin == 1;
}

/* A run is taken in two if it is wider than the band is high; in a band of one block, if it is more than one. */
static bool
is_wide(const struct band *band, const struct mask_area *area, uint32_t begin, uint32_t end)
{
	return end - begin > 1 && (is_one_high(band) || area->kv_end - area->kv_begin > area->q_end - area->q_begin);
}

static void
ask_halves(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end)
{
	uint32_t middle = begin + (end - begin) / 2;

	ask(scan, band, begin, middle);
	ask(scan, band, middle, end);
}

/* What is a run?  While it stays unknown, what are its halves? */
static void
ask(struct scan *scan, const struct band *band, uint32_t begin, uint32_t end)
{
	const struct mask_rule *rule = scan->rule;
	const struct mask_area *area = area_of(scan, band, begin, end);
	enum mask_verdict verdict = MASK_SOME;

	if (scan->build.status != PAGED_OK)
		return;
	if (end - begin == 1 && is_one_high(band))
		verdict = rule->exactly(rule->context, area);
	else if (rule->surely != NULL)
		verdict = rule->surely(rule->context, area);
	if (verdict == MASK_SOME && is_wide(band, area, begin, end))
		ask_halves(scan, band, begin, end);
	else
		push_run(scan, band, begin, end, verdict);
}

/*
 * Ask about a run that a band twice as high knows nothing of: one half of
 * that area is as a rule not known as a whole either, a quarter often is.
 */
static void
ask_inherited(struct scan *scan, const struct band *band, const struct run *run)
{
	if (is_wide(band, area_of(scan, band, run->begin, run->end), run->begin, run->end))
		ask_halves(scan, band, run->begin, run->end);
	else
		ask(scan, band, run->begin, run->end);
}

/* The lists of a query block whose runs are known. */
static void
emit(struct scan *scan, const struct band *band, uint64_t q_block)
{
	struct build_cut cut = build_cut(&scan->build.mask->shape, scan->row, q_block);

	for (size_t i = band->first_run; i < scan->n_runs; i++) {
		const struct run *run = &scan->runs[i];
		uint32_t n_full = 0;

		if (run->verdict == MASK_ALL && run->begin < cut.n_whole)
			n_full = run->end < cut.n_whole ? run->end - run->begin : (uint32_t)cut.n_whole - run->begin;
		build_add(&scan->build, BLOCK_MASK_FULL, run->begin, n_full);
		build_add(&scan->build, BLOCK_MASK_PARTIAL, run->begin + n_full, run->end - run->begin - n_full);
	}
	build_end_list(&scan->build);
}

/* Go through the parent's runs first .. first + n - 1 for this band, and on into its halves. */
static void
scan_band(struct scan *scan, uint64_t q_begin, uint64_t q_end, size_t first, size_t n)
{
	struct band band = { q_begin, q_end, scan->n_runs };
	uint64_t middle = q_begin + (q_end - q_begin) / 2;
	bool unknown = false;

	for (size_t i = first; i < first + n && scan->build.status == PAGED_OK; i++) {
		struct run run = scan->runs[i];

		if (run.verdict == MASK_SOME)
			ask_inherited(scan, &band, &run);
		else
			push_run(scan, &band, run.begin, run.end, run.verdict);
	}
	n = scan->n_runs - band.first_run;
	for (size_t i = 0; i < n && q_end - q_begin > 1; i++)
		unknown |= scan->runs[band.first_run + i].verdict == MASK_SOME;
	if (unknown && scan->build.status == PAGED_OK) {
		scan_band(scan, q_begin, middle, band.first_run, n);
		scan_band(scan, middle, q_end, band.first_run, n);
	} else {
		for (uint64_t q = q_begin; q < q_end && scan->build.status == PAGED_OK; q++)
			emit(scan, &band, q);
	}
	scan->n_runs = band.first_run;
}

static void
scan_head(struct scan *scan, uint32_t r, uint32_t h)
{
	const struct block_mask *mask = scan->build.mask;
	const struct band top = { 0, block_mask_q_blocks(mask, r), 0 };

	if (top.q_end == 0)
		return;
	scan->area.b = r;
	scan->area.h = h;
	scan->row = &mask->shape.rows[r];
	scan->n_runs = 0;
	if (scan->row->kv_len != 0)
		ask(scan, &top, 0, (uint32_t)block_mask_kv_blocks(mask, r));
	scan_band(scan, top.q_begin, top.q_end, 0, scan->n_runs);
}

static bool
same_row(const struct block_mask_row *a, const struct block_mask_row *b)
{
	return a->q_base == b->q_base && a->q_len == b->q_len && a->kv_len == b->kv_len;
}

static void
scan_row(struct scan *scan, uint32_t r)
{
	const struct block_mask *mask = scan->build.mask;
	const struct block_mask_row *row = &mask->shape.rows[r];

	if (row->kv_len > INT32_MAX || row->q_base < INT32_MIN || row->q_base > INT32_MAX ||
	    row->q_len > (uint64_t)(INT32_MAX - row->q_base)) {
		build_fail(&scan->build, PAGED_ERR_LIMIT,
			   "block mask: row %" PRIu32 ": %" PRIu64 " query rows from %" PRId64 " on over %" PRIu64
			   " keys: mods count in 32 bits",
			   r, row->q_len, row->q_base, row->kv_len);
		return;
	}
	if (scan->rule->same_rows && r > 0 && same_row(row, row - 1)) {
		build_repeat(&scan->build, mask->first_list[r - 1], mask->first_list[r] - mask->first_list[r - 1]);
		return;
	}
	for (uint32_t h = 0; h < mask->shape.n_heads && scan->build.status == PAGED_OK; h++) {
		if (scan->rule->same_heads && h > 0)
			build_repeat(&scan->build, mask->first_list[r], block_mask_q_blocks(mask, r));
		else
			scan_head(scan, r, h);
	}
}

enum paged_status
block_mask_create(const struct block_mask_shape *shape, const struct mask_rule *rule, uint64_t max_bytes,
		  struct block_mask **mask_p, struct paged_error *error)
{
	struct scan scan = { .rule = rule };

	build_begin(&scan.build, shape, max_bytes, error);
	for (uint32_t r = 0; scan.build.status == PAGED_OK && r < shape->n_rows; r++)
		scan_row(&scan, r);
	free(scan.runs);
	return build_finish(&scan.build, mask_p);
}
