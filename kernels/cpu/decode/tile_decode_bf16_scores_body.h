/* SPDX-License-Identifier: Apache-2.0 */
/* tile_decode_bf16_scores_body.h - part of tile_decode_bf16_body.h: queries in bf16, and their products with keys */

static void
query(uint16_t *q, uint32_t line, const void *from, uint32_t n)
{
	const struct widen_tables none = { 0 };
	uint32_t padded = (n + LANES - 1) / LANES * LANES;

	row_pack(q + (size_t)line * padded, padded, &none, from, n, PAGED_BF16);
}

INLINE void
dot_scores_block(float *score, const uint16_t *q, const struct tile_tokens *keys, const struct tile_tokens *ahead,
		 uint32_t padded, enum paged_dtype dtype, uint32_t lines)
{
	const struct widen_tables tables = widen_tables(dtype);

	for (uint32_t t = 0; t < keys->n_tokens; t += TILE_TOKEN_BLOCK) {
		const void *const *token = &keys->token[t];
		const struct fetch fetch = fetch_beside(keys, ahead, t, TILE_TOKEN_BLOCK);
		vec sums[Q_ROW_BLOCK][TILE_TOKEN_BLOCK];
		uint32_t d = 0;

		UNROLL
		for (uint32_t i = 0; i < lines; i++)
			UNROLL
		for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
			sums[i][j] = vec_set1(0);
		UNROLL
		for (; d + DOT_DIMS <= padded; d += DOT_DIMS) {
			vec key[TILE_TOKEN_BLOCK][2];

			UNROLL
			for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++) {
				widen_64(&tables, token[j], dtype, d, key[j]);
				fetch_dims(&fetch, j, dtype, d, DOT_DIMS);
			}
			UNROLL
			for (uint32_t h = 0; h < 2; h++)
				UNROLL
			for (uint32_t i = 0; i < lines; i++) {
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

				fetch_dims(&fetch, j, dtype, d, LANES);
				UNROLL
				for (uint32_t i = 0; i < lines; i++) {
					vec query = widen_16(q + (size_t)i * padded, PAGED_BF16, d);

					sums[i][j] = vec_dot(query, key, sums[i][j]);
				}
			}
		}
		vec_sum_block(score + t, TILE_TOKENS, sums, lines);
	}
}

typedef void (*scores_fn)(float *score, const uint16_t *q, const struct tile_tokens *keys, const struct tile_tokens *ahead);

#define SCORES(name, dtype, lines)                                                                         \
	static void scores_##name##_##lines(float *score, const uint16_t *q, const struct tile_tokens *keys, \
					    const struct tile_tokens *ahead)                                 \
	{                                                                                                  \
		if (keys->padded == USUAL_DIMS)                                                            \
			dot_scores_block(score, q, keys, ahead, USUAL_DIMS, dtype, lines);                 \
		else                                                                                       \
			dot_scores_block(score, q, keys, ahead, keys->padded, dtype, lines);               \
	}

EACH_LINES_AND_DTYPE(SCORES)

#define SCORES_ENTRY(name, dtype, lines) [dtype][lines - 1] = scores_##name##_##lines,

static const scores_fn scores_functions[][Q_ROW_BLOCK] = { EACH_LINES_AND_DTYPE(SCORES_ENTRY) };

static void
dot_scores(struct tile_scores *to, const uint16_t *q, uint32_t begin, uint32_t end, const struct tile_tokens *keys,
	   const struct tile_tokens *ahead)
{
	for (uint32_t n; begin < end; begin += n) {
		n = end - begin < Q_ROW_BLOCK ? end - begin : Q_ROW_BLOCK;
		scores_functions[keys->dtype][n - 1](to->score[begin], q + (size_t)begin * keys->padded, keys, ahead);
		ahead = NULL;
	}
}
