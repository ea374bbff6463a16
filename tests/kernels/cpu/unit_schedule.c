/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule has each work item of a call exactly once, the most expensive first, and no work item is too large. */
#include <string.h>

#include "tests/support/kernel_test.h"
#include "kernels/cpu/mod_set.h"
#include "kernels/cpu/q_rows.h"
#include "kernels/cpu/schedule/schedule.h"

enum { KV_HEADS = 8, GROUP = 4, MAX_ROWS = 80, Q_ROW_FLOATS = 130, MAX_FLOATS = 16 << 20 };

struct batch {
	struct layout layout;
	struct attention_args args;
	struct kernel_row rows[MAX_ROWS];
	struct attention_job job;
};

static void
batch_init(struct batch *batch)
{
	memset(batch, 0, sizeof(*batch));
	batch->layout.params.n_kv_heads = KV_HEADS;
	batch->args.pages.layout = &batch->layout;
	batch->args.rows = batch->rows;
	batch->args.causal = true;
	batch->job.args = &batch->args;
	batch->job.group = GROUP;
	batch->job.item_q_rows = batch->job.tile_q_rows = TILE_Q_ROWS;
}

/* Decode with grouped KV heads: few q_rows, 128 dims, and head_bytes of a head in each page. */
static void
batch_set_decode(struct batch *batch, uint64_t head_bytes)
{
	batch->job.prefill_q_rows = 16;
	batch->job.k_padded = 128;
	batch->layout.plane[LAYOUT_K].head_stride = head_bytes;
}

static void
batch_add_rows(struct batch *batch, uint32_t n, uint32_t q_len, uint32_t kv_len)
{
	while (n-- > 0)
		batch->rows[batch->args.n_rows++] =
			(struct kernel_row){ .q_len = q_len, .kv_len = kv_len, .q_base = (int64_t)kv_len - q_len };
}

static uint64_t
item_cost(const struct schedule_row *row)
{
	return row->split_kv ? row->cost / row->n_chunks : row->cost;
}

static uint64_t
total_cost(const struct batch *batch)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < batch->args.n_rows; i++) {
		struct schedule_row row = schedule_row(&batch->job, &batch->rows[i]);

		total += row.n_ranges * row.cost;
	}
	return total;
}

/* Visit all work items and all combine steps as threads do. */
static void
schedule_check(const struct batch *batch)
{
	const struct schedule *schedule = &batch->job.schedule;
	struct schedule_cursor cursor = schedule_begin(&batch->job, SCHEDULE_ITEMS);
	uint64_t seen[MAX_ROWS] = { 0 }, combined[MAX_ROWS] = { 0 }, first_chunk[MAX_ROWS] = { 0 };
	uint64_t n_chunks = 0, last = UINT64_MAX, number;

	for (number = 0; schedule_find(&batch->job, &cursor, number); number++) {
		uint64_t within = number - cursor.first;

		cr_assert_leq(cursor.is.class, last, "item %lu", (unsigned long)number);
		last = cursor.is.class;
		cr_assert_eq(within, seen[cursor.row]++);
		if (cursor.is.split_kv && within == 0)
			first_chunk[cursor.row] = cursor.first_chunk;
		if (cursor.is.split_kv)
			cr_assert_eq(cursor.first_chunk + within, n_chunks++);
	}
	cr_assert_eq(number, schedule->n_items);
	cr_assert_eq(n_chunks, schedule->n_chunks);
	cr_assert(!schedule_find(&batch->job, &cursor, number + 5));
	cursor = schedule_begin(&batch->job, SCHEDULE_COMBINES);
	for (number = 0; schedule_find(&batch->job, &cursor, number); number++) {
		cr_assert(cursor.is.split_kv);
		cr_assert_eq(cursor.first_chunk, first_chunk[cursor.row]);
		cr_assert_eq(number - cursor.first, combined[cursor.row]++);
		cr_assert_leq(cursor.is.n_q_rows * cursor.is.n_heads, schedule->max_q_rows);
	}
	cr_assert_eq(number, schedule->n_combines);
	for (uint32_t i = 0; i < batch->args.n_rows; i++) {
		struct schedule_row row = schedule_row(&batch->job, &batch->rows[i]);

		cr_assert_eq(seen[i], row.n_ranges * (row.split_kv ? row.n_chunks : 1));
		cr_assert_eq(combined[i], row.split_kv ? row.n_ranges * row.n_q_tiles : 0);
		cr_assert(row.n_heads == 1 || row.n_q_rows * row.n_heads <= TILE_Q_ROWS);
	}
}

