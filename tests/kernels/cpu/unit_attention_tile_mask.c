/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that a mask mod or a block mask excludes are neither read nor passed to a mod. */
#include <string.h>

#include "kernels/mask/mask.h"
#include "tests/support/kernel_test.h"
#include "tests/kernels/cpu/attention_mod_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Keys and values of masked tokens may be NaN. */
KERNEL_TEST(attention_tile_mask, masked_nan_tokens_have_no_effect)
{
	static const char *const texts[] = { "kv_idx % 3 == 1", "kv_idx / 5 % 2 == 0 && kv_idx > 700", "kv_idx == 63",
					     "kv_idx == 1099 || kv_idx == 0", "kv_idx / 64 % 2 == 0" };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct mod_arrays arrays = { 0 };

	mod_arrays_fill(&arrays, 1);
	for (size_t i = 0; i < 2 * COUNT(texts); i++) {
		struct mod_fixture mask = mod_arrays_bind(MOD_MASK, texts[i / 2], &arrays);
		struct kernel_fixture_params params = mod_chunk_params();
		struct kernel_fixture clean, poisoned;

		params.mods.mask = mask.binding;
		params.q = params.out = i % 2 ? PAGED_BF16 : PAGED_F32;
		kernel_fixture_run(&clean, &params, 1, isa);
		kernel_fixture_create(&poisoned, &params);
		for (uint32_t t = 0; t < 1100; t++) {
			struct mod_point point = { .kv_idx = (int32_t)t };

			for (uint32_t h = 0; h < params.kv_heads && mod_scalar(mask.binding, &point, NULL) == 0; h++) {
				memset(kernel_fixture_token(&poisoned, LAYOUT_K, t, h), 0xff, params.k_dim * 2);
				memset(kernel_fixture_token(&poisoned, LAYOUT_V, t, h), 0xff, params.v_dim * 2);
			}
		}
		kernel_fixture_attend(&poisoned, team);
		assert_outputs_equal(&clean, 0, &poisoned, 0, 60, texts[i / 2]);
		kernel_fixture_destroy(&clean);
		kernel_fixture_destroy(&poisoned);
		mod_fixture_close(&mask);
	}
	kernel_team_destroy(team);
}

static bool
token_is_visible(const struct kernel_fixture_params *params, uint32_t token)
{
	const struct kernel_fixture_row *row = &params->rows[0];

	for (int64_t q_idx = row->q_base; q_idx < row->q_base + row->q_len; q_idx++) {
		struct mod_point point = { .q_idx = (int32_t)q_idx, .kv_idx = (int32_t)token };

		if (token <= q_idx && mod_scalar(params->mods.mask, &point, NULL) != 0)
			return true;
	}
	return false;
}

/* Unmap the pages of the first row without a visible token. The mask must not depend on the head. */
static void
masked_pages_unmap(struct kernel_fixture *fixture)
{
	const struct kernel_fixture_params *params = &fixture->params;
	uint32_t page_size = params->page_size, kv_len = params->rows[0].kv_len;

	for (uint32_t page = 0; page * page_size < kv_len; page++) {
		uint32_t end = (page + 1) * page_size < kv_len ? (page + 1) * page_size : kv_len;
		bool visible = false;

		for (uint32_t token = page * page_size; token < end; token++)
			visible |= token_is_visible(params, token);
		if (!visible)
			((uint32_t *)(uintptr_t)fixture->rows[0].pages)[page] = UINT32_MAX;
	}
}

