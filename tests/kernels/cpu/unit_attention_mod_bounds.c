/* SPDX-License-Identifier: Apache-2.0 */
/* An array index out of bounds in a mod is reported if and only if a row attends the key. */
#include <string.h>

#include "kernels/mask/mask.h"
#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/mod_fixture.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define KEYS 300u
#define WINDOW 100u

/* A batch with mods that read one array, `bias`. */
struct bounds_case {
	bool causal;
	uint32_t extent; /* of `bias` */
	uint32_t n_rows, q_len;
	const char *mask, *score;   /* or NULL */
	const char *expected_error; /* "": nothing */
};

static float bias[2 * KEYS];

static void
bias_fill(void)
{
	for (uint32_t i = 0; i < COUNT(bias); i++)
		bias[i] = random_float(1, i, 2);
}

static struct kernel_fixture_params
params_of(const struct bounds_case *c)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.q_heads = 6;
	params.k_dim = params.v_dim = 8;
	params.causal = c->causal;
	params.n_rows = c->n_rows;
	params.rows[0] = (struct kernel_fixture_row){ .id = 1, .kv_len = KEYS, .q_len = c->q_len, .q_base = KEYS - 70 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 2, .kv_len = 40, .q_len = 1, .q_base = 39 };
	return params;
}

static void
bounds_case_check(const struct bounds_case *c, const struct block_mask *blocks, enum kernel_isa isa)
{
	const struct mod_array array = {
		.name = "bias", .dtype = MOD_F32, .n_dims = 1, .extents = { c->extent }, .data = bias
	};
	struct kernel_fixture_params params = params_of(c);
	struct mod_fixture mask = { 0 }, score = { 0 };
	struct kernel_team *team = kernel_test_team(1, isa);
	struct paged_error error = { 0 };
	struct kernel_mod_set *mods;
	struct kernel_fixture fixture;

	if (c->mask != NULL)
		mask = mod_fixture_open(MOD_MASK, c->mask, &array, 1);
	if (c->score != NULL)
		score = mod_fixture_open(MOD_SCORE, c->score, &array, 1);
	params.mods = (struct kernel_mod_set_params){ .blocks = blocks, .mask = mask.binding, .score = score.binding };
	kernel_fixture_create(&fixture, &params);
	cr_assert_eq(kernel_mod_set_create(team, &params.mods, &mods, &error), PAGED_OK);
	kernel_fixture_attend_with_mods(&fixture, team, mods);
	cr_expect_eq(kernel_mod_set_check(mods, &error), c->expected_error[0] == '\0' ? PAGED_OK : PAGED_ERR_RANGE);
	cr_expect_str_eq(error.text, c->expected_error, "%s; %s: '%s'", c->mask, c->score, error.text);
	kernel_mod_set_destroy(mods);
	kernel_fixture_destroy(&fixture);
	kernel_team_destroy(team);
	mod_fixture_close(&mask);
	mod_fixture_close(&score);
}

