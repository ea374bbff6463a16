/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_combine.h - a block's loop over its work items, and the results of items
 *
 * Blocks process items by number, with a grid stride.  If a tile has one KV
 * chunk, the item's block writes the result.  Else (split-KV) each block stores
 * its softmax states and sums of values in the workspace.  The tile's block that
 * ends last combines them in the order of the KV chunks, or, if there are many, a
 * kernel after this one (attention_combine.cu).
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_COMBINE_H
#define PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_COMBINE_H

#include "kernels/cuda/attention/attention.h"

/*
 * Write a q_row's LSE and maximum to the caller's arrays; returns the factor for the q_row's values.  Only the thread
 * with `write` set writes.
 */
SIMT_FUNCTION float
q_row_finish(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row, float row_max,
	     float row_sum, bool write)
{
	uint32_t head = work_item_head(p, item, q_row);
	uint64_t at = (uint64_t)(item.q_start + work_item_query(p, item, q_row)) * p.n_q_heads + head;
	float sink = p.sink == 0 ? -infinity() : pointer_to<const float>(p.sink)[head];
	softmax_end end = softmax_finish(row_max, row_sum, sink, p.lse_without_sink != 0);

	if (write && p.lse != 0)
		pointer_to<float>(p.lse)[at] = end.lse;
	if (write && p.max_score != 0)
		pointer_to<float>(p.max_score)[at] = end.row_max;
	return end.factor;
}

SIMT_FUNCTION uint64_t
q_row_out(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row)
{
	return tensor_address(p.out, item.q_start + work_item_query(p, item, q_row), work_item_head(p, item, q_row));
}

/* Index in the workspace of a q_row's state of a KV chunk. */
SIMT_FUNCTION uint64_t
q_row_state(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row, uint32_t kv_chunk)
{
	return item.first_state + (uint64_t)kv_chunk * item.q_len * p.n_q_heads +
	       (uint64_t)work_item_query(p, item, q_row) * p.n_q_heads + work_item_head(p, item, q_row);
}

/* Address of a q_row's values: of the result if there is one KV chunk, else of the KV chunk's sums in the workspace. */
SIMT_FUNCTION uint64_t
q_row_values_address(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row)
{
	if (item.n_kv_chunks == 1)
		return q_row_out(p, item, q_row);
	return p.workspace_values +
	       q_row_state(p, item, q_row, item.kv_chunk) * p.pages.plane[CUDA_V].dim * sizeof(float);
}

/*
 * Store a q_row's softmax state: as the result if there is one KV chunk, else in the workspace.  Returns the factor for
 * the q_row's values.  Only the thread with `write` set writes.
 */
SIMT_FUNCTION float
softmax_state_store(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row, float row_max,
		    float row_sum, bool write)
{
	if (item.n_kv_chunks == 1)
		return q_row_finish(p, item, q_row, row_max, row_sum, write);
	if (write)
		pointer_to<simt_vec2>(p.workspace_states)[q_row_state(p, item, q_row, item.kv_chunk)] = {
			float_as_bits(row_max), float_as_bits(row_sum)
		};
	return 1;
}

/*
 * Called after the block stored its states: is it to combine the KV chunks, as the last block of its tile?  `last` is
 * shared memory.
 */
template <class THREADS = attention_threads>
SIMT_FUNCTION bool
work_item_is_last(const cuda_attention_params &p, const attention_work_item &item, uint32_t *last)
{
	if (item.n_kv_chunks == 1 || item.n_kv_chunks > p.block_kv_chunks)
		return false;
	THREADS::sync();
	if (THREADS::number() == 0) {
		uint32_t *counter = pointer_to<uint32_t>(p.counters) + item.counter;

		/*
		 * The barrier above orders the stores of all threads before this atomic, whose release is cumulative:
		 * it covers them, not only those of this thread.  The atomics on a counter form one release sequence,
		 * so the last one acquires from every block of the tile, and the barrier below passes that on to this
		 * block's threads.  A sequentially consistent fence would also wait for this thread's own stores to be
		 * performed, and order different counters, on which nothing depends.
		 */
		*last = simt_atomic_add_acq_rel(counter, 1) == item.n_kv_chunks - 1;
		if (*last)
			*counter = 0; /* for the next launch with this plan */
	}
	THREADS::sync();
	return *last != 0;
}

/*
 * Load the states of a q_row's n KV chunks into shared memory and return the largest row_max.  The whole warp calls; a
 * lane has AT_ONCE loads in flight.
 */
