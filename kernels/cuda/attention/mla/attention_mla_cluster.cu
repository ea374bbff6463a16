/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by wgmma, for sm_90a, for pools that keep V in K (MLA): items of attention_mla_wgmma.cu, two at a time.
 *
 * If each KV head has a multiple of 128 query heads, two tiles of q_rows see the same tokens.  The two blocks of a
 * cluster attend to them, and the TMA unit copies each tile of keys to both at once, so that it is read from the L2
 * cache once.  The launcher chooses this kernel, and there is no block mask.
 *
 * Producers: a tile is boxes of 64 dims of a page.  Each block copies half of the boxes, to itself and to the other
 * block.  Three warps do this, each for the dims that become free together: those of whose values group 0 has sums,
 * those of group 1, and the last 64 dims, in whose place both read weights.  A box is copied when the groups that read
 * what was there have released it, in both blocks.  Pages that no q_row sees are outside the tensor, so they are zeros.
 * Other tokens that no q_row sees may be anything.
 *
 * Consumers: as in attention_mla_wgmma.cu, but the groups do not take turns.  They attend to pairs of tiles.  Each
 * multiplies the keys of its own tile, as they arrive.  While the owner of the second tile makes its weights, values of
 * the first one are multiplied, and nothing else waits for them.
 */
#define ATTENTION_BLOCK_MASKS 0
#include "kernels/cuda/attention/mla/attention_mla_consumer.h"

#if SIMT_HAS_WGMMA

#define KEY_PARTS (WGMMA_GROUPS * PARTS + 1u) /* of COLUMNS dims, and the last CUDA_CLUSTER_DIMS dims */
static_assert(COLUMNS == 2 * CUDA_CLUSTER_DIMS && MOST_DIMS == MOST_V_DIMS + CUDA_CLUSTER_DIMS,
	      "a part is two matrices, or the last");
static_assert(SIMT_CLUSTER_BLOCKS == CUDA_CLUSTER_BLOCKS, "launchers know the size of a cluster");

/*
 * The barriers of a slot, which each block has:
 *
 *                 completed by                                     waited for by
 *   full[part]    the copies of the part from both blocks          the group that owns the tile
 *   empty[group]  the warps of the group, in both blocks, which    the producers, in both blocks, of the group's parts
 *                 have left the tile                               and of the last part
 *
 * The other group need not wait for parts: it takes the tile's weights, which the owner makes after it has waited for
 * all parts.  It leaves the tile after that, so the owner has read the keys of its parts by then.
 */
struct mla_cluster_barriers {
	uint64_t full[KEY_PARTS], empty[WGMMA_GROUPS];
};

/* A block of a cluster.  Its items are halves of pairs: the other block has the tile before or after. */
struct mla_cluster_block {
	using slot = mla_cluster_barriers;

	SIMT_MEMBER void
	slot_init(mla_cluster_barriers &barriers)
	{
		ATTENTION_UNROLL
		for (uint32_t part = 0; part < KEY_PARTS; part++)
			simt_barrier_init(&barriers.full[part], 1);
		ATTENTION_UNROLL
		for (uint32_t group = 0; group < WGMMA_GROUPS; group++)
			simt_barrier_init(&barriers.empty[group], SIMT_CLUSTER_BLOCKS * WGMMA_GROUP_WARPS);
	}

	SIMT_MEMBER void
	items_begin(const cuda_attention_params &p, attention_block &block)
	{
		shares_begin(block, plan_head(p.plan)->n_work_items / SIMT_CLUSTER_BLOCKS,
			     simt_block() / SIMT_CLUSTER_BLOCKS);
	}

	/*
	 * Find the block's item of a pair: of an even tile, or of the tile after.  A row's first item has an even
	 * number: rows have a multiple of CUDA_CLUSTER_Q_ROWS q_rows, in tiles of half as many.
	 */
	SIMT_MEMBER bool
	pair_find(const cuda_attention_params &p, uint32_t pair, attention_work_item *item)
	{
		uint32_t r = plan_find_item(p.plan, pair * SIMT_CLUSTER_BLOCKS);
		uint32_t n_items_of_tile = plan_row_at(p.plan, r).n_kv_chunks * p.pages.n_kv_heads;
		uint32_t in_row = pair - pointer_to<const uint32_t>(p.plan.first_work_item)[r] / SIMT_CLUSTER_BLOCKS;
		uint32_t tile = in_row / n_items_of_tile * SIMT_CLUSTER_BLOCKS + simt_cluster_rank();

		return work_item_make(p, r, tile * n_items_of_tile + in_row % n_items_of_tile, item);
	}

