/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_body.h - tile.h's functions in the vectors of one instruction set
 *
 * Each tile_*.c includes it once, after it defines these primitives:
 *
 *   vec, LANES            floats in a vector; + - * work on it
 *   Q_ROW_BLOCK           q_rows that share a loaded key or value, at most 4
 *   VALUE_VECS(n_q_rows)  vectors of V held at once for that many q_rows
 *   vec_load, vec_store, vec_set1
 *   VEC_STREAM(to, v)     non-temporal store of v, of any type
 *   vec_load_f16, vec_load_bf16, vec_load_e4m3, vec_load_e5m2, vec_load_i8
 *   vec_store_f16 and so on, with the results of convert.h
 *   vec_fma(a, b, c)      a * b + c; rounded once or twice, but always the same
 *   vec_max(a, b)         b where either is a NaN
 *   vec_below(v, n, w)    v in lanes before n, w in the others
 *   vec_pick(v, b, w)     v in lanes whose bit in b is set, w in the others
 *   vec_scale(v, n)       v * 2^n for integer n from -126 to 0
 *   vec_unless(v, x, y)   v, but 0 in lanes with x < y
 *   vec_round(v)          to nearest even, |v| < 2^22
 *   vec_sum(v)            sum of the lanes
 *   vec_max_lanes(v)      maximum of the lanes, none of which is NaN
 *   vec_sum_block(to, stride, sums, n_q_rows)   to[q_row * stride + j] = sum of the lanes of sums[q_row][j],
 *                         added in an order that does not depend on `n_q_rows`
 *
 * Compiled with -ffp-contract=off: whether a product is fused must not depend on how the compiler
 * unrolled a block.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/append_ops.h"

#define INLINE static inline __attribute__((always_inline))
#ifndef UNROLL
#define UNROLL _Pragma("GCC unroll 16")
#endif

/*
 * exp(x) for x <= 0, with an error of about one unit in the last place; NaN stays NaN.  Results that
 * would be subnormal are 0, like exp(-inf): they are negligible next to the largest weight, which is
 * 1, and arithmetic on subnormal numbers is a hundred times slower on some CPUs.
 */
INLINE vec
vec_exp(vec x)
{
	const vec least = vec_set1(-87.33f); /* a little above 2^-126 */
	vec within, n, r, y;

	within = vec_max(least, x);
	n = vec_round(within * vec_set1(1.44269504f));
	r = vec_fma(n, vec_set1(-0.693359375f), within);
	r = vec_fma(n, vec_set1(2.12194440e-4f), r);
	y = vec_set1(1.9875691500e-4f);
	y = vec_fma(y, r, vec_set1(1.3981999507e-3f));
	y = vec_fma(y, r, vec_set1(8.3334519073e-3f));
	y = vec_fma(y, r, vec_set1(4.1665795894e-2f));
	y = vec_fma(y, r, vec_set1(1.6666665459e-1f));
	y = vec_fma(y, r, vec_set1(5.0000001201e-1f));
	y = vec_fma(y, r * r, r) + vec_set1(1.0f);
	return vec_unless(vec_scale(y, n), x, least);
}

/* The shift to subtract from scores: 0 if all are -inf, so that their weights are 0 and not NaN. */
INLINE float
shift_of(float maximum)
{
	return maximum == -INFINITY ? 0 : maximum;
}

INLINE uint32_t
size_of(enum paged_dtype dtype)
{
	return dtype == PAGED_F32 ? 4 : dtype == PAGED_F16 || dtype == PAGED_BF16 ? 2 : 1;
}

