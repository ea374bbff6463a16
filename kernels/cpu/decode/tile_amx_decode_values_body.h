/* SPDX-License-Identifier: Apache-2.0 */
/* tile_amx_decode_values_body.h - part of tile_amx_decode_body.h: accumulates weights . V in a state */

/* Most q_rows whose weights for even and odd dims fit one tile; those for odd dims begin at this tile row. */
#define AMX_ONE_TILE_Q_ROWS (AMX_ROWS / 2)
/* Number of dims whose sums fit four tiles. */
#define AMX_SUMS_DIMS(n_q_rows) ((n_q_rows) <= AMX_ONE_TILE_Q_ROWS ? 4 * AMX_DIMS : 2 * AMX_DIMS)

/*
 * Weights as tiles, for each 16 tokens: one tile for up to AMX_ONE_TILE_Q_ROWS q_rows, else one for even and one
 * for odd dims.
 */
struct amx_weights {
	_Alignas(64) float tile_row[TILE_TOKENS / AMX_ROWS][2][AMX_ROWS][AMX_ROWS];
};

/* The four tiles of sums. */
struct amx_sums {
	_Alignas(64) float tile_row[4][AMX_ROWS][AMX_ROWS];
};

/* Arguments of one call of values or values_seen. */
struct amx_values {
	const struct tile_scores *scores;
	struct softmax_state *state;
	const struct tile_tokens *tokens;
	uint32_t begin, end;
	bool seen; /* scores->seen, not scores->visible, has the tokens that a q_row sees */
};

INLINE void
amx_weights(struct amx_weights *to, const struct amx_values *p)
{
	for (uint32_t q_row = p->begin; q_row < p->end; q_row++)
		UNROLL
	for (uint32_t i = 0; i < TILE_TOKENS / AMX_ROWS; i++) {
		float *odd = p->end <= AMX_ONE_TILE_Q_ROWS ? to->tile_row[i][0][AMX_ONE_TILE_Q_ROWS + q_row]
							   : to->tile_row[i][1][q_row];
		vec low, high;

		/* The softmax weights become bf16. */
		vec_round_bf16_words(vec_load(&p->scores->score[q_row][i * AMX_ROWS]), &low, &high);
		vec_store(to->tile_row[i][0][q_row], low);
		vec_store(odd, high);
	}
}

/* Adds 16 tokens from t on to sums of up to 4 AMX_DIMS dims, for up to AMX_ONE_TILE_Q_ROWS q_rows. */
INLINE void
amx_values_multiply(const float *weights, struct amx_source *source, struct amx_overlap *overlap, uint32_t t,
		    uint32_t dims, enum amx_source_kind kind)
{
	const struct amx_operand operand = amx_operand(source, t, kind);

	AMX_LOAD(4, weights, AMX_ROWS * sizeof(float));
	AMX_LOAD(5, operand.at, operand.stride);
	AMX_DOT(0, 4, 5);
	amx_overlap_step(source, overlap, t, AMX_DIMS, dims, kind);
	if (dims > AMX_DIMS) {
		AMX_LOAD(6, operand.at + AMX_ROWS * sizeof(float), operand.stride);
		AMX_DOT(1, 4, 6);
		amx_overlap_step(source, overlap, t, 2 * AMX_DIMS, dims, kind);
	}
	if (dims > 2 * AMX_DIMS) {
		AMX_LOAD(7, operand.at + 2 * AMX_ROWS * sizeof(float), operand.stride);
		AMX_DOT(2, 4, 7);
		amx_overlap_step(source, overlap, t, 3 * AMX_DIMS, dims, kind);
	}
	if (dims > 3 * AMX_DIMS) {
		AMX_LOAD(5, operand.at + 3 * AMX_ROWS * sizeof(float), operand.stride);
		AMX_DOT(3, 4, 5);
		amx_overlap_step(source, overlap, t, 4 * AMX_DIMS, dims, kind);
	}
}

