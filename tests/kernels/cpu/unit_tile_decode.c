/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode tile operations over unpacked tokens, against float64: every dtype and
 * number of q_rows, tokens and dims, on every instruction set and on the models.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"
#include "tests/kernels/cpu/tile_model.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_Q_ROWS 12u

static const enum paged_dtype dtypes[] = { PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };

/* Memory layout of the tokens: separate allocations, or one array in ascending or descending order. */
enum token_layout { TOKENS_SEPARATE, TOKENS_ASCENDING, TOKENS_DESCENDING, N_TOKEN_LAYOUTS };

struct tile {
	enum paged_dtype dtype;
	enum token_layout token_layout;
	uint32_t n_tokens, dim;
	void *memory[TILE_TOKENS];
	void *token[TILE_TOKENS];
	double element[TILE_TOKENS][PAGED_MAX_DIM];
	double query[MAX_Q_ROWS][PAGED_MAX_DIM];
	_Alignas(64) uint16_t converted[TILE_TOKENS * PAGED_MAX_DIM];
	_Alignas(64) uint16_t q[TILE_Q_ROWS * PAGED_MAX_DIM];
	struct tile_scores scores;
	_Alignas(64) float values[TILE_Q_ROWS * PAGED_MAX_DIM];
};

static float
rounded(float value, enum paged_dtype dtype)
{
	uint32_t bits;

	if (dtype == PAGED_I8)
		return rintf(value * 127);
	reference_store(&bits, dtype, 0, value);
	return reference_load(&bits, dtype, 0);
}

static void
element_put(struct tile *tile, uint32_t t, uint32_t d, float value)
{
	reference_store(tile->token[t], tile->dtype, d, value);
	tile->element[t][d] = reference_load(tile->token[t], tile->dtype, d);
}

/* Allocations of the exact size, so that a sanitizer reports reads past the end. */
static void
tokens_allocate(struct tile *tile, enum token_layout token_layout)
{
	const size_t magnitude = (size_t)tile->dim * paged_dtype_size(tile->dtype);

	for (uint32_t t = 0; t < tile->n_tokens; t++) {
		uint32_t at = token_layout == TOKENS_ASCENDING ? t : tile->n_tokens - 1 - t;

		tile->memory[t] = token_layout == TOKENS_SEPARATE ? malloc(magnitude)
				  : t == 0                        ? malloc(magnitude * tile->n_tokens)
								  : NULL;
		tile->token[t] =
			token_layout == TOKENS_SEPARATE ? tile->memory[t] : (uint8_t *)tile->memory[0] + at * magnitude;
	}
}

static void
tile_fill(struct tile *tile, enum paged_dtype dtype, uint32_t n_tokens, uint32_t dim, enum token_layout token_layout)
{
	tile->dtype = dtype;
	tile->n_tokens = n_tokens;
	tile->dim = dim;
	tile->token_layout = token_layout;
	tokens_allocate(tile, token_layout);
	for (uint32_t t = 0; t < n_tokens; t++)
		for (uint32_t d = 0; d < dim; d++)
			element_put(tile, t, d,
				    rounded(random_float(dtype, (uint64_t)t * PAGED_MAX_DIM + d, 1), dtype));
}

static void
tile_free(struct tile *tile)
{
	for (uint32_t t = 0; t < tile->n_tokens; t++)
		free(tile->memory[t]);
}

static uint32_t
padded_to(uint32_t dim, uint32_t lanes)
{
	return (dim + lanes - 1) / lanes * lanes;
}

/* Whether tokens of so many elements are read in place, without conversion. */
static bool
readable_in_place(const struct kernel_tile_ops *ops, enum paged_dtype dtype, uint32_t dim)
{
	return dim % ops->decode_bf16->token_elements == 0 &&
	       (dtype == PAGED_BF16 || ops->decode_bf16->convert_q_rows > 1);
}

