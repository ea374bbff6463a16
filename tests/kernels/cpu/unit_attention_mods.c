/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with mods: equal to the same mask by flag, in chunks and with
 * interleaved heads; NaN and infinite mod results.
 */
#include <math.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/kernels/cpu/attention_mod_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Causality by flag and by mod; the score mod changes nothing. */
KERNEL_TEST(attention_mods, causal_mod_equals_causal_flag)
{
	struct mod_arrays arrays = { 0 };
	struct kernel_fixture_params params = mod_chunk_params();
	struct mod_fixture mask, score;
	struct kernel_fixture flag, mod;

	mod_arrays_fill(&arrays, 1);
	mask = mod_arrays_bind(MOD_MASK, "kv_idx <= q_idx", &arrays);
	score = mod_arrays_bind(MOD_SCORE, "score", &arrays);
	params.causal = true;
	kernel_fixture_run(&flag, &params, 1, isa);
	params.causal = false;
	params.mods = (struct kernel_mod_set_params){ .mask = mask.binding, .score = score.binding };
	kernel_fixture_run(&mod, &params, 2, isa);
	assert_outputs_equal(&flag, 0, &mod, 0, 60, "causal");
	kernel_fixture_destroy(&flag);
	kernel_fixture_destroy(&mod);
	mod_fixture_close(&mask);
	mod_fixture_close(&score);
}

/*
 * A prefill in one call and in chunks, each chunk with the kv_len of its time.
 * Both must take the same path, decode or prefill.
 */
static void
chunks_check(struct kernel_fixture_params params, uint32_t q_len, uint32_t chunk_len, enum kernel_isa isa)
{
	struct kernel_fixture all, one;

	params.rows[0] = (struct kernel_fixture_row){ .id = 5, .kv_len = 1040 + q_len, .q_len = q_len, .q_base = 1040 };
	kernel_fixture_run(&all, &params, 1, isa);
	for (uint32_t i = 0; i < q_len; i += chunk_len) {
		params.rows[0] = (struct kernel_fixture_row){
			.id = 5, .kv_len = 1040 + i + chunk_len, .q_len = chunk_len, .q_base = 1040 + i
		};
		kernel_fixture_run(&one, &params, 1 + i % 3, isa);
		assert_outputs_equal(&all, i, &one, 0, chunk_len, "parts of a chunk");
		kernel_fixture_destroy(&one);
	}
	kernel_fixture_destroy(&all);
}

KERNEL_TEST(attention_mods, chunked_prefill_has_equal_bits)
{
	struct mod_arrays arrays = { 0 };
	struct kernel_fixture_params params = mod_chunk_params();
	struct mod_fixture mask, score;

	mod_arrays_fill(&arrays, 1);
	mask = mod_arrays_bind(MOD_MASK, "kv_idx <= q_idx && (q_idx - kv_idx < 300 || kv_idx < 4 || kv_idx % 7 == h)",
			       &arrays);
	score = mod_arrays_bind(MOD_SCORE, "score + slope[h] * (kv_idx - q_idx)", &arrays);
	params.mods = (struct kernel_mod_set_params){ .mask = mask.binding, .score = score.binding };
	chunks_check(params, 5, 1, isa);
	chunks_check(params, 60, 6, isa);
	chunks_check(params, 60, 15, isa);
	mod_fixture_close(&mask);
	mod_fixture_close(&score);
}

/* Sliding windows: the chunks of a long prefill attend different pages of the same tiles. */
KERNEL_TEST(attention_mods, sliding_window_over_tiles)
{
	static const char *const masks[] = {
		"kv_idx <= q_idx && q_idx - kv_idx < 90",
		"kv_idx <= q_idx && (q_idx - kv_idx < 20 || kv_idx / 16 % 5 == q_idx / 8 % 5)"
	};
	static const enum paged_dtype pools[] = { PAGED_BF16, PAGED_I8 };
	struct kernel_fixture_params params = mod_chunk_params();

	params.q = PAGED_BF16;
	params.out = PAGED_BF16;
	for (size_t i = 0; i < COUNT(masks) * COUNT(pools); i++) {
		struct mod_arrays arrays = { 0 };
		struct mod_fixture mask;

		mod_arrays_fill(&arrays, 1);
		mask = mod_arrays_bind(MOD_MASK, masks[i % COUNT(masks)], &arrays);
		params.pool = pools[i / COUNT(masks)];
		params.mods = (struct kernel_mod_set_params){ .mask = mask.binding };
		chunks_check(params, 120, 30, isa);
		chunks_check(params, 120, 8, isa);
		mod_fixture_close(&mask);
	}
}

