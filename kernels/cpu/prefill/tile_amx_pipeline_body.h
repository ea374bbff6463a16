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
 *   vec_max_each(v), vec_sum_each(v)   lane i: the largest lane, or the sum of the lanes, of vector i of LANES
 *                            vectors, which are clobbered
 *   vec_unequal(a, b)        a bit for each lane in which a and b differ or one is NaN
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
tile_max(vec s[TILE_VECS], float scale)
{
	return vec_max(vec_max(s[0], s[1]), vec_max(s[2], s[3])) * vec_set1(scale);
}

/* Sets a q_row's scores past the visible ones to -inf; returns the largest scores, in lanes. */
INLINE vec
q_row_max(struct tile_block *block, uint32_t q_row)
{
	vec max = vec_set1(-INFINITY);

	for (uint32_t j = 0; j < block->n_tiles; j++) {
		float *score = block->tile[j].score[q_row];
		uint32_t visible = block->tile[j].visible[q_row];
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
		max = vec_max(tile_max(s, block->scale[j]), max);
	}
	return max;
}

/* The same for a q_row that sees all tokens of BLOCK_TILES tiles. */
INLINE vec
q_row_max_of_all(const struct tile_block *block, uint32_t q_row)
{
	vec max = vec_set1(-INFINITY);

	UNROLL
	for (uint32_t j = 0; j < BLOCK_TILES; j++) {
		vec s[TILE_VECS];

		UNROLL
		for (uint32_t i = 0; i < TILE_VECS; i++)
			s[i] = vec_load(block->tile[j].score[q_row] + i * LANES);
		max = vec_max(tile_max(s, block->scale[j]), max);
	}
	return max;
}

/* True if LANES q_rows from `q_row` on see all tokens of a full block. */
INLINE bool
q_rows_see_all(const struct tile_block *block, uint32_t q_row)
{
	uint32_t all = TILE_TOKENS; /* has a single bit, which no smaller `visible` has */

	if (block->n_tiles < BLOCK_TILES || block->n_q_rows - q_row < LANES)
		return false;
	UNROLL
	for (uint32_t i = 0; i < LANES; i++)
		all &= block->tile[0].visible[q_row + i] & block->tile[1].visible[q_row + i];
	return all != 0;
}

/* New maxima of LANES q_rows from `q_row` on, and the shifts to subtract from their scores. */
INLINE void
q_rows_shift(struct tile_block *block, uint32_t q_row, vec max[LANES])
{
	vec before = vec_load(&block->state->row_max[q_row]), new_max = vec_max(vec_max_each(max), before), shift;

	/* A shift of 0 for -inf, so that the weights are 0 and not NaN. */
	shift = vec_no_minus_infinity(new_max);
	vec_store(&block->state->row_max[q_row], new_max);
	vec_store(&block->shift[q_row], shift);
	vec_store(&block->rescale[q_row], vec_exp2((before - shift) * vec_set1(LOG2_E)));
}

static __attribute__((noinline)) void
q_rows_max_some(struct tile_block *block, uint32_t q_row)
{
	vec max[LANES];

	for (uint32_t i = 0; i < LANES; i++)
		max[i] = q_row + i < block->n_q_rows ? q_row_max(block, q_row + i) : vec_set1(-INFINITY);
	q_rows_shift(block, q_row, max);
}

