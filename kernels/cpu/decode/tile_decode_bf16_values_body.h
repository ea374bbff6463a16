/* SPDX-License-Identifier: Apache-2.0 */
/* tile_decode_bf16_values_body.h - part of tile_decode_bf16_body.h: accumulates values with weights rounded to bf16 */

/* A q_row's weights in bf16: a pair of tokens per word. */
struct weight_pairs {
	float pair[TILE_TOKENS / 2];
};

/* Weights past the visible tokens may be anything; they are never used. */
INLINE void
weights_round(struct weight_pairs *pairs, const float (*weights)[TILE_TOKENS], uint32_t lines)
{
	for (uint32_t i = 0; i < lines; i++)
		for (uint32_t t = 0; t < TILE_TOKENS; t += 2 * LANES)
			vec_store(&pairs[i].pair[t / 2],
				  vec_round_pairs(vec_load(&weights[i][t]), vec_load(&weights[i][t + LANES])));
}

/* Accumulates tokens [from, to) for some q_rows, `vecs` vectors of V beginning at dim d. */
INLINE void
dot_values_block(float *values, uint32_t stride, const struct weight_pairs *weights, const float *rescale,
		 const struct tile_tokens *rows, const struct tile_tokens *ahead, enum paged_dtype dtype, uint32_t from,
		 uint32_t to, uint32_t d, uint32_t lines, uint32_t vecs)
{
	static const uint8_t zeros[2 * PAGED_MAX_DIM];
	const struct widen_tables tables = widen_tables(dtype);
	vec sums[Q_ROW_BLOCK][DOT_VECS];

	UNROLL
	for (uint32_t i = 0; i < lines; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++)
		sums[i][j] = vec_load(values + (size_t)i * stride + d + j * LANES) * vec_set1(rescale[i]);
	for (uint32_t t = from & ~1u; t < to; t += 2) {
		const void *even = t < from ? zeros : rows->token[t];
		const void *odd = t + 1 == to ? zeros : rows->token[t + 1];
		const struct fetch fetch = fetch_beside(rows, ahead, t, 2);
		vec value[DOT_VECS];

		fetch_dims(&fetch, 0, dtype, d, vecs * LANES);
		fetch_dims(&fetch, 1, dtype, d, vecs * LANES);
		if (vecs == DOT_VECS)
			pairs_64(&tables, even, odd, dtype, d, value);
		else
			value[0] = pairs_16(even, odd, dtype, d);
		UNROLL
		for (uint32_t i = 0; i < lines; i++) {
			vec weight = vec_set1(weights[i].pair[t / 2]);

			UNROLL
			for (uint32_t j = 0; j < vecs; j++)
				sums[i][j] = vec_dot(weight, value[j], sums[i][j]);
		}
	}
	UNROLL
	for (uint32_t i = 0; i < lines; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++)
		vec_store(values + (size_t)i * stride + d + j * LANES, sums[i][j]);
}

INLINE void
dot_values_lines(float *values, uint32_t stride, const struct weight_pairs *weights, const float *rescale,
		 const struct tile_tokens *rows, const struct tile_tokens *ahead, uint32_t from, uint32_t to,
		 enum paged_dtype dtype, uint32_t lines)
{
	uint32_t d = 0;

	for (; d + DOT_DIMS <= rows->padded; d += DOT_DIMS)
		dot_values_block(values, stride, weights, rescale, rows, ahead, dtype, from, to, d, lines, DOT_VECS);
	for (; d < rows->padded; d += LANES)
		dot_values_block(values, stride, weights, rescale, rows, ahead, dtype, from, to, d, lines, 1);
}

typedef void (*values_fn)(float *values, uint32_t stride, const struct weight_pairs *weights, const float *rescale,
			  const struct tile_tokens *rows, const struct tile_tokens *ahead, uint32_t from, uint32_t to);

#define VALUES(name, dtype, lines)                                                                              \
	static void values_##name##_##lines(float *values, uint32_t stride, const struct weight_pairs *weights, \
					    const float *rescale, const struct tile_tokens *rows,                 \
					    const struct tile_tokens *ahead, uint32_t from, uint32_t to)          \
	{                                                                                                       \
		dot_values_lines(values, stride, weights, rescale, rows, ahead, from, to, dtype, lines);        \
	}

EACH_LINES_AND_DTYPE(VALUES)

#define VALUES_ENTRY(name, dtype, lines) [dtype][lines - 1] = values_##name##_##lines,

static const values_fn values_functions[][Q_ROW_BLOCK] = { EACH_LINES_AND_DTYPE(VALUES_ENTRY) };

/* Accumulates tokens [from, to) for `lines` q_rows from `line` on, whose weights are the first in `weights`. */
static void
dot_values_run(struct softmax_state *state, const struct weight_pairs *weights, uint32_t line, const float *rescale,
	       const struct tile_tokens *rows, const struct tile_tokens *ahead, uint32_t from, uint32_t to, uint32_t lines)
{
	values_functions[rows->dtype][lines - 1](state->values + (size_t)line * state->stride, state->stride, weights,
						 rescale, rows, ahead, from, to);
}

static void
dot_values(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
	   const struct tile_tokens *rows, const struct tile_tokens *ahead)
{
	static const float as_is = 1;

	while (begin < end) {
		uint32_t n = end - begin < Q_ROW_BLOCK ? end - begin : Q_ROW_BLOCK;
		uint32_t common = scores->visible[begin], most = common;
		struct weight_pairs pairs[Q_ROW_BLOCK];

		weights_round(pairs, &scores->score[begin], n);
		for (uint32_t i = begin + 1; i < begin + n; i++) {
			common = scores->visible[i] < common ? scores->visible[i] : common;
			most = scores->visible[i] > most ? scores->visible[i] : most;
		}
		if (common < most)
			common &= ~1u;
		dot_values_run(state, pairs, begin, &scores->rescale[begin], rows, ahead, 0, common, n);
		for (uint32_t i = 0; i < n; i++)
			if (scores->visible[begin + i] > common)
				dot_values_run(state, &pairs[i], begin + i, &as_is, rows, NULL, common,
					       scores->visible[begin + i], 1);
		ahead = NULL;
		begin += n;
	}
}

/* Accumulates a q_row's runs of seen tokens in [from, end); the first run of the tile also rescales its values. */
INLINE void
dot_values_runs(const struct tile_scores *scores, struct softmax_state *state, const struct weight_pairs *weights,
		uint32_t line, float *rescale, const struct tile_tokens *rows, uint32_t from, uint32_t end)
{
	uint32_t to = run_of_ones(scores->seen[line], from, end, &from);

	for (; from < end; to = run_of_ones(scores->seen[line], to, end, &from)) {
		dot_values_run(state, weights, line, rescale, rows, NULL, from, to, 1);
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

/* Runs of pairs that all q_rows of a block see completely, and between them each q_row's own runs. */
static void
dot_values_seen(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		const struct tile_tokens *rows)
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
			uint32_t from, to = run_of_ones(whole_pairs(all), done, TILE_TOKENS, &from);

			for (uint32_t i = 0; i < n; i++)
				dot_values_runs(scores, state, &pairs[i], begin + i, &rescale[i], rows, done, from);
			if (from < to)
				dot_values_run(state, pairs, begin, rescale, rows, NULL, from, to, n);
			for (uint32_t i = 0; from < to && i < n; i++)
				rescale[i] = 1;
			done = to;
		}
	}
}
