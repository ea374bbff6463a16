/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by wgmma, for sm_90a: the prefill items of attention_prefill.cu.
 *
 * A block has 128 q_rows and twelve warps.  Four warps, the producers, copy the queries and then tile after tile of 128
 * tokens to shared memory.  Two groups of four warps, the consumers, have 64 q_rows each, and all tokens.  For each
 * stage, keys and values have a barrier that tells consumers that the copy is there (`full`), and one that tells
 * producers that it was read (`empty`).
 *
 * A consumer multiplies queries and keys of a tile together with weights and values of the tile before: while the
 * tensor cores add these values, the warp computes the new tile's weights.
 */
#include "kernels/cuda/attention/attention_wgmma.h"
#include "kernels/cuda/attention/prefill/attention_prefill_item.h"

#if SIMT_HAS_WGMMA

static_assert(CUDA_PREFILL_TILE_Q_ROWS == WGMMA_CONSUMER_WARPS * 16, "a consumer has 16 q_rows");

/* Half a tile, of which a thread's elements have a bit each. */
struct wgmma_half {
	using layout = adjacent_tokens;
	static constexpr uint32_t TOKENS = 64, BLOCKS = TOKENS / 8;
};

template <class ELEMENTS, uint32_t DIM_> struct wgmma_shape {
	using elements = ELEMENTS;
	static constexpr uint32_t DIM = DIM_, CHUNKS = DIM / 8, Q_ROWS = CUDA_PREFILL_TILE_Q_ROWS;
	static constexpr bool F16 = ELEMENTS::F16;
	static constexpr uint32_t TOKENS = 2 * wgmma_half::TOKENS, BLOCKS = TOKENS / 8;
	static constexpr uint32_t STAGES = DIM == 64 ? 4 : 2;
	static constexpr uint32_t COPIED_TOKENS = TOKENS / WGMMA_PRODUCER_WARPS;
	static_assert(COPIED_TOKENS == 32, "a token for each lane");
};

template <class S> struct wgmma_shared : attention_block_of<CUDA_PREFILL_TILE_Q_ROWS> {
	prefill_items items;
	uint64_t queries_full;
	wgmma_barriers barriers[S::STAGES][CUDA_N_PLANES];
	uint32_t non_finite[S::STAGES][WGMMA_CONSUMER_WARPS]; /* of the tile in a stage: bits of its tokens */
	union {
		struct {
			alignas(1024) simt_vec4 queries[S::Q_ROWS * S::CHUNKS];
			simt_vec4 tile[S::STAGES][CUDA_N_PLANES][S::TOKENS * S::CHUNKS];
		};
		prefill_results<S::DIM, WGMMA_CONSUMER_WARPS> results;
	};
};

/* The stage of a tile, and the parity of the barriers' phase, by the tile's number in the block. */
template <class S>
SIMT_FUNCTION uint32_t
wgmma_stage(uint32_t tile)
{
	return tile % S::STAGES;
}

template <class S>
SIMT_FUNCTION uint32_t
wgmma_parity(uint32_t tile)
{
	return tile / S::STAGES % 2;
}

/* Items */

template <class S>
SIMT_FUNCTION void
wgmma_begin(const cuda_attention_params &p, wgmma_shared<S> &shared)
{
	if (simt_thread() != 0)
		return;
	prefill_items_begin(p, shared.items);
	simt_barrier_init(&shared.queries_full, 2 * WGMMA_PRODUCER_WARPS * 32);
	ATTENTION_UNROLL
	for (uint32_t stage = 0; stage < S::STAGES; stage++)
		ATTENTION_UNROLL
		for (uint32_t plane = 0; plane < CUDA_N_PLANES; plane++) {
			simt_barrier_init(&shared.barriers[stage][plane].full, WGMMA_PRODUCER_WARPS * 32);
			simt_barrier_init(&shared.barriers[stage][plane].empty, WGMMA_CONSUMER_WARPS);
		}
}

/*
 * Take the block's next item; false if there is none.  All threads call.  A consumer looks for it, because producers
 * have too few registers.
 */
