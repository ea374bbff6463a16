/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_prefill_body.h - products of many q_rows with a tile that was packed once
 *
 * Each tile_*.c includes it after tile_body.h, with more primitives:
 *
 *   REGISTER_Q_ROWS       q_rows whose sums, of two vectors each, are held in registers
 *   vec_transpose(square) transposes LANES vectors in place
 *
 * and, if TILE_PAIRS is defined, primitives for words of two bf16 each:
 *
 *   vec_dot(a, b, c)      c + the products of the words' halves, one after the other
 *   vec_join(low, high)   words of two vectors of floats that bf16 represents exactly
 *   vec_round_bf16(at, v) stores floats as bf16, rounded to nearest even
 *   vec_permute_halves(a, b, order)  selects bf16 of both; indices from 32 on are those of b
 *   vec_absmax_halves(a, b)  the larger of each two bf16 without their signs, as integers
 *
 * Keys and values are packed in panels of PANEL columns: tokens for keys, dims for values.  Q K^T
 * and P V then use the same loop: a word of each q_row times a panel row, without horizontal
 * sums.  The sums of a q_row begin at 0, and the panel rows are added in order.
 */

#define PANEL (2 * LANES)

/* A word is a float or two bf16. */
enum word { WORD_FLOAT, WORD_PAIR };

INLINE vec
multiply_words(vec left, vec right, vec sum, enum word word)
{
#ifdef TILE_PAIRS
	if (word == WORD_PAIR)
		return vec_dot(left, right, sum);
#endif
	(void)word;
	return vec_fma(left, right, sum);
}

/* A product: `depth` words of each q_row times a panel. */
struct product {
	float *to;
	/* factor of the contents of `to`, to which the product is added; NULL: `to` is overwritten */
	const float *rescale;
	const float *left;
	const float *panel;
	uint32_t to_stride, left_stride; /* from q_row to q_row */
	uint32_t depth;
};

/* Prefetch of tokens spread over steps, `share` tokens per step. */
struct prefetch_spread {
	const struct tile_tokens *prefetch;
	uint32_t share, n;
};

/* Spreads the prefetch of all tokens over n_steps steps; `prefetch` may be NULL. */
INLINE struct prefetch_spread
prefetch_spread_over(const struct tile_tokens *prefetch, uint32_t n_steps)
{
	return (struct prefetch_spread){ .prefetch = prefetch,
					 .share = prefetch != NULL ? (TILE_TOKENS + n_steps - 1) / n_steps : 0 };
}

INLINE void
prefetch_spread_step(struct prefetch_spread *prefetch_spread)
{
	for (uint32_t i = 0; i < prefetch_spread->share && prefetch_spread->n < TILE_TOKENS; i++)
		prefetch_token(prefetch_spread->prefetch, prefetch_spread->n++);
}

/* A register block: `n_q_rows` q_rows and `vecs` vectors of the panel. */
INLINE void
product_block(const struct product *p, uint32_t q_row, uint32_t n_q_rows, uint32_t vecs, enum word word)
{
	const float *left = p->left + (size_t)q_row * p->left_stride, *panel = p->panel;
	const uint32_t left_stride = p->left_stride, depth = p->depth;
	vec sums[REGISTER_Q_ROWS][2];

	UNROLL
	for (uint32_t i = 0; i < n_q_rows; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++)
		sums[i][j] = vec_set1(0);
	for (uint32_t d = 0; d < depth; d++) {
		vec right[2];

		UNROLL
		for (uint32_t j = 0; j < vecs; j++)
			right[j] = vec_load(panel + (size_t)d * PANEL + j * LANES);
		UNROLL
		for (uint32_t i = 0; i < n_q_rows; i++) {
			vec one = vec_set1(left[(size_t)i * left_stride + d]);

			UNROLL
			for (uint32_t j = 0; j < vecs; j++)
				sums[i][j] = multiply_words(one, right[j], sums[i][j], word);
		}
	}
	UNROLL
	for (uint32_t i = 0; i < n_q_rows; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++) {
		float *at = p->to + (size_t)(q_row + i) * p->to_stride + j * LANES;

		if (p->rescale != NULL)
			sums[i][j] = vec_fma(vec_load(at), vec_set1(p->rescale[q_row + i]), sums[i][j]);
		vec_store(at, sums[i][j]);
	}
}