template <uint32_t AT_ONCE>
SIMT_FUNCTION float
combine_states_load(const simt_vec2 *states, uint32_t step, uint32_t n, simt_vec2 *to)
{
	float row_max = -infinity();

	ATTENTION_ROLL
	for (uint32_t first = simt_lane(); first < n; first += AT_ONCE * 32) {
		simt_vec2 state[AT_ONCE];

		ATTENTION_UNROLL
		for (uint32_t i = 0; i < AT_ONCE; i++)
			if (first + i * 32 < n)
				state[i] = simt_load_fresh(&states[(uint64_t)(first + i * 32) * step]);
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < AT_ONCE; i++)
			if (first + i * 32 < n) {
				to[first + i * 32] = state[i];
				row_max = softmax_max(row_max, bits_as_float(state[i].x));
			}
	}
	ATTENTION_UNROLL
	for (int mask = 16; mask > 0; mask /= 2)
		row_max = softmax_max(row_max, simt_shuffle_xor(row_max, mask));
	return row_max;
}

/* Compute the weights of a q_row's KV chunks; with `write` set, write its LSE and maximum.  The whole warp calls. */
template <uint32_t DEPTH>
SIMT_FUNCTION void
combine_q_row_begin(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row, bool write,
		    simt_vec2 *weight, attention_combine_q_row *to)
{
	const simt_vec2 *states = pointer_to<const simt_vec2>(p.workspace_states);
	uint32_t n = item.n_kv_chunks, first = (uint32_t)q_row_state(p, item, q_row, 0);
	float row_sum = 0, factor,
	      row_max = combine_states_load<(DEPTH + 1) / 2>(states + first, item.q_len * p.n_q_heads, n, weight);

	ATTENTION_ROLL
	for (uint32_t s = simt_lane(); s < n; s += 32)
		weight[s].x = float_as_bits(softmax_weight(bits_as_float(weight[s].x), row_max));
	simt_warp_sync();
	ATTENTION_UNROLL_4
	for (uint32_t s = 0; s < n; s++) {
		simt_vec2 state = weight[s];

		if (bits_as_float(state.y) != 0)
			row_sum = simt_fma(bits_as_float(state.y), bits_as_float(state.x), row_sum);
	}
	factor = q_row_finish(p, item, q_row, row_max, row_sum, write && simt_lane() == 0);
	if (simt_lane() == 0)
		*to = { q_row_out(p, item, q_row), first, factor };
}

/* Add a KV chunk's values; a chunk in which the q_row sees no token has none. */
template <uint32_t WIDTH>
SIMT_FUNCTION void
combine_chunk_add(const float (&value)[WIDTH], simt_vec2 weight, float (&sum)[WIDTH])
{
	if (bits_as_float(weight.y) == 0)
		return;
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < WIDTH; i++)
		sum[i] = simt_fma(value[i], bits_as_float(weight.x), sum[i]);
}

/*
 * Add up the weighted sums of n KV chunks for one vector of a q_row's elements, in the order of chunks.  `from` has
 * those of chunk 0; from chunk to chunk are `step` vectors.  DEPTH loads are in
 * flight.
 */
template <uint32_t DEPTH, class VEC>
SIMT_FUNCTION void
combine_vec(const VEC *from, uint64_t step, const simt_vec2 *weight, uint32_t n, float (&sum)[sizeof(VEC) / 4])
{
	ATTENTION_ROLL
	for (uint32_t s = 0; s < n; s += DEPTH) {
		union {
			VEC vec;
			float value[sizeof(VEC) / 4];
		} chunk[DEPTH];

		ATTENTION_UNROLL
		for (uint32_t i = 0; i < DEPTH; i++, from += step)
			if (s + i < n)
				chunk[i].vec = simt_load_fresh(from);
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < DEPTH; i++)
			if (s + i < n)
				combine_chunk_add(chunk[i].value, weight[s + i], sum);
	}
}

/* Combine the values of n_q_rows q_rows whose weights are in shared memory.  The block's threads divide the vectors. */
template <class THREADS, uint32_t DEPTH, class VEC>
SIMT_FUNCTION void
combine_values(const cuda_attention_params &p, const attention_combine_batch &combine, uint64_t step, uint32_t n,
	       uint32_t n_q_rows)
{
	constexpr uint32_t WIDTH = sizeof(VEC) / 4;
	const VEC *values = pointer_to<const VEC>(p.workspace_values);
	uint32_t thread = THREADS::number(), vecs = p.pages.plane[CUDA_V].dim / WIDTH, q_row = thread / vecs,
		 vec = thread % vecs;
	uint32_t q_rows_apart = THREADS::count() / vecs, vecs_apart = THREADS::count() % vecs;

	ATTENTION_ROLL
	while (q_row < n_q_rows) {
		const attention_combine_q_row &to = combine.q_row[q_row];
		float sum[WIDTH] = {};

		combine_vec<DEPTH>(values + (uint64_t)to.first_state * vecs + vec, step * vecs,
				   &combine.weight[q_row * n], n, sum);
		ATTENTION_UNROLL
		for (uint32_t j = 0; j < WIDTH; j++)
			sum[j] *= to.factor;
		if constexpr (WIDTH == 4)
			vec4_store(to.out, p.out.dtype, vec, sum);
		else
			element_store(to.out, p.out.dtype, vec, sum[0]);
		q_row += q_rows_apart;
		vec += vecs_apart;
		if (vec >= vecs) {
			vec -= vecs;
			q_row++;
		}
	}
}

