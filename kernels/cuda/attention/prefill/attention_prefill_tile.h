/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_prefill_tile.h - a block of attention_prefill: its tile, its shared memory and registers, copies of K and V
 *
 * Each warp copies 16 tokens of a tile.  Lane l knows the address of token
 * l % 16 in plane l / 16, and the lanes that copy the token's chunks get it by
 * shuffles.  Entries of the page table are loaded a tile ahead.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_PREFILL_ATTENTION_PREFILL_TILE_H
#define PAGED_KERNELS_CUDA_ATTENTION_PREFILL_ATTENTION_PREFILL_TILE_H

#include "kernels/cuda/attention/prefill/attention_prefill_item.h"

#define PREFILL_WARPS (CUDA_PREFILL_THREADS / 32)
#define PREFILL_M_TILES 2u

/* A tile, with the members that the templates of attention_tile.h use. */
template <class ELEMENTS, uint32_t DIM_> struct prefill_shape {
	using elements = ELEMENTS;
	static constexpr uint32_t DIM = DIM_, CHUNKS = DIM / 8, Q_ROWS = CUDA_PREFILL_TILE_Q_ROWS;
	static constexpr bool F16 = ELEMENTS::F16;
	using layout = swizzled_rows<CHUNKS>;
	static constexpr uint32_t TOKENS = 64, BLOCKS = TOKENS / 8;
	static constexpr uint32_t WARP_Q_ROWS = Q_ROWS / PREFILL_WARPS, COPIED_TOKENS = TOKENS / PREFILL_WARPS;
	static_assert(PREFILL_WARPS == 4 && WARP_Q_ROWS == PREFILL_M_TILES * 16 && COPIED_TOKENS * CUDA_N_PLANES == 32,
		      "as the lanes assume");
};

template <class S> struct prefill_shared : attention_block_of<CUDA_PREFILL_TILE_Q_ROWS> {
	prefill_items items;
	uint64_t value_address[S::TOKENS]; /* of the tile whose keys are being copied; 0: none */
	uint32_t non_finite[PREFILL_WARPS]; /* a bit for each of the tokens that the warp copies */
	union {
		struct {
			alignas(128) simt_vec4 queries[S::Q_ROWS * S::CHUNKS];
			simt_vec4 tile[CUDA_N_PLANES][S::TOKENS * S::CHUNKS];
		};
		prefill_results<S::DIM, PREFILL_WARPS> results; /* of an M tile of each warp */
	};
};

/* A thread's registers: the softmax state of its q_rows, [M tile][q_row], and its part of their sums of values. */
template <class S> struct prefill_state {
	float row_max[PREFILL_M_TILES][2];
	float row_sum[PREFILL_M_TILES][2];
	float values[PREFILL_M_TILES][S::DIM / 8][4];
};

template <class S>
SIMT_FUNCTION uint32_t
prefill_first_q_row(uint32_t m)
{
	return simt_warp() * S::WARP_Q_ROWS + m * 16;
}

template <class S>
SIMT_FUNCTION void
prefill_state_init(prefill_state<S> &state)
{
	ATTENTION_UNROLL
	for (uint32_t m = 0; m < PREFILL_M_TILES; m++) {
		state.row_max[m][0] = state.row_max[m][1] = -infinity();
		state.row_sum[m][0] = state.row_sum[m][1] = 0;
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::DIM / 8; n++)
			state.values[m][n][0] = state.values[m][n][1] = state.values[m][n][2] = state.values[m][n][3] =
				0;
	}
}

/* Copying tiles */

template <class S>
SIMT_FUNCTION uint32_t
prefill_lane_token(uint32_t begin)
{
	uint32_t thread = simt_opaque(simt_thread());

	return begin + thread / 32 * S::COPIED_TOKENS + thread % S::COPIED_TOKENS;
}

/* The address of the lane's token in its plane; 0 if nothing sees the token or it has no page. */
template <class S>
SIMT_FUNCTION uint64_t
prefill_token_address(const cuda_attention_params &p, const prefill_shared<S> &shared, uint32_t begin, uint32_t entry)
{
	uint32_t token = prefill_lane_token<S>(begin);

	if (!token_visible(p, shared, token, shared.item.end) ||
	    !plan_page_check(p.plan, shared.item.row, entry, p.pages.n_pages))
		return 0;
	return plane_address(p.pages.plane[simt_lane() / S::COPIED_TOKENS], entry, shared.item.kv_head,
			     token % p.pages.page_size);
}

/* Start copying the warp's tokens of one plane, as one cp.async group; those without an address become zeros. */
template <class S>
SIMT_FUNCTION void
prefill_copy(const cuda_attention_params &p, uint32_t plane, simt_vec4 *to, uint64_t address)
{
	constexpr uint32_t AT_ONCE = 32 / S::CHUNKS;
	uint32_t lane = simt_opaque(simt_lane()), chunk = lane % S::CHUNKS, first = lane / S::CHUNKS;
	uint32_t index = swizzle<S::CHUNKS>(simt_warp() * S::COPIED_TOKENS + first, chunk);
	uint32_t valid = simt_ballot(address != 0) >> (plane * S::COPIED_TOKENS + first);

	if (chunk * 8 >= p.pages.plane[plane].dim)
		valid = 0;
	if (address == 0)
		address = p.pages.plane[plane].address;
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < S::COPIED_TOKENS; i += AT_ONCE) {
		int from = (int)(plane * S::COPIED_TOKENS + first + i);
		uint64_t at = simt_shuffle((uint32_t)address, from) |
			      (uint64_t)simt_shuffle((uint32_t)(address >> 32), from) << 32;

		simt_copy_async16(&to[i * S::CHUNKS + swizzle_step<S::CHUNKS>(index, i % 8)],
				  pointer_to<const void>(at + chunk * 16), (valid >> i & 1) != 0);
	}
	simt_copy_async_commit();
}

/* Start copying a tile's keys, and keep the addresses of its values. */
template <class S>
SIMT_FUNCTION void
prefill_copy_keys(const cuda_attention_params &p, prefill_shared<S> &shared, uint32_t begin, uint32_t entry)
{
	uint64_t address = prefill_token_address(p, shared, begin, entry);

	if (simt_lane() >= S::COPIED_TOKENS)
		shared.value_address[prefill_lane_token<S>(0)] = address;
	prefill_copy<S>(p, CUDA_K, shared.tile[CUDA_K], address);
}

template <class S>
SIMT_FUNCTION void
prefill_copy_values(const cuda_attention_params &p, prefill_shared<S> &shared)
{
	uint64_t address = simt_lane() >= S::COPIED_TOKENS ? shared.value_address[prefill_lane_token<S>(0)] : 0;

	prefill_copy<S>(p, CUDA_V, shared.tile[CUDA_V], address);
}

#endif
