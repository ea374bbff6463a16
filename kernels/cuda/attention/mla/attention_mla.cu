/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores for pools that keep V in K (MLA): many query heads
 * per KV head; K of up to 576 dims; V is the first 512 dims of K or fewer; f16
 * or bf16, with queries of the same dtype; dims are multiples of 16.
 *
 * A tile of keys is copied to shared memory once and read twice: by rows as
 * keys, transposed as values.  A block has eight warps and processes a tile in
 * three steps:
 *
 * - the warps divide the QK products and store them in shared memory;
 * - a few threads of one warp compute a q_row's softmax and overwrite the q_row's
 *   products with its weights;
 * - each warp multiplies the weights of all q_rows by its own dims of the values,
 *   so the sums of 64 q_rows and 512 dims fit in the block's registers.
 *
 * A wide tile has 64 q_rows: each warp computes the products of 16 q_rows and
 * 16 of the 32 tokens.  A narrow tile has 16 q_rows: four warps share 16
 * tokens, a quarter of the dims each, and the memory saved is one more stage.
 *
 * While a tile is computed, the tiles after it are copied, and at the end of an
 * item those of the next one (attention_fetch.h).
 *
 * Weights are rounded to the pool's dtype before they are multiplied by
 * values.  The KV chunks of a tile are combined by combine_kv_chunks, which is
 * launched after this kernel.
 */
#include "kernels/cuda/attention/attention_halves.h"
#include "kernels/cuda/attention/attention_mma.h"

#define WARPS (CUDA_MLA_THREADS / 32)
#define TOKENS 32u
#define WARP_TOKENS (TOKENS / WARPS) /* that a warp copies */
#define MOST_BLOCKS (512 / 16 / WARPS) /* blocks of 16 value dims per warp */
/* Floats from q_row to q_row, chosen so that accesses to eight q_rows have no bank conflicts, by 8 and by 16 bytes. */
#define PITCH 40u

template <bool F16_, bool NARROW_> struct mla_shape {
	static constexpr bool F16 = F16_, NARROW = NARROW_;
	static constexpr uint32_t CHUNKS = 576 / 8;
	static constexpr uint32_t Q_ROWS = NARROW ? CUDA_TILE_Q_ROWS : CUDA_MAX_TILE_Q_ROWS;
	/* One less with CUDA_MLA_SHARED; one in all with CUDA_MLA_SHARED_LEAST, where every tile is narrow. */
	static constexpr uint32_t STAGES = NARROW ? 4 : 3;
	static constexpr uint32_t PARTS = NARROW ? 4 : 1;             /* partial sums of a product */
	static constexpr uint32_t LANES = CUDA_MLA_THREADS / Q_ROWS;  /* threads per q_row in the softmax */
	static constexpr uint32_t PAIRS = TOKENS / 2 / LANES;         /* pairs of tokens per thread in the softmax */
	static constexpr uint32_t TILE = TOKENS * CHUNKS;             /* chunks of a tile */
	static constexpr uint32_t GROUPS = Q_ROWS / CUDA_TILE_Q_ROWS; /* groups of 16 q_rows */
};

/* The beginning of the shared memory of both shapes. */
struct mla_common : attention_block {
	attention_work_item next;    /* as in attention_mma_shared */
	bool has_next;
	uint32_t maybe_non_finite; /* a product of this tile is NaN or infinite, so values may be too */
};

/* Where a q_row's results go, and the factor for its sums. */
struct mla_result {
	uint64_t to;
	float factor;
};

/* The tiles follow, as many as the launch has memory for (mla_stages()). */
template <class S> struct mla_shared : mla_common {
	float rescale[S::Q_ROWS]; /* factor for earlier sums */
	union {
		/* Part 0: scores, then overwritten by 32 half weights. */
		alignas(16) float product[S::PARTS][S::Q_ROWS][PITCH];
		mla_result result[S::Q_ROWS]; /* after the last tile */
	};
	alignas(128) simt_vec4 q[S::Q_ROWS * S::CHUNKS];
};