/* The last work item of a thread is a small part of its work. */
static void
assert_even(const struct batch *batch, uint32_t n_threads)
{
	uint64_t share = total_cost(batch) / n_threads;

	if (n_threads == 1)
		return;
	for (uint32_t i = 0; i < batch->args.n_rows; i++) {
		struct schedule_row row = schedule_row(&batch->job, &batch->rows[i]);

		if (row.n_ranges > 0 && ((row.n_chunks > 1 && !row.split_kv) || row.n_heads > 1))
			cr_assert(item_cost(&row) <= share / 4, "row %u: %lu of %lu", i, (unsigned long)item_cost(&row),
				  (unsigned long)share);
	}
}

static void
schedule_make_and_check(struct batch *batch, uint32_t n_threads)
{
	schedule_make(&batch->job, n_threads, Q_ROW_FLOATS, MAX_FLOATS);
	schedule_check(batch);
	assert_even(batch, n_threads);
}

/* One long row among short ones, at any place: only the long row is split, and it is first. */
Test(schedule, splits_only_the_long_row)
{
	for (uint32_t n_threads = 2; n_threads <= 16; n_threads *= 2) {
		struct schedule_cursor cursor;
		struct batch batch;

		batch_init(&batch);
		batch_add_rows(&batch, 40, 1, 1024);
		batch_add_rows(&batch, 1, 1, 131072);
		batch_add_rows(&batch, 23, 1, 1024);
		schedule_make_and_check(&batch, n_threads);
		cr_assert_eq(batch.job.schedule.n_combines, KV_HEADS);
		cr_assert_eq(batch.job.schedule.n_chunks, KV_HEADS * 256);
		cr_assert_eq(batch.job.schedule.max_q_rows, GROUP);
		cr_assert_eq(batch.job.schedule.n_items, KV_HEADS * (256 + 63));
		cursor = schedule_begin(&batch.job, SCHEDULE_ITEMS);
		cr_assert(schedule_find(&batch.job, &cursor, 0));
		cr_assert(cursor.is.class >= schedule_row(&batch.job, &batch.rows[40]).class);
	}
}

/* A work item of prefill costs more than a decode row, so prefill starts first even if its row is last. */
Test(schedule, prefill_starts_before_decode)
{
	struct schedule_cursor cursor;
	struct batch batch;

	batch_init(&batch);
	batch_add_rows(&batch, 30, 1, 2048);
	batch_add_rows(&batch, 1, 512, 4096);
	batch_add_rows(&batch, 30, 1, 300);
	schedule_make_and_check(&batch, 2);
	cr_assert_eq(batch.job.schedule.n_combines, 0);
	cursor = schedule_begin(&batch.job, SCHEDULE_ITEMS);
	cr_assert(schedule_find(&batch.job, &cursor, 0));
	cr_assert_eq(cursor.row, 30);
	cr_assert(schedule_find(&batch.job, &cursor, batch.job.schedule.n_items - 1));
	cr_assert(cursor.row > 30);
}

Test(schedule, one_thread_never_splits_kv)
{
	struct batch batch;

	batch_init(&batch);
	batch_add_rows(&batch, 1, 1, 1 << 20);
	batch_add_rows(&batch, 3, 40, 4096);
	schedule_make_and_check(&batch, 1);
	cr_assert_eq(batch.job.schedule.n_chunks, 0);
}

/* Many equal rows give enough work items without splitting. */
Test(schedule, equal_rows_are_not_split)
{
	struct batch batch;

	batch_init(&batch);
	batch_add_rows(&batch, 64, 1, 3056);
	schedule_make_and_check(&batch, 2);
	cr_assert_eq(batch.job.schedule.n_chunks, 0);
	cr_assert_eq(batch.job.schedule.n_items, 64 * KV_HEADS);
}

/* One row is split unless it is short and its heads suffice for all threads. */
Test(schedule, one_row)
{
	static const struct {
		uint32_t n_threads, kv_len;
		bool split_kv;
	} cases[] = {
		{ 2, 1000, false }, { 2, 4096, true }, { 2, 131072, true }, { 16, 4096, true }, { 16, 500, false }
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct batch batch;

		batch_init(&batch);
		batch_add_rows(&batch, 1, 1, cases[i].kv_len);
		schedule_make_and_check(&batch, cases[i].n_threads);
		cr_assert_eq(batch.job.schedule.n_combines != 0, cases[i].split_kv, "case %zu", i);
	}
}