/* A page without visible tokens is not looked up in the page table. */
KERNEL_TEST(attention_tile_mask, masked_pages_are_not_looked_up)
{
	static const struct {
		const char *mask;
		struct kernel_fixture_row row;
	} cases[] = {
		{ "kv_idx / 16 % 5 == 2 || q_idx - kv_idx < 100", { .kv_len = 1100, .q_len = 60, .q_base = 1040 } },
		/* the first q_rows attend all keys of a tile up to their own position */
		{ "kv_idx < 16 || kv_idx >= 32", { .kv_len = 60, .q_len = 60, .q_base = 0 } },
		{ "kv_idx / 16 % 5 == 2", { .kv_len = 1100, .q_len = 1, .q_base = 1099 } },
	};
	struct mod_arrays arrays = { 0 };

	mod_arrays_fill(&arrays, 1);
	for (uint32_t i = 0; i < 8 * COUNT(cases); i++) {
		struct kernel_team *team = kernel_test_team(1 + i % 2, isa);
		struct mod_fixture mask = mod_arrays_bind(MOD_MASK, cases[i / 8].mask, &arrays);
		struct kernel_fixture_params params = mod_chunk_params();
		struct kernel_fixture fixture, holes;

		params.mods.mask = mask.binding;
		params.causal = true;
		params.q = params.out = i / 2 % 2 ? PAGED_BF16 : PAGED_F32;
		params.pool = i / 4 % 2 ? PAGED_I8 : PAGED_BF16;
		params.rows[0] = cases[i / 8].row;
		kernel_fixture_run(&fixture, &params, 1, isa);
		kernel_fixture_create(&holes, &params);
		masked_pages_unmap(&holes);
		kernel_fixture_attend(&holes, team);
		assert_outputs_equal(&fixture, 0, &holes, 0, params.rows[0].q_len, "holes");
		kernel_fixture_destroy(&fixture);
		kernel_fixture_destroy(&holes);
		mod_fixture_close(&mask);
		kernel_team_destroy(team);
	}
}

/*
 * The causal limit of the first query tiles lies before the second KV chunk.  The mask mod must not be
 * evaluated by intervals for these tiles and that chunk: the range of keys is empty, and its end lies
 * before its beginning.
 */
KERNEL_TEST(attention_tile_mask, empty_chunk_is_not_evaluated)
{
	struct mod_arrays arrays = { 0 };
	struct kernel_fixture_params params = mod_chunk_params();

	mod_arrays_fill(&arrays, 1);
	params.q = params.out = PAGED_BF16;
	params.causal = true;
	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 520, .q_len = 60, .q_base = 460 };
	for (int indexed = 0; indexed < 2; indexed++) {
		struct mod_fixture mask = mod_arrays_bind(MOD_MASK, "doc[kv_idx] >= 0", &arrays);
		struct kernel_fixture flag, mod;

		if (indexed)
			cr_assert_eq(mod_binding_add_range_trees(mask.binding, NULL), PAGED_OK);
		params.mods.mask = NULL;
		kernel_fixture_run(&flag, &params, 1, isa);
		params.mods.mask = mask.binding;
		kernel_fixture_run(&mod, &params, 1, isa);
		assert_outputs_equal(&flag, 0, &mod, 0, 60, "all of doc");
		kernel_fixture_destroy(&flag);
		kernel_fixture_destroy(&mod);
		mod_fixture_close(&mask);
	}
}

static struct block_mask *
lists_open(const struct block_mask_shape *shape, const struct block_mask_lists *lists, uint64_t n_lists)
{
	struct paged_error error = { 0 };
	struct block_mask *blocks;

	cr_assert_eq(block_mask_from_lists(shape, lists, n_lists, 0, &blocks, &error), PAGED_OK, "%s", error.text);
	return blocks;
}