/* The first work item holds the query rows from 294 on and visits keys in order. */
static const struct bounds_case cases[] = {
	/* a bias as wide as the window: causality by flag and mod, by mod alone, by flag alone */
	{ true, WINDOW, 1, 70, "q_idx - kv_idx < 100", "score + bias[q_idx - kv_idx]", "" },
	{ false, WINDOW, 1, 70, "kv_idx <= q_idx && q_idx - kv_idx < 100", "score + bias[q_idx - kv_idx]", "" },
	{ true, KEYS, 1, 70, NULL, "score + bias[q_idx - kv_idx]", "" },
	{ true, WINDOW, 1, 70, "q_idx - kv_idx <= 100", "score + bias[q_idx - kv_idx]",
	  "mod: array 'bias', index 0 is 100, bounds are 0 to 99" },
	{ true, WINDOW, 1, 70, NULL, "score + bias[q_idx - kv_idx]",
	  "mod: array 'bias', index 0 is 294, bounds are 0 to 99" },
	{ false, KEYS, 1, 70, NULL, "score + bias[q_idx - kv_idx]",
	  "mod: array 'bias', index 0 is -1, bounds are 0 to 299" },
	/* a mask mod with and without the causal flag */
	{ true, KEYS, 1, 70, "bias[q_idx - kv_idx] > 0", NULL, "" },
	{ false, KEYS, 1, 70, "bias[q_idx - kv_idx] > 0", NULL,
	  "mod: array 'bias', index 0 is -1, bounds are 0 to 299" },
	/* index by key: keys past a row's kv_len are not read, nor the key after the last of 69 causal queries */
	{ false, KEYS, 2, 70, NULL, "score + bias[kv_idx]", "" },
	{ true, KEYS - 1, 1, 69, NULL, "score + bias[kv_idx]", "" },
	{ true, KEYS - 1, 1, 70, NULL, "score + bias[kv_idx]",
	  "mod: array 'bias', index 0 is 299, bounds are 0 to 298" },
	{ false, 50, 1, 70, "kv_idx < 50", "score + bias[kv_idx]", "" },
	{ false, 50, 1, 70, "kv_idx < 51", "score + bias[kv_idx]",
	  "mod: array 'bias', index 0 is 50, bounds are 0 to 49" },
	/* index by query row: a row without visible keys reads no element */
	{ false, 296, 1, 70, "q_idx < 296 && kv_idx % 7 < 6", "score + bias[q_idx]", "" },
	{ false, 296, 1, 70, "(q_idx < 296 || kv_idx == 200) && kv_idx % 7 < 6", "score + bias[q_idx]",
	  "mod: array 'bias', index 0 is 296, bounds are 0 to 295" },
	{ true, 299, 1, 70, "bias[q_idx] > 0", NULL, "mod: array 'bias', index 0 is 299, bounds are 0 to 298" },
	/* by row of the plan */
	{ false, 1, 2, 70, "b == 0", "score + bias[b]", "" },
	{ false, 1, 2, 70, NULL, "score + bias[b]", "mod: array 'bias', index 0 is 1, bounds are 0 to 0" },
};

KERNEL_TEST(attention_mod_bounds, reported_if_a_row_attends_the_key)
{
	bias_fill();
	for (size_t i = 0; i < COUNT(cases); i++)
		bounds_case_check(&cases[i], NULL, isa);
}

/* Key block `partial` is partial and the other of 0 and 1 is full; all others are empty. */
static void
block_mask_case_check(const char *mask, const char *score, uint32_t partial, uint32_t extent,
		      const char *expected_error, enum kernel_isa isa)
{
	const struct bounds_case c = { false, extent, 1, 70, mask, score, expected_error };
	const struct block_mask_row row = { KEYS - 70, 70, KEYS, 0 };
	const uint32_t one = 1, blocks[] = { 0, 1 };
	const struct block_mask_shape shape = {
		.n_rows = 1, .n_heads = 1, .q_block = 70, .kv_block = 64, .rows = &row
	};
	struct paged_error error = { 0 };
	struct block_mask *given;

	cr_assert_eq(
		block_mask_from_lists(&shape,
				      &(struct block_mask_lists){ .n_blocks = { &one, &one },
								  .indices = { &blocks[partial], &blocks[1 - partial] },
								  .n_indices = { 1, 1 } },
				      1, 0, &given, &error),
		PAGED_OK, "%s", error.text);
	bounds_case_check(&c, given, isa);
	block_mask_destroy(given);
}

KERNEL_TEST(attention_mod_bounds, not_reported_if_block_mask_excludes_the_key)
{
	bias_fill();
	block_mask_case_check(NULL, "score + bias[kv_idx]", 1, 128, "", isa);
	block_mask_case_check(NULL, "score + bias[kv_idx]", 1, 127,
			      "mod: array 'bias', index 0 is 127, bounds are 0 to 126", isa);
	block_mask_case_check("bias[kv_idx - 64] > 0", NULL, 1, 64, "", isa);
	block_mask_case_check("bias[kv_idx - 64] > 0", NULL, 0, 64,
			      "mod: array 'bias', index 0 is -64, bounds are 0 to 63", isa);
	block_mask_case_check("kv_idx < 100", "score + bias[kv_idx]", 1, 100, "", isa);
	block_mask_case_check("kv_idx < 100", "score + bias[kv_idx]", 0, 100,
			      "mod: array 'bias', index 0 is 100, bounds are 0 to 99", isa);
}
