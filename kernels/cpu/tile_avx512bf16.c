/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beside AVX-512's functions, those over products of bf16 pairs.  vdpbf16ps
 * adds two products to a lane, so a lane of scores takes two dims and a lane
 * of values two tokens: always 2i and 2i + 1 of a tile, and where a line sees
 * one of them alone, the other is a row of zeros.  So a line's bits do not
 * depend on what the lines beside it see.
 */
#include "kernels/cpu/tile_avx512bf16.h"

#include "kernels/cpu/tile_body.h"
#include "kernels/cpu/tile_packed.h"
#include "kernels/cpu/widen_bf16.h"

/* Dims of a step, and of one in what is left of a row. */
#define DOT_DIMS 64u
#define DOT_VECS (DOT_DIMS / LANES)
/* Of a head that most models have, for which loops are unrolled. */
#define USUAL_DIMS 128u

INLINE vec
dot(vec sum, __m512i a, __m512i b)
{
	return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/*
 * What comes in the next tile is brought to the second cache as fetch() does.
 * The core drops such a request where too many are under way, so it is made
 * again so many tokens before the row is used.  The first cache is left alone:
 * the arithmetic hides what a row of the second takes.
 */
#define FETCH_TOKENS 32u

/* Rows near and far to fetch beside tokens t .. t + n - 1; where nobody knows what comes, what is there already. */
struct fetch {
	const void *near[TILE_TOKEN_BLOCK], *far[TILE_TOKEN_BLOCK];
};

INLINE struct fetch
fetch_beside(const struct tile_rows *rows, const struct tile_rows *ahead, uint32_t t, uint32_t n)
{
	const void *const *near = &rows->token[t];
	bool whole = ahead != NULL && ahead->n_tokens == TILE_TOKENS;
	struct fetch fetch;

	if (t + FETCH_TOKENS < rows->n_tokens)
		near = &rows->token[t + FETCH_TOKENS];
	else if (whole)
		near = &ahead->token[(t + FETCH_TOKENS) % TILE_TOKENS];
	UNROLL
	for (uint32_t j = 0; j < n; j++) {
		fetch.near[j] = near[j];
		fetch.far[j] = whole ? ahead->token[fetch_turn(t + j)] : near[j];
	}
	return fetch;
}

/* Of the j-th of them, what n dims from d on take. */
INLINE void
fetch_dims(const struct fetch *fetch, uint32_t j, enum paged_dtype dtype, uint32_t d, uint32_t n)
{
	UNROLL
	for (uint32_t i = 0; i < n * size_of(dtype); i += 64) {
		__builtin_prefetch((const uint8_t *)fetch->near[j] + (size_t)d * size_of(dtype) + i, 0, 2);
		__builtin_prefetch((const uint8_t *)fetch->far[j] + (size_t)d * size_of(dtype) + i, 0, 2);
	}
}

INLINE void
pack_of(uint16_t *padded, const void *from, uint32_t n, enum paged_dtype dtype)
{
	const struct widen_tables tables = widen_tables(dtype);
	float tail[LANES] = { 0 };
	uint32_t i = 0;

	for (; i + DOT_DIMS <= n; i += DOT_DIMS) {
		__m512i wide[2];

		widen_64(&tables, from, dtype, i, wide);
		_mm512_storeu_si512(padded + i, wide[0]);
		_mm512_storeu_si512(padded + i + DOT_DIMS / 2, wide[1]);
	}
	for (; i + LANES <= n; i += LANES)
		_mm256_storeu_si256((__m256i *)(void *)(padded + i), widen_16(from, dtype, i));
	if (i == n)
		return;
	memcpy(tail, (const uint8_t *)from + (size_t)i * size_of(dtype), (size_t)(n - i) * size_of(dtype));
	_mm256_storeu_si256((__m256i *)(void *)(padded + i), widen_16(tail, dtype, 0));
}

static void
pack(uint16_t *padded, const void *from, enum paged_dtype dtype, uint32_t n)
{
	FOR_DTYPE(dtype, pack_of, padded, from, n);
}

INLINE void
dot_scores_block(float *score, const uint16_t *q, const struct tile_rows *keys, const struct tile_rows *ahead,
		 uint32_t padded, enum paged_dtype dtype, uint32_t lines)
{
	const struct widen_tables tables = widen_tables(dtype);

	for (uint32_t t = 0; t < keys->n_tokens; t += TILE_TOKEN_BLOCK) {
		const void *const *token = &keys->token[t];
		const struct fetch fetch = fetch_beside(keys, ahead, t, TILE_TOKEN_BLOCK);
		vec sums[LINE_BLOCK][TILE_TOKEN_BLOCK];
		uint32_t d = 0;

		UNROLL
		for (uint32_t i = 0; i < lines; i++)
			UNROLL
		for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
			sums[i][j] = vec_set1(0);
		UNROLL
		for (; d + DOT_DIMS <= padded; d += DOT_DIMS) {
			__m512i key[TILE_TOKEN_BLOCK][2];

			UNROLL
			for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++) {
				widen_64(&tables, token[j], dtype, d, key[j]);
				fetch_dims(&fetch, j, dtype, d, DOT_DIMS);
			}
			UNROLL
			for (uint32_t h = 0; h < 2; h++)
				UNROLL
			for (uint32_t i = 0; i < lines; i++) {
				__m512i query = _mm512_loadu_si512(q + (size_t)i * padded + d + h * 32);

				UNROLL
				for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
					sums[i][j] = dot(sums[i][j], query, key[j][h]);
			}
		}
		for (; d < padded; d += LANES) {
			UNROLL
			for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++) {
				__m512i key = _mm512_zextsi256_si512(widen_16(token[j], dtype, d));

				fetch_dims(&fetch, j, dtype, d, LANES);
				UNROLL
				for (uint32_t i = 0; i < lines; i++) {
					__m256i query = widen_16(q + (size_t)i * padded, PAGED_BF16, d);

					sums[i][j] = dot(sums[i][j], _mm512_zextsi256_si512(query), key);
				}
			}
		}
		vec_sum_block(score + t, TILE_TOKENS, sums, lines);
	}
}

