/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks from lists, arrays and dense masks; parts of masks; queries. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/mask_fixture.h"

#define ROUNDS 300u

static const struct block_mask_row row_8x8 = { 0, 8, 8, 0 };
/* Two query blocks and two KV blocks of 4. */
static const struct block_mask_shape shape_2x2 = { 1, 1, 4, 4, &row_8x8, NULL };

static struct block_mask *
mask_from_lists(const struct block_mask_shape *shape, uint64_t n_lists, const struct block_mask_lists *lists)
{
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL;

	cr_assert_eq(block_mask_from_lists(shape, lists, n_lists, 0, &mask, &error), PAGED_OK, "%s", error.text);
	return mask;
}

Test(mask, from_lists_keeps_order)
{
	const uint32_t n_partial[] = { 1, 0 }, n_full[] = { 1, 2 };
	const uint32_t partial[] = { 1 }, full[] = { 0, 1, 0 };
	const struct block_mask_lists lists = { { n_partial, n_full }, { partial, full }, { 1, 3 } };
	struct block_mask *mask = mask_from_lists(&shape_2x2, 2, &lists);
	struct block_mask_list list = block_mask_list(mask, BLOCK_MASK_FULL, 0, 0, 1);

	cr_assert_eq(list.n, 2);
	cr_assert_eq(list.blocks[0], 1);
	cr_assert_eq(list.blocks[1], 0);
	list = block_mask_list(mask, BLOCK_MASK_PARTIAL, 7, 5, 0);
	cr_assert(list.n == 1 && list.blocks[0] == 1, "one row and one head stand for all");
	cr_assert_eq(block_mask_n_blocks(mask), 4);
	block_mask_destroy(mask);
	block_mask_destroy(NULL);
}

/*
 * Each list is judged separately: the next list may begin with a lower block, and
 * a full block may precede a partial one.
 */
Test(mask, from_lists_detects_ascending_lists)
{
	const uint32_t n_partial[] = { 1, 0 }, n_full[] = { 1, 2 };
	const uint32_t partial[] = { 0 }, ordered[] = { 1, 0, 1 }, descending[] = { 1, 1, 0 };
	const struct block_mask_lists lists[] = {
		{ { n_partial, n_full }, { partial, ordered }, { 1, 3 } },
		{ { n_partial, n_full }, { partial, descending }, { 1, 3 } },
	};
	const struct block_mask_selection all = { .n_rows = 1, .n_heads = 1, .n_q = 8 };

	for (int i = 0; i < 2; i++) {
		struct block_mask *mask = mask_from_lists(&shape_2x2, 2, &lists[i]), *part = NULL, *across = NULL;

		cr_assert_eq(mask->ascending, i == 0);
		cr_assert_eq(block_mask_select(mask, &all, &part, NULL), PAGED_OK);
		cr_assert_eq(part->ascending, i == 0);
		cr_assert_eq(block_mask_transpose(mask, 0, &across, NULL), PAGED_OK);
		cr_assert(across->ascending, "query blocks are listed in their order");
		block_mask_destroy(mask);
		block_mask_destroy(part);
		block_mask_destroy(across);
	}
}

Test(mask, full_blocks_past_kv_len_become_partial)
{
	const struct block_mask_row row = { 0, 8, 7, 0 };
	const struct block_mask_shape shape = { 1, 1, 4, 4, &row, NULL };
	const uint32_t n_full[] = { 2, 1 }, full[] = { 0, 1, 1 };
	const struct block_mask_lists lists = { { NULL, n_full }, { NULL, full }, { 0, 3 } };
	struct block_mask *mask = mask_from_lists(&shape, 2, &lists);

	cr_assert_eq(block_mask_list(mask, BLOCK_MASK_FULL, 0, 0, 0).n, 1);
	cr_assert_eq(block_mask_list(mask, BLOCK_MASK_PARTIAL, 0, 0, 0).n, 1);
	cr_assert_eq(block_mask_list(mask, BLOCK_MASK_PARTIAL, 0, 0, 1).blocks[0], 1);
	block_mask_destroy(mask);
}

