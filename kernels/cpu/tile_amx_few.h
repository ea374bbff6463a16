/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_amx_few.h - attention of few query lines, as decode has them, by tiles of AMX
 *
 * Included after tile_amx.h and widen_bf16.h.  Scores are K . Q^T, tokens by
 * lines: rows of keys that lie at equal distances, as those of one page do, are
 * loaded into a tile from where they are.  Values are P . V, for which rows of
 * two tokens have to be interleaved on the way.  With these words more:
 *
 *   vec_interleave(a, b, low, high)  pairs of bf16 of a and b, in the order that vec_in_order() undoes
 *   vec_in_order(low, high)          the floats that sums of those columns are, in place
 *   vec_load_columns(from, to)       to[i] lane t = from[t * AMX_ROWS + i], i below 4
 *
 * A tile's rows of lines that a task does not have are whatever is there; so
 * are then the sums of those lines, which nobody reads.
 */
#define FEW_DIMS 32u /* of a tile: two in each word */
/* Of a head that most models have, for which loops are unrolled. */
#define FEW_USUAL_DIMS 128u

_Static_assert(KERNEL_MANY_LINES_AMX <= AMX_ROWS + 1, "the lines of a row with few are one tile's");
_Static_assert(TILE_TOKENS == 4 * AMX_ROWS, "four tiles of scores, two of weights");

INLINE void
few_pack_of(uint16_t *padded, const void *from, uint32_t n, enum paged_dtype dtype)
{
	const struct widen_tables tables = widen_tables(dtype);
	_Alignas(64) uint8_t tail[2 * FEW_DIMS * sizeof(uint16_t)] = { 0 };
	uint32_t d = 0, left = n % (2 * FEW_DIMS);
	vec wide[2];

	for (; d + 2 * FEW_DIMS <= n; d += 2 * FEW_DIMS) {
		widen_64(&tables, from, dtype, d, wide);
		vec_store((float *)(void *)(padded + d), wide[0]);
		vec_store((float *)(void *)(padded + d + FEW_DIMS), wide[1]);
	}
	if (left == 0)
		return;
	memcpy(tail, (const uint8_t *)from + (size_t)d * size_of(dtype), (size_t)left * size_of(dtype));
	widen_64(&tables, tail, dtype, 0, wide);
	vec_store((float *)(void *)(padded + d), wide[0]);
	if (left > FEW_DIMS)
		vec_store((float *)(void *)(padded + d + FEW_DIMS), wide[1]);
}

static void
few_pack(uint16_t *padded, const void *from, enum paged_dtype dtype, uint32_t n)
{
	if (dtype == PAGED_BF16)
		few_pack_of(padded, from, n, PAGED_BF16);
	else if (dtype == PAGED_E4M3)
		few_pack_of(padded, from, n, PAGED_E4M3);
	else if (dtype == PAGED_E5M2)
		few_pack_of(padded, from, n, PAGED_E5M2);
	else
		few_pack_of(padded, from, n, PAGED_I8);
}

/* Word k of a line is column `line` of row k: tiles of Q^T, one after the other. */
static void
few_query(uint16_t *queries, uint32_t line, const void *from, uint32_t n)
{
	_Alignas(64) uint16_t row[PAGED_MAX_DIM];

	few_pack(row, from, PAGED_BF16, n);
	for (uint32_t d = 0; d < n; d += 2)
		memcpy(queries + ((size_t)d / 2 * AMX_ROWS + line) * 2, row + d, 2 * sizeof(*row));
	for (uint32_t d = (n + 1) / 2; d % AMX_ROWS != 0; d++)
		memset(queries + ((size_t)d * AMX_ROWS + line) * 2, 0, 2 * sizeof(*row));
}

/* AMX_ROWS rows at equal distances. */
struct few_rows {
	const uint8_t *at;
	size_t step;
};

/* Those from token t on: in the pages, or else copied; a last tile's are filled up with its last one. */
INLINE struct few_rows
few_rows(const struct tile_rows *rows, uint32_t padded, uint32_t t, uint8_t *copies)
{
	const size_t bytes = (size_t)padded * sizeof(uint16_t);

	if (rows->step != 0 && t + AMX_ROWS <= rows->n_tokens)
		return (struct few_rows){ (const uint8_t *)rows->token[t], rows->step };
	for (uint32_t i = 0; i < AMX_ROWS; i++) {
		uint32_t token = t + i < rows->n_tokens ? t + i : rows->n_tokens - 1;

		memcpy(copies + i * bytes, rows->token[token], bytes);
	}
	return (struct few_rows){ copies, bytes };
}

