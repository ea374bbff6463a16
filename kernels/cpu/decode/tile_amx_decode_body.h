/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_amx_decode_body.h - attention of few q_rows (decode) by AMX tiles
 *
 * Included after tile_amx_prefill_body.h and widen_bf16_body.h.  Tokens of bf16 at a constant stride, as in one page,
 * are loaded into tiles directly from the page; other tokens are first copied or converted to bf16, 16 tokens at a
 * time.
 *
 * Scores are K . Q^T, tokens by q_rows.  Values are P . V.  The product instruction multiplies pairs:
 * here two dims of one token, which are adjacent in memory; pairs of two tokens would have to be
 * interleaved first.  Therefore each weight is alone in its word: in the low half for even dims and in the
 * high half for odd dims, in two rows of weights.  For up to eight q_rows both rows fit one tile, so
 * there are no more products than with pairs of tokens.
 *
 * Additional primitives:
 *
 *   vec_round_bf16_words(v, low, high)    v rounded to bf16, in the low half of each word and in the high one
 *   vec_zip(even, odd, low, high)    interleaves lanes: the first 16, the other 16
 *   vec_load_columns(from, to)       to[i] lane t = from[t * AMX_ROWS + i], i below 4
 *
 * Tile rows of q_rows that a call does not have are undefined; so are their sums, which are never
 * read.
 */
#define AMX_DIMS 32u /* dims of a tile: two per word */

_Static_assert(KERNEL_PREFILL_Q_ROWS_AMX <= AMX_ROWS + 1, "the q_rows of decode fit one tile");
_Static_assert(TILE_TOKENS == 4 * AMX_ROWS, "four tiles of tokens");

/* Tiles of Q^T, one after another: word k of a q_row's query is column `q_row` of tile row k. */
static void
amx_decode_query(uint16_t *queries, uint32_t q_row, const void *from, uint32_t n)
{
	const struct widen_tables none = { 0 };
	_Alignas(64) uint16_t padded[PAGED_MAX_DIM];

	token_to_bf16(padded, (n + AMX_DIMS - 1) / AMX_DIMS * AMX_DIMS, &none, from, n, PAGED_BF16);
	for (uint32_t d = 0; d < n; d += 2)
		memcpy(queries + ((size_t)d / 2 * AMX_ROWS + q_row) * 2, padded + d, 2 * sizeof(*padded));
	for (uint32_t d = (n + 1) / 2; d % AMX_ROWS != 0; d++)
		memset(queries + ((size_t)d * AMX_ROWS + q_row) * 2, 0, 2 * sizeof(*padded));
}

#include "kernels/cpu/decode/tile_amx_decode_source_body.h"
#include "kernels/cpu/decode/tile_amx_decode_scores_body.h"
#include "kernels/cpu/decode/tile_amx_decode_values_body.h"

static const struct tile_decode_bf16_ops tile_decode_bf16_amx = {
	.token_elements = AMX_DIMS,
	.convert_q_rows = AMX_ROWS + 1, /* never reached: tokens are converted 16 tokens at a time instead */
	.convert_tokens = tokens_to_bf16,
	.convert_query = amx_decode_query,
	.scores = amx_decode_scores,
	.values = amx_decode_values,
	.values_seen = amx_decode_values_seen,
	.softmax = amx_decode_softmax,
};
