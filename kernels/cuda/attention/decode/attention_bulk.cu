/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by mma.sync with bulk copies, for sm_90 and later: the decode items
 * of attention_mma.cu, of pools with dims of 64 or 128 and pages of a multiple
 * of eight tokens, which are adjacent in memory.
 *
 * A block has five warps.  The last one, the producer, finds the block's items
 * and has the TMA unit copy the queries and then tile after tile, also those of
 * the item after the one that is computed.  Four warps, the consumers, compute,
 * as those of attention_mma.cu.  For each stage, keys and values have a barrier
 * that tells consumers that the copy is there (`full`); another one tells the
 * producer that all warps have read both (`empty`).
 *
 * A bulk copy moves eight adjacent tokens of a plane, so it cannot swizzle
 * rows.  Instead, 16 bytes of padding follow each eight rows, and the eight rows
 * that ldmatrix reads together are eight tokens apart from each other: they use
 * all banks.  Which tokens are adjacent columns of a product is free.
 */
#include "kernels/cuda/attention/attention_halves.h"
#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/attention/attention_producer.h"

#if SIMT_HAS_BARRIERS

static_assert(CUDA_BULK_THREADS == CUDA_ATTENTION_THREADS + 32, "four consumers and a producer");

using bulk_consumers = attention_threads_of<0, CUDA_ATTENTION_THREADS>;

/* Rows of CHUNKS chunks, padded after each eight.  Column c of block b of eight columns has token c * 8 + b. */
template <uint32_t CHUNKS> struct grouped_rows {
	static constexpr uint32_t BLOCK = 1, COLUMN = CUDA_BULK_TOKENS;

	SIMT_MEMBER uint32_t
	token(uint32_t position)
	{
		return position % 8 * CUDA_BULK_TOKENS + position / 8;
	}

	SIMT_MEMBER uint32_t
	at(uint32_t row, uint32_t chunk)
	{
		return row * CHUNKS + row / CUDA_BULK_TOKENS + chunk;
	}

	SIMT_MEMBER uint32_t
	step(uint32_t at, uint32_t n)
	{
		return at + n;
	}
};

template <class ELEMENTS, uint32_t DIM, bool NARROW> struct bulk_shape : attention_shape<ELEMENTS, DIM, NARROW> {
	using layout = grouped_rows<DIM / 8>;
	static_assert(bulk_shape::TOKENS == CUDA_BULK_TOKENS * CUDA_BULK_TOKENS, "grouped_rows::token()");
};

/*
 * Shared memory has the queries of a narrow tile, then the stages.  A wide tile has one stage fewer, whose memory has
 * its queries.
 */
template <class ELEMENTS, uint32_t DIM_> struct bulk_shapes {
	using elements = ELEMENTS;
	using narrow = bulk_shape<ELEMENTS, DIM_, true>;
	using wide = bulk_shape<ELEMENTS, DIM_, false>;
	static constexpr uint32_t DIM = DIM_, CHUNKS = narrow::CHUNKS, STAGES = DIM == 64 ? 5 : 3;
	static constexpr uint32_t Q_PITCH = CHUNKS + 1; /* chunks from q_row to q_row, without bank conflicts */
	/*
	 * The first chunks of a narrow tile's queries are in registers.  With 128 dims there is no room for all, and
	 * with a score mod for fewer still.
	 */
	static constexpr uint32_t KEPT = DIM == 64 ? 8 : attention_mod::has_score ? 8 : 12, REST = CHUNKS - KEPT, REST_PITCH = REST + 1;
	static constexpr uint32_t TILE = narrow::TOKENS * CHUNKS + narrow::TOKENS / CUDA_BULK_TOKENS; /* of a plane */
	static constexpr uint32_t RESULT_Q_ROWS =
		sizeof(attention_results::values) / sizeof(float) / ATTENTION_WARPS / DIM;
	static_assert(wide::Q_ROWS * Q_PITCH <= CUDA_N_PLANES * TILE, "a stage has room for the queries");
};