/* What comes next and how far it has been asked for: four streams, of each 16 of a tile's tokens one. */
struct few_ahead {
	const void *const *token; /* or NULL, for nothing */
	const uint8_t *at[4];
	size_t step; /* as tile_rows has it */
	uint32_t row, byte, row_bytes;
};

INLINE struct few_ahead
few_ahead(const struct tile_rows *rows)
{
	struct few_ahead ahead = { 0 };

	if (rows == NULL || rows->n_tokens != TILE_TOKENS)
		return ahead;
	ahead.token = rows->token;
	ahead.step = rows->step;
	ahead.row_bytes = rows->padded * size_of(rows->dtype);
	for (uint32_t i = 0; i < 4; i++)
		ahead.at[i] = rows->token[i * AMX_ROWS];
	return ahead;
}

/* The next line of each stream, in the order in which memory has them. */
INLINE void
few_fetch(struct few_ahead *ahead)
{
	if (ahead->token == NULL || ahead->row == AMX_ROWS)
		return;
	UNROLL
	for (uint32_t i = 0; i < 4; i++)
		__builtin_prefetch(ahead->at[i] + ahead->byte, 0, 2);
	ahead->byte += 64;
	if (ahead->byte < ahead->row_bytes)
		return;
	ahead->byte = 0;
	ahead->row++;
	for (uint32_t i = 0; i < 4; i++)
		ahead->at[i] = ahead->step != 0 ? ahead->at[i] + ahead->step
						: ahead->token[(i * AMX_ROWS + ahead->row) % TILE_TOKENS];
}

/* FEW_DIMS dims from d on, in tile 0 of sums, by a tile of queries that is there. */
#define FEW_SCORES_STEP(tile, query, rows, d)                                              \
	do {                                                                               \
		AMX_LOAD(tile, (rows)->at + (size_t)(d) * sizeof(uint16_t), (rows)->step); \
		AMX_DOT(0, tile, query);                                                   \
	} while (0)

/* 16 tokens of all lines into `sums`; queries of up to 4 FEW_DIMS dims are in tiles 4 to 7. */
INLINE void
few_scores_tile(float *sums, const uint16_t *queries, const struct few_rows *rows, uint32_t padded,
		struct few_ahead *ahead)
{
	AMX_ZERO(0);
	for (uint32_t d = 0; d < padded; d += FEW_DIMS) {
		if (padded > 4 * FEW_DIMS) {
			AMX_LOAD(2, queries + (size_t)d * AMX_ROWS, AMX_ROWS * sizeof(float));
			FEW_SCORES_STEP(1, 2, rows, d);
		} else if (d == 0) {
			FEW_SCORES_STEP(1, 4, rows, d);
		} else if (d == FEW_DIMS) {
			FEW_SCORES_STEP(2, 5, rows, d);
		} else if (d == 2 * FEW_DIMS) {
			FEW_SCORES_STEP(1, 6, rows, d);
		} else {
			FEW_SCORES_STEP(2, 7, rows, d);
		}
		for (uint32_t i = 0; i < 4; i++)
			few_fetch(ahead);
	}
	AMX_STORE(0, sums, AMX_ROWS * sizeof(float));
}

INLINE void
few_scores_tiles(float (*sums)[AMX_ROWS], const uint16_t *queries, const struct tile_rows *keys, uint32_t padded,
		 struct few_ahead *ahead)
{
	_Alignas(64) uint8_t copies[AMX_ROWS * PAGED_MAX_DIM * sizeof(uint16_t)];
	const size_t tile = AMX_ROWS * FEW_DIMS, stride = AMX_ROWS * sizeof(float);

	if (padded <= 4 * FEW_DIMS) {
		AMX_LOAD(4, queries, stride);
		if (padded > FEW_DIMS)
			AMX_LOAD(5, queries + tile, stride);
		if (padded > 2 * FEW_DIMS)
			AMX_LOAD(6, queries + 2 * tile, stride);
		if (padded > 3 * FEW_DIMS)
			AMX_LOAD(7, queries + 3 * tile, stride);
	}
	for (uint32_t t = 0; t < keys->n_tokens; t += AMX_ROWS) {
		struct few_rows rows = few_rows(keys, padded, t, copies);

		few_scores_tile(sums[t], queries, &rows, padded, ahead);
	}
}

