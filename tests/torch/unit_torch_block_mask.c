/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's BlockMask suite, and test_convert_logical_block_mask and test_convert_mask_mod of its paged class. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/golden_mask.h"
#include "tests/support/mask_fixture.h"
#include "tests/torch/torch_fixture.h"

static struct pa pa;

/* PyTorch's page table: rows 0 3 5 7 and 2 1 4 6. */
static void
open_table(void)
{
	pa_open(&pa, &(struct pa_params){ .n_pages = 8, .page_size = 128, .max_batch = 2 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ 100, 200 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ 150, 300 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ 300, 512 });
	pa_batch_reserve(&pa, 2, (uint32_t[]){ 512, 512 });
	pa_row_is(&pa, 0, 0, 3, 5, 7);
	pa_row_is(&pa, 1, 2, 1, 4, 6);
}

static void
close_table(void)
{
	pa_close(&pa);
}

TestSuite(torch_block_mask, .init = open_table, .fini = close_table);

/* create_block_mask(text, batch, heads, q_len, kv_len) */
static struct paged_block_mask *
create(const char *text, uint32_t batch, uint32_t heads, uint32_t q_len, uint32_t kv_len,
       const struct paged_array *array)
{
	struct torch_mods mods = { .arrays = array, .n_arrays = array != NULL };
	struct paged_mod *mod = torch_parse(&pa, PAGED_MOD_MASK, text, &mods);
	struct paged_batch_row rows[PA_MAX_BATCH] = { 0 };
	struct paged_block_mask_params params = {
		.struct_size = sizeof(params), .rows = rows, .n_rows = batch, .n_heads = heads
	};
	struct paged_block_mask *mask = NULL;

	for (uint32_t b = 0; b < batch; b++)
		rows[b] = (struct paged_batch_row){ .q_len = q_len, .kv_len = kv_len, .flags = PAGED_ROW_Q_BASE };
	expect_ok(paged_block_mask_create(pa.pool, &params, mod, mods.n_arrays, array, &mask));
	paged_mod_destroy(mod);
	return mask;
}

static struct paged_block_mask_info
info_of(const struct paged_block_mask *mask)
{
	struct paged_block_mask_info info = { .struct_size = sizeof(info) };

	expect_ok(paged_block_mask_get_info(mask, &info));
	return info;
}

/* kv_num_blocks.shape == (rows, heads, q_blocks) and kv_indices.shape == (..., width). */
static void
shape_is(const struct paged_block_mask *mask, uint32_t rows, uint32_t heads, uint32_t q_blocks, uint32_t kv_blocks)
{
	struct paged_block_mask_info info = info_of(mask);
	struct paged_block_mask_row row = { .struct_size = sizeof(row) };

	cr_assert_eq(info.n_rows, rows);
	cr_assert_eq(info.n_heads, heads);
	cr_assert_eq(info.n_lists, (uint64_t)rows * heads * q_blocks);
	expect_ok(paged_block_mask_get_row(mask, 0, &row));
	cr_assert_eq((row.kv_len + info.kv_block - 1) / info.kv_block, kv_blocks);
}

/* ---------------------------------------------------------------- pages */

Test(torch_block_mask, test_convert_logical_block_mask)
{
	static const int32_t num_blocks[8] = { 1, 1, 1, 1, 1, 1, 1, 1 },
			     full_num_blocks[8] = { 0, 1, 2, 3, 0, 1, 2, 3 };
	static const int32_t indices[8] = { 0, 3, 5, 7, 2, 1, 4, 6 };
	static const int32_t full_indices[8][3] = { { 0 }, { 0 }, { 0, 3 }, { 0, 3, 5 },
						    { 0 }, { 2 }, { 2, 1 }, { 2, 1, 4 } };
	int32_t got_num[2][8], got_indices[8], got_full[8][3];
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays),
					     .num_blocks = { got_num[0], got_num[1] },
					     .indices = { got_indices, got_full[0] },
					     .width = { 1, 3 } };
	struct paged_block_mask *mask = create("q_idx >= kv_idx", 2, 1, 512, 512, NULL), *converted = NULL;
	struct paged_block_mask_row row = { .struct_size = sizeof(row) };

	expect_ok(pa_convert_logical_block_mask(&pa, mask, &(struct pa_rows){ .n = 2 }, &converted));
	expect_ok(paged_block_mask_arrays(converted, &arrays));
	cr_assert_arr_eq(got_num[0], num_blocks, sizeof(num_blocks));
	cr_assert_arr_eq(got_num[1], full_num_blocks, sizeof(full_num_blocks));
	cr_assert_arr_eq(got_indices, indices, sizeof(indices));
	cr_assert_arr_eq(got_full, full_indices, sizeof(full_indices));
	expect_ok(paged_block_mask_get_row(converted, 1, &row));
	cr_assert_eq(row.q_len, 512);
	cr_assert_eq(row.kv_len, 8 * 128);
	cr_assert_eq(row.seq, pa.page_table[1]);
}