struct bulk_stage {
	uint64_t full[CUDA_N_PLANES], empty;
};

template <class K> struct bulk_shared : attention_mma_block {
	attention_work_item next; /* the producer's item */
	bool has_next;
	uint64_t item_full;  /* the next item and its queries are there */
	uint64_t item_empty; /* all consumers have them, or have done with them */
	bulk_stage stages[K::STAGES];
	alignas(16) simt_vec4 queries[K::narrow::Q_ROWS * K::Q_PITCH];
	simt_vec4 tile[K::STAGES][CUDA_N_PLANES][K::TILE];
	/* The rest of the queries of the item that is computed, if it is narrow; without the last padding. */
	simt_vec4 rest[K::narrow::Q_ROWS * K::REST_PITCH - 1];
};

template <class K>
SIMT_FUNCTION simt_vec4 *
bulk_queries(bulk_shared<K> &shared, bool narrow)
{
	return narrow ? shared.queries : shared.tile[K::STAGES - 1][CUDA_K];
}

/* The next stage to fill or to read, and, for each stage, the parity of its next phase. */
struct bulk_ring {
	uint32_t stage, parities;
};

SIMT_FUNCTION uint32_t
bulk_parity(const bulk_ring &ring)
{
	return ring.parities >> ring.stage & 1;
}

template <class K>
SIMT_FUNCTION void
bulk_ring_advance(bulk_ring &ring, bool narrow)
{
	uint32_t stages = narrow ? K::STAGES : K::STAGES - 1;

	ring.parities ^= 1u << ring.stage;
	ring.stage = ring.stage + 1 == stages ? 0 : ring.stage + 1;
}

/*
 * End the item's spans; results may be stored afterwards, to the bitmap's memory.  The producer reads the bitmap too, and
 * if the last span has no visible tile, no copy tells the consumers that it has done so.
 */
SIMT_FUNCTION void
bulk_spans_end(const cuda_attention_params &p, bool consumes)
{
	if (has_block_mask(p))
		simt_sync();
	else if (consumes)
		bulk_consumers::sync();
}

template <class K>
SIMT_FUNCTION uint32_t
bulk_visible_tile(const cuda_attention_params &p, const bulk_shared<K> &shared, uint32_t begin, uint32_t end)
{
	return next_visible_tile<K::narrow::TOKENS>(p, shared, begin, end);
}

/* The producer */

template <class K>
SIMT_FUNCTION void
bulk_begin(const cuda_attention_params &p, bulk_shared<K> &shared)
{
	if (simt_thread() == 0) {
		simt_barrier_init(&shared.item_full, 1);
		simt_barrier_init(&shared.item_empty, ATTENTION_WARPS);
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < K::STAGES; i++) {
			simt_barrier_init(&shared.stages[i].full[CUDA_K], 1);
			simt_barrier_init(&shared.stages[i].full[CUDA_V], 1);
			simt_barrier_init(&shared.stages[i].empty, ATTENTION_WARPS);
		}
		work_items_begin(p, shared);
	}
	simt_sync();
}

/* Make a row of chunks zeros. */
SIMT_FUNCTION void
bulk_zero(simt_vec4 *row, uint32_t n_chunks, uint32_t first, uint32_t step)
{
	ATTENTION_ROLL
	for (uint32_t i = first; i < n_chunks; i += step)
		row[i] = { 0, 0, 0, 0 };
}

/*
 * Copy a q_row: with `bulk` those that are aligned, by a bulk copy; without it this lane stores the others.  Returns the
 * bytes of its bulk copy, of which the barrier must know before.
 */