/* Calls `function` with the dtype as a constant last argument, so that the compiler specialises it for each dtype. */
#define FOR_DTYPE(dtype, function, ...)                    \
	do {                                               \
		if ((dtype) == PAGED_F32)                  \
			function(__VA_ARGS__, PAGED_F32);  \
		else if ((dtype) == PAGED_F16)             \
			function(__VA_ARGS__, PAGED_F16);  \
		else if ((dtype) == PAGED_BF16)            \
			function(__VA_ARGS__, PAGED_BF16); \
		else if ((dtype) == PAGED_E4M3)            \
			function(__VA_ARGS__, PAGED_E4M3); \
		else if ((dtype) == PAGED_E5M2)            \
			function(__VA_ARGS__, PAGED_E5M2); \
		else                                       \
			function(__VA_ARGS__, PAGED_I8);   \
	} while (0)

/* The same for 1 .. Q_ROW_BLOCK q_rows. */
#define FOR_Q_ROWS(n_q_rows, function, ...)                             \
	do {                                                            \
		if ((n_q_rows) == 1)                                    \
			function(__VA_ARGS__, 1);                       \
		else if ((n_q_rows) == 2)                               \
			function(__VA_ARGS__, 2);                       \
		else if ((n_q_rows) == 3)                               \
			function(__VA_ARGS__, Q_ROW_BLOCK > 2 ? 3 : 1); \
		else                                                    \
			function(__VA_ARGS__, Q_ROW_BLOCK);             \
	} while (0)

INLINE vec
load_as(const void *elements, enum paged_dtype dtype, uint32_t i)
{
	const uint8_t *at = (const uint8_t *)elements + (size_t)i * size_of(dtype);

	if (dtype == PAGED_F32)
		return vec_load((const float *)(const void *)at);
	if (dtype == PAGED_F16)
		return vec_load_f16(at);
	if (dtype == PAGED_BF16)
		return vec_load_bf16(at);
	if (dtype == PAGED_E4M3)
		return vec_load_e4m3(at);
	return dtype == PAGED_E5M2 ? vec_load_e5m2(at) : vec_load_i8(at);
}

INLINE void
store_as(void *elements, enum paged_dtype dtype, uint32_t i, vec v)
{
	uint8_t *at = (uint8_t *)elements + (size_t)i * size_of(dtype);

	if (dtype == PAGED_F32)
		vec_store((float *)(void *)at, v);
	else if (dtype == PAGED_F16)
		vec_store_f16(at, v);
	else if (dtype == PAGED_BF16)
		vec_store_bf16(at, v);
	else if (dtype == PAGED_E4M3)
		vec_store_e4m3(at, v);
	else if (dtype == PAGED_E5M2)
		vec_store_e5m2(at, v);
	else
		vec_store_i8(at, v);
}

INLINE void
widen_of(float *padded, const void *from, uint32_t n, enum paged_dtype dtype)
{
	uint32_t whole = n - n % LANES;
	float tail[LANES] = { 0 };

	for (uint32_t i = 0; i < whole; i += LANES)
		vec_store(padded + i, load_as(from, dtype, i));
	if (whole == n)
		return;
	memcpy(tail, (const uint8_t *)from + (size_t)whole * size_of(dtype), (size_t)(n - whole) * size_of(dtype));
	vec_store(padded + whole, load_as(tail, dtype, 0));
}

static void
tile_widen(float *padded, const void *from, enum paged_dtype dtype, uint32_t n)
{
	FOR_DTYPE(dtype, widen_of, padded, from, n);
}

INLINE void
narrow_of(void *to, const float *padded, float factor, uint32_t n, enum paged_dtype dtype)
{
	uint32_t whole = n - n % LANES;
	float tail[LANES];

	for (uint32_t i = 0; i < whole; i += LANES)
		store_as(to, dtype, i, vec_load(padded + i) * vec_set1(factor));
	if (whole == n)
		return;
	store_as(tail, dtype, 0, vec_load(padded + whole) * vec_set1(factor));
	memcpy((uint8_t *)to + (size_t)whole * size_of(dtype), tail, (size_t)(n - whole) * size_of(dtype));
}

static void
tile_narrow(void *to, enum paged_dtype dtype, const float *padded, float factor, uint32_t n)
{
	FOR_DTYPE(dtype, narrow_of, to, padded, factor, n);
}