/* The same for up to 2 AMX_DIMS dims and more q_rows: tiles 0 and 1 are sums of even dims, 2 and 3 of odd dims. */
INLINE void
amx_values_multiply_two_tiles(const float *weights, struct amx_source *source, struct amx_overlap *overlap, uint32_t t,
			      uint32_t dims)
{
	const struct amx_operand operand = amx_operand(source, t, AMX_SOURCE_ANY);

	AMX_LOAD(4, weights, AMX_ROWS * sizeof(float));
	AMX_LOAD(5, weights + AMX_ROWS * AMX_ROWS, AMX_ROWS * sizeof(float));
	AMX_LOAD(6, operand.at, operand.stride);
	AMX_DOT(0, 4, 6);
	AMX_DOT(2, 5, 6);
	amx_overlap_step(source, overlap, t, AMX_DIMS, dims, AMX_SOURCE_ANY);
	if (dims > AMX_DIMS) {
		AMX_LOAD(7, operand.at + AMX_ROWS * sizeof(float), operand.stride);
		AMX_DOT(1, 4, 7);
		AMX_DOT(3, 5, 7);
		amx_overlap_step(source, overlap, t, 2 * AMX_DIMS, dims, AMX_SOURCE_ANY);
	}
}

INLINE void
amx_sums_store(struct amx_sums *sums)
{
	AMX_STORE(0, sums->tile_row[0], AMX_ROWS * sizeof(float));
	AMX_STORE(1, sums->tile_row[1], AMX_ROWS * sizeof(float));
	AMX_STORE(2, sums->tile_row[2], AMX_ROWS * sizeof(float));
	AMX_STORE(3, sums->tile_row[3], AMX_ROWS * sizeof(float));
}

INLINE struct amx_overlap
amx_values_overlap(const struct amx_values *p, uint32_t d, struct amx_prefetch *prefetch)
{
	return (struct amx_overlap){ .prefetch = prefetch,
				     .from = AMX_PREFETCH_WEIGHTS,
				     .to = AMX_PREFETCH_VALUES,
				     .done = d / AMX_DIMS * (TILE_TOKENS / AMX_ROWS),
				     .steps = p->tokens->padded / AMX_DIMS * (TILE_TOKENS / AMX_ROWS) };
}

/* Weighted sums of dims d .. d + dims - 1 over all tokens that are not in the bitmask `without`. */
INLINE void
amx_values_sum(struct amx_sums *sums, const struct amx_weights *weights, const struct amx_values *p, uint32_t d,
	       uint32_t dims, uint64_t without, struct amx_prefetch *prefetch)
{
	struct amx_overlap overlap = amx_values_overlap(p, d, prefetch);
	struct amx_source source;

	amx_source(&source, p->tokens, d, dims, without);
	amx_overlap_begin(&source, &overlap, AMX_SOURCE_ANY);
	amx_zero();
	for (uint32_t t = 0; t < p->tokens->n_tokens; t += AMX_ROWS) {
		const float *tile = weights->tile_row[t / AMX_ROWS][0][0];

		if (p->end <= AMX_ONE_TILE_Q_ROWS)
			amx_values_multiply(tile, &source, &overlap, t, dims, AMX_SOURCE_ANY);
		else
			amx_values_multiply_two_tiles(tile, &source, &overlap, t, dims);
	}
	amx_sums_store(sums);
}

/* Sums of all dims for up to AMX_ONE_TILE_Q_ROWS q_rows, for a kind known at compile time. */
INLINE void
amx_values_sum_unrolled(struct amx_sums *sums, const struct amx_weights *weights, const struct amx_values *p,
			struct amx_prefetch *prefetch, enum amx_source_kind kind)
{
	struct amx_overlap overlap = amx_values_overlap(p, 0, prefetch);
	struct amx_source source;

