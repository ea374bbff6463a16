/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks of mask mods: PyTorch's lists, and brute force on random shapes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/mod_evaluator.h"
#include "tests/support/kernel_test.h"
#include "tests/support/golden_mask.h"
#include "tests/support/mask_fixture.h"

/* A text, parsed and bound, with its evaluator. */
struct bound_mask_mod {
	struct mod *mod;
	struct mod_binding *binding;
	struct mod_evaluator evaluator;
};

static void
bound_mask_mod_open(struct bound_mask_mod *bound_mask_mod, const char *text, const struct golden_mask_name *names,
		    uint32_t n_names, enum kernel_isa isa, bool index)
{
	struct mod_array arrays[GOLDEN_MASK_MAX_NAMES] = { 0 };
	struct paged_error error = { 0 };

	for (uint32_t i = 0; i < n_names; i++) {
		arrays[i] = (struct mod_array){
			.name = names[i].name, .dtype = MOD_I32, .n_dims = names[i].n_dims, .data = names[i].i32
		};
		memcpy(arrays[i].extents, names[i].dims, sizeof(names[i].dims));
	}
	cr_assert_eq(mod_parse(MOD_MASK, text, strlen(text), arrays, n_names, &bound_mask_mod->mod, &error), PAGED_OK,
		     "%s", error.text);
	cr_assert_eq(mod_bind(bound_mask_mod->mod, arrays, n_names, &bound_mask_mod->binding, &error), PAGED_OK, "%s",
		     error.text);
	if (index)
		cr_assert_eq(mod_binding_add_range_trees(bound_mask_mod->binding, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(mod_evaluator_open(&bound_mask_mod->evaluator, bound_mask_mod->binding, isa, &error), PAGED_OK,
		     "%s", error.text);
}

static void
bound_mask_mod_close(struct bound_mask_mod *bound_mask_mod)
{
	mod_evaluator_close(&bound_mask_mod->evaluator);
	mod_binding_destroy(bound_mask_mod->binding);
	mod_destroy(bound_mask_mod->mod);
}

static struct block_mask *
create(const struct block_mask_shape *shape, const struct bound_mask_mod *bound_mask_mod)
{
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL;

	cr_assert_eq(block_mask_create(shape, &bound_mask_mod->evaluator.base, 0, &mask, &error), PAGED_OK, "%s",
		     error.text);
	return mask;
}

static enum kernel_isa golden_isa;

static void
golden_file(const char *path)
{
	for (int index = 0; index < 2; index++) {
		struct block_mask *mask;
		struct golden_mask c;
		struct bound_mask_mod bound_mask_mod;
		struct paged_error error = { 0 };

		golden_mask_open(&c, path);
		bound_mask_mod_open(&bound_mask_mod, c.text, c.names, c.n_names, golden_isa, index);
		mask = create(&c.shape, &bound_mask_mod);
		expect_equal_masks(mask, c.logical, path);
		cr_assert_eq(mod_evaluator_bad_index(&bound_mask_mod.evaluator, &error), PAGED_OK, "%s: %s", path,
			     error.text);
		block_mask_destroy(mask);
		bound_mask_mod_close(&bound_mask_mod);
		golden_mask_close(&c);
	}
}

KERNEL_TEST(mask_create, matches_pytorch)
{
	golden_isa = isa;
	golden_each_file("masks/*.mask", 90, golden_file);
}

KERNEL_TEST(mask_create, conversions_match_pytorch)
{
	golden_isa = isa;
	golden_each_file("conversions/*.convert", 24, golden_file);
}

static void
golden_picture(const char *path)
{
	struct paged_error error = { 0 };
	struct block_mask *mask;
	struct golden_mask c;
	struct bound_mask_mod bound_mask_mod;
	char *text = NULL;

	golden_mask_open(&c, path);
	bound_mask_mod_open(&bound_mask_mod, c.text, c.names, c.n_names, KERNEL_GENERIC, false);
	mask = create(&c.shape, &bound_mask_mod);
	cr_assert_eq(block_mask_to_string(mask, &c.grid, &text, &error), PAGED_OK, "%s", error.text);
	text = realloc(text, strlen(text) + 2);
	strcat(text, "\n"); /* as generate.py ends the file */
	cr_assert_str_eq(text, c.picture, "%s", path);
	free(text);
	block_mask_destroy(mask);
	bound_mask_mod_close(&bound_mask_mod);
	golden_mask_close(&c);
}

Test(mask_create, to_string_matches_pytorch)
{
	golden_each_file("pictures/*.txt", 3, golden_picture);
}

static const char *const texts[] = {
	"kv_idx <= q_idx",
	"kv_idx <= q_idx && q_idx - kv_idx < window",
	"doc[q_idx] == doc[kv_idx]",
	"doc[q_idx] == doc[kv_idx] && kv_idx <= q_idx",
	"kv_idx < length[b] && (kv_idx + h) % 3 != 0",
	"abs(q_idx - kv_idx) <= window || kv_idx < 2",
	"(q_idx - kv_idx) % 2 == 0 || b == 1",
	"h == 1 ? kv_idx <= q_idx : !(kv_idx <= q_idx)",
	"float(kv_idx) * 0.3 < sin(float(q_idx)) * 10.0 + 8.0",
	"(doc[q_idx] >> (kv_idx % 31) & 1) == 1",
	"kv_idx / window == q_idx / window",
	"q_idx * kv_idx % 7 < 3",
	"(q_idx - kv_idx) * (q_idx - kv_idx) >= 0", /* intervals do not see it */
	"true",
	"kv_idx < 0",
};

/* Names of the texts above, with random values; doc does not cover all positions, length not all rows. */
static void
random_names(struct golden_mask_name *names, uint64_t *state)
{
	static const char *const words[] = { "window", "doc", "length" };
	static const uint32_t sizes[] = { 0, 90, 3 };

	for (uint32_t i = 0; i < 3; i++) {
		snprintf(names[i].name, sizeof(names[i].name), "%s", words[i]);
		names[i].n_dims = sizes[i] != 0;
		names[i].dims[0] = sizes[i];
		names[i].i32 = calloc(sizes[i] + 1, sizeof(int32_t));
		for (uint32_t j = 0; j < sizes[i] + (sizes[i] == 0); j++)
			names[i].i32[j] = (int32_t)random_below(state, i == 1 ? 3 : 40);
	}
	/* Consecutive equal ids, as in packed documents. */
	for (uint32_t j = 0; j < sizes[1] && random_below(state, 30) != 0; j++)
		names[1].i32[j] = (int32_t)(j / 13);
}

static void
fill_dense(struct mask_dense *dense, const struct mod_binding *binding)
{
	const struct block_mask_shape *shape = &dense->shape;

	for (uint32_t b = 0; b < shape->n_rows; b++)
		for (uint32_t h = 0; h < shape->n_heads; h++)
			for (uint64_t q = 0; q < shape->rows[b].q_len; q++)
				for (uint64_t kv = shape->rows[b].kv_first; kv < shape->rows[b].kv_len; kv++) {
					const struct mod_point point = {
						.b = (int32_t)b,
						.h = (int32_t)h,
						.q_idx = (int32_t)(shape->rows[b].q_base + (int64_t)q),
						.kv_idx = (int32_t)kv,
					};

					*mask_dense_at(dense, b, h, q, kv) = mod_scalar(binding, &point, NULL) != 0;
				}
}

/* shape NULL: a random shape. */
static void
one_round(const char *text, const struct block_mask_shape *shape, uint64_t *state, enum kernel_isa isa,
	  const char *what)
{
	struct golden_mask_name names[3] = { 0 };
	struct block_mask *mask, *by_parts;
	struct mask_dense dense;
	struct bound_mask_mod bound_mask_mod;

	random_names(names, state);
	if (shape != NULL)
		mask_dense_open(&dense, shape);
	else
		mask_dense_random(&dense, state);
	bound_mask_mod_open(&bound_mask_mod, text, names, 3, isa, random_below(state, 2));
	fill_dense(&dense, bound_mask_mod.binding);
	mask = create(&dense.shape, &bound_mask_mod);
	expect_dense_mask(mask, &dense, what);
	by_parts = mask_encode_by_parts(&dense.shape, &bound_mask_mod.evaluator.base,
					3 + (uint32_t)random_below(state, 100), NULL);
	expect_equal_masks(by_parts, mask, what);
	block_mask_destroy(by_parts);
	block_mask_destroy(mask);
	bound_mask_mod_close(&bound_mask_mod);
	mask_dense_close(&dense);
	for (uint32_t i = 0; i < 3; i++)
		free(names[i].i32);
}

KERNEL_TEST(mask_create, equals_brute_force)
{
	uint64_t state = test_seed() + 20;
	char what[200];

	for (uint32_t i = 0; i < 40; i++)
		for (size_t t = 0; t < sizeof(texts) / sizeof(*texts); t++) {
			snprintf(what, sizeof(what), "seed %llu round %u: %s", (unsigned long long)test_seed(), i,
				 texts[t]);
			one_round(texts[t], NULL, &state, isa, what);
		}
}

/* Blocks larger than a tile: evaluated in parts before each element is evaluated. */
KERNEL_TEST(mask_create, large_blocks_equal_brute_force)
{
	const struct block_mask_row rows[] = { { 3, 150, 290, 0 }, { 40, 129, 64, 0 }, { 3, 150, 290, 131 } };
	const struct block_mask_shape shape = { 3, 1, 130, 100, rows, NULL };
	uint64_t state = test_seed() + 30;
	char what[200];

	for (size_t t = 0; t < sizeof(texts) / sizeof(*texts); t++) {
		snprintf(what, sizeof(what), "seed %llu: %s", (unsigned long long)test_seed(), texts[t]);
		one_round(texts[t], &shape, &state, isa, what);
	}
}

/* PyTorch's create_block_mask of 2048 causal: 46.88 % sparse. */
Test(mask_create, sparsity_of_causal)
{
	const struct block_mask_row row = { 0, 2048, 2048, 0 };
	const struct block_mask_shape shape = { 1, 1, 128, 128, &row, NULL };
	struct block_mask *mask;
	struct bound_mask_mod bound_mask_mod;

	bound_mask_mod_open(&bound_mask_mod, "kv_idx <= q_idx", NULL, 0, KERNEL_GENERIC, false);
	mask = create(&shape, &bound_mask_mod);
	cr_assert_float_eq(block_mask_sparsity(mask), 46.875, 1e-9);
	block_mask_destroy(mask);
	bound_mask_mod_close(&bound_mask_mod);
}

/* Eight rows, each with an offset one block larger: 29.10 %. */
Test(mask_create, sparsity_of_offsets)
{
	struct block_mask_row rows[8];
	const struct block_mask_shape shape = { 8, 1, 128, 128, rows, NULL };
	int32_t values[8];
	const struct golden_mask_name name = { "offset", 1, { 8 }, values };
	struct block_mask *mask;
	struct bound_mask_mod bound_mask_mod;

	for (int32_t b = 0; b < 8; b++) {
		rows[b] = (struct block_mask_row){ 0, 2048, 2048, 0 };
		values[b] = b;
	}
	bound_mask_mod_open(&bound_mask_mod, "q_idx + offset[b] * 128 >= kv_idx", &name, 1, KERNEL_GENERIC, true);
	mask = create(&shape, &bound_mask_mod);
	cr_assert_float_eq(block_mask_sparsity(mask), 29.10, 0.005);
	block_mask_destroy(mask);
	bound_mask_mod_close(&bound_mask_mod);
}

/* Intervals cannot decide this mask, and the limit has no space for so many blocks. */
Test(mask_create, memory_limit_includes_workspace)
{
	const struct block_mask_row row = { 0, 8, 1000000, 0 };
	const struct block_mask_shape shape = { 1, 1, 4, 1, &row, NULL };
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL;
	struct bound_mask_mod bound_mask_mod;

	bound_mask_mod_open(&bound_mask_mod, "kv_idx * kv_idx % 7 == 3", NULL, 0, KERNEL_GENERIC, false);
	cr_assert_eq(block_mask_create(&shape, &bound_mask_mod.evaluator.base, 100000, &mask, &error), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "block mask: 2048 runs of blocks to evaluate exceed the limit of 100000 bytes");
	cr_assert_null(mask);
	bound_mask_mod_close(&bound_mask_mod);
}

/* A block that the interval evaluator decides costs no element: 2^31 - 1 keys here. */
Test(mask_create, cost_grows_with_the_mask_boundary)
{
	const struct block_mask_row row = { 1000000000, 300, 2000000000, 0 };
	const struct block_mask_shape shape = { 1, 1, 100, 100000000, &row, NULL };
	struct block_mask *mask;
	struct bound_mask_mod bound_mask_mod;

	bound_mask_mod_open(&bound_mask_mod, "kv_idx < 700000000", NULL, 0, KERNEL_GENERIC, false);
	mask = create(&shape, &bound_mask_mod);
	cr_assert_eq(block_mask_list(mask, BLOCK_MASK_FULL, 0, 0, 2).n, 7);
	cr_assert_eq(block_mask_n_blocks(mask), 21);
	block_mask_destroy(mask);
	bound_mask_mod_close(&bound_mask_mod);
}

/* An index out of bounds reads as 0 and is reported. */
Test(mask_create, reports_index_out_of_bounds)
{
	const struct block_mask_row row = { 0, 8, 8, 0 };
	const struct block_mask_shape shape = { 1, 1, 8, 8, &row, NULL };
	int32_t values[] = { 0, 1, 0, 1 };
	const struct golden_mask_name name = { "few", 1, { 4 }, values };
	struct paged_error error = { 0 };
	struct block_mask *mask;
	struct bound_mask_mod bound_mask_mod;

	bound_mask_mod_open(&bound_mask_mod, "few[kv_idx] != 0", &name, 1, KERNEL_GENERIC, false);
	mask = create(&shape, &bound_mask_mod);
	cr_assert_eq(block_mask_list(mask, BLOCK_MASK_PARTIAL, 0, 0, 0).n, 1);
	cr_assert_eq(mod_evaluator_bad_index(&bound_mask_mod.evaluator, &error), PAGED_ERR_RANGE);
	cr_assert_not_null(strstr(error.text, "few"), "%s", error.text);
	block_mask_destroy(mask);
	bound_mask_mod_close(&bound_mask_mod);
}

Test(mask_create, refuses_score_mods)
{
	struct paged_error error = { 0 };
	struct mod_binding *binding;
	struct mod_evaluator evaluator;
	struct mod *mod;

	cr_assert_eq(mod_parse(MOD_SCORE, "score * 2.0", 11, NULL, 0, &mod, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(mod_bind(mod, NULL, 0, &binding, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(mod_evaluator_open(&evaluator, binding, KERNEL_GENERIC, &error), PAGED_ERR_INVALID);
	cr_assert_str_eq(error.text, "block mask: 'score * 2.0' is a score mod, not a mask mod");
	mod_binding_destroy(binding);
	mod_destroy(mod);
}
