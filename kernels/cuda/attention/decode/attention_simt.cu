/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in f32 without tensor cores, for every dtype, dim and head ratio
 * that the tensor core kernels do not support.
 *
 * A block has four warps and 16 q_rows.  Keys are copied to shared memory in
 * chunks of dims; each lane multiplies one key by its warp's four q_rows.
 * Values are read from the pages directly; each thread has some dims of all
 * q_rows.
 */
#include "kernels/cuda/attention/attention_combine.h"

#define Q_ROWS CUDA_TILE_Q_ROWS
#define WARP_Q_ROWS (Q_ROWS / (CUDA_ATTENTION_THREADS / 32))
#define TOKENS 32u
#define CHUNK 64u

template <uint32_t MOST_DIM> struct attention_simt_shared : attention_block {
	uint64_t keys[TOKENS]; /* addresses; 0: do not read */
	uint64_t values[TOKENS];
	float scales[CUDA_N_PLANES][TOKENS];
	alignas(16) float weights[TOKENS][Q_ROWS];
	float q[Q_ROWS][MOST_DIM];
	float k[TOKENS][CHUNK + 1];
	float rescale[Q_ROWS]; /* factor for earlier sums; at the end, for the results */
};

/* A thread's registers: the softmax state of its warp's q_rows, and the sums of its dims for all q_rows. */
template <uint32_t MOST_DIM> struct attention_simt_state {
	static constexpr uint32_t SLOTS = (MOST_DIM + CUDA_ATTENTION_THREADS - 1) / CUDA_ATTENTION_THREADS;

	attention_q_row q_row[WARP_Q_ROWS];
	float row_max[WARP_Q_ROWS];
	float row_sum[WARP_Q_ROWS]; /* over this lane's tokens */
	float values[SLOTS][Q_ROWS];
};

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attention_simt_load_q_rows(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
			   attention_simt_state<MOST_DIM> &state)
{
	for (uint32_t q_row = 0; q_row < shared.item.n_q_rows; q_row++) {
		uint64_t from = tensor_address(p.q, shared.item.q_start + work_item_query(p, shared.item, q_row),
					       work_item_head(p, shared.item, q_row));

		for (uint32_t d = simt_thread(); d < p.q.dim; d += simt_n_threads())
			shared.q[q_row][d] = element_load(from, p.q.dtype, d);
	}
	for (uint32_t i = 0; i < WARP_Q_ROWS; i++) {
		state.q_row[i] = q_row_make(p, shared.item, simt_warp() * WARP_Q_ROWS + i);
		state.row_max[i] = -infinity();
		state.row_sum[i] = 0;
	}
	for (uint32_t j = 0; j < state.SLOTS; j++)
		for (uint32_t q_row = 0; q_row < Q_ROWS; q_row++)
			state.values[j][q_row] = 0;
}

/* One warp looks up the addresses of the tile's tokens that some q_row may see. */
template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attention_simt_tokens_locate(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared, uint32_t begin)
{
	const attention_work_item &item = shared.item;
	uint32_t token = begin + simt_lane(), page = UINT32_MAX, slot = token % p.pages.page_size;

	if (token_visible(p, shared, token, item.end))
		page = plan_page(p.plan, item.row, token / p.pages.page_size, p.pages.n_pages);
	shared.keys[simt_lane()] =
		page == UINT32_MAX ? 0 : plane_address(p.pages.plane[CUDA_K], page, item.kv_head, slot);
	shared.values[simt_lane()] =
		page == UINT32_MAX ? 0 : plane_address(p.pages.plane[CUDA_V], page, item.kv_head, slot);
	if (page == UINT32_MAX)
		return;
	shared.scales[CUDA_K][simt_lane()] = pages_scale(p.pages, CUDA_K, p.k_scale, page, item.kv_head, slot);
	shared.scales[CUDA_V][simt_lane()] =
		pages_scale(p.pages, CUDA_V, p.pages.v_in_k ? p.k_scale : p.v_scale, page, item.kv_head, slot);
}