template <class S>
SIMT_FUNCTION bool
wgmma_item_begin(const cuda_attention_params &p, wgmma_shared<S> &shared, bool looks)
{
	simt_sync(); /* all warps have ended the item before */
	if (looks && simt_thread() == WGMMA_PRODUCER_WARPS * 32)
		shared.valid = prefill_item_take(p, shared.items, shared.item);
	simt_sync();
	return shared.valid;
}

/* Producers */

template <class S>
SIMT_FUNCTION void
wgmma_queries_copy(const cuda_attention_params &p, wgmma_shared<S> &shared)
{
	const attention_work_item &item = shared.item;

	ATTENTION_ROLL
	for (uint32_t i = simt_thread(); i < S::Q_ROWS * S::CHUNKS; i += WGMMA_PRODUCER_WARPS * 32) {
		uint32_t q_row = i / S::CHUNKS, chunk = i % S::CHUNKS;
		simt_vec4 *to = &shared.queries[wgmma_index(S::Q_ROWS, q_row, chunk)];
		bool valid = q_row < item.n_q_rows && chunk * 8 < p.q.dim;
		uint64_t from = p.q.address;

		if (valid)
			from = tensor_address(p.q, item.q_start + work_item_query(p, item, q_row),
					      work_item_head(p, item, q_row));
		if (!valid || from % 16 == 0)
			simt_copy_async16(to, pointer_to<const void>(valid ? from + chunk * 16 : from / 16 * 16), valid);
		else
			*to = query_chunk(from, p.q.dim, chunk);
	}
	simt_barrier_arrive_copies(&shared.queries_full);
	simt_barrier_arrive(&shared.queries_full); /* for what was stored, not copied */
}

/* Start copying the warp's 32 tokens of one plane; `valid`: the lane's own is copied.  Others become zeros. */
template <class S>
SIMT_FUNCTION void
wgmma_copy(const cuda_plane &plane, simt_vec4 *to, uint64_t address, bool valid)
{
	constexpr uint32_t AT_ONCE = 32 / S::CHUNKS; /* tokens */
	uint32_t lane = simt_opaque(simt_lane()), chunk = lane % S::CHUNKS, first = lane / S::CHUNKS;
	uint32_t bits = simt_ballot(valid) >> first;
	simt_vec4 *own = to + wgmma_index(S::TOKENS, simt_warp() * S::COPIED_TOKENS, chunk);

	if (chunk * 8 >= plane.dim)
		bits = 0;
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < S::COPIED_TOKENS; i += AT_ONCE) {
		uint64_t from = simt_shuffle((uint32_t)address, (int)(first + i)) |
				(uint64_t)simt_shuffle((uint32_t)(address >> 32), (int)(first + i)) << 32;
		uint32_t row = first + i, swizzled = chunk % WGMMA_ROW_CHUNKS ^ row % WGMMA_ROW_CHUNKS;

		simt_copy_async16(&own[row * WGMMA_ROW_CHUNKS + swizzled - chunk % WGMMA_ROW_CHUNKS],
				  pointer_to<const void>(from + chunk * 16), (bits >> i & 1) != 0);
	}
}

template <class S>
SIMT_FUNCTION void
wgmma_tile_copy(const cuda_attention_params &p, wgmma_shared<S> &shared, uint32_t tile, uint32_t token, uint32_t end,
		uint32_t entry)
{
	uint32_t stage = wgmma_stage<S>(tile);
	bool valid = token_visible(p, shared, token, end) &&
		     plan_page_check(p.plan, shared.item.row, entry, p.pages.n_pages);

	ATTENTION_ROLL
	for (uint32_t i = 0; i < CUDA_N_PLANES; i++) {
		const cuda_plane &plane = p.pages.plane[i];
		wgmma_barriers &barriers = shared.barriers[stage][i];
		uint64_t address = plane.address;

		if (valid)
			address = plane_address(plane, entry, shared.item.kv_head, token % p.pages.page_size);
		simt_barrier_wait(&barriers.empty, wgmma_parity<S>(tile) ^ 1);
		wgmma_copy<S>(plane, shared.tile[stage][i], address, valid);
		simt_barrier_arrive_copies(&barriers.full);
	}
}

