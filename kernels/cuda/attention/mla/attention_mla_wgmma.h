/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_mla_wgmma.h - the MLA kernels by wgmma: a block's shared memory, its items, and copies of queries
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_MLA_ATTENTION_MLA_WGMMA_H
#define PAGED_KERNELS_CUDA_ATTENTION_MLA_ATTENTION_MLA_WGMMA_H

#include "kernels/cuda/attention/attention_wgmma.h"

#if SIMT_HAS_WGMMA

#define SLOTS 2u
#define MOST_DIMS 576u /* of keys */
#define COLUMNS 128u   /* dims of values that a product has */
/* Parts of COLUMNS dims that a group has sums of: of 512 dims, every second part. */
#define PARTS 2u
#define MOST_V_DIMS (WGMMA_GROUPS * PARTS * COLUMNS)

static_assert(CUDA_MAX_TILE_Q_ROWS == WGMMA_GROUP_WARPS * 16, "a warp has 16 q_rows");
static_assert(MOST_DIMS - MOST_V_DIMS == 64, "64 dims of a tile's tokens have room for the weights of 64 q_rows");

/*
 * BLOCK has what depends on how tiles come to a block's shared memory: the barriers of a slot (`slot`), the block's
 * items (items_begin(), item_take()), and the barrier of all who use these barriers (sync()).
 */
template <bool F16_, class BLOCK> struct mla_wgmma_shape : BLOCK {
	using elements = half_elements<F16_>;
	using layout = adjacent_tokens;
	static constexpr bool F16 = F16_;
	static constexpr uint32_t DIM = COLUMNS, Q_ROWS = CUDA_MAX_TILE_Q_ROWS;
	static constexpr uint32_t TOKENS = 64, BLOCKS = TOKENS / 8, RING = SLOTS * TOKENS;
	static constexpr uint32_t WARP_ROWS = TOKENS / WGMMA_PRODUCER_WARPS; /* that a producer copies of a tile */
	static_assert(Q_ROWS == TOKENS, "and of queries");
};

/* What a tile's owner gives its partner for a q_row. */
struct mla_wgmma_row {
	float row_max, rescale; /* rescale: the factor for earlier sums */
};

template <class S> struct mla_wgmma_shared : attention_block {
	attention_work_item items[2]; /* those with an even number in the block, and with an odd one */
	bool has[2];
	uint64_t item_full; /* the next item is found, or there is none */
	uint64_t queries_full, queries_empty;
	typename S::slot slots[SLOTS];
	uint64_t weights_full[WGMMA_GROUP_WARPS]; /* of the q_rows of a warp and its partner */
	mla_wgmma_row rows[S::Q_ROWS];
	float row_sum[WGMMA_GROUPS][S::Q_ROWS];
	uint32_t non_finite[SLOTS]; /* 1 + the number of the last tile with a product that is NaN or infinite */
	uint32_t non_finite_tokens[WGMMA_GROUPS][WGMMA_GROUP_WARPS]; /* a bit each; a warp has half the tile and one part */
	alignas(1024) simt_vec4 queries[S::Q_ROWS * MOST_DIMS / 8];
	simt_vec4 ring[S::RING * MOST_DIMS / 8]; /* a matrix with the tokens of both slots */
};

/* The parity of the phase of a slot's barriers in which it has the tile of this number. */
SIMT_FUNCTION uint32_t
mla_wgmma_parity(uint32_t tile)
{
	return tile / SLOTS % 2;
}

/* The first row of a tile's slot in the ring. */
template <class S>
SIMT_FUNCTION uint32_t
mla_wgmma_first_row(uint32_t tile)
{
	return tile % SLOTS * S::TOKENS;
}

/* Items */

/* Find the item of this number in the block.  One thread calls. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_item_find(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, uint32_t number)
{
	shared.has[number % 2] = S::item_take(p, shared, &shared.items[number % 2]);
	simt_barrier_arrive(&shared.item_full);
}

template <class S>
SIMT_FUNCTION void
mla_wgmma_begin(const cuda_attention_params &p, mla_wgmma_shared<S> &shared)
{
	if (simt_thread() == 0) {
		simt_barrier_init(&shared.item_full, 1);
		simt_barrier_init(&shared.queries_full, 2 * WGMMA_PRODUCER_WARPS * 32);
		simt_barrier_init(&shared.queries_empty, WGMMA_CONSUMER_WARPS);
		ATTENTION_UNROLL
		for (uint32_t slot = 0; slot < SLOTS; slot++) {
			S::slot_init(shared.slots[slot]);
			shared.non_finite[slot] = 0;
		}
		ATTENTION_UNROLL
		for (uint32_t warp = 0; warp < WGMMA_GROUP_WARPS; warp++)
			simt_barrier_init(&shared.weights_full[warp], 1);
		S::items_begin(p, shared);
		mla_wgmma_item_find(p, shared, 0);
	}
	S::sync();
}

/* Wait for the item of this number; false if there is none. */
template <class S>
SIMT_FUNCTION bool
mla_wgmma_item_wait(mla_wgmma_shared<S> &shared, uint32_t number)
{
	simt_barrier_wait(&shared.item_full, number % 2);
	return shared.has[number % 2];
}