static void
few_scores(struct tile_scores *scores, const uint16_t *queries, uint32_t begin, uint32_t end,
	   const struct tile_rows *keys, const struct tile_rows *ahead_rows)
{
	struct few_ahead ahead = few_ahead(ahead_rows);
	_Alignas(64) float sums[TILE_TOKENS][AMX_ROWS];

	if (keys->padded == FEW_USUAL_DIMS)
		few_scores_tiles(sums, queries, keys, FEW_USUAL_DIMS, &ahead);
	else
		few_scores_tiles(sums, queries, keys, keys->padded, &ahead);
	for (uint32_t t = 0; t < keys->n_tokens; t += AMX_ROWS)
		for (uint32_t line = begin / 4 * 4; line < end; line += 4) {
			vec columns[4];

			vec_load_columns(&sums[t][line], columns);
			UNROLL
			for (uint32_t i = 0; i < 4; i++)
				vec_store(&scores->score[line + i][t], columns[i]);
		}
}

/* FEW_DIMS dims of a tile's pairs of tokens: two tiles of columns, as vec_interleave() has them, below each other. */
struct few_pairs {
	_Alignas(64) float low[TILE_TOKENS / 2][AMX_ROWS], high[TILE_TOKENS / 2][AMX_ROWS];
};

/* The sums of all lines' weights and those. */
struct few_sums {
	_Alignas(64) float line[AMX_ROWS][FEW_DIMS];
};

/* What one call of values or values_seen adds. */
struct few_product {
	const struct tile_scores *scores;
	struct tile_state *state;
	const struct tile_rows *rows;
	uint32_t begin, end;
	bool seen; /* scores->seen says which tokens a line sees, not scores->visible */
};

INLINE void
few_interleave(struct few_pairs *to, const void *const *token, uint32_t n_tokens, uint32_t d, struct few_ahead *ahead)
{
	for (uint32_t t = 0; t < n_tokens; t += 4) {
		UNROLL
		for (uint32_t i = t; i < t + 4; i += 2) {
			const uint16_t *even = token[i], *odd = token[i + 1];
			vec low, high;

			vec_interleave(vec_load((const float *)(const void *)(even + d)),
				       vec_load((const float *)(const void *)(odd + d)), &low, &high);
			vec_store(to->low[i / 2], low);
			vec_store(to->high[i / 2], high);
		}
		few_fetch(ahead);
	}
}

/* Of lines whose weights are in tiles 0 and 1. */
INLINE void
few_multiply(struct few_sums *sums, const struct few_pairs *pairs, uint32_t n_tokens)
{
	const size_t stride = AMX_ROWS * sizeof(float);

	AMX_ZERO(2);
	AMX_ZERO(3);
	AMX_LOAD(4, pairs->low[0], stride);
	AMX_DOT(2, 0, 4);
	AMX_LOAD(5, pairs->high[0], stride);
	AMX_DOT(3, 0, 5);
	if (n_tokens > 2 * AMX_ROWS) {
		AMX_LOAD(6, pairs->low[AMX_ROWS], stride);
		AMX_DOT(2, 1, 6);
		AMX_LOAD(7, pairs->high[AMX_ROWS], stride);
		AMX_DOT(3, 1, 7);
	}
	AMX_STORE(2, sums->line[0], sizeof(sums->line[0]));
	AMX_STORE(3, sums->line[0] + AMX_ROWS, sizeof(sums->line[0]));
}

INLINE bool
few_are_finite(const struct few_sums *sums, uint32_t begin, uint32_t end)
{
	vec zero = vec_set1(0);

	for (uint32_t line = begin; line < end; line++) {
		zero = vec_fma(vec_load(sums->line[line]), vec_set1(0), zero);
		zero = vec_fma(vec_load(sums->line[line] + LANES), vec_set1(0), zero);
	}
	return vec_sum(zero) == 0;
}

INLINE void
few_add(const struct few_product *p, const struct few_sums *sums, uint32_t d)
{
	for (uint32_t line = p->begin; line < p->end; line++) {
		float *values = p->state->values + (size_t)line * p->state->stride + d;
		vec rescale = vec_set1(p->scores->rescale[line]);
		vec low = vec_load(sums->line[line]), high = vec_load(sums->line[line] + LANES);

		vec_in_order(&low, &high);
		vec_store(values, vec_fma(vec_load(values), rescale, low));
		vec_store(values + LANES, vec_fma(vec_load(values + LANES), rescale, high));
	}
}