/*
 * Prefetches one token of the next tile during the arithmetic of token t, because a burst of prefetches
 * would stall the core.  Tokens of PREFETCH_STREAMS parts of the tile alternate, because one page alone has
 * too few misses in flight.  They go to the L2 cache, because two tiles do not fit in L1.
 */
#define PREFETCH_STREAMS 4u

INLINE uint32_t
prefetch_order(uint32_t t)
{
	return t % PREFETCH_STREAMS * (TILE_TOKENS / PREFETCH_STREAMS) + t / PREFETCH_STREAMS;
}

INLINE void
prefetch_token(const struct tile_tokens *prefetch, uint32_t t)
{
	uint32_t bytes;

	t = prefetch_order(t);
	if (prefetch == NULL || t >= prefetch->n_tokens)
		return;
	bytes = prefetch->padded * size_of(prefetch->dtype);
	for (uint32_t i = 0; i < bytes; i += 64)
		__builtin_prefetch((const uint8_t *)prefetch->token[t] + i, 0, 2);
}

INLINE void
scores_block(float *score, const float *q, const struct tile_tokens *keys, const struct tile_tokens *prefetch,
	     enum paged_dtype dtype, uint32_t n_q_rows)
{
	for (uint32_t t = 0; t < keys->n_tokens; t += TILE_TOKEN_BLOCK) {
		const void *const *token = &keys->token[t];
		vec sums[Q_ROW_BLOCK][TILE_TOKEN_BLOCK];

		for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
			prefetch_token(prefetch, t + j);

		UNROLL
		for (uint32_t i = 0; i < n_q_rows; i++)
			UNROLL
		for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
			sums[i][j] = vec_set1(0);
		for (uint32_t d = 0; d < keys->padded; d += LANES) {
			vec key[TILE_TOKEN_BLOCK];

			UNROLL
			for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
				key[j] = load_as(token[j], dtype, d);
			UNROLL
			for (uint32_t i = 0; i < n_q_rows; i++) {
				vec query = vec_load(q + (size_t)i * keys->padded + d);

				UNROLL
				for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
					sums[i][j] = vec_fma(query, key[j], sums[i][j]);
			}
		}
		vec_sum_block(score + t, TILE_TOKENS, sums, n_q_rows);
	}
}

INLINE void
scores_of(struct tile_scores *scores, const float *q, uint32_t begin, uint32_t end, const struct tile_tokens *keys,
	  const struct tile_tokens *prefetch, enum paged_dtype dtype)
{
	while (begin < end) {
		uint32_t n = end - begin < Q_ROW_BLOCK ? end - begin : Q_ROW_BLOCK;
		const float *first = q + (size_t)begin * keys->padded;

		FOR_Q_ROWS(n, scores_block, scores->score[begin], first, keys, prefetch, dtype);
		prefetch = NULL;
		begin += n;
	}
}

static void
f32_scores(struct tile_scores *to, const float *q, uint32_t begin, uint32_t end, const struct tile_tokens *keys,
	   const struct tile_tokens *prefetch)
{
	FOR_DTYPE(keys->dtype, scores_of, to, q, begin, end, keys, prefetch);
}

/* Multiplies the first `visible` scores of a q_row by scale; returns the largest. */
INLINE float
scores_max(float *score, uint32_t visible, float scale)
{
	vec max = vec_set1(-INFINITY);

	UNROLL
	for (uint32_t i = 0; i < visible; i += LANES) {
		vec s = vec_below(vec_load(score + i) * vec_set1(scale), visible - i, vec_set1(-INFINITY));

		vec_store(score + i, s);
		max = vec_max(s, max);
	}
	return vec_max_lanes(max);
}

/* Turns scores into weights, 0 past the visible ones; returns their sum. */
INLINE float
weights_sum(float *score, uint32_t visible, float shift)
{
	vec sum = vec_set1(0);
	uint32_t i = 0;

	UNROLL
	for (; i < visible; i += LANES) {
		vec weight = vec_exp(vec_load(score + i) - vec_set1(shift));

		vec_store(score + i, weight);
		sum = sum + weight;
	}
	for (; i < TILE_TOKENS; i += LANES)
		vec_store(score + i, vec_set1(0));
	return vec_sum(sum);
}

