/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_amx_block.h - scores, softmax and values of many lines, of three blocks at once
 *
 * Included after tile_amx.h's functions, with words more:
 *
 *   AMX_LOAD_ONCE(t, at, stride)   AMX_LOAD of what had better not stay in the first cache
 *   vec_fraction(v)          v less the whole number that is not above it; in [0, 1], and 0 of an infinity
 *   vec_scale_floor(v, n)    v * 2^(the whole number that is not above n); 0 where n is below -126
 *   vec_no_minus_infinity(v) v, and 0 for -inf
 *   vec_scaled(v, scale)     v * scale, but 0 where v is 0
 *
 * Tiles are multiplied beside the vector units, so between the products of
 * one block with its keys, and of another with its values, stand the weights
 * of a third, line by line.
 */
#define TILE_VECS (TILE_TOKENS / LANES)
/* Past it, what is below the maximum is subtracted before it is multiplied: nothing overflows. */
#define LARGE_SCORE 0x1p16f
#define LOG2_E 1.44269504f

/*
 * 2^x, for x that is at most a little above 0: the polynomial is 1 at 0, and
 * elsewhere off by less than 10^-7 of what it is.  NaN stays NaN, and what
 * would be subnormal is 0, as in vec_exp().
 */
INLINE vec
vec_exp2(vec x)
{
	vec r = vec_fraction(x), y = vec_set1(1.8671300e-3f);

	y = vec_fma(y, r, vec_set1(9.0170307e-3f));
	y = vec_fma(y, r, vec_set1(5.5799913e-2f));
	y = vec_fma(y, r, vec_set1(2.4016444e-1f));
	y = vec_fma(y, r, vec_set1(6.9315130e-1f));
	y = vec_fma(y, r, vec_set1(1.0f));
	return vec_scale_floor(y, x);
}

/* A line's scores times their scale, -inf past the visible ones; the largest in lanes. */
INLINE void
line_scale(struct tile_block *block, uint32_t line)
{
	vec top = vec_set1(-INFINITY);

	for (uint32_t j = 0; j < block->n_tiles; j++) {
		float *score = block->tile[j].score[line];
		uint32_t visible = block->tile[j].visible[line];
		vec scale = vec_set1(block->scale[j]), s[TILE_VECS];

		UNROLL
		for (uint32_t i = 0; i < TILE_VECS; i++)
			s[i] = vec_load(score + i * LANES) * scale;
		UNROLL
		for (uint32_t i = 0; i < TILE_VECS && visible < TILE_TOKENS; i++)
			s[i] = vec_below(s[i], visible > i * LANES ? visible - i * LANES : 0, vec_set1(-INFINITY));
		UNROLL
		for (uint32_t i = 0; i < TILE_VECS; i++)
			vec_store(score + i * LANES, s[i]);
		top = vec_max(vec_max(vec_max(s[0], s[1]), vec_max(s[2], s[3])), top);
	}
	vec_store(block->lanes[line], top);
}

/* What LANES lines from `line` on have in their lanes: turned[i] is of lane i, a lane a line. */
INLINE void
lanes_turn(const struct tile_block *block, uint32_t line, vec turned[LANES])
{
	UNROLL
	for (uint32_t i = 0; i < LANES; i++)
		turned[i] = vec_load(block->lanes[line + i]);
	vec_turn(turned);
}

/* The lines' new maxima, and what is to be taken from their scores. */
INLINE void
block_top(struct tile_block *block)
{
	for (uint32_t line = 0; line < block->n_lines; line += LANES) {
		vec top[LANES], before = vec_load(&block->state->maximum[line]), most = before, shift;

		lanes_turn(block, line, top);
		UNROLL
		for (uint32_t i = 0; i < LANES; i++)
			most = vec_max(top[i], most);
		/* 0 for -inf, so that its lines' weights are 0 and no NaN. */
		shift = vec_no_minus_infinity(most);
		vec_store(&block->state->maximum[line], most);
		vec_store(&block->shift[line], shift);
		vec_store(&block->rescale[line], vec_exp2((before - shift) * vec_set1(LOG2_E)));
	}
}

