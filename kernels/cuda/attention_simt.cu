/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in f32 without tensor cores, for every dtype, dim and head ratio
 * that the tensor core kernels do not support.
 *
 * A block has four warps and 16 lines.  Keys are copied to shared memory in
 * chunks of dims; each lane multiplies one key by its warp's four lines.  Values
 * are read from the pages directly; each thread has some dims of all lines.
 */
#include "kernels/cuda/attention.h"

#define LINES CUDA_TILE_LINES
#define WARP_LINES (LINES / (CUDA_ATTENTION_THREADS / 32))
#define TOKENS 32u
#define CHUNK 64u

template <uint32_t MOST_DIM> struct attention_simt_shared : attention_block {
	uint64_t keys[TOKENS]; /* addresses; 0: do not read */
	uint64_t values[TOKENS];
	float scales[CUDA_N_PLANES][TOKENS];
	alignas(16) float weights[TOKENS][LINES];
	float q[LINES][MOST_DIM];
	float k[TOKENS][CHUNK + 1];
	float rescale[LINES]; /* factor for earlier sums; at the end, for the results */
};

/* A thread's registers: the softmax state of its warp's lines, and the sums of its dims for all lines. */
template <uint32_t MOST_DIM> struct attention_simt_state {
	static constexpr uint32_t SLOTS = (MOST_DIM + CUDA_ATTENTION_THREADS - 1) / CUDA_ATTENTION_THREADS;

	attention_line line[WARP_LINES];
	float maximum[WARP_LINES];
	float sum[WARP_LINES]; /* over this lane's tokens */
	float values[SLOTS][LINES];
};

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
queries_load(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
	     attention_simt_state<MOST_DIM> &state)
{
	for (uint32_t line = 0; line < shared.item.n_lines; line++) {
		uint64_t from = tensor_address(p.q, shared.item.q_start + line_query(p, shared.item, line),
					       line_head(p, shared.item, line));

		for (uint32_t d = simt_thread(); d < p.q.dim; d += simt_n_threads())
			shared.q[line][d] = element_load(from, p.q.dtype, d);
	}
	for (uint32_t i = 0; i < WARP_LINES; i++) {
		state.line[i] = line_make(p, shared.item, simt_warp() * WARP_LINES + i);
		state.maximum[i] = -infinity();
		state.sum[i] = 0;
	}
	for (uint32_t j = 0; j < state.SLOTS; j++)
		for (uint32_t line = 0; line < LINES; line++)
			state.values[j][line] = 0;
}

/* One warp looks up the addresses of the tile's tokens that some line may see. */
template <uint32_t MOST_DIM>
SIMT_FUNCTION void
tokens_locate(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared, uint32_t begin)
{
	const attention_item &item = shared.item;
	uint32_t token = begin + simt_lane(), page = UINT32_MAX, slot = token % p.pages.page_size;

	if (token_wanted(p, shared, token, item.end))
		page = plan_page(p.plan, item.row, token / p.pages.page_size, p.pages.n_pages);
	shared.keys[simt_lane()] =
		page == UINT32_MAX ? 0 : plane_address(p.pages.plane[CUDA_K], page, item.kv_head, slot);
	shared.values[simt_lane()] =
		page == UINT32_MAX ? 0 : plane_address(p.pages.plane[CUDA_V], page, item.kv_head, slot);
	if (page == UINT32_MAX)
		return;
	shared.scales[CUDA_K][simt_lane()] = pages_scale(p.pages, CUDA_K, p.k_scale, page, item.kv_head, slot);
	shared.scales[CUDA_V][simt_lane()] = pages_scale(p.pages, CUDA_V, p.pages.v_in_k ? p.k_scale : p.v_scale, page,
							 item.kv_head, slot);
}

