/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dot products of few q_rows with unpacked tokens, against float64:
 * every dtype and number of q_rows, tokens and dims, on every path, and on
 * the models.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/isa/convert.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"
#include "tests/kernels/cpu/tile_model.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_Q_ROWS 12u

static const enum paged_dtype dtypes[] = { PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };

/* How rows lie: each in memory of its own, or at equal distances forth or back. */
enum lie { LIE_APART, LIE_FORTH, LIE_BACK, N_LIES };

struct tile {
	enum paged_dtype dtype;
	enum lie lie;
	uint32_t n_tokens, dim;
	void *memory[TILE_TOKENS];
	void *row[TILE_TOKENS];
	double element[TILE_TOKENS][PAGED_MAX_DIM];
	double query[MAX_Q_ROWS][PAGED_MAX_DIM];
	_Alignas(64) uint16_t packed[TILE_TOKENS * PAGED_MAX_DIM];
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
	reference_store(tile->row[t], tile->dtype, d, value);
	tile->element[t][d] = reference_load(tile->row[t], tile->dtype, d);
}

/* Memory of no more than their size: a sanitizer sees who reads further. */
static void
rows_place(struct tile *tile, enum lie lie)
{
	const size_t size = (size_t)tile->dim * paged_dtype_size(tile->dtype);

	for (uint32_t t = 0; t < tile->n_tokens; t++) {
		uint32_t at = lie == LIE_FORTH ? t : tile->n_tokens - 1 - t;

		tile->memory[t] = lie == LIE_APART ? malloc(size) : t == 0 ? malloc(size * tile->n_tokens) : NULL;
		tile->row[t] = lie == LIE_APART ? tile->memory[t] : (uint8_t *)tile->memory[0] + at * size;
	}
}