template <class K>
SIMT_FUNCTION uint32_t
bulk_query_copy(const cuda_attention_params &p, bulk_shared<K> &shared, uint32_t q_row, simt_vec4 *to, bool bulk)
{
	const attention_work_item &item = shared.next;
	uint64_t from;

	if (q_row >= item.n_q_rows) {
		if (!bulk)
			bulk_zero(to, K::CHUNKS, 0, 1);
		return 0;
	}
	from = tensor_address(p.q, item.q_start + work_item_query(p, item, q_row), work_item_head(p, item, q_row));
	if (from % 16 == 0) {
		if (bulk)
			simt_copy_bulk(to, pointer_to<const void>(from), K::DIM * 2, &shared.item_full);
		return K::DIM * 2;
	}
	ATTENTION_ROLL
	for (uint32_t i = 0; !bulk && i < K::CHUNKS; i++)
		to[i] = query_chunk(from, K::DIM, i);
	return 0;
}

/* Give the next item and its queries to the consumers. */
template <class K>
SIMT_FUNCTION void
bulk_item_give(const cuda_attention_params &p, bulk_shared<K> &shared)
{
	uint32_t n = work_item_is_narrow(shared.next) ? K::narrow::Q_ROWS : K::wide::Q_ROWS, lane = simt_lane();
	simt_vec4 *queries = bulk_queries(shared, work_item_is_narrow(shared.next));
	uint32_t bytes = 0;

	ATTENTION_ROLL
	for (uint32_t q_row = lane; q_row < n; q_row += 32)
		bytes += bulk_query_copy(p, shared, q_row, &queries[q_row * K::Q_PITCH], false);
	ATTENTION_UNROLL
	for (int mask = 16; mask > 0; mask /= 2)
		bytes += simt_shuffle_xor(bytes, mask);
	simt_proxy_fence(); /* later bulk copies go to where this lane has stored */
	simt_warp_sync();
	if (lane == 0)
		simt_barrier_arrive_expecting(&shared.item_full, bytes);
	ATTENTION_ROLL
	for (uint32_t q_row = lane; q_row < n; q_row += 32)
		bulk_query_copy(p, shared, q_row, &queries[q_row * K::Q_PITCH], true);
}

/* Lanes 0 to 7 copy a group of a tile's keys each, lanes 8 to 15 the same groups of its values. */
struct bulk_group {
	uint32_t begin; /* its first token */
	uint32_t entry; /* of the page table; it may still be loading */
	bool visible;   /* something sees one of its tokens, so far as the block mask tells */
};

template <class K>
SIMT_FUNCTION bulk_group
bulk_group_load(const cuda_attention_params &p, const bulk_shared<K> &shared, uint32_t begin, uint32_t end)
{
	bulk_group group = { begin + simt_lane() % 8 * CUDA_BULK_TOKENS, 0, false };

	if (simt_lane() >= CUDA_N_PLANES * 8 || group.begin >= end || group.begin + CUDA_BULK_TOKENS <= shared.next.kv_first)
		return group;
	if (has_block_mask(p)) {
		uint32_t bits = shared.mask_bitmap.any[group.begin % CUDA_MASK_BITMAP_TOKENS / 32];

		if ((bits >> group.begin % 32 & 0xff) == 0)
			return group;
	}
	group.visible = true;
	group.entry = plan_entry(p.plan, shared.next.row, group.begin / p.pages.page_size);
	return group;
}

