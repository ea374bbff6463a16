/* SPDX-License-Identifier: Apache-2.0 */
/* tile_decode_bf16_scores_body.h - part of tile_decode_bf16_body.h: queries in bf16, and their products with keys */

static void
bf16_query(uint16_t *q, uint32_t q_row, const void *from, uint32_t n)
{
	const struct widen_tables none = { 0 };
	uint32_t padded = (n + LANES - 1) / LANES * LANES;

	token_to_bf16(q + (size_t)q_row * padded, padded, &none, from, n, PAGED_BF16);
}

INLINE void
bf16_scores_block(float *score, const uint16_t *q, const struct tile_tokens *keys, const struct tile_tokens *prefetch,
		  uint32_t padded, enum paged_dtype dtype, uint32_t n_q_rows)
{
	const struct widen_tables tables = widen_tables(dtype);

	for (uint32_t t = 0; t < keys->n_tokens; t += TILE_TOKEN_BLOCK) {
		const void *const *token = &keys->token[t];
		const struct prefetch_pair pair = prefetch_pair(keys, prefetch, t, TILE_TOKEN_BLOCK);
		vec sums[Q_ROW_BLOCK][TILE_TOKEN_BLOCK];
		uint32_t d = 0;

		UNROLL
		for (uint32_t i = 0; i < n_q_rows; i++)
			UNROLL
		for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
			sums[i][j] = vec_set1(0);
		UNROLL
		for (; d + BF16_STEP_DIMS <= padded; d += BF16_STEP_DIMS) {
			vec key[TILE_TOKEN_BLOCK][2];

			UNROLL
			for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++) {
				widen_64(&tables, token[j], dtype, d, key[j]);
				prefetch_dims(&pair, j, dtype, d, BF16_STEP_DIMS);
			}
			UNROLL
			for (uint32_t h = 0; h < 2; h++)
				UNROLL
			for (uint32_t i = 0; i < n_q_rows; i++) {
				vec query = load_pairs(q + (size_t)i * padded, PAGED_BF16, d + h * 32);

				UNROLL
				for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
					sums[i][j] = vec_dot(query, key[j][h], sums[i][j]);
			}
		}
		for (; d < padded; d += LANES) {
			UNROLL
			for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++) {
				vec key = widen_16(token[j], dtype, d);

				prefetch_dims(&pair, j, dtype, d, LANES);
				UNROLL
				for (uint32_t i = 0; i < n_q_rows; i++) {
					vec query = widen_16(q + (size_t)i * padded, PAGED_BF16, d);

					sums[i][j] = vec_dot(query, key, sums[i][j]);
				}
			}
		}
		vec_sum_block(score + t, TILE_TOKENS, sums, n_q_rows);
	}
}

typedef void (*bf16_scores_fn)(float *score, const uint16_t *q, const struct tile_tokens *keys,
			       const struct tile_tokens *prefetch);

#define SCORES(name, dtype, n_q_rows)                                                                           \
	static void scores_##name##_##n_q_rows(float *score, const uint16_t *q, const struct tile_tokens *keys, \
					       const struct tile_tokens *prefetch)                              \
	{                                                                                                       \
		if (keys->padded == UNROLLED_DIMS)                                                              \
			bf16_scores_block(score, q, keys, prefetch, UNROLLED_DIMS, dtype, n_q_rows);            \
		else                                                                                            \
			bf16_scores_block(score, q, keys, prefetch, keys->padded, dtype, n_q_rows);             \
	}

EACH_Q_ROWS_AND_DTYPE(SCORES)

#define BF16_SCORES_ENTRY(name, dtype, n_q_rows) [dtype][n_q_rows - 1] = scores_##name##_##n_q_rows,

static const bf16_scores_fn bf16_scores_functions[][Q_ROW_BLOCK] = { EACH_Q_ROWS_AND_DTYPE(BF16_SCORES_ENTRY) };

static void
bf16_scores(struct tile_scores *to, const uint16_t *q, uint32_t begin, uint32_t end, const struct tile_tokens *keys,
	    const struct tile_tokens *prefetch)
{
	for (uint32_t n; begin < end; begin += n) {
		n = end - begin < Q_ROW_BLOCK ? end - begin : Q_ROW_BLOCK;
		bf16_scores_functions[keys->dtype][n - 1](to->score[begin], q + (size_t)begin * keys->padded, keys,
							  prefetch);
		prefetch = NULL;
	}
}