typedef void (*scores_fn)(float *score, const uint16_t *q, const struct tile_rows *keys, const struct tile_rows *ahead);

/* A function of its own for each dtype and number of lines: together they would run out of registers. */
#define SCORES(name, dtype, lines)                                                                         \
	static void scores_##name##_##lines(float *score, const uint16_t *q, const struct tile_rows *keys, \
					    const struct tile_rows *ahead)                                 \
	{                                                                                                  \
		if (keys->padded == USUAL_DIMS)                                                            \
			dot_scores_block(score, q, keys, ahead, USUAL_DIMS, dtype, lines);                 \
		else                                                                                       \
			dot_scores_block(score, q, keys, ahead, keys->padded, dtype, lines);               \
	}
#define FOR_LINES(what, name, dtype) what(name, dtype, 1) what(name, dtype, 2) what(name, dtype, 3) what(name, dtype, 4)
#define FOR_LINES_AND_DTYPES(what)        \
	FOR_LINES(what, bf16, PAGED_BF16) \
	FOR_LINES(what, e4m3, PAGED_E4M3) \
	FOR_LINES(what, e5m2, PAGED_E5M2) \
	FOR_LINES(what, i8, PAGED_I8)

FOR_LINES_AND_DTYPES(SCORES)

#define SCORES_ENTRY(name, dtype, lines) [dtype][lines - 1] = scores_##name##_##lines,

static const scores_fn scores_functions[][LINE_BLOCK] = { FOR_LINES_AND_DTYPES(SCORES_ENTRY) };

static void
dot_scores(struct tile_scores *to, const uint16_t *q, uint32_t begin, uint32_t end, const struct tile_rows *keys,
	   const struct tile_rows *ahead)
{
	for (uint32_t n; begin < end; begin += n) {
		n = end - begin < LINE_BLOCK ? end - begin : LINE_BLOCK;
		scores_functions[keys->dtype][n - 1](to->score[begin], q + (size_t)begin * keys->padded, keys, ahead);
		ahead = NULL;
	}
}

/* A line's weights in bf16, a pair of tokens in each word. */
struct weight_pairs {
	uint32_t pair[TILE_TOKENS / 2];
};

/* Weights past a line's sight become anything; nobody multiplies by them. */
INLINE void
weights_round(struct weight_pairs *pairs, const float (*weights)[TILE_TOKENS], uint32_t lines)
{
	for (uint32_t i = 0; i < lines; i++)
		for (uint32_t t = 0; t < TILE_TOKENS; t += 2 * LANES)
			_mm512_storeu_si512(&pairs[i].pair[t / 2],
					    (__m512i)_mm512_cvtne2ps_pbh(vec_load(&weights[i][t + LANES]),
									 vec_load(&weights[i][t])));
}

