/* SPDX-License-Identifier: Apache-2.0 */
/* Attention against the float64 reference, with shapes at and next to every boundary. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
params_check(const struct kernel_fixture_params *params, struct kernel_team *team)
{
	struct kernel_fixture fixture;
	char what[256];
	bool good;

	kernel_fixture_create(&fixture, params);
	kernel_fixture_attend(&fixture, team);
	good = kernel_fixture_check(&fixture, what, sizeof(what));
	kernel_fixture_destroy(&fixture);
	cr_assert(good, "seed %" PRIu64 ", %u/%u heads, dims %u %u, page size %u, kv_len %u, pool %s, q %s, out %s: %s",
		  params->seed, params->q_heads, params->kv_heads, params->k_dim, params->v_dim, params->page_size,
		  params->rows[0].kv_len, paged_dtype_name(params->pool), paged_dtype_name(params->q),
		  paged_dtype_name(params->out), what);
}

static const uint32_t lengths[] = { 0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 511, 512, 513, 1023, 1024, 1025, 1100 };

/* One query row at the end of each length, all lengths in one batch. */
KERNEL_TEST(attention, decode_lengths)
{
	static const uint32_t page_sizes[] = { 1, 3, 16, 64 };
	struct kernel_team *team = kernel_test_team(2, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	for (size_t p = 0; p < COUNT(page_sizes); p++) {
		params.page_size = page_sizes[p];
		for (size_t begin = 0; begin < COUNT(lengths); begin += params.n_rows) {
			params.n_rows = 9;
			for (uint32_t r = 0; r < params.n_rows; r++)
				params.rows[r] =
					(struct kernel_fixture_row){ .id = r,
								     .kv_len = lengths[begin + r],
								     .q_len = 1,
								     .q_base = (int64_t)lengths[begin + r] - 1 };
			params_check(&params, team);
		}
	}
	kernel_team_destroy(team);
}

KERNEL_TEST(attention, prefill_lengths)
{
	static const struct {
		uint32_t q_len, kv_len, page_size;
	} cases[] = { { 1, 1, 1 },    { 2, 2, 3 },     { 17, 17, 16 },   { 63, 63, 1 },     { 65, 65, 64 },
		      { 33, 129, 3 }, { 70, 513, 16 }, { 130, 130, 64 }, { 40, 1030, 256 }, { 600, 600, 16 } };
	struct kernel_team *team = kernel_test_team(2, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	for (size_t i = 0; i < COUNT(cases); i++)
		for (int causal = 0; causal < 2; causal++) {
			params.causal = causal;
			params.page_size = cases[i].page_size;
			params.rows[0] =
				(struct kernel_fixture_row){ .kv_len = cases[i].kv_len,
							     .q_len = cases[i].q_len,
							     .q_base = (int64_t)cases[i].kv_len - cases[i].q_len };
			params_check(&params, team);
		}
	kernel_team_destroy(team);
}

KERNEL_TEST(attention, head_ratios)
{
	static const uint32_t heads[][2] = { { 1, 1 }, { 3, 1 }, { 9, 3 }, { 8, 8 }, { 5, 1 }, { 16, 2 }, { 71, 1 } };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.n_rows = 2;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 150, .q_len = 1, .q_base = 149 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 77, .q_len = 7, .q_base = 70 };
	for (size_t i = 0; i < COUNT(heads); i++) {
		params.q_heads = heads[i][0];
		params.kv_heads = heads[i][1];
		params_check(&params, team);
	}
	kernel_team_destroy(team);
}

/* Dims with and without a vector tail; strides that are no multiple of a vector. */
KERNEL_TEST(attention, dims_and_strides)
{
	static const struct {
		uint32_t k, v;
		bool v_in_k;
	} dims[] = { { 1, 1, false },     { 3, 7, false },    { 8, 16, false },   { 16, 8, false },
		     { 24, 40, false },   { 64, 128, false }, { 121, 94, false }, { 192, 128, false },
		     { 576, 576, false }, { 576, 512, true }, { 40, 9, true } };
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.n_rows = 2;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 70, .q_len = 1, .q_base = 69 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 40, .q_len = 9, .q_base = 31 };
	for (size_t i = 0; i < COUNT(dims); i++)
		for (size_t t = 0; t < COUNT(dtypes); t++) {
			params.k_dim = dims[i].k;
			params.v_dim = dims[i].v;
			params.v_in_k = dims[i].v_in_k;
			params.pool = dtypes[t];
			params.padding = (uint32_t)(i + t) % 4;
			params.scale = 1 / sqrtf((float)dims[i].k);
			params_check(&params, team);
		}
	kernel_team_destroy(team);
}

