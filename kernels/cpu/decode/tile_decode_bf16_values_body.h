/* SPDX-License-Identifier: Apache-2.0 */
/* tile_decode_bf16_values_body.h - part of tile_decode_bf16_body.h: accumulates values with weights rounded to bf16 */

/* A q_row's weights in bf16: a pair of tokens per word. */
struct weight_pairs {
	float pair[TILE_TOKENS / 2];
};

/* Weights past the visible tokens may be anything; they are never used. */
INLINE void
weights_round(struct weight_pairs *pairs, const float (*weights)[TILE_TOKENS], uint32_t n_q_rows)
{
	for (uint32_t i = 0; i < n_q_rows; i++)
		for (uint32_t t = 0; t < TILE_TOKENS; t += 2 * LANES)
			vec_store(&pairs[i].pair[t / 2],
				  vec_round_pairs(vec_load(&weights[i][t]), vec_load(&weights[i][t + LANES])));
}

/* Accumulates tokens [from, to) for some q_rows, `vecs` vectors of V beginning at dim d. */
INLINE void
bf16_values_block(float *values, uint32_t stride, const struct weight_pairs *weights, const float *rescale,
		  const struct tile_tokens *tokens, const struct tile_tokens *prefetch, enum paged_dtype dtype,
		  uint32_t from, uint32_t to, uint32_t d, uint32_t n_q_rows, uint32_t vecs)
{
	static const uint8_t zeros[2 * PAGED_MAX_DIM];
	const struct widen_tables tables = widen_tables(dtype);
	vec sums[Q_ROW_BLOCK][BF16_STEP_VECS];

	UNROLL
	for (uint32_t i = 0; i < n_q_rows; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++)
		sums[i][j] = vec_load(values + (size_t)i * stride + d + j * LANES) * vec_set1(rescale[i]);
	for (uint32_t t = from & ~1u; t < to; t += 2) {
		const void *even = t < from ? zeros : tokens->token[t];
		const void *odd = t + 1 == to ? zeros : tokens->token[t + 1];
		const struct prefetch_pair pair = prefetch_pair(tokens, prefetch, t, 2);
		vec value[BF16_STEP_VECS];

		prefetch_dims(&pair, 0, dtype, d, vecs * LANES);
		prefetch_dims(&pair, 1, dtype, d, vecs * LANES);
		if (vecs == BF16_STEP_VECS)
			pairs_64(&tables, even, odd, dtype, d, value);
		else
			value[0] = pairs_16(even, odd, dtype, d);
		UNROLL
		for (uint32_t i = 0; i < n_q_rows; i++) {
			vec weight = vec_set1(weights[i].pair[t / 2]);

			UNROLL
			for (uint32_t j = 0; j < vecs; j++)
				sums[i][j] = vec_dot(weight, value[j], sums[i][j]);
		}
	}
	UNROLL
	for (uint32_t i = 0; i < n_q_rows; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++)
		vec_store(values + (size_t)i * stride + d + j * LANES, sums[i][j]);
}

INLINE void
bf16_values_q_rows(float *values, uint32_t stride, const struct weight_pairs *weights, const float *rescale,
		   const struct tile_tokens *tokens, const struct tile_tokens *prefetch, uint32_t from, uint32_t to,
		   enum paged_dtype dtype, uint32_t n_q_rows)
{
	uint32_t d = 0;

	for (; d + BF16_STEP_DIMS <= tokens->padded; d += BF16_STEP_DIMS)
		bf16_values_block(values, stride, weights, rescale, tokens, prefetch, dtype, from, to, d, n_q_rows,
				  BF16_STEP_VECS);
	for (; d < tokens->padded; d += LANES)
		bf16_values_block(values, stride, weights, rescale, tokens, prefetch, dtype, from, to, d, n_q_rows, 1);
}

typedef void (*bf16_values_fn)(float *values, uint32_t stride, const struct weight_pairs *weights, const float *rescale,
			       const struct tile_tokens *tokens, const struct tile_tokens *prefetch, uint32_t from,
			       uint32_t to);

#define VALUES(name, dtype, n_q_rows)                                                                              \
	static void values_##name##_##n_q_rows(float *values, uint32_t stride, const struct weight_pairs *weights, \
					       const float *rescale, const struct tile_tokens *tokens,             \
					       const struct tile_tokens *prefetch, uint32_t from, uint32_t to)     \
	{                                                                                                          \
		bf16_values_q_rows(values, stride, weights, rescale, tokens, prefetch, from, to, dtype, n_q_rows); \
	}

