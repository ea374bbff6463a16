/* SPDX-License-Identifier: Apache-2.0 */
/* Plans made by the CUDA kernel, run on the host: against a plain recount, and with invalid inputs. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/reference.h"

#define MAX_ROWS 700u

static const uint32_t one_page[1];

static uint32_t
divide_up(uint32_t n, uint32_t by)
{
	return (n + by - 1) / by;
}

/* The tokens of a KV chunk of a row with n tokens to attend to and `tiles` (tile, KV head) pairs. */
static uint32_t
kv_chunk_tokens(const struct cuda_plan_params *p, uint32_t q_rows, uint32_t tiles, uint32_t n)
{
	uint32_t wanted = tiles == 0 || tiles > p->target_work_items ? 1 : p->target_work_items / tiles;
	uint32_t tokens = divide_up(divide_up(n, wanted), CUDA_KV_CHUNK_UNIT) * CUDA_KV_CHUNK_UNIT, least = 128;
	double factor = p->wide_kv_chunk_factor == 0 ? 0 : q_rows > CUDA_TILE_Q_ROWS ? p->wide_kv_chunk_factor : 4;

	while (least < sqrt(factor * n))
		least *= 2;
	return tokens > least ? tokens : least;
}

static void
plan_check(const struct cuda_batch *batch, const struct kernel_row *rows, uint32_t n_rows)
{
	const struct cuda_plan_params *p = &batch->plan;
	const uint32_t *first = batch->first_work_item;
	uint32_t work_items[2] = { 0, 0 }, counters = 0, states = 0;

	cr_assert_eq(batch->head->faults, 0);
	for (uint32_t r = 0; r < n_rows; r++) {
		const struct cuda_row *row = &batch->rows[r];
		uint32_t q_rows = rows[r].q_len * (p->n_q_heads / p->n_kv_heads), tiles, n;

		cr_assert(row->q_start == rows[r].q_start && row->q_len == rows[r].q_len &&
			  row->kv_len == rows[r].kv_len && row->kv_first == rows[r].kv_first &&
			  row->q_base == rows[r].q_base &&
			  row->writable_from == (rows[r].skip_append ? CUDA_WRITABLE_SKIP : 0));
		bool prefill = p->prefill_tile_q_rows != 0 && q_rows > p->max_tile_q_rows;

		cr_assert_eq(row->tile_q_rows, q_rows <= CUDA_TILE_Q_ROWS ? CUDA_TILE_Q_ROWS
					       : prefill                  ? p->prefill_tile_q_rows
									  : p->max_tile_q_rows);
		cr_assert_eq(row->n_tiles, divide_up(q_rows, row->tile_q_rows));
		n = row->kv_len - row->kv_first / CUDA_KV_CHUNK_UNIT * CUDA_KV_CHUNK_UNIT;
		tiles = row->n_tiles * p->n_kv_heads;
		cr_assert_eq(row->kv_chunk_tokens, kv_chunk_tokens(p, q_rows, tiles, n));
		cr_assert_eq(row->n_kv_chunks, n == 0 ? 1 : divide_up(n, row->kv_chunk_tokens));
		cr_assert(tiles == 0 || row->n_kv_chunks == 1 || tiles * row->n_kv_chunks <= p->target_work_items);
		cr_assert(first[r] == work_items[0] && first[n_rows + 1 + r] == work_items[1]);
		work_items[prefill] += tiles * row->n_kv_chunks;
		if (row->n_kv_chunks == 1)
			continue;
		cr_assert_eq(row->first_counter, counters);
		cr_assert_eq(row->first_state, states);
		counters += tiles;
		states += row->n_kv_chunks * row->q_len * p->n_q_heads;
	}
	cr_assert(first[n_rows] == work_items[0] && first[n_rows + 1 + n_rows] == work_items[1]);
	cr_assert(batch->head->n_work_items == work_items[0] && batch->head->n_prefill_items == work_items[1]);
	cr_assert(work_items[0] + work_items[1] <= p->max_work_items && counters <= p->max_counters &&
		  states <= p->max_states);
	for (uint32_t i = 0; i < counters; i++)
		cr_assert_eq(((uint32_t *)(uintptr_t)p->counters)[i], 0);
}