/* Heads are grouped as long as threads stay balanced; more heads per group if each has few bytes in a page. */
Test(schedule, groups_kv_heads_in_decode)
{
	static const struct {
		uint32_t n_rows, kv_len, n_threads, head_bytes, n_heads;
	} cases[] = {
		{ 1, 131072, 2, 4096, 8 }, { 1, 4096, 2, 4096, 2 },  { 1, 4096, 2, 256, 8 }, { 1, 4096, 8, 256, 2 },
		{ 1, 512, 2, 256, 1 },     { 32, 1024, 2, 4096, 8 }, { 1, 512, 1, 4096, 8 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kernel_mod_set mods = { 0 };
		struct batch batch;

		batch_init(&batch);
		batch_set_decode(&batch, cases[i].head_bytes);
		batch_add_rows(&batch, cases[i].n_rows, 1, cases[i].kv_len);
		schedule_make_and_check(&batch, cases[i].n_threads);
		cr_assert_eq(schedule_row(&batch.job, &batch.rows[0]).n_heads, cases[i].n_heads, "case %zu: %u", i,
			     schedule_row(&batch.job, &batch.rows[0]).n_heads);
		batch.rows[0].q_len = 4;
		cr_assert_eq(schedule_row(&batch.job, &batch.rows[0]).n_heads, 1);
		batch.rows[0].q_len = 1;
		batch.args.mod_set = &mods;
		cr_assert_eq(schedule_row(&batch.job, &batch.rows[0]).n_heads, cases[i].n_heads);
		mods.params.blocks = (const void *)&batch;
		cr_assert_eq(schedule_row(&batch.job, &batch.rows[0]).n_heads, 1);
	}
}

/* Rows without queries, without keys, and without visible keys. */
Test(schedule, rows_without_work)
{
	struct batch batch;

	batch_init(&batch);
	batch_add_rows(&batch, 1, 0, 5000);
	batch_add_rows(&batch, 1, 3, 0);
	batch_add_rows(&batch, 1, 1, 9000);
	batch_add_rows(&batch, 1, 2, 700);
	batch.rows[3].q_base = -10;
	batch_add_rows(&batch, 1, 0, 0);
	schedule_make_and_check(&batch, 4);
	cr_assert_eq(batch.job.schedule.n_items, KV_HEADS * (1 + 18 + 1));
	batch_init(&batch);
	schedule_make_and_check(&batch, 4);
	cr_assert_eq(batch.job.schedule.n_items, 0);
}

/* If the workspace is too small for all KV chunks, only the longest rows are split; then none. */
Test(schedule, workspace_limits_kv_chunks)
{
	size_t floats[] = { MAX_FLOATS, KV_HEADS * 2048 * GROUP * Q_ROW_FLOATS, 1000 };
	uint64_t expected[] = { KV_HEADS * (2048 + 1024), KV_HEADS * 2048, 0 };

	for (size_t i = 0; i < 3; i++) {
		struct batch batch;

		batch_init(&batch);
		batch_add_rows(&batch, 1, 1, 1024 * KERNEL_KV_CHUNK);
		batch_add_rows(&batch, 1, 1, 2048 * KERNEL_KV_CHUNK);
		batch_add_rows(&batch, 9, 1, 100);
		schedule_make(&batch.job, 3, Q_ROW_FLOATS, floats[i]);
		schedule_check(&batch);
		cr_assert_eq(batch.job.schedule.n_chunks, expected[i], "%lu",
			     (unsigned long)batch.job.schedule.n_chunks);
	}
}

/* Batches of any shape. */
Test(schedule, random_batches)
{
	uint64_t state = test_seed();

	for (unsigned int round = 0; round < 300; round++) {
		struct batch batch;

		batch_init(&batch);
		if (round % 3 != 0)
			batch_set_decode(&batch, round % 3 == 1 ? 256 : 4096);
		for (uint32_t i = 0; i < MAX_ROWS; i++) {
			uint32_t bits[3];

			for (unsigned int b = 0; b < 3; b++)
				bits[b] = (uint32_t)random_below(&state, UINT32_C(1) << 31);
			batch_add_rows(&batch, 1, bits[0] % 5 == 0 ? bits[1] % 200 : 1, bits[2] >> (10 + bits[0] % 21));
		}
		batch.args.causal = round % 2;
		schedule_make(&batch.job, 1 + round % 9, 1, SIZE_MAX);
		schedule_check(&batch);
		assert_even(&batch, 1 + round % 9);
	}
}