struct refusal {
	uint32_t n_partial[2], n_full[2];
	uint32_t partial[4], full[4];
	uint64_t n_indices[BLOCK_MASK_N_KINDS];
	uint64_t n_lists;
	enum paged_status status;
	const char *text;
};

static const struct refusal refusals[] = {
	{ .n_lists = 3, .status = PAGED_ERR_INVALID, .text = "block mask: 3 lists given, the shape has 2" },
	{ .n_partial = { 0, 1 },
	  .partial = { 2 },
	  .n_indices = { 1, 0 },
	  .n_lists = 2,
	  .status = PAGED_ERR_RANGE,
	  .text = "block mask: row 0, head 0, query block 1: partial block 2 of 2 KV blocks" },
	{ .n_full = { 1, 0 },
	  .full = { UINT32_MAX },
	  .n_indices = { 0, 1 },
	  .n_lists = 2,
	  .status = PAGED_ERR_RANGE,
	  .text = "block mask: row 0, head 0, query block 0: full block 4294967295 of 2 KV blocks" },
	{ .n_partial = { 1, 1 },
	  .n_full = { 0, 1 },
	  .partial = { 0, 1 },
	  .full = { 1 },
	  .n_indices = { 2, 1 },
	  .n_lists = 2,
	  .status = PAGED_ERR_INVALID,
	  .text = "block mask: row 0, head 0, query block 1: block 1 is named twice" },
	{ .n_full = { 2, 1 },
	  .full = { 0, 1 },
	  .n_indices = { 0, 2 },
	  .n_lists = 2,
	  .status = PAGED_ERR_INVALID,
	  .text = "block mask: row 0, head 0, query block 1: 1 full blocks, but 0 of 2 indices are left" },
	{ .n_partial = { 1, 0 },
	  .partial = { 0, 1 },
	  .n_indices = { 2, 0 },
	  .n_lists = 2,
	  .status = PAGED_ERR_INVALID,
	  .text = "block mask: the lists have 1 partial blocks, 2 indices given" },
};

Test(mask, refusals_of_lists_name_the_value)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		const struct refusal *r = &refusals[i];
		const struct block_mask_lists lists = { { r->n_partial, r->n_full },
							{ r->partial, r->full },
							{ r->n_indices[0], r->n_indices[1] } };
		struct paged_error error = { 0 };
		struct block_mask *mask = NULL;

		cr_assert_eq(block_mask_from_lists(&shape_2x2, &lists, r->n_lists, 0, &mask, &error), r->status, "%s",
			     r->text);
		cr_assert_str_eq(error.text, r->text);
		cr_assert_null(mask);
	}
}

struct shape_refusal {
	struct block_mask_shape shape;
	struct block_mask_row row;
	uint64_t max_bytes;
	enum paged_status status;
	const char *text;
};

static const struct shape_refusal shape_refusals[] = {
	{ { 1, 1, 0, 4, NULL, NULL },
	  { 0, 8, 8, 0 },
	  0,
	  PAGED_ERR_INVALID,
	  "block mask: 1 rows, 1 heads, blocks of 0 x 4: none may be 0" },
	{ { 1, 1, 4, 1, NULL, NULL },
	  { 0, 8, UINT64_C(1) << 32, 0 },
	  0,
	  PAGED_ERR_LIMIT,
	  "block mask: row 0: 4294967296 keys in blocks of 1 are more than 2^32 - 1 blocks" },
	{ { 1, 1, 1, 4, NULL, NULL },
	  { 0, UINT64_MAX, 8, 0 },
	  0,
	  PAGED_ERR_LIMIT,
	  "block mask: row 0: 18446744073709551615 query rows in blocks of 1 are more than 2^32 - 1 blocks" },
	{ { 1, UINT32_MAX, 1, 4, NULL, NULL },
	  { 0, UINT32_MAX, 8, 0 },
	  0,
	  PAGED_ERR_LIMIT,
	  "block mask: 18446744065119617025 lists need more than the limit of 68719476736 bytes" },
	{ { 1, 1, 1, 1, NULL, NULL },
	  { 0, 100, 100, 0 },
	  4000,
	  PAGED_ERR_LIMIT,
	  "block mask: 10 of 100 lists fill the limit of 4000 bytes" },
	{ { 1, 1, 1, 1, NULL, NULL },
	  { INT32_MAX, 1, 100, 0 },
	  0,
	  PAGED_ERR_LIMIT,
	  "block mask: row 0: 1 query rows from 2147483647 on over 100 keys: mods count in 32 bits" },
};