static void
rows_make(struct kernel_row *rows, uint32_t n_rows, uint32_t max_q, uint32_t max_kv, uint64_t seed)
{
	uint64_t q_start = 0;

	for (uint32_t r = 0; r < n_rows; r++) {
		rows[r] = (struct kernel_row){ .pages = one_page,
					       .q_start = q_start,
					       .q_len = (uint32_t)(random_bits(seed, r * 4) % (max_q + 1)),
					       .kv_len = (uint32_t)(random_bits(seed, r * 4 + 1) % (max_kv + 1)),
					       .q_base = (int64_t)(random_bits(seed, r * 4 + 2) % 1000) - 500,
					       .skip_append = random_bits(seed, r * 4 + 3) % 3 == 0 };
		if (r % 2 == 1)
			rows[r].kv_first = (uint32_t)(random_bits(seed, r * 4 + 3) % (rows[r].kv_len + 1));
		q_start += rows[r].q_len;
	}
}

/* Page tables of one entry: the planner does not read them. */
static struct cuda_batch_params
params_of(const struct kernel_row *rows, uint32_t n_rows)
{
	return (struct cuda_batch_params){ .rows = rows,
					   .n_rows = n_rows,
					   .page_size = 1u << 30,
					   .n_q_heads = 8,
					   .n_kv_heads = 2,
					   .v_dim = 1,
					   .max_tile_q_rows = CUDA_MAX_TILE_Q_ROWS };
}

Test(cuda_plan, random_batches)
{
	static const uint32_t cases[][3] = { { 1, 1, 5 },      { 1, 0, 100 },   { 3, 40, 5000 },  { 33, 1, 9000 },
					     { 255, 3, 1000 }, { 256, 1, 300 }, { 257, 39, 700 }, { 700, 2, 2000 } };
	static const uint32_t factors[] = { 0, CUDA_WIDE_KV_CHUNK_FACTOR, CUDA_CLUSTER_KV_CHUNK_FACTOR };
	struct kernel_row rows[MAX_ROWS];

	for (uint32_t i = 0; i < 6 * sizeof(cases) / sizeof(cases[0]); i++) {
		const uint32_t *at = cases[i / 6];
		struct cuda_batch_params params = params_of(rows, at[0]);
		struct cuda_batch batch;

		params.prefill_tile_q_rows = i % 2 ? CUDA_PREFILL_TILE_Q_ROWS : 0;
		params.wide_kv_chunk_factor = factors[i / 2 % 3];
		rows_make(rows, at[0], at[1], at[2], i);
		cuda_batch_create(&batch, &params);
		cuda_batch_plan(&batch, i);
		plan_check(&batch, rows, at[0]);
		cuda_batch_destroy(&batch);
	}
}

/* The split of a row does not depend on other rows. */
static void
split_of_rows_check(uint32_t wide_kv_chunk_factor)
{
	struct kernel_row rows[40];
	struct cuda_batch_params params = params_of(rows, 40);
	struct cuda_batch all, one;

	params.prefill_tile_q_rows = CUDA_PREFILL_TILE_Q_ROWS;
	params.wide_kv_chunk_factor = wide_kv_chunk_factor;
	rows_make(rows, 40, 50, 20000, 7);
	cuda_batch_create(&all, &params);
	cuda_batch_plan(&all, 3);
	for (uint32_t r = 0; r < 40; r += 13) {
		struct kernel_row alone = rows[r];

		params.rows = &alone;
		params.n_rows = 1;
		alone.q_start = 0;
		cuda_batch_create(&one, &params);
		cuda_batch_plan(&one, 2);
		cr_assert(one.rows[0].kv_chunk_tokens == all.rows[r].kv_chunk_tokens &&
			  one.rows[0].tile_q_rows == all.rows[r].tile_q_rows);
		cuda_batch_destroy(&one);
	}
	cuda_batch_destroy(&all);
}

Test(cuda_plan, split_of_a_row_is_batch_invariant)
{
	split_of_rows_check(0);
	split_of_rows_check(CUDA_WIDE_KV_CHUNK_FACTOR);
	split_of_rows_check(CUDA_CLUSTER_KV_CHUNK_FACTOR);
}