/*
 * Combine the states of the tile's KV chunks.  For as many q_rows as fit in shared memory at once, first each warp
 * computes the weights of a q_row, then the threads divide the values.  All threads call.  DEPTH: loads that a thread
 * has in flight, of four registers each; a kernel that needs all registers for its tiles spills them for more.
 */
template <uint32_t DEPTH, class THREADS = attention_threads>
SIMT_CALLED void
work_item_combine(const cuda_attention_params &p, const attention_work_item &item, attention_combine_batch &combine)
{
	uint32_t n = item.n_kv_chunks, at_once = ATTENTION_COMBINE_WEIGHTS / n;
	uint64_t step = (uint64_t)item.q_len * p.n_q_heads;

	at_once = at_once < ATTENTION_COMBINE_Q_ROWS ? at_once : ATTENTION_COMBINE_Q_ROWS;
	ATTENTION_ROLL
	for (uint32_t first = 0; first < item.n_q_rows; first += at_once) {
		uint32_t n_q_rows = item.n_q_rows - first < at_once ? item.n_q_rows - first : at_once;

		if (first != 0)
			THREADS::sync(); /* all threads have read the weights */
		ATTENTION_ROLL
		for (uint32_t i = THREADS::number() / 32; i < n_q_rows; i += THREADS::count() / 32)
			combine_q_row_begin<DEPTH>(p, item, first + i, true, &combine.weight[i * n],
						   &combine.q_row[i]);
		THREADS::sync();
		if (p.pages.plane[CUDA_V].dim % 4 == 0)
			combine_values<THREADS, DEPTH, simt_vec4>(p, combine, step, n, n_q_rows);
		else
			combine_values<THREADS, 1, uint32_t>(p, combine, step, n, n_q_rows);
	}
}

/* Divide n things to do, such as work items, among takers, of which the block is number `taker`.  Thread 0 calls. */
SIMT_FUNCTION void
shares_begin(attention_block &block, uint32_t n, uint32_t taker)
{
	block.n_left = n > taker ? n - taker : 0;
}

/*
 * Take the next of the block's things that find(number) finds; false if there is none.  They are taken from the last
 * one down: in a causal row, these have the most keys.  One thread calls at a time.
 */
template <class F>
SIMT_FUNCTION bool
share_take(attention_block &block, uint32_t n_takers, F find)
{
	bool found = false;

	ATTENTION_ROLL
	while (!found && block.n_left != 0) {
		found = find(block.n_left - 1);
		block.n_left -= block.n_left < n_takers ? block.n_left : n_takers;
	}
	return found;
}

/* Divide the work items among the blocks.  Thread 0 calls. */
SIMT_FUNCTION void
work_items_begin(const cuda_attention_params &p, attention_block &block)
{
	shares_begin(block, plan_head(p.plan)->n_work_items, simt_block());
}

/* Find the block's next work item; false if there is none.  One thread calls at a time. */
SIMT_FUNCTION bool
work_item_take(const cuda_attention_params &p, attention_block &block, attention_work_item *item)
{
	return share_take(block, simt_n_blocks(), [&](uint32_t number) { return work_item_find(p, number, item); });
}

/* The same, not inlined.  A kernel whose warps have different numbers of registers must not call functions. */
SIMT_CALLED bool
work_item_next(const cuda_attention_params &p, attention_block &block, attention_work_item *item)
{
	return work_item_take(p, block, item);
}

/* The block's loop over its work items; `compute()` computes block.item.  DEPTH is that of work_item_combine(). */
template <uint32_t DEPTH, class F>
SIMT_FUNCTION void
work_items_for_each(const cuda_attention_params &p, attention_block &block, F compute)
{
	if (simt_thread() == 0)
		work_items_begin(p, block);
	ATTENTION_ROLL
	for (;;) {
		simt_sync();
		if (simt_thread() == 0)
			block.valid = work_item_next(p, block, &block.item);
		simt_sync();
		if (!block.valid)
			break;
		compute();
		if (work_item_is_last(p, block.item, &block.last))
			work_item_combine<DEPTH>(p, block.item, block.combine);
	}
}

#endif