/*
 * Each step processes all q_rows before the next step: the operations of one q_row depend on one
 * another, those of different q_rows do not.  `overlap` is called once when all maxima are known, and
 * after each q_row's weights, with the number of calls so far out of end - begin + 1.
 */
INLINE void
softmax_overlapped(struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end, float scale,
		   void (*overlap)(void *of, uint32_t calls), void *of)
{
	float shift[TILE_Q_ROWS], sum[TILE_Q_ROWS], rescale[TILE_Q_ROWS + LANES] = { 0 };

	for (uint32_t q_row = begin; q_row < end; q_row++) {
		uint32_t visible = scores->visible[q_row];
		float before = state->row_max[q_row], max;

		max = visible == TILE_TOKENS ? scores_max(scores->score[q_row], TILE_TOKENS, scale)
					     : scores_max(scores->score[q_row], visible, scale);
		max = max > before ? max : before;
		state->row_max[q_row] = max;
		shift[q_row] = shift_of(max);
		rescale[q_row] = before - shift[q_row];
	}
	overlap(of, 1);
	for (uint32_t q_row = begin; q_row < end; q_row++) {
		uint32_t visible = scores->visible[q_row];

		sum[q_row] = visible == TILE_TOKENS ? weights_sum(scores->score[q_row], TILE_TOKENS, shift[q_row])
						    : weights_sum(scores->score[q_row], visible, shift[q_row]);
		overlap(of, q_row - begin + 2);
	}
	for (uint32_t q_row = begin; q_row < end; q_row += LANES)
		vec_store(&rescale[q_row], vec_exp(vec_load(&rescale[q_row])));
	for (uint32_t q_row = begin; q_row < end; q_row++) {
		scores->rescale[q_row] = rescale[q_row];
		state->row_sum[q_row] = state->row_sum[q_row] * rescale[q_row] + sum[q_row];
	}
}

INLINE void
overlap_nothing(void *of, uint32_t calls)
{
	(void)of;
	(void)calls;
}

static void
tile_softmax_plain(struct tile_scores *scores, struct softmax_state *state, uint32_t begin, uint32_t end, float scale)
{
	softmax_overlapped(scores, state, begin, end, scale, overlap_nothing, NULL);
}

static void
scores_scale_visible(struct tile_scores *scores, uint32_t begin, uint32_t end, float scale)
{
	for (uint32_t q_row = begin; q_row < end; q_row++) {
		float *score = scores->score[q_row];

		for (uint32_t i = 0; i < scores->visible[q_row]; i += LANES)
			vec_store(score + i, vec_load(score + i) * vec_set1(scale));
	}
}

static void
scores_hide(struct tile_scores *scores, uint32_t begin, uint32_t end)
{
	for (uint32_t q_row = begin; q_row < end; q_row++) {
		float *score = scores->score[q_row];

		for (uint32_t i = 0; i < scores->visible[q_row]; i += LANES)
			vec_store(score + i, vec_pick(vec_load(score + i), (uint32_t)(scores->seen[q_row] >> i),
						      vec_set1(-INFINITY)));
	}
}

#include "kernels/cpu/isa/tile_values_body.h"

#include "kernels/cpu/isa/append_ops_body.h"

#define TILE_FUNCTIONS                                                                                           \
	.lanes = LANES, .widen = tile_widen, .narrow = tile_narrow, .scores = f32_scores,                        \
	.softmax = tile_softmax_plain, .scale = scores_scale_visible, .hide = scores_hide, .values = f32_values, \
	.values_seen = f32_values_seen, .combine = states_combine, .prefill_f32 = &tile_prefill_f32,             \
	.copy_ops = &tile_copy_ops

#define TILE_OPS               \
	{                      \
		TILE_FUNCTIONS \
	}