/* A thread's registers: the softmax state of its q_row. */
struct mla_state {
	attention_q_row q_row;
	float row_max;
	float row_sum; /* over this thread's tokens */
};

/* Sums of values, in mma's accumulator layout: [group of 16 q_rows][the warp's block of 16 dims][half of the block]. */
template <class S> using mla_values = float[S::GROUPS][MOST_BLOCKS][2][4];

template <class S>
SIMT_FUNCTION uint32_t
mla_thread_q_row()
{
	return simt_thread() / S::LANES;
}

/* The lane's token in a tile: a warp copies WARP_TOKENS of them, for each of which eight lanes find the address. */
SIMT_FUNCTION uint32_t
mla_own_token()
{
	return simt_warp() * WARP_TOKENS + simt_lane() / 8;
}

/* Start loading the page table's entry for the lane's token of the next tile to fetch, if there is one. */
template <class S>
SIMT_FUNCTION void
mla_entry_load(const cuda_attention_params &p, const mla_shared<S> &shared, mma_prefetch &prefetch)
{
	const attention_work_item &item = mma_prefetch_item(shared, prefetch);
	uint32_t token = prefetch.begin + mla_own_token();

	prefetch.slot = UINT32_MAX;
	if (item_token_visible(p, shared, item, token, prefetch.end)) {
		prefetch.entry = plan_entry(p.plan, item.row, token / p.pages.page_size);
		prefetch.slot = token % p.pages.page_size;
	}
}

/*
 * Start copying the warp's tokens to a stage's tile; `at` is the address of the lane's.  The lanes copy 64 chunks of
 * each token in two steps, and the rest of all four in one.  WHOLE: every token has an address.  Else those without
 * one become zeros.
 */
template <class S, bool WHOLE>
SIMT_FUNCTION void
mla_tokens_copy(const cuda_plane &from, simt_vec4 *to, uint64_t at)
{
	uint32_t lane = simt_opaque(simt_lane()), first = simt_warp() * WARP_TOKENS, chunks = from.dim / 8;
	uint32_t own = swizzle<S::CHUNKS>(first, lane), last = 64 + lane % 8;

	static_assert(WARP_TOKENS == 4 && S::CHUNKS == 64 + 32 / WARP_TOKENS, "the lanes' chunks");
	ATTENTION_UNROLL
	for (uint32_t i = 0; i < WARP_TOKENS; i++) {
		uint64_t token = (uint64_t)simt_shuffle((uint32_t)(at >> 32), (int)i * 8) << 32 |
				 simt_shuffle((uint32_t)at, (int)i * 8);
		bool valid = WHOLE || token != 0;
		const simt_vec4 *chunk = pointer_to<const simt_vec4>(valid ? token : from.address) + lane;

		ATTENTION_UNROLL
		for (uint32_t j = 0; j < 64; j += 32)
			if (lane + j < chunks)
				simt_copy_async16(&to[(own ^ i) + i * S::CHUNKS + j], chunk + j, valid);
	}
	if (last < chunks) {
		bool valid = WHOLE || at != 0;

		simt_copy_async16(&to[swizzle<S::CHUNKS>(first + lane / 8, last)],
				  pointer_to<const simt_vec4>(valid ? at : from.address) + last, valid);
	}
}

/* The stages of the launch's shared memory. */
template <class S>
SIMT_FUNCTION uint32_t
mla_stages(const cuda_attention_params &p)
{
	if (S::NARROW && p.shared_size < CUDA_MLA_SHARED)
		return 1;
	return p.shared_size < sizeof(mla_shared<S>) + S::STAGES * S::TILE * sizeof(simt_vec4) ? S::STAGES - 1
												: S::STAGES;
}