/* Copy the tiles of tokens [begin, end). */
template <class S>
SIMT_FUNCTION void
wgmma_tiles_copy(const cuda_attention_params &p, wgmma_shared<S> &shared, uint32_t begin, uint32_t end, uint32_t &tile)
{
	uint32_t entry;

	begin = next_visible_tile<S::TOKENS>(p, shared, begin, end);
	entry = item_entry_load(p, shared, shared.item, begin + simt_opaque(simt_thread()), end);
	ATTENTION_ROLL
	for (; begin < end; tile++) {
		uint32_t next = next_visible_tile<S::TOKENS>(p, shared, begin + S::TOKENS, end);
		uint32_t next_entry = item_entry_load(p, shared, shared.item, next + simt_opaque(simt_thread()), end);

		wgmma_tile_copy(p, shared, tile, begin + simt_opaque(simt_thread()), end, entry);
		begin = next;
		entry = next_entry;
	}
}

template <class S>
SIMT_FUNCTION void
wgmma_produce(const cuda_attention_params &p, wgmma_shared<S> &shared)
{
	uint32_t tile = 0;

	ATTENTION_ROLL
	while (wgmma_item_begin(p, shared, false)) {
		wgmma_queries_copy(p, shared);
		ATTENTION_ROLL
		for (uint32_t begin = shared.item.begin, end; begin < shared.item.end; begin = end) {
			end = span_begin<wgmma_consumers>(p, shared, shared.item, begin, false);
			wgmma_tiles_copy(p, shared, begin, end, tile);
		}
	}
}

/* Consumers */

template <class S> struct wgmma_state {
	float row_max[2], row_sum[2];
	float sums[S::DIM / 2];
	uint32_t rounded[S::TOKENS / 16][4]; /* weights, as the A of wgmma */
	uint32_t tile;                       /* number of the next tile in the block */
	uint32_t item;                       /* of the item */
};

/* Wait for a plane of a tile; afterwards wgmma may read it. */
template <class S>
SIMT_FUNCTION void
wgmma_wait_full(wgmma_shared<S> &shared, uint32_t tile, uint32_t plane)
{
	simt_barrier_wait(&shared.barriers[wgmma_stage<S>(tile)][plane].full, wgmma_parity<S>(tile));
	simt_proxy_fence();
}

/* The warp has read a plane of a tile. */
template <class S>
SIMT_FUNCTION void
wgmma_leave_tile(wgmma_shared<S> &shared, uint32_t tile, uint32_t plane)
{
	warp_arrive(&shared.barriers[wgmma_stage<S>(tile)][plane].empty);
}

template <class S>
SIMT_FUNCTION void
wgmma_multiply_keys(const wgmma_shared<S> &shared, uint32_t tile, float (&product)[S::TOKENS / 2])
{
	uint32_t first = wgmma_consumer_warp() / WGMMA_GROUP_WARPS * 64, stage = wgmma_stage<S>(tile);

	ATTENTION_UNROLL
	for (uint32_t k = 0; k < S::DIM / 16; k++) {
		uint32_t matrix = k / 4, chunk = k % 4 * 2;

		simt_wgmma_shared<S::F16>(
			product,
			simt_matrix(&shared.queries[(matrix * S::Q_ROWS + first) * WGMMA_ROW_CHUNKS + chunk], 1024, 0),
			simt_matrix(&shared.tile[stage][CUDA_K][matrix * S::TOKENS * WGMMA_ROW_CHUNKS + chunk], 1024, 0),
			k != 0);
	}
	simt_wgmma_commit();
}

template <class S>
SIMT_FUNCTION void
wgmma_add_values(const wgmma_shared<S> &shared, wgmma_state<S> &state, uint32_t tile)
{
	ATTENTION_UNROLL
	for (uint32_t k = 0; k < S::TOKENS / 16; k++)
		simt_wgmma_registers<S::F16>(
			state.sums, state.rounded[k],
			simt_matrix(&shared.tile[wgmma_stage<S>(tile)][CUDA_V][k * 16 * WGMMA_ROW_CHUNKS], 1024,
				    S::TOKENS * WGMMA_ROW_CHUNKS * 16));
	simt_wgmma_commit();
}

