/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_packed.h - the products of many lines with a tile that was packed once
 *
 * Included by each tile_*.c after tile_body.h, with two more words:
 *
 *   BLOCK_LINES           lines whose sums, of two vectors each, are held in registers
 *   vec_turn(square)      transposes LANES vectors in place
 *
 * Keys and values lie in panels, PANEL columns beside each other: tokens of
 * keys and dimensions of values.  Both products are then the same loop, a word
 * of each line times a row of the panel, and no sum runs over lanes.  A line's
 * sums begin at 0 and take one row after the other.
 */

#define PANEL (2 * LANES)

/* One product: `depth` words of each line times a panel. */
struct product {
	float *to;
	const float *rescale; /* of what is there, which is then added to; NULL: nothing is */
	const float *left;
	const float *panel;
	uint32_t to_stride, left_stride; /* from line to line */
	uint32_t depth;
	const struct tile_rows *ahead; /* rows to fetch on the way, `share` of them with each block; or NULL */
	uint32_t share, fetched;
};

INLINE void
product_fetch(struct product *p)
{
	for (uint32_t i = 0; i < p->share; i++)
		fetch(p->ahead, p->fetched++);
}

/* So many rows with each block that all are fetched after n lines times so many panels. */
INLINE void
product_share(struct product *p, const struct tile_rows *ahead, uint32_t n, uint32_t panels)
{
	uint32_t blocks = (n + BLOCK_LINES - 1) / BLOCK_LINES * panels;

	p->ahead = ahead;
	p->share = ahead != NULL ? (ahead->n_tokens + blocks - 1) / blocks : 0;
}

/* A register block: `lines` lines and `vecs` vectors of the panel. */
INLINE void
product_block(const struct product *p, uint32_t line, uint32_t lines, uint32_t vecs)
{
	const float *left = p->left + (size_t)line * p->left_stride, *panel = p->panel;
	const uint32_t left_stride = p->left_stride, depth = p->depth;
	vec sums[BLOCK_LINES][2];

	UNROLL
	for (uint32_t i = 0; i < lines; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++)
		sums[i][j] = vec_set1(0);
	for (uint32_t d = 0; d < depth; d++) {
		vec right[2];

		UNROLL
		for (uint32_t j = 0; j < vecs; j++)
			right[j] = vec_load(panel + (size_t)d * PANEL + j * LANES);
		UNROLL
		for (uint32_t i = 0; i < lines; i++) {
			vec one = vec_set1(left[(size_t)i * left_stride + d]);

			UNROLL
			for (uint32_t j = 0; j < vecs; j++)
				sums[i][j] = vec_fma(one, right[j], sums[i][j]);
		}
	}
	UNROLL
	for (uint32_t i = 0; i < lines; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++) {
		float *at = p->to + (size_t)(line + i) * p->to_stride + j * LANES;

		if (p->rescale != NULL)
			sums[i][j] = vec_fma(vec_load(at), vec_set1(p->rescale[line + i]), sums[i][j]);
		vec_store(at, sums[i][j]);
	}
}

INLINE void
product_lines(struct product *p, uint32_t n, uint32_t vecs)
{
	uint32_t line = 0;

	for (; n - line >= BLOCK_LINES; line += BLOCK_LINES) {
		product_fetch(p);
		product_block(p, line, BLOCK_LINES, vecs);
	}
	if (n != line)
		product_fetch(p);
	if (n - line >= 4) {
		product_block(p, line, 4, vecs);
		line += 4;
	}
	if (n - line >= 2) {
		product_block(p, line, 2, vecs);
		line += 2;
	}
	if (n - line >= 1)
		product_block(p, line, 1, vecs);
}

INLINE void
scores_panels(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const float *panels,
	      uint32_t n_tokens, uint32_t depth, const struct tile_rows *ahead)
{
	struct product p = { .left = q + (size_t)begin * depth,
			     .left_stride = depth,
			     .to_stride = TILE_TOKENS,
			     .depth = depth };

	product_share(&p, ahead, end - begin, (n_tokens + PANEL - 1) / PANEL);
	for (uint32_t t = 0; t < n_tokens; t += PANEL) {
		p.to = &scores->score[begin][t];
		p.panel = panels + (size_t)t * depth;
		product_lines(&p, end - begin, 2);
	}
}

