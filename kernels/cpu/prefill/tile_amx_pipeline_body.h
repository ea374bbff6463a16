/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_amx_pipeline_body.h - scores, softmax and values of many q_rows, for three blocks at once
 *
 * Included after tile_amx_prefill_body.h's functions, with additional primitives:
 *
 *   AMX_LOAD_ONCE(t, at, stride)   AMX_LOAD of data that should not stay in the L1 cache
 *   vec_fraction(v)          v - floor(v), in [0, 1]; 0 for an infinity
 *   vec_scale_floor(v, n)    v * 2^floor(n); 0 where n is below -126
 *   vec_no_minus_infinity(v) v, but 0 for -inf
 *   vec_scaled(v, scale)     v * scale, but 0 where v is 0
 *   vec_max_each(v), vec_sum_each(v) lane i: the largest lane, or the sum of the lanes, of vector i of LANES vectors
 * (clobbered) vec_unequal(a, b)        a bit for each lane in which a and b differ or one is NaN
 *
 * Tile products execute in parallel with the vector units, so the weights of one block are computed
 * between the products of another block with its keys and of a third with its values.  During a
 * product, float additions and multiplications have only half of the vector units, so each one counts.
 */
#define TILE_VECS (TILE_TOKENS / LANES)
/* For a larger shift, the shift is subtracted before the multiplication by log2(e), so that nothing overflows. */
#define LARGE_SCORE 0x1p16f
#define LOG2_E 1.44269504f

/*
 * 2^x, for x at most a little above 0.  The polynomial is exactly 1 at 0; elsewhere its relative error
 * is below 10^-7.  NaN stays NaN, and results that would be subnormal are 0, as in vec_exp().
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

/*
 * The largest of a q_row's scores in a tile, times its scale.  Rounding is monotonic, so this is also
 * the largest product.
 */
INLINE vec
tile_top(vec s[TILE_VECS], float scale)
{
	return vec_max(vec_max(s[0], s[1]), vec_max(s[2], s[3])) * vec_set1(scale);
}

/* Sets a q_row's scores past the visible ones to -inf; returns the largest scores, in lanes. */
INLINE vec
line_top(struct tile_block *block, uint32_t line)
{
	vec top = vec_set1(-INFINITY);

	for (uint32_t j = 0; j < block->n_tiles; j++) {
		float *score = block->tile[j].score[line];
		uint32_t visible = block->tile[j].visible[line];
		vec s[TILE_VECS];

		UNROLL
		for (uint32_t i = 0; i < TILE_VECS; i++)
			s[i] = vec_load(score + i * LANES);
		if (visible < TILE_TOKENS) {
			UNROLL
			for (uint32_t i = 0; i < TILE_VECS; i++) {
				s[i] = vec_below(s[i], visible > i * LANES ? visible - i * LANES : 0,
						 vec_set1(-INFINITY));
				vec_store(score + i * LANES, s[i]);
			}
		}
		top = vec_max(tile_top(s, block->scale[j]), top);
	}
	return top;
}

/* The same for a q_row that sees all tokens of BLOCK_TILES tiles. */
INLINE vec
line_top_of_all(const struct tile_block *block, uint32_t line)
{
	vec top = vec_set1(-INFINITY);

	UNROLL
	for (uint32_t j = 0; j < BLOCK_TILES; j++) {
		vec s[TILE_VECS];

		UNROLL
		for (uint32_t i = 0; i < TILE_VECS; i++)
			s[i] = vec_load(block->tile[j].score[line] + i * LANES);
		top = vec_max(tile_top(s, block->scale[j]), top);
	}
	return top;
}

/* True if LANES q_rows from `line` on see all tokens of a full block. */
INLINE bool
lines_see_all(const struct tile_block *block, uint32_t line)
{
	uint32_t all = TILE_TOKENS; /* has a single bit, which no smaller `visible` has */

	if (block->n_tiles < BLOCK_TILES || block->n_q_rows - line < LANES)
		return false;
	UNROLL
	for (uint32_t i = 0; i < LANES; i++)
		all &= block->tile[0].visible[line + i] & block->tile[1].visible[line + i];
	return all != 0;
}