/* Decode interleaves KV heads by tile, or by KV chunk where the mask may depend on the head. */
KERNEL_TEST(attention_mods, interleaved_kv_heads)
{
	static const char *const masks[] = { "q_idx - kv_idx < 300", "doc[q_idx] == doc[kv_idx] && kv_idx % 7 != 2",
					     "kv_idx < 64 || kv_idx >= 577", "kv_idx > q_idx" };
	static const enum paged_dtype pools[] = { PAGED_BF16, PAGED_F32, PAGED_I8 };
	struct mod_arrays arrays = { 0 };
	struct kernel_fixture_params params = mod_chunk_params();

	mod_arrays_fill(&arrays, 1);
	params.q_heads = 8;
	params.kv_heads = 4;
	params.n_rows = 3;
	params.rows[0] = (struct kernel_fixture_row){ .id = 1, .kv_len = 1030, .q_len = 1, .q_base = 1029 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 2, .kv_len = 515, .q_len = 3, .q_base = 511 };
	params.rows[2] = (struct kernel_fixture_row){ .id = 3, .kv_len = 64, .q_len = 1, .q_base = 63 };
	for (size_t i = 0; i < COUNT(masks) * COUNT(pools); i++) {
		const char *text = masks[i % COUNT(masks)];
		char per_head_text[128];
		struct mod_fixture mask = mod_arrays_bind(MOD_MASK, text, &arrays), per_head_mask;
		struct mod_fixture score = mod_arrays_bind(MOD_SCORE, "score + slope[h] * (kv_idx - q_idx)", &arrays);
		struct kernel_fixture interleaved, one_by_one;

		snprintf(per_head_text, sizeof(per_head_text), "(%s) && h >= 0", text);
		per_head_mask = mod_arrays_bind(MOD_MASK, per_head_text, &arrays);
		params.pool = pools[i / COUNT(masks)];
		params.mods = (struct kernel_mod_set_params){ .mask = mask.binding, .score = score.binding };
		kernel_fixture_run(&interleaved, &params, 1, isa);
		params.mods.mask = per_head_mask.binding;
		kernel_fixture_run(&one_by_one, &params, 2, isa);
		assert_outputs_equal(&interleaved, 0, &one_by_one, 0, 5, text);
		kernel_fixture_destroy(&interleaved);
		kernel_fixture_destroy(&one_by_one);
		mod_fixture_close(&mask);
		mod_fixture_close(&per_head_mask);
		mod_fixture_close(&score);
	}
}

/*
 * A draft tree: bit j of word i is set if draft token j is on the path of query
 * row i. All rows attend the tokens before the tree.
 */
KERNEL_TEST(attention_mods, tree_verification)
{
	static const int32_t parent[] = { -1, 0, 0, 1, 1, 2, 3, 3, 5, -1, 9, 9 };
	int32_t words[COUNT(parent)], base = 700;
	const struct mod_array arrays[] = {
		{ .name = "path", .dtype = MOD_I32, .n_dims = 1, .extents = { COUNT(parent) }, .data = words },
		{ .name = "base", .dtype = MOD_I32, .data = &base },
	};
	static const char text[] = "kv_idx < base || (path[q_idx - base] >> (kv_idx - base) & 1) == 1";
	struct kernel_fixture_params params = mod_chunk_params();
	struct mod_fixture mask;
	struct kernel_fixture all, one;
	char what[256];

	for (uint32_t i = 0; i < COUNT(parent); i++)
		words[i] = (parent[i] < 0 ? 0 : words[parent[i]]) | 1 << i;
	params.rows[0] = (struct kernel_fixture_row){ .id = 3, .kv_len = 712, .q_len = COUNT(parent), .q_base = base };
	mask = mod_fixture_open(MOD_MASK, text, arrays, COUNT(arrays));
	params.mods.mask = mask.binding;
	kernel_fixture_run(&all, &params, 2, isa);
	cr_assert(kernel_fixture_check(&all, what, sizeof(what)), "%s", what);

	/* A tree that is one path equals causal attention over the path's tokens: rows 0 and 1 of the first batch. */
	for (uint32_t i = 0; i < 12; i++)
		words[i] = (2 << i) - 1;
	kernel_fixture_run(&one, &params, 1, isa);
	assert_outputs_equal(&all, 0, &one, 0, 2, "one path");
	kernel_fixture_destroy(&one);
	kernel_fixture_destroy(&all);
	mod_fixture_close(&mask);
}

