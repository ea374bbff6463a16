/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's masks and conversions, through the public API.  unit_mask*.c compare the rest of the golden files. */
#include <stdlib.h>
#include <string.h>

#include "tests/client/block_mask_fixture.h"
#include "tests/support/golden_mask.h"

TestSuite(block_mask_golden, .fini = client_fixture_teardown);

static void
golden_pool_open(uint32_t n_pages, uint32_t page_size)
{
	struct paged_pool_params params = fixture_pool_params;

	params.n_pages = n_pages;
	params.page_size = page_size;
	params.max_length = n_pages * page_size;
	expect_ok(paged_client_open_embedded(&params, 1, NULL, &client));
	expect_ok(paged_pool_open(client, "small", &pool));
}

/* Both masks have the same lists, in the same order. */
static void
expect_golden_lists(const struct paged_block_mask *got, const struct block_mask *expected, const char *path)
{
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };
	uint64_t n = fixture_mask_info(got).n_lists;

	cr_assert_eq(n, expected->first_list[expected->shape.n_rows], "%s", path);
	cr_assert_eq(fixture_mask_info(got).kv_block, expected->shape.kv_block, "%s", path);
	expect_ok(paged_block_mask_lists(got, &lists));
	for (int kind = 0; kind < 2; kind++) {
		cr_assert_arr_eq(lists.start[kind], expected->start[kind], (n + 1) * sizeof(uint64_t), "%s", path);
		cr_assert_arr_eq(lists.indices[kind], expected->indices[kind],
				 expected->start[kind][n] * sizeof(uint32_t), "%s", path);
	}
}

static struct paged_block_mask_params
golden_mask_params(const struct golden_mask *c, struct paged_batch_row *rows)
{
	for (uint32_t r = 0; r < c->shape.n_rows; r++)
		rows[r] = (struct paged_batch_row){
			.q_len = (uint32_t)c->rows[r].q_len,
			.kv_len = (uint32_t)c->rows[r].kv_len,
			.q_base = c->rows[r].q_base,
			.flags = PAGED_ROW_Q_BASE,
		};
	return (struct paged_block_mask_params){
		.struct_size = sizeof(struct paged_block_mask_params),
		.rows = rows,
		.n_rows = c->shape.n_rows,
		.n_heads = c->shape.n_heads,
		.q_block = c->shape.q_block,
		.kv_block = c->shape.kv_block,
	};
}

static void
golden_mask_test(const char *path)
{
	struct paged_array arrays[GOLDEN_MASK_MAX_NAMES] = { 0 };
	struct paged_block_mask_params params;
	struct paged_block_mask *mask;
	struct paged_batch_row *rows;
	struct golden_mask c;

	golden_mask_open(&c, path);
	for (uint32_t i = 0; i < c.n_names; i++) {
		arrays[i] = (struct paged_array){
			.name = c.names[i].name, .dtype = PAGED_I32, .n_dims = c.names[i].n_dims, .data = c.names[i].i32
		};
		memcpy(arrays[i].extents, c.names[i].dims, sizeof(c.names[i].dims));
	}
	rows = calloc(c.shape.n_rows, sizeof(*rows));
	params = golden_mask_params(&c, rows);
	mask = fixture_mask_create(&params, c.text, c.n_names, arrays);
	expect_golden_lists(mask, c.logical, path);
	free(rows);
	paged_block_mask_destroy(mask);
	golden_mask_close(&c);
}

Test(block_mask_golden, masks_equal_pytorch)
{
	golden_pool_open(1, 1);
	golden_each_file("masks/*.mask", 90, golden_mask_test);
}

static struct paged_block_lists
golden_block_lists(const struct block_mask *mask)
{
	return (struct paged_block_lists){
		.struct_size = sizeof(struct paged_block_lists),
		.start = { mask->start[BLOCK_MASK_PARTIAL], mask->start[BLOCK_MASK_FULL] },
		.indices = { mask->indices[BLOCK_MASK_PARTIAL], mask->indices[BLOCK_MASK_FULL] },
	};
}

/* Page tables of the file are passed as explicit pages. */
static void
golden_conversion_test(const char *path)
{
	struct paged_block_mask *logical = NULL, *physical = NULL;
	struct paged_batch_row rows[GOLDEN_MASK_MAX_SEQUENCES];
	struct paged_block_mask_params params;
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };
	struct golden_mask c;

	golden_mask_open(&c, path);
	golden_pool_open(c.n_pages, c.page_size);
	params = golden_mask_params(&c, rows);
	lists = golden_block_lists(c.logical);
	expect_ok(paged_block_mask_from_lists(pool, &params, &lists, &logical));
	for (uint32_t i = 0; i < c.n_batch; i++) {
		const struct block_mask_sequence *sequence = &c.table[c.batch[i]];

		rows[i] = (struct paged_batch_row){ .pages = sequence->pages,
						    .n_pages = (uint32_t)sequence->n_pages,
						    .kv_len = (uint32_t)sequence->kv_len };
	}
	expect_ok(paged_block_mask_to_physical(logical, c.n_batch, rows, &physical));
	expect_golden_lists(physical, c.physical, path);
	paged_client_close(client);
	client = NULL;
	golden_mask_close(&c);
}

Test(block_mask_golden, conversions_equal_pytorch)
{
	golden_each_file("conversions/*.convert", 24, golden_conversion_test);
}
