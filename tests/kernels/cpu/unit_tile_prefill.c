/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefill tile operations over packed tiles, against float64: every dtype and
 * number of q_rows and tokens, on every instruction set and on the models.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"
#include "tests/kernels/cpu/tile_model.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DIM 96u /* a multiple of the vector length of every instruction set */

struct tile {
	_Alignas(64) float tokens[TILE_TOKENS][DIM]; /* memory of any dtype */
	double element[TILE_TOKENS][DIM];
	float q[TILE_Q_ROWS * DIM];
	double query[TILE_Q_ROWS][DIM];
	struct tile_tokens at;
	_Alignas(64) float panels[TILE_TOKENS * DIM];
	struct tile_scores scores;
	struct softmax_state state;
	float values[TILE_Q_ROWS * DIM];
};

static float
rounded(float value, enum paged_dtype dtype)
{
	uint32_t bits;

	if (dtype == PAGED_I8)
		return rintf(value * 100);
	reference_store(&bits, dtype, 0, value);
	return reference_load(&bits, dtype, 0);
}

static void
tokens_fill(struct tile *tile, enum paged_dtype dtype, uint32_t n_tokens, uint32_t dim)
{
	tile->at = (struct tile_tokens){ .n_tokens = n_tokens, .dtype = dtype, .padded = dim };
	for (uint32_t t = 0; t < TILE_TOKENS; t++) {
		tile->at.token[t] = tile->tokens[t < n_tokens ? t : n_tokens - 1];
		for (uint32_t d = 0; d < dim && t < n_tokens; d++) {
			float value = rounded(random_float(dtype, (uint64_t)t * DIM + d, 1), dtype);

			reference_store(tile->tokens[t], dtype, d, value);
			tile->element[t][d] = value;
		}
	}
}

static void
queries_fill(struct tile *tile, const struct tile_prefill_ops *ops, uint32_t dim)
{
	enum paged_dtype dtype = ops->word_elements == 2 ? PAGED_BF16 : PAGED_F32;

	for (uint32_t q_row = 0; q_row < TILE_Q_ROWS; q_row++)
		for (uint32_t d = 0; d < dim; d++) {
			float value = rounded(random_float(77, (uint64_t)q_row * DIM + d, 1), dtype);

			reference_store(tile->q, dtype, (uint64_t)q_row * dim + d, value);
			tile->query[q_row][d] = value;
		}
}

static void
scores_check(struct tile *tile, const struct tile_prefill_ops *ops, uint32_t begin, uint32_t end)
{
	uint32_t n = tile->at.n_tokens, dim = tile->at.padded;

	queries_fill(tile, ops, dim);
	memset(&tile->scores, 0xff, sizeof(tile->scores));
	ops->pack_keys(tile->panels, &tile->at);
	ops->scores(&tile->scores, tile->q, begin, end, tile->panels, n, dim / ops->word_elements, &tile->at);
	for (uint32_t q_row = 0; q_row < TILE_Q_ROWS; q_row++)
		for (uint32_t t = 0; t < n; t++) {
			double sum = 0, magnitude = 0;

			for (uint32_t d = 0; d < dim; d++) {
				sum += tile->query[q_row][d] * tile->element[t][d];
				magnitude += fabs(tile->query[q_row][d] * tile->element[t][d]);
			}
			if (q_row < begin || q_row >= end)
				cr_assert(isnan(tile->scores.score[q_row][t]), "q_row %u is none of ours", q_row);
			else
				cr_assert_float_eq((double)tile->scores.score[q_row][t], sum, magnitude * 0x1p-18,
						   "q_row %u token %u", q_row, t);
		}
}

/* Weights that bf16 represents exactly, and others. */
static double
weight_fill(struct tile *tile, const struct tile_prefill_ops *ops, uint32_t q_row, uint32_t t)
{
	float weight = t < tile->at.n_tokens ? fabsf(random_float(3, (uint64_t)q_row * TILE_TOKENS + t, 1)) : 0;

	tile->scores.score[q_row][t] = weight;
	return rounded(weight, ops->word_elements == 2 ? PAGED_BF16 : PAGED_F32);
}