template <class K>
SIMT_FUNCTION void
bulk_tile_copy(const cuda_attention_params &p, bulk_shared<K> &shared, bulk_ring &ring, const bulk_group &group)
{
	constexpr uint32_t GROUP_CHUNKS = CUDA_BULK_TOKENS * K::CHUNKS;
	uint32_t lane = simt_lane(), plane = lane / 8 % CUDA_N_PLANES, n_lanes = CUDA_N_PLANES * 8;
	bool valid = group.visible && plan_page_check(p.plan, shared.next.row, group.entry, p.pages.n_pages);
	uint32_t valids = simt_ballot(valid);
	bulk_stage &stage = shared.stages[ring.stage];
	simt_vec4 *tile = shared.tile[ring.stage][CUDA_K];

	simt_barrier_wait(&stage.empty, bulk_parity(ring) ^ 1);
	if (valids != 0xffffffff >> (32 - n_lanes)) {
		/* Nothing sees these tokens, but a NaN that was there before would count. */
		ATTENTION_ROLL
		for (uint32_t i = 0; i < n_lanes; i++)
			if ((valids >> i & 1) == 0)
				bulk_zero(&tile[i / 8 * K::TILE + i % 8 * (GROUP_CHUNKS + 1)], GROUP_CHUNKS, lane, 32);
		simt_proxy_fence();
	}
	simt_warp_sync();
	if (lane < CUDA_N_PLANES) {
		uint32_t n = 0;

		ATTENTION_ROLL
		for (uint32_t bits = valids >> lane * 8 & 0xff; bits != 0; bits &= bits - 1)
			n++;
		simt_barrier_arrive_expecting(&stage.full[lane], n * GROUP_CHUNKS * 16);
	}
	if (valid)
		simt_copy_bulk(&tile[plane * K::TILE + lane % 8 * (GROUP_CHUNKS + 1)],
			       pointer_to<const void>(plane_address(p.pages.plane[plane], group.entry, shared.next.kv_head,
								    group.begin % p.pages.page_size)),
			       GROUP_CHUNKS * 16, &stage.full[plane]);
	bulk_ring_advance<K>(ring, work_item_is_narrow(shared.next));
}

template <class K>
SIMT_FUNCTION void
bulk_tiles_copy(const cuda_attention_params &p, bulk_shared<K> &shared, bulk_ring &ring, uint32_t begin, uint32_t end)
{
	bulk_group group;

	begin = bulk_visible_tile(p, shared, begin, end);
	group = bulk_group_load(p, shared, begin, end);
	ATTENTION_ROLL
	while (begin < end) {
		bulk_group next;

		begin = bulk_visible_tile(p, shared, begin + K::narrow::TOKENS, end);
		next = bulk_group_load(p, shared, begin, end);
		bulk_tile_copy(p, shared, ring, group);
		group = next;
	}
}

/* Wait until the consumers have read everything, and begin with the first stage. */
template <class K>
SIMT_FUNCTION void
bulk_ring_restart(bulk_shared<K> &shared, bulk_ring &ring)
{
	ATTENTION_ROLL
	for (ring.stage = 0; ring.stage < K::STAGES; ring.stage++)
		simt_barrier_wait(&shared.stages[ring.stage].empty, bulk_parity(ring) ^ 1);
	ring.stage = 0;
}

/* Find the next item; false if there is none, which the consumers are told.  Waits until they have the one before. */
template <class K>
SIMT_FUNCTION bool
bulk_item_find(const cuda_attention_params &p, bulk_shared<K> &shared, uint32_t number)
{
	simt_barrier_wait(&shared.item_empty, number % 2 ^ 1);
	simt_warp_sync(); /* this warp has read the item before */
	if (simt_lane() == 0) {
		shared.has_next = work_item_next(p, shared, &shared.next);
		if (!shared.has_next)
			simt_barrier_arrive(&shared.item_full);
	}
	simt_warp_sync();
	return shared.has_next;
}

template <class K>
SIMT_FUNCTION void
bulk_produce(const cuda_attention_params &p, bulk_shared<K> &shared)
{
	bulk_ring ring = { 0, 0 };
	bool narrow = true;

	ATTENTION_ROLL
	for (uint32_t number = 0; bulk_item_find(p, shared, number); number++) {
		const attention_work_item &item = shared.next;

		if (work_item_is_narrow(item) != narrow)
			bulk_ring_restart(shared, ring);
		narrow = work_item_is_narrow(item);
		bulk_item_give(p, shared);
		ATTENTION_ROLL
		for (uint32_t begin = item.begin, end; begin < item.end; begin = end) {
			end = span_begin<bulk_consumers>(p, shared, item, begin, false);
			bulk_tiles_copy(p, shared, ring, begin, end);
		}
		bulk_spans_end(p, false);
	}
}

