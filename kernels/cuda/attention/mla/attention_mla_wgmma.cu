/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by wgmma, for sm_90a, for pools that keep V in K (MLA): the items of attention_mla.cu.
 *
 * A block has 64 q_rows; those past an item's last one are zeros.  Four warps, the producers, copy the queries, then
 * tile after tile of 64 tokens to two slots in turn.  Two groups of four warps, the consumers, divide the work of a tile:
 *
 * - One of them, the tile's owner, multiplies queries and keys and makes weights of the products.  Tiles with even
 *   numbers belong to group 0, with odd ones to group 1.
 * - Both multiply the weights by values, each by its own dims, so that the sums of 64 q_rows and 512 dims fit in the
 *   registers of the two.
 *
 * A warp has the same sixteen q_rows as its partner, the warp with the same number in the other group.  The owner's
 * warp gives its weights to the partner as they are in its registers, as the A of wgmma, together with the new maxima.
 *
 * The last 64 dims of a tile's keys are no values.  Once the keys have been multiplied, the weights are in their place.
 *
 * A group attends to one tile after the other, its own or not, and waits for its products each time.  To multiply the
 * next tile's keys before that would keep the slot of this tile longer, and the copies are what is waited for.
 *
 * combine_kv_chunks, which is launched after this kernel, combines the KV chunks of a tile.
 */
#include "kernels/cuda/attention/mla/attention_mla_consumer.h"

#if SIMT_HAS_WGMMA

/* A block that copies its tiles itself. */
struct mla_wgmma_block {
	using slot = wgmma_barriers;

	SIMT_MEMBER void
	slot_init(wgmma_barriers &barriers)
	{
		simt_barrier_init(&barriers.full, WGMMA_PRODUCER_WARPS * 32);
		simt_barrier_init(&barriers.empty, WGMMA_CONSUMER_WARPS);
	}

	SIMT_MEMBER void
	items_begin(const cuda_attention_params &p, attention_block &block)
	{
		work_items_begin(p, block);
	}

	SIMT_MEMBER bool
	item_take(const cuda_attention_params &p, attention_block &block, attention_work_item *item)
	{
		return work_item_take(p, block, item);
	}

	SIMT_MEMBER void
	sync()
	{
		simt_sync();
	}
};

template <class S>
SIMT_FUNCTION void
mla_wgmma_tile_copy(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, const attention_work_item &item,
		    uint32_t tile, uint32_t token, uint32_t end, uint32_t entry)
{
	const cuda_plane &from = p.pages.plane[CUDA_K];
	wgmma_barriers &slot = shared.slots[tile % SLOTS];
	bool valid = item_token_visible(p, shared, item, token, end) &&
		     plan_page_check(p.plan, item.row, entry, p.pages.n_pages);
	uint64_t address = from.address;

	if (valid)
		address = plane_address(from, entry, item.kv_head, token % p.pages.page_size);
	simt_barrier_wait(&slot.empty, mla_wgmma_parity(tile) ^ 1);
	mla_wgmma_rows_copy<S, S::RING>(
		&shared.ring[(mla_wgmma_first_row<S>(tile) + simt_warp() * S::WARP_ROWS) * WGMMA_ROW_CHUNKS], address,
		valid, from.dim / 8);
	simt_barrier_arrive_copies(&slot.full);
}

/* Copy the tiles of tokens [begin, end), after the first one the queries if `queries` is set. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_tiles_copy(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, uint32_t number, uint32_t begin,
		     uint32_t end, bool queries, uint32_t &tile)
{
	const attention_work_item &item = shared.items[number % 2];
	uint32_t entry;

	begin = next_visible_tile<S::TOKENS>(p, shared, begin, end);
	entry = item_entry_load(p, shared, item, begin + mla_wgmma_own_row<S>(), end);
	ATTENTION_ROLL
	for (; begin < end; tile++) {
		uint32_t next = next_visible_tile<S::TOKENS>(p, shared, begin + S::TOKENS, end);
		uint32_t next_entry = item_entry_load(p, shared, item, next + mla_wgmma_own_row<S>(), end);

		mla_wgmma_tile_copy(p, shared, item, tile, begin + mla_wgmma_own_row<S>(), end, entry);
		if (queries)
			mla_wgmma_queries_give(p, shared, number);
		queries = false;
		begin = next;
		entry = next_entry;
	}
}

/*
 * Copy the block's items.  The slot of an item's first tile is free before the queries of the item before have been
 * read, so the tile is copied first.  But consumers wait for the queries before they make the bitmap of a block mask,
 * without which no tile is known.
 */