/* A line's weights in a tile, in the place of its scores, and what they add to its sums. */
INLINE vec
tile_weights(float *score, const float *token_scale, float shift, bool large)
{
	vec weight[TILE_VECS], sum;

	UNROLL
	for (uint32_t i = 0; i < TILE_VECS; i++) {
		vec s = vec_load(score + i * LANES);

		if (large)
			s = (s - vec_set1(shift)) * vec_set1(LOG2_E);
		else
			s = vec_fma(s, vec_set1(LOG2_E), vec_set1(-shift * LOG2_E));
		weight[i] = vec_exp2(s);
	}
	sum = (weight[0] + weight[1]) + (weight[2] + weight[3]);
	UNROLL
	for (uint32_t i = 0; i < TILE_VECS && token_scale != NULL; i++)
		weight[i] = vec_scaled(weight[i], vec_load(token_scale + i * LANES));
	UNROLL
	for (uint32_t i = 0; i < TILE_VECS; i += 2)
		vec_store(score + i * LANES / 2, vec_round_pairs(weight[i], weight[i + 1]));
	return sum;
}

static __attribute__((noinline)) vec
line_weights_slow(struct tile_block *block, uint32_t line, uint32_t j, float shift)
{
	float *score = block->tile[j].score[line];

	if (fabsf(shift) < LARGE_SCORE)
		return tile_weights(score, block->token_scale[j], shift, false);
	return tile_weights(score, block->token_scale[j], shift, true);
}

INLINE void
line_weights(struct tile_block *block, uint32_t line)
{
	float shift = block->shift[line];
	vec sum = vec_set1(0);

	if (fabsf(shift) < LARGE_SCORE && block->token_scale[0] == NULL && block->n_tiles == BLOCK_TILES) {
		sum = tile_weights(block->tile[0].score[line], NULL, shift, false);
		sum = sum + tile_weights(block->tile[1].score[line], NULL, shift, false);
	} else {
		for (uint32_t j = 0; j < block->n_tiles; j++)
			sum = sum + line_weights_slow(block, line, j, shift);
	}
	vec_store(block->lanes[line], sum);
}

/* What the lines' states held before becomes what it weighs beside the new maxima. */
INLINE void
block_rescale(struct tile_block *block)
{
	struct tile_state *state = block->state;

	for (uint32_t line = 0; line < block->n_lines; line += LANES) {
		vec sum[LANES], all = vec_set1(0);

		lanes_turn(block, line, sum);
		UNROLL
		for (uint32_t i = 0; i < LANES; i++)
			all = all + sum[i];
		vec_store(&state->sum[line],
			  vec_fma(vec_load(&state->sum[line]), vec_load(&block->rescale[line]), all));
	}
	for (uint32_t line = 0; line < block->n_lines && !block->fresh; line++)
		values_rescale(state, line, block->rescale[line]);
}

/* Parts of a block's softmax that come between so many steps of products. */
struct between {
	struct tile_block *block; /* or NULL */
	uint32_t n_steps, n_parts, part, credit;
};

/* All lines' maxima, in pairs of lines, then their weights tile by tile. */
INLINE void
softmax_part(struct tile_block *block, uint32_t part)
{
	uint32_t pairs = (block->n_lines + 1) / 2;

	if (part < pairs) {
		line_scale(block, 2 * part);
		line_scale(block, 2 * part + 1);
		if (part == pairs - 1)
			block_top(block);
		return;
	}
	line_weights(block, part - pairs);
}

INLINE uint32_t
softmax_parts(const struct tile_block *block)
{
	return (block->n_lines + 1) / 2 + block->n_lines;
}

INLINE void
between_step(struct between *between)
{
	if (between->block == NULL)
		return;
	between->credit += between->n_parts;
	for (; between->credit >= between->n_steps; between->credit -= between->n_steps)
		softmax_part(between->block, between->part++);
}