/* Compute the products of this lane's key with its warp's lines. */
template <uint32_t MOST_DIM>
SIMT_FUNCTION void
products(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared, float product[WARP_LINES])
{
	const cuda_plane &plane = p.pages.plane[CUDA_K];
	uint32_t first = simt_warp() * WARP_LINES;

	for (uint32_t i = 0; i < WARP_LINES; i++)
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
		if (first >= shared.item.n_lines)
			continue;
		for (uint32_t d = 0; d < n; d++) {
			float key = shared.k[simt_lane()][d];

			for (uint32_t i = 0; i < WARP_LINES; i++)
				if (first + i < shared.item.n_lines)
					product[i] = simt_fma(key, shared.q[first + i][begin + d], product[i]);
		}
	}
}

SIMT_FUNCTION float
warp_largest(float value)
{
	for (int step = 16; step > 0; step /= 2)
		value = softmax_larger(value, simt_shuffle_xor(value, step));
	return value;
}

SIMT_FUNCTION float
warp_sum(float value)
{
	for (int step = 16; step > 0; step /= 2)
		value += simt_shuffle_xor(value, step);
	return value;
}

/* Compute the weights of the tile's tokens for this warp's lines, and the factors for earlier sums. */
template <uint32_t MOST_DIM>
SIMT_FUNCTION void
weights_make(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
	     attention_simt_state<MOST_DIM> &state, uint32_t begin, const float product[WARP_LINES])
{
	uint32_t token = begin + simt_lane(), first = simt_warp() * WARP_LINES;
	bool there = shared.keys[simt_lane()] != 0;

	for (uint32_t i = 0; i < WARP_LINES; i++) {
		bool seen;
		float score = -infinity(), top, rescale, weight = 0;

		if (first + i >= shared.item.n_lines)
			break;
		seen = there && line_sees(p, shared.item, shared.marks, state.line[i], token);
		if (seen)
			score = line_score(p, shared.item, state.line[i], token,
					   product[i] * shared.scales[CUDA_K][simt_lane()]);
		top = softmax_larger(state.maximum[i], warp_largest(score == score ? score : -infinity()));
		if (seen)
			weight = softmax_weight(score, top);
		rescale = softmax_weight(state.maximum[i], top);
		state.maximum[i] = top;
		state.sum[i] = state.sum[i] * rescale + weight;
		/* A token of weight 0 may have a scale of NaN. */
		shared.weights[simt_lane()][first + i] =
			weight == 0 ? 0 : weight * shared.scales[CUDA_V][simt_lane()];
		if (simt_lane() == 0)
			shared.rescale[first + i] = rescale;
	}
}

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
values_add(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
	   attention_simt_state<MOST_DIM> &state)
{
	const cuda_plane &plane = p.pages.plane[CUDA_V];

	ATTENTION_UNROLL
	for (uint32_t j = 0; j < state.SLOTS; j++) {
		uint32_t d = simt_thread() + j * CUDA_ATTENTION_THREADS;

		if (d >= plane.dim)
			break;
		ATTENTION_UNROLL
		for (uint32_t line = 0; line < LINES; line++)
			if (line < shared.item.n_lines)
				state.values[j][line] *= shared.rescale[line];
		ATTENTION_ROLL
		for (uint32_t t = 0; t < TOKENS; t++) {
			float value;

			if (shared.values[t] == 0)
				continue;
			value = element_load(shared.values[t], plane.dtype, d);
			/* Skip weight 0: the value may be a NaN that the line does not see. */
			ATTENTION_UNROLL
			for (uint32_t line = 0; line < LINES; line++)
				if (line < shared.item.n_lines && shared.weights[t][line] != 0)
					state.values[j][line] =
						simt_fma(shared.weights[t][line], value, state.values[j][line]);
		}
	}
}

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
tile_attend(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
	    attention_simt_state<MOST_DIM> &state, uint32_t begin)
{
	float product[WARP_LINES];

	simt_sync();
	if (simt_warp() == 0)
		tokens_locate(p, shared, begin);
	simt_sync();
	products(p, shared, product);
	weights_make(p, shared, state, begin, product);
	simt_sync();
	values_add(p, shared, state);
}

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
split_attend(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
	     attention_simt_state<MOST_DIM> &state)
{
	const attention_item &item = shared.item;
	bool blocks = p.blocks.first_list != 0;

	for (uint32_t begin = item.begin; begin < item.end; begin += TOKENS) {
		if (blocks && (begin == item.begin || begin % CUDA_SEGMENT == 0))
			segment_mark(p, item, begin / CUDA_SEGMENT * CUDA_SEGMENT, shared.marks);
		if (tile_wanted(p, shared, begin, TOKENS))
			tile_attend(p, shared, state, begin);
	}
}