/* Producers */

/* The row of those that the warp copies, of queries or of a tile, whose address the lane finds. */
template <class S>
SIMT_FUNCTION uint32_t
mla_wgmma_own_row()
{
	return simt_opaque(simt_warp() * S::WARP_ROWS + simt_lane() % S::WARP_ROWS);
}

/*
 * Start copying the warp's rows of n_chunks chunks to `to`, the first of them in a matrix of N_ROWS rows.  `address` is
 * that of the lane's row; `valid`: it is copied.  Other rows, and dims past the chunks, become zeros.
 */
template <class S, uint32_t N_ROWS>
SIMT_FUNCTION void
mla_wgmma_rows_copy(simt_vec4 *to, uint64_t address, bool valid, uint32_t n_chunks)
{
	constexpr uint32_t MATRICES = MOST_DIMS / 64, AT_ONCE = 32 / WGMMA_ROW_CHUNKS; /* rows of 64 dims */
	uint32_t lane = simt_opaque(simt_lane()), chunk = lane % WGMMA_ROW_CHUNKS, row = lane / WGMMA_ROW_CHUNKS;
	uint32_t bits = simt_ballot(valid) >> row;

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < S::WARP_ROWS; i += AT_ONCE) {
		uint64_t at = simt_shuffle((uint32_t)address, (int)(row + i)) |
			      (uint64_t)simt_shuffle((uint32_t)(address >> 32), (int)(row + i)) << 32;
		simt_vec4 *own = to + (row + i) * WGMMA_ROW_CHUNKS + (chunk ^ (row + i) % WGMMA_ROW_CHUNKS);
		const simt_vec4 *from = pointer_to<const simt_vec4>(at) + chunk;

		ATTENTION_UNROLL
		for (uint32_t matrix = 0; matrix < MATRICES; matrix++)
			simt_copy_async16(own + matrix * N_ROWS * WGMMA_ROW_CHUNKS, from + matrix * WGMMA_ROW_CHUNKS,
					  (bits >> i & 1) != 0 && matrix * WGMMA_ROW_CHUNKS + chunk < n_chunks);
	}
}

/* The same for queries of any alignment, which are stored. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_queries_store(simt_vec4 *queries, uint64_t address, bool valid, uint32_t dim)
{
	ATTENTION_ROLL
	for (uint32_t i = 0; i < S::WARP_ROWS; i++) {
		uint64_t from = simt_shuffle((uint32_t)address, (int)i) |
				(uint64_t)simt_shuffle((uint32_t)(address >> 32), (int)i) << 32;
		uint32_t q_row = simt_warp() * S::WARP_ROWS + i, n = simt_shuffle(valid ? dim : 0, (int)i);

		ATTENTION_ROLL
		for (uint32_t chunk = simt_lane(); chunk < MOST_DIMS / 8; chunk += 32)
			queries[wgmma_index(S::Q_ROWS, q_row, chunk)] = query_chunk(from, n, chunk);
	}
}

/* Start copying an item's queries. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_queries_copy(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, const attention_work_item &item)
{
	uint32_t q_row = mla_wgmma_own_row<S>();
	bool valid = q_row < item.n_q_rows;
	uint64_t from = p.q.address / 16 * 16;

	if (valid)
		from = tensor_address(p.q, item.q_start + work_item_query(p, item, q_row),
				      work_item_head(p, item, q_row));
	if (simt_all(from % 16 == 0))
		mla_wgmma_rows_copy<S, S::Q_ROWS>(&shared.queries[simt_warp() * S::WARP_ROWS * WGMMA_ROW_CHUNKS], from,
						  valid, p.q.dim / 8);
	else
		mla_wgmma_queries_store<S>(shared.queries, from, valid, p.q.dim);
}

/* Give the consumers the queries of the item of this number, when they have read those of the item before. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_queries_give(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, uint32_t number)
{
	simt_barrier_wait(&shared.queries_empty, number % 2 ^ 1);
	mla_wgmma_queries_copy(p, shared, shared.items[number % 2]);
	simt_barrier_arrive_copies(&shared.queries_full);
	simt_barrier_arrive(&shared.queries_full); /* for what was stored, not copied */
}

#endif

#endif