/* Two tiles of 128 heads or one of 16, with the default target. */
Test(cuda_plan, kv_chunks_grow_with_the_row)
{
	static const struct {
		uint32_t n_q_heads, factor;
	} plans[] = { { 128, CUDA_CLUSTER_KV_CHUNK_FACTOR },
		      { 128, CUDA_WIDE_KV_CHUNK_FACTOR },
		      { 128, 0 },
		      { 16, CUDA_WIDE_KV_CHUNK_FACTOR } };
	static const struct {
		uint32_t kv_first, kv_len, tokens[4]; /* by plan */
	} cases[] = {
		{ 0, 0, { 128, 128, 128, 128 } },          { 0, 1, { 128, 128, 128, 128 } },
		{ 0, 256, { 128, 128, 128, 128 } },        { 0, 257, { 256, 128, 128, 128 } },
		{ 0, 1024, { 256, 128, 128, 128 } },       { 0, 1025, { 512, 256, 128, 128 } },
		{ 0, 4096, { 512, 256, 128, 128 } },       { 0, 4097, { 1024, 512, 128, 256 } },
		{ 0, 16384, { 1024, 512, 128, 256 } },     { 0, 16385, { 2048, 1024, 256, 512 } },
		{ 0, 65536, { 2048, 1024, 512, 512 } },    { 0, 262144, { 4096, 2048, 2048, 1024 } },
		{ 0, 500000, { 8192, 4096, 3968, 2048 } }, { 0, INT32_MAX, { 1 << 24, 1 << 24, 1 << 24, 1 << 23 } },
		{ 5119, 6016, { 256, 128, 128, 128 } },    { 5119, 6017, { 512, 256, 128, 128 } },
	};
	static const uint32_t pages[2];

	for (uint32_t i = 0; i < 4 * sizeof(cases) / sizeof(cases[0]); i++) {
		struct kernel_row row = {
			.pages = pages, .kv_first = cases[i / 4].kv_first, .kv_len = cases[i / 4].kv_len, .q_len = 1
		};
		struct cuda_batch_params params = params_of(&row, 1);
		uint32_t wanted = cases[i / 4].tokens[i % 4];
		struct cuda_batch batch;

		params.n_q_heads = plans[i % 4].n_q_heads;
		params.n_kv_heads = 1;
		params.wide_kv_chunk_factor = plans[i % 4].factor;
		cuda_batch_create(&batch, &params);
		cuda_batch_plan(&batch, i);
		plan_check(&batch, &row, 1);
		cr_assert_eq(batch.rows[0].kv_chunk_tokens, wanted, "kv_len %u, %u heads: %u tokens", row.kv_len,
			     params.n_q_heads, batch.rows[0].kv_chunk_tokens);
		cuda_batch_destroy(&batch);
	}
}

/* The bounds are for max_heads, the call has fewer: narrow rows may have more states than wide ones with more heads. */
Test(cuda_plan, bounds_of_kv_chunk_factors_are_reached)
{
	static const struct {
		uint32_t factor, max_heads, heads, max_kv_len, kv_len;
	} cases[] = {
		{ CUDA_WIDE_KV_CHUNK_FACTOR, 128, 128, 8192, 8192 },
		{ CUDA_WIDE_KV_CHUNK_FACTOR, 128, 128, 10000, 10000 },
		{ CUDA_WIDE_KV_CHUNK_FACTOR, 128, 128, 5000, 4096 },
		{ CUDA_WIDE_KV_CHUNK_FACTOR, 128, 128, 1000, 1000 },
		{ CUDA_WIDE_KV_CHUNK_FACTOR, 24, 16, 32768, 32768 },
		{ CUDA_WIDE_KV_CHUNK_FACTOR, 24, 16, 20000, 16384 },
		{ CUDA_CLUSTER_KV_CHUNK_FACTOR, 128, 128, 8192, 8192 },
		{ CUDA_CLUSTER_KV_CHUNK_FACTOR, 128, 128, 5000, 4096 },
		{ CUDA_CLUSTER_KV_CHUNK_FACTOR, 128, 128, 250, 250 },
		{ CUDA_CLUSTER_KV_CHUNK_FACTOR, 32, 16, 8192, 8192 },
		{ 100, 128, 128, 10485, 10485 }, /* no multiple of 2^i */
	};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kernel_row rows[9];
		struct cuda_batch_params params = params_of(rows, 9);
		struct cuda_batch batch;

		for (uint32_t r = 0; r < 9; r++)
			rows[r] = (struct kernel_row){
				.pages = one_page, .kv_len = cases[i].kv_len, .q_start = r, .q_len = 1
			};
		params.n_q_heads = cases[i].max_heads;
		params.n_kv_heads = 1;
		params.max_kv_len = cases[i].max_kv_len;
		params.wide_kv_chunk_factor = cases[i].factor;
		cuda_batch_create(&batch, &params);
		batch.plan.n_q_heads = cases[i].heads;
		cuda_batch_plan(&batch, i);
		plan_check(&batch, rows, 9);
		cr_assert_eq(batch.head->n_states, batch.size.max_states, "case %u: %u of %u states", i,
			     batch.head->n_states, batch.size.max_states);
		cuda_batch_destroy(&batch);
	}
}