/* Consumers */

/* A narrow tile's queries, so far as they are in registers: as the A of mma. */
template <class K> using bulk_kept = uint32_t[K::KEPT / 2][4];

/* Take the item that the producer gives; false if there is none. */
template <class K>
SIMT_FUNCTION bool
bulk_item_take(const cuda_attention_params &p, bulk_shared<K> &shared, attention_mma_state<K> &state, uint32_t number)
{
	simt_barrier_wait(&shared.item_full, number % 2);
	bulk_consumers::sync(); /* all have ended the item before */
	if (!shared.has_next)
		return false;
	if (simt_thread() == 0)
		shared.item = shared.next;
	mma_state_init(p, shared, shared.next, state);
	ATTENTION_UNROLL
	for (uint32_t chunk = 0; chunk < K::REST; chunk++)
		if (simt_thread() < K::narrow::Q_ROWS)
			shared.rest[simt_thread() * K::REST_PITCH + chunk] =
				shared.queries[simt_thread() * K::Q_PITCH + K::KEPT + chunk];
	bulk_consumers::sync();
	return true;
}

template <class K>
SIMT_FUNCTION void
bulk_queries_keep(const bulk_shared<K> &shared, bulk_kept<K> &kept)
{
	uint32_t lane = simt_opaque(simt_lane());

	ATTENTION_UNROLL
	for (uint32_t k = 0; k < K::KEPT / 2; k++)
		simt_ldmatrix_x4(kept[k], &shared.queries[lane % 16 * K::Q_PITCH + k * 2 + lane / 16]);
}

/* Load the queries of sixteen dims, as the A of mma. */
template <class S, class K>
SIMT_FUNCTION void
bulk_query_load(bulk_shared<K> &shared, const bulk_kept<K> &kept, uint32_t k, uint32_t a[4])
{
	uint32_t lane = simt_opaque(simt_lane()), q_row = warp_q_row<S>() + lane % 16;

	if (!S::NARROW) {
		simt_ldmatrix_x4(a, &bulk_queries(shared, false)[q_row * K::Q_PITCH + k * 2 + lane / 16]);
	} else if (k >= K::KEPT / 2) {
		simt_ldmatrix_x4(a, &shared.rest[q_row * K::REST_PITCH + k * 2 - K::KEPT + lane / 16]);
	} else {
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 4; i++)
			a[i] = kept[k][i];
	}
}

/* Add the products of the warp's q_rows with its tokens of a tile. */
template <class S, class K>
SIMT_FUNCTION void
bulk_add_qk(bulk_shared<K> &shared, const bulk_kept<K> &kept, const simt_vec4 *keys, float product[S::BLOCKS][4])
{
	uint32_t lane = simt_opaque(simt_lane()), position = warp_token<S>() + lane / 16 * 8 + lane % 8;
	const simt_vec4 *own = &keys[S::layout::at(S::layout::token(position), lane / 8 % 2)];

	ATTENTION_UNROLL
	for (uint32_t k = 0; k < K::DIM / 16; k++) {
		uint32_t a[4];

		bulk_query_load<S, K>(shared, kept, k, a);
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < S::BLOCKS; n += 2) {
			uint32_t b[4];

			simt_ldmatrix_x4(b, &own[S::layout::at(n, k * 2)]);
			mma<S::F16>(product[n], a, b);
			mma<S::F16>(product[n + 1], a, b + 2);
		}
	}
}