template <class S>
SIMT_FUNCTION simt_vec4 *
mla_tile_at(mla_shared<S> &shared, uint32_t stage)
{
	return reinterpret_cast<simt_vec4 *>(&shared + 1) + stage * S::TILE;
}

/*
 * Start copying the next tile as one cp.async group, and load the page table's entries for the one after it.  Tokens
 * that no q_row sees become zeros.
 */
template <class S>
SIMT_FUNCTION void
mla_tile_fetch(const cuda_attention_params &p, mla_shared<S> &shared, mma_prefetch &prefetch)
{
	const attention_work_item &item = mma_prefetch_item(shared, prefetch);
	const cuda_plane &from = p.pages.plane[CUDA_K];
	bool valid = prefetch.slot != UINT32_MAX && plan_page_check(p.plan, item.row, prefetch.entry, p.pages.n_pages);
	uint64_t at = valid ? plane_address(from, prefetch.entry, item.kv_head, prefetch.slot) : 0;

	if (simt_all(valid))
		mla_tokens_copy<S, true>(from, mla_tile_at(shared, prefetch.stage), at);
	else
		mla_tokens_copy<S, false>(from, mla_tile_at(shared, prefetch.stage), at);
	simt_copy_async_commit();
	prefetch.n_tiles++;
	prefetch.stage = prefetch.stage + 1 == mla_stages<S>(p) ? 0 : prefetch.stage + 1;
	prefetch.begin = next_visible_tile<TOKENS>(p, shared, prefetch.begin + TOKENS, prefetch.end);
	mla_entry_load(p, shared, prefetch);
}

/* May the next item's queries and tiles be fetched before this item ends? */
SIMT_FUNCTION bool
mla_next_is_alike(const cuda_attention_params &p, const mla_common &shared)
{
	return shared.has_next && !has_block_mask(p) &&
	       work_item_is_narrow(shared.next) == work_item_is_narrow(shared.item);
}

/* The members are those of mma_tiles. */
template <class S> struct mla_tiles {
	using shared_type = mla_shared<S>;
	static constexpr bool MAY_HAVE_ONE_STAGE = S::NARROW;

	SIMT_MEMBER uint32_t
	n_tokens(const shared_type &)
	{
		return TOKENS;
	}

	SIMT_MEMBER uint32_t
	n_stages(const cuda_attention_params &p, const shared_type &)
	{
		return mla_stages<S>(p);
	}

	SIMT_MEMBER uint32_t
	visible_from(const cuda_attention_params &p, const shared_type &shared, uint32_t begin, uint32_t end)
	{
		return next_visible_tile<TOKENS>(p, shared, begin, end);
	}

	SIMT_MEMBER bool
	may_go_on(const cuda_attention_params &p, const shared_type &shared)
	{
		return mla_next_is_alike(p, shared);
	}

	SIMT_MEMBER void
	load_entry(const cuda_attention_params &p, const shared_type &shared, mma_prefetch &prefetch)
	{
		mla_entry_load(p, shared, prefetch);
	}

	SIMT_MEMBER void
	fetch(const cuda_attention_params &p, shared_type &shared, mma_prefetch &prefetch)
	{
		mla_tile_fetch(p, shared, prefetch);
	}

	/* Queries are the newest group, so it is enough that one is left. */
	SIMT_MEMBER void
	wait(uint32_t n, bool queries)
	{
		n = queries ? 1 : n;
		if (n < S::STAGES - 2)
			simt_copy_async_wait<0>();
		else if (n == S::STAGES - 2)
			simt_copy_async_wait<(int)S::STAGES - 3>();
		else
			simt_copy_async_wait<(int)S::STAGES - 2>();
	}
};