/* Store the result or partial result of an item. */
template <uint32_t MOST_DIM>
SIMT_FUNCTION void
item_store(const cuda_attention_params &p, attention_simt_shared<MOST_DIM> &shared,
	   attention_simt_state<MOST_DIM> &state)
{
	const attention_item &item = shared.item;
	uint32_t v_dim = p.pages.plane[CUDA_V].dim;
	bool whole = item.n_splits == 1;

	simt_sync();
	for (uint32_t i = 0; i < WARP_LINES; i++) {
		uint32_t line = simt_warp() * WARP_LINES + i;
		float sum;

		if (line >= item.n_lines)
			break;
		sum = warp_sum(state.sum[i]);
		if (simt_lane() == 0)
			shared.rescale[line] = state_store(p, item, line, state.maximum[i], sum, true);
	}
	/*
	 * The queries are no longer needed.  Copy the sums to their memory, so that few instructions store all lines.
	 * Each thread later stores the dims that it has copied.
	 */
	ATTENTION_UNROLL
	for (uint32_t j = 0; j < state.SLOTS; j++)
		ATTENTION_UNROLL
		for (uint32_t line = 0; line < LINES; line++)
			if (simt_thread() + j * CUDA_ATTENTION_THREADS < v_dim)
				shared.q[line][simt_thread() + j * CUDA_ATTENTION_THREADS] = state.values[j][line];
	simt_sync();
	ATTENTION_ROLL
	for (uint32_t line = 0; line < item.n_lines; line++) {
		ATTENTION_ROLL
		for (uint32_t d = simt_thread(); d < v_dim; d += CUDA_ATTENTION_THREADS)
			if (whole)
				element_store(line_out(p, item, line), p.out.dtype, d,
					      shared.q[line][d] * shared.rescale[line]);
			else
				pointer_to<float>(
					p.partial_values)[line_partial(p, item, line, item.split) * v_dim + d] =
					shared.q[line][d];
	}
}

template <uint32_t MOST_DIM>
SIMT_FUNCTION void
attend(const cuda_attention_params &p)
{
	attention_simt_shared<MOST_DIM> &shared = SIMT_SHARED(attention_simt_shared<MOST_DIM>);

	items_attend(p, shared, [&] {
		attention_simt_state<MOST_DIM> state;

		queries_load(p, shared, state);
		split_attend(p, shared, state);
		item_store(p, shared, state);
	});
}

static_assert(sizeof(attention_simt_shared<128>) <= CUDA_SIMT_SHARED_128, "as launchers are told");
static_assert(sizeof(attention_simt_shared<256>) <= CUDA_SIMT_SHARED_256, "as launchers are told");
static_assert(sizeof(attention_simt_shared<576>) <= CUDA_SIMT_SHARED_576, "as launchers are told");

#if ATTENTION_HAS(attention_simt_128)
ATTENTION_KERNEL(ATTENTION_NAME(attention_simt_128), 2)
{
	attend<128>(p);
}
#endif

#if ATTENTION_HAS(attention_simt_256)
ATTENTION_KERNEL(ATTENTION_NAME(attention_simt_256), 2)
{
	attend<256>(p);
}
#endif

#if ATTENTION_HAS(attention_simt_576)
ATTENTION_KERNEL(ATTENTION_NAME(attention_simt_576), 1)
{
	attend<576>(p);
}
#endif
