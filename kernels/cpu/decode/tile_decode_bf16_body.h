/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_decode_bf16_body.h - products of few q_rows with tokens read in place from pages, by bf16 pairs
 *
 * Included after tile_prefill_body.h, with LANES 16 and Q_ROW_BLOCK 4.  Primitives in addition to vec_dot():
 * a vector of pairs is 32 consecutive bf16, and a `byte_vec` is 64 bytes in four quarters of 16; a
 * cast converts between them.
 *
 *   vec_round_pairs(low, high)       floats, rounded to nearest even: those of `low` first
 *   vec_load_half, vec_store_half    a vector's first 16 bf16; a load sets the others to zero
 *   vec_half(v)                      floats that bf16 represents exactly, as the first 16 bf16; zeros after them
 *   vec_permute_halves(a, b, order)  element order[i] of a and b concatenated, for each of 32
 *   bytes_load
 *   bytes_permute(v, order)          word order[i] of v, for each of 16
 *   bytes_look_up(table, v)          the entry for each byte's low seven bits, in a table of two times 64
 *   bytes_abs(v)                     of signed bytes; -128 stays
 *   bytes_unless_0(v, of)            v where `of` is not 0, else 0
 *   bytes_sign(v, of)                v, or-ed with the high bits of `of`
 *   bytes_zip_low(a, b), bytes_zip_high(a, b)   interleaves the first or second eight bytes of each quarter
 *
 * vec_dot() adds two products to a lane.  A lane of scores takes two dims, and a lane of values two
 * tokens: always tokens 2i and 2i + 1 of a tile.  If a q_row sees only one of them, the other is
 * replaced by a token of zeros.  Therefore a q_row's bits do not depend on what other q_rows see.
 */
#include "kernels/cpu/decode/widen_bf16_body.h"

/* Dims of a step, and vectors of values in it; what is left of a token takes steps of LANES dims. */
#define BF16_STEP_DIMS 64u
#define BF16_STEP_VECS (BF16_STEP_DIMS / LANES)

/*
 * prefetch_token() brings the tokens of the next tile to the L2 cache.  The core drops prefetches when too many
 * are in flight, so each token is prefetched again this many tokens before its use.  L1 is not targeted:
 * the arithmetic hides the latency of L2.
 */
#define PREFETCH_DISTANCE 32u

/*
 * Tokens to prefetch during tokens t .. t + n - 1: near ones, used soon, and far ones, of the next tile.
 * Where the next tokens are unknown, tokens already in the cache take their place.
 */
struct prefetch_pair {
	const void *near[TILE_TOKEN_BLOCK], *far[TILE_TOKEN_BLOCK];
};

INLINE struct prefetch_pair
prefetch_pair(const struct tile_tokens *tokens, const struct tile_tokens *prefetch, uint32_t t, uint32_t n)
{
	const void *const *near = &tokens->token[t];
	bool whole = prefetch != NULL && prefetch->n_tokens == TILE_TOKENS;
	struct prefetch_pair pair;

	if (t + PREFETCH_DISTANCE < tokens->n_tokens)
		near = &tokens->token[t + PREFETCH_DISTANCE];
	else if (whole)
		near = &prefetch->token[(t + PREFETCH_DISTANCE) % TILE_TOKENS];
	UNROLL
	for (uint32_t j = 0; j < n; j++) {
		pair.near[j] = near[j];
		pair.far[j] = whole ? prefetch->token[prefetch_order(t + j)] : near[j];
	}
	return pair;
}

/* Prefetches n dims from d on, of the j-th tokens. */
INLINE void
prefetch_dims(const struct prefetch_pair *pair, uint32_t j, enum paged_dtype dtype, uint32_t d, uint32_t n)
{
	UNROLL
	for (uint32_t i = 0; i < n * size_of(dtype); i += 64) {
		__builtin_prefetch((const uint8_t *)pair->near[j] + (size_t)d * size_of(dtype) + i, 0, 2);
		__builtin_prefetch((const uint8_t *)pair->far[j] + (size_t)d * size_of(dtype) + i, 0, 2);
	}
}

/*
 * A separate function for each dtype and number of q_rows: inlined into one function they would
 * exhaust the registers.
 */
#define EACH_Q_ROWS(what, name, dtype) \
	what(name, dtype, 1) what(name, dtype, 2) what(name, dtype, 3) what(name, dtype, 4)
#define EACH_Q_ROWS_AND_DTYPE(what)         \
	EACH_Q_ROWS(what, bf16, PAGED_BF16) \
	EACH_Q_ROWS(what, e4m3, PAGED_E4M3) \
	EACH_Q_ROWS(what, e5m2, PAGED_E5M2) \
	EACH_Q_ROWS(what, i8, PAGED_I8)

#include "kernels/cpu/decode/tile_decode_bf16_scores_body.h"
#include "kernels/cpu/decode/tile_decode_bf16_values_body.h"

/* From this many q_rows on, tokens of bytes are converted once before their use. */
#define BF16_CONVERT_Q_ROWS 9u

#define TILE_DECODE_BF16                                                                                          \
	{                                                                                                         \
		.token_elements = LANES, .convert_q_rows = BF16_CONVERT_Q_ROWS, .convert_tokens = tokens_to_bf16, \
		.convert_query = bf16_query, .scores = bf16_scores, .values = bf16_values,                        \
		.values_seen = bf16_values_seen,                                                                  \
	}