INLINE void
product_q_rows(const struct product *p, struct prefetch_spread *prefetch_spread, uint32_t n, uint32_t vecs,
	       enum word word)
{
	uint32_t q_row = 0;

	for (; n - q_row >= REGISTER_Q_ROWS; q_row += REGISTER_Q_ROWS) {
		prefetch_spread_step(prefetch_spread);
		product_block(p, q_row, REGISTER_Q_ROWS, vecs, word);
	}
	if (n != q_row)
		prefetch_spread_step(prefetch_spread);
	if (n - q_row >= 4) {
		product_block(p, q_row, 4, vecs, word);
		q_row += 4;
	}
	if (n - q_row >= 2) {
		product_block(p, q_row, 2, vecs, word);
		q_row += 2;
	}
	if (n - q_row >= 1)
		product_block(p, q_row, 1, vecs, word);
}

INLINE uint32_t
q_row_blocks(uint32_t n_q_rows)
{
	return (n_q_rows + REGISTER_Q_ROWS - 1) / REGISTER_Q_ROWS;
}

INLINE void
scores_panels(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const float *panels,
	      uint32_t n_tokens, uint32_t depth, const struct tile_tokens *prefetch, enum word word)
{
	struct product p = {
		.left = q + (size_t)begin * depth, .left_stride = depth, .to_stride = TILE_TOKENS, .depth = depth
	};
	struct prefetch_spread prefetch_spread =
		prefetch_spread_over(prefetch, q_row_blocks(end - begin) * ((n_tokens + PANEL - 1) / PANEL));

	for (uint32_t t = 0; t < n_tokens; t += PANEL) {
		p.to = &scores->score[begin][t];
		p.panel = panels + (size_t)t * depth;
		product_q_rows(&p, &prefetch_spread, end - begin, 2, word);
	}
}

INLINE void
values_panels(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
	      const float *weights, uint32_t weights_stride, const float *panels, uint32_t depth,
	      const struct tile_tokens *prefetch, enum word word)
{
	struct product p = { .rescale = &scores->rescale[begin],
			     .left = weights,
			     .left_stride = weights_stride,
			     .to_stride = state->stride,
			     .depth = depth };
	struct prefetch_spread prefetch_spread =
		prefetch_spread_over(prefetch, q_row_blocks(end - begin) * ((state->stride + PANEL - 1) / PANEL));

	for (uint32_t d = 0; d < state->stride; d += PANEL) {
		p.to = state->values + (size_t)begin * state->stride + d;
		p.panel = panels + (size_t)d * weights_stride;
		if (state->stride - d > LANES)
			product_q_rows(&p, &prefetch_spread, end - begin, 2, word);
		else
			product_q_rows(&p, &prefetch_spread, end - begin, 1, word);
	}
}

/* Words of one float. */

INLINE void
f32_pack_keys_of(float *panels, const struct tile_tokens *keys, enum paged_dtype dtype)
{
	for (uint32_t t = 0; t < keys->n_tokens; t += LANES) {
		float *to = panels + (size_t)(t / PANEL) * PANEL * keys->padded + t % PANEL;

		for (uint32_t d = 0; d < keys->padded; d += LANES) {
			vec square[LANES];

			UNROLL
			for (uint32_t i = 0; i < LANES; i++)
				square[i] = load_as(keys->token[t + i], dtype, d);
			vec_transpose(square);
			UNROLL
			for (uint32_t i = 0; i < LANES; i++)
				vec_store(to + (size_t)(d + i) * PANEL, square[i]);
		}
	}
}

static void
f32_pack_keys(float *panels, const struct tile_tokens *keys)
{
	FOR_DTYPE(keys->dtype, f32_pack_keys_of, panels, keys);
}

/* Address of a column in row `panel_row` of its panel; a panel has `depth` rows. */
INLINE float *
panel_at(float *panels, uint32_t depth, uint32_t panel_row, uint32_t column)
{
	return panels + ((size_t)(column / PANEL) * depth + panel_row) * PANEL + column % PANEL;
}

/*
 * Finite numbers times zero are zero, others are NaN: a token with one is packed
 * as zeros and reported in non_finite_p.
 */
INLINE void
f32_pack_values_of(float *panels, const struct tile_tokens *values, uint64_t *non_finite_p, enum paged_dtype dtype)
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
		*non_finite_p |= UINT64_C(1) << t;
		for (uint32_t d = 0; d < values->padded; d += LANES)
			vec_store(panel_at(panels, TILE_TOKENS, t, d), vec_set1(0));
	}
}