	SIMT_MEMBER bool
	item_take(const cuda_attention_params &p, attention_block &block, attention_work_item *item)
	{
		return share_take(block, simt_n_blocks() / SIMT_CLUSTER_BLOCKS,
				  [&](uint32_t pair) { return pair_find(p, pair, item); });
	}

	SIMT_MEMBER void
	sync()
	{
		simt_cluster_sync();
	}
};

/* Producers */

/* The parts that a warp copies: warps 0 and 1 those of a group's values, this one the last part, others none. */
#define LAST_PART_WARP WGMMA_GROUPS

/* The box of each tile that the lane copies. */
struct mla_cluster_box {
	uint32_t matrix; /* of CUDA_CLUSTER_DIMS dims */
	uint32_t token;  /* in the tile: the first one; past the tile if the lane copies nothing */
};

SIMT_FUNCTION uint32_t
mla_cluster_box_tokens(const cuda_attention_params &p)
{
	return p.pages.page_size < CUDA_CLUSTER_TOKENS ? p.pages.page_size : CUDA_CLUSTER_TOKENS;
}

/* Matrix number i of those that the warp copies. */
SIMT_FUNCTION uint32_t
mla_cluster_matrix(uint32_t i)
{
	if (simt_warp() == LAST_PART_WARP)
		return (KEY_PARTS - 1) * 2;
	return mla_wgmma_part_dim(simt_warp(), i / 2) / CUDA_CLUSTER_DIMS + i % 2;
}

/*
 * The warp's boxes are numbered matrix by matrix, and page by page in one.  A block has those with its rank's parity.
 * simt_opaque(): a box in registers between tiles would be spilled.
 */
SIMT_FUNCTION mla_cluster_box
mla_cluster_box_make(const cuda_attention_params &p)
{
	uint32_t number = simt_opaque(simt_lane()) * SIMT_CLUSTER_BLOCKS + simt_cluster_rank();
	uint32_t at = number * mla_cluster_box_tokens(p), n_matrices = simt_warp() == LAST_PART_WARP ? 1 : 2 * PARTS;

	if (at >= n_matrices * CUDA_CLUSTER_TOKENS)
		return { 0, CUDA_CLUSTER_TOKENS };
	return { mla_cluster_matrix(at / CUDA_CLUSTER_TOKENS), at % CUDA_CLUSTER_TOKENS };
}

/* The page of the lane's box in the tile from `begin` on; n_pages, which is outside the tensor, if nothing sees it. */
SIMT_FUNCTION uint32_t
mla_cluster_page_load(const cuda_attention_params &p, const attention_work_item &item, const mla_cluster_box &box,
		      uint32_t begin)
{
	uint32_t first = begin + box.token;

	if (box.token == CUDA_CLUSTER_TOKENS || first >= item.end || first + mla_cluster_box_tokens(p) <= item.kv_first)
		return p.pages.n_pages;
	return plan_entry(p.plan, item.row, first / p.pages.page_size);
}

/* Wait until the warp's parts of a tile's slot are free in both blocks, and expect their bytes. */
template <class S>
SIMT_FUNCTION void
mla_cluster_slot_wait(mla_wgmma_shared<S> &shared, uint32_t tile)
{
	mla_cluster_barriers &slot = shared.slots[tile % SLOTS];
	uint32_t warp = simt_warp(), parity = mla_wgmma_parity(tile) ^ 1, i = simt_lane();
	bool last = warp == LAST_PART_WARP;

	if (last || warp == 0)
		simt_barrier_wait_cluster(&slot.empty[0], parity);
	if (last || warp == 1)
		simt_barrier_wait_cluster(&slot.empty[1], parity);
	if (i < (last ? 1 : PARTS))
		simt_barrier_arrive_expecting(&slot.full[last ? KEY_PARTS - 1 : warp + i * WGMMA_GROUPS],
					      S::TOKENS * (last ? CUDA_CLUSTER_DIMS : COLUMNS) * 2);
}