/* The batch of a conversion is any choice of rows: here both rows of the mask are sequence 1. */
Test(torch_block_mask, convert_for_a_batch_subset)
{
	struct paged_block_mask *mask = create("q_idx >= kv_idx", 2, 1, 512, 512, NULL), *converted = NULL;
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };

	expect_ok(pa_convert_logical_block_mask(
		&pa, mask, &(struct pa_rows){ .n = 2, .batch_idx = (uint32_t[]){ 1, 1 } }, &converted));
	expect_ok(paged_block_mask_lists(converted, &lists));
	cr_assert_arr_eq(lists.indices[PAGED_BLOCKS_PARTIAL], ((uint32_t[]){ 2, 1, 4, 6, 2, 1, 4, 6 }), 32);
	/* A mask for one row serves any number of sequences, each with its own pages. */
	mask = create("q_idx >= kv_idx", 1, 1, 512, 512, NULL);
	expect_ok(pa_convert_logical_block_mask(
		&pa, mask, &(struct pa_rows){ .n = 2, .batch_idx = (uint32_t[]){ 1, 0 } }, &converted));
	expect_ok(paged_block_mask_lists(converted, &lists));
	cr_assert_arr_eq(lists.indices[PAGED_BLOCKS_PARTIAL], ((uint32_t[]){ 2, 1, 4, 6, 0, 3, 5, 7 }), 32);
}

/* physical_to_logical, in blocks. */
static void
logical_is(uint32_t b, const int64_t *expected)
{
	for (uint32_t page = 0; page < 8; page++) {
		int64_t token = expected[page] < 0 ? -1 : expected[page] * 128 + 17;

		cr_assert_eq(pa_logical(&pa, b, page * 128 + 17), token, "row %u page %u", b, page);
	}
}

Test(torch_block_mask, test_convert_mask_mod)
{
	struct torch_mods none = { 0 };
	struct pa_mod causal = { .mod = torch_parse(&pa, PAGED_MOD_MASK, "q_idx >= kv_idx", &none) }, noop = { 0 };
	const struct pa_rows rows = { .n = 2 };
	struct pa_converted_mod converted = pa_get_mask_mod(&pa, &causal, &rows);

	logical_is(0, (int64_t[]){ 0, -1, -1, 1, -1, 2, -1, 3 });
	logical_is(1, (int64_t[]){ -1, 1, 0, -1, 2, -1, 3, -1 });
	/* In sequence 0, physical token 384 is logical 128; in sequence 1, it is not mapped, and 270 is 14. */
	cr_assert(pa_mask_at(&converted, 0, 0, 256, 384));
	cr_assert(pa_mask_at(&converted, 0, 1, 256, 384));
	cr_assert_not(pa_mask_at(&converted, 0, 0, 127, 384));
	cr_assert_not(pa_mask_at(&converted, 1, 0, 256, 384));
	cr_assert(pa_mask_at(&converted, 1, 0, 64, 270));
	cr_assert_not(pa_mask_at(&converted, 1, 0, 13, 270));
	/* A mod NULL (None) is noop or identity for live tokens. */
	converted = pa_get_mask_mod(&pa, &noop, &rows);
	cr_assert(pa_mask_at(&converted, 0, 0, 0, 384));
	cr_assert_not(pa_mask_at(&converted, 1, 0, 0, 384));
	converted = pa_get_score_mod(&pa, &noop, &rows);
	cr_assert_eq(pa_score_at(&converted, 0.5, 0, 0, 0, 384), 0.5);
	cr_assert_eq(pa_score_at(&converted, 0.5, 1, 0, 0, 384), -HUGE_VAL);
	/* kv_len limits both mods. */
	converted = pa_get_mask_mod(&pa, &causal, &(struct pa_rows){ .n = 2, .kv_len = (uint32_t[]){ 128, 14 } });
	cr_assert_not(pa_mask_at(&converted, 0, 0, 256, 384));
	cr_assert_not(pa_mask_at(&converted, 1, 0, 64, 270));
	cr_assert(pa_mask_at(&converted, 1, 0, 64, 269));
}