INLINE void
values_panels(const struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end,
	      const float *weights, uint32_t weights_stride, const float *panels, uint32_t depth,
	      const struct tile_rows *ahead)
{
	struct product p = { .rescale = &scores->rescale[begin],
			     .left = weights,
			     .left_stride = weights_stride,
			     .to_stride = state->stride,
			     .depth = depth };

	product_share(&p, ahead, end - begin, (state->stride + PANEL - 1) / PANEL);
	for (uint32_t d = 0; d < state->stride; d += PANEL) {
		p.to = state->values + (size_t)begin * state->stride + d;
		p.panel = panels + (size_t)d * weights_stride;
		if (state->stride - d > LANES)
			product_lines(&p, end - begin, 2);
		else
			product_lines(&p, end - begin, 1);
	}
}

INLINE void
pack_keys_of(float *panels, const struct tile_rows *keys, enum paged_dtype dtype)
{
	for (uint32_t t = 0; t < keys->n_tokens; t += LANES) {
		float *to = panels + (size_t)(t / PANEL) * PANEL * keys->padded + t % PANEL;

		for (uint32_t d = 0; d < keys->padded; d += LANES) {
			vec square[LANES];

			UNROLL
			for (uint32_t i = 0; i < LANES; i++)
				square[i] = load_as(keys->token[t + i], dtype, d);
			vec_turn(square);
			UNROLL
			for (uint32_t i = 0; i < LANES; i++)
				vec_store(to + (size_t)(d + i) * PANEL, square[i]);
		}
	}
}

static void
pack_keys(float *panels, const struct tile_rows *keys)
{
	FOR_DTYPE(keys->dtype, pack_keys_of, panels, keys);
}

/* Row `row` of the panels, zeros beyond the vectors that there are; `depth` rows to a panel. */
INLINE float *
panel_at(float *panels, uint32_t depth, uint32_t row, uint32_t column)
{
	return panels + ((size_t)(column / PANEL) * depth + row) * PANEL + column % PANEL;
}

/* Zero times what is finite is zero; a row that is not is left out, and told. */
INLINE void
pack_values_of(float *panels, const struct tile_rows *values, uint64_t *wild_p, enum paged_dtype dtype)
{
	for (uint32_t t = 0; t < values->n_tokens; t++) {
		vec finite = vec_set1(0);

		for (uint32_t d = 0; d < values->padded; d += LANES) {
			vec v = load_as(values->token[t], dtype, d);

			vec_store(panel_at(panels, TILE_TOKENS, t, d), v);
			finite = vec_fma(v, vec_set1(0), finite);
		}
		if (vec_sum(finite) == 0)
			continue;
		*wild_p |= UINT64_C(1) << t;
		for (uint32_t d = 0; d < values->padded; d += LANES)
			vec_store(panel_at(panels, TILE_TOKENS, t, d), vec_set1(0));
	}
}

static uint64_t
pack_values(float *panels, const struct tile_rows *values)
{
	uint64_t wild = 0;

	FOR_DTYPE(values->dtype, pack_values_of, panels, values, &wild);
	return wild;
}

static void
scores_packed(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const float *panels,
	      uint32_t n_tokens, uint32_t depth, const struct tile_rows *ahead)
{
	scores_panels(scores, q, begin, end, panels, n_tokens, depth, ahead);
}

static void
values_packed(const struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end,
	      const float *panels, uint32_t n_tokens, const struct tile_rows *ahead)
{
	values_panels(scores, state, begin, end, scores->score[begin], TILE_TOKENS, panels, n_tokens, ahead);
}

static const struct tile_packed_ops tile_packed_floats = {
	.pack_keys = pack_keys,
	.pack_values = pack_values,
	.scores = scores_packed,
	.values = values_packed,
};

#define TILE_PACKED .floats = &tile_packed_floats
