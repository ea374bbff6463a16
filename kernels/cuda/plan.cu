/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_batch plans a batch in one block.  Each thread checks a row and splits it
 * into work items; prefix sums over the rows number the items.  How a row is
 * split depends only on the row's own lengths and on constants.
 *
 * scatter_words updates the tables that plan_batch and the other kernels read.
 */
#include "kernels/cuda/device/plan_lookup.h"

/* Sums saturate here, which is above any capacity. */
#define SUM_LIMIT 0x7fffffffu

struct plan_sums {
	uint32_t work_items, prefill_items, counters, states;
};

struct plan_shared {
	plan_sums warp[CUDA_PLAN_THREADS / 32];
	plan_sums total;
};
static_assert(sizeof(plan_shared) <= CUDA_PLAN_SHARED, "launchers allocate this much");

SIMT_FUNCTION uint32_t
sum_clamp(uint64_t n)
{
	return n < SUM_LIMIT ? (uint32_t)n : SUM_LIMIT;
}

SIMT_FUNCTION plan_sums
sums_add(const plan_sums &a, const plan_sums &b)
{
	return { sum_clamp((uint64_t)a.work_items + b.work_items),
		 sum_clamp((uint64_t)a.prefill_items + b.prefill_items), sum_clamp((uint64_t)a.counters + b.counters),
		 sum_clamp((uint64_t)a.states + b.states) };
}

SIMT_FUNCTION uint32_t
plan_ceil_div(uint32_t n, uint32_t by)
{
	return n / by + (n % by != 0);
}

SIMT_FUNCTION int64_t
plan_q_base_load(const cuda_plan_params &p, uint32_t r, const cuda_row &row)
{
	if (p.q_base == 0)
		return (int64_t)row.kv_len - row.q_len;
	return p.q_base_bytes == 8 ? pointer_to<const int64_t>(p.q_base)[r] : pointer_to<const int32_t>(p.q_base)[r];
}

/* Load and check a row's lengths; a row with a fault becomes empty. */
SIMT_FUNCTION void
plan_row_load(const cuda_plan_params &p, uint32_t r, cuda_row *row)
{
	int32_t begin = pointer_to<const int32_t>(p.q_indptr)[r], end = pointer_to<const int32_t>(p.q_indptr)[r + 1];
	int32_t kv_len = pointer_to<const int32_t>(p.kv_len)[r];
	int32_t most = (int32_t)p.max_total_q;
	uint32_t kv_first = p.kv_first == 0 ? 0 : pointer_to<const uint32_t>(p.kv_first)[r], faults = 0;

	if (begin < 0 || end < begin || end > most || (uint32_t)(end - begin) > p.max_q_len)
		faults |= CUDA_FAULT_QUERIES;
	if (kv_len < 0 || (uint32_t)kv_len > p.max_kv_len || (begin != end && (uint32_t)kv_len < kv_first))
		faults |= CUDA_FAULT_LENGTH;
	row->q_start = (uint32_t)(begin < 0 ? 0 : begin > most ? most : begin);
	row->q_len = faults ? 0 : (uint32_t)(end - begin);
	row->kv_len = faults ? 0 : (uint32_t)kv_len;
	row->kv_first = kv_first < row->kv_len ? kv_first : row->kv_len;
	row->writable_from = p.writable_from == 0 ? 0 : pointer_to<const uint32_t>(p.writable_from)[r];
	row->q_base = plan_q_base_load(p, r, *row);
	row->b = p.b == 0 ? (int32_t)r : pointer_to<const int32_t>(p.b)[r];
	if (faults)
		plan_fault(p.plan, faults, r);
}

/* Is a row of this many q_rows for attention_prefill?  Depends on nothing else, so neither do the row's bits. */
SIMT_FUNCTION bool
plan_is_prefill(const cuda_plan_params &p, uint32_t q_rows)
{
	return p.prefill_tile_q_rows != 0 && q_rows > p.max_tile_q_rows;
}

