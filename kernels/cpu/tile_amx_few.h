/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_amx_few.h - attention of few query lines, as decode has them, by tiles of AMX
 *
 * Included after tile_amx.h and widen_bf16.h.  Rows of keys and values that
 * lie at equal distances, as those of one page do, are loaded into tiles from
 * where they are.  Scores are K . Q^T, tokens by lines.  Values are P . V, of
 * which a product takes pairs: of two dims of one token here, as a row has
 * them, where pairs of tokens would have to be interleaved first.  So a weight
 * stands alone in its word, for even dims in the low half and for odd ones in
 * the high half, in two rows of weights: of up to eight lines they fill one
 * tile, so that there are no more products than pairs of tokens would take.
 * With these words more:
 *
 *   vec_round_words(v, low, high)    v rounded to bf16, in the low half of each word and in the high one
 *   vec_zip(even, odd, low, high)    lanes of both in turn: the first 16, the other 16
 *   vec_load_columns(from, to)       to[i] lane t = from[t * AMX_ROWS + i], i below 4
 *
 * A tile's rows of lines that a task does not have are whatever is there; so
 * are then the sums of those lines, which nobody reads.
 */
#define FEW_DIMS 32u /* of a tile: two in each word */

_Static_assert(KERNEL_MANY_LINES_AMX <= AMX_ROWS + 1, "the lines of a row with few are one tile's");
_Static_assert(TILE_TOKENS == 4 * AMX_ROWS, "four tiles of tokens");

/* Word k of a line is column `line` of row k: tiles of Q^T, one after the other. */
static void
few_query(uint16_t *queries, uint32_t line, const void *from, uint32_t n)
{
	const struct widen_tables none = { 0 };
	_Alignas(64) uint16_t row[PAGED_MAX_DIM];

	row_pack(row, (n + FEW_DIMS - 1) / FEW_DIMS * FEW_DIMS, &none, from, n, PAGED_BF16);
	for (uint32_t d = 0; d < n; d += 2)
		memcpy(queries + ((size_t)d / 2 * AMX_ROWS + line) * 2, row + d, 2 * sizeof(*row));
	for (uint32_t d = (n + 1) / 2; d % AMX_ROWS != 0; d++)
		memset(queries + ((size_t)d * AMX_ROWS + line) * 2, 0, 2 * sizeof(*row));
}

/*
 * What comes next, and how far it has been asked for: a row of each of four
 * streams at a time, of which each has 16 of a tile's tokens.  It comes into
 * the first cache: tiles that are loaded from the second wait for each other's
 * rows wherever AMX is slow.
 */
struct few_ahead {
	const struct tile_rows *rows; /* or NULL, for nothing */
	uint32_t bytes, row;
};

/*
 * Of a stream's rows, how many are asked for by when, so that memory is never
 * idle: keys' products ask for the first of the values, before their scores
 * are read and turned come more, softmax asks for the rest; values ask for keys
 * while weights are stored, beside products, and before sums are read.
 */
enum few_rows_by {
	FEW_ROWS_KEYS = 8,
	FEW_ROWS_SCORES = 10,
	FEW_ROWS_TURNED = 11,
	FEW_ROWS_WEIGHTS = 2,
	FEW_ROWS_VALUES = 10,
};

INLINE struct few_ahead
few_ahead(const struct tile_rows *rows)
{
	if (rows == NULL || rows->n_tokens != TILE_TOKENS)
		return (struct few_ahead){ 0 };
	return (struct few_ahead){ .rows = rows, .bytes = rows->padded * size_of(rows->dtype) };
}

INLINE void
few_fetch_to(struct few_ahead *ahead, uint32_t end)
{
	for (; ahead->row < end; ahead->row++) {
		if (ahead->rows == NULL)
			continue;
		UNROLL
		for (uint32_t i = 0; i < TILE_TOKENS; i += AMX_ROWS) {
			const uint8_t *at = ahead->rows->token[i + ahead->row];

			for (uint32_t b = 0; b < ahead->bytes; b += 64)
				__builtin_prefetch(at + b);
		}
	}
}