/* Compute the warp's products of 16 q_rows with 16 tokens, over all dims or the warp's part, to shared memory. */
template <class S>
SIMT_FUNCTION void
mla_products_make(const cuda_attention_params &p, mla_shared<S> &shared, const simt_vec4 *keys)
{
	uint32_t lane = simt_lane(), group = simt_warp() / 2, first = simt_warp() % 2 * 16;
	uint32_t steps = p.pages.plane[CUDA_K].dim / 16, q_rows = S::NARROW ? 0 : group * 16;
	uint32_t begin = S::NARROW ? steps * group / 4 : 0, end = S::NARROW ? steps * (group + 1) / 4 : steps;
	uint32_t q_row = q_rows + lane % 16, token = first + lane / 16 * 8 + lane % 8;
	float product[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };

	if (q_rows >= shared.item.n_q_rows)
		return;
	ATTENTION_UNROLL_4
	for (uint32_t k = begin; k < end; k++) {
		uint32_t a[4], b[4];

		simt_ldmatrix_x4(a, &shared.q[swizzle<S::CHUNKS>(q_row, k * 2 + lane / 16)]);
		simt_ldmatrix_x4(b, &keys[swizzle<S::CHUNKS>(token, k * 2 + lane / 8 % 2)]);
		mma<S::F16>(product[0], a, b);
		mma<S::F16>(product[1], a, b + 2);
	}
	ATTENTION_UNROLL
	for (uint32_t n = 0; n < 2; n++)
		ATTENTION_UNROLL
		for (uint32_t i = 0; i < 2; i++) {
			float *to = &shared.product[S::NARROW ? group : 0][q_rows + lane / 4 + i * 8]
						   [first + n * 8 + lane % 4 * 2];

			*reinterpret_cast<simt_vec2 *>(to) = { float_as_bits(product[n][i * 2]),
							       float_as_bits(product[n][i * 2 + 1]) };
		}
}

/* The first token of this thread's j-th pair of tokens. */
template <class S>
SIMT_FUNCTION uint32_t
mla_pair_token(uint32_t j)
{
	return (simt_thread() % S::LANES + j * S::LANES) * 2;
}

SIMT_FUNCTION simt_vec2 *
mla_pair_at(float *q_row, uint32_t i)
{
	return reinterpret_cast<simt_vec2 *>(q_row + i);
}

/* Convert a product to a score; `full`: every q_row sees every token. */
template <class S>
SIMT_FUNCTION float
mla_score_make(const cuda_attention_params &p, mla_shared<S> &shared, const attention_q_row &q_row, uint32_t token,
	       bool full, float product)
{
	if ((float_as_bits(product) & 0x7f800000) == 0x7f800000 && mla_thread_q_row<S>() < shared.item.n_q_rows)
		simt_atomic_or(&shared.maybe_non_finite, 1);
	if (!full && !q_row_sees(p, shared.item, shared.mask_bitmap, q_row, token))
		return -infinity();
	return q_row_score(p, shared.item, q_row, token, product);
}

/*
 * Compute this thread's scores of a tile.  With mods the loop is not unrolled and its operands are in shared memory, so
 * the code has one copy of the mods.
 */
template <class S>
SIMT_FUNCTION void
mla_scores_make(const cuda_attention_params &p, mla_shared<S> &shared, const attention_q_row &q_row, uint32_t begin,
		bool full, float score[S::PAIRS][2])
{
	constexpr bool mods = attention_mod::has_mask || attention_mod::has_score;

	ATTENTION_ROLL
	for (uint32_t e = 0; mods && e < S::PAIRS * 2; e++) {
		uint32_t token = mla_pair_token<S>(e / 2) + e % 2;
		float product = 0;

		ATTENTION_UNROLL
		for (uint32_t part = 0; part < S::PARTS; part++)
			product += shared.product[part][mla_thread_q_row<S>()][token];
		shared.product[0][mla_thread_q_row<S>()][token] =
			mla_score_make<S>(p, shared, q_row, begin + token, full, product);
	}
	ATTENTION_UNROLL
	for (uint32_t j = 0; j < S::PAIRS; j++) {
		score[j][0] = score[j][1] = 0;
		ATTENTION_UNROLL
		for (uint32_t part = 0; part < (mods ? 1 : S::PARTS); part++) {
			simt_vec2 two = *mla_pair_at(shared.product[part][mla_thread_q_row<S>()], mla_pair_token<S>(j));

			score[j][0] += bits_as_float(two.x);
			score[j][1] += bits_as_float(two.y);
		}
		ATTENTION_UNROLL
		for (uint32_t i = 0; !mods && i < 2; i++)
			score[j][i] = mla_score_make<S>(p, shared, q_row, begin + mla_pair_token<S>(j) + i, full,
							score[j][i]);
	}
}