static void
values_check(struct tile *tile, const struct tile_prefill_ops *ops, uint32_t begin, uint32_t end, uint64_t non_finite)
{
	uint32_t n = tile->at.n_tokens, dim = tile->at.padded;
	double weight[TILE_TOKENS];

	tile->state = (struct softmax_state){ .values = tile->values, .stride = dim };
	cr_assert_eq(ops->pack_values(tile->panels, &tile->at) & (~UINT64_C(0) >> (64 - n)), non_finite);
	for (uint32_t i = 0; i < TILE_Q_ROWS * dim; i++)
		tile->values[i] = 3;
	for (uint32_t q_row = 0; q_row < TILE_Q_ROWS; q_row++) {
		tile->scores.rescale[q_row] = 0.5f;
		for (uint32_t t = 0; t < TILE_TOKENS; t++)
			weight_fill(tile, ops, q_row, t);
	}
	ops->values(&tile->scores, &tile->state, begin, end, tile->panels, n, NULL);
	for (uint32_t q_row = 0; q_row < TILE_Q_ROWS; q_row++) {
		bool in_range = q_row >= begin && q_row < end;

		for (uint32_t t = 0; t < TILE_TOKENS; t++)
			weight[t] = weight_fill(tile, ops, q_row, t);
		for (uint32_t d = 0; d < dim; d++) {
			double sum = in_range ? 1.5 : 3, magnitude = 3;

			for (uint32_t t = 0; t < n && in_range; t++) {
				if (non_finite >> t & 1)
					continue;
				sum += weight[t] * tile->element[t][d];
				magnitude += fabs(weight[t] * tile->element[t][d]);
			}
			cr_assert_float_eq((double)tile->values[q_row * dim + d], sum, magnitude * 0x1p-18,
					   "q_row %u dim %u", q_row, d);
		}
	}
}

/* Put an infinity into the last token and one into the middle. */
static uint64_t
tokens_put_infinity(struct tile *tile, uint32_t d)
{
	static const float infinity = INFINITY;
	uint32_t last = tile->at.n_tokens - 1;

	reference_store(tile->tokens[last], tile->at.dtype, d, infinity);
	reference_store(tile->tokens[last / 2], tile->at.dtype, d / 2, -infinity);
	return UINT64_C(1) << last | UINT64_C(1) << last / 2;
}

static void
ops_check(const struct kernel_tile_ops *all, const struct tile_prefill_ops *ops)
{
	static const enum paged_dtype dtypes[] = { PAGED_BF16, PAGED_I8, PAGED_E4M3, PAGED_E5M2, PAGED_F32, PAGED_F16 };
	static const uint32_t tokens[] = { 1, 2, 15, 16, 33, 63, 64 };
	static const uint32_t q_rows[][2] = { { 0, 64 }, { 0, 1 }, { 3, 6 }, { 5, 20 }, { 57, 64 }, { 1, 64 } };
	static struct tile tile;

	if (all->begin != NULL)
		all->begin();
	for (size_t i = 0; i < COUNT(dtypes) * COUNT(tokens) * COUNT(q_rows); i++) {
		enum paged_dtype dtype = dtypes[i % COUNT(dtypes)];
		const uint32_t *range = q_rows[i / COUNT(dtypes) / COUNT(tokens)];
		uint32_t n = tokens[i / COUNT(dtypes) % COUNT(tokens)];

		if (ops->word_elements == 2 && (dtype == PAGED_F32 || dtype == PAGED_F16))
			continue; /* bf16 cannot represent them */
		tokens_fill(&tile, dtype, n, i % 5 ? 64 : DIM);
		scores_check(&tile, ops, range[0], range[1]);
		tokens_fill(&tile, dtype, n, i % 5 ? 64 + all->lanes : DIM);
		values_check(&tile, ops, range[0], range[1], 0);
		if (dtype == PAGED_BF16 || dtype == PAGED_F32 || dtype == PAGED_F16)
			values_check(&tile, ops, range[0], range[1],
				     tokens_put_infinity(&tile, (uint32_t)(i % tile.at.padded)));
	}
	if (all->end != NULL)
		all->end();
}

KERNEL_TEST(tile_prefill, f32)
{
	ops_check(kernel_tile_ops(isa), kernel_tile_ops(isa)->prefill_f32);
}

KERNEL_TEST(tile_prefill, bf16)
{
	const struct kernel_tile_ops *ops = kernel_tile_ops(isa);

	if (ops->prefill_bf16 == NULL)
		cr_skip("%s has no products of pairs", kernel_isa_name(isa));
	ops_check(ops, ops->prefill_bf16);
}

Test(tile_prefill, model_avx512bf16)
{
	ops_check(&tile_ops_model, tile_ops_model.prefill_bf16);
}

Test(tile_prefill, model_amx)
{
	ops_check(&tile_ops_model_amx, tile_ops_model_amx.prefill_bf16);
}