/* The elements of half a tile, as the functions of attention_tile.h take them. */
SIMT_FUNCTION float (*wgmma_half_of(float *elements, uint32_t half))[4]
{
	return reinterpret_cast<float(*)[4]>(elements + half * wgmma_half::BLOCKS * 4);
}

/* mma_elements_visible() for half a tile; a KV chunk, or the bitmap's tokens, may end within it. */
template <class S>
SIMT_FUNCTION uint32_t
wgmma_visible(const cuda_attention_params &p, const wgmma_shared<S> &shared, uint32_t begin, uint32_t end)
{
	q_rows_of_thread q_rows = q_rows_make(p, shared.item, wgmma_consumer_warp() * 16);

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < 2; i++)
		q_rows.at[i].kv_end = q_rows.at[i].kv_end < end ? q_rows.at[i].kv_end : end;
	return mma_elements_visible<wgmma_half>(p, shared.item, shared.mask_bitmap, q_rows.at,
						begin + simt_lane() % 4 * 2);
}

/* Convert products to scores, -inf where the q_row does not see the token. */
template <class S>
SIMT_FUNCTION void
wgmma_scores(const cuda_attention_params &p, const wgmma_shared<S> &shared, uint32_t begin, uint32_t end, bool full,
	     float (&score)[S::TOKENS / 2])
{
	ATTENTION_UNROLL
	for (uint32_t half = 0; half < 2; half++) {
		uint32_t at = begin + half * wgmma_half::TOKENS, visible = UINT32_MAX;

		if (!full)
			visible = wgmma_visible(p, shared, at, end);
		q_rows_scores<wgmma_half>(p, shared.item, wgmma_consumer_warp() * 16, at, visible,
					   wgmma_half_of(score, half));
	}
}

/*
 * Find the tokens of a tile whose values have a NaN or infinity: the tensor cores would multiply them by the zero
 * weights of q_rows that do not see them.  All consumers call.  Returns whether there are any.
 */
template <class S>
SIMT_FUNCTION bool
wgmma_non_finite_find(wgmma_shared<S> &shared, uint32_t tile)
{
	const simt_vec4 *values = shared.tile[wgmma_stage<S>(tile)][CUDA_V];
	uint32_t warp = wgmma_consumer_warp(), token = warp % WGMMA_GROUP_WARPS * 32 + simt_lane(), any = 0;
	uint32_t first = warp / WGMMA_GROUP_WARPS * (S::CHUNKS / WGMMA_GROUPS);
	bool non_finite = false;

	ATTENTION_ROLL
	for (uint32_t c = first; c < first + S::CHUNKS / WGMMA_GROUPS; c++)
		non_finite |= S::elements::non_finite(values[wgmma_index(S::TOKENS, token, c)]);
	any = simt_ballot(non_finite);
	if (simt_lane() == 0)
		shared.non_finite[wgmma_stage<S>(tile)][warp] = any;
	wgmma_consumers::sync();
	any = 0;
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < WGMMA_CONSUMER_WARPS; i++)
		any |= shared.non_finite[wgmma_stage<S>(tile)][i];
	return any != 0;
}

template <class S>
SIMT_FUNCTION bool
wgmma_is_non_finite(const wgmma_shared<S> &shared, uint32_t tile, uint32_t token)
{
	const uint32_t *words = shared.non_finite[wgmma_stage<S>(tile)];

	return ((words[token / 32] | words[WGMMA_GROUP_WARPS + token / 32]) >> token % 32 & 1) != 0;
}

