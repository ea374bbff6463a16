/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention_fetch.h - tiles of K and V from pages to shared memory, ahead of the item that is computed
 *
 * For the kernels of attention_mma.h; their tiles and shared memory are those of
 * attention_tile.h.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_FETCH_H
#define PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_FETCH_H

#include "kernels/cuda/attention/attention_tile.h"

/*
 * Copying tiles.  A row of a tile is a token's vector of one plane, rows are [plane][token].  In a step the block's
 * threads copy STEP_ROWS consecutive rows, a chunk each.  Each lane computes the address of one row that its warp
 * copies, and the warp's lanes read it in shared memory.  With at least eight rows a step, a thread's chunks are at
 * constant distances in spite of the swizzle.
 */

/* Byte pools of 256 dims have no registers left for what other kernels keep or do ahead; two of their blocks overlap. */
template <class K>
SIMT_FUNCTION constexpr bool
mma_is_full_of_sums()
{
	return K::DIM == 256 && K::elements::CHUNK == 16;
}

/* This thread's number; with few registers, nothing that is computed from it stays in one. */
template <class K>
SIMT_FUNCTION uint32_t
mma_thread()
{
	return mma_is_full_of_sums<K>() ? simt_opaque(simt_thread()) : simt_thread();
}

/* The row whose address this lane computes. */
template <class K>
SIMT_FUNCTION uint32_t
mma_own_row()
{
	uint32_t lane = mma_thread<K>() % 32, warp = mma_thread<K>() / 32;

	return lane / K::WARP_ROWS * K::STEP_ROWS + warp * K::WARP_ROWS + lane % K::WARP_ROWS;
}

/*
 * Start copying n_rows rows to `to`; `tokens` is the number of the tile's tokens.  WHOLE: every row has an address, and
 * no dim is padded.  Else rows without an address, and dims past a plane's, become zeros.
 */
template <class K, bool WHOLE>
SIMT_FUNCTION void
mma_rows_copy(const cuda_attention_params &p, const attention_mma_shared<K> &shared, simt_vec4 *to, uint32_t tokens)
{
	constexpr uint32_t STEPS = K::wide::TOKENS * CUDA_N_PLANES / K::STEP_ROWS;
	constexpr uint32_t AT_ONCE = STEPS < 16 ? STEPS : 16; /* addresses that are read before they are copied from */
	uint32_t thread = simt_opaque(simt_thread()), chunk = thread % K::CHUNKS;
	uint32_t own = swizzle<K::CHUNKS>(thread / K::CHUNKS, chunk);
	const uint64_t *address = &shared.row_address[thread / 32 * 32 + thread % 32 / K::CHUNKS];

	ATTENTION_ROLL
	for (uint32_t first = 0; first < tokens * CUDA_N_PLANES; first += AT_ONCE * K::STEP_ROWS) {
		uint64_t from[AT_ONCE];

		ATTENTION_UNROLL
		for (uint32_t i = 0; i < AT_ONCE; i++)
			from[i] = address[(first / K::STEP_ROWS + i) * K::WARP_ROWS];
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < AT_ONCE; i++) {
			uint32_t row = first + i * K::STEP_ROWS;
			const cuda_plane &plane = p.pages.plane[row < tokens ? CUDA_K : CUDA_V];
			bool valid = WHOLE || (from[i] != 0 && chunk * K::elements::CHUNK < plane.dim);
			uint64_t at = valid ? from[i] + chunk * 16u : plane.address;

			simt_copy_async16(&to[(own ^ (row & 7 & K::STEP_ROWS)) + row * K::CHUNKS],
					  pointer_to<const void>(at), valid);
		}
	}
}

template <class K>
SIMT_FUNCTION uint32_t
mma_visible_tile(const cuda_attention_params &p, const attention_mma_shared<K> &shared, uint32_t begin, uint32_t end)
{
	if (K::narrow::TOKENS == K::wide::TOKENS || work_item_is_narrow(shared.item))
		return next_visible_tile<K::narrow::TOKENS>(p, shared, begin, end);
	return next_visible_tile<K::wide::TOKENS>(p, shared, begin, end);
}

/*
 * The next tile to fetch, in each thread's registers.  When all tiles of an item are fetched, those of the next item
 * follow, if `next` has the same layout in shared memory and there is no block mask.
 */
struct mma_prefetch {
	bool in_next;        /* the tile is of the next item */
	bool has_queries;    /* the next item's queries were fetched */
	bool found;          /* shared.next was written; other threads read it after a barrier */
	uint32_t begin, end; /* from its first token to the end of the tokens to fetch; none if begin >= end */
	uint32_t stage;      /* where it will be */
	uint32_t n_tiles;    /* tiles that were fetched and not attended to */
	uint32_t entry;      /* of the page table, for the lane's row; it may still be loading */
	uint32_t slot;       /* the row's token in its page; UINT32_MAX: the row becomes zeros */
};

template <class SHARED>
SIMT_FUNCTION const attention_work_item &
mma_prefetch_item(const SHARED &shared, const mma_prefetch &prefetch)
{
	return prefetch.in_next ? shared.next : shared.item;
}

/* Start loading the page table's entry for this lane's row of the next tile to fetch, if there is one. */
template <class K>
SIMT_FUNCTION void
mma_entry_load(const cuda_attention_params &p, const attention_mma_shared<K> &shared, mma_prefetch &prefetch)
{
	const attention_work_item &item = mma_prefetch_item(shared, prefetch);
	uint32_t tokens = work_item_tile_tokens<K>(shared.item), row = mma_own_row<K>(),
		 token = prefetch.begin + row % tokens;

	prefetch.slot = UINT32_MAX;
	if (row < tokens * CUDA_N_PLANES && item_token_visible(p, shared, item, token, prefetch.end)) {
		prefetch.entry = plan_entry(p.plan, item.row, token / p.pages.page_size);
		prefetch.slot = token % p.pages.page_size;
	}
}

