/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over pools of e4m3, e5m2 and i8: the reference uses the dequantised contents of the pool, with the
 * tolerances of f32. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/mod_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const enum paged_dtype dtypes[] = { PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
static const float k_scale[] = { 0.5f, 1.7f, 1 }, v_scale[] = { 0.3f, 1, 0.9f };

static struct kernel_fixture_params
defaults(enum paged_dtype pool)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.pool = pool;
	params.q_heads = 9;
	params.kv_heads = 3;
	params.k_dim = 48;
	params.v_dim = 64;
	params.scale = 0.14f;
	params.k_scale = pool == PAGED_I8 ? NULL : k_scale;
	params.v_scale = pool == PAGED_I8 ? NULL : v_scale;
	params.rows[0] = (struct kernel_fixture_row){ .id = 5, .kv_len = 600, .q_len = 70, .q_base = 530 };
	return params;
}

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
	cr_assert(good, "seed %" PRIu64 ", %s, %u heads, page size %u: %s", params->seed,
		  paged_dtype_name(params->pool), params->q_heads, params->page_size, what);
}

/* Decode with few q_rows, which reads pages without conversion, and with so many that tiles are converted first. */
KERNEL_TEST(attention_quantised, q_rows_and_page_sizes)
{
	static const uint32_t q_heads[] = { 3, 6, 9, 12, 15, 48 }, page_sizes[] = { 1, 3, 16, 64 };
	struct kernel_team *team = kernel_test_team(2, isa);

	for (size_t i = 0; i < COUNT(dtypes) * COUNT(q_heads) * COUNT(page_sizes); i++) {
		struct kernel_fixture_params params = defaults(dtypes[i % 3]);

		params.q_heads = q_heads[i / 3 % COUNT(q_heads)];
		params.page_size = page_sizes[i / 3 / COUNT(q_heads)];
		params.n_rows = 3;
		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 131, .q_len = 1, .q_base = 130 };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 66, .q_len = 4, .q_base = 30 };
		params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 515, .q_len = 1, .q_base = 514 };
		params_check(&params, team);
	}
	kernel_team_destroy(team);
}

/* With V in K, V has K's scales. */
KERNEL_TEST(attention_quantised, v_in_k)
{
	struct kernel_team *team = kernel_test_team(1, isa);

	for (size_t i = 0; i < COUNT(dtypes); i++) {
		struct kernel_fixture_params params = defaults(dtypes[i]);

		params.v_in_k = true;
		params.v_dim = 40;
		params.v_scale = NULL;
		params_check(&params, team);
	}
	kernel_team_destroy(team);
}

/* Bit-identical for any page placement, any number of threads, and a prefill in chunks. */
KERNEL_TEST(attention_quantised, equal_bits_for_placement_threads_and_chunks)
{
	for (size_t i = 0; i < COUNT(dtypes); i++) {
		struct kernel_fixture_params params = defaults(dtypes[i]);
		struct kernel_fixture chunk, other;

		kernel_fixture_run(&chunk, &params, 1, isa);
		params.page_size = 3;
		params.placement = 77;
		kernel_fixture_run(&other, &params, 3, isa);
		cr_assert(kernel_fixture_equal(&chunk, 0, &other, 0, 70));
		kernel_fixture_destroy(&other);
		for (uint32_t q = 0; q < 70; q += 21) {
			params.rows[0] = (struct kernel_fixture_row){
				.id = 5, .kv_len = 537 + q, .q_len = 7, .q_base = 530 + q
			};
			kernel_fixture_run(&other, &params, 2, isa);
			cr_assert(kernel_fixture_equal(&chunk, q, &other, 0, 7), "%s", paged_dtype_name(dtypes[i]));
			kernel_fixture_destroy(&other);
		}
		kernel_fixture_destroy(&chunk);
	}
}

/* A NaN scale of a token whose elements are 0 reaches only q_rows that attend the token. */
static void
scale_fill_nan(struct kernel_fixture *fixture, unsigned int plane, uint32_t token)
{
	const struct layout_plane *elements = &fixture->layout.plane[plane - LAYOUT_K_SCALE];
	float scale = NAN;

	for (uint32_t h = 0; h < fixture->params.kv_heads; h++) {
		memcpy(kernel_fixture_token(fixture, plane, token, h), &scale, sizeof(scale));
		memset(kernel_fixture_token(fixture, plane - LAYOUT_K_SCALE, token, h), 0, elements->dim);
	}
}