/* Copy the lane's box of the tile from `begin` on. */
template <class S>
SIMT_FUNCTION void
mla_cluster_box_copy(const cuda_attention_cluster_params &q, mla_wgmma_shared<S> &shared,
		     const attention_work_item &item, const mla_cluster_box &box, uint32_t tile, uint32_t begin,
		     uint32_t page)
{
	const cuda_pages &pages = q.attention.pages;
	uint32_t row = mla_wgmma_first_row<S>(tile) + box.token;

	if (page != pages.n_pages && !plan_page_check(q.attention.plan, item.row, page, pages.n_pages))
		page = pages.n_pages;
	if (box.token != CUDA_CLUSTER_TOKENS)
		simt_copy_tensor(&shared.ring[(box.matrix * S::RING + row) * WGMMA_ROW_CHUNKS], &q.keys,
				 box.matrix * CUDA_CLUSTER_DIMS, (begin + box.token) % pages.page_size, item.kv_head,
				 page, &shared.slots[tile % SLOTS].full[box.matrix / 2]);
}

/* Copy an item's tiles, after the first one its queries. */
template <class S>
SIMT_FUNCTION void
mla_cluster_tiles_copy(const cuda_attention_cluster_params &q, mla_wgmma_shared<S> &shared, uint32_t number,
		       uint32_t &tile)
{
	const attention_work_item &item = shared.items[number % 2];

	ATTENTION_ROLL
	for (uint32_t begin = item.begin; begin < item.end; begin += S::TOKENS, tile++) {
		if (simt_warp() <= LAST_PART_WARP) {
			const mla_cluster_box box = mla_cluster_box_make(q.attention);
			/* The slot is waited for longer than the page table. */
			uint32_t page = mla_cluster_page_load(q.attention, item, box, begin);

			mla_cluster_slot_wait(shared, tile);
			mla_cluster_box_copy(q, shared, item, box, tile, begin, page);
		}
		if (begin == item.begin)
			mla_wgmma_queries_give(q.attention, shared, number);
	}
}

template <class S>
SIMT_FUNCTION void
mla_cluster_produce(const cuda_attention_cluster_params &q, mla_wgmma_shared<S> &shared)
{
	uint32_t tile = 0;

	ATTENTION_ROLL
	for (uint32_t number = 0; mla_wgmma_item_wait(shared, number); number++) {
		if (shared.items[number % 2].begin >= shared.items[number % 2].end)
			mla_wgmma_queries_give(q.attention, shared, number);
		mla_cluster_tiles_copy(q, shared, number, tile);
	}
}

/* Consumers */

/* Start multiplying the keys of a tile, as they arrive: first those of group 0's values. */
template <class S>
SIMT_FUNCTION void
mla_cluster_multiply_keys(mla_wgmma_shared<S> &shared, uint32_t tile, float (&product)[S::TOKENS / 2])
{
	mla_cluster_barriers &slot = shared.slots[tile % SLOTS];

	ATTENTION_UNROLL
	for (uint32_t i = 0; i < KEY_PARTS; i++) {
		uint32_t part = i + 1 == KEY_PARTS ? i : i / PARTS + i % PARTS * WGMMA_GROUPS;

		simt_barrier_wait(&slot.full[part], mla_wgmma_parity(tile));
		simt_wgmma_fence();
		mla_wgmma_multiply_matrix(shared, tile, part * 2, product);
		if (i + 1 != KEY_PARTS)
			mla_wgmma_multiply_matrix(shared, tile, part * 2 + 1, product);
	}
	simt_wgmma_commit();
}

/* Let the producers of both blocks overwrite the group's part of a tile. */
template <class S>
SIMT_FUNCTION void
mla_cluster_tile_leave(mla_wgmma_shared<S> &shared, const mla_wgmma_state<S> &state, uint32_t tile)
{
	simt_proxy_fence(); /* this thread may have written weights or zeros */
	simt_warp_sync();
	if (simt_lane() < SIMT_CLUSTER_BLOCKS)
		simt_barrier_arrive_at(&shared.slots[tile % SLOTS].empty[state.group], simt_lane());
}