static uint64_t
f32_pack_values(float *panels, const struct tile_tokens *values)
{
	uint64_t non_finite = 0;

	FOR_DTYPE(values->dtype, f32_pack_values_of, panels, values, &non_finite);
	return non_finite;
}

static void
prefill_f32_scores(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const float *panels,
		   uint32_t n_tokens, uint32_t depth, const struct tile_tokens *prefetch)
{
	scores_panels(scores, q, begin, end, panels, n_tokens, depth, prefetch, WORD_FLOAT);
}

static void
prefill_f32_values(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		   const float *panels, uint32_t n_tokens, const struct tile_tokens *prefetch)
{
	values_panels(scores, state, begin, end, scores->score[begin], TILE_TOKENS, panels, n_tokens, prefetch,
		      WORD_FLOAT);
}

static const struct tile_prefill_ops tile_prefill_f32 = {
	.word_elements = 1,
	.prefill_q_rows = KERNEL_PREFILL_Q_ROWS,
	.pack_keys = f32_pack_keys,
	.pack_values = f32_pack_values,
	.scores = prefill_f32_scores,
	.values = prefill_f32_values,
};

#ifdef TILE_PAIRS

/* Words of two bf16: two dims of a key, or two tokens of a dim. */

INLINE vec
load_pairs(const void *token, enum paged_dtype dtype, uint32_t d)
{
	_Alignas(64) uint8_t pairs[LANES * 4];

	if (dtype == PAGED_BF16)
		return vec_load((const float *)(const void *)((const uint8_t *)token + (size_t)d * 2));
	vec_store_bf16(pairs, load_as(token, dtype, d));
	vec_store_bf16(pairs + LANES * 2, load_as(token, dtype, d + LANES));
	return vec_load((const float *)(const void *)pairs);
}

INLINE void
bf16_pack_keys_of(float *panels, const struct tile_tokens *keys, enum paged_dtype dtype)
{
	const uint32_t depth = keys->padded / 2;

	for (uint32_t t = 0; t < keys->n_tokens; t += LANES)
		for (uint32_t d = 0; d < depth; d += LANES) {
			vec square[LANES];

			UNROLL
			for (uint32_t i = 0; i < LANES; i++)
				square[i] = load_pairs(keys->token[t + i], dtype, 2 * d);
			vec_transpose(square);
			UNROLL
			for (uint32_t i = 0; i < LANES; i++)
				vec_store(panel_at(panels, depth, d + i, t), square[i]);
		}
}

static void
bf16_pack_keys(float *panels, const struct tile_tokens *keys)
{
	FOR_DTYPE(keys->dtype, bf16_pack_keys_of, panels, keys);
}

INLINE bool
token_is_finite(const void *token, uint32_t padded, enum paged_dtype dtype)
{
	vec zero = vec_set1(0);

	for (uint32_t d = 0; d < padded; d += LANES)
		zero = vec_fma(load_as(token, dtype, d), vec_set1(0), zero);
	return vec_sum(zero) == 0;
}

/* Packs tokens t and t + 1, those of `non_finite` as zeros; false: a packed value is NaN or infinite. */
INLINE bool
bf16_pack_pair(float *panels, const struct tile_tokens *values, uint32_t t, const void *const *pair,
	       uint32_t non_finite, enum paged_dtype dtype)
{
	vec zero = vec_set1(0);

	for (uint32_t d = 0; d < values->padded; d += LANES) {
		vec low = non_finite & 1 ? vec_set1(0) : load_as(pair[0], dtype, d);
		vec high = non_finite & 2 ? vec_set1(0) : load_as(pair[1], dtype, d);
		vec pairs = vec_join(low, high);

		zero = vec_dot(pairs, vec_set1(0), zero);
		vec_store(panel_at(panels, TILE_TOKENS / 2, t / 2, d), pairs);
	}
	return vec_sum(zero) == 0;
}