static void
tile_fill(struct tile *tile, enum paged_dtype dtype, uint32_t n_tokens, uint32_t dim, enum lie lie)
{
	tile->dtype = dtype;
	tile->n_tokens = n_tokens;
	tile->dim = dim;
	tile->lie = lie;
	rows_place(tile, lie);
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

/* Rows of so many elements can be read as they are. */
static bool
as_they_are(const struct kernel_tile_ops *ops, enum paged_dtype dtype, uint32_t dim)
{
	return dim % ops->decode_bf16->token_elements == 0 &&
	       (dtype == PAGED_BF16 || ops->decode_bf16->convert_q_rows > 1);
}

static void
rows_pack(struct tile *tile, const struct kernel_tile_ops *ops, uint32_t dim, struct tile_tokens *rows)
{
	struct tile_tokens from = *rows;

	from.dtype = tile->dtype;
	from.padded = dim;
	rows->stride = rows->padded * sizeof(uint16_t);
	memset(tile->packed, 0xff, sizeof(tile->packed));
	ops->decode_bf16->convert_tokens(tile->packed, rows->padded, &from, &from);
	for (uint32_t t = 0; t < tile->n_tokens; t++)
		rows->token[t] = tile->packed + (size_t)t * rows->padded;
	for (uint32_t i = tile->n_tokens * rows->padded; i < COUNT(tile->packed); i++)
		cr_assert_eq(tile->packed[i], 0xffff);
}

/* The first `dim` elements of each row, packed where they cannot be read as they are, or shall be. */
static struct tile_tokens
rows_of(struct tile *tile, const struct kernel_tile_ops *ops, uint32_t dim, bool packed)
{
	const size_t size = (size_t)tile->dim * paged_dtype_size(tile->dtype);
	struct tile_tokens rows = { .n_tokens = tile->n_tokens,
				    .dtype = PAGED_BF16,
				    .padded = padded_to(dim, ops->decode_bf16->token_elements) };

	packed = packed || !as_they_are(ops, tile->dtype, dim);
	if (!packed) {
		rows.dtype = tile->dtype;
		rows.stride = tile->lie == LIE_FORTH ? size : 0;
	}
	for (uint32_t t = 0; t < tile->n_tokens; t++)
		rows.token[t] = tile->row[t];
	if (packed)
		rows_pack(tile, ops, dim, &rows);
	for (uint32_t t = tile->n_tokens; t < TILE_TOKENS; t++)
		rows.token[t] = rows.token[tile->n_tokens - 1];
	return rows;
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

/* Scores of q_rows [begin, end) are right, those of one alone the same, and others nobody's business. */
static void
scores_try(struct tile *tile, const struct kernel_tile_ops *ops, uint32_t begin, uint32_t end, bool packed)
{
	struct tile_tokens rows = rows_of(tile, ops, tile->dim, packed);
	static struct tile_scores alone;

	queries_fill(tile, ops);
	ops->decode_bf16->scores(&tile->scores, tile->q, begin, end, &rows, &rows);
	for (uint32_t q_row = begin; q_row < end; q_row++) {
		ops->decode_bf16->scores(&alone, tile->q, q_row, q_row + 1, &rows, NULL);
		cr_assert(memcmp(tile->scores.score[q_row], alone.score[q_row], tile->n_tokens * sizeof(float)) == 0);
		for (uint32_t t = 0; t < tile->n_tokens; t++) {
			double sum = 0, size = 0;

			for (uint32_t d = 0; d < tile->dim; d++) {
				sum += tile->query[q_row][d] * tile->element[t][d];
				size += fabs(tile->query[q_row][d] * tile->element[t][d]);
			}
			cr_assert_float_eq((double)tile->scores.score[q_row][t], sum, size * 0x1p-18,
					   "%s, %u tokens, dim %u, q_rows %u to %u: q_row %u token %u",
					   paged_dtype_name(tile->dtype), tile->n_tokens, tile->dim, begin, end, q_row,
					   t);
		}
	}
}

/* What each of `q_rows` tells apart: all alike, lengths of all kinds, and holes. */
enum sight { SIGHT_SAME, SIGHT_LENGTHS, SIGHT_RANDOM, SIGHT_PAIRS, N_SIGHTS };

static uint64_t
bits_below(uint32_t n)
{
	return ~UINT64_C(0) >> (TILE_TOKENS - n);
}

static uint64_t
seen_by(uint32_t q_row, uint32_t n_tokens, enum sight sight)
{
	uint64_t random = random_bits(n_tokens, q_row), all = bits_below(n_tokens);

	switch (sight) {
	case SIGHT_LENGTHS:
		return bits_below(n_tokens > q_row * 5 % 8 ? n_tokens - q_row * 5 % 8 : 1);
	case SIGHT_RANDOM:
		return all & random;
	case SIGHT_PAIRS: /* that all see but for one */
		return all & ~(UINT64_C(1) << random % n_tokens);
	case SIGHT_SAME:
	case N_SIGHTS:
		break;
	}
	return all;
}

/* As softmax leaves weights: 0 where nothing is seen. */
static void
weights_fill(struct tile *tile, enum sight sight)
{
	for (uint32_t q_row = 0; q_row < MAX_Q_ROWS; q_row++) {
		uint64_t seen = seen_by(q_row, tile->n_tokens, sight);

		tile->scores.seen[q_row] = seen;
		tile->scores.visible[q_row] =
			sight == SIGHT_LENGTHS ? 64 - (uint32_t)__builtin_clzll(seen) : tile->n_tokens;
		tile->scores.rescale[q_row] = seen != 0 && q_row % 2 ? 0.5f : 1;
		for (uint32_t t = 0; t < TILE_TOKENS; t++) {
			float weight = fabsf(random_float(3, (uint64_t)q_row * TILE_TOKENS + t, 1));

			tile->scores.score[q_row][t] = seen >> t & 1 ? weight : 0;
		}
	}
}

static void
values_run(const struct kernel_tile_ops *ops, const struct tile_scores *scores, float *values, uint32_t begin,
	   uint32_t end, const struct tile_tokens *rows, bool seen)
{
	struct softmax_state state = { .values = values, .stride = rows->padded };

	for (uint32_t i = 0; i < TILE_Q_ROWS * rows->padded; i++)
		values[i] = 3;
	if (seen)
		ops->decode_bf16->values_seen(scores, &state, begin, end, rows);
	else
		ops->decode_bf16->values(scores, &state, begin, end, rows, rows);
}

/* The values of one q_row: right, or NaN and infinite where a token that it sees is. */
static void
q_row_check(const struct tile *tile, uint32_t q_row, uint32_t dim, const float *values)
{
	for (uint32_t d = 0; d < dim; d++) {
		double sum = 3 * (double)tile->scores.rescale[q_row], size = 3;

		for (uint32_t t = 0; t < tile->n_tokens; t++) {
			double weight = convert_from_bf16(convert_to_bf16(tile->scores.score[q_row][t]));

			if ((tile->scores.seen[q_row] >> t & 1) == 0)
				continue;
			sum += weight * tile->element[t][d];
			size += fabs(weight * tile->element[t][d]);
		}
		if (isfinite(sum))
			cr_assert_float_eq((double)values[d], sum, size * 0x1p-18,
					   "%s, %u tokens, q_row %u, dim %u of %u", paged_dtype_name(tile->dtype),
					   tile->n_tokens, q_row, d, dim);
		else
			cr_assert(!isfinite(values[d]));
	}
}

static void
values_try(struct tile *tile, const struct kernel_tile_ops *ops, uint32_t begin, uint32_t end, uint32_t dim,
	   bool packed, enum sight sight)
{
	struct tile_tokens rows = rows_of(tile, ops, dim, packed);
	bool seen = sight == SIGHT_RANDOM || sight == SIGHT_PAIRS;
	static _Alignas(64) float alone[TILE_Q_ROWS * PAGED_MAX_DIM];

	weights_fill(tile, sight);
	values_run(ops, &tile->scores, tile->values, begin, end, &rows, seen);
	for (uint32_t q_row = 0; q_row < TILE_Q_ROWS; q_row++) {
		const float *values = tile->values + (size_t)q_row * rows.padded;

		if (q_row < begin || q_row >= end) {
			for (uint32_t d = 0; d < rows.padded; d++)
				cr_assert(values[d] == 3, "q_row %u is none of ours", q_row);
			continue;
		}
		values_run(ops, &tile->scores, alone, q_row, q_row + 1, &rows, seen);
		cr_assert(memcmp(values, alone + (size_t)q_row * rows.padded, dim * sizeof(*values)) == 0,
			  "q_row %u of %u to %u", q_row, begin, end);
		q_row_check(tile, q_row, dim, values);
	}
}

/* A token with an infinity, which some see or none. */
static void
tile_spoil(struct tile *tile, uint32_t t, uint32_t d)
{
	if (tile->dtype != PAGED_I8 && tile->dtype != PAGED_E4M3)
		element_put(tile, t, d, INFINITY);
	else if (tile->dtype == PAGED_E4M3)
		element_put(tile, t, d, NAN);
}

static const uint32_t dims[] = { 1, 15, 16, 17, 48, 64, 80, 128, 130, 192, 576 };
static const uint32_t tokens[] = { 1, 2, 3, 15, 16, 17, 31, 33, 63, 64 };

static void
tile_try(const struct kernel_tile_ops *ops, uint32_t i, enum paged_dtype dtype, uint32_t n_tokens, uint32_t dim,
	 uint32_t n_q_rows)
{
	static struct tile tile;
	uint32_t begin = i % (MAX_Q_ROWS - n_q_rows + 1), end = begin + n_q_rows;
	uint32_t of_k = i % 3 ? dim : (dim + 1) / 2; /* V may be the first dims of K */

	tile_fill(&tile, dtype, n_tokens, dim, i % N_LIES);
	scores_try(&tile, ops, begin, end, i % 5 == 4);
	values_try(&tile, ops, begin, end, of_k, i % 5 == 4, i % N_SIGHTS);
	tile_spoil(&tile, n_tokens - 1 - i % n_tokens, i % of_k);
	values_try(&tile, ops, begin, end, of_k, i % 5 == 4, i % N_SIGHTS);
	values_try(&tile, ops, begin, end, of_k, i % 5 == 4, (i + 1) % N_SIGHTS);
	tile_free(&tile);
}

static void
ops_try(const struct kernel_tile_ops *ops)
{
	if (ops->begin != NULL)
		ops->begin();
	for (uint32_t i = 0; i < COUNT(dtypes) * COUNT(dims) * COUNT(tokens); i++)
		tile_try(ops, i, dtypes[i % COUNT(dtypes)], tokens[i / COUNT(dtypes) % COUNT(tokens)],
			 dims[i / COUNT(dtypes) / COUNT(tokens)], 1 + i * 7 % 9);
	for (uint32_t i = 0; i < COUNT(dtypes) * COUNT(tokens) * 9; i++)
		tile_try(ops, i, dtypes[i % COUNT(dtypes)], tokens[i / COUNT(dtypes) % COUNT(tokens)], 80,
			 1 + i / COUNT(dtypes) / COUNT(tokens));
	if (ops->end != NULL)
		ops->end();
}

static bool
same_number(float a, float b)
{
	return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

/* Codes from `first` on, packed in whole, and as values under a weight of 1. */
static void
codes_try(const struct kernel_tile_ops *ops, enum paged_dtype dtype, uint32_t n, uint8_t first)
{
	static _Alignas(64) uint16_t packed[320];
	static _Alignas(64) float values[TILE_Q_ROWS * 320];
	static struct tile_scores scores = { .score = { { 1 } }, .visible = { 1 }, .seen = { 1 } };
	const uint32_t elements = ops->decode_bf16->token_elements;
	bool as_is = as_they_are(ops, dtype, n / elements * elements);
	struct tile_tokens rows = { .n_tokens = 1,
				    .dtype = as_is ? dtype : PAGED_BF16,
				    .padded = n / elements * elements };
	_Alignas(64) uint8_t codes[320];
	struct tile_tokens code_rows;

	for (uint32_t d = 0; d < 320; d++)
		codes[d] = (uint8_t)(d + first);
	for (uint32_t t = 0; t < TILE_TOKENS; t++)
		rows.token[t] = as_is ? (const void *)codes : packed;
	code_rows = (struct tile_tokens){ .token = { codes }, .n_tokens = 1, .dtype = dtype, .padded = n };
	ops->decode_bf16->convert_tokens(packed, padded_to(n, elements), &code_rows, NULL);
	values_run(ops, &scores, values, 0, 1, &rows, first % 2);
	for (uint32_t d = 0; d < n; d++) {
		float code = reference_load(codes, dtype, d);

		cr_assert(same_number(convert_from_bf16(packed[d]), code), "%s %02x: %04x", paged_dtype_name(dtype),
			  codes[d], packed[d]);
		if (d < rows.padded)
			cr_assert(same_number(values[d], code + 0.0f), "%s %02x: %g", paged_dtype_name(dtype), codes[d],
				  (double)values[d]);
	}
	for (uint32_t d = n; d < padded_to(n, elements); d++)
		cr_assert_eq(packed[d], 0);
}

static void
all_codes_try(const struct kernel_tile_ops *ops)
{
	if (ops->begin != NULL)
		ops->begin();
	for (uint32_t i = 0; i < 4; i++)
		for (size_t t = 1; t < COUNT(dtypes); t++) /* those of bytes */
			codes_try(ops, dtypes[t], 64 * (1 + i) + i % 2 * 23, (uint8_t)(i * 37));
	if (ops->end != NULL)
		ops->end();
}

static const struct kernel_tile_ops *
ops_of(enum kernel_isa isa)
{
	const struct kernel_tile_ops *ops = kernel_tile_ops(isa);

	if (ops->decode_bf16 == NULL)
		cr_skip("%s has no products of pairs", kernel_isa_name(isa));
	return ops;
}

KERNEL_TEST(tile_decode, scores_and_values_match_float64)
{
	ops_try(ops_of(isa));
}

KERNEL_TEST(tile_decode, every_8_bit_code)
{
	all_codes_try(ops_of(isa));
}

Test(tile_decode, model_avx512bf16)
{
	ops_try(&tile_ops_model);
	all_codes_try(&tile_ops_model);
}

Test(tile_decode, model_amx)
{
	ops_try(&tile_ops_model_amx);
	all_codes_try(&tile_ops_model_amx);
}