KERNEL_TEST(attention, dtypes)
{
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.n_rows = 2;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 81, .q_len = 1, .q_base = 80 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 70, .q_len = 20, .q_base = 50 };
	for (size_t i = 0; i < 6 * 9; i++) {
		params.pool = dtypes[i % 6];
		params.q = dtypes[i / 6 % 3];
		params.out = dtypes[i / 18];
		params_check(&params, team);
	}
	kernel_team_destroy(team);
}

KERNEL_TEST(attention, query_positions)
{
	static const int64_t bases[] = { -1000000, -21, -20, -5, -1, 0, 1, 30, 99, 100, 5000, INT64_C(1) << 40 };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.n_rows = 3;
	for (size_t i = 0; i < COUNT(bases); i++) {
		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 100, .q_len = 20, .q_base = bases[i] };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 30, .q_len = 0, .q_base = bases[i] };
		params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 0, .q_len = 3, .q_base = bases[i] };
		params_check(&params, team);
	}
	kernel_team_destroy(team);
}

/* A q_row that attends no key gets exactly output 0, LSE -inf and max_score -inf. */
KERNEL_TEST(attention, fully_masked_q_rows_are_zero)
{
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();
	struct kernel_fixture fixture;

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 20, .q_len = 8, .q_base = -4 };
	kernel_fixture_create(&fixture, &params);
	kernel_fixture_attend(&fixture, team);
	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t h = 0; h < params.q_heads; h++) {
			cr_assert_eq(fixture.lse[i * params.q_heads + h], -INFINITY);
			cr_assert_eq(fixture.max_score[i * params.q_heads + h], -INFINITY);
			for (uint32_t d = 0; d < params.v_dim; d++)
				cr_assert_eq(kernel_tensor_element(&fixture.out, i, h, d), 0);
		}
	kernel_fixture_destroy(&fixture);
	kernel_team_destroy(team);
}

/* Sinks far below, near and far above the scores, and no sink; a q_row without keys has the sink as its LSE. */
KERNEL_TEST(attention, sinks)
{
	static const float sinks[] = { -100, 0.5f, 90, -INFINITY };
	struct kernel_team *team = kernel_test_team(2, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.sink = sinks;
	params.n_rows = 3;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 1100, .q_len = 2, .q_base = 1098 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 70, .q_len = 70, .q_base = -3 };
	params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 0, .q_len = 1, .q_base = 0 };
	for (int without = 0; without < 2; without++) {
		params.lse_without_sink = without;
		params_check(&params, team);
	}
	kernel_team_destroy(team);
}

/* NaN or infinity in a query reaches only the outputs of its own q_row. */
KERNEL_TEST(attention, nan_query_affects_its_q_row_only)
{
	static const float poison[] = { NAN, INFINITY };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 700, .q_len = 9, .q_base = 691 };
	for (size_t i = 0; i < COUNT(poison); i++) {
		struct kernel_fixture fixture;

		kernel_fixture_create(&fixture, &params);
		((float *)((uint8_t *)fixture.q.data + 4 * fixture.q.token_stride + fixture.q.head_stride))[3] =
			poison[i];
		kernel_fixture_attend(&fixture, team);
		for (uint32_t q = 0; q < 9; q++)
			for (uint32_t h = 0; h < params.q_heads; h++)
				cr_assert(kernel_fixture_all_nan(&fixture, q, h, q == 4 && h == 1));
		kernel_fixture_destroy(&fixture);
	}
	kernel_team_destroy(team);
}

/* A NaN in K or V reaches the q_rows that attend the token; q_rows for which it is masked keep their bits. */
KERNEL_TEST(attention, masked_nan_tokens_have_no_effect)
{
	static const uint32_t tokens[] = { 40, 64, 69, 99 };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_len = 70, .q_base = 30 };
	for (size_t i = 0; i < COUNT(tokens) * 4; i++) {
		uint32_t token = tokens[i / 4];
		struct kernel_fixture clean, fixture;

		params.pool = params.q = params.out = i % 2 ? PAGED_BF16 : PAGED_F32;
		kernel_fixture_run(&clean, &params, 1, isa);
		kernel_fixture_create(&fixture, &params);
		for (uint32_t h = 0; h < params.kv_heads; h++)
			memset(kernel_fixture_token(&fixture, i / 2 % 2 ? LAYOUT_V : LAYOUT_K, token, h), 0xff,
			       params.k_dim * paged_dtype_size(params.pool));
		kernel_fixture_attend(&fixture, team);
		cr_assert(kernel_fixture_equal(&clean, 0, &fixture, 0, token - 30));
		for (uint32_t q = 0; q < 70; q++)
			for (uint32_t h = 0; h < params.q_heads; h++)
				cr_assert_eq(isnan(kernel_tensor_element(&fixture.out, q, h, 5)) != 0, 30 + q >= token,
					     "row %u attends keys up to %u, token %u is NaN", q, 30 + q, token);
		kernel_fixture_destroy(&clean);
		kernel_fixture_destroy(&fixture);
	}
	kernel_team_destroy(team);
}