/* Tokens [from, to) of some lines, `vecs` vectors of V beginning at dimension d. */
INLINE void
dot_values_block(float *values, uint32_t stride, const struct weight_pairs *weights, const float *rescale,
		 const struct tile_rows *rows, const struct tile_rows *ahead, enum paged_dtype dtype, uint32_t from,
		 uint32_t to, uint32_t d, uint32_t lines, uint32_t vecs)
{
	static const uint8_t zeros[2 * PAGED_MAX_DIM];
	const struct widen_tables tables = widen_tables(dtype);
	vec sums[LINE_BLOCK][DOT_VECS];

	UNROLL
	for (uint32_t i = 0; i < lines; i++)
		UNROLL
	for (uint32_t j = 0; j < vecs; j++)
		sums[i][j] = vec_load(values + (size_t)i * stride + d + j * LANES) * vec_set1(rescale[i]);
	for (uint32_t t = from & ~1u; t < to; t += 2) {
		const void *even = t < from ? zeros : rows->token[t];
		const void *odd = t + 1 == to ? zeros : rows->token[t + 1];
		const struct fetch fetch = fetch_beside(rows, ahead, t, 2);
		__m512i value[DOT_VECS];

		fetch_dims(&fetch, 0, dtype, d, vecs * LANES);
		fetch_dims(&fetch, 1, dtype, d, vecs * LANES);
		if (vecs == DOT_VECS)
			pairs_64(&tables, even, odd, dtype, d, value);
		else
			value[0] = pairs_16(even, odd, dtype, d);
		UNROLL
		for (uint32_t i = 0; i < lines; i++) {
			__m512i weight = _mm512_set1_epi32((int)weights[i].pair[t / 2]);

			UNROLL
			for (uint32_t j = 0; j < vecs; j++)
				sums[i][j] = dot(sums[i][j], weight, value[j]);
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
		 const struct tile_rows *rows, const struct tile_rows *ahead, uint32_t from, uint32_t to,
		 enum paged_dtype dtype, uint32_t lines)
{
	uint32_t d = 0;

	for (; d + DOT_DIMS <= rows->padded; d += DOT_DIMS)
		dot_values_block(values, stride, weights, rescale, rows, ahead, dtype, from, to, d, lines, DOT_VECS);
	for (; d < rows->padded; d += LANES)
		dot_values_block(values, stride, weights, rescale, rows, ahead, dtype, from, to, d, lines, 1);
}

typedef void (*values_fn)(float *values, uint32_t stride, const struct weight_pairs *weights, const float *rescale,
			  const struct tile_rows *rows, const struct tile_rows *ahead, uint32_t from, uint32_t to);

#define VALUES(name, dtype, lines)                                                                              \
	static void values_##name##_##lines(float *values, uint32_t stride, const struct weight_pairs *weights, \
					    const float *rescale, const struct tile_rows *rows,                 \
					    const struct tile_rows *ahead, uint32_t from, uint32_t to)          \
	{                                                                                                       \
		dot_values_lines(values, stride, weights, rescale, rows, ahead, from, to, dtype, lines);        \
	}

FOR_LINES_AND_DTYPES(VALUES)

#define VALUES_ENTRY(name, dtype, lines) [dtype][lines - 1] = values_##name##_##lines,

static const values_fn values_functions[][LINE_BLOCK] = { FOR_LINES_AND_DTYPES(VALUES_ENTRY) };

/* Tokens [from, to) of so many lines, whose weights are the first in `weights`. */
static void
dot_values_run(struct tile_state *state, const struct weight_pairs *weights, uint32_t line, const float *rescale,
	       const struct tile_rows *rows, const struct tile_rows *ahead, uint32_t from, uint32_t to, uint32_t lines)
{
	values_functions[rows->dtype][lines - 1](state->values + (size_t)line * state->stride, state->stride, weights,
						 rescale, rows, ahead, from, to);
}

static void
dot_values(const struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end,
	   const struct tile_rows *rows, const struct tile_rows *ahead)
{
	static const float as_is = 1;

	while (begin < end) {
		uint32_t n = end - begin < LINE_BLOCK ? end - begin : LINE_BLOCK;
		uint32_t common = scores->visible[begin], most = common;
		struct weight_pairs pairs[LINE_BLOCK];

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

/* A line's runs in [from, end); its values are rescaled with the first of the tile. */
INLINE void
dot_values_runs(const struct tile_scores *scores, struct tile_state *state, const struct weight_pairs *weights,
		uint32_t line, float *rescale, const struct tile_rows *rows, uint32_t from, uint32_t end)
{
	uint32_t to = run_of_ones(scores->seen[line], from, end, &from);

	for (; from < end; to = run_of_ones(scores->seen[line], to, end, &from)) {
		dot_values_run(state, weights, line, rescale, rows, NULL, from, to, 1);
		*rescale = 1;
	}
}

/* Bits of pairs 2i, 2i + 1 that are both set. */
INLINE uint64_t
whole_pairs(uint64_t bits)
{
	uint64_t even = bits & bits >> 1 & UINT64_C(0x5555555555555555);

	return even | even << 1;
}

/* Pairs that all of so many lines see whole, between them each line's own. */
static void
dot_values_seen(const struct tile_scores *scores, struct tile_state *state, uint32_t begin, uint32_t end,
		const struct tile_rows *rows)
{
	for (uint32_t n; begin < end; begin += n) {
		struct weight_pairs pairs[LINE_BLOCK];
		float rescale[LINE_BLOCK];
		uint64_t all = ~UINT64_C(0);
		uint32_t done = 0;

		n = end - begin < LINE_BLOCK ? end - begin : LINE_BLOCK;
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

const struct tile_dot_ops kernel_tile_dots_avx512bf16 = {
	.pack = pack,
	.scores = dot_scores,
	.values = dot_values,
	.values_seen = dot_values_seen,
};

const struct kernel_tile_ops kernel_tile_ops_avx512bf16 = {
	TILE_FUNCTIONS,
	.dot = &kernel_tile_dots_avx512bf16,
	.pairs = &tile_packed_pairs,
};
