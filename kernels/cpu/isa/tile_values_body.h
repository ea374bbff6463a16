/* SPDX-License-Identifier: Apache-2.0 */
/* tile_values_body.h - part of tile_body.h: accumulates weights . V in states, and combines states */

/* Accumulates tokens [from, to) for some q_rows, `vecs` vectors of V beginning at dim d. */
INLINE void
values_block(float *values, uint32_t stride, const float *weights, const float *rescale,
	     const struct tile_tokens *tokens, const struct tile_tokens *prefetch, enum paged_dtype dtype,
	     uint32_t from, uint32_t to, uint32_t d, uint32_t n_q_rows, uint32_t vecs)
{
	vec sums[Q_ROW_BLOCK][4];

	UNROLL
	for (uint32_t i = 0; i < n_q_rows; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++)
		sums[i][j] = vec_load(values + (size_t)i * stride + d + j * LANES) * vec_set1(rescale[i]);
	for (uint32_t t = from; t < to; t++) {
		vec value[4];

		prefetch_token(prefetch, t);
		UNROLL
		for (uint32_t j = 0; j < vecs; j++)
			value[j] = load_as(tokens->token[t], dtype, d + j * LANES);
		UNROLL
		for (uint32_t i = 0; i < n_q_rows; i++) {
			vec weight = vec_set1(weights[i * TILE_TOKENS + t]);

			UNROLL
			for (uint32_t j = 0; j < vecs; j++)
				sums[i][j] = vec_fma(weight, value[j], sums[i][j]);
		}
	}
	UNROLL
	for (uint32_t i = 0; i < n_q_rows; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++)
		vec_store(values + (size_t)i * stride + d + j * LANES, sums[i][j]);
}

INLINE void
values_q_rows(const struct tile_scores *scores, struct softmax_state *state, uint32_t q_row, const float *rescale,
	      const struct tile_tokens *tokens, const struct tile_tokens *prefetch, enum paged_dtype dtype,
	      uint32_t from, uint32_t to, uint32_t n_q_rows)
{
	const uint32_t step = VALUE_VECS(n_q_rows) * LANES;
	float *values = state->values + (size_t)q_row * state->stride;
	uint32_t d = 0;

	for (; d + step <= tokens->padded; d += step)
		values_block(values, state->stride, scores->score[q_row], rescale, tokens, d == 0 ? prefetch : NULL,
			     dtype, from, to, d, n_q_rows, VALUE_VECS(n_q_rows));
	for (; d < tokens->padded; d += LANES)
		values_block(values, state->stride, scores->score[q_row], rescale, tokens, d == 0 ? prefetch : NULL,
			     dtype, from, to, d, n_q_rows, 1);
}

INLINE void
values_of(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
	  const struct tile_tokens *tokens, const struct tile_tokens *prefetch, enum paged_dtype dtype)
{
	static const float as_is = 1;

	while (begin < end) {
		uint32_t n = end - begin < Q_ROW_BLOCK ? end - begin : Q_ROW_BLOCK;
		const float *rescale = &scores->rescale[begin];
		uint32_t common = scores->visible[begin];

		for (uint32_t i = begin + 1; i < begin + n; i++)
			if (scores->visible[i] < common)
				common = scores->visible[i];
		FOR_Q_ROWS(n, values_q_rows, scores, state, begin, rescale, tokens, prefetch, dtype, 0, common);
		for (uint32_t i = begin; i < begin + n; i++)
			if (scores->visible[i] > common)
				values_q_rows(scores, state, i, &as_is, tokens, NULL, dtype, common, scores->visible[i],
					      1);
		prefetch = NULL;
		begin += n;
	}
}

static void
f32_values(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
	   const struct tile_tokens *tokens, const struct tile_tokens *prefetch)
{
	FOR_DTYPE(tokens->dtype, values_of, scores, state, begin, end, tokens, prefetch);
}

INLINE void
values_range_of(const struct tile_scores *scores, struct softmax_state *state, uint32_t q_row, const float *rescale,
		const struct tile_tokens *tokens, uint32_t from, uint32_t to, uint32_t n_q_rows, enum paged_dtype dtype)
{
	values_q_rows(scores, state, q_row, rescale, tokens, NULL, dtype, from, to, n_q_rows);
}

/* Accumulates tokens [from, to) for one q_row or for Q_ROW_BLOCK q_rows. */
static void
values_range(const struct tile_scores *scores, struct softmax_state *state, uint32_t q_row, const float *rescale,
	     const struct tile_tokens *tokens, uint32_t from, uint32_t to, bool one)
{
	if (one)
		FOR_DTYPE(tokens->dtype, values_range_of, scores, state, q_row, rescale, tokens, from, to, 1);
	else
		FOR_DTYPE(tokens->dtype, values_range_of, scores, state, q_row, rescale, tokens, from, to, Q_ROW_BLOCK);
}