static enum mask_coverage
even_elements_attend(void *context, const struct mask_area *area)
{
	(void)context;
	return area->kv_begin % 2 == 0 ? MASK_FULL : MASK_EMPTY;
}

Test(mask, refusals_of_shapes_name_the_value)
{
	const struct mask_evaluator evaluator = { .evaluate_area = even_elements_attend };

	for (size_t i = 0; i < sizeof(shape_refusals) / sizeof(*shape_refusals); i++) {
		const struct shape_refusal *r = &shape_refusals[i];
		struct block_mask_shape shape = r->shape;
		struct paged_error error = { 0 };
		struct block_mask *mask = NULL;

		shape.rows = &r->row;
		cr_assert_eq(block_mask_create(&shape, &evaluator, r->max_bytes, &mask, &error), r->status, "%s",
			     r->text);
		cr_assert_str_eq(error.text, r->text);
		cr_assert_null(mask);
	}
}

Test(mask, memory_limit)
{
	const struct mask_evaluator evaluator = { .evaluate_area = even_elements_attend };
	const struct block_mask_row row = { 0, 100, 100, 0 };
	const struct block_mask_shape shape = { 1, 1, 1, 1, &row, NULL };
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL, *again = NULL;

	cr_assert_eq(block_mask_create(&shape, &evaluator, 0, &mask, &error), PAGED_OK);
	/* Space for one index of the empty kind too. */
	cr_assert_eq(block_mask_create(&shape, &evaluator, block_mask_bytes(mask) + 256, &again, &error), PAGED_OK,
		     "%s", error.text);
	expect_equal_masks(again, mask, "within its own size");
	block_mask_destroy(mask);
	block_mask_destroy(again);
}

Test(mask, from_dense_equals_brute_force)
{
	uint64_t state = test_seed();

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct mask_dense dense;
		struct block_mask *mask;
		char what[64];

		snprintf(what, sizeof(what), "seed %llu round %u", (unsigned long long)test_seed(), i);
		mask_dense_random(&dense, &state);
		mask = mask_from_dense(&dense);
		expect_dense_mask(mask, &dense, what);
		block_mask_destroy(mask);
		mask_dense_close(&dense);
	}
}

/* The expected result of a selection: the part of the dense mask. */
static void
dense_select(const struct mask_dense *from, const struct block_mask_selection *part, uint64_t kv_len,
	     struct mask_dense *to)
{
	struct block_mask_shape shape = from->shape;
	struct block_mask_row rows[4];

	shape.n_rows = part->n_rows;
	shape.n_heads = part->n_heads;
	shape.rows = rows;
	for (uint32_t r = 0; r < part->n_rows; r++) {
		const struct block_mask_row *row = &from->shape.rows[part->first_row + r];
		uint64_t first = part->first_q < row->q_len ? part->first_q : row->q_len;

		rows[r] = *row;
		rows[r].q_base += (int64_t)first;
		rows[r].q_len = part->n_q < row->q_len - first ? part->n_q : row->q_len - first;
		rows[r].kv_len = kv_len < row->kv_len ? kv_len : row->kv_len;
	}
	mask_dense_open(to, &shape);
	for (uint32_t b = 0; b < part->n_rows; b++)
		for (uint32_t h = 0; h < part->n_heads; h++)
			for (uint64_t q = 0; q < rows[b].q_len; q++)
				for (uint64_t kv = 0; kv < rows[b].kv_len; kv++)
					*mask_dense_at(to, b, h, q, kv) = *mask_dense_at(
						from, part->first_row + b, part->first_head + h, part->first_q + q, kv);
}