/* Of rows [from, to) as large a share as `done` is of `steps`. */
INLINE void
few_fetch(struct few_ahead *ahead, uint32_t from, uint32_t to, uint32_t done, uint32_t steps)
{
	few_fetch_to(ahead, from + ((to - from) * done + steps - 1) / steps);
}

/* What stands for rows that are not there, or that are to be nothing. */
static const uint16_t few_zeros[PAGED_MAX_DIM];

/*
 * Some dims of a tile's rows, 16 tokens at a time.  Rows that are no bf16, or
 * that lie at no equal distances, are made so in one of two places, beside the
 * products of the 16 before them, which are in the other: two places stay in
 * the first cache, where a tile that is made whole does not.
 */
struct few_source {
	const struct tile_rows *rows;
	uint32_t d, dims;
	uint64_t without; /* tokens that are to be nothing, as those past the last are */
	_Alignas(64) uint16_t made[2][AMX_ROWS * PAGED_MAX_DIM];
};

/* What the compiler is to know of a source. */
enum few_kind {
	FEW_ANY,
	FEW_LIE,   /* a whole tile of USUAL_DIMS that is read as it lies; what comes next is, too, if anything does */
	FEW_APART, /* the same of bf16 of which all is made */
	FEW_BYTES, /* and of bytes */
};

INLINE enum few_kind
few_kind(const struct tile_rows *rows, const struct few_ahead *ahead)
{
	bool usual = rows->padded == USUAL_DIMS && rows->n_tokens == TILE_TOKENS &&
		     (ahead->rows == NULL || ahead->bytes == USUAL_DIMS * size_of(rows->dtype));

	if (usual && size_of(rows->dtype) == 1)
		return FEW_BYTES;
	if (usual && rows->dtype == PAGED_BF16)
		return rows->step != 0 ? FEW_LIE : FEW_APART;
	return FEW_ANY;
}

/* Field by field: what is made needs no first value. */
INLINE void
few_source(struct few_source *source, const struct tile_rows *rows, uint32_t d, uint32_t dims, uint64_t without)
{
	source->rows = rows;
	source->d = d;
	source->dims = dims;
	source->without = without;
}

/* Whether the 16 tokens from t on are read as they lie. */
INLINE bool
few_lie(const struct few_source *source, uint32_t t, enum few_kind kind)
{
	const struct tile_rows *rows = source->rows;

	if (kind != FEW_ANY)
		return kind == FEW_LIE;
	return rows->dtype == PAGED_BF16 && rows->step != 0 && source->without == 0 && t + AMX_ROWS <= rows->n_tokens;
}

/* Tokens [t, end), of the same 16, to their places. */
INLINE void
few_make_of(struct few_source *source, uint32_t t, uint32_t end, uint32_t dims, enum paged_dtype dtype)
{
	const struct widen_tables tables = widen_tables(dtype);
	const struct tile_rows *rows = source->rows;
	uint16_t *to = source->made[t / AMX_ROWS % 2];

	for (; t < end; t++) {
		bool there = t < rows->n_tokens && (source->without >> t & 1) == 0;
		const uint8_t *row = there ? rows->token[t] : (const void *)few_zeros;

		row_pack(to + (size_t)(t % AMX_ROWS) * dims, dims, &tables, row + (size_t)source->d * size_of(dtype),
			 dims, dtype);
	}
}

INLINE void
few_make_dims(struct few_source *source, uint32_t t, uint32_t end, uint32_t dims)
{
	if (source->rows->dtype == PAGED_BF16)
		few_make_of(source, t, end, dims, PAGED_BF16);
	else if (source->rows->dtype == PAGED_E4M3)
		few_make_of(source, t, end, dims, PAGED_E4M3);
	else if (source->rows->dtype == PAGED_E5M2)
		few_make_of(source, t, end, dims, PAGED_E5M2);
	else
		few_make_of(source, t, end, dims, PAGED_I8);
}

static __attribute__((noinline)) void
few_make(struct few_source *source, uint32_t t, uint32_t end)
{
	if (source->dims == USUAL_DIMS)
		few_make_dims(source, t, end, USUAL_DIMS);
	else
		few_make_dims(source, t, end, source->dims);
}

