/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_amx_prefill_body.h - the products of tile_prefill_body.h's pairs by AMX tiles
 *
 * Included after tile_prefill_body.h, with LANES 16: AMX reads its panels as they are.  It needs these
 * additional primitives.  A tile is 16 rows of 16 words and is named by a literal number; a stride is
 * in bytes:
 *
 *   AMX_ZERO(t)
 *   AMX_LOAD(t, at, stride), AMX_STORE(t, at, stride)
 *   AMX_DOT(sums, left, right)   sums += left . right, of pairs of bf16
 *   amx_begin(), amx_end()       a thread may use tiles between them
 *
 * q_row i is row i % 16 of tile i / 16, so no memory past the TILE_Q_ROWS q_rows is read.  If
 * a tile has q_rows outside [begin, end), which must not change, the sums are computed in a copy: an
 * AMX addition would turn their subnormal numbers into zero.
 */
#define AMX_ROWS 16u

_Static_assert(PANEL == 2 * AMX_ROWS && TILE_Q_ROWS % (2 * AMX_ROWS) == 0, "two tiles next to and below each other");

/* A product of q_rows [begin, end) with a panel, which is added to the contents of `to` if `added`. */
struct amx_product {
	float *to; /* of q_row 0, like `left` */
	const float *left;
	const float *panel;
	uint32_t to_stride, left_stride;
	uint32_t begin, end;
	uint32_t depth; /* words; a multiple of AMX_ROWS */
	bool added;
	struct prefetch_spread *prefetch_spread;
};

/* Tiles 0 to 3 are sums, 4 and 5 q_rows, 6 and 7 the panel; `q_row_tiles` and `column_tiles` count tiles. */
INLINE void
amx_multiply(const struct amx_product *p, uint32_t q_row, uint32_t q_row_tiles, uint32_t column_tiles)
{
	const size_t left_stride = p->left_stride;
	const float *left = p->left + q_row * left_stride, *panel = p->panel;

	for (uint32_t d = 0; d < p->depth; d += AMX_ROWS) {
		prefetch_spread_step(p->prefetch_spread);
		AMX_LOAD(6, panel + (size_t)d * PANEL, PANEL * sizeof(float));
		AMX_LOAD(4, left + d, left_stride * sizeof(float));
		AMX_DOT(0, 4, 6);
		if (q_row_tiles == 2) {
			AMX_LOAD(5, left + AMX_ROWS * left_stride + d, left_stride * sizeof(float));
			AMX_DOT(2, 5, 6);
		}
		if (column_tiles == 2) {
			AMX_LOAD(7, panel + (size_t)d * PANEL + AMX_ROWS, PANEL * sizeof(float));
			AMX_DOT(1, 4, 7);
		}
		if (q_row_tiles == 2 && column_tiles == 2)
			AMX_DOT(3, 5, 7);
	}
}

INLINE void
amx_zero(void)
{
	AMX_ZERO(0);
	AMX_ZERO(1);
	AMX_ZERO(2);
	AMX_ZERO(3);
}

INLINE void
amx_load(const float *from, size_t stride, uint32_t q_row_tiles, uint32_t column_tiles)
{
	AMX_LOAD(0, from, stride * sizeof(float));
	if (column_tiles == 2)
		AMX_LOAD(1, from + AMX_ROWS, stride * sizeof(float));
	if (q_row_tiles == 2)
		AMX_LOAD(2, from + AMX_ROWS * stride, stride * sizeof(float));
	if (q_row_tiles == 2 && column_tiles == 2)
		AMX_LOAD(3, from + AMX_ROWS * stride + AMX_ROWS, stride * sizeof(float));
}

INLINE void
amx_store(float *to, size_t stride, uint32_t q_row_tiles, uint32_t column_tiles)
{
	AMX_STORE(0, to, stride * sizeof(float));
	if (column_tiles == 2)
		AMX_STORE(1, to + AMX_ROWS, stride * sizeof(float));
	if (q_row_tiles == 2)
		AMX_STORE(2, to + AMX_ROWS * stride, stride * sizeof(float));
	if (q_row_tiles == 2 && column_tiles == 2)
		AMX_STORE(3, to + AMX_ROWS * stride + AMX_ROWS, stride * sizeof(float));
}

/* One or two tiles of q_rows times one or two tiles of columns; all their q_rows may change. */
INLINE void
amx_block_whole(const struct amx_product *p, uint32_t q_row, uint32_t q_row_tiles, uint32_t column_tiles)
{
	float *to = p->to + (size_t)q_row * p->to_stride;

	if (p->added)
		amx_load(to, p->to_stride, q_row_tiles, column_tiles);
	else
		amx_zero();
	amx_multiply(p, q_row, q_row_tiles, column_tiles);
	amx_store(to, p->to_stride, q_row_tiles, column_tiles);
}

/* The same for q_rows [from, until) only. */
INLINE void
amx_block_part(const struct amx_product *p, uint32_t q_row, uint32_t q_row_tiles, uint32_t column_tiles, uint32_t from,
	       uint32_t until)
{
	_Alignas(64) float sums[2 * AMX_ROWS][PANEL] = { 0 };
	const size_t bytes = column_tiles * AMX_ROWS * sizeof(float);

	for (uint32_t i = from; i < until && p->added; i++)
		memcpy(sums[i - q_row], p->to + (size_t)i * p->to_stride, bytes);
	amx_load(sums[0], PANEL, q_row_tiles, column_tiles);
	amx_multiply(p, q_row, q_row_tiles, column_tiles);
	amx_store(sums[0], PANEL, q_row_tiles, column_tiles);
	for (uint32_t i = from; i < until; i++)
		memcpy(p->to + (size_t)i * p->to_stride, sums[i - q_row], bytes);
}

