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
 * q_row (`line`) i is row i % 16 of tile i / 16, so no memory past the TILE_Q_ROWS q_rows is read.  If
 * a tile has q_rows outside [begin, end), which must not change, the sums are computed in a copy: an
 * AMX addition would turn their subnormal numbers into zero.
 */
#define AMX_ROWS 16u

_Static_assert(PANEL == 2 * AMX_ROWS && TILE_Q_ROWS % (2 * AMX_ROWS) == 0, "two tiles beside and below each other");

/* A product of q_rows [begin, end) with a panel, which is added to the contents of `to` if `added`. */
struct amx_product {
	float *to; /* of q_row 0, like `left` */
	const float *left;
	const float *panel;
	uint32_t to_stride, left_stride;
	uint32_t begin, end;
	uint32_t depth; /* words; a multiple of AMX_ROWS */
	bool added;
	struct fetching *fetching;
};

/* Tiles 0 to 3 are sums, 4 and 5 q_rows, 6 and 7 the panel; `lines` and `columns` count tiles. */
INLINE void
amx_multiply(const struct amx_product *p, uint32_t line, uint32_t lines, uint32_t columns)
{
	const size_t left_stride = p->left_stride;
	const float *left = p->left + line * left_stride, *panel = p->panel;

	for (uint32_t d = 0; d < p->depth; d += AMX_ROWS) {
		fetching_step(p->fetching);
		AMX_LOAD(6, panel + (size_t)d * PANEL, PANEL * sizeof(float));
		AMX_LOAD(4, left + d, left_stride * sizeof(float));
		AMX_DOT(0, 4, 6);
		if (lines == 2) {
			AMX_LOAD(5, left + AMX_ROWS * left_stride + d, left_stride * sizeof(float));
			AMX_DOT(2, 5, 6);
		}
		if (columns == 2) {
			AMX_LOAD(7, panel + (size_t)d * PANEL + AMX_ROWS, PANEL * sizeof(float));
			AMX_DOT(1, 4, 7);
		}
		if (lines == 2 && columns == 2)
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
amx_load(const float *from, size_t stride, uint32_t lines, uint32_t columns)
{
	AMX_LOAD(0, from, stride * sizeof(float));
	if (columns == 2)
		AMX_LOAD(1, from + AMX_ROWS, stride * sizeof(float));
	if (lines == 2)
		AMX_LOAD(2, from + AMX_ROWS * stride, stride * sizeof(float));
	if (lines == 2 && columns == 2)
		AMX_LOAD(3, from + AMX_ROWS * stride + AMX_ROWS, stride * sizeof(float));
}

INLINE void
amx_store(float *to, size_t stride, uint32_t lines, uint32_t columns)
{
	AMX_STORE(0, to, stride * sizeof(float));
	if (columns == 2)
		AMX_STORE(1, to + AMX_ROWS, stride * sizeof(float));
	if (lines == 2)
		AMX_STORE(2, to + AMX_ROWS * stride, stride * sizeof(float));
	if (lines == 2 && columns == 2)
		AMX_STORE(3, to + AMX_ROWS * stride + AMX_ROWS, stride * sizeof(float));
}

/* One or two tiles of q_rows times one or two tiles of columns; all their q_rows may change. */
INLINE void
amx_whole(const struct amx_product *p, uint32_t line, uint32_t lines, uint32_t columns)
{
	float *to = p->to + (size_t)line * p->to_stride;

	if (p->added)
		amx_load(to, p->to_stride, lines, columns);
	else
		amx_zero();
	amx_multiply(p, line, lines, columns);
	amx_store(to, p->to_stride, lines, columns);
}

/* The same for q_rows [from, until) only. */
INLINE void
amx_some(const struct amx_product *p, uint32_t line, uint32_t lines, uint32_t columns, uint32_t from, uint32_t until)
{
	_Alignas(64) float sums[2 * AMX_ROWS][PANEL] = { 0 };
	const size_t bytes = columns * AMX_ROWS * sizeof(float);

	for (uint32_t i = from; i < until && p->added; i++)
		memcpy(sums[i - line], p->to + (size_t)i * p->to_stride, bytes);
	amx_load(sums[0], PANEL, lines, columns);
	amx_multiply(p, line, lines, columns);
	amx_store(sums[0], PANEL, lines, columns);
	for (uint32_t i = from; i < until; i++)
		memcpy(p->to + (size_t)i * p->to_stride, sums[i - line], bytes);
}

INLINE void
amx_block(const struct amx_product *p, uint32_t line, uint32_t lines, uint32_t columns)
{
	uint32_t last = line + lines * AMX_ROWS;

	if (p->begin <= line && last <= p->end)
		amx_whole(p, line, lines, columns);
	else
		amx_some(p, line, lines, columns, p->begin > line ? p->begin : line, p->end < last ? p->end : last);
}

INLINE void
amx_lines(const struct amx_product *p, uint32_t columns)
{
	for (uint32_t line = p->begin / AMX_ROWS * AMX_ROWS; line < p->end; line += 2 * AMX_ROWS) {
		uint32_t lines = p->end - line > AMX_ROWS ? 2 : 1;

		if (lines == 2 && columns == 2)
			amx_block(p, line, 2, 2);
		else if (columns == 2)
			amx_block(p, line, 1, 2);
		else
			amx_block(p, line, lines, 1);
	}
}

/* Number of times that amx_multiply() loads tiles of one panel. */
INLINE uint32_t
amx_steps(const struct amx_product *p)
{
	uint32_t lines = p->end - p->begin / AMX_ROWS * AMX_ROWS;

	return (lines + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS) * (p->depth / AMX_ROWS);
}

static void
scores_amx(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const float *panels,
	   uint32_t n_tokens, uint32_t depth, const struct tile_tokens *ahead)
{
	struct fetching fetching;
	struct amx_product p = { .left = q,
				 .left_stride = depth,
				 .to_stride = TILE_TOKENS,
				 .begin = begin,
				 .end = end,
				 .depth = depth,
				 .fetching = &fetching };

	fetching = fetching_over(ahead, amx_steps(&p) * ((n_tokens + PANEL - 1) / PANEL));
	for (uint32_t t = 0; t < n_tokens; t += PANEL) {
		p.to = &scores->score[0][t];
		p.panel = panels + (size_t)t * depth;
		amx_lines(&p, n_tokens - t > AMX_ROWS ? 2 : 1);
	}
}

/* Also zeroes the rows that fill the panels' last tile, because weights of 0 are multiplied with them. */
static uint64_t
values_pack_amx(float *panels, const struct tile_tokens *values)
{
	uint64_t wild = pair_values(panels, values);

	for (uint32_t row = (values->n_tokens + 1) / 2; row % AMX_ROWS != 0; row++)
		for (uint32_t d = 0; d < values->padded; d += LANES)
			vec_store(panel_at(panels, TILE_TOKENS / 2, row, d), vec_set1(0));
	return wild;
}

INLINE void
values_rescale(struct softmax_state *state, uint32_t line, float rescale)
{
	float *values = state->values + (size_t)line * state->stride;

	if (rescale == 1)
		return;
	for (uint32_t d = 0; d < state->stride; d += LANES)
		vec_store(values + d, vec_load(values + d) * vec_set1(rescale));
}

static void
values_amx(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
	   const float *panels, uint32_t n_tokens, const struct tile_tokens *ahead)
{
	_Alignas(64) float weights[TILE_Q_ROWS][TILE_TOKENS / 2];
	struct fetching fetching;
	struct amx_product p = { .left = weights[0],
				 .left_stride = TILE_TOKENS / 2,
				 .to_stride = state->stride,
				 .begin = begin,
				 .end = end,
				 .depth = (n_tokens + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS) * AMX_ROWS,
				 .added = true,
				 .fetching = &fetching };

	for (uint32_t line = begin; line < end; line++) {
		weights_pair(weights[line], scores->score[line]);
		values_rescale(state, line, scores->rescale[line]);
	}
	fetching = fetching_over(ahead, amx_steps(&p) * ((state->stride + PANEL - 1) / PANEL));
	for (uint32_t d = 0; d < state->stride; d += PANEL) {
		p.to = state->values + d;
		p.panel = panels + (size_t)d * (TILE_TOKENS / 2);
		amx_lines(&p, state->stride - d > AMX_ROWS ? 2 : 1);
	}
}

#include "kernels/cpu/prefill/tile_amx_pipeline_body.h"

static const struct tile_prefill_ops tile_prefill_amx = {
	.word_elements = 2,
	.prefill_q_rows = KERNEL_PREFILL_Q_ROWS_AMX,
	.pack_keys = pair_keys,
	.pack_values = values_pack_amx,
	.scores = scores_amx,
	.values = values_amx,
	.pipeline_step = blocks_amx,
};