template <class S>
SIMT_FUNCTION void
mla_wgmma_produce(const cuda_attention_params &p, mla_wgmma_shared<S> &shared)
{
	uint32_t tile = 0;

	ATTENTION_ROLL
	for (uint32_t number = 0; mla_wgmma_item_wait(shared, number); number++) {
		const attention_work_item &item = shared.items[number % 2];
		bool queries_first = has_block_mask(p) || item.begin >= item.end;

		if (queries_first)
			mla_wgmma_queries_give(p, shared, number);
		ATTENTION_ROLL
		for (uint32_t begin = item.begin, end; begin < item.end; begin = end) {
			end = span_begin<wgmma_consumers>(p, shared, item, begin, false);
			mla_wgmma_tiles_copy(p, shared, number, begin, end, !queries_first, tile);
		}
	}
}

/* Wait for a tile; afterwards wgmma may read it. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_wait_full(mla_wgmma_shared<S> &shared, uint32_t tile)
{
	simt_barrier_wait(&shared.slots[tile % SLOTS].full, mla_wgmma_parity(tile));
	simt_proxy_fence();
}

/* Make weights of a tile of the group, from `begin` on. */
template <class S>
SIMT_FUNCTION void
mla_wgmma_tile_own(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, const attention_work_item &item,
		   mla_wgmma_state<S> &state, uint32_t begin, float rescale[2])
{
	float product[S::TOKENS / 2];

	simt_wgmma_fence();
	ATTENTION_UNROLL
	for (uint32_t matrix = 0; matrix < MOST_DIMS / 64; matrix++)
		mla_wgmma_multiply_matrix(shared, state.tile, matrix, product);
	simt_wgmma_commit();
	simt_wgmma_wait<0>(product);
	mla_wgmma_keys_end(p, shared, item, state, begin);
	mla_wgmma_weights_make(p, shared, item, state, state.tile, begin, product, state.rounded, rescale);
}

/* Attend to the tiles of tokens [begin, end). */
template <class S>
SIMT_FUNCTION void
mla_wgmma_tiles_attend(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, const attention_work_item &item,
		       mla_wgmma_state<S> &state, uint32_t begin, uint32_t end)
{
	ATTENTION_ROLL
	for (begin = next_visible_tile<S::TOKENS>(p, shared, begin, end); begin < end;
	     begin = next_visible_tile<S::TOKENS>(p, shared, begin + S::TOKENS, end)) {
		float rescale[2];

		mla_wgmma_wait_full(shared, state.tile);
		if (state.tile % WGMMA_GROUPS == state.group)
			mla_wgmma_tile_own(p, shared, item, state, begin, rescale);
		else
			mla_wgmma_weights_take(shared, state, state.tile, state.rounded, rescale);
		mla_wgmma_rescale(state, rescale);
		mla_wgmma_non_finite_add(p, shared, state, state.tile);
		mla_wgmma_add_values(shared, state, state.tile, state.rounded);
		mla_wgmma_sums_wait(state);
		warp_arrive(&shared.slots[state.tile % SLOTS].empty);
		state.tile++;
	}
}

template <class S>
SIMT_FUNCTION void
mla_wgmma_attend(const cuda_attention_params &p)
{
	mla_wgmma_shared<S> &shared = SIMT_SHARED(mla_wgmma_shared<S>);

	static_assert(sizeof(mla_wgmma_shared<S>) <= CUDA_MLA_WGMMA_SHARED, "launchers allocate this much");
	mla_wgmma_begin(p, shared);
	if (simt_warp() < WGMMA_PRODUCER_WARPS) {
		simt_registers_shrink<WGMMA_PRODUCER_REGISTERS>();
		mla_wgmma_produce(p, shared);
	} else {
		simt_registers_grow<WGMMA_CONSUMER_REGISTERS>();
		mla_wgmma_consume(p, shared,
				  [&](const attention_work_item &item, mla_wgmma_state<S> &state, uint32_t begin, uint32_t end) {
					  mla_wgmma_tiles_attend(p, shared, item, state, begin, end);
				  });
	}
}

ATTENTION_INSTANCE_OF(attention_mla_wgmma_f16, CUDA_WGMMA_THREADS, 1,
	mla_wgmma_attend<mla_wgmma_shape<true, mla_wgmma_block>>)
ATTENTION_INSTANCE_OF(attention_mla_wgmma_bf16, CUDA_WGMMA_THREADS, 1,
	mla_wgmma_attend<mla_wgmma_shape<false, mla_wgmma_block>>)

#endif