/* Add the values of these tokens to the sums of q_rows with a nonzero weight, and make them zeros. */
template <class S>
SIMT_FUNCTION void
wgmma_non_finite_add(wgmma_shared<S> &shared, wgmma_state<S> &state, uint32_t tile, float (&weight)[S::TOKENS / 2])
{
	simt_vec4 *values = shared.tile[wgmma_stage<S>(tile)][CUDA_V];
	const uint16_t *elements = reinterpret_cast<const uint16_t *>(values);

	ATTENTION_ROLL
	for (uint32_t token = 0; token < S::TOKENS; token++) {
		float mine[2];

		if (!wgmma_is_non_finite(shared, tile, token))
			continue;
		token_weights<S>(wgmma_half_of(weight, 0), token, mine);
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < S::DIM / 2; i++) {
			uint32_t at = wgmma_index(S::TOKENS, token, i / 4) * 8 + simt_lane() % 4 * 2 + i % 2;

			if (mine[i / 2 % 2] != 0)
				state.sums[i] = simt_fma(mine[i / 2 % 2], S::elements::to_f32(elements[at]), state.sums[i]);
		}
	}
	wgmma_consumers::sync(); /* all have read them */
	ATTENTION_ROLL
	for (uint32_t i = wgmma_consumers::number(); i < S::TOKENS * S::CHUNKS;
	     i += wgmma_consumers::count()) {
		uint32_t token = i / S::CHUNKS;

		if (wgmma_is_non_finite(shared, tile, token))
			values[wgmma_index(S::TOKENS, token, i % S::CHUNKS)] = { 0, 0, 0, 0 };
	}
	wgmma_consumers::sync(); /* wgmma_wait_full() has the proxy fence */
}

/* The products of a tile are in `weight`: make weights of them.  `rescale`: the factors for earlier sums. */
template <class S>
SIMT_FUNCTION void
wgmma_weights_make(const cuda_attention_params &p, const wgmma_shared<S> &shared, wgmma_state<S> &state, uint32_t begin,
		   uint32_t end, float (&weight)[S::TOKENS / 2], float rescale[2])
{
	wgmma_scores(p, shared, begin, end, prefill_tile_is_full<S>(shared.items, shared.item, begin), weight);
	scores_to_weights<S>(state.row_max, state.row_sum, wgmma_half_of(weight, 0), rescale);
}

/* Nothing adds to the sums now: rescale them, and round the weights for the tensor cores. */
template <class S>
SIMT_FUNCTION void
wgmma_weights_round(wgmma_shared<S> &shared, wgmma_state<S> &state, uint32_t begin,
		    float (&weight)[S::TOKENS / 2], const float rescale[2])
{
	q_rows_rescale<S>(reinterpret_cast<float(*)[4]>(state.sums), rescale);
	if (!prefill_tile_is_full<S>(shared.items, shared.item, begin)) {
		wgmma_wait_full(shared, state.tile, CUDA_V);
		if (wgmma_non_finite_find(shared, state.tile))
			wgmma_non_finite_add(shared, state, state.tile, weight);
	}
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < S::TOKENS / 4; i++)
		state.rounded[i / 4][i % 4] = round_to_halves<S::F16>(weight[i * 2], weight[i * 2 + 1]);
}

/*
 * Attend to the tiles of tokens [begin, end).  The first one has no values before it that are added meanwhile, but an
 * empty group: code of its own for the first tile would double the code of mods, and the time to compile it.
 */