Test(mask, select_equals_mask_of_selected_rows)
{
	uint64_t state = test_seed() + 1;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct block_mask *mask, *got = NULL, *expected;
		struct paged_error error = { 0 };
		struct mask_dense dense, small;
		struct block_mask_selection part;

		mask_dense_random(&dense, &state);
		part.first_row = (uint32_t)random_below(&state, dense.shape.n_rows);
		part.n_rows = (uint32_t)(1 + random_below(&state, dense.shape.n_rows - part.first_row));
		part.first_head = (uint32_t)random_below(&state, dense.shape.n_heads);
		part.n_heads = (uint32_t)(1 + random_below(&state, dense.shape.n_heads - part.first_head));
		part.first_q = random_below(&state, 6) * dense.shape.q_block;
		part.n_q = i % 2 != 0 ? UINT64_MAX : random_below(&state, 6) * dense.shape.q_block;
		mask = mask_from_dense(&dense);
		cr_assert_eq(block_mask_select(mask, &part, &got, &error), PAGED_OK, "%s", error.text);
		dense_select(&dense, &part, UINT64_MAX, &small);
		expected = mask_from_dense(&small);
		expect_equal_masks(got, expected, "select");
		block_mask_destroy(mask);
		block_mask_destroy(got);
		block_mask_destroy(expected);
		mask_dense_close(&dense);
		mask_dense_close(&small);
	}
}

Test(mask, refusals_of_select_name_the_value)
{
	const struct block_mask_selection rows = { .first_row = 1, .n_rows = 1, .n_heads = 1, .n_q = 8 };
	const struct block_mask_selection heads = { .n_rows = 1, .first_head = 0, .n_heads = 3, .n_q = 8 };
	const struct block_mask_selection inside = { .n_rows = 1, .n_heads = 1, .first_q = 3, .n_q = 8 };
	struct block_mask *mask = mask_from_lists(&shape_2x2, 2, &(struct block_mask_lists){ 0 }), *part = NULL;
	struct paged_error error = { 0 };

	cr_assert_eq(block_mask_select(mask, &rows, &part, &error), PAGED_ERR_RANGE);
	cr_assert_str_eq(error.text, "block mask: 1 rows from 1 on, of 1");
	cr_assert_eq(block_mask_select(mask, &heads, &part, &error), PAGED_ERR_RANGE);
	cr_assert_str_eq(error.text, "block mask: 3 heads from 0 on, of 1");
	cr_assert_eq(block_mask_select(mask, &inside, &part, &error), PAGED_ERR_INVALID);
	cr_assert_str_eq(error.text, "block mask: query row 3 is inside a query block of 4");
	block_mask_destroy(mask);
}

static bool
list_has(const struct block_mask *mask, enum block_mask_kind kind, uint32_t b, uint32_t h, uint64_t q, uint64_t block)
{
	struct block_mask_list list = block_mask_list(mask, kind, b, h, q);

	for (uint64_t i = 0; i < list.n; i++)
		if (list.blocks[i] == block)
			return true;
	return false;
}

/*
 * A crop inside a partial block cannot know which elements remain; the blocks that
 * it keeps must cover the dense mask.
 */