/* ------------------------------------------------------------ BlockMask */

static struct paged_block_mask *
part_of(const struct paged_block_mask *mask, struct paged_block_mask_part part)
{
	struct paged_block_mask *selected = NULL;

	part.struct_size = sizeof(part);
	expect_ok(paged_block_mask_select(mask, &part, &selected));
	return selected;
}

static const int32_t offsets[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
static const struct paged_array offset = {
	.name = "offset", .data = offsets, .dtype = PAGED_I32, .n_dims = 1, .extents = { 8 }
};
static const char offset_causal[] = "q_idx + offset[b] * 128 >= kv_idx";

Test(torch_block_mask, test_getitem)
{
	struct paged_block_mask *mask = create(offset_causal, 4, 2, 512, 512, &offset);

	shape_is(mask, 4, 2, 4, 4);
	shape_is(part_of(mask, (struct paged_block_mask_part){ .n_rows = 1 }), 1, 2, 4, 4);
	shape_is(part_of(mask, (struct paged_block_mask_part){ .n_rows = 1, .first_head = 1, .n_heads = 1 }), 1, 1, 4,
		 4);
	shape_is(part_of(mask, (struct paged_block_mask_part){ .n_rows = 2, .first_head = 1, .n_heads = 1 }), 2, 1, 4,
		 4);
	shape_is(part_of(mask,
			 (struct paged_block_mask_part){
				 .n_rows = 2, .first_head = 1, .n_heads = 1, .first_q = 128, .n_q = 128 }),
		 2, 1, 1, 4);
	shape_is(part_of(mask, (struct paged_block_mask_part){ .n_q = 128 }), 4, 2, 1, 4);
	/* The contents are right too: row 1 attends one block more than row 0. */
	mask = part_of(mask, (struct paged_block_mask_part){
				     .first_row = 1, .n_rows = 1, .n_heads = 1, .first_q = 128, .n_q = 128 });
	cr_assert_eq(info_of(mask).n_blocks, 3);
}

static void
sparsity_is(const struct paged_block_mask *mask, const char *percent)
{
	char text[32];

	snprintf(text, sizeof(text), "%.2f", info_of(mask).sparsity);
	cr_assert_str_eq(text, percent);
}

static uint32_t
count(const char *text, const char *what)
{
	uint32_t n = 0;

	for (; (text = strstr(text, what)) != NULL; text += strlen(what))
		n++;
	return n;
}

/* test_viz */
Test(torch_block_mask, test_viz)
{
	struct paged_block_mask *causal = create("q_idx >= kv_idx", 1, 1, 2048, 2048, NULL);
	struct paged_block_mask *batch = create(offset_causal, 8, 1, 2048, 2048, &offset);
	char *text;

	sparsity_is(causal, "46.88");
	sparsity_is(batch, "29.10");
	expect_ok(paged_block_mask_picture(causal, 0, 0, 0, &text));
	cr_assert_eq(strncmp(text, "(0, 0)\n██  ", strlen("(0, 0)\n██  ")), 0, "%s", text);
	cr_assert_eq(count(text, "██"), 16 * 17 / 2);
	paged_free(text);
	expect_ok(paged_block_mask_picture(batch, 0, 0, 0, &text));
	cr_assert_eq(count(text, ", 0)"), 4);
	cr_assert_not_null(strstr(text, "\n...\n"), "%s", text);
	paged_free(text);
	expect_ok(paged_block_mask_picture(batch, 0, 0, 8, &text));
	cr_assert_eq(count(text, ", 0)"), 8);
	paged_free(text);
}

static void
picture_file(const char *path)
{
	struct paged_block_mask *mask;
	struct golden_mask c;
	char *text;

	golden_mask_open(&c, path);
	mask = create(c.text, 1, 1, (uint32_t)c.rows[0].q_len, (uint32_t)c.rows[0].kv_len, NULL);
	expect_ok(paged_block_mask_picture(mask, (uint32_t)c.grid.rows, (uint32_t)c.grid.columns, 0, &text));
	cr_assert_eq(strncmp(text, c.picture, strlen(text)), 0, "%s", path);
	cr_assert_str_eq(c.picture + strlen(text), "\n", "%s", path);
	paged_free(text);
	golden_mask_close(&c);
}

/* Character by character. */
Test(torch_block_mask, pictures)
{
	golden_each_file("pictures/*.txt", 3, picture_file);
}

/* One query block over two KV blocks, as their generate_test_inputs(); entries past the counts are not read. */
static struct paged_block_mask *
from_kv_blocks(bool full)
{
	static const struct paged_batch_row row = { .q_len = 128, .kv_len = 256, .flags = PAGED_ROW_Q_BASE };
	const struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = &row, .n_rows = 1 };
	int32_t one = 1, two = 2, second[] = { 1, -1 }, first[] = { 0, -1 }, both[] = { 0, 1 };
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays),
					     .num_blocks = { full ? &one : &two, full ? &one : NULL },
					     .indices = { full ? second : both, full ? first : NULL },
					     .width = { 2, 2 } };
	struct paged_block_mask *mask = NULL;

	expect_ok(paged_block_mask_from_arrays(pa.pool, &params, &arrays, &mask));
	return mask;
}