/* Compute the address of this lane's row, and start copying the row's scale.  Returns 0 if it is to be zeros. */
template <class K>
SIMT_FUNCTION uint64_t
mma_row_locate(const cuda_attention_params &p, attention_mma_shared<K> &shared, const mma_prefetch &prefetch)
{
	const attention_work_item &item = mma_prefetch_item(shared, prefetch);
	uint32_t tokens = work_item_tile_tokens<K>(shared.item), row = mma_own_row<K>();
	bool valid = prefetch.slot != UINT32_MAX && plan_page_check(p.plan, item.row, prefetch.entry, p.pages.n_pages);

	if (row < tokens * CUDA_N_PLANES)
		K::elements::fetch_scale(p, shared, prefetch, row, valid);
	if (!valid)
		return 0;
	return plane_address(p.pages.plane[row / tokens], prefetch.entry, item.kv_head, prefetch.slot);
}

/*
 * Start copying the next tile as one cp.async group, and load the page table's entries for the one after it.  Tokens
 * that no q_row sees become zeros.
 */
template <class K>
SIMT_FUNCTION void
mma_tile_fetch(const cuda_attention_params &p, attention_mma_shared<K> &shared, mma_prefetch &prefetch)
{
	uint32_t tokens = work_item_tile_tokens<K>(shared.item);
	uint64_t address = mma_row_locate(p, shared, prefetch);
	simt_vec4 *to = mma_tile_at(shared, prefetch.stage, CUDA_K);

	simt_warp_sync(); /* the warp has read the addresses of the tile before */
	shared.row_address[mma_thread<K>()] = address;
	simt_warp_sync();
	if (simt_all(address != 0 || mma_own_row<K>() >= tokens * CUDA_N_PLANES) &&
	    p.pages.plane[CUDA_K].dim == K::DIM && p.pages.plane[CUDA_V].dim == K::DIM)
		mma_rows_copy<K, true>(p, shared, to, tokens);
	else
		mma_rows_copy<K, false>(p, shared, to, tokens);
	simt_copy_async_commit();
	prefetch.n_tiles++;
	prefetch.stage = prefetch.stage + 1 == mma_stages(p, shared) ? 0 : prefetch.stage + 1;
	prefetch.begin = mma_visible_tile(p, shared, prefetch.begin + tokens, prefetch.end);
	mma_entry_load(p, shared, prefetch);
}

/* May the next item's queries and tiles be fetched before this item ends? */
template <class K>
SIMT_FUNCTION bool
mma_next_is_alike(const cuda_attention_params &p, const attention_mma_shared<K> &shared)
{
	return !mma_is_full_of_sums<K>() && shared.has_next && !has_block_mask(p) &&
	       work_item_is_narrow(shared.next) == work_item_is_narrow(shared.item);
}

/*
 * What a kernel says of its tiles to the loop that fetches and attends to them (attention_mma.h): a class of static
 * members, of which this one is that of the kernels of K.
 */
template <class K> struct mma_tiles {
	using shared_type = attention_mma_shared<K>;
	/* May n_stages() be 1, so that a tile is fetched only after the one before it was attended to? */
	static constexpr bool MAY_HAVE_ONE_STAGE = K::narrow::LEAST_STAGES == 1 || K::wide::LEAST_STAGES == 1;

	SIMT_MEMBER uint32_t
	n_tokens(const shared_type &shared)
	{
		return work_item_tile_tokens<K>(shared.item);
	}

	SIMT_MEMBER uint32_t
	n_stages(const cuda_attention_params &p, const shared_type &shared)
	{
		return mma_stages(p, shared);
	}

	SIMT_MEMBER uint32_t
	visible_from(const cuda_attention_params &p, const shared_type &shared, uint32_t begin, uint32_t end)
	{
		return mma_visible_tile(p, shared, begin, end);
	}

	SIMT_MEMBER bool
	may_go_on(const cuda_attention_params &p, const shared_type &shared)
	{
		return mma_next_is_alike(p, shared);
	}

	SIMT_MEMBER void
	load_entry(const cuda_attention_params &p, const shared_type &shared, mma_prefetch &prefetch)
	{
		mma_entry_load(p, shared, prefetch);
	}

	SIMT_MEMBER void
	fetch(const cuda_attention_params &p, shared_type &shared, mma_prefetch &prefetch)
	{
		mma_tile_fetch(p, shared, prefetch);
	}

	/* Wait until the oldest of n fetched tiles is there, as far as this thread copied it, and queries after them. */
	SIMT_MEMBER void
	wait(uint32_t n, bool queries)
	{
		if (queries || n < K::STAGES - 1)
			simt_copy_async_wait<0>();
		else
			simt_copy_async_wait<(int)K::STAGES - 2>();
	}
};

/* Fetch a tile, if there is one; after the item's last one, go on with the next item. */
template <class T>
SIMT_FUNCTION void
mma_prefetch_step(const cuda_attention_params &p, typename T::shared_type &shared, mma_prefetch &prefetch)
{
	if (prefetch.begin < prefetch.end)
		T::fetch(p, shared, prefetch);
	if (prefetch.begin < prefetch.end || prefetch.in_next || !prefetch.found || !T::may_go_on(p, shared))
		return;
	prefetch.in_next = true;
	prefetch.begin = shared.next.begin;
	prefetch.end = shared.next.end;
	T::load_entry(p, shared, prefetch);
}

#endif