/* Any batch within random bounds, of any number of heads and any factor, often of the lengths with most KV chunks. */
Test(cuda_plan, bounds_hold_for_every_batch)
{
	for (uint32_t i = 0; i < 400; i++) {
		uint64_t bits = random_bits(91, i);
		uint32_t n_rows = 1 + (uint32_t)(bits % 12), max_q = 1u << (bits >> 8) % 7, n_kv_heads, max_group;
		uint32_t max_kv = 1 + (uint32_t)((bits >> 16) % (1u << (8 + (bits >> 12) % 10)));
		struct kernel_row rows[12];
		struct cuda_batch_params params = params_of(rows, n_rows);
		struct cuda_batch batch;

		rows_make(rows, n_rows, max_q, max_kv, i);
		for (uint32_t r = 0; r < n_rows; r += 1 + i % 2)
			if (rows[r].kv_first == 0)
				rows[r].kv_len = max_kv < 1024u << r % 4 * 2 ? max_kv : 1024u << r % 4 * 2;
		bits = random_bits(92, i);
		n_kv_heads = 1 + (uint32_t)(bits % 3);
		max_group = 1 + (uint32_t)((bits >> 8) % 130);
		params.n_kv_heads = n_kv_heads;
		params.n_q_heads = n_kv_heads * max_group + (uint32_t)((bits >> 40) % n_kv_heads);
		params.max_kv_len = max_kv;
		if (i % 4 != 0)
			params.wide_kv_chunk_factor = i % 4 == 1   ? CUDA_WIDE_KV_CHUNK_FACTOR
						      : i % 4 == 2 ? CUDA_CLUSTER_KV_CHUNK_FACTOR
								   : 1 + (uint32_t)((bits >> 48) % 200);
		params.prefill_tile_q_rows = i % 5 == 0 ? CUDA_PREFILL_TILE_Q_ROWS : 0;
		params.target_work_items = i % 3 == 0 ? 1 + (uint32_t)((bits >> 16) % CUDA_MAX_KV_CHUNKS) : 0;
		cuda_batch_create(&batch, &params);
		batch.plan.n_q_heads = n_kv_heads * (1 + (uint32_t)((bits >> 32) % max_group));
		cuda_batch_plan(&batch, i);
		plan_check(&batch, rows, n_rows);
		cuda_batch_destroy(&batch);
	}
}

/* A kv_len below the row's kv_first is a fault only if the row has queries. */
Test(cuda_plan, reports_kv_len_below_kv_first)
{
	struct kernel_row rows[2] = { { .pages = one_page, .q_len = 1, .kv_len = 9, .kv_first = 9 },
				      { .pages = one_page, .q_start = 1, .kv_len = 9, .kv_first = 9 } };
	struct cuda_batch_params params = params_of(rows, 2);
	struct cuda_batch batch;

	cuda_batch_create(&batch, &params);
	batch.kv_len[1] = 8;
	cuda_batch_plan(&batch, 0);
	cr_assert_eq(batch.head->faults, 0);
	cr_assert(batch.rows[0].kv_first == 9 && batch.rows[1].kv_first == 8);
	batch.kv_len[0] = 8;
	cuda_batch_plan(&batch, 1);
	cr_assert(batch.head->faults == CUDA_FAULT_LENGTH && batch.head->fault_row == 0);
	cr_assert(batch.rows[0].q_len == 0 && batch.rows[0].kv_first == 0);
	cuda_batch_destroy(&batch);
}

/* A row that exceeds the maxima is reported and becomes empty; the other rows are planned. */
Test(cuda_plan, reports_invalid_rows)
{
	struct kernel_row rows[5];
	struct cuda_batch_params params = params_of(rows, 5);
	struct cuda_batch batch;

	rows_make(rows, 5, 9, 900, 4);
	rows[2].kv_len = 17;
	rows[2].q_len = 3;
	rows[4].q_len = 10;
	for (uint32_t r = 3; r < 5; r++)
		rows[r].q_start = rows[r - 1].q_start + rows[r - 1].q_len;
	for (uint32_t wrong = 0; wrong < 7; wrong++) {
		uint32_t fault = wrong < 3 ? CUDA_FAULT_LENGTH : CUDA_FAULT_QUERIES;
		uint32_t row = wrong < 3 ? 2 : 4;

		cuda_batch_create(&batch, &params);
		if (wrong < 3)
			batch.kv_len[2] = wrong == 0 ? -1 : wrong == 1 ? INT32_MAX : (int32_t)batch.plan.max_kv_len + 1;
		else if (wrong == 6)
			batch.plan.max_q_len = rows[4].q_len - 1;
		else
			batch.q_indptr[5] = wrong == 3 ? -1 : wrong == 4 ? INT32_MAX : batch.q_indptr[4] - 1;
		cuda_batch_plan(&batch, wrong);
		cr_assert(batch.head->faults == fault && batch.head->fault_row == row, "%u: faults %u of row %u", wrong,
			  batch.head->faults, batch.head->fault_row);
		cr_assert_eq(batch.rows[row].q_len, 0);
		cr_assert_eq(batch.rows[row].n_tiles, 0);
		cr_assert_eq(batch.rows[1].q_len, rows[1].q_len);
		cuda_batch_destroy(&batch);
	}
}