	amx_source(&source, p->tokens, 0, UNROLLED_DIMS, 0);
	amx_overlap_begin(&source, &overlap, kind);
	amx_zero();
	UNROLL
	for (uint32_t t = 0; t < TILE_TOKENS; t += AMX_ROWS)
		amx_values_multiply(weights->tile_row[t / AMX_ROWS][0][0], &source, &overlap, t, UNROLLED_DIMS, kind);
	amx_sums_store(sums);
}

/* Sums of a q_row's even or odd dims in the i-th AMX_DIMS. */
INLINE const float *
amx_sums_of(const struct amx_sums *sums, const struct amx_values *p, uint32_t q_row, uint32_t i, bool odd)
{
	if (p->end <= AMX_ONE_TILE_Q_ROWS)
		return sums->tile_row[i][odd ? AMX_ONE_TILE_Q_ROWS + q_row : q_row];
	return sums->tile_row[odd ? 2 + i : i][q_row];
}

INLINE bool
amx_sums_are_finite(const struct amx_sums *sums, const struct amx_values *p, uint32_t dims)
{
	vec zero[2] = { vec_set1(0), vec_set1(0) };

	for (uint32_t q_row = p->begin; q_row < p->end; q_row++)
		for (uint32_t i = 0; i * AMX_DIMS < dims; i++)
			UNROLL
	for (uint32_t odd = 0; odd < 2; odd++)
		zero[odd] = vec_fma(vec_load(amx_sums_of(sums, p, q_row, i, odd)), vec_set1(0), zero[odd]);
	return vec_sum(zero[0] + zero[1]) == 0;
}

INLINE void
amx_values_add(const struct amx_values *p, const struct amx_sums *sums, uint32_t d, uint32_t dims)
{
	for (uint32_t q_row = p->begin; q_row < p->end; q_row++) {
		float *values = p->state->values + (size_t)q_row * p->state->stride + d;
		vec rescale = vec_set1(p->scores->rescale[q_row]);

		for (uint32_t i = 0; i * AMX_DIMS < dims; i++) {
			float *to = values + (size_t)i * AMX_DIMS;
			vec low, high;

			vec_zip(vec_load(amx_sums_of(sums, p, q_row, i, false)),
				vec_load(amx_sums_of(sums, p, q_row, i, true)), &low, &high);
			vec_store(to, vec_fma(vec_load(to), rescale, low));
			vec_store(to + LANES, vec_fma(vec_load(to + LANES), rescale, high));
		}
	}
}

/* Accumulates the tokens of `non_finite` (non-finite values), for the q_rows that see them. */
static void
amx_values_add_non_finite(const struct amx_values *p, uint32_t d, uint32_t dims, uint64_t non_finite)
{
	for (uint32_t q_row = p->begin; q_row < p->end; q_row++) {
		float *values = p->state->values + (size_t)q_row * p->state->stride + d;
		uint64_t seen = non_finite & (p->seen ? p->scores->seen[q_row]
						      : ~UINT64_C(0) >> (TILE_TOKENS - p->scores->visible[q_row]));

		for (; seen != 0; seen &= seen - 1) {
			uint32_t t = (uint32_t)__builtin_ctzll(seen);
			vec weight = vec_set1(convert_from_bf16(convert_to_bf16(p->scores->score[q_row][t])));

			for (uint32_t i = 0; i < dims; i += LANES)
				vec_store(values + i, vec_fma(load_as(p->tokens->token[t], p->tokens->dtype, d + i),
							      weight, vec_load(values + i)));
		}
	}
}

INLINE bool
amx_token_is_finite(const struct tile_tokens *tokens, uint32_t t, uint32_t d, uint32_t n)
{
	const uint8_t *token = tokens->token[t];

	return token_is_finite(token + (size_t)d * size_of(tokens->dtype), n, tokens->dtype);
}