template <class S>
SIMT_FUNCTION void
wgmma_tiles_attend(const cuda_attention_params &p, wgmma_shared<S> &shared, wgmma_state<S> &state, uint32_t begin,
		   uint32_t end)
{
	float weight[S::TOKENS / 2], rescale[2];
	bool is_first = true;

	ATTENTION_ROLL
	for (begin = next_visible_tile<S::TOKENS>(p, shared, begin, end); begin < end;
	     begin = next_visible_tile<S::TOKENS>(p, shared, begin + S::TOKENS, end)) {
		uint32_t tile = is_first ? state.tile : state.tile + 1;

		wgmma_wait_full(shared, tile, CUDA_K);
		simt_wgmma_fence();
		wgmma_multiply_keys(shared, tile, weight);
		if (is_first) {
			simt_wgmma_commit();
		} else {
			wgmma_wait_full(shared, state.tile, CUDA_V);
			simt_wgmma_fence();
			wgmma_add_values(shared, state, state.tile);
		}
		simt_wgmma_wait<1>(weight);
		wgmma_leave_tile(shared, tile, CUDA_K);
		wgmma_weights_make(p, shared, state, begin, end, weight, rescale);
		simt_compute_here(state.row_sum[0] + state.row_sum[1]); /* while the values are added */
		simt_wgmma_wait<0>(state.sums);
		if (!is_first)
			wgmma_leave_tile(shared, state.tile, CUDA_V);
		is_first = false;
		state.tile = tile;
		wgmma_weights_round(shared, state, begin, weight, rescale);
	}
	if (is_first)
		return;
	wgmma_wait_full(shared, state.tile, CUDA_V);
	simt_wgmma_fence();
	wgmma_add_values(shared, state, state.tile);
	simt_wgmma_wait<0>(state.sums);
	wgmma_leave_tile(shared, state.tile, CUDA_V);
	state.tile++;
}

template <class S>
SIMT_FUNCTION void
wgmma_state_init(wgmma_state<S> &state)
{
	state.row_max[0] = state.row_max[1] = -infinity();
	state.row_sum[0] = state.row_sum[1] = 0;
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < S::DIM / 2; i++)
		state.sums[i] = 0;
}

template <class S>
SIMT_FUNCTION void
wgmma_consume(const cuda_attention_params &p, wgmma_shared<S> &shared)
{
	wgmma_state<S> state;

	state.tile = state.item = 0;
	ATTENTION_ROLL
	for (; wgmma_item_begin(p, shared, true); state.item++) {
		wgmma_state_init(state);
		simt_barrier_wait(&shared.queries_full, state.item % 2);
		ATTENTION_ROLL
		for (uint32_t begin = shared.item.begin, end; begin < shared.item.end; begin = end) {
			end = span_begin<wgmma_consumers>(p, shared, shared.item, begin, true);
			wgmma_tiles_attend(p, shared, state, begin, end);
		}
		wgmma_consumers::sync(); /* all have read the tiles; results reuse their memory */
		prefill_results_store<S::DIM>(p, shared.item, shared.results, wgmma_consumer_warp(),
					      wgmma_consumer_warp() * 16, state.row_max, state.row_sum,
					      reinterpret_cast<const float(*)[4]>(state.sums));
		if (work_item_is_last<wgmma_consumers>(p, shared.item, &shared.last))
			work_item_combine<1, wgmma_consumers>(p, shared.item, shared.combine);
	}
}

template <class S>
SIMT_FUNCTION void
wgmma_attend(const cuda_attention_params &p)
{
	wgmma_shared<S> &shared = SIMT_SHARED(wgmma_shared<S>);

	wgmma_begin(p, shared);
	if (simt_warp() < WGMMA_PRODUCER_WARPS) {
		simt_registers_shrink<WGMMA_PRODUCER_REGISTERS>();
		wgmma_produce(p, shared);
	} else {
		simt_registers_grow<WGMMA_CONSUMER_REGISTERS>();
		wgmma_consume(p, shared);
	}
}

#define WGMMA_KERNEL(name, f16, dim) \
	ATTENTION_WHEN(ATTENTION_HAS(name), \
		       static_assert(sizeof(wgmma_shared<wgmma_shape<half_elements<f16>, dim>>) <= CUDA_WGMMA_SHARED_##dim, \
				     "launchers allocate this much"); \
		       ATTENTION_KERNEL_OF(ATTENTION_NAME(name), CUDA_WGMMA_THREADS, 1) \
		       { wgmma_attend<wgmma_shape<half_elements<f16>, dim>>(p); })

WGMMA_KERNEL(attention_wgmma_f16_64, true, 64)
WGMMA_KERNEL(attention_wgmma_f16_128, true, 128)
WGMMA_KERNEL(attention_wgmma_bf16_64, false, 64)
WGMMA_KERNEL(attention_wgmma_bf16_128, false, 128)

#endif