KERNEL_TEST(attention_quantised, masked_nan_scales_have_no_effect)
{
	static const uint32_t tokens[] = { 40, 64, 69, 99 };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = defaults(PAGED_I8);
	struct mod_fixture mask = mod_fixture_open(
		MOD_MASK, "kv_idx < 40 || kv_idx > 40 && kv_idx < 64 || kv_idx > 69 && kv_idx < 99", NULL, 0);

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_len = 70, .q_base = 30 };
	for (size_t i = 0; i < COUNT(tokens) * 4; i++) {
		struct kernel_fixture fixture;
		bool masked = i >= COUNT(tokens) * 2;

		params.mods.mask = masked ? mask.binding : NULL;
		kernel_fixture_create(&fixture, &params);
		scale_fill_nan(&fixture, i % 2 ? LAYOUT_K_SCALE : LAYOUT_V_SCALE, tokens[i / 2 % COUNT(tokens)]);
		kernel_fixture_attend(&fixture, team);
		for (uint32_t q = 0; q < 70; q++)
			for (uint32_t h = 0; h < params.q_heads; h++)
				cr_assert_eq(isnan(kernel_tensor_element(&fixture.out, q, h, 5)) != 0,
					     !masked && 30 + q >= tokens[i / 2 % COUNT(tokens)], "row %u, token %u", q,
					     tokens[i / 2 % COUNT(tokens)]);
		kernel_fixture_destroy(&fixture);
	}
	mod_fixture_close(&mask);
	kernel_team_destroy(team);
}

/* A score of -inf gives weight 0, so the scale of V does not matter. */
KERNEL_TEST(attention_quantised, nan_scale_with_zero_weight_has_no_effect)
{
	static const uint32_t tokens[] = { 0, 63, 64, 79, 80, 99 };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct kernel_fixture_params params = defaults(PAGED_I8);
	struct mod_fixture score = mod_fixture_open(MOD_SCORE, "kv_idx < 80 ? -inf : score", NULL, 0);

	params.mods.score = score.binding;
	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_len = 5, .q_base = 95 };
	for (size_t i = 0; i < COUNT(tokens); i++) {
		struct kernel_fixture fixture;

		kernel_fixture_create(&fixture, &params);
		scale_fill_nan(&fixture, LAYOUT_V_SCALE, tokens[i]);
		kernel_fixture_attend(&fixture, team);
		for (uint32_t q = 0; q < 5; q++)
			cr_assert_eq(isnan(kernel_tensor_element(&fixture.out, q, 0, 5)) != 0,
				     tokens[i] >= 80 && tokens[i] <= 95 + q, "row %u, token %u", q, tokens[i]);
		kernel_fixture_destroy(&fixture);
	}
	mod_fixture_close(&score);
	kernel_team_destroy(team);
}

/* Fill all tokens of the first row with one element value and one scale. */
static void
tokens_fill(struct kernel_fixture *fixture, int8_t number, float scale)
{
	for (uint32_t plane = 0; plane < LAYOUT_N_PLANES; plane++)
		for (uint32_t t = 0; t < fixture->params.rows[0].kv_len; t++)
			for (uint32_t h = 0; h < fixture->params.kv_heads; h++) {
				uint8_t *to = kernel_fixture_token(fixture, plane, t, h);

				if (plane >= LAYOUT_K_SCALE)
					memcpy(to, &scale, sizeof(scale));
				else
					memset(to, number, fixture->layout.plane[plane].dim);
			}
}

/* Append never writes -128, but programs that write pages themselves may: -128 must equal twice -64 on every path. */
KERNEL_TEST(attention_quantised, i8_minus_128)
{
	static const uint32_t q_lens[] = { 1, 3, 30 }, dims[] = { 16, 37, 64, 128, 208 };
	static const enum paged_dtype tensors[] = { PAGED_F32, PAGED_BF16 };
	struct kernel_team *team = kernel_test_team(1, isa);

	for (size_t i = 0; i < COUNT(q_lens) * COUNT(dims) * COUNT(tensors); i++) {
		struct kernel_fixture_params params = defaults(PAGED_I8);
		struct kernel_fixture minus_128, minus_64;

		params.q = params.out = tensors[i % 2];
		params.k_dim = params.v_dim = dims[i / 2 % COUNT(dims)];
		params.rows[0] =
			(struct kernel_fixture_row){ .kv_len = 90, .q_len = q_lens[i / 2 / COUNT(dims)], .q_base = 60 };
		kernel_fixture_create(&minus_128, &params);
		kernel_fixture_create(&minus_64, &params);
		tokens_fill(&minus_128, -128, 0x1p-8f);
		tokens_fill(&minus_64, -64, 0x1p-7f);
		kernel_fixture_attend(&minus_128, team);
		kernel_fixture_attend(&minus_64, team);
		cr_assert(kernel_fixture_equal(&minus_128, 0, &minus_64, 0, minus_128.total_q),
			  "%u dims, %u query rows, queries of %s", params.k_dim, params.rows[0].q_len,
			  paged_dtype_name(params.q));
		kernel_fixture_destroy(&minus_128);
		kernel_fixture_destroy(&minus_64);
	}
	kernel_team_destroy(team);
}