static __attribute__((noinline)) void
q_rows_max_all(struct tile_block *block, uint32_t q_row)
{
	vec max[LANES];

	UNROLL
	for (uint32_t i = 0; i < LANES; i++)
		max[i] = q_row_max_of_all(block, q_row + i);
	q_rows_shift(block, q_row, max);
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
	if (token_scale != NULL) {
		UNROLL
		for (uint32_t i = 0; i < TILE_VECS; i++)
			weight[i] = vec_scaled(weight[i], vec_load(token_scale + i * LANES));
	}
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
block_weights_part(struct tile_block *block, uint32_t n)
{
	uint32_t q_row = block->n_tiles == BLOCK_TILES ? n / BLOCK_TILES : n;
	uint32_t j = block->n_tiles == BLOCK_TILES ? n % BLOCK_TILES : 0;
	float *score = block->tile[j].score[q_row], scale = block->scale[j], shift = block->shift[q_row];
	vec sum;

	if (fabsf(shift) < LARGE_SCORE && block->token_scale[j] == NULL)
		sum = tile_weights(score, NULL, scale, shift, false);
	else
		sum = tile_weights_slow(score, block->token_scale[j], scale, shift);
	if (j != 0)
		sum = vec_load(block->lanes[q_row]) + sum;
	vec_store(block->lanes[q_row], sum);
}

/* Adds the block's sums to the state and rescales the values of q_rows whose maximum changed, which are few. */
INLINE void
block_rescale(struct tile_block *block)
{
	struct softmax_state *state = block->state;

	for (uint32_t q_row = 0; q_row < block->n_q_rows; q_row += LANES) {
		vec sum[LANES], rescale = vec_load(&block->rescale[q_row]);
		uint32_t changed = block->init_acc ? 0 : vec_unequal(rescale, vec_set1(1));

		UNROLL
		for (uint32_t i = 0; i < LANES; i++)
			sum[i] = vec_load(block->lanes[q_row + i]);
		vec_store(&state->row_sum[q_row],
			  vec_fma(vec_load(&state->row_sum[q_row]), rescale, vec_sum_each(sum)));
		if (block->n_q_rows - q_row < LANES)
			changed &= (1u << (block->n_q_rows - q_row)) - 1;
		for (; changed != 0; changed &= changed - 1) {
			uint32_t i = q_row + (uint32_t)__builtin_ctz(changed);

			values_rescale(state, i, block->rescale[i]);
		}
	}
}

/* Spreads the computation of a block's weights over n_steps steps of products. */
struct softmax_overlap {
	struct tile_block *block; /* or NULL */
	uint32_t n_steps, n_parts, part, credit;
};

/* The maxima of all q_rows are computed first: that is faster than one at a time between products. */
INLINE void
block_softmax_begin(struct tile_block *block)
{
	for (uint32_t q_row = 0; q_row < block->n_q_rows; q_row += LANES)
		if (q_rows_see_all(block, q_row))
			q_rows_max_all(block, q_row);
		else
			q_rows_max_some(block, q_row);
}

INLINE void
softmax_overlap_step(struct softmax_overlap *softmax_overlap)
{
	if (softmax_overlap->block == NULL)
		return;
	softmax_overlap->credit += softmax_overlap->n_parts;
	for (; softmax_overlap->credit >= softmax_overlap->n_steps; softmax_overlap->credit -= softmax_overlap->n_steps)
		block_weights_part(softmax_overlap->block, softmax_overlap->part++);
}

static __attribute__((noinline)) void
softmax_overlap_two_steps(struct softmax_overlap *softmax_overlap)
{
	softmax_overlap_step(softmax_overlap);
	softmax_overlap_step(softmax_overlap);
}

/* The 2 x 2 tiles of sums that are not yet stored; to: NULL if there are none. */
struct amx_pending {
	float *to;
	size_t stride;
};

/* Where the next sums will be stored.  They begin with the contents (`added`) or at 0. */
struct amx_destination {
	float *at;
	size_t stride;
	bool added;
};

/*
 * Starts a new sum in a tile.  The old sum is stored only now, when its tile is needed, so that the
 * store does not wait for the product.
 */
#define AMX_SUM_NEXT(t, sums, destination, q_row, column)                                           \
	do {                                                                                        \
		if ((sums)->to != NULL)                                                             \
			AMX_STORE(t, (sums)->to + (q_row) * (sums)->stride + (column),              \
				  (sums)->stride * sizeof(float));                                  \
		if ((destination)->added)                                                           \
			AMX_LOAD(t, (destination)->at + (q_row) * (destination)->stride + (column), \
				 (destination)->stride * sizeof(float));                            \
		else                                                                                \
			AMX_ZERO(t);                                                                \
	} while (0)

/*
 * Adds two tiles of q_rows times two tiles of a panel to the sums; `destination`: set in the first step of
 * new sums, else NULL.  The loads come first. softmax_overlap_step() follows every two products, so that even
 * on CPUs with slow tiles most of it overlaps with a product.
 */
INLINE void
amx_step_multiply(const void *left, size_t stride, const float *panel, struct amx_pending *sums,
		  const struct amx_destination *destination, struct softmax_overlap *softmax_overlap)
{
	AMX_LOAD(4, left, stride);
	AMX_LOAD(5, (const uint8_t *)left + AMX_ROWS * stride, stride);
	AMX_LOAD_ONCE(6, panel, PANEL * sizeof(float));
	AMX_LOAD_ONCE(7, panel + AMX_ROWS, PANEL * sizeof(float));
	if (destination != NULL)
		AMX_SUM_NEXT(0, sums, destination, 0, 0);
	AMX_DOT(0, 4, 6);
	if (destination != NULL)
		AMX_SUM_NEXT(1, sums, destination, 0, AMX_ROWS);
	AMX_DOT(1, 4, 7);
	softmax_overlap_step(softmax_overlap);
	if (destination != NULL)
		AMX_SUM_NEXT(3, sums, destination, AMX_ROWS, AMX_ROWS);
	AMX_DOT(3, 5, 7);
	if (destination != NULL)
		AMX_SUM_NEXT(2, sums, destination, AMX_ROWS, 0);
	AMX_DOT(2, 5, 6);
	if (destination != NULL)
		*sums = (struct amx_pending){ .to = destination->at, .stride = destination->stride };
	softmax_overlap_step(softmax_overlap);
}

/* n steps along the depth of q_rows and panel. noinline: a single copy keeps the code small. */
static __attribute__((noinline)) void
amx_steps_multiply(const float *left, size_t stride, const float *panel, uint32_t n, struct amx_pending *sums,
		   const struct amx_destination *destination, struct softmax_overlap *softmax_overlap)
{
	for (uint32_t i = 0; i < n; i++) {
		amx_step_multiply(left, stride, panel, sums, destination, softmax_overlap);
		left += AMX_ROWS;
		panel += AMX_ROWS * PANEL;
		destination = NULL;
	}
}

INLINE void
amx_pending_store(struct amx_pending *sums)
{
	if (sums->to != NULL)
		amx_store(sums->to, sums->stride, 2, 2);
	sums->to = NULL;
}

/* Adds the product of fewer tiles to the sums, at the edges. */
static __attribute__((noinline)) void
amx_edge_multiply(const void *left, size_t stride, const float *panel, uint32_t q_row_tiles, uint32_t column_tiles)
{
	AMX_LOAD(6, panel, PANEL * sizeof(float));
	AMX_LOAD(4, left, stride);
	AMX_DOT(0, 4, 6);
	if (q_row_tiles == 2) {
		AMX_LOAD(5, (const uint8_t *)left + AMX_ROWS * stride, stride);
		AMX_DOT(2, 5, 6);
	}
	if (column_tiles == 2) {
		AMX_LOAD(7, panel + AMX_ROWS, PANEL * sizeof(float));
		AMX_DOT(1, 4, 7);
	}
	if (q_row_tiles == 2 && column_tiles == 2)
		AMX_DOT(3, 5, 7);
}

INLINE void
amx_edge_begin(struct amx_pending *sums, const struct amx_destination *destination, uint32_t q_row_tiles,
	       uint32_t column_tiles)
{
	amx_pending_store(sums);
	if (destination->added)
		amx_load(destination->at, destination->stride, q_row_tiles, column_tiles);
	else
		amx_zero();
}

/* Multiplies q_rows with a panel of keys. */
INLINE void
amx_scores_panel(struct tile_block *block, uint32_t j, uint32_t t, uint32_t q_row_tiles, uint32_t column_tiles,
		 struct amx_pending *sums, struct softmax_overlap *softmax_overlap)
{
	const float *panel = block->keys[j] + (size_t)t * block->depth;
	const struct amx_destination destination = { .at = &block->tile[j].score[0][t], .stride = TILE_TOKENS };
	const size_t stride = block->depth * sizeof(float);

	if (q_row_tiles == 2 && column_tiles == 2) {
		amx_steps_multiply(block->q, stride, panel, block->depth / AMX_ROWS, sums, &destination,
				   softmax_overlap);
		return;
	}
	amx_edge_begin(sums, &destination, q_row_tiles, column_tiles);
	for (uint32_t d = 0; d < block->depth; d += AMX_ROWS) {
		amx_edge_multiply(block->q + d, stride, panel + (size_t)d * PANEL, q_row_tiles, column_tiles);
		softmax_overlap_two_steps(softmax_overlap);
	}
	amx_store(destination.at, destination.stride, q_row_tiles, column_tiles);
}

INLINE void
amx_block_scores(struct tile_block *block, struct amx_pending *sums, struct softmax_overlap *softmax_overlap)
{
	uint32_t q_row_tiles = block->n_q_rows > AMX_ROWS ? 2 : 1;

	for (uint32_t j = 0; j < block->n_tiles; j++)
		for (uint32_t t = 0; t < block->n_tokens[j]; t += PANEL)
			amx_scores_panel(block, j, t, q_row_tiles, block->n_tokens[j] - t > AMX_ROWS ? 2 : 1, sums,
					 softmax_overlap);
}

/* Multiplies weights with a panel of values, dims from d on. */
INLINE void
amx_values_panel(struct tile_block *block, uint32_t d, uint32_t q_row_tiles, uint32_t column_tiles,
		 struct amx_pending *sums, struct softmax_overlap *softmax_overlap)
{
	struct softmax_state *state = block->state;
	const struct amx_destination destination = { .at = state->values + d,
						     .stride = state->stride,
						     .added = !block->init_acc };
	const size_t stride = TILE_TOKENS * sizeof(float);
	bool whole = q_row_tiles == 2 && column_tiles == 2;

	if (!whole)
		amx_edge_begin(sums, &destination, q_row_tiles, column_tiles);
	for (uint32_t j = 0; j < block->n_tiles; j++) {
		const float *panel = block->values[j] + (size_t)d * (TILE_TOKENS / 2);
		const float *weights = block->tile[j].score[0];
		uint32_t n = (block->n_tokens[j] + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS);

		if (whole)
			amx_steps_multiply(weights, stride, panel, n, sums, j == 0 ? &destination : NULL,
					   softmax_overlap);
		for (uint32_t i = 0; i < n && !whole; i++) {
			amx_edge_multiply(weights + i * AMX_ROWS, stride, panel + (size_t)i * AMX_ROWS * PANEL,
					  q_row_tiles, column_tiles);
			softmax_overlap_two_steps(softmax_overlap);
		}
	}
	if (!whole)
		amx_store(destination.at, destination.stride, q_row_tiles, column_tiles);
}

INLINE void
amx_block_values(struct tile_block *block, struct amx_pending *sums, struct softmax_overlap *softmax_overlap)
{
	uint32_t q_row_tiles = block->n_q_rows > AMX_ROWS ? 2 : 1;

	for (uint32_t d = 0; d < block->state->stride; d += PANEL)
		amx_values_panel(block, d, q_row_tiles, block->state->stride - d > AMX_ROWS ? 2 : 1, sums,
				 softmax_overlap);
}

/* Number of steps of a block's products: for_panel steps for every PANEL tokens. */
INLINE uint32_t
amx_block_steps(const struct tile_block *block, uint32_t for_panel)
{
	uint32_t n = 0;

	for (uint32_t j = 0; j < block->n_tiles; j++)
		n += (block->n_tokens[j] + PANEL - 1) / PANEL;
	return n * for_panel;
}

static void
amx_pipeline_step(struct tile_block *scores, struct tile_block *softmax_block, struct tile_block *values)
{
	struct softmax_overlap softmax_overlap = { .block = softmax_block };
	struct amx_pending sums = { .to = NULL };

	if (scores != NULL)
		softmax_overlap.n_steps += amx_block_steps(scores, scores->depth / AMX_ROWS);
	if (values != NULL)
		softmax_overlap.n_steps += amx_block_steps(values, (values->state->stride + PANEL - 1) / PANEL);
	softmax_overlap.n_steps *= 2;
	if (softmax_block != NULL) {
		block_softmax_begin(softmax_block);
		softmax_overlap.n_parts = softmax_block->n_q_rows * softmax_block->n_tiles;
	}
	if (values != NULL)
		amx_block_values(values, &sums, &softmax_overlap);
	if (scores != NULL)
		amx_block_scores(scores, &sums, &softmax_overlap);
	amx_pending_store(&sums);
	if (softmax_block == NULL)
		return;
	for (; softmax_overlap.part < softmax_overlap.n_parts; softmax_overlap.part++)
		block_weights_part(softmax_block, softmax_overlap.part);
	block_rescale(softmax_block);
}