/* The fewest tokens of a KV chunk, of a row with n tokens to attend to. */
SIMT_FUNCTION uint32_t
plan_least_kv_chunk(const cuda_plan_params &p, uint32_t q_rows, uint32_t n)
{
	uint32_t tokens = CUDA_KV_CHUNK_UNIT;
	uint32_t factor = q_rows > CUDA_TILE_Q_ROWS ? p.wide_kv_chunk_factor : CUDA_NARROW_KV_CHUNK_FACTOR;

	while (p.wide_kv_chunk_factor != 0 && (uint64_t)tokens * tokens < (uint64_t)n * factor)
		tokens *= 2;
	return tokens;
}

SIMT_FUNCTION void
plan_row_split(const cuda_plan_params &p, cuda_row *row)
{
	uint32_t q_rows = row->q_len * (p.n_q_heads / p.n_kv_heads), n = row->kv_len - plan_row_kv_begin(*row);
	uint32_t least = plan_least_kv_chunk(p, q_rows, n), wanted, tokens;

	row->tile_q_rows = q_rows <= CUDA_TILE_Q_ROWS   ? CUDA_TILE_Q_ROWS
			   : plan_is_prefill(p, q_rows) ? p.prefill_tile_q_rows
							: p.max_tile_q_rows;
	row->n_tiles = plan_ceil_div(q_rows, row->tile_q_rows);
	wanted = row->n_tiles == 0 ? 1 : p.target_work_items / p.n_kv_heads / row->n_tiles;
	tokens = plan_ceil_div(plan_ceil_div(n, wanted == 0 ? 1 : wanted), CUDA_KV_CHUNK_UNIT) * CUDA_KV_CHUNK_UNIT;
	row->kv_chunk_tokens = tokens < least ? least : tokens;
	row->n_kv_chunks = n == 0 ? 1 : plan_ceil_div(n, row->kv_chunk_tokens);
}

SIMT_FUNCTION plan_sums
plan_row_sums(const cuda_plan_params &p, const cuda_row &row)
{
	uint64_t counters = (uint64_t)row.n_tiles * p.n_kv_heads, q_rows = (uint64_t)row.q_len * p.n_q_heads;

	uint32_t items = sum_clamp(counters * row.n_kv_chunks);
	bool prefill = plan_is_prefill(p, row.q_len * (p.n_q_heads / p.n_kv_heads));
	plan_sums sums = { prefill ? 0 : items, prefill ? items : 0, 0, 0 };

	if (row.n_kv_chunks > 1) {
		sums.counters = sum_clamp(counters);
		sums.states = sum_clamp(q_rows * row.n_kv_chunks);
	}
	return sums;
}

/* The sums of a lane of the warp. */
SIMT_FUNCTION plan_sums
warp_sums_of(const plan_sums &sums, int lane)
{
	return { simt_shuffle(sums.work_items, lane), simt_shuffle(sums.prefill_items, lane),
		 simt_shuffle(sums.counters, lane), simt_shuffle(sums.states, lane) };
}

/* Inclusive prefix sums over the threads of a warp. */
SIMT_FUNCTION plan_sums
warp_scan(plan_sums sums)
{
	int lane = (int)simt_lane();

	for (int step = 1; step < 32; step *= 2) {
		int from = lane < step ? lane : lane - step;
		plan_sums other = warp_sums_of(sums, from);

		if (lane >= step)
			sums = sums_add(sums, other);
	}
	return sums;
}

/* Exclusive prefix sums over the threads of the block, plus shared.total; adds the block's sums to shared.total. */
SIMT_FUNCTION plan_sums
block_scan(plan_shared &shared, const plan_sums &own)
{
	plan_sums through = warp_scan(own), before;

	if (simt_lane() == 31)
		shared.warp[simt_warp()] = through;
	simt_sync();
	before = shared.total;
	for (uint32_t w = 0; w < simt_warp(); w++)
		before = sums_add(before, shared.warp[w]);
	through = sums_add(before, through);
	/* Get the exclusive sums from the previous lane: subtracting `own` would be wrong if a sum is saturated. */
	plan_sums left = warp_sums_of(through, (int)(simt_lane() + 31) % 32);
	simt_sync();
	if (simt_thread() == simt_n_threads() - 1)
		shared.total = through;
	simt_sync();
	return simt_lane() == 0 ? before : left;
}