/* Compute the products of this lane's key with its warp's q_rows. */
template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attention_simt_products(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
			float product[WARP_Q_ROWS])
{
	const cuda_plane &plane = p.pages.plane[CUDA_K];
	uint32_t first = simt_warp() * WARP_Q_ROWS;

	for (uint32_t i = 0; i < WARP_Q_ROWS; i++)
		product[i] = 0;
	for (uint32_t begin = 0; begin < plane.dim; begin += CHUNK) {
		uint32_t n = plane.dim - begin < CHUNK ? plane.dim - begin : CHUNK;

		if (begin != 0)
			simt_sync();
		for (uint32_t i = simt_thread(); i < TOKENS * CHUNK; i += simt_n_threads()) {
			uint32_t token = i / CHUNK, d = i % CHUNK;

			if (d < n)
				shared.k[token][d] = shared.keys[token] == 0
							     ? 0
							     : element_load(shared.keys[token], plane.dtype, begin + d);
		}
		simt_sync();
		if (first >= shared.item.n_q_rows)
			continue;
		for (uint32_t d = 0; d < n; d++) {
			float key = shared.k[simt_lane()][d];

			for (uint32_t i = 0; i < WARP_Q_ROWS; i++)
				if (first + i < shared.item.n_q_rows)
					product[i] = simt_fma(key, shared.q[first + i][begin + d], product[i]);
		}
	}
}

SIMT_FUNCTION float
warp_max(float value)
{
	for (int step = 16; step > 0; step /= 2)
		value = softmax_max(value, simt_shuffle_xor(value, step));
	return value;
}

SIMT_FUNCTION float
warp_sum(float value)
{
	for (int step = 16; step > 0; step /= 2)
		value += simt_shuffle_xor(value, step);
	return value;
}

/* Compute the weights of the tile's tokens for this warp's q_rows, and the factors for earlier sums. */
template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attention_simt_weights(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
		       attention_simt_state<MOST_DIM> &state, uint32_t begin, const float product[WARP_Q_ROWS])
{
	uint32_t token = begin + simt_lane(), first = simt_warp() * WARP_Q_ROWS;
	bool there = shared.keys[simt_lane()] != 0;

	for (uint32_t i = 0; i < WARP_Q_ROWS; i++) {
		bool visible;
		float score = -infinity(), top, rescale, weight = 0;

		if (first + i >= shared.item.n_q_rows)
			break;
		visible = there && q_row_sees(p, shared.item, shared.mask_bitmap, state.q_row[i], token);
		if (visible)
			score = q_row_score(p, shared.item, state.q_row[i], token,
					    product[i] * shared.scales[CUDA_K][simt_lane()]);
		top = softmax_max(state.row_max[i], warp_max(score == score ? score : -infinity()));
		if (visible)
			weight = softmax_weight(score, top);
		rescale = softmax_weight(state.row_max[i], top);
		state.row_max[i] = top;
		state.row_sum[i] = state.row_sum[i] * rescale + weight;
		/* A token of weight 0 may have a scale of NaN. */
		shared.weights[simt_lane()][first + i] = weight == 0 ? 0 : weight * shared.scales[CUDA_V][simt_lane()];
		if (simt_lane() == 0)
			shared.rescale[first + i] = rescale;
	}
}

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attention_simt_values_add(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
			  attention_simt_state<MOST_DIM> &state)
{
	const cuda_plane &plane = p.pages.plane[CUDA_V];

	ATTENTION_UNROLL
	for (uint32_t j = 0; j < state.SLOTS; j++) {
		uint32_t d = simt_thread() + j * CUDA_ATTENTION_THREADS;

		if (d >= plane.dim)
			break;
		ATTENTION_UNROLL
		for (uint32_t q_row = 0; q_row < Q_ROWS; q_row++)
			if (q_row < shared.item.n_q_rows)
				state.values[j][q_row] *= shared.rescale[q_row];
		ATTENTION_ROLL
		for (uint32_t t = 0; t < TOKENS; t++) {
			float value;

			if (shared.values[t] == 0)
				continue;
			value = element_load(shared.values[t], plane.dtype, d);
			/* Skip weight 0: the value may be a NaN that the q_row does not see. */
			ATTENTION_UNROLL
			for (uint32_t q_row = 0; q_row < Q_ROWS; q_row++)
				if (q_row < shared.item.n_q_rows && shared.weights[t][q_row] != 0)
					state.values[j][q_row] =
						simt_fma(shared.weights[t][q_row], value, state.values[j][q_row]);
		}
	}
}

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attention_simt_tile_attend(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
			   attention_simt_state<MOST_DIM> &state, uint32_t begin)
{
	float product[WARP_Q_ROWS];

	simt_sync();
	if (simt_warp() == 0)
		attention_simt_tokens_locate(p, shared, begin);
	simt_sync();
	attention_simt_products(p, shared, product);
	attention_simt_weights(p, shared, state, begin, product);
	simt_sync();
	attention_simt_values_add(p, shared, state);
}

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attention_simt_kv_chunk_attend(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
			       attention_simt_state<MOST_DIM> &state)
{
	const attention_work_item &item = shared.item;
	bool blocks = has_block_mask(p);

	for (uint32_t begin = item.begin; begin < item.end; begin += TOKENS) {
		if (blocks && (begin == item.begin || begin % CUDA_MASK_BITMAP_TOKENS == 0))
			mask_bitmap_build(p, item, begin / CUDA_MASK_BITMAP_TOKENS * CUDA_MASK_BITMAP_TOKENS,
					  shared.mask_bitmap);
		if (tile_visible(p, shared, begin, TOKENS))
			attention_simt_tile_attend(p, shared, state, begin);
	}
}

