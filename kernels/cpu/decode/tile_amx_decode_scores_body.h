/* SPDX-License-Identifier: Apache-2.0 */
/* tile_amx_decode_scores_body.h - part of tile_amx_decode_body.h: scores and their softmax */

/* Adds AMX_DIMS dims of 16 tokens to the sums in tile 0; the queries' dims are in tile `query`. */
#define AMX_DECODE_SCORES_STEP(tile, query, d)                                               \
	do {                                                                                 \
		AMX_LOAD(tile, operand.at + (size_t)(d) * sizeof(uint16_t), operand.stride); \
		AMX_DOT(0, tile, query);                                                     \
		amx_overlap_step(source, overlap, t, (d) + AMX_DIMS, padded, kind);          \
	} while (0)

/* Scores of 16 tokens from t on and all q_rows into `sums`; queries of up to 4 AMX_DIMS dims are in tiles 4 to 7. */
INLINE void
amx_decode_scores_tile(float *sums, const uint16_t *queries, struct amx_source *source, struct amx_overlap *overlap,
		       uint32_t t, uint32_t padded, enum amx_source_kind kind)
{
	const struct amx_operand operand = amx_operand(source, t, kind);

	AMX_ZERO(0);
	if (padded <= 4 * AMX_DIMS) {
		AMX_DECODE_SCORES_STEP(1, 4, 0);
		if (padded > AMX_DIMS)
			AMX_DECODE_SCORES_STEP(2, 5, AMX_DIMS);
		if (padded > 2 * AMX_DIMS)
			AMX_DECODE_SCORES_STEP(1, 6, 2 * AMX_DIMS);
		if (padded > 3 * AMX_DIMS)
			AMX_DECODE_SCORES_STEP(2, 7, 3 * AMX_DIMS);
	} else {
		for (uint32_t d = 0; d < padded; d += AMX_DIMS) {
			AMX_LOAD(4, queries + (size_t)d * AMX_ROWS, AMX_ROWS * sizeof(float));
			AMX_DECODE_SCORES_STEP(1, 4, d);
		}
	}
	AMX_STORE(0, sums, AMX_ROWS * sizeof(float));
}

INLINE void
amx_decode_queries_load(const uint16_t *queries, uint32_t padded)
{
	const size_t tile = AMX_ROWS * AMX_DIMS, stride = AMX_ROWS * sizeof(float);

	if (padded > 4 * AMX_DIMS)
		return;
	AMX_LOAD(4, queries, stride);
	if (padded > AMX_DIMS)
		AMX_LOAD(5, queries + tile, stride);
	if (padded > 2 * AMX_DIMS)
		AMX_LOAD(6, queries + 2 * tile, stride);
	if (padded > 3 * AMX_DIMS)
		AMX_LOAD(7, queries + 3 * tile, stride);
}

/* All scores; each q_row is a column of sums. */
INLINE void
amx_decode_scores_of(float sums[TILE_TOKENS][AMX_ROWS], const uint16_t *queries, struct amx_source *source,
		     struct amx_overlap *overlap, uint32_t padded)
{
	amx_overlap_begin(source, overlap, AMX_SOURCE_ANY);
	amx_decode_queries_load(queries, padded);
	for (uint32_t t = 0; t < source->tokens->n_tokens; t += AMX_ROWS)
		amx_decode_scores_tile(sums[t], queries, source, overlap, t, padded, AMX_SOURCE_ANY);
}

/* The same for a kind known at compile time. */
INLINE void
amx_decode_scores_unrolled(float sums[TILE_TOKENS][AMX_ROWS], const uint16_t *queries, struct amx_source *source,
			   struct amx_overlap *overlap, enum amx_source_kind kind)
{
	amx_overlap_begin(source, overlap, kind);
	amx_decode_queries_load(queries, UNROLLED_DIMS);
	UNROLL
	for (uint32_t t = 0; t < TILE_TOKENS; t += AMX_ROWS)
		amx_decode_scores_tile(sums[t], queries, source, overlap, t, UNROLLED_DIMS, kind);
}

static void
amx_decode_scores(struct tile_scores *scores, const uint16_t *queries, uint32_t begin, uint32_t end,
		  const struct tile_tokens *keys, const struct tile_tokens *prefetch_tokens)
{
	const uint32_t padded = keys->padded;
	_Alignas(64) float sums[TILE_TOKENS][AMX_ROWS];
	struct amx_prefetch prefetch = amx_prefetch(prefetch_tokens);
	enum amx_source_kind kind = amx_source_kind(keys, &prefetch);
	struct amx_overlap overlap = { .prefetch = &prefetch,
				       .to = AMX_PREFETCH_KEYS,
				       .steps = padded / AMX_DIMS * (TILE_TOKENS / AMX_ROWS) };
	struct amx_source source;

	amx_source(&source, keys, 0, padded, 0);
	if (kind == AMX_SOURCE_IN_PLACE)
		amx_decode_scores_unrolled(sums, queries, &source, &overlap, AMX_SOURCE_IN_PLACE);
	else if (kind == AMX_SOURCE_COPIED)
		amx_decode_scores_unrolled(sums, queries, &source, &overlap, AMX_SOURCE_COPIED);
	else if (kind == AMX_SOURCE_BYTES)
		amx_decode_scores_unrolled(sums, queries, &source, &overlap, AMX_SOURCE_BYTES);
	else if (padded == UNROLLED_DIMS)
		amx_decode_scores_of(sums, queries, &source, &overlap, UNROLLED_DIMS);
	else
		amx_decode_scores_of(sums, queries, &source, &overlap, padded);
	amx_prefetch_until(&prefetch, AMX_PREFETCH_SCORES);
	for (uint32_t t = 0; t < keys->n_tokens; t += AMX_ROWS)
		for (uint32_t q_row = begin / 4 * 4; q_row < end; q_row += 4) {
			vec columns[4];

			vec_load_columns(&sums[t][q_row], columns);
			UNROLL
			for (uint32_t i = 0; i < 4; i++)
				vec_store(&scores->score[q_row + i][t], columns[i]);
		}
	amx_prefetch_until(&prefetch, AMX_PREFETCH_TRANSPOSED);
}

/* Prefetch during the softmax of n_q_rows q_rows. */
struct amx_decode_softmax {
	struct amx_prefetch prefetch;
	uint32_t n_q_rows;
};

INLINE void
amx_decode_softmax_prefetch(void *of, uint32_t calls)
{
	struct amx_decode_softmax *softmax = of;

	amx_prefetch_part(&softmax->prefetch, AMX_PREFETCH_TRANSPOSED, AMX_ROWS, calls, softmax->n_q_rows + 1);
}

static void
amx_decode_softmax(struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end, float scale,
		   const struct tile_tokens *prefetch)
{
	struct amx_decode_softmax softmax = { .prefetch = amx_prefetch(prefetch), .n_q_rows = end - begin };

	softmax.prefetch.n_done = AMX_PREFETCH_TRANSPOSED;
	softmax_overlapped(scores, state, begin, end, scale, amx_decode_softmax_prefetch, &softmax);
}
