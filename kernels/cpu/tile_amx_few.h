/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_amx_few.h - attention of few query lines, as decode has them, by tiles of AMX
 *
 * Included after tile_amx.h and widen_bf16.h.  Rows of bf16 that lie at equal
 * distances, as those of one page do, are loaded into tiles from where they
 * are; others are made so, 16 tokens at a time.  Scores are K . Q^T, tokens by
 * lines.  Values are P . V, of which a product takes pairs: of two dims of one
 * token here, as a row has them, where pairs of tokens would have to be
 * interleaved first.  So a weight stands alone in its word, for even dims in
 * the low half and for odd ones in the high half, in two rows of weights: of
 * up to eight lines they fill one tile, so that there are no more products
 * than pairs of tokens would take.
 * With these words more:
 *
 *   vec_round_words(v, low, high)    v rounded to bf16, in the low half of each word and in the high one
 *   vec_zip(even, odd, low, high)    lanes of both in turn: the first 16, the other 16
 *   vec_load_columns(from, to)       to[i] lane t = from[t * AMX_ROWS + i], i below 4
 *
 * A tile's rows of lines that a task does not have are whatever is there; so
 * are then the sums of those lines, which nobody reads.
 */
#define FEW_DIMS 32u /* of a tile: two in each word */

_Static_assert(KERNEL_MANY_LINES_AMX <= AMX_ROWS + 1, "the lines of a row with few are one tile's");
_Static_assert(TILE_TOKENS == 4 * AMX_ROWS, "four tiles of tokens");

/* Word k of a line is column `line` of row k: tiles of Q^T, one after the other. */
static void
few_query(uint16_t *queries, uint32_t line, const void *from, uint32_t n)
{
	const struct widen_tables none = { 0 };
	_Alignas(64) uint16_t row[PAGED_MAX_DIM];

	row_pack(row, (n + FEW_DIMS - 1) / FEW_DIMS * FEW_DIMS, &none, from, n, PAGED_BF16);
	for (uint32_t d = 0; d < n; d += 2)
		memcpy(queries + ((size_t)d / 2 * AMX_ROWS + line) * 2, row + d, 2 * sizeof(*row));
	for (uint32_t d = (n + 1) / 2; d % AMX_ROWS != 0; d++)
		memset(queries + ((size_t)d * AMX_ROWS + line) * 2, 0, 2 * sizeof(*row));
}

#include "kernels/cpu/tile_amx_few_rows.h"
#include "kernels/cpu/tile_amx_few_scores.h"
#include "kernels/cpu/tile_amx_few_values.h"

static const struct tile_dot_ops tile_dots_amx = {
	.row_elements = FEW_DIMS,
	.pack_lines = AMX_ROWS + 1, /* none: some rows are made at a time */
	.pack = rows_pack,
	.query = few_query,
	.scores = few_scores,
	.values = few_values,
	.values_seen = few_values_seen,
	.softmax = few_softmax,
};