static void
expect_covers(const struct block_mask *mask, const struct block_mask *exact)
{
	for (uint32_t b = 0; b < mask->shape.n_rows; b++)
		for (uint32_t h = 0; h < mask->shape.n_heads; h++)
			for (uint64_t q = 0; q < block_mask_q_blocks(mask, b); q++)
				for (uint64_t k = 0; k < block_mask_kv_blocks(mask, b); k++) {
					bool full = list_has(mask, BLOCK_MASK_FULL, b, h, q, k);
					bool partial = list_has(mask, BLOCK_MASK_PARTIAL, b, h, q, k);
					bool all = list_has(exact, BLOCK_MASK_FULL, b, h, q, k);
					bool some = list_has(exact, BLOCK_MASK_PARTIAL, b, h, q, k);

					cr_assert(!full || !partial);
					cr_assert_eq(full, all);
					cr_assert(partial || !some);
				}
}

Test(mask, crop_equals_mask_of_shorter_rows)
{
	uint64_t state = test_seed() + 2;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct block_mask *mask, *got = NULL, *expected;
		struct paged_error error = { 0 };
		struct mask_dense dense, small;
		struct block_mask_selection part;
		uint64_t kv_len;

		mask_dense_random(&dense, &state);
		part = (struct block_mask_selection){ .n_rows = dense.shape.n_rows, .n_heads = dense.shape.n_heads };
		part.n_q = random_below(&state, 45);
		kv_len = random_below(&state, 75);
		if (i % 2 == 0) {
			part.n_q *= dense.shape.q_block;
			kv_len *= dense.shape.kv_block;
		}
		mask = mask_from_dense(&dense);
		cr_assert_eq(block_mask_crop(mask, part.n_q, kv_len, &got, &error), PAGED_OK, "%s", error.text);
		dense_select(&dense, &part, kv_len, &small);
		expected = mask_from_dense(&small);
		if (i % 2 == 0)
			expect_equal_masks(got, expected, "crop");
		else
			expect_covers(got, expected);
		block_mask_destroy(mask);
		block_mask_destroy(got);
		block_mask_destroy(expected);
		mask_dense_close(&dense);
		mask_dense_close(&small);
	}
}

/* A sliding window, cropped from 32 to 24 tokens: PyTorch counts 2 blocks as 1 and lists a block past the crop. */
Test(mask, crop_of_non_causal_rows)
{
	const struct block_mask_row row = { 0, 32, 32, 0 };
	const struct block_mask_shape shape = { 1, 1, 8, 8, &row, NULL };
	struct block_mask *mask, *got = NULL;
	struct paged_error error = { 0 };
	struct block_mask_list list;
	struct mask_dense dense;

	mask_dense_open(&dense, &shape);
	for (int64_t q = 0; q < 32; q++)
		for (int64_t kv = 0; kv < 32; kv++)
			*mask_dense_at(&dense, 0, 0, (uint64_t)q, (uint64_t)kv) = llabs(q - kv) <= 3;
	mask = mask_from_dense(&dense);
	cr_assert_eq(block_mask_crop(mask, 24, 24, &got, &error), PAGED_OK, "%s", error.text);
	list = block_mask_list(got, BLOCK_MASK_PARTIAL, 0, 0, 2);
	cr_assert(list.n == 2 && list.blocks[0] == 1 && list.blocks[1] == 2);
	block_mask_destroy(mask);
	block_mask_destroy(got);
	mask_dense_close(&dense);
}