/*
 * Attend to two tiles from `begin` on, or to one if it is the item's last.  The group owns one of them: the first if
 * it `leads`.
 */
template <class S>
SIMT_FUNCTION void
mla_cluster_pair_attend(const cuda_attention_params &p, mla_wgmma_shared<S> &shared, const attention_work_item &item,
			mla_wgmma_state<S> &state, uint32_t begin)
{
	bool leads = state.tile % WGMMA_GROUPS == state.group;
	uint32_t end = state.tile + (begin + S::TOKENS < item.end ? 2 : 1), own = state.tile + (leads ? 0 : 1);
	uint32_t own_begin = leads ? begin : begin + S::TOKENS;
	float product[S::TOKENS / 2];

	if (own < end) {
		mla_cluster_multiply_keys(shared, own, product);
		simt_wgmma_wait<0>(product);
		mla_wgmma_keys_end(p, shared, item, state, own_begin);
	}
	ATTENTION_ROLL
	for (uint32_t tile = state.tile; tile < end; tile++) {
		uint32_t next[S::TOKENS / 16][4];
		float rescale[2];

		if (tile == own)
			mla_wgmma_weights_make(p, shared, item, state, own, own_begin, product, next, rescale);
		else
			mla_wgmma_weights_take(shared, state, tile, next, rescale);
		mla_wgmma_sums_wait(state); /* of the tile before, if they are not complete */
		if (tile == own && !leads)
			mla_cluster_tile_leave(shared, state, tile - 1);
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < S::TOKENS / 4; i++)
			state.rounded[i / 4][i % 4] = next[i / 4][i % 4];
		mla_wgmma_rescale(state, rescale);
		mla_wgmma_non_finite_add(p, shared, state, tile);
		mla_wgmma_add_values(shared, state, tile, state.rounded);
		/* Else the group makes its weights while these values are multiplied. */
		if (leads || tile == own) {
			mla_wgmma_sums_wait(state);
			mla_cluster_tile_leave(shared, state, tile);
		}
	}
	/* In any case: ptxas serializes products that may be on their way where two paths meet. */
	mla_wgmma_sums_wait(state);
	if (!leads && own == end)
		mla_cluster_tile_leave(shared, state, own - 1);
	state.tile = end;
}

template <class S>
SIMT_FUNCTION void
mla_cluster_attend(const cuda_attention_cluster_params &q)
{
	const cuda_attention_params &p = q.attention;
	mla_wgmma_shared<S> &shared = SIMT_SHARED(mla_wgmma_shared<S>);

	static_assert(sizeof(mla_wgmma_shared<S>) <= CUDA_MLA_WGMMA_SHARED, "launchers allocate this much");
	static_assert(S::TOKENS == CUDA_CLUSTER_TOKENS && S::Q_ROWS * CUDA_CLUSTER_BLOCKS == CUDA_CLUSTER_Q_ROWS,
		      "launchers make boxes of tiles, for pairs of tiles");
	mla_wgmma_begin(p, shared);
	if (simt_warp() < WGMMA_PRODUCER_WARPS) {
		simt_registers_shrink<WGMMA_PRODUCER_REGISTERS>();
		mla_cluster_produce(q, shared);
	} else {
		simt_registers_grow<WGMMA_CONSUMER_REGISTERS>();
		mla_wgmma_consume(
			p, shared,
			[&](const attention_work_item &item, mla_wgmma_state<S> &state, uint32_t begin, uint32_t end) {
				ATTENTION_ROLL
				for (; begin < end; begin += WGMMA_GROUPS * S::TOKENS)
					mla_cluster_pair_attend(p, shared, item, state, begin);
			});
	}
	simt_cluster_sync(); /* the other block may still arrive at this one's barriers, or copy to it */
}

ATTENTION_INSTANCE_OF_CLUSTERS(attention_mla_cluster_f16, CUDA_WGMMA_THREADS, 1,
	mla_cluster_attend<mla_wgmma_shape<true, mla_cluster_block>>)
ATTENTION_INSTANCE_OF_CLUSTERS(attention_mla_cluster_bf16, CUDA_WGMMA_THREADS, 1,
	mla_cluster_attend<mla_wgmma_shape<false, mla_cluster_block>>)

#endif
