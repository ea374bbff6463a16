/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_dots.h - the products of few lines with rows as they lie in pages, of bf16 pairs
 *
 * Included after tile_packed.h, of LANES 16 and LINE_BLOCK 4, with these words
 * beside vec_dot().  A vector of pairs is 32 bf16 in a row, and `byte_vec` 64
 * bytes, of which four quarters are 16 each; a cast makes one of the other.
 *
 *   vec_round_pairs(low, high)       floats, rounded to nearest even: those of `low` first
 *   vec_load_half, vec_store_half    a vector's first 16 bf16; zeros after those that are loaded
 *   vec_half(v)                      floats that fit bf16 as those 16, zeros after them
 *   vec_choose_halves(a, b, order)   element order[i] of both in a row, for each of 32
 *   bytes_load
 *   bytes_order(v, order)            word order[i] of v, for each of 16
 *   bytes_look_up(table, v)          the entry for each byte's low seven bits, of 64 in each of two
 *   bytes_abs(v)                     of signed numbers; -128 stays
 *   bytes_unless_0(v, of)            v where `of` is no 0, else 0
 *   bytes_sign(v, of)                v, with the high bits of `of` too
 *   bytes_zip_low(a, b), bytes_zip_high(a, b)   a, b, a, b of the quarters' first or second eights
 *
 * vec_dot() adds two products to a lane, so a lane of scores takes two dims
 * and a lane of values two tokens: always 2i and 2i + 1 of a tile, and where a
 * line sees one of them alone, the other is a row of zeros.  So a line's bits
 * do not depend on what the lines beside it see.
 */
#include "kernels/cpu/widen_bf16.h"

/* Dims of a step, and of one in what is left of a row. */
#define DOT_DIMS 64u
#define DOT_VECS (DOT_DIMS / LANES)

/*
 * What comes in the next tile is brought to the second cache as fetch() does.
 * The core drops such a request where too many are under way, so it is made
 * again so many tokens before the row is used.  The first cache is left alone:
 * the arithmetic hides what a row of the second takes.
 */
#define FETCH_TOKENS 32u

/* Rows near and far to fetch beside tokens t .. t + n - 1; where nobody knows what comes, what is there already. */
struct fetch {
	const void *near[TILE_TOKEN_BLOCK], *far[TILE_TOKEN_BLOCK];
};

INLINE struct fetch
fetch_beside(const struct tile_rows *rows, const struct tile_rows *ahead, uint32_t t, uint32_t n)
{
	const void *const *near = &rows->token[t];
	bool whole = ahead != NULL && ahead->n_tokens == TILE_TOKENS;
	struct fetch fetch;

	if (t + FETCH_TOKENS < rows->n_tokens)
		near = &rows->token[t + FETCH_TOKENS];
	else if (whole)
		near = &ahead->token[(t + FETCH_TOKENS) % TILE_TOKENS];
	UNROLL
	for (uint32_t j = 0; j < n; j++) {
		fetch.near[j] = near[j];
		fetch.far[j] = whole ? ahead->token[fetch_turn(t + j)] : near[j];
	}
	return fetch;
}

/* Of the j-th of them, what n dims from d on take. */
INLINE void
fetch_dims(const struct fetch *fetch, uint32_t j, enum paged_dtype dtype, uint32_t d, uint32_t n)
{
	UNROLL
	for (uint32_t i = 0; i < n * size_of(dtype); i += 64) {
		__builtin_prefetch((const uint8_t *)fetch->near[j] + (size_t)d * size_of(dtype) + i, 0, 2);
		__builtin_prefetch((const uint8_t *)fetch->far[j] + (size_t)d * size_of(dtype) + i, 0, 2);
	}
}

/* A function of its own for each dtype and number of lines: together they would run out of registers. */
#define EACH_LINES(what, name, dtype) \
	what(name, dtype, 1) what(name, dtype, 2) what(name, dtype, 3) what(name, dtype, 4)
#define EACH_LINES_AND_DTYPE(what)         \
	EACH_LINES(what, bf16, PAGED_BF16) \
	EACH_LINES(what, e4m3, PAGED_E4M3) \
	EACH_LINES(what, e5m2, PAGED_E5M2) \
	EACH_LINES(what, i8, PAGED_I8)

#include "kernels/cpu/tile_dots_scores.h"
#include "kernels/cpu/tile_dots_values.h"

/* With so many lines rows of bytes are converted once, ahead of their use. */
#define DOT_PACK_LINES 9u

#define TILE_DOTS                                                                                       \
	{                                                                                               \
		.row_elements = LANES, .pack_lines = DOT_PACK_LINES, .pack = rows_pack, .query = query, \
		.scores = dot_scores, .values = dot_values, .values_seen = dot_values_seen,             \
	}