static void
tokens_convert(struct tile *tile, const struct kernel_tile_ops *ops, uint32_t dim, struct tile_tokens *tokens)
{
	struct tile_tokens from = *tokens;

	from.dtype = tile->dtype;
	from.padded = dim;
	tokens->stride = tokens->padded * sizeof(uint16_t);
	memset(tile->converted, 0xff, sizeof(tile->converted));
	ops->decode_bf16->convert_tokens(tile->converted, tokens->padded, &from, &from);
	for (uint32_t t = 0; t < tile->n_tokens; t++)
		tokens->token[t] = tile->converted + (size_t)t * tokens->padded;
	for (uint32_t i = tile->n_tokens * tokens->padded; i < COUNT(tile->converted); i++)
		cr_assert_eq(tile->converted[i], 0xffff);
}

/* The first `dim` elements of each token; converted if they cannot be read in place or if `converted` is true. */
static struct tile_tokens
tile_tokens_of(struct tile *tile, const struct kernel_tile_ops *ops, uint32_t dim, bool converted)
{
	const size_t magnitude = (size_t)tile->dim * paged_dtype_size(tile->dtype);
	struct tile_tokens tokens = { .n_tokens = tile->n_tokens,
				      .dtype = PAGED_BF16,
				      .padded = padded_to(dim, ops->decode_bf16->token_elements) };

	converted = converted || !readable_in_place(ops, tile->dtype, dim);
	if (!converted) {
		tokens.dtype = tile->dtype;
		tokens.stride = tile->token_layout == TOKENS_ASCENDING ? magnitude : 0;
	}
	for (uint32_t t = 0; t < tile->n_tokens; t++)
		tokens.token[t] = tile->token[t];
	if (converted)
		tokens_convert(tile, ops, dim, &tokens);
	for (uint32_t t = tile->n_tokens; t < TILE_TOKENS; t++)
		tokens.token[t] = tokens.token[tile->n_tokens - 1];
	return tokens;
}

static void
queries_fill(struct tile *tile, const struct kernel_tile_ops *ops)
{
	memset(tile->q, 0, sizeof(tile->q));
	for (uint32_t q_row = 0; q_row < MAX_Q_ROWS; q_row++) {
		uint16_t row[PAGED_MAX_DIM];

		for (uint32_t d = 0; d < tile->dim; d++) {
			row[d] = convert_to_bf16(random_float(77, (uint64_t)q_row * PAGED_MAX_DIM + d, 1));
			tile->query[q_row][d] = convert_from_bf16(row[d]);
		}
		ops->decode_bf16->convert_query(tile->q, q_row, row, tile->dim);
	}
}

/* Scores of q_rows [begin, end) are correct, and have the same bits when each q_row is computed alone. */
static void
scores_check(struct tile *tile, const struct kernel_tile_ops *ops, uint32_t begin, uint32_t end, bool converted)
{
	struct tile_tokens tokens = tile_tokens_of(tile, ops, tile->dim, converted);
	static struct tile_scores single;

	queries_fill(tile, ops);
	ops->decode_bf16->scores(&tile->scores, tile->q, begin, end, &tokens, &tokens);
	for (uint32_t q_row = begin; q_row < end; q_row++) {
		ops->decode_bf16->scores(&single, tile->q, q_row, q_row + 1, &tokens, NULL);
		cr_assert(memcmp(tile->scores.score[q_row], single.score[q_row], tile->n_tokens * sizeof(float)) == 0);
		for (uint32_t t = 0; t < tile->n_tokens; t++) {
			double sum = 0, magnitude = 0;

			for (uint32_t d = 0; d < tile->dim; d++) {
				sum += tile->query[q_row][d] * tile->element[t][d];
				magnitude += fabs(tile->query[q_row][d] * tile->element[t][d]);
			}
			cr_assert_float_eq((double)tile->scores.score[q_row][t], sum, magnitude * 0x1p-18,
					   "%s, %u tokens, dim %u, q_rows %u to %u: q_row %u token %u",
					   paged_dtype_name(tile->dtype), tile->n_tokens, tile->dim, begin, end, q_row,
					   t);
		}
	}
}