/* Address of eight weights of a q_row, in the memory of its products; swizzled so that eight q_rows use all banks. */
template <class S>
SIMT_FUNCTION simt_vec4 *
mla_weights_at(mla_shared<S> &shared, uint32_t q_row, uint32_t chunk)
{
	return reinterpret_cast<simt_vec4 *>(shared.product[0][q_row]) + (chunk ^ (q_row / 4 & 1));
}

/* Convert products to softmax weights and update the q_row's running maximum and sum. */
template <class S>
SIMT_FUNCTION void
mla_weights_make(const cuda_attention_params &p, mla_shared<S> &shared, mla_state &state, uint32_t begin, bool full)
{
	float score[S::PAIRS][2], top = -infinity(), rescale;
	uint32_t q_row = simt_opaque(mla_thread_q_row<S>());

	mla_scores_make<S>(p, shared, state.q_row, begin, full, score);
	ATTENTION_UNROLL
	for (uint32_t j = 0; j < S::PAIRS; j++)
		top = softmax_max(softmax_max(top, score[j][0]), score[j][1]);
	ATTENTION_UNROLL
	for (uint32_t step = 1; step < S::LANES; step *= 2)
		top = softmax_max(top, simt_shuffle_xor(top, (int)step));
	top = softmax_max(state.row_max, top);
	rescale = softmax_weight(state.row_max, top);
	state.row_max = top;
	state.row_sum *= rescale;
	if (simt_thread() % S::LANES == 0)
		shared.rescale[q_row] = rescale;
	simt_warp_sync(); /* all lanes have read the q_row's products; its weights overwrite them */
	ATTENTION_UNROLL
	for (uint32_t j = 0; j < S::PAIRS; j++) {
		uint32_t token = mla_pair_token<S>(j);
		float a = softmax_weight(score[j][0], top), b = softmax_weight(score[j][1], top);

		state.row_sum += a;
		state.row_sum += b;
		reinterpret_cast<uint32_t *>(mla_weights_at<S>(shared, q_row, token / 8))[token % 8 / 2] =
			round_to_halves<S::F16>(a, b);
	}
}

/* The first dim of the warp's block n of 16 dims; the last block may lie past v_dim. */
SIMT_FUNCTION uint32_t
mla_block_dim(uint32_t n)
{
	return (simt_warp() + n * WARPS) * 16;
}

/* A bit for each token of the tile: do the warp's dims of its values have a NaN or infinity? */
template <class S>
SIMT_FUNCTION uint32_t
mla_non_finite_tokens(const simt_vec4 *values, uint32_t v_dim)
{
	bool non_finite = false;

	ATTENTION_ROLL
	for (uint32_t n = 0; n < MOST_BLOCKS * 2 && mla_block_dim(n / 2) < v_dim; n++)
		non_finite |= half_elements<S::F16>::non_finite(
			values[swizzle<S::CHUNKS>(simt_lane(), mla_block_dim(n / 2) / 8 + n % 2)]);
	return simt_ballot(non_finite);
}

/*
 * Add the values of one token that has a NaN or infinity, for q_rows that give
 * it a nonzero weight.  The tensor cores would multiply it by the zero weights
 * of the other q_rows, which gives NaN.
 */
