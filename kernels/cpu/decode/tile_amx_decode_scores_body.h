/* SPDX-License-Identifier: Apache-2.0 */
/* tile_amx_decode_scores_body.h - part of tile_amx_decode_body.h: scores and their softmax */

/* Adds FEW_DIMS dims of 16 tokens to the sums in tile 0; the queries' dims are in tile `query`. */
#define FEW_SCORES_STEP(tile, query, d)                                              \
	do {                                                                         \
		AMX_LOAD(tile, rows.at + (size_t)(d) * sizeof(uint16_t), rows.stride); \
		AMX_DOT(0, tile, query);                                             \
		few_go_on(source, beside, t, (d) + FEW_DIMS, padded, kind);          \
	} while (0)

/* Scores of 16 tokens from t on and all q_rows into `sums`; queries of up to 4 FEW_DIMS dims are in tiles 4 to 7. */
INLINE void
few_scores_tile(float *sums, const uint16_t *queries, struct few_source *source, struct few_beside *beside, uint32_t t,
		uint32_t padded, enum few_kind kind)
{
	const struct few_rows rows = few_rows(source, t, kind);

	AMX_ZERO(0);
	if (padded <= 4 * FEW_DIMS) {
		FEW_SCORES_STEP(1, 4, 0);
		if (padded > FEW_DIMS)
			FEW_SCORES_STEP(2, 5, FEW_DIMS);
		if (padded > 2 * FEW_DIMS)
			FEW_SCORES_STEP(1, 6, 2 * FEW_DIMS);
		if (padded > 3 * FEW_DIMS)
			FEW_SCORES_STEP(2, 7, 3 * FEW_DIMS);
	} else {
		for (uint32_t d = 0; d < padded; d += FEW_DIMS) {
			AMX_LOAD(4, queries + (size_t)d * AMX_ROWS, AMX_ROWS * sizeof(float));
			FEW_SCORES_STEP(1, 4, d);
		}
	}
	AMX_STORE(0, sums, AMX_ROWS * sizeof(float));
}

INLINE void
few_queries_load(const uint16_t *queries, uint32_t padded)
{
	const size_t tile = AMX_ROWS * FEW_DIMS, stride = AMX_ROWS * sizeof(float);

	if (padded > 4 * FEW_DIMS)
		return;
	AMX_LOAD(4, queries, stride);
	if (padded > FEW_DIMS)
		AMX_LOAD(5, queries + tile, stride);
	if (padded > 2 * FEW_DIMS)
		AMX_LOAD(6, queries + 2 * tile, stride);
	if (padded > 3 * FEW_DIMS)
		AMX_LOAD(7, queries + 3 * tile, stride);
}

/* All scores; each q_row is a column of sums. */
INLINE void
few_scores_of(float sums[TILE_TOKENS][AMX_ROWS], const uint16_t *queries, struct few_source *source,
	      struct few_beside *beside, uint32_t padded)
{
	few_begin(source, beside, FEW_ANY);
	few_queries_load(queries, padded);
	for (uint32_t t = 0; t < source->rows->n_tokens; t += AMX_ROWS)
		few_scores_tile(sums[t], queries, source, beside, t, padded, FEW_ANY);
}

/* The same for a usual kind. */
INLINE void
few_scores_usual(float sums[TILE_TOKENS][AMX_ROWS], const uint16_t *queries, struct few_source *source,
		 struct few_beside *beside, enum few_kind kind)
{
	few_begin(source, beside, kind);
	few_queries_load(queries, USUAL_DIMS);
	UNROLL
	for (uint32_t t = 0; t < TILE_TOKENS; t += AMX_ROWS)
		few_scores_tile(sums[t], queries, source, beside, t, USUAL_DIMS, kind);
}

static void
few_scores(struct tile_scores *scores, const uint16_t *queries, uint32_t begin, uint32_t end,
	   const struct tile_tokens *keys, const struct tile_tokens *ahead_rows)
{
	const uint32_t padded = keys->padded;
	_Alignas(64) float sums[TILE_TOKENS][AMX_ROWS];
	struct few_ahead ahead = few_ahead(ahead_rows);
	enum few_kind kind = few_kind(keys, &ahead);
	struct few_beside beside = { .ahead = &ahead,
				     .to = FEW_ROWS_KEYS,
				     .steps = padded / FEW_DIMS * (TILE_TOKENS / AMX_ROWS) };
	struct few_source source;

	few_source(&source, keys, 0, padded, 0);
	if (kind == FEW_LIE)
		few_scores_usual(sums, queries, &source, &beside, FEW_LIE);
	else if (kind == FEW_APART)
		few_scores_usual(sums, queries, &source, &beside, FEW_APART);
	else if (kind == FEW_BYTES)
		few_scores_usual(sums, queries, &source, &beside, FEW_BYTES);
	else if (padded == USUAL_DIMS)
		few_scores_of(sums, queries, &source, &beside, USUAL_DIMS);
	else
		few_scores_of(sums, queries, &source, &beside, padded);
	few_fetch_to(&ahead, FEW_ROWS_SCORES);
	for (uint32_t t = 0; t < keys->n_tokens; t += AMX_ROWS)
		for (uint32_t line = begin / 4 * 4; line < end; line += 4) {
			vec columns[4];

			vec_load_columns(&sums[t][line], columns);
			UNROLL
			for (uint32_t i = 0; i < 4; i++)
				vec_store(&scores->score[line + i][t], columns[i]);
		}
	few_fetch_to(&ahead, FEW_ROWS_TURNED);
}

/* Prefetch during the softmax of n_q_rows q_rows. */
struct few_softmax {
	struct few_ahead ahead;
	uint32_t n_q_rows;
};

INLINE void
few_softmax_fetch(void *of, uint32_t calls)
{
	struct few_softmax *softmax = of;

	few_fetch(&softmax->ahead, FEW_ROWS_TURNED, AMX_ROWS, calls, softmax->n_q_rows + 1);
}

static void
few_softmax(struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end, float scale,
	    const struct tile_tokens *ahead)
{
	struct few_softmax softmax = { .ahead = few_ahead(ahead), .n_q_rows = end - begin };

	softmax.ahead.row = FEW_ROWS_TURNED;
	softmax_beside(scores, state, begin, end, scale, few_softmax_fetch, &softmax);
}