/* Which tokens each q_row attends: all, a prefix, a random subset, or all but one. */
enum mask_pattern {
	MASK_PATTERN_ALL,
	MASK_PATTERN_LENGTHS,
	MASK_PATTERN_RANDOM,
	MASK_PATTERN_ALL_BUT_ONE,
	N_MASK_PATTERNS
};

static uint64_t
bits_below(uint32_t n)
{
	return ~UINT64_C(0) >> (TILE_TOKENS - n);
}

static uint64_t
visible_bits(uint32_t q_row, uint32_t n_tokens, enum mask_pattern mask_pattern)
{
	uint64_t random = random_bits(n_tokens, q_row), all = bits_below(n_tokens);

	switch (mask_pattern) {
	case MASK_PATTERN_LENGTHS:
		return bits_below(n_tokens > q_row * 5 % 8 ? n_tokens - q_row * 5 % 8 : 1);
	case MASK_PATTERN_RANDOM:
		return all & random;
	case MASK_PATTERN_ALL_BUT_ONE: /* all tokens but one */
		return all & ~(UINT64_C(1) << random % n_tokens);
	case MASK_PATTERN_ALL:
	case N_MASK_PATTERNS:
		break;
	}
	return all;
}

/* Weights as softmax() leaves them: 0 for masked tokens. */
static void
weights_fill(struct tile *tile, enum mask_pattern mask_pattern)
{
	for (uint32_t q_row = 0; q_row < MAX_Q_ROWS; q_row++) {
		uint64_t visible = visible_bits(q_row, tile->n_tokens, mask_pattern);

		tile->scores.seen[q_row] = visible;
		tile->scores.visible[q_row] =
			mask_pattern == MASK_PATTERN_LENGTHS ? 64 - (uint32_t)__builtin_clzll(visible) : tile->n_tokens;
		tile->scores.rescale[q_row] = visible != 0 && q_row % 2 ? 0.5f : 1;
		for (uint32_t t = 0; t < TILE_TOKENS; t++) {
			float weight = fabsf(random_float(3, (uint64_t)q_row * TILE_TOKENS + t, 1));

			tile->scores.score[q_row][t] = visible >> t & 1 ? weight : 0;
		}
	}
}

static void
values_run(const struct kernel_tile_ops *ops, const struct tile_scores *scores, float *values, uint32_t begin,
	   uint32_t end, const struct tile_tokens *tokens, bool masked)
{
	struct softmax_state state = { .values = values, .stride = tokens->padded };

	for (uint32_t i = 0; i < TILE_Q_ROWS * tokens->padded; i++)
		values[i] = 3;
	if (masked)
		ops->decode_bf16->values_seen(scores, &state, begin, end, tokens);
	else
		ops->decode_bf16->values(scores, &state, begin, end, tokens, tokens);
}

/* The output of one q_row is correct, or NaN or infinite if a visible token is. */
static void
q_row_check(const struct tile *tile, uint32_t q_row, uint32_t dim, const float *values)
{
	for (uint32_t d = 0; d < dim; d++) {
		double sum = 3 * (double)tile->scores.rescale[q_row], magnitude = 3;

		for (uint32_t t = 0; t < tile->n_tokens; t++) {
			double weight = convert_from_bf16(convert_to_bf16(tile->scores.score[q_row][t]));

			if ((tile->scores.seen[q_row] >> t & 1) == 0)
				continue;
			sum += weight * tile->element[t][d];
			magnitude += fabs(weight * tile->element[t][d]);
		}
		if (isfinite(sum))
			cr_assert_float_eq((double)values[d], sum, magnitude * 0x1p-18,
					   "%s, %u tokens, q_row %u, dim %u of %u", paged_dtype_name(tile->dtype),
					   tile->n_tokens, q_row, d, dim);
		else
			cr_assert(!isfinite(values[d]));
	}
}

