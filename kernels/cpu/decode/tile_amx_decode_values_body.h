/* SPDX-License-Identifier: Apache-2.0 */
/* tile_amx_decode_values_body.h - part of tile_amx_decode_body.h: accumulates weights . V in a state */

/* Most q_rows whose weights for even and odd dims fit one tile; those for odd dims begin at this row. */
#define FEW_LINES (AMX_ROWS / 2)
/* Number of dims whose sums fit four tiles. */
#define FEW_SUMS_DIMS(lines) ((lines) <= FEW_LINES ? 4 * FEW_DIMS : 2 * FEW_DIMS)

/*
 * Weights as tiles, for each 16 tokens: one tile for up to FEW_LINES q_rows, else one for even and one
 * for odd dims.
 */
struct few_weights {
	_Alignas(64) float row[TILE_TOKENS / AMX_ROWS][2][AMX_ROWS][AMX_ROWS];
};

/* The four tiles of sums. */
struct few_sums {
	_Alignas(64) float row[4][AMX_ROWS][AMX_ROWS];
};

/* Arguments of one call of values or values_seen. */
struct few_product {
	const struct tile_scores *scores;
	struct softmax_state *state;
	const struct tile_tokens *rows;
	uint32_t begin, end;
	bool seen; /* scores->seen, not scores->visible, has the tokens that a q_row sees */
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

/* Adds 16 tokens from t on to sums of up to 4 FEW_DIMS dims, for up to FEW_LINES q_rows. */
INLINE void
few_multiply(const float *weights, struct few_source *source, struct few_beside *beside, uint32_t t, uint32_t dims,
	     enum few_kind kind)
{
	const struct few_rows rows = few_rows(source, t, kind);

	AMX_LOAD(4, weights, AMX_ROWS * sizeof(float));
	AMX_LOAD(5, rows.at, rows.stride);
	AMX_DOT(0, 4, 5);
	few_go_on(source, beside, t, FEW_DIMS, dims, kind);
	if (dims > FEW_DIMS) {
		AMX_LOAD(6, rows.at + AMX_ROWS * sizeof(float), rows.stride);
		AMX_DOT(1, 4, 6);
		few_go_on(source, beside, t, 2 * FEW_DIMS, dims, kind);
	}
	if (dims > 2 * FEW_DIMS) {
		AMX_LOAD(7, rows.at + 2 * AMX_ROWS * sizeof(float), rows.stride);
		AMX_DOT(2, 4, 7);
		few_go_on(source, beside, t, 3 * FEW_DIMS, dims, kind);
	}
	if (dims > 3 * FEW_DIMS) {
		AMX_LOAD(5, rows.at + 3 * AMX_ROWS * sizeof(float), rows.stride);
		AMX_DOT(3, 4, 5);
		few_go_on(source, beside, t, 4 * FEW_DIMS, dims, kind);
	}
}

/* The same for up to 2 FEW_DIMS dims and more q_rows: tiles 0 and 1 are sums of even dims, 2 and 3 of odd dims. */
INLINE void
few_multiply_more(const float *weights, struct few_source *source, struct few_beside *beside, uint32_t t, uint32_t dims)
{
	const struct few_rows rows = few_rows(source, t, FEW_ANY);

	AMX_LOAD(4, weights, AMX_ROWS * sizeof(float));
	AMX_LOAD(5, weights + AMX_ROWS * AMX_ROWS, AMX_ROWS * sizeof(float));
	AMX_LOAD(6, rows.at, rows.stride);
	AMX_DOT(0, 4, 6);
	AMX_DOT(2, 5, 6);
	few_go_on(source, beside, t, FEW_DIMS, dims, FEW_ANY);
	if (dims > FEW_DIMS) {
		AMX_LOAD(7, rows.at + AMX_ROWS * sizeof(float), rows.stride);
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

/* Sums of dims d .. d + dims - 1 over all tokens except `without`. */
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

/* Sums of all dims for up to FEW_LINES q_rows, for a usual kind. */
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

/* Sums of a q_row's even or odd dims in the i-th FEW_DIMS. */
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

/* Accumulates the tokens of `wild` (non-finite values), for the q_rows that see them. */
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
few_row_is_finite(const struct tile_tokens *rows, uint32_t t, uint32_t d, uint32_t n)
{
	const uint8_t *row = rows->token[t];

	return row_is_finite(row + (size_t)d * size_of(rows->dtype), n, rows->dtype);
}

/*
 * few_add() for sums that are not finite: computes them again without the tokens that have NaN or
 * infinite values, then accumulates those tokens one by one.  The steps are the same for any number of
 * q_rows, and so are the bits.
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

		for (uint32_t t = 0; t < p->rows->n_tokens; t++)
			wild |= (uint64_t)!few_row_is_finite(p->rows, t, d, n) << t;
		few_sum(&sums, weights, p, d, n, wild, &nothing);
		few_add(p, &sums, d, n);
		few_add_wild(p, d, n, wild);
	}
}

/*
 * Multiplies weights of 0 too, so that a q_row's bits do not depend on what other q_rows see.  If the
 * sums are not finite, the tokens with NaN or infinite values are left out.
 */
static void
few_values_add(const struct few_product *p, const struct tile_tokens *ahead_rows)
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
few_values(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
	   const struct tile_tokens *rows, const struct tile_tokens *ahead)
{
	struct few_product p = { .scores = scores, .state = state, .rows = rows, .begin = begin, .end = end };

	few_values_add(&p, ahead);
}

static void
few_values_seen(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		const struct tile_tokens *rows)
{
	struct few_product p = {
		.scores = scores, .state = state, .rows = rows, .begin = begin, .end = end, .seen = true
	};

	few_values_add(&p, NULL);
}