/* A score of -inf has weight 0: for one token, a tile, a KV chunk or the whole row. */
KERNEL_TEST(attention, score_of_minus_infinity_has_zero_weight)
{
	static const uint32_t spans[][2] = { { 3, 4 }, { 0, 64 }, { 0, 512 }, { 64, 700 }, { 0, 700 } };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 700, .q_len = 1, .q_base = 699 };
	for (size_t i = 0; i < COUNT(spans); i++) {
		struct kernel_fixture fixture;
		bool all = spans[i][1] - spans[i][0] == 700;

		kernel_fixture_create(&fixture, &params);
		for (uint32_t h = 0; h < params.q_heads; h++)
			((float *)((uint8_t *)fixture.q.data + h * fixture.q.head_stride))[0] = 1;
		for (uint32_t t = spans[i][0]; t < spans[i][1]; t++)
			for (uint32_t h = 0; h < params.kv_heads; h++)
				*(float *)(void *)kernel_fixture_token(&fixture, LAYOUT_K, t, h) = -INFINITY;
		kernel_fixture_attend(&fixture, team);
		for (uint32_t h = 0; h < params.q_heads; h++) {
			cr_assert(kernel_fixture_all_nan(&fixture, 0, h, false));
			cr_assert_eq(fixture.lse[h] == -INFINITY, all);
			cr_assert_eq(fixture.max_score[h] == -INFINITY, all);
			for (uint32_t d = 0; all && d < params.v_dim; d++)
				cr_assert_eq(kernel_tensor_element(&fixture.out, 0, h, d), 0);
		}
		kernel_fixture_destroy(&fixture);
	}
	kernel_team_destroy(team);
}

/* The weight of a token with this score next to a token with score 0, times 2^126. */
static float
weight_of(struct kernel_team *team, float score)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();
	struct kernel_fixture fixture;
	float weight;

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 2, .q_len = 1, .q_base = 1 };
	params.q_heads = params.kv_heads = 1;
	params.scale = 1;
	kernel_fixture_create(&fixture, &params);
	memset(fixture.q.data, 0, params.k_dim * sizeof(float));
	*(float *)fixture.q.data = 1;
	for (uint32_t t = 0; t < 2; t++) {
		*(float *)(void *)kernel_fixture_token(&fixture, LAYOUT_K, t, 0) = t == 0 ? 0 : score;
		*(float *)(void *)kernel_fixture_token(&fixture, LAYOUT_V, t, 0) = t == 0 ? 0 : 0x1p126f;
	}
	kernel_fixture_attend(&fixture, team);
	weight = (float)kernel_tensor_element(&fixture.out, 0, 0, 0);
	kernel_fixture_destroy(&fixture);
	return weight;
}

/* Weights down to the smallest normal number are kept; smaller ones are 0, never subnormal. */
KERNEL_TEST(attention, subnormal_weights_are_flushed_to_zero)
{
	struct kernel_team *team = kernel_test_team(1, isa);

	for (float score = -104; score < -87.4f; score += 0.25f)
		cr_expect_eq(weight_of(team, score), 0, "%g", (double)score);
	for (float score = -87.25f; score < -80; score += 0.25f)
		cr_expect_float_eq(weight_of(team, score) / expf(score + 87.3365448f), 1, 1e-5, "%g", (double)score);
	kernel_team_destroy(team);
}

KERNEL_TEST(attention, lse_and_max_score_are_optional)
{
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = kernel_fixture_defaults();
	struct kernel_fixture fixture;
	char what[256];

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 20, .q_len = 8, .q_base = 12 };
	kernel_fixture_create(&fixture, &params);
	kernel_fixture_attend(&fixture, team);
	memset(fixture.out.data, 0xff, fixture.out_bytes);
	kernel_attention(team,
			 &(struct attention_args){ .pages = { &fixture.layout, fixture.pool, KERNEL_FIXTURE_LAYER },
						   .rows = fixture.rows,
						   .n_rows = 1,
						   .q = fixture.q,
						   .out = fixture.out,
						   .scale = params.scale,
						   .causal = true });
	cr_assert(kernel_fixture_check(&fixture, what, sizeof(what)), "%s", what);
	kernel_fixture_destroy(&fixture);
	kernel_team_destroy(team);
}