template <class S>
SIMT_FUNCTION void
mla_non_finite_token_add(mla_shared<S> &shared, const simt_vec4 *tile, uint32_t token, uint32_t v_dim,
			 mla_values<S> &values)
{
	const uint16_t *elements = reinterpret_cast<const uint16_t *>(tile);
	const uint32_t dtype = S::F16 ? CUDA_F16 : CUDA_BF16;

	ATTENTION_UNROLL
	for (uint32_t n = 0; n < MOST_BLOCKS * 2; n++) {
		uint32_t at = swizzle<S::CHUNKS>(token, mla_block_dim(n / 2) / 8 + n % 2) * 8 + simt_lane() % 4 * 2;

		if (mla_block_dim(n / 2) >= v_dim)
			continue;
		ATTENTION_UNROLL
		for (uint32_t m = 0; m < S::GROUPS * 2; m++) {
			const uint16_t *halves = reinterpret_cast<const uint16_t *>(
				mla_weights_at<S>(shared, m * 8 + simt_lane() / 4, token / 8));
			float weight = half_widen(halves[token % 8], dtype);

			ATTENTION_UNROLL
			for (uint32_t i = 0; i < 2; i++) {
				float &to = values[m / 2][n / 2][n % 2][m % 2 * 2 + i];

				if (weight != 0)
					to = simt_fma(weight, half_widen(elements[at + i], dtype), to);
			}
		}
	}
}

/* Rescale the sums of q_rows whose running maximum changed.  Usually no q_row's did. */
template <class S>
SIMT_FUNCTION void
mla_values_rescale(const mla_shared<S> &shared, mla_values<S> &values)
{
	ATTENTION_UNROLL
	for (uint32_t m = 0; m < S::GROUPS * 2; m++) {
		float rescale = shared.rescale[m * 8 + simt_lane() / 4];

		if (rescale == 1)
			continue;
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < MOST_BLOCKS * 2; n++) {
			values[m / 2][n / 2][n % 2][m % 2 * 2] *= rescale;
			values[m / 2][n / 2][n % 2][m % 2 * 2 + 1] *= rescale;
		}
	}
}

/* Add the weights of all q_rows times the tile's values, which are its keys. */
template <class S>
SIMT_FUNCTION void
mla_values_add(const cuda_attention_params &p, mla_shared<S> &shared, const simt_vec4 *tile, mla_values<S> &values)
{
	uint32_t lane = simt_lane(), v_dim = p.pages.plane[CUDA_V].dim, n_q_rows = shared.item.n_q_rows;
	/*
	 * A value that is NaN or infinite makes every product with its token NaN
	 * or infinite, which sets `maybe_non_finite`.
	 */
	uint32_t non_finite = shared.maybe_non_finite == 0 ? 0 : mla_non_finite_tokens<S>(tile, v_dim);
	/* The lane's row of the warp's first block; the others are at constant distances, multiples of 8 rows or chunks. */
	const simt_vec4 *own = &tile[swizzle<S::CHUNKS>(lane % 16, mla_block_dim(0) / 8 + lane / 16)];

	mla_values_rescale<S>(shared, values);
	ATTENTION_UNROLL
	for (uint32_t k = 0; k < TOKENS / 16; k++) {
		uint32_t low = UINT32_MAX, high = UINT32_MAX, a[S::GROUPS][4];

		if (non_finite != 0) {
			uint32_t token = k * 16 + simt_opaque(simt_lane()) % 4 * 2;

			low = pair_mask(non_finite, token);
			high = pair_mask(non_finite, token + 8);
		}
		ATTENTION_UNROLL
		for (uint32_t m = 0; m < S::GROUPS; m++)
			simt_ldmatrix_x4(a[m], mla_weights_at<S>(shared, m * 16 + lane % 16, k * 2 + lane / 16));
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < MOST_BLOCKS; n++) {
			uint32_t b[4];

			if (mla_block_dim(n) >= v_dim)
				break;
			simt_ldmatrix_x4_trans(b, &own[k * 16 * S::CHUNKS + n * WARPS * 2]);
			if (non_finite != 0) {
				b[0] &= low, b[1] &= high;
				b[2] &= low, b[3] &= high;
			}
			ATTENTION_UNROLL
			for (uint32_t m = 0; m < S::GROUPS; m++) {
				if (m * 16 >= n_q_rows)
					break;
				mma<S::F16>(values[m][n][0], a[m], b);
				mma<S::F16>(values[m][n][1], a[m], b + 2);
			}
		}
	}
	ATTENTION_ROLL
	for (uint32_t token = 0; non_finite != 0; token++, non_finite >>= 1)
		if (non_finite & 1)
			mla_non_finite_token_add<S>(shared, tile, token, v_dim, values);
}