static void
values_check(struct tile *tile, const struct kernel_tile_ops *ops, uint32_t begin, uint32_t end, uint32_t dim,
	     bool converted, enum mask_pattern mask_pattern)
{
	struct tile_tokens tokens = tile_tokens_of(tile, ops, dim, converted);
	bool masked = mask_pattern == MASK_PATTERN_RANDOM || mask_pattern == MASK_PATTERN_ALL_BUT_ONE;
	static _Alignas(64) float single[TILE_Q_ROWS * PAGED_MAX_DIM];

	weights_fill(tile, mask_pattern);
	values_run(ops, &tile->scores, tile->values, begin, end, &tokens, masked);
	for (uint32_t q_row = 0; q_row < TILE_Q_ROWS; q_row++) {
		const float *values = tile->values + (size_t)q_row * tokens.padded;

		if (q_row < begin || q_row >= end) {
			for (uint32_t d = 0; d < tokens.padded; d++)
				cr_assert(values[d] == 3, "q_row %u is none of ours", q_row);
			continue;
		}
		values_run(ops, &tile->scores, single, q_row, q_row + 1, &tokens, masked);
		cr_assert(memcmp(values, single + (size_t)q_row * tokens.padded, dim * sizeof(*values)) == 0,
			  "q_row %u of %u to %u", q_row, begin, end);
		q_row_check(tile, q_row, dim, values);
	}
}

/* Put an infinity (e4m3: NaN) into a token that some q_rows may attend. */
static void
tile_put_non_finite(struct tile *tile, uint32_t t, uint32_t d)
{
	if (tile->dtype != PAGED_I8 && tile->dtype != PAGED_E4M3)
		element_put(tile, t, d, INFINITY);
	else if (tile->dtype == PAGED_E4M3)
		element_put(tile, t, d, NAN);
}

static const uint32_t dims[] = { 1, 15, 16, 17, 48, 64, 80, 128, 130, 192, 576 };
static const uint32_t token_counts[] = { 1, 2, 3, 15, 16, 17, 31, 33, 63, 64 };

static void
tile_check(const struct kernel_tile_ops *ops, uint32_t i, enum paged_dtype dtype, uint32_t n_tokens, uint32_t dim,
	   uint32_t n_q_rows)
{
	static struct tile tile;
	uint32_t begin = i % (MAX_Q_ROWS - n_q_rows + 1), end = begin + n_q_rows;
	uint32_t of_k = i % 3 ? dim : (dim + 1) / 2; /* V may be the first dims of K */

	tile_fill(&tile, dtype, n_tokens, dim, i % N_TOKEN_LAYOUTS);
	scores_check(&tile, ops, begin, end, i % 5 == 4);
	values_check(&tile, ops, begin, end, of_k, i % 5 == 4, i % N_MASK_PATTERNS);
	tile_put_non_finite(&tile, n_tokens - 1 - i % n_tokens, i % of_k);
	values_check(&tile, ops, begin, end, of_k, i % 5 == 4, i % N_MASK_PATTERNS);
	values_check(&tile, ops, begin, end, of_k, i % 5 == 4, (i + 1) % N_MASK_PATTERNS);
	tile_free(&tile);
}

static void
ops_check(const struct kernel_tile_ops *ops)
{
	if (ops->begin != NULL)
		ops->begin();
	for (uint32_t i = 0; i < COUNT(dtypes) * COUNT(dims) * COUNT(token_counts); i++)
		tile_check(ops, i, dtypes[i % COUNT(dtypes)], token_counts[i / COUNT(dtypes) % COUNT(token_counts)],
			   dims[i / COUNT(dtypes) / COUNT(token_counts)], 1 + i * 7 % 9);
	for (uint32_t i = 0; i < COUNT(dtypes) * COUNT(token_counts) * 9; i++)
		tile_check(ops, i, dtypes[i % COUNT(dtypes)], token_counts[i / COUNT(dtypes) % COUNT(token_counts)], 80,
			   1 + i / COUNT(dtypes) / COUNT(token_counts));
	if (ops->end != NULL)
		ops->end();
}