SIMT_FUNCTION void
plan_head_finish(const cuda_plan_params &p, const plan_sums &total)
{
	cuda_plan_head *head = plan_head(p.plan);
	int32_t queries = pointer_to<const int32_t>(p.q_indptr)[p.plan.n_rows];
	uint32_t *first = pointer_to<uint32_t>(p.plan.first_work_item), n_rows = p.plan.n_rows;
	uint64_t work_items = (uint64_t)total.work_items + total.prefill_items;
	bool fits = work_items <= p.max_work_items && total.counters <= p.max_counters && total.states <= p.max_states;

	if (!fits)
		plan_fault(p.plan, CUDA_FAULT_CAPACITY, 0);
	first[n_rows] = total.work_items;
	first[n_rows + 1 + n_rows] = total.prefill_items;
	head->n_work_items = fits ? total.work_items : 0;
	head->n_prefill_items = fits ? total.prefill_items : 0;
	head->n_states = total.states;
	head->total_q = queries < 0 ? 0 : (uint32_t)queries < p.max_total_q ? (uint32_t)queries : p.max_total_q;
}

SIMT_KERNEL(plan_batch, cuda_plan_params, CUDA_PLAN_THREADS, 1)
{
	plan_shared &shared = SIMT_SHARED(plan_shared);
	uint32_t t = simt_thread(), n = simt_n_threads();

	if (t == 0) {
		shared.total = { 0, 0, 0, 0 };
		*plan_head(p.plan) = { 0, 0, 0, 0, 0, 0, 0 };
	}
	simt_sync();
	for (uint32_t base = 0; base < p.plan.n_rows; base += n) {
		plan_sums own = { 0, 0, 0, 0 }, before;
		cuda_row row = {};

		if (base + t < p.plan.n_rows) {
			plan_row_load(p, base + t, &row);
			plan_row_split(p, &row);
			own = plan_row_sums(p, row);
			simt_atomic_max(&plan_head(p.plan)->most_kv_chunks, row.n_kv_chunks);
		}
		before = block_scan(shared, own);
		if (base + t < p.plan.n_rows) {
			row.first_counter = before.counters;
			row.first_state = before.states;
			pointer_to<cuda_row>(p.plan.rows)[base + t] = row;
			pointer_to<uint32_t>(p.plan.first_work_item)[base + t] = before.work_items;
			pointer_to<uint32_t>(p.plan.first_work_item)[p.plan.n_rows + 1 + base + t] =
				before.prefill_items;
		}
	}
	for (uint32_t i = t; i < shared.total.counters && i < p.max_counters; i += n)
		pointer_to<uint32_t>(p.counters)[i] = 0;
	if (t == 0)
		plan_head_finish(p, shared.total);
}

/*
 * Half a warp reads a record, with the address and number of its words in the first lanes: one round trip to the
 * host's memory, whatever the records contain.
 */
SIMT_KERNEL(scatter_words, cuda_scatter_params, CUDA_SCATTER_THREADS, 1)
{
	const uint32_t *words = pointer_to<const uint32_t>(p.records);
	const uint32_t record_words = sizeof(cuda_scatter_record) / 4, first = record_words - CUDA_SCATTER_WORDS;
	uint64_t n = (uint64_t)p.n_records * record_words, step = (uint64_t)simt_n_blocks() * simt_n_threads();
	uint32_t half = simt_lane() / record_words * record_words, i = simt_lane() % record_words;

	static_assert(sizeof(cuda_scatter_record) == 64, "two records for each warp");
	for (uint64_t at = (uint64_t)simt_block() * simt_n_threads() + simt_warp() * 32; at < n; at += step) {
		uint32_t word = at + simt_lane() < n ? words[at + simt_lane()] : 0;
		uint64_t to = simt_shuffle(word, (int)half) | (uint64_t)simt_shuffle(word, (int)half + 1) << 32;
		uint32_t n_words = simt_shuffle(word, (int)half + 2);

		if (i >= first && i - first < n_words)
			pointer_to<uint32_t>(to)[i - first] = word;
	}
}