/* AMX_ROWS rows at equal distances, of bf16. */
struct few_rows {
	const uint8_t *at;
	size_t step;
};

/* The 16 tokens from t on, which were made if they do not lie so. */
INLINE struct few_rows
few_rows(const struct few_source *source, uint32_t t, enum few_kind kind)
{
	const uint8_t *first = source->rows->token[t];

	if (few_lie(source, t, kind))
		return (struct few_rows){ first + (size_t)source->d * sizeof(uint16_t), source->rows->step };
	return (struct few_rows){ (const uint8_t *)source->made[t / AMX_ROWS % 2], source->dims * sizeof(uint16_t) };
}

/* Beside so many products with FEW_DIMS dims each, rows [from, to) of what comes next are asked for. */
struct few_beside {
	struct few_ahead *ahead;
	uint32_t from, to;
	uint32_t done, steps;
};

/* Before the first products. */
INLINE void
few_begin(struct few_source *source, struct few_beside *beside, enum few_kind kind)
{
	if (kind != FEW_ANY)
		beside->ahead->bytes = USUAL_DIMS * (kind == FEW_BYTES ? sizeof(uint8_t) : sizeof(uint16_t));
	if (!few_lie(source, 0, kind))
		few_make(source, 0, AMX_ROWS);
}

/* After those with 16 tokens from t on and FEW_DIMS of `dims` that end at d. */
INLINE void
few_go_on(struct few_source *source, struct few_beside *beside, uint32_t t, uint32_t d, uint32_t dims,
	  enum few_kind kind)
{
	const uint32_t next = t + AMX_ROWS;

	few_fetch(beside->ahead, beside->from, beside->to, ++beside->done, beside->steps);
	if (kind == FEW_LIE || next >= (kind == FEW_ANY ? source->rows->n_tokens : TILE_TOKENS))
		return;
	if (!few_lie(source, next, kind))
		few_make(source, next + AMX_ROWS * (d - FEW_DIMS) / dims, next + AMX_ROWS * d / dims);
}

/* FEW_DIMS dims of 16 tokens, in tile 0 of sums, by a tile of queries that is there. */
#define FEW_SCORES_STEP(tile, query, d)                                              \
	do {                                                                         \
		AMX_LOAD(tile, rows.at + (size_t)(d) * sizeof(uint16_t), rows.step); \
		AMX_DOT(0, tile, query);                                             \
		few_go_on(source, beside, t, (d) + FEW_DIMS, padded, kind);          \
	} while (0)

/* 16 tokens from t on and all lines into `sums`; queries of up to 4 FEW_DIMS dims are in tiles 4 to 7. */
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

/* All scores, a line's in a column. */
INLINE void
few_scores_of(float sums[TILE_TOKENS][AMX_ROWS], const uint16_t *queries, struct few_source *source,
	      struct few_beside *beside, uint32_t padded)
{
	few_begin(source, beside, FEW_ANY);
	few_queries_load(queries, padded);
	for (uint32_t t = 0; t < source->rows->n_tokens; t += AMX_ROWS)
		few_scores_tile(sums[t], queries, source, beside, t, padded, FEW_ANY);
}

/* The same of another kind. */
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
	   const struct tile_rows *keys, const struct tile_rows *ahead_rows)
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

/* Rows to be fetched beside the softmax of so many lines. */
struct few_softmax {
	struct few_ahead ahead;
	uint32_t n_lines;
};

INLINE void
few_softmax_fetch(void *of, uint32_t calls)
{
	struct few_softmax *softmax = of;

	few_fetch(&softmax->ahead, FEW_ROWS_TURNED, AMX_ROWS, calls, softmax->n_lines + 1);
}

static void
few_softmax(struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end, float scale,
	    const struct tile_rows *ahead)
{
	struct few_softmax softmax = { .ahead = few_ahead(ahead), .n_lines = end - begin };

	softmax.ahead.row = FEW_ROWS_TURNED;
	softmax_beside(scores, state, begin, end, scale, few_softmax_fetch, &softmax);
}