/* One query row over 2048 keys, all 16 blocks partial: PyTorch reports a sparsity of -12,700 %. */
Test(mask, sparsity_counts_blocks)
{
	const struct block_mask_row decode = { 2047, 1, 2048, 0 };
	const struct block_mask_row odd = { 0, 5, 9, 0 };
	const struct block_mask_shape shape = { 1, 1, 128, 128, &decode, NULL };
	const struct block_mask_shape odd_shape = { 1, 1, 4, 4, &odd, NULL };
	const struct block_mask_row nothing = { 0, 0, 0, 0 };
	const struct block_mask_shape no_shape = { 1, 1, 4, 4, &nothing, NULL };
	const uint32_t n_full[] = { 16 }, n_partial[] = { 3, 0 };
	const uint32_t full[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
	struct block_mask *mask;

	mask = mask_from_lists(&shape, 1, &(struct block_mask_lists){ { NULL, n_full }, { NULL, full }, { 0, 16 } });
	cr_assert_eq(block_mask_sparsity(mask), 0);
	block_mask_destroy(mask);
	mask = mask_from_lists(&odd_shape, 2,
			       &(struct block_mask_lists){ { n_partial, NULL }, { full, NULL }, { 3, 0 } });
	cr_assert_eq(block_mask_sparsity(mask), 50);
	block_mask_destroy(mask);
	mask = mask_from_lists(&no_shape, 0, &(struct block_mask_lists){ 0 });
	cr_assert_eq(block_mask_sparsity(mask), 0);
	block_mask_destroy(mask);
}

/* Whether the block is in a list of its query block. */
static bool
block_is_listed(const struct block_mask *mask, uint32_t b, uint32_t h, uint64_t q, uint64_t block)
{
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		struct block_mask_list list = block_mask_list(mask, kind, b, h, q);

		for (uint64_t i = 0; i < list.n; i++)
			if (list.blocks[i] == block)
				return true;
	}
	return false;
}

Test(mask, dense_blocks)
{
	uint64_t state = test_seed() + 3;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct block_mask *mask;
		struct mask_dense dense;
		uint8_t *elements, *at;

		mask_dense_random(&dense, &state);
		mask = mask_from_dense(&dense);
		elements = at = calloc(dense.n + 1, 1);
		block_mask_dense_blocks(mask, elements);
		for (uint32_t b = 0; b < dense.shape.n_rows; b++)
			for (uint32_t h = 0; h < dense.shape.n_heads; h++)
				for (uint64_t q = 0; q < block_mask_q_blocks(mask, b); q++)
					for (uint64_t k = 0; k < block_mask_kv_blocks(mask, b); k++, at++)
						cr_assert_eq(*at, block_is_listed(mask, b, h, q, k));
		block_mask_destroy(mask);
		free(elements);
		mask_dense_close(&dense);
	}
}

Test(mask, transposed_twice_is_equal)
{
	uint64_t state = test_seed() + 4;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct block_mask *mask, *descending = NULL, *back = NULL;
		struct paged_error error = { 0 };
		struct mask_dense dense;

		mask_dense_random(&dense, &state);
		mask = mask_from_dense(&dense);
		cr_assert_eq(block_mask_transpose(mask, 0, &descending, &error), PAGED_OK, "%s", error.text);
		for (uint32_t b = 0; b < mask->shape.n_rows; b++)
			for (uint32_t h = 0; h < mask->shape.n_heads; h++)
				for (uint64_t q = 0; q < block_mask_q_blocks(mask, b); q++)
					for (uint64_t k = 0; k < block_mask_kv_blocks(mask, b); k++)
						for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
							cr_assert_eq(list_has(mask, kind, b, h, q, k),
								     list_has(descending, kind, b, h, k, q));
		cr_assert_eq(block_mask_transpose(descending, 0, &back, &error), PAGED_OK, "%s", error.text);
		expect_equal_masks(back, mask, "transposed twice");
		block_mask_destroy(mask);
		block_mask_destroy(descending);
		block_mask_destroy(back);
		mask_dense_close(&dense);
	}
}

static void
arrays_alloc(struct block_mask_arrays *arrays, const struct block_mask *mask, uint64_t extra)
{
	uint64_t n = mask->first_list[mask->shape.n_rows];

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		arrays->width[kind] = block_mask_width(mask, kind) + extra;
		arrays->num_blocks[kind] = calloc(n + 1, sizeof(int32_t));
		arrays->indices[kind] = malloc((n * arrays->width[kind] + 1) * sizeof(int32_t));
		memset(arrays->indices[kind], 0xff, (n * arrays->width[kind] + 1) * sizeof(int32_t));
	}
}

static void
arrays_free(struct block_mask_arrays *arrays)
{
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		free(arrays->num_blocks[kind]);
		free(arrays->indices[kind]);
	}
}