Test(cuda_plan, reports_exceeded_capacity)
{
	struct kernel_row rows[5];
	struct cuda_batch_params params = params_of(rows, 5);
	struct cuda_batch batch;

	rows_make(rows, 5, 9, 900, 4);
	rows[4].q_len = 60;
	params.prefill_tile_q_rows = CUDA_PREFILL_TILE_Q_ROWS;
	cuda_batch_create(&batch, &params);
	cuda_batch_plan(&batch, 0);
	cr_assert(batch.head->n_work_items > 0 && batch.head->n_prefill_items > 0);
	batch.plan.max_work_items = batch.head->n_work_items + batch.head->n_prefill_items - 1;
	cuda_batch_plan(&batch, 1);
	cr_assert_eq(batch.head->faults, CUDA_FAULT_CAPACITY);
	cr_assert(batch.head->n_work_items == 0 && batch.head->n_prefill_items == 0);
	cuda_batch_destroy(&batch);
}

Test(cuda_plan, refuses_bounds_over_the_limit)
{
	struct cuda_plan_bounds bounds = { .n_rows = 1u << 20,
					   .max_total_q = 1u << 30,
					   .max_kv_len = 1u << 30,
					   .n_q_heads = 64,
					   .n_kv_heads = 8,
					   .v_dim = 128,
					   .max_tile_q_rows = CUDA_MAX_TILE_Q_ROWS };
	struct cuda_plan_size size;
	struct paged_error error;

	cr_assert_eq(cuda_plan_measure(&bounds, &size, &error), PAGED_ERR_LIMIT);
	bounds.n_rows = 256;
	bounds.max_total_q = 256;
	bounds.max_kv_len = 4096;
	cr_assert_eq(cuda_plan_measure(&bounds, &size, &error), PAGED_OK);
	cr_assert_eq(size.workspace_states_bytes, size.max_states * UINT64_C(8));
	bounds.target_work_items = CUDA_MAX_KV_CHUNKS + 1;
	cr_assert_eq(cuda_plan_measure(&bounds, &size, &error), PAGED_ERR_LIMIT);
}

/* Records of random addresses and lengths; what they do not name is not written. */
Test(cuda_plan, scatter_writes_the_words_of_each_record)
{
	static const uint32_t n_records[] = { 1, 2, 3, 15, 16, 17, 200 };

	for (uint64_t seed = 0; seed < sizeof(n_records) / sizeof(n_records[0]); seed++) {
		uint32_t n = n_records[seed], place = 2 * CUDA_SCATTER_WORDS, expected[200 * 2 * CUDA_SCATTER_WORDS];
		struct cuda_scatter_record records[200] = { { .to = 0 } };
		struct cuda_scatter_params p = { .n_records = n };
		struct cuda_arena arena = { .n = 0 };
		uint64_t to = cuda_arena_alloc(&arena, NULL, n * place * sizeof(uint32_t), true, "the target");

		memset(expected, 0xff, sizeof(expected));
		for (uint32_t i = 0; i < n; i++) {
			uint64_t bits = random_bits(seed, i);
			uint32_t at = (n - 1 - i) * place + (uint32_t)(bits % CUDA_SCATTER_WORDS);

			records[i].to = to + at * sizeof(uint32_t);
			records[i].n = (uint32_t)(bits >> 32) % (CUDA_SCATTER_WORDS + 1);
			for (uint32_t k = 0; k < CUDA_SCATTER_WORDS; k++)
				records[i].words[k] = (uint32_t)random_bits(seed + 100, i * 16 + k);
			memcpy(expected + at, records[i].words, records[i].n * sizeof(uint32_t));
		}
		p.records = cuda_arena_alloc(&arena, records, n * sizeof(records[0]), false, "records");
		cuda_kernel_run("scatter_words", &p, 1 + (uint32_t)seed % 3, CUDA_SCATTER_THREADS, 0, seed);
		cr_assert_eq(memcmp((void *)(uintptr_t)to, expected, n * place * sizeof(uint32_t)), 0);
		cuda_arena_destroy(&arena);
	}
}