INLINE void
amx_block(const struct amx_product *p, uint32_t q_row, uint32_t q_row_tiles, uint32_t column_tiles)
{
	uint32_t last = q_row + q_row_tiles * AMX_ROWS;

	if (p->begin <= q_row && last <= p->end)
		amx_block_whole(p, q_row, q_row_tiles, column_tiles);
	else
		amx_block_part(p, q_row, q_row_tiles, column_tiles, p->begin > q_row ? p->begin : q_row,
			       p->end < last ? p->end : last);
}

INLINE void
amx_panel(const struct amx_product *p, uint32_t column_tiles)
{
	for (uint32_t q_row = p->begin / AMX_ROWS * AMX_ROWS; q_row < p->end; q_row += 2 * AMX_ROWS) {
		uint32_t q_row_tiles = p->end - q_row > AMX_ROWS ? 2 : 1;

		if (q_row_tiles == 2 && column_tiles == 2)
			amx_block(p, q_row, 2, 2);
		else if (column_tiles == 2)
			amx_block(p, q_row, 1, 2);
		else
			amx_block(p, q_row, q_row_tiles, 1);
	}
}

/* Number of times that amx_multiply() loads tiles of one panel. */
INLINE uint32_t
amx_steps(const struct amx_product *p)
{
	uint32_t n_q_rows = p->end - p->begin / AMX_ROWS * AMX_ROWS;

	return (n_q_rows + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS) * (p->depth / AMX_ROWS);
}

static void
amx_prefill_scores(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const float *panels,
		   uint32_t n_tokens, uint32_t depth, const struct tile_tokens *prefetch)
{
	struct prefetch_spread prefetch_spread;
	struct amx_product p = { .left = q,
				 .left_stride = depth,
				 .to_stride = TILE_TOKENS,
				 .begin = begin,
				 .end = end,
				 .depth = depth,
				 .prefetch_spread = &prefetch_spread };

	prefetch_spread = prefetch_spread_over(prefetch, amx_steps(&p) * ((n_tokens + PANEL - 1) / PANEL));
	for (uint32_t t = 0; t < n_tokens; t += PANEL) {
		p.to = &scores->score[0][t];
		p.panel = panels + (size_t)t * depth;
		amx_panel(&p, n_tokens - t > AMX_ROWS ? 2 : 1);
	}
}

/* Also zeroes the rows that fill the panels' last tile, because weights of 0 are multiplied with them. */
static uint64_t
amx_pack_values(float *panels, const struct tile_tokens *values)
{
	uint64_t non_finite = bf16_pack_values(panels, values);

	for (uint32_t panel_row = (values->n_tokens + 1) / 2; panel_row % AMX_ROWS != 0; panel_row++)
		for (uint32_t d = 0; d < values->padded; d += LANES)
			vec_store(panel_at(panels, TILE_TOKENS / 2, panel_row, d), vec_set1(0));
	return non_finite;
}

INLINE void
values_rescale(struct softmax_state *state, uint32_t q_row, float rescale)
{
	float *values = state->values + (size_t)q_row * state->stride;

	if (rescale == 1)
		return;
	for (uint32_t d = 0; d < state->stride; d += LANES)
		vec_store(values + d, vec_load(values + d) * vec_set1(rescale));
}

static void
amx_prefill_values(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		   const float *panels, uint32_t n_tokens, const struct tile_tokens *prefetch)
{
	_Alignas(64) float weights[TILE_Q_ROWS][TILE_TOKENS / 2];
	struct prefetch_spread prefetch_spread;
	struct amx_product p = { .left = weights[0],
				 .left_stride = TILE_TOKENS / 2,
				 .to_stride = state->stride,
				 .begin = begin,
				 .end = end,
				 .depth = (n_tokens + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS) * AMX_ROWS,
				 .added = true,
				 .prefetch_spread = &prefetch_spread };

	for (uint32_t q_row = begin; q_row < end; q_row++) {
		weights_pair(weights[q_row], scores->score[q_row]);
		values_rescale(state, q_row, scores->rescale[q_row]);
	}
	prefetch_spread = prefetch_spread_over(prefetch, amx_steps(&p) * ((state->stride + PANEL - 1) / PANEL));
	for (uint32_t d = 0; d < state->stride; d += PANEL) {
		p.to = state->values + d;
		p.panel = panels + (size_t)d * (TILE_TOKENS / 2);
		amx_panel(&p, state->stride - d > AMX_ROWS ? 2 : 1);
	}
}

#include "kernels/cpu/prefill/tile_amx_pipeline_body.h"

static const struct tile_prefill_ops tile_prefill_amx = {
	.word_elements = 2,
	.prefill_q_rows = KERNEL_PREFILL_Q_ROWS_AMX,
	.pack_keys = bf16_pack_keys,
	.pack_values = amx_pack_values,
	.scores = amx_prefill_scores,
	.values = amx_prefill_values,
	.pipeline_step = amx_pipeline_step,
};