/* Lines whose weights of both kinds are one tile's rows: those for odd dims from there on. */
#define FEW_LINES (AMX_ROWS / 2)
/* Dims whose sums fit four tiles, of so many lines and of more. */
#define FEW_SUMS_DIMS(lines) ((lines) <= FEW_LINES ? 4 * FEW_DIMS : 2 * FEW_DIMS)

/* Of each 16 tokens, weights as tiles: of few lines one, else one for even dims and one for odd ones. */
struct few_weights {
	_Alignas(64) float row[TILE_TOKENS / AMX_ROWS][2][AMX_ROWS][AMX_ROWS];
};

/* The four tiles of sums. */
struct few_sums {
	_Alignas(64) float row[4][AMX_ROWS][AMX_ROWS];
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
few_weights(struct few_weights *to, const struct few_product *p)
{
	for (uint32_t line = p->begin; line < p->end; line++)
		UNROLL
	for (uint32_t i = 0; i < TILE_TOKENS / AMX_ROWS; i++) {
		float *odd = p->end <= FEW_LINES ? to->row[i][0][FEW_LINES + line] : to->row[i][1][line];
		vec low, high;

		vec_round_words(vec_load(&p->scores->score[line][i * AMX_ROWS]), &low, &high);
		vec_store(to->row[i][0][line], low);
		vec_store(odd, high);
	}
}

/* What 16 tokens from t on add to sums of up to 4 FEW_DIMS dims of few lines. */
INLINE void
few_multiply(const float *weights, struct few_source *source, struct few_beside *beside, uint32_t t, uint32_t dims,
	     enum few_kind kind)
{
	const struct few_rows rows = few_rows(source, t, kind);

	AMX_LOAD(4, weights, AMX_ROWS * sizeof(float));
	AMX_LOAD(5, rows.at, rows.step);
	AMX_DOT(0, 4, 5);
	few_go_on(source, beside, t, FEW_DIMS, dims, kind);
	if (dims > FEW_DIMS) {
		AMX_LOAD(6, rows.at + AMX_ROWS * sizeof(float), rows.step);
		AMX_DOT(1, 4, 6);
		few_go_on(source, beside, t, 2 * FEW_DIMS, dims, kind);
	}
	if (dims > 2 * FEW_DIMS) {
		AMX_LOAD(7, rows.at + 2 * AMX_ROWS * sizeof(float), rows.step);
		AMX_DOT(2, 4, 7);
		few_go_on(source, beside, t, 3 * FEW_DIMS, dims, kind);
	}
	if (dims > 3 * FEW_DIMS) {
		AMX_LOAD(5, rows.at + 3 * AMX_ROWS * sizeof(float), rows.step);
		AMX_DOT(3, 4, 5);
		few_go_on(source, beside, t, 4 * FEW_DIMS, dims, kind);
	}
}

/* The same of up to 2 FEW_DIMS dims and more lines: tiles 0 and 1 are sums of even dims. */
INLINE void
few_multiply_more(const float *weights, struct few_source *source, struct few_beside *beside, uint32_t t, uint32_t dims)
{
	const struct few_rows rows = few_rows(source, t, FEW_ANY);

	AMX_LOAD(4, weights, AMX_ROWS * sizeof(float));
	AMX_LOAD(5, weights + AMX_ROWS * AMX_ROWS, AMX_ROWS * sizeof(float));
	AMX_LOAD(6, rows.at, rows.step);
	AMX_DOT(0, 4, 6);
	AMX_DOT(2, 5, 6);
	few_go_on(source, beside, t, FEW_DIMS, dims, FEW_ANY);
	if (dims > FEW_DIMS) {
		AMX_LOAD(7, rows.at + AMX_ROWS * sizeof(float), rows.step);
		AMX_DOT(1, 4, 7);
		AMX_DOT(3, 5, 7);
		few_go_on(source, beside, t, 2 * FEW_DIMS, dims, FEW_ANY);
	}
}

INLINE void
few_sums_store(struct few_sums *sums)
{
	AMX_STORE(0, sums->row[0], AMX_ROWS * sizeof(float));
	AMX_STORE(1, sums->row[1], AMX_ROWS * sizeof(float));
	AMX_STORE(2, sums->row[2], AMX_ROWS * sizeof(float));
	AMX_STORE(3, sums->row[3], AMX_ROWS * sizeof(float));
}

INLINE struct few_beside
few_values_beside(const struct few_product *p, uint32_t d, struct few_ahead *ahead)
{
	return (struct few_beside){ .ahead = ahead,
				    .from = FEW_ROWS_WEIGHTS,
				    .to = FEW_ROWS_VALUES,
				    .done = d / FEW_DIMS * (TILE_TOKENS / AMX_ROWS),
				    .steps = p->rows->padded / FEW_DIMS * (TILE_TOKENS / AMX_ROWS) };
}

/* Sums of dims from d on over all tokens but those `without`. */
INLINE void
few_sum(struct few_sums *sums, const struct few_weights *weights, const struct few_product *p, uint32_t d,
	uint32_t dims, uint64_t without, struct few_ahead *ahead)
{
	struct few_beside beside = few_values_beside(p, d, ahead);
	struct few_source source;

	few_source(&source, p->rows, d, dims, without);
	few_begin(&source, &beside, FEW_ANY);
	amx_zero();
	for (uint32_t t = 0; t < p->rows->n_tokens; t += AMX_ROWS) {
		const float *row = weights->row[t / AMX_ROWS][0][0];

		if (p->end <= FEW_LINES)
			few_multiply(row, &source, &beside, t, dims, FEW_ANY);
		else
			few_multiply_more(row, &source, &beside, t, dims);
	}
	few_sums_store(sums);
}

/* Sums of all dims of few lines over another kind. */
INLINE void
few_sum_usual(struct few_sums *sums, const struct few_weights *weights, const struct few_product *p,
	      struct few_ahead *ahead, enum few_kind kind)
{
	struct few_beside beside = few_values_beside(p, 0, ahead);
	struct few_source source;