EACH_Q_ROWS_AND_DTYPE(VALUES)

#define BF16_VALUES_ENTRY(name, dtype, n_q_rows) [dtype][n_q_rows - 1] = values_##name##_##n_q_rows,

static const bf16_values_fn bf16_values_functions[][Q_ROW_BLOCK] = { EACH_Q_ROWS_AND_DTYPE(BF16_VALUES_ENTRY) };

/* Accumulates tokens [from, to) for `n_q_rows` q_rows from `q_row` on, whose weights are the first in `weights`. */
static void
bf16_values_range(struct softmax_state *state, const struct weight_pairs *weights, uint32_t q_row, const float *rescale,
		  const struct tile_tokens *tokens, const struct tile_tokens *prefetch, uint32_t from, uint32_t to,
		  uint32_t n_q_rows)
{
	bf16_values_functions[tokens->dtype][n_q_rows - 1](state->values + (size_t)q_row * state->stride, state->stride,
							   weights, rescale, tokens, prefetch, from, to);
}

static void
bf16_values(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
	    const struct tile_tokens *tokens, const struct tile_tokens *prefetch)
{
	static const float as_is = 1;

	while (begin < end) {
		uint32_t n = end - begin < Q_ROW_BLOCK ? end - begin : Q_ROW_BLOCK;
		uint32_t min_visible = scores->visible[begin], max_visible = min_visible;
		struct weight_pairs pairs[Q_ROW_BLOCK];

		weights_round(pairs, &scores->score[begin], n);
		for (uint32_t i = begin + 1; i < begin + n; i++) {
			min_visible = scores->visible[i] < min_visible ? scores->visible[i] : min_visible;
			max_visible = scores->visible[i] > max_visible ? scores->visible[i] : max_visible;
		}
		if (min_visible < max_visible)
			min_visible &= ~1u;
		bf16_values_range(state, pairs, begin, &scores->rescale[begin], tokens, prefetch, 0, min_visible, n);
		for (uint32_t i = 0; i < n; i++)
			if (scores->visible[begin + i] > min_visible)
				bf16_values_range(state, &pairs[i], begin + i, &as_is, tokens, NULL, min_visible,
						  scores->visible[begin + i], 1);
		prefetch = NULL;
		begin += n;
	}
}

/* Accumulates a q_row's ranges of seen tokens in [from, end); the first range of the tile also rescales its values. */
INLINE void
bf16_values_ranges(const struct tile_scores *scores, struct softmax_state *state, const struct weight_pairs *weights,
		   uint32_t q_row, float *rescale, const struct tile_tokens *tokens, uint32_t from, uint32_t end)
{
	uint32_t to = next_range_of_ones(scores->seen[q_row], from, end, &from);

	for (; from < end; to = next_range_of_ones(scores->seen[q_row], to, end, &from)) {
		bf16_values_range(state, weights, q_row, rescale, tokens, NULL, from, to, 1);
		*rescale = 1;
	}
}

/* Bits 2i and 2i + 1 where both are set. */
INLINE uint64_t
whole_pairs(uint64_t seen)
{
	uint64_t even = seen & seen >> 1 & UINT64_C(0x5555555555555555);

	return even | even << 1;
}

/* Accumulates ranges of pairs that all q_rows of a block see completely, and between these each q_row's own ranges. */
static void
bf16_values_seen(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		 const struct tile_tokens *tokens)
{
	for (uint32_t n; begin < end; begin += n) {
		struct weight_pairs pairs[Q_ROW_BLOCK];
		float rescale[Q_ROW_BLOCK];
		uint64_t all = ~UINT64_C(0);
		uint32_t done = 0;

		n = end - begin < Q_ROW_BLOCK ? end - begin : Q_ROW_BLOCK;
		weights_round(pairs, &scores->score[begin], n);
		for (uint32_t i = 0; i < n; i++) {
			rescale[i] = scores->rescale[begin + i];
			all &= scores->seen[begin + i];
		}
		while (done < TILE_TOKENS) {
			uint32_t from, to = next_range_of_ones(whole_pairs(all), done, TILE_TOKENS, &from);

			for (uint32_t i = 0; i < n; i++)
				bf16_values_ranges(scores, state, &pairs[i], begin + i, &rescale[i], tokens, done,
						   from);
			if (from < to)
				bf16_values_range(state, pairs, begin, rescale, tokens, NULL, from, to, n);
			for (uint32_t i = 0; from < to && i < n; i++)
				rescale[i] = 1;
			done = to;
		}
	}
}
