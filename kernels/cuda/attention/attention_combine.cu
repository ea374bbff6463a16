/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_kv_chunks combines the KV chunks of tiles with more than block_kv_chunks after the kernel that left them in
 * the workspace.  These are all tiles of attention_mla_*, which have so many values that the last block of a tile would
 * take longer for them than for its keys, and tiles with many chunks of other kernels, as long rows with few KV heads
 * have them.
 *
 * The states of a tile are divided into pieces of one size in bytes, whatever the number of chunks: all chunks of some
 * q_rows, or of some dims of one q_row.  A block copies a piece to shared memory at once and adds up the chunks in
 * their order, so the result has the bits of work_item_combine().
 *
 * The pieces are numbered by the plan's work items: the blocks of an item's number combine its share of its tile.
 */
#include "kernels/cuda/attention/attention_combine.h"

#define THREADS CUDA_COMBINE_THREADS
#define PIECE_VECS 2048u /* of four floats; at least two for each of CUDA_MAX_KV_CHUNKS */

struct combine_shared {
	attention_work_item item;
	bool valid;
	attention_combine_batch batch;
	alignas(16) simt_vec4 values[PIECE_VECS]; /* [KV chunk][q_row][vec] of the piece */
};
static_assert(sizeof(combine_shared) <= CUDA_COMBINE_SHARED, "launchers allocate this much");

/* A part of a tile: some q_rows, and vectors [vec, vec + n_vecs) of each. */
struct combine_piece {
	uint32_t q_row, n_q_rows, vec, n_vecs;
};

/* How many vectors a q_row of the result has. */
SIMT_FUNCTION uint32_t
combine_q_row_vecs(const cuda_attention_params &p)
{
	return p.pages.plane[CUDA_V].dim / 4;
}

/* Get a piece by its number; false if there is none.  Pieces of less than a q_row are numbered [q_row][part]. */
SIMT_FUNCTION bool
combine_piece_find(const cuda_attention_params &p, const attention_work_item &item, uint32_t number,
		   combine_piece *piece)
{
	uint32_t n = item.n_kv_chunks, vecs = combine_q_row_vecs(p), most = PIECE_VECS / n;
	uint32_t at_once = most < vecs ? 1 : most / vecs, parts = most < vecs ? (vecs - 1) / most + 1 : 1;

	at_once = at_once < ATTENTION_COMBINE_Q_ROWS ? at_once : ATTENTION_COMBINE_Q_ROWS;
	piece->q_row = number / parts * at_once;
	if (piece->q_row >= item.n_q_rows)
		return false;
	piece->n_q_rows = item.n_q_rows - piece->q_row < at_once ? item.n_q_rows - piece->q_row : at_once;
	piece->vec = number % parts * most;
	piece->n_vecs = vecs - piece->vec < most ? vecs - piece->vec : most;
	return true;
}

/*
 * Start copying the values of a piece's chunks.  A column is what the chunks have of one vector; threads that the
 * columns leave over divide their chunks.
 */
SIMT_FUNCTION void
combine_values_fetch(const cuda_attention_params &p, combine_shared &shared, const combine_piece &piece)
{
	const attention_work_item &item = shared.item;
	const simt_vec4 *values = pointer_to<const simt_vec4>(p.workspace_values);
	uint32_t columns = piece.n_q_rows * piece.n_vecs, vecs = combine_q_row_vecs(p);
	uint32_t threads = columns < THREADS ? THREADS / columns : 1; /* of each column */
	uint64_t step = (uint64_t)item.q_len * p.n_q_heads * vecs;

	ATTENTION_ROLL
	for (uint32_t i = simt_thread(); i < columns * threads; i += THREADS) {
		uint32_t column = i % columns, s = i / columns;
		uint32_t q_row = piece.q_row + column / piece.n_vecs, vec = piece.vec + column % piece.n_vecs;
		const simt_vec4 *from = values + q_row_state(p, item, q_row, 0) * vecs + vec + s * step;

		ATTENTION_UNROLL_4
		for (; s < item.n_kv_chunks; s += threads, from += threads * step)
			simt_copy_async16(&shared.values[s * columns + column], from, true);
	}
	simt_copy_async_commit();
}

/* Add up a piece's chunks, and store its part of the result. */
SIMT_FUNCTION void
combine_values_add(const cuda_attention_params &p, const combine_shared &shared, const combine_piece &piece)
{
	uint32_t columns = piece.n_q_rows * piece.n_vecs, n = shared.item.n_kv_chunks;

	ATTENTION_ROLL
	for (uint32_t column = simt_thread(); column < columns; column += THREADS) {
		uint32_t q_row = column / piece.n_vecs;
		const simt_vec2 *weight = &shared.batch.weight[q_row * n];
		const attention_combine_q_row &to = shared.batch.q_row[q_row];
		float sum[4] = { 0, 0, 0, 0 };

		ATTENTION_UNROLL_4
		for (uint32_t s = 0; s < n; s++) {
			simt_vec4 v = shared.values[s * columns + column];
			const float value[4] = { bits_as_float(v.x), bits_as_float(v.y), bits_as_float(v.z),
						 bits_as_float(v.w) };

			combine_chunk_add(value, weight[s], sum);
		}
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			sum[i] *= to.factor;
		vec4_store(to.out, p.out.dtype, piece.vec + column % piece.n_vecs, sum);
	}
}

SIMT_FUNCTION void
combine_piece_combine(const cuda_attention_params &p, combine_shared &shared, const combine_piece &piece)
{
	uint32_t n = shared.item.n_kv_chunks;

	combine_values_fetch(p, shared, piece);
	ATTENTION_ROLL
	for (uint32_t i = simt_warp(); i < piece.n_q_rows; i += THREADS / 32)
		combine_q_row_begin<8>(p, shared.item, piece.q_row + i, piece.vec == 0, &shared.batch.weight[i * n],
				       &shared.batch.q_row[i]);
	simt_copy_async_wait<0>();
	simt_sync();
	combine_values_add(p, shared, piece);
}

SIMT_KERNEL(combine_kv_chunks, cuda_attention_params, THREADS, 1)
{
	combine_shared &shared = SIMT_SHARED(combine_shared);
	const cuda_plan_head *head = plan_head(p.plan);
	uint64_t n = (uint64_t)pointer_to<const uint32_t>(p.plan.first_work_item)[p.plan.n_rows] * CUDA_COMBINE_BLOCKS;

	/* A plan that does not fit has no items. */
	if (head->most_kv_chunks <= p.block_kv_chunks || head->n_work_items + head->n_prefill_items == 0)
		n = 0;
	ATTENTION_ROLL
	for (uint64_t number = simt_block(); number < n; number += simt_n_blocks()) {
		const attention_work_item &item = shared.item;
		combine_piece piece;

		simt_sync(); /* all threads have read the item before, its weights and values */
		if (simt_thread() == 0)
			shared.valid = work_item_find(p, (uint32_t)(number / CUDA_COMBINE_BLOCKS), &shared.item);
		simt_sync();
		if (!shared.valid || item.n_kv_chunks <= p.block_kv_chunks)
			continue;
		ATTENTION_ROLL
		for (uint32_t i = item.kv_chunk * CUDA_COMBINE_BLOCKS + (uint32_t)(number % CUDA_COMBINE_BLOCKS);
		     combine_piece_find(p, item, i, &piece); i += item.n_kv_chunks * CUDA_COMBINE_BLOCKS) {
			simt_sync(); /* all threads have read the piece before */
			combine_piece_combine(p, shared, piece);
		}
	}
}