/* q_num_blocks and q_indices of the partial blocks, then of the full ones. */
static void
q_side_is(const struct paged_block_mask *mask, const int32_t *expected)
{
	int32_t num[2][2], indices[2][2];
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays),
					     .num_blocks = { num[0], num[1] },
					     .indices = { indices[0], indices[1] },
					     .width = { 1, 1 } };
	struct paged_block_mask *transposed = NULL;

	expect_ok(paged_block_mask_transpose(mask, &transposed));
	expect_ok(paged_block_mask_arrays(transposed, &arrays));
	for (uint32_t kind = 0; kind < 2; kind++) {
		cr_assert_arr_eq(num[kind], expected + 4 * kind, sizeof(num[kind]));
		cr_assert_arr_eq(indices[kind], expected + 4 * kind + 2, sizeof(indices[kind]));
	}
}

Test(torch_block_mask, test_from_kv_blocks)
{
	q_side_is(from_kv_blocks(true), (int32_t[]){ 0, 1, 0, 0, 1, 0, 0, 0 });
	q_side_is(from_kv_blocks(false), (int32_t[]){ 1, 1, 0, 0, 0, 0, 0, 0 });
}

Test(torch_block_mask, test_block_size)
{
	struct paged_block_mask_info info = info_of(from_kv_blocks(false));

	cr_assert_eq(info.q_block, 128);
	cr_assert_eq(info.kv_block, 128);
}

/* test_init_mismatched_full_kv; the q side is computed, so it cannot be mismatched. */
Test(torch_block_mask, test_init_mismatched_full_kv)
{
	static const struct paged_batch_row row = { .q_len = 64, .kv_len = 128, .flags = PAGED_ROW_Q_BASE };
	const struct paged_block_mask_params params = {
		.struct_size = sizeof(params), .rows = &row, .n_rows = 1, .q_block = 64, .kv_block = 64
	};
	int32_t one = 1, first = 0;
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays),
					     .num_blocks = { &one, &one },
					     .indices = { &first, NULL },
					     .width = { 1, 1 } };
	struct paged_block_mask *mask = NULL;

	cr_assert_eq(paged_block_mask_from_arrays(pa.pool, &params, &arrays, &mask), PAGED_ERR_INVALID);
	cr_assert_null(mask);
	/* A block in both lists, and a block past the keys: in PyTorch a raw index error, or no error. */
	arrays.indices[1] = &first;
	cr_assert_eq(paged_block_mask_from_arrays(pa.pool, &params, &arrays, &mask), PAGED_ERR_INVALID);
	first = 2;
	arrays.num_blocks[1] = NULL;
	cr_assert_eq(paged_block_mask_from_arrays(pa.pool, &params, &arrays, &mask), PAGED_ERR_RANGE);
	cr_assert_null(mask);
}