/* NaN and +inf from a score mod reach only their own q_row; -inf has weight 0, also for all keys of a q_row. */
KERNEL_TEST(attention_mods, nan_score_affects_its_q_row_only)
{
	static const char *const texts[] = { "q_idx == 1044 && h == 2 && kv_idx == 70 ? 0.0 / 0.0 : score",
					     "q_idx == 1044 && h == 2 && kv_idx == 70 ? inf : score",
					     "q_idx == 1044 && h == 2 ? -inf : score" };
	struct mod_arrays arrays = { 0 };
	struct kernel_fixture_params params = mod_chunk_params();

	mod_arrays_fill(&arrays, 1);
	for (size_t t = 0; t < COUNT(texts); t++) {
		struct mod_fixture score = mod_arrays_bind(MOD_SCORE, texts[t], &arrays);
		struct kernel_fixture fixture;
		char what[256];

		params.mods.score = score.binding;
		kernel_fixture_run(&fixture, &params, 1, isa);
		cr_assert(kernel_fixture_check(&fixture, what, sizeof(what)), "%s: %s", texts[t], what);
		cr_assert_eq(isnan(fixture.lse[4 * params.q_heads + 2]) != 0, t < 2);
		cr_assert(t < 2 || fixture.lse[4 * params.q_heads + 2] == -INFINITY);
		kernel_fixture_destroy(&fixture);
		mod_fixture_close(&score);
	}
}

/*
 * An index out of bounds reads as 0 and is reported with array name and bounds,
 * until kernel_mods_clear_range() or a new binding.
 */
KERNEL_TEST(attention_mods, reports_index_out_of_bounds)
{
	struct kernel_team *team = kernel_test_team(2, isa);
	struct mod_arrays arrays = { 0 };
	struct kernel_fixture_params params = mod_chunk_params();
	struct paged_error error = { 0 };
	struct kernel_mod_set *mods;
	struct mod_fixture score;
	struct kernel_fixture fixture;

	mod_arrays_fill(&arrays, 1);
	score = mod_arrays_bind(MOD_SCORE, "score + bias[0][kv_idx]", &arrays);
	params.mods.score = score.binding;
	kernel_fixture_create(&fixture, &params);
	cr_assert_eq(kernel_mod_set_create(team, &params.mods, &mods, &error), PAGED_OK);
	cr_assert_eq(kernel_mod_set_check(mods, &error), PAGED_OK);
	kernel_fixture_attend_with_mods(&fixture, team, mods);
	cr_assert_eq(kernel_mod_set_check(mods, &error), PAGED_ERR_RANGE);
	cr_assert(strstr(error.text, "bias") != NULL && strstr(error.text, "0 to 63") != NULL, "%s", error.text);
	cr_assert(kernel_fixture_check(&fixture, error.text, sizeof(error.text)), "%s", error.text);
	kernel_mods_clear_range(mods);
	cr_assert_eq(kernel_mod_set_check(mods, &error), PAGED_OK);
	kernel_fixture_attend_with_mods(&fixture, team, mods);
	cr_assert_eq(kernel_mod_set_check(mods, &error), PAGED_ERR_RANGE);
	kernel_mod_set_bind(mods, &params.mods);
	cr_assert_eq(kernel_mod_set_check(mods, &error), PAGED_OK);
	kernel_mod_set_destroy(mods);
	kernel_fixture_destroy(&fixture);
	mod_fixture_close(&score);
	kernel_team_destroy(team);
}