/* Store the result of an item, or its states in the workspace. */
template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attention_simt_store(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
		     attention_simt_state<MOST_DIM> &state)
{
	const attention_work_item &item = shared.item;
	uint32_t v_dim = p.pages.plane[CUDA_V].dim;
	bool full = item.n_kv_chunks == 1;

	simt_sync();
	for (uint32_t i = 0; i < WARP_Q_ROWS; i++) {
		uint32_t q_row = simt_warp() * WARP_Q_ROWS + i;
		float row_sum;

		if (q_row >= item.n_q_rows)
			break;
		row_sum = warp_sum(state.row_sum[i]);
		if (simt_lane() == 0)
			shared.rescale[q_row] = softmax_state_store(p, item, q_row, state.row_max[i], row_sum, true);
	}
	/*
	 * The queries are no longer needed.  Copy the sums to their memory, so that few instructions store all q_rows.
	 * Each thread later stores the dims that it has copied.
	 */
	ATTENTION_UNROLL
	for (uint32_t j = 0; j < state.SLOTS; j++)
		ATTENTION_UNROLL
		for (uint32_t q_row = 0; q_row < Q_ROWS; q_row++)
			if (simt_thread() + j * CUDA_ATTENTION_THREADS < v_dim)
				shared.q[q_row][simt_thread() + j * CUDA_ATTENTION_THREADS] = state.values[j][q_row];
	simt_sync();
	ATTENTION_ROLL
	for (uint32_t q_row = 0; q_row < item.n_q_rows; q_row++) {
		ATTENTION_ROLL
		for (uint32_t d = simt_thread(); d < v_dim; d += CUDA_ATTENTION_THREADS)
			if (full)
				element_store(q_row_out(p, item, q_row), p.out.dtype, d,
					      shared.q[q_row][d] * shared.rescale[q_row]);
			else
				pointer_to<float>(
					p.workspace_values)[q_row_state(p, item, q_row, item.kv_chunk) * v_dim + d] =
					shared.q[q_row][d];
	}
}

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attention_simt_attend(const cuda_attention_params &p)
{
	attention_simt_shared<MOST_DIM> &shared = SIMT_SHARED(attention_simt_shared<MOST_DIM>);

	work_items_for_each<2>(p, shared, [&] {
		attention_simt_state<MOST_DIM> state;

		attention_simt_load_q_rows(p, shared, state);
		attention_simt_kv_chunk_attend(p, shared, state);
		attention_simt_store(p, shared, state);
	});
}

static_assert(sizeof(attention_simt_shared<128>) <= CUDA_SIMT_SHARED_128, "launchers allocate this much");
static_assert(sizeof(attention_simt_shared<256>) <= CUDA_SIMT_SHARED_256, "launchers allocate this much");
static_assert(sizeof(attention_simt_shared<576>) <= CUDA_SIMT_SHARED_576, "launchers allocate this much");

ATTENTION_INSTANCE(attention_simt_128, 2, attention_simt_attend<128>)
ATTENTION_INSTANCE(attention_simt_256, 2, attention_simt_attend<256>)
ATTENTION_INSTANCE(attention_simt_576, 1, attention_simt_attend<576>)