/* Lists in any order. The mod is not called for full blocks; partial blocks without a mod are attended completely. */
KERNEL_TEST(attention_tile_mask, block_lists_in_any_order)
{
	static const uint32_t n_full[] = { 3 }, full[] = { 9, 0, 4 }, n_partial[] = { 2 }, partial[] = { 17, 2 };
	static const uint32_t ordered_full[] = { 0, 4, 9 }, ordered_partial[] = { 2, 17 };
	struct mod_arrays arrays = { 0 };
	struct kernel_fixture_params params = mod_chunk_params();
	struct block_mask_row row = { 1036, 64, 1100, 0 }; /* a whole query block: full blocks stay full */
	struct block_mask_shape shape = { .n_rows = 1, .n_heads = 1, .q_block = 64, .kv_block = 64, .rows = &row };
	struct block_mask *given, *ordered;
	struct mod_fixture odd, equal;
	struct kernel_fixture a, b;

	mod_arrays_fill(&arrays, 1);
	params.rows[0].q_base = row.q_base;
	params.rows[0].q_len = (uint32_t)row.q_len;
	given = lists_open(&shape,
			   &(struct block_mask_lists){ .n_blocks = { n_partial, n_full },
						       .indices = { partial, full },
						       .n_indices = { 2, 3 } },
			   1);
	ordered = lists_open(&shape,
			     &(struct block_mask_lists){ .n_blocks = { n_partial, n_full },
							 .indices = { ordered_partial, ordered_full },
							 .n_indices = { 2, 3 } },
			     1);
	odd = mod_arrays_bind(MOD_MASK, "kv_idx % 2 == 1", &arrays);
	equal = mod_arrays_bind(MOD_MASK,
				"kv_idx / 64 == 0 || kv_idx / 64 == 4 || kv_idx / 64 == 9 || "
				"(kv_idx / 64 == 2 || kv_idx / 64 == 17) && kv_idx % 2 == 1",
				&arrays);
	params.mods = (struct kernel_mod_set_params){ .blocks = given, .mask = odd.binding };
	kernel_fixture_run(&a, &params, 1, isa);
	params.mods.blocks = ordered;
	kernel_fixture_run(&b, &params, 2, isa);
	assert_outputs_equal(&a, 0, &b, 0, 64, "order of lists");
	kernel_fixture_destroy(&b);
	params.mods = (struct kernel_mod_set_params){ .mask = equal.binding };
	kernel_fixture_run(&b, &params, 1, isa);
	assert_outputs_equal(&a, 0, &b, 0, 64, "lists and a mod");
	kernel_fixture_destroy(&a);
	kernel_fixture_destroy(&b);

	mod_fixture_close(&equal);
	equal = mod_arrays_bind(MOD_MASK,
				"kv_idx / 64 == 0 || kv_idx / 64 == 4 || kv_idx / 64 == 9 || kv_idx / 64 == 2 || "
				"kv_idx / 64 == 17",
				&arrays);
	params.mods = (struct kernel_mod_set_params){ .blocks = given };
	kernel_fixture_run(&a, &params, 1, isa);
	params.mods = (struct kernel_mod_set_params){ .mask = equal.binding };
	kernel_fixture_run(&b, &params, 1, isa);
	assert_outputs_equal(&a, 0, &b, 0, 64, "lists alone");
	kernel_fixture_destroy(&a);
	kernel_fixture_destroy(&b);
	block_mask_destroy(given);
	block_mask_destroy(ordered);
	mod_fixture_close(&odd);
	mod_fixture_close(&equal);
}

/* The lists of one row and one head apply to all. Rows may have more or fewer keys and query rows than the mask. */
KERNEL_TEST(attention_tile_mask, one_list_for_all_rows)
{
	static const uint32_t n_full[] = { 2, 1 }, full[] = { 1, 6, 3 };
	struct block_mask_row row = { 0, 16, 700, 0 };
	struct block_mask_shape shape = { .n_rows = 1, .n_heads = 1, .q_block = 8, .kv_block = 100, .rows = &row };
	struct mod_arrays arrays = { 0 };
	struct kernel_fixture_params params = mod_chunk_params();
	struct block_mask *blocks;
	struct mod_fixture equal;
	struct kernel_fixture a, b;

	mod_arrays_fill(&arrays, 1);
	blocks = lists_open(&shape,
			    &(struct block_mask_lists){ .n_blocks = { [BLOCK_MASK_FULL] = n_full },
							.indices = { [BLOCK_MASK_FULL] = full },
							.n_indices = { [BLOCK_MASK_FULL] = 3 } },
			    2);
	equal = mod_arrays_bind(MOD_MASK,
				"q_idx < 8 ? kv_idx / 100 == 1 || kv_idx / 100 == 6 : q_idx < 16 && kv_idx / 100 == 3",
				&arrays);
	params.n_rows = 4;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 700, .q_len = 16 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 900, .q_len = 20 };
	params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 150, .q_len = 1 };
	params.rows[3] = (struct kernel_fixture_row){ .id = 3, .kv_len = 650, .q_len = 9 };
	params.mods.blocks = blocks;
	kernel_fixture_run(&a, &params, 2, isa);
	params.mods = (struct kernel_mod_set_params){ .mask = equal.binding };
	kernel_fixture_run(&b, &params, 1, isa);
	assert_outputs_equal(&a, 0, &b, 0, a.total_q, "one row for all");
	kernel_fixture_destroy(&a);
	kernel_fixture_destroy(&b);
	block_mask_destroy(blocks);
	mod_fixture_close(&equal);
}