/* New maxima of LANES q_rows from `line` on, and the shifts to subtract from their scores. */
INLINE void
lines_shift(struct tile_block *block, uint32_t line, vec top[LANES])
{
	vec before = vec_load(&block->state->row_max[line]), most = vec_max(vec_max_each(top), before), shift;

	/* A shift of 0 for -inf, so that the weights are 0 and not NaN. */
	shift = vec_no_minus_infinity(most);
	vec_store(&block->state->row_max[line], most);
	vec_store(&block->shift[line], shift);
	vec_store(&block->rescale[line], vec_exp2((before - shift) * vec_set1(LOG2_E)));
}

static __attribute__((noinline)) void
some_lines_begin(struct tile_block *block, uint32_t line)
{
	vec top[LANES];

	for (uint32_t i = 0; i < LANES; i++)
		top[i] = line + i < block->n_q_rows ? line_top(block, line + i) : vec_set1(-INFINITY);
	lines_shift(block, line, top);
}

static __attribute__((noinline)) void
whole_lines_begin(struct tile_block *block, uint32_t line)
{
	vec top[LANES];

	UNROLL
	for (uint32_t i = 0; i < LANES; i++)
		top[i] = line_top_of_all(block, line + i);
	lines_shift(block, line, top);
}

/* Replaces a q_row's scores in a tile with its weights; returns their sums, in lanes. */
INLINE vec
tile_weights(float *score, const float *token_scale, float scale, float shift, bool large)
{
	vec weight[TILE_VECS], sum;

	UNROLL
	for (uint32_t i = 0; i < TILE_VECS; i++) {
		vec s = vec_load(score + i * LANES);

		if (large)
			s = (s * vec_set1(scale) - vec_set1(shift)) * vec_set1(LOG2_E);
		else
			s = vec_fma(s, vec_set1(scale * LOG2_E), vec_set1(-shift * LOG2_E));
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
tile_weights_slow(float *score, const float *token_scale, float scale, float shift)
{
	if (fabsf(shift) < LARGE_SCORE)
		return tile_weights(score, token_scale, scale, shift, false);
	return tile_weights(score, token_scale, scale, shift, true);
}

/* Computes part n of a block's weights: one q_row in one tile; block->lanes accumulates the q_row's sums. */
INLINE void
some_weights(struct tile_block *block, uint32_t n)
{
	uint32_t line = block->n_tiles == BLOCK_TILES ? n / BLOCK_TILES : n;
	uint32_t j = block->n_tiles == BLOCK_TILES ? n % BLOCK_TILES : 0;
	float *score = block->tile[j].score[line], scale = block->scale[j], shift = block->shift[line];
	vec sum;

	if (fabsf(shift) < LARGE_SCORE && block->token_scale[j] == NULL)
		sum = tile_weights(score, NULL, scale, shift, false);
	else
		sum = tile_weights_slow(score, block->token_scale[j], scale, shift);
	if (j != 0)
		sum = vec_load(block->lanes[line]) + sum;
	vec_store(block->lanes[line], sum);
}

/* Adds the block's sums to the state and rescales the values of q_rows whose maximum changed, which are few. */
INLINE void
block_rescale(struct tile_block *block)
{
	struct softmax_state *state = block->state;

	for (uint32_t line = 0; line < block->n_q_rows; line += LANES) {
		vec sum[LANES], rescale = vec_load(&block->rescale[line]);
		uint32_t changed = block->init_acc ? 0 : vec_unequal(rescale, vec_set1(1));

		UNROLL
		for (uint32_t i = 0; i < LANES; i++)
			sum[i] = vec_load(block->lanes[line + i]);
		vec_store(&state->row_sum[line], vec_fma(vec_load(&state->row_sum[line]), rescale, vec_sum_each(sum)));
		if (block->n_q_rows - line < LANES)
			changed &= (1u << (block->n_q_rows - line)) - 1;
		for (; changed != 0; changed &= changed - 1) {
			uint32_t i = line + (uint32_t)__builtin_ctz(changed);

			values_rescale(state, i, block->rescale[i]);
		}
	}
}

/* Spreads the computation of a block's weights over n_steps steps of products. */
struct between {
	struct tile_block *block; /* or NULL */
	uint32_t n_steps, n_parts, part, credit;
};

/* The maxima of all q_rows are computed first: that is faster than one at a time between products. */
INLINE void
softmax_begin(struct tile_block *block)
{
	for (uint32_t line = 0; line < block->n_q_rows; line += LANES)
		if (lines_see_all(block, line))
			whole_lines_begin(block, line);
		else
			some_lines_begin(block, line);
}

INLINE void
between_step(struct between *between)
{
	if (between->block == NULL)
		return;
	between->credit += between->n_parts;
	for (; between->credit >= between->n_steps; between->credit -= between->n_steps)
		some_weights(between->block, between->part++);
}

static __attribute__((noinline)) void
between_some(struct between *between)
{
	between_step(between);
	between_step(between);
}

/* The 2 x 2 tiles of sums that are not yet stored; to: NULL if there are none. */
struct sums {
	float *to;
	size_t stride;
};

/* Where the next sums will be stored.  They begin with the contents (`added`) or at 0. */
struct place {
	float *at;
	size_t stride;
	bool added;
};

/*
 * Starts a new sum in a tile.  The old sum is stored only now, when its tile is needed, so that the
 * store does not wait for the product.
 */
#define SUM_NEXT(t, sums, place, line, column)                                                                         \
	do {                                                                                                           \
		if ((sums)->to != NULL)                                                                                \
			AMX_STORE(t, (sums)->to + (line) * (sums)->stride + (column), (sums)->stride * sizeof(float)); \
		if ((place)->added)                                                                                    \
			AMX_LOAD(t, (place)->at + (line) * (place)->stride + (column),                                 \
				 (place)->stride * sizeof(float));                                                     \
		else                                                                                                   \
			AMX_ZERO(t);                                                                                   \
	} while (0)

/*
 * Adds two tiles of q_rows times two tiles of a panel to the sums; `place`: set in the first step of
 * new sums, else NULL.  The loads come first. between_step() follows every two products, so that even
 * on CPUs with slow tiles most of it overlaps with a product.
 */
INLINE void
step_multiply(const void *left, size_t stride, const float *panel, struct sums *sums, const struct place *place,
	      struct between *between)
{
	AMX_LOAD(4, left, stride);
	AMX_LOAD(5, (const uint8_t *)left + AMX_ROWS * stride, stride);
	AMX_LOAD_ONCE(6, panel, PANEL * sizeof(float));
	AMX_LOAD_ONCE(7, panel + AMX_ROWS, PANEL * sizeof(float));
	if (place != NULL)
		SUM_NEXT(0, sums, place, 0, 0);
	AMX_DOT(0, 4, 6);
	if (place != NULL)
		SUM_NEXT(1, sums, place, 0, AMX_ROWS);
	AMX_DOT(1, 4, 7);
	between_step(between);
	if (place != NULL)
		SUM_NEXT(3, sums, place, AMX_ROWS, AMX_ROWS);
	AMX_DOT(3, 5, 7);
	if (place != NULL)
		SUM_NEXT(2, sums, place, AMX_ROWS, 0);
	AMX_DOT(2, 5, 6);
	if (place != NULL)
		*sums = (struct sums){ .to = place->at, .stride = place->stride };
	between_step(between);
}

/* n steps along the depth of q_rows and panel. noinline: a single copy keeps the code small. */
static __attribute__((noinline)) void
steps_multiply(const float *left, size_t stride, const float *panel, uint32_t n, struct sums *sums,
	       const struct place *place, struct between *between)
{
	for (uint32_t i = 0; i < n; i++) {
		step_multiply(left, stride, panel, sums, place, between);
		left += AMX_ROWS;
		panel += AMX_ROWS * PANEL;
		place = NULL;
	}
}

INLINE void
sums_store(struct sums *sums)
{
	if (sums->to != NULL)
		amx_store(sums->to, sums->stride, 2, 2);
	sums->to = NULL;
}

/* Adds the product of fewer tiles to the sums, at the edges. */
static __attribute__((noinline)) void
some_multiply(const void *left, size_t stride, const float *panel, uint32_t lines, uint32_t columns)
{
	AMX_LOAD(6, panel, PANEL * sizeof(float));
	AMX_LOAD(4, left, stride);
	AMX_DOT(0, 4, 6);
	if (lines == 2) {
		AMX_LOAD(5, (const uint8_t *)left + AMX_ROWS * stride, stride);
		AMX_DOT(2, 5, 6);
	}
	if (columns == 2) {
		AMX_LOAD(7, panel + AMX_ROWS, PANEL * sizeof(float));
		AMX_DOT(1, 4, 7);
	}
	if (lines == 2 && columns == 2)
		AMX_DOT(3, 5, 7);
}

INLINE void
some_begin(struct sums *sums, const struct place *place, uint32_t lines, uint32_t columns)
{
	sums_store(sums);
	if (place->added)
		amx_load(place->at, place->stride, lines, columns);
	else
		amx_zero();
}

/* Multiplies q_rows with a panel of keys. */
INLINE void
keys_multiply(struct tile_block *block, uint32_t j, uint32_t t, uint32_t lines, uint32_t columns, struct sums *sums,
	      struct between *between)
{
	const float *panel = block->keys[j] + (size_t)t * block->depth;
	const struct place place = { .at = &block->tile[j].score[0][t], .stride = TILE_TOKENS };
	const size_t stride = block->depth * sizeof(float);

	if (lines == 2 && columns == 2) {
		steps_multiply(block->q, stride, panel, block->depth / AMX_ROWS, sums, &place, between);
		return;
	}
	some_begin(sums, &place, lines, columns);
	for (uint32_t d = 0; d < block->depth; d += AMX_ROWS) {
		some_multiply(block->q + d, stride, panel + (size_t)d * PANEL, lines, columns);
		between_some(between);
	}
	amx_store(place.at, place.stride, lines, columns);
}

INLINE void
block_keys(struct tile_block *block, struct sums *sums, struct between *between)
{
	uint32_t lines = block->n_q_rows > AMX_ROWS ? 2 : 1;

	for (uint32_t j = 0; j < block->n_tiles; j++)
		for (uint32_t t = 0; t < block->n_tokens[j]; t += PANEL)
			keys_multiply(block, j, t, lines, block->n_tokens[j] - t > AMX_ROWS ? 2 : 1, sums, between);
}

/* Multiplies weights with a panel of values, dims from d on. */
INLINE void
values_multiply(struct tile_block *block, uint32_t d, uint32_t lines, uint32_t columns, struct sums *sums,
		struct between *between)
{
	struct softmax_state *state = block->state;
	const struct place place = { .at = state->values + d, .stride = state->stride, .added = !block->init_acc };
	const size_t stride = TILE_TOKENS * sizeof(float);
	bool whole = lines == 2 && columns == 2;

	if (!whole)
		some_begin(sums, &place, lines, columns);
	for (uint32_t j = 0; j < block->n_tiles; j++) {
		const float *panel = block->values[j] + (size_t)d * (TILE_TOKENS / 2);
		const float *weights = block->tile[j].score[0];
		uint32_t n = (block->n_tokens[j] + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS);

		if (whole)
			steps_multiply(weights, stride, panel, n, sums, j == 0 ? &place : NULL, between);
		for (uint32_t i = 0; i < n && !whole; i++) {
			some_multiply(weights + i * AMX_ROWS, stride, panel + (size_t)i * AMX_ROWS * PANEL, lines,
				      columns);
			between_some(between);
		}
	}
	if (!whole)
		amx_store(place.at, place.stride, lines, columns);
}

INLINE void
block_values(struct tile_block *block, struct sums *sums, struct between *between)
{
	uint32_t lines = block->n_q_rows > AMX_ROWS ? 2 : 1;

	for (uint32_t d = 0; d < block->state->stride; d += PANEL)
		values_multiply(block, d, lines, block->state->stride - d > AMX_ROWS ? 2 : 1, sums, between);
}

/* Number of steps of a block's products: for_panel steps for every PANEL tokens. */
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
	struct between between = { .block = softmax_of };
	struct sums sums = { .to = NULL };

	if (scores != NULL)
		between.n_steps += block_steps(scores, scores->depth / AMX_ROWS);
	if (values != NULL)
		between.n_steps += block_steps(values, (values->state->stride + PANEL - 1) / PANEL);
	between.n_steps *= 2;
	if (softmax_of != NULL) {
		softmax_begin(softmax_of);
		between.n_parts = softmax_of->n_q_rows * softmax_of->n_tiles;
	}
	if (values != NULL)
		block_values(values, &sums, &between);
	if (scores != NULL)
		block_keys(scores, &sums, &between);
	sums_store(&sums);
	if (softmax_of == NULL)
		return;
	for (; between.part < between.n_parts; between.part++)
		some_weights(softmax_of, between.part);
	block_rescale(softmax_of);
}