static void
even_rows_attend(struct mask_dense *dense, uint64_t *state)
{
	const struct block_mask_selection all = { .n_rows = 1, .n_heads = 1, .n_q = UINT64_MAX };
	struct mask_dense ragged;

	mask_dense_random(&ragged, state);
	dense_select(&ragged, &all, UINT64_MAX, dense);
	mask_dense_close(&ragged);
}

Test(mask, pytorch_arrays_round_trip)
{
	uint64_t state = test_seed() + 5;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct block_mask *mask, *back = NULL;
		struct block_mask_arrays arrays = { 0 };
		struct paged_error error = { 0 };
		struct mask_dense dense;
		uint64_t n;

		even_rows_attend(&dense, &state);
		mask = mask_from_dense(&dense);
		arrays_alloc(&arrays, mask, random_below(&state, 4));
		cr_assert_eq(block_mask_to_arrays(mask, &arrays, &error), PAGED_OK, "%s", error.text);
		n = mask->first_list[mask->shape.n_rows];
		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
			for (uint64_t j = 0; j < n * arrays.width[kind]; j++)
				cr_assert(arrays.indices[kind][j] >= 0, "padding is 0");
		cr_assert_eq(block_mask_from_arrays(&dense.shape, &arrays, 0, &back, &error), PAGED_OK, "%s",
			     error.text);
		expect_equal_masks(back, mask, "arrays");
		arrays_free(&arrays);
		block_mask_destroy(mask);
		block_mask_destroy(back);
		mask_dense_close(&dense);
	}
}

Test(mask, refusals_of_arrays_name_the_value)
{
	const struct block_mask_row rows[] = { { 0, 8, 8, 0 }, { 0, 3, 8, 0 } };
	const struct block_mask_shape ragged = { 2, 1, 4, 4, rows, NULL };
	const uint32_t n_full[] = { 2, 0 }, full[] = { 0, 1 };
	int32_t counts[] = { 3, -1 }, indices[] = { 0, 1, 0, 0 };
	struct block_mask_arrays arrays = { { NULL, counts }, { NULL, indices }, { 0, 1 } };
	struct paged_error error = { 0 };
	struct block_mask *mask, *other = NULL;

	mask = mask_from_lists(&ragged, 3, &(struct block_mask_lists){ 0 });
	cr_assert_eq(block_mask_to_arrays(mask, &arrays, &error), PAGED_ERR_INVALID);
	cr_assert_str_eq(error.text, "block mask: rows 0 and 1 have 2 and 1 query blocks: no rectangle");
	block_mask_destroy(mask);
	mask = mask_from_lists(&shape_2x2, 2, &(struct block_mask_lists){ { NULL, n_full }, { NULL, full }, { 0, 2 } });
	cr_assert_eq(block_mask_to_arrays(mask, &arrays, &error), PAGED_ERR_INVALID);
	cr_assert_str_eq(error.text, "block mask: full_kv_indices is 1 wide, the longest list has 2 blocks");
	block_mask_destroy(mask);
	cr_assert_eq(block_mask_from_arrays(&shape_2x2, &arrays, 0, &other, &error), PAGED_ERR_INVALID);
	cr_assert_str_eq(error.text, "block mask: list 0 has 3 blocks, full_kv_indices is 1 wide");
	arrays.width[BLOCK_MASK_FULL] = 2;
	counts[0] = 2;
	cr_assert_eq(block_mask_from_arrays(&shape_2x2, &arrays, 0, &other, &error), PAGED_ERR_INVALID);
	cr_assert_str_eq(error.text, "block mask: list 1 has -1 blocks, full_kv_indices is 2 wide");
	counts[1] = 0;
	indices[1] = -1;
	cr_assert_eq(block_mask_from_arrays(&shape_2x2, &arrays, 0, &other, &error), PAGED_ERR_RANGE);
	cr_assert_str_eq(error.text, "block mask: list 0 of full_kv_indices names block -1");
	cr_assert_null(other);
}