	few_source(&source, p->rows, 0, USUAL_DIMS, 0);
	few_begin(&source, &beside, kind);
	amx_zero();
	UNROLL
	for (uint32_t t = 0; t < TILE_TOKENS; t += AMX_ROWS)
		few_multiply(weights->row[t / AMX_ROWS][0][0], &source, &beside, t, USUAL_DIMS, kind);
	few_sums_store(sums);
}

/* A line's sums of even dims, or of odd ones, of the i-th FEW_DIMS. */
INLINE const float *
few_sums_of(const struct few_sums *sums, const struct few_product *p, uint32_t line, uint32_t i, bool odd)
{
	if (p->end <= FEW_LINES)
		return sums->row[i][odd ? FEW_LINES + line : line];
	return sums->row[odd ? 2 + i : i][line];
}

INLINE bool
few_are_finite(const struct few_sums *sums, const struct few_product *p, uint32_t dims)
{
	vec zero[2] = { vec_set1(0), vec_set1(0) };

	for (uint32_t line = p->begin; line < p->end; line++)
		for (uint32_t i = 0; i * FEW_DIMS < dims; i++)
			UNROLL
	for (uint32_t odd = 0; odd < 2; odd++)
		zero[odd] = vec_fma(vec_load(few_sums_of(sums, p, line, i, odd)), vec_set1(0), zero[odd]);
	return vec_sum(zero[0] + zero[1]) == 0;
}

INLINE void
few_add(const struct few_product *p, const struct few_sums *sums, uint32_t d, uint32_t dims)
{
	for (uint32_t line = p->begin; line < p->end; line++) {
		float *values = p->state->values + (size_t)line * p->state->stride + d;
		vec rescale = vec_set1(p->scores->rescale[line]);

		for (uint32_t i = 0; i * FEW_DIMS < dims; i++) {
			float *to = values + (size_t)i * FEW_DIMS;
			vec low, high;

			vec_zip(vec_load(few_sums_of(sums, p, line, i, false)),
				vec_load(few_sums_of(sums, p, line, i, true)), &low, &high);
			vec_store(to, vec_fma(vec_load(to), rescale, low));
			vec_store(to + LANES, vec_fma(vec_load(to + LANES), rescale, high));
		}
	}
}

/* Those tokens, for the lines that see them. */
static void
few_add_wild(const struct few_product *p, uint32_t d, uint32_t dims, uint64_t wild)
{
	for (uint32_t line = p->begin; line < p->end; line++) {
		float *values = p->state->values + (size_t)line * p->state->stride + d;
		uint64_t seen = wild & (p->seen ? p->scores->seen[line]
						: ~UINT64_C(0) >> (TILE_TOKENS - p->scores->visible[line]));

		for (; seen != 0; seen &= seen - 1) {
			uint32_t t = (uint32_t)__builtin_ctzll(seen);
			vec weight = vec_set1(convert_from_bf16(convert_to_bf16(p->scores->score[line][t])));

			for (uint32_t i = 0; i < dims; i += LANES)
				vec_store(values + i, vec_fma(load_as(p->rows->token[t], p->rows->dtype, d + i), weight,
							      vec_load(values + i)));
		}
	}
}

INLINE bool
few_row_is_finite(const struct tile_rows *rows, uint32_t t, uint32_t d, uint32_t n)
{
	const uint8_t *row = rows->token[t];

	return row_is_finite(row + (size_t)d * size_of(rows->dtype), n, rows->dtype);
}

/*
 * As few_add(), of sums that are no finite numbers: once more without the tokens
 * at fault, and those by themselves, in steps that are the same for any number
 * of lines.
 */
static void
few_add_without(const struct few_product *p, const struct few_weights *weights, uint32_t d, uint32_t dims)
{
	const uint32_t step = FEW_SUMS_DIMS(AMX_ROWS), end = d + dims;
	struct few_ahead nothing = few_ahead(NULL);
	struct few_sums sums;

	for (; d < end; d += step) {
		uint32_t n = end - d < step ? end - d : step;
		uint64_t wild = 0;

		for (uint32_t t = 0; t < p->rows->n_tokens; t++) {
			wild |= (uint64_t)!few_row_is_finite(p->rows, t, d, n) << t;
		}
		few_sum(&sums, weights, p, d, n, wild, &nothing);
		few_add(p, &sums, d, n);
		few_add_wild(p, d, n, wild);
	}
}

/*
 * A weight of 0 is multiplied, too, so that a line's bits do not depend on what
 * others see; where that gives no finite number the tokens at fault are left
 * out.
 */
static void
few_values_add(const struct few_product *p, const struct tile_rows *ahead_rows)
{
	const uint32_t padded = p->rows->padded, step = FEW_SUMS_DIMS(p->end);
	struct few_ahead ahead = few_ahead(ahead_rows);
	const enum few_kind kind = p->end <= FEW_LINES ? few_kind(p->rows, &ahead) : FEW_ANY;
	struct few_weights weights;
	struct few_sums sums;

	few_weights(&weights, p);
	few_fetch_to(&ahead, FEW_ROWS_WEIGHTS);
	for (uint32_t d = 0; d < padded; d += step) {
		uint32_t dims = padded - d < step ? padded - d : step;

		if (kind == FEW_LIE)
			few_sum_usual(&sums, &weights, p, &ahead, FEW_LIE);
		else if (kind == FEW_APART)
			few_sum_usual(&sums, &weights, p, &ahead, FEW_APART);
		else if (kind == FEW_BYTES)
			few_sum_usual(&sums, &weights, p, &ahead, FEW_BYTES);
		else if (p->end <= FEW_LINES && padded == USUAL_DIMS)
			few_sum(&sums, &weights, p, 0, USUAL_DIMS, 0, &ahead);
		else if (dims == 2 * FEW_DIMS)
			few_sum(&sums, &weights, p, d, 2 * FEW_DIMS, 0, &ahead);
		else
			few_sum(&sums, &weights, p, d, dims, 0, &ahead);
		if (d + dims == padded)
			few_fetch_to(&ahead, AMX_ROWS);
		if (few_are_finite(&sums, p, dims))
			few_add(p, &sums, d, dims);
		else
			few_add_without(p, &weights, d, dims);
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
	.pack_lines = AMX_ROWS + 1, /* none: some rows are made at a time */
	.pack = rows_pack,
	.query = few_query,
	.scores = few_scores,
	.values = few_values,
	.values_seen = few_values_seen,
	.softmax = few_softmax,
};