/* A step: what two tiles of lines, or one, and two of a panel, or one, add to the sums. */
INLINE void
step_multiply(const void *left, size_t stride, const float *panel, uint32_t lines, uint32_t columns)
{
	AMX_LOAD_ONCE(6, panel, PANEL * sizeof(float));
	AMX_LOAD(4, left, stride);
	AMX_DOT(0, 4, 6);
	if (lines == 2) {
		AMX_LOAD(5, (const uint8_t *)left + AMX_ROWS * stride, stride);
		AMX_DOT(2, 5, 6);
	}
	if (columns == 2) {
		AMX_LOAD_ONCE(7, panel + AMX_ROWS, PANEL * sizeof(float));
		AMX_DOT(1, 4, 7);
	}
	if (lines == 2 && columns == 2)
		AMX_DOT(3, 5, 7);
}

/* Products with a panel of keys. */
INLINE void
keys_multiply(struct tile_block *block, uint32_t j, uint32_t t, uint32_t lines, uint32_t columns,
	      struct between *between)
{
	const float *panel = block->keys[j] + (size_t)t * block->depth;

	amx_zero();
	for (uint32_t d = 0; d < block->depth; d += AMX_ROWS) {
		step_multiply(block->q + d, block->depth * sizeof(float), panel + (size_t)d * PANEL, lines, columns);
		between_step(between);
	}
	amx_store(&block->tile[j].score[0][t], TILE_TOKENS, lines, columns);
}

INLINE void
block_keys(struct tile_block *block, uint32_t lines, struct between *between)
{
	for (uint32_t j = 0; j < block->n_tiles; j++)
		for (uint32_t t = 0; t < block->n_tokens[j]; t += PANEL)
			if (block->n_tokens[j] - t > AMX_ROWS)
				keys_multiply(block, j, t, lines, 2, between);
			else
				keys_multiply(block, j, t, lines, 1, between);
}

/* Products with dimensions of values, from d on. */
INLINE void
values_multiply(struct tile_block *block, uint32_t d, uint32_t lines, uint32_t columns, struct between *between)
{
	struct tile_state *state = block->state;

	if (block->fresh)
		amx_zero();
	else
		amx_load(state->values + d, state->stride, lines, columns);
	for (uint32_t j = 0; j < block->n_tiles; j++)
		for (uint32_t t = 0; t < block->n_tokens[j]; t += 2 * AMX_ROWS) {
			step_multiply(&block->tile[j].score[0][t / 2], TILE_TOKENS * sizeof(float),
				      block->values[j] + (size_t)d * (TILE_TOKENS / 2) + (size_t)t / 2 * PANEL, lines,
				      columns);
			between_step(between);
		}
	amx_store(state->values + d, state->stride, lines, columns);
}

INLINE void
block_values(struct tile_block *block, uint32_t lines, struct between *between)
{
	for (uint32_t d = 0; d < block->state->stride; d += PANEL)
		if (block->state->stride - d > AMX_ROWS)
			values_multiply(block, d, lines, 2, between);
		else
			values_multiply(block, d, lines, 1, between);
}

/* Steps with a line's keys, or its values. */
INLINE uint32_t
block_steps(const struct tile_block *block, uint32_t for_panel)
{
	uint32_t n = 0;

	for (uint32_t j = 0; j < block->n_tiles; j++)
		n += (block->n_tokens[j] + PANEL - 1) / PANEL;
	return n * for_panel;
}

static void
blocks_amx(struct tile_block *scores, struct tile_block *softmax_of, struct tile_block *values)
{
	struct between between = { .block = softmax_of, .n_parts = softmax_of != NULL ? softmax_parts(softmax_of) : 0 };

	if (scores != NULL)
		between.n_steps += block_steps(scores, scores->depth / AMX_ROWS);
	if (values != NULL)
		between.n_steps += block_steps(values, (values->state->stride + PANEL - 1) / PANEL);
	if (values != NULL && values->n_lines > AMX_ROWS)
		block_values(values, 2, &between);
	else if (values != NULL)
		block_values(values, 1, &between);
	if (scores != NULL && scores->n_lines > AMX_ROWS)
		block_keys(scores, 2, &between);
	else if (scores != NULL)
		block_keys(scores, 1, &between);
	if (softmax_of == NULL)
		return;
	for (; between.part < between.n_parts; between.part++)
		softmax_part(softmax_of, between.part);
	block_rescale(softmax_of);
}