/*
 * amx_values_add() for sums that are not finite: computes them again without the tokens that have NaN or
 * infinite values, then accumulates those tokens one by one.  The steps are the same for any number of
 * q_rows, and so are the bits.
 */
static void
amx_values_add_without_non_finite(const struct amx_values *p, const struct amx_weights *weights, uint32_t d,
				  uint32_t dims)
{
	const uint32_t step = AMX_SUMS_DIMS(AMX_ROWS), end = d + dims;
	struct amx_prefetch nothing = amx_prefetch(NULL);
	struct amx_sums sums;

	for (; d < end; d += step) {
		uint32_t n = end - d < step ? end - d : step;
		uint64_t non_finite = 0;

		for (uint32_t t = 0; t < p->tokens->n_tokens; t++)
			non_finite |= (uint64_t)!amx_token_is_finite(p->tokens, t, d, n) << t;
		amx_values_sum(&sums, weights, p, d, n, non_finite, &nothing);
		amx_values_add(p, &sums, d, n);
		amx_values_add_non_finite(p, d, n, non_finite);
	}
}

/*
 * Multiplies weights of 0 too, so that a q_row's bits do not depend on what other q_rows see.  If the
 * sums are not finite, the tokens with NaN or infinite values are left out.
 */
static void
amx_values_accumulate(const struct amx_values *p, const struct tile_tokens *prefetch_tokens)
{
	const uint32_t padded = p->tokens->padded, step = AMX_SUMS_DIMS(p->end);
	struct amx_prefetch prefetch = amx_prefetch(prefetch_tokens);
	const enum amx_source_kind kind =
		p->end <= AMX_ONE_TILE_Q_ROWS ? amx_source_kind(p->tokens, &prefetch) : AMX_SOURCE_ANY;
	struct amx_weights weights;
	struct amx_sums sums;

	amx_weights(&weights, p);
	amx_prefetch_until(&prefetch, AMX_PREFETCH_WEIGHTS);
	for (uint32_t d = 0; d < padded; d += step) {
		uint32_t dims = padded - d < step ? padded - d : step;

		if (kind == AMX_SOURCE_IN_PLACE)
			amx_values_sum_unrolled(&sums, &weights, p, &prefetch, AMX_SOURCE_IN_PLACE);
		else if (kind == AMX_SOURCE_COPIED)
			amx_values_sum_unrolled(&sums, &weights, p, &prefetch, AMX_SOURCE_COPIED);
		else if (kind == AMX_SOURCE_BYTES)
			amx_values_sum_unrolled(&sums, &weights, p, &prefetch, AMX_SOURCE_BYTES);
		else if (p->end <= AMX_ONE_TILE_Q_ROWS && padded == UNROLLED_DIMS)
			amx_values_sum(&sums, &weights, p, 0, UNROLLED_DIMS, 0, &prefetch);
		else if (dims == 2 * AMX_DIMS)
			amx_values_sum(&sums, &weights, p, d, 2 * AMX_DIMS, 0, &prefetch);
		else
			amx_values_sum(&sums, &weights, p, d, dims, 0, &prefetch);
		if (d + dims == padded)
			amx_prefetch_until(&prefetch, AMX_ROWS);
		if (amx_sums_are_finite(&sums, p, dims))
			amx_values_add(p, &sums, d, dims);
		else
			amx_values_add_without_non_finite(p, &weights, d, dims);
	}
}

static void
amx_decode_values(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		  const struct tile_tokens *tokens, const struct tile_tokens *prefetch)
{
	struct amx_values p = { .scores = scores, .state = state, .tokens = tokens, .begin = begin, .end = end };

	amx_values_accumulate(&p, prefetch);
}

static void
amx_decode_values_seen(const struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end,
		       const struct tile_tokens *tokens)
{
	struct amx_values p = {
		.scores = scores, .state = state, .tokens = tokens, .begin = begin, .end = end, .seen = true
	};

	amx_values_accumulate(&p, NULL);
}