/* Those tokens, for the lines that see them. */
static void
few_add_wild(const struct few_product *p, uint32_t d, uint64_t wild)
{
	for (uint32_t line = p->begin; line < p->end; line++) {
		float *values = p->state->values + (size_t)line * p->state->stride + d;
		uint64_t seen = wild & (p->seen ? p->scores->seen[line]
						: ~UINT64_C(0) >> (TILE_TOKENS - p->scores->visible[line]));

		for (; seen != 0; seen &= seen - 1) {
			uint32_t t = (uint32_t)__builtin_ctzll(seen);
			vec weight = vec_set1(convert_from_bf16(convert_to_bf16(p->scores->score[line][t])));

			for (uint32_t i = 0; i < FEW_DIMS; i += LANES)
				vec_store(values + i, vec_fma(load_as(p->rows->token[t], PAGED_BF16, d + i), weight,
							      vec_load(values + i)));
		}
	}
}

static const uint16_t few_zeros[PAGED_MAX_DIM];

/* As few_add(), of sums that are no finite numbers: once more without the tokens at fault, and those by themselves. */
static void
few_add_without(const struct few_product *p, const void *const *token, uint32_t n_tokens, uint32_t d)
{
	struct few_ahead nothing = few_ahead(NULL);
	const void *tame[TILE_TOKENS];
	struct few_pairs pairs;
	struct few_sums sums;
	uint64_t wild = 0;

	for (uint32_t t = 0; t < n_tokens; t++) {
		bool finite = row_is_finite((const uint16_t *)token[t] + d, FEW_DIMS, PAGED_BF16);

		tame[t] = finite ? token[t] : few_zeros;
		wild |= (uint64_t)!finite << t;
	}
	few_interleave(&pairs, tame, n_tokens, d, &nothing);
	few_multiply(&sums, &pairs, n_tokens);
	few_add(p, &sums, d);
	few_add_wild(p, d, wild);
}

/*
 * A weight of 0 is multiplied, too, so that a line's bits do not depend on what
 * others see; where that gives no finite number the tokens at fault are left
 * out.  What is stored is read a step later, for it takes its time to arrive.
 */
static void
few_values_add(const struct few_product *p, const struct tile_rows *ahead_rows)
{
	struct few_ahead ahead = few_ahead(ahead_rows);
	_Alignas(64) float weights[AMX_ROWS][TILE_TOKENS / 2];
	uint32_t padded = p->rows->padded, n_tokens = p->rows->n_tokens;
	const void *const *token = p->rows->token;
	const void *filled[TILE_TOKENS];
	struct few_pairs pairs[2];
	struct few_sums sums[2];

	if (n_tokens % (2 * AMX_ROWS) != 0) {
		memcpy(filled, token, n_tokens * sizeof(*filled));
		for (; n_tokens % (2 * AMX_ROWS) != 0; n_tokens++)
			filled[n_tokens] = few_zeros;
		token = filled;
	}
	for (uint32_t line = p->begin; line < p->end; line++)
		weights_pair(weights[line], p->scores->score[line]);
	AMX_LOAD(0, weights[0], sizeof(weights[0]));
	AMX_LOAD(1, weights[0] + AMX_ROWS, sizeof(weights[0]));
	for (uint32_t d = 0, step = 0; d < padded + 2 * FEW_DIMS; d += FEW_DIMS, step ^= 1) {
		if (d >= 2 * FEW_DIMS) {
			uint32_t at = d - 2 * FEW_DIMS;

			if (few_are_finite(&sums[step], p->begin, p->end))
				few_add(p, &sums[step], at);
			else
				few_add_without(p, token, n_tokens, at);
		}
		if (d >= FEW_DIMS && d - FEW_DIMS < padded)
			few_multiply(&sums[step ^ 1], &pairs[step ^ 1], n_tokens);
		if (d < padded)
			few_interleave(&pairs[step], token, n_tokens, d, &ahead);
	}
}

static void
few_values(const struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end,
	   const struct tile_rows *rows, const struct tile_rows *ahead)
{
	struct few_product p = { .scores = scores, .state = state, .rows = rows, .begin = begin, .end = end };

	few_values_add(&p, ahead);
}

static void
few_values_seen(const struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end,
		const struct tile_rows *rows)
{
	struct few_product p = {
		.scores = scores, .state = state, .rows = rows, .begin = begin, .end = end, .seen = true
	};

	few_values_add(&p, NULL);
}

static const struct tile_dot_ops tile_dots_amx = {
	.row_elements = FEW_DIMS,
	.pack_lines = 1,
	.pack = few_pack,
	.query = few_query,
	.scores = few_scores,
	.values = few_values,
	.values_seen = few_values_seen,
};