template <class S>
SIMT_FUNCTION void
mla_tile_attend(const cuda_attention_params &p, mla_shared<S> &shared, mla_state &state, const simt_vec4 *tile,
		uint32_t begin, mla_values<S> &values)
{
	bool full = tile_is_full(p, shared.item, begin, begin + TOKENS);

	if (simt_thread() == 0)
		shared.maybe_non_finite = 0;
	mla_products_make<S>(p, shared, tile);
	simt_sync();
	mla_weights_make<S>(p, shared, state, begin, full);
	simt_sync();
	mla_values_add<S>(p, shared, tile, values);
}

/* Call store(q_row, number of the pair in it, a, b) for each pair of this thread's sums. */
template <class S, class F>
SIMT_FUNCTION void
mla_pairs_for_each(const cuda_attention_params &p, uint32_t n_q_rows, const mla_values<S> &values, F store)
{
	uint32_t lane = simt_opaque(simt_lane()), v_dim = p.pages.plane[CUDA_V].dim;

	ATTENTION_UNROLL
	for (uint32_t m = 0; m < S::GROUPS * 2; m++) {
		uint32_t q_row = m * 8 + lane / 4;

		if (q_row >= n_q_rows)
			break;
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < MOST_BLOCKS * 2; n++)
			if (mla_block_dim(n / 2) < v_dim)
				store(q_row, mla_block_dim(n / 2) / 2 + n % 2 * 4 + lane % 4,
				      values[m / 2][n / 2][n % 2][m % 2 * 2], values[m / 2][n / 2][n % 2][m % 2 * 2 + 1]);
	}
}

/* Store the results, or the states and sums of a KV chunk.  Four lanes store 32 adjacent bytes of f32. */
template <class S>
SIMT_FUNCTION void
mla_result_store(const cuda_attention_params &p, mla_shared<S> &shared, const mla_state &state,
		 const mla_values<S> &values)
{
	const attention_work_item &item = shared.item;
	uint32_t own = mla_thread_q_row<S>();
	float row_sum = state.row_sum;

	ATTENTION_UNROLL
	for (uint32_t step = 1; step < S::LANES; step *= 2)
		row_sum += simt_shuffle_xor(row_sum, (int)step);
	if (own < item.n_q_rows && simt_thread() % S::LANES == 0)
		shared.result[own] = { q_row_values_address(p, item, own),
				       softmax_state_store(p, item, own, state.row_max, row_sum, true) };
	simt_sync();
	if (item.n_kv_chunks > 1)
		mla_pairs_for_each<S>(p, item.n_q_rows, values, [&](uint32_t q_row, uint32_t pair, float a, float b) {
			pointer_to<simt_vec2>(shared.result[q_row].to)[pair] = { float_as_bits(a), float_as_bits(b) };
		});
	else
		mla_pairs_for_each<S>(p, item.n_q_rows, values, [&](uint32_t q_row, uint32_t pair, float a, float b) {
			const mla_result &to = shared.result[q_row];

			pair_store(to.to, p.out.dtype, pair,
				   { float_as_bits(a * to.factor), float_as_bits(b * to.factor) });
		});
}