static bool
equal_or_both_nan(float a, float b)
{
	return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

/* All codes from `first` on, converted, and as values with weight 1. */
static void
codes_check(const struct kernel_tile_ops *ops, enum paged_dtype dtype, uint32_t n, uint8_t first)
{
	static _Alignas(64) uint16_t converted[320];
	static _Alignas(64) float values[TILE_Q_ROWS * 320];
	static struct tile_scores scores = { .score = { { 1 } }, .visible = { 1 }, .seen = { 1 } };
	const uint32_t elements = ops->decode_bf16->token_elements;
	bool in_place = readable_in_place(ops, dtype, n / elements * elements);
	struct tile_tokens tokens = { .n_tokens = 1,
				      .dtype = in_place ? dtype : PAGED_BF16,
				      .padded = n / elements * elements };
	_Alignas(64) uint8_t codes[320];
	struct tile_tokens code_rows;

	for (uint32_t d = 0; d < 320; d++)
		codes[d] = (uint8_t)(d + first);
	for (uint32_t t = 0; t < TILE_TOKENS; t++)
		tokens.token[t] = in_place ? (const void *)codes : converted;
	code_rows = (struct tile_tokens){ .token = { codes }, .n_tokens = 1, .dtype = dtype, .padded = n };
	ops->decode_bf16->convert_tokens(converted, padded_to(n, elements), &code_rows, NULL);
	values_run(ops, &scores, values, 0, 1, &tokens, first % 2);
	for (uint32_t d = 0; d < n; d++) {
		float code = reference_load(codes, dtype, d);

		cr_assert(equal_or_both_nan(convert_from_bf16(converted[d]), code), "%s %02x: %04x",
			  paged_dtype_name(dtype), codes[d], converted[d]);
		if (d < tokens.padded)
			cr_assert(equal_or_both_nan(values[d], code + 0.0f), "%s %02x: %g", paged_dtype_name(dtype),
				  codes[d], (double)values[d]);
	}
	for (uint32_t d = n; d < padded_to(n, elements); d++)
		cr_assert_eq(converted[d], 0);
}

static void
all_codes_check(const struct kernel_tile_ops *ops)
{
	if (ops->begin != NULL)
		ops->begin();
	for (uint32_t i = 0; i < 4; i++)
		for (size_t t = 1; t < COUNT(dtypes); t++) /* 8-bit dtypes */
			codes_check(ops, dtypes[t], 64 * (1 + i) + i % 2 * 23, (uint8_t)(i * 37));
	if (ops->end != NULL)
		ops->end();
}

static const struct kernel_tile_ops *
decode_ops_or_skip(enum kernel_isa isa)
{
	const struct kernel_tile_ops *ops = kernel_tile_ops(isa);

	if (ops->decode_bf16 == NULL)
		cr_skip("%s has no products of pairs", kernel_isa_name(isa));
	return ops;
}

KERNEL_TEST(tile_decode, scores_and_values_match_float64)
{
	ops_check(decode_ops_or_skip(isa));
}

KERNEL_TEST(tile_decode, every_8_bit_code)
{
	all_codes_check(decode_ops_or_skip(isa));
}

Test(tile_decode, model_avx512bf16)
{
	ops_check(&tile_ops_model);
	all_codes_check(&tile_ops_model);
}

Test(tile_decode, model_amx)
{
	ops_check(&tile_ops_model_amx);
	all_codes_check(&tile_ops_model_amx);
}