template <class S, class K>
SIMT_FUNCTION void
bulk_tile_attend(const cuda_attention_params &p, bulk_shared<K> &shared, const bulk_kept<K> &kept,
		 attention_mma_state<K> &state, const bulk_ring &ring, uint32_t begin)
{
	bool full = tile_is_full(p, shared.item, begin, begin + S::TOKENS);
	bulk_stage &stage = shared.stages[ring.stage];
	float weight[S::BLOCKS][4], rescale[2];

	ATTENTION_UNROLL
	for (uint32_t n = 0; n < S::BLOCKS; n++)
		weight[n][0] = weight[n][1] = weight[n][2] = weight[n][3] = 0;
	simt_barrier_wait(&stage.full[CUDA_K], bulk_parity(ring));
	bulk_add_qk<S, K>(shared, kept, shared.tile[ring.stage][CUDA_K], weight);
	mma_weights<S>(p, shared, state, begin, full, weight, rescale);
	simt_barrier_wait(&stage.full[CUDA_V], bulk_parity(ring));
	mma_pv<S, typename K::elements>(state, shared.tile[ring.stage][CUDA_V], full, weight, rescale);
	warp_arrive(&stage.empty);
}

/* Attend to the item, whose shape is S. */
template <class S, class K>
SIMT_FUNCTION void
bulk_item_attend(const cuda_attention_params &p, bulk_shared<K> &shared, attention_mma_state<K> &state, bulk_ring &ring)
{
	const attention_work_item &item = shared.item;
	bulk_kept<K> kept;

	if (S::NARROW) {
		bulk_queries_keep(shared, kept);
		warp_arrive(&shared.item_empty);
	}
	ATTENTION_ROLL
	for (uint32_t begin = item.begin, end; begin < item.end; begin = end) {
		end = span_begin<bulk_consumers>(p, shared, item, begin, true);
		ATTENTION_ROLL
		for (uint32_t at = bulk_visible_tile(p, shared, begin, end); at < end;
		     at = bulk_visible_tile(p, shared, at + K::narrow::TOKENS, end)) {
			bulk_tile_attend<S, K>(p, shared, kept, state, ring, at);
			bulk_ring_advance<K>(ring, S::NARROW);
		}
	}
	if (!S::NARROW)
		warp_arrive(&shared.item_empty);
}

template <class K>
SIMT_FUNCTION void
bulk_consume(const cuda_attention_params &p, bulk_shared<K> &shared)
{
	bulk_ring ring = { 0, 0 };
	attention_mma_state<K> state;
	bool narrow = true;

	ATTENTION_ROLL
	for (uint32_t number = 0; bulk_item_take(p, shared, state, number); number++) {
		if (work_item_is_narrow(shared.item) != narrow)
			ring.stage = 0; /* as the producer does */
		narrow = work_item_is_narrow(shared.item);
		if (narrow)
			bulk_item_attend<typename K::narrow>(p, shared, state, ring);
		else
			bulk_item_attend<typename K::wide>(p, shared, state, ring);
		bulk_spans_end(p, true);
		mma_results_store<bulk_consumers>(p, shared, state);
		if (work_item_is_last<bulk_consumers>(p, shared.item, &shared.last))
			work_item_combine<4, bulk_consumers>(p, shared.item, shared.combine);
	}
}

template <class K>
SIMT_FUNCTION void
bulk_attend(const cuda_attention_params &p)
{
	bulk_shared<K> &shared = SIMT_SHARED(bulk_shared<K>);

	bulk_begin(p, shared);
	if (simt_warp() < ATTENTION_WARPS)
		bulk_consume(p, shared);
	else
		bulk_produce(p, shared);
}

#define BULK_KERNEL(name, f16, dim) \
	ATTENTION_WHEN(ATTENTION_HAS(name), \
		       static_assert(sizeof(bulk_shared<bulk_shapes<half_elements<f16>, dim>>) <= CUDA_BULK_SHARED_##dim, \
				     "launchers allocate this much"); \
		       ATTENTION_KERNEL_OF(ATTENTION_NAME(name), CUDA_BULK_THREADS, 2) \
		       { bulk_attend<bulk_shapes<half_elements<f16>, dim>>(p); })

BULK_KERNEL(attention_bulk_f16_64, true, 64)
BULK_KERNEL(attention_bulk_f16_128, true, 128)
BULK_KERNEL(attention_bulk_bf16_64, false, 64)
BULK_KERNEL(attention_bulk_bf16_128, false, 128)

#endif