template <class S>
SIMT_FUNCTION void
mla_item_attend(const cuda_attention_params &p, mma_prefetch &prefetch)
{
	mla_shared<S> &shared = SIMT_SHARED(mla_shared<S>);
	const attention_work_item &item = shared.item;
	mla_values<S> values;
	mla_state state;

	if (!prefetch.has_queries)
		q_rows_copy<S>(p, item, shared.q, S::Q_ROWS);
	prefetch.found = false;
	state.q_row = q_row_make(p, item, mla_thread_q_row<S>());
	state.row_max = -infinity();
	state.row_sum = 0;
	ATTENTION_UNROLL
	for (uint32_t m = 0; m < S::GROUPS; m++)
		ATTENTION_UNROLL
		for (uint32_t n = 0; n < MOST_BLOCKS * 8; n++)
			values[m][n / 8][n / 4 % 2][n % 4] = 0;
	ATTENTION_ROLL
	for (uint32_t begin = item.begin, end; begin < item.end; begin = end) {
		end = mask_bitmap_end(p, item, begin);
		if (has_block_mask(p))
			mask_bitmap_build(p, item, begin / CUDA_MASK_BITMAP_TOKENS * CUDA_MASK_BITMAP_TOKENS,
					  shared.mask_bitmap);
		mma_tiles_for_each<mla_tiles<S>>(p, shared, prefetch, begin, end, [&](uint32_t stage, uint32_t at) {
			mla_tile_attend<S>(p, shared, state, mla_tile_at(shared, stage), at, values);
		});
	}
	if (!prefetch.found) { /* there was no tile */
		prefetch.in_next = false;
		simt_copy_async_wait<0>();
		mma_next_find(p, shared, prefetch);
	}
	simt_sync(); /* all warps have read the queries, and the weights, whose memory has the results */
	prefetch.has_queries = mla_next_is_alike(p, shared);
	if (prefetch.has_queries)
		q_rows_copy<S>(p, shared.next, shared.q, S::Q_ROWS);
	mla_result_store<S>(p, shared, state, values);
}

/* The block's loop over its work items, as in mma_attend(); combine_kv_chunks combines KV chunks. */
template <bool F16>
SIMT_FUNCTION void
mla_attend(const cuda_attention_params &p)
{
	mla_common &shared = SIMT_SHARED(mla_common);
	mma_prefetch prefetch = {};

	if (simt_thread() == 0) {
		work_items_begin(p, shared);
		shared.has_next = work_item_next(p, shared, &shared.next);
	}
	ATTENTION_ROLL
	for (;;) {
		simt_sync(); /* the next item is known; all warps have read this one */
		if (!shared.has_next)
			break;
		if (simt_thread() == 0)
			shared.item = shared.next;
		simt_sync();
		if (work_item_is_narrow(shared.item))
			mla_item_attend<mla_shape<F16, true>>(p, prefetch);
		else
			mla_item_attend<mla_shape<F16, false>>(p, prefetch);
	}
}

/* A constant: NVRTC takes a function without annotations for one of the host. */
template <class S>
constexpr bool mla_fits =
	sizeof(mla_shared<S>) + S::STAGES * S::TILE * sizeof(simt_vec4) <= CUDA_MLA_SHARED_MORE &&
	sizeof(mla_shared<S>) + (S::STAGES - 1) * S::TILE * sizeof(simt_vec4) <= CUDA_MLA_SHARED;
static_assert(mla_fits<mla_shape<true, true>> && mla_fits<mla_shape<true, false>>, "launchers allocate this much");
static_assert(sizeof(mla_shared<mla_shape<true, true>>) + mla_shape<true, true>::TILE * sizeof(simt_vec4) <=
		      CUDA_MLA_SHARED_LEAST,
	      "launchers allocate this much");

ATTENTION_INSTANCE_OF(attention_mla_f16, CUDA_MLA_THREADS, 1, mla_attend<true>)
ATTENTION_INSTANCE_OF(attention_mla_bf16, CUDA_MLA_THREADS, 1, mla_attend<false>)