/* Pairs of element i of both tokens, for 16 of 32 dims from `first` on. */
INLINE vec
pairs_from(vec even, vec odd, uint32_t first)
{
#define PAIRS_4(i) (i), (i) + 32, (i) + 1, (i) + 33, (i) + 2, (i) + 34, (i) + 3, (i) + 35
#define PAIRS_16(i)                                                               \
	{                                                                         \
		PAIRS_4(i), PAIRS_4((i) + 4), PAIRS_4((i) + 8), PAIRS_4((i) + 12) \
	}
	_Alignas(64) static const uint16_t order[2][32] = { PAIRS_16(0), PAIRS_16(16) };

	return vec_permute_halves(even, odd, order[first / LANES]);
}

/* Packs the pairs of all tokens, which must be whole vectors of bf16; false: a value is NaN or infinite. */
INLINE bool
bf16_pack_whole_tokens(float *panels, const struct tile_tokens *values)
{
	const uint16_t infinity = 0x7f80;
	uint16_t halves[2 * LANES], top = 0;
	vec most = vec_set1(0);

	for (uint32_t t = 0; t < values->n_tokens; t += 2) {
		const float *even = values->token[t], *odd = values->token[t + 1 < values->n_tokens ? t + 1 : t];

		for (uint32_t d = 0; d < values->padded; d += 2 * LANES) {
			vec low = vec_load(even + d / 2), high = vec_load(odd + d / 2);
			float *to = panel_at(panels, TILE_TOKENS / 2, t / 2, d);

			most = vec_absmax_halves(vec_absmax_halves(low, high), most);
			vec_store(to, pairs_from(low, high, 0));
			vec_store(to + LANES, pairs_from(low, high, LANES));
		}
	}
	memcpy(halves, &most, sizeof(halves));
	for (uint32_t i = 0; i < 2 * LANES; i++)
		top = halves[i] > top ? halves[i] : top;
	return top < infinity;
}

/* If the number of tokens is odd, the last one is also its partner, with a weight of 0. */
INLINE void
bf16_pack_values_of(float *panels, const struct tile_tokens *values, uint64_t *non_finite_p, enum paged_dtype dtype)
{
	if (dtype == PAGED_BF16 && values->padded % (2 * LANES) == 0 && bf16_pack_whole_tokens(panels, values))
		return;
	for (uint32_t t = 0; t < values->n_tokens; t += 2) {
		const void *pair[2] = { values->token[t], values->token[t + 1 < values->n_tokens ? t + 1 : t] };
		uint32_t non_finite = 0;

		if (bf16_pack_pair(panels, values, t, pair, 0, dtype))
			continue;
		for (uint32_t i = 0; i < 2; i++)
			non_finite |= token_is_finite(pair[i], values->padded, dtype) ? 0 : 1u << i;
		bf16_pack_pair(panels, values, t, pair, non_finite, dtype);
		*non_finite_p |= (uint64_t)non_finite << t;
	}
}

static uint64_t
bf16_pack_values(float *panels, const struct tile_tokens *values)
{
	uint64_t non_finite = 0;

	FOR_DTYPE(values->dtype, bf16_pack_values_of, panels, values, &non_finite);
	return non_finite;
}

static void
prefill_bf16_scores(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const float *panels,
		    uint32_t n_tokens, uint32_t depth, const struct tile_tokens *prefetch)
{
	scores_panels(scores, q, begin, end, panels, n_tokens, depth, prefetch, WORD_PAIR);
}

INLINE void
weights_pair(float *pairs, const float *weights)
{
	for (uint32_t t = 0; t < TILE_TOKENS; t += LANES)
		vec_round_bf16((uint8_t *)pairs + (size_t)t * 2, vec_load(weights + t));
}

static void
prefill_bf16_values(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		    const float *panels, uint32_t n_tokens, const struct tile_tokens *prefetch)
{
	_Alignas(64) float weights[TILE_Q_ROWS][TILE_TOKENS / 2];

	for (uint32_t q_row = begin; q_row < end; q_row++)
		weights_pair(weights[q_row - begin], scores->score[q_row]);
	values_panels(scores, state, begin, end, weights[0], TILE_TOKENS / 2, panels, (n_tokens + 1) / 2, prefetch,
		      WORD_PAIR);
}

/* Unused in the AMX build, which makes its own table from these functions. */
__attribute__((unused)) static const struct tile_prefill_ops tile_prefill_bf16 = {
	.word_elements = 2,
	.prefill_q_rows = KERNEL_PREFILL_Q_ROWS,
	.pack_keys = bf16_pack_keys,
	.pack_values = bf16_pack_values,
	.scores = prefill_bf16_scores,
	.values = prefill_bf16_values,
};

#endif