/* Finds the first range of ones [*from_p, result) at or after bit `at` and below `end`; none: both are `end`. */
INLINE uint32_t
next_range_of_ones(uint64_t ones, uint32_t at, uint32_t end, uint32_t *from_p)
{
	uint64_t rest = at < 64 ? ones >> at << at : 0;
	uint32_t from = rest == 0 ? end : (uint32_t)__builtin_ctzll(rest);
	uint32_t to;

	*from_p = from < end ? from : end;
	if (from >= end)
		return end;
	rest = ~ones >> from << from;
	to = rest == 0 ? end : (uint32_t)__builtin_ctzll(rest);
	return to < end ? to : end;
}

/* Accumulates a q_row's ranges of seen tokens in [from, end); the first range of the tile also rescales its values. */
INLINE void
values_ranges(const struct tile_scores *scores, struct softmax_state *state, uint32_t q_row, float *rescale,
	      const struct tile_tokens *tokens, uint32_t from, uint32_t end)
{
	uint32_t to = next_range_of_ones(scores->seen[q_row], from, end, &from);

	for (; from < end; to = next_range_of_ones(scores->seen[q_row], to, end, &from)) {
		values_range(scores, state, q_row, rescale, tokens, from, to, true);
		*rescale = 1;
	}
}

/* Ranges that all of Q_ROW_BLOCK q_rows see, and between them each q_row's own ranges. */
INLINE void
values_ranges_block(const struct tile_scores *scores, struct softmax_state *state, uint32_t q_row, float *rescale,
		    const struct tile_tokens *tokens)
{
	uint64_t all = ~UINT64_C(0);
	uint32_t done = 0;

	for (uint32_t i = 0; i < Q_ROW_BLOCK; i++)
		all &= scores->seen[q_row + i];
	while (done < TILE_TOKENS) {
		uint32_t from, to = next_range_of_ones(all, done, TILE_TOKENS, &from);

		for (uint32_t i = 0; i < Q_ROW_BLOCK; i++)
			values_ranges(scores, state, q_row + i, &rescale[i], tokens, done, from);
		if (from < to) {
			values_range(scores, state, q_row, rescale, tokens, from, to, false);
			for (uint32_t i = 0; i < Q_ROW_BLOCK; i++)
				rescale[i] = 1;
		}
		done = to;
	}
}

static void
f32_values_seen(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		const struct tile_tokens *tokens)
{
	float rescale[TILE_Q_ROWS];

	memcpy(rescale + begin, scores->rescale + begin, (end - begin) * sizeof(*rescale));
	for (; begin + Q_ROW_BLOCK <= end; begin += Q_ROW_BLOCK)
		values_ranges_block(scores, state, begin, &rescale[begin], tokens);
	for (; begin < end; begin++)
		values_ranges(scores, state, begin, &rescale[begin], tokens, 0, TILE_TOKENS);
}

/* Loads the first n of LANES numbers, and zeros for the others. */
INLINE vec
load_first(const float *from, uint32_t n)
{
	float all[LANES] = { 0 };

	if (n >= LANES)
		return vec_load(from);
	memcpy(all, from, n * sizeof(*all));
	return vec_load(all);
}

/* Combines a q_row's values into `to`; if `first`, `to` is undefined and is overwritten. */
INLINE void
values_combine(float *to, const float *from, float old, float new, uint32_t n, bool first)
{
	if (first) {
		memcpy(to, from, n * sizeof(*to));
		return;
	}
	for (uint32_t d = 0; d < n; d += LANES)
		vec_store(to + d, vec_fma(vec_load(from + d), vec_set1(new), vec_load(to + d) * vec_set1(old)));
}

static void
states_combine(struct softmax_state *state, uint32_t n_q_rows, const float *row_max, const float *row_sum,
	       const float *values_of_chunk)
{
	for (uint32_t q_row = 0; q_row < n_q_rows; q_row += LANES) {
		uint32_t n = n_q_rows - q_row < LANES ? n_q_rows - q_row : LANES;
		vec before = vec_load(&state->row_max[q_row]), now = load_first(row_max + q_row, n);
		/* as in shift_of() */
		vec max = vec_max(now, before), shift = vec_unless(max, max, vec_set1(-FLT_MAX));
		float old[LANES], new[LANES], new_max[LANES];

		vec_store(old, vec_exp(before - shift));
		vec_store(new, vec_exp(now - shift));
		vec_store(new_max, max);
		for (uint32_t i = 0; i < n; i++) {
			size_t at = (size_t)(q_row + i) * state->stride;
			bool first = state->row_sum[q_row + i] == 0;

			if (row_sum[q_row + i] == 0) /* its weight is 0 */
				continue;
			values_combine(state->values + at, values_of_chunk + at, old[i], new[i], state->stride, first);
			state->row_sum[q_row + i] =
				first ? row_sum[q_row + i]
				      : state->row_sum[q_row + i] * old[i] + row_sum[q_row + i] * new[i];
			state->row_max[q_row + i] = new_max[i];
		}
	}
}
