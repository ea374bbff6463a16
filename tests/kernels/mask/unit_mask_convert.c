/* SPDX-License-Identifier: Apache-2.0 */
/* Logical blocks to pages: PyTorch's results, and the definition on random tables. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/golden_mask.h"
#include "tests/support/mask_fixture.h"

#define ROUNDS 400u

static struct block_mask_table
page_tables_make(const struct block_mask_sequence *sequences, uint32_t n, uint32_t page_size, uint32_t n_pages)
{
	return (struct block_mask_table){
		.sequences = sequences, .n_sequences = n, .page_size = page_size, .n_pages = n_pages
	};
}

static struct block_mask *
physical_mask(const struct block_mask *mask, const struct block_mask_table *page_tables)
{
	struct paged_error error = { 0 };
	struct block_mask *physical = NULL;

	cr_assert_eq(block_mask_to_physical(mask, page_tables, 0, &physical, &error), PAGED_OK, "%s", error.text);
	return physical;
}

/* Lengths by capacity, as PyTorch without kv_len, and by the mask; for these masks both are equal. */
static void
golden_conversion_test(const char *path)
{
	struct block_mask_sequence sequences[GOLDEN_MASK_MAX_SEQUENCES];
	struct block_mask *physical;
	struct block_mask_table page_tables;
	struct golden_mask c;

	golden_mask_open(&c, path);
	page_tables = page_tables_make(sequences, c.n_batch, c.page_size, c.n_pages);
	for (int by_mask = 0; by_mask < 2; by_mask++) {
		for (uint32_t i = 0; i < c.n_batch; i++) {
			sequences[i] = c.table[c.batch[i]];
			if (by_mask)
				sequences[i].kv_len = c.rows[i].kv_len;
		}
		physical = physical_mask(c.logical, &page_tables);
		expect_equal_masks(physical, c.physical, path);
		block_mask_destroy(physical);
	}
	golden_mask_close(&c);
}

Test(mask_convert, matches_pytorch)
{
	golden_each_file("conversions/*.convert", 24, golden_conversion_test);
}

/* PyTorch's test_convert_logical_block_mask. */
Test(mask_convert, test_convert_logical_block_mask)
{
	static const uint32_t pages[2][4] = { { 0, 3, 5, 7 }, { 2, 1, 4, 6 } };
	const struct block_mask_sequence sequences[] = { { pages[0], 4, 512, 0 }, { pages[1], 4, 512, 0 } };
	const struct block_mask_table page_tables = page_tables_make(sequences, 2, 128, 8);
	const struct block_mask_row rows[] = { { 0, 512, 512, 0 }, { 0, 512, 512, 0 } };
	const struct block_mask_shape shape = { 2, 1, 128, 128, rows, NULL };
	const uint32_t n_partial[] = { 1, 1, 1, 1, 1, 1, 1, 1 }, n_full[] = { 0, 1, 2, 3, 0, 1, 2, 3 };
	const uint32_t partial[] = { 0, 1, 2, 3, 0, 1, 2, 3 }, full[] = { 0, 0, 1, 0, 1, 2, 0, 0, 1, 0, 1, 2 };
	const struct block_mask_lists lists = { { n_partial, n_full }, { partial, full }, { 8, 12 } };
	static const int32_t kv_indices[] = { 0, 3, 5, 7, 2, 1, 4, 6 };
	static const int32_t full_kv_indices[] = { 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 3, 5,
						   0, 0, 0, 2, 0, 0, 2, 1, 0, 2, 1, 4 };
	int32_t counts[2][8], indices[8], full_indices[24];
	const struct block_mask_arrays arrays = { { counts[0], counts[1] }, { indices, full_indices }, { 1, 3 } };
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL, *physical;

	cr_assert_eq(block_mask_from_lists(&shape, &lists, 8, 0, &mask, &error), PAGED_OK, "%s", error.text);
	physical = physical_mask(mask, &page_tables);
	cr_assert_eq(block_mask_to_arrays(physical, &arrays, &error), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(counts[0], n_partial, sizeof(n_partial));
	cr_assert_arr_eq(counts[1], n_full, sizeof(n_full));
	cr_assert_arr_eq(indices, kv_indices, sizeof(kv_indices));
	cr_assert_arr_eq(full_indices, full_kv_indices, sizeof(full_kv_indices));
	cr_assert_eq(physical->shape.rows[0].kv_len, 8 * 128);
	block_mask_destroy(mask);
	block_mask_destroy(physical);
}

/* A random page table for the rows of a mask; no page is twice in a sequence. */
static void
random_page_tables(struct block_mask_table *page_tables, const struct block_mask *mask, uint64_t *state)
{
	struct block_mask_sequence *sequences = calloc(mask->shape.n_rows, sizeof(*sequences));
	uint32_t block = mask->shape.kv_block;

	*page_tables = (struct block_mask_table){ .sequences = sequences, .n_sequences = mask->shape.n_rows };
	page_tables->page_size = block;
	if (random_below(state, 3) == 0)
		page_tables->page_size = block * (uint32_t)(1 + random_below(state, 4));
	else if (block % 2 == 0 && random_below(state, 2) == 0)
		page_tables->page_size = block / 2;
	else if (random_below(state, 3) == 0)
		page_tables->page_size = 1;
	page_tables->n_pages = 80 / page_tables->page_size + 5;
	for (uint32_t s = 0; s < page_tables->n_sequences; s++) {
		uint32_t *pages = calloc(page_tables->n_pages, sizeof(*pages));

		for (uint32_t i = 0; i < page_tables->n_pages; i++)
			pages[i] = i;
		for (uint32_t i = page_tables->n_pages; i > 1; i--) {
			uint32_t j = (uint32_t)random_below(state, i), page = pages[j];

			pages[j] = pages[i - 1];
			pages[i - 1] = page;
		}
		sequences[s].pages = pages;
		sequences[s].kv_len = random_below(state, 75);
		sequences[s].n_pages = (sequences[s].kv_len + page_tables->page_size - 1) / page_tables->page_size;
		/* Pages wholly before kv_first may be unmapped, also those before the mask's. */
		if (random_below(state, 2) == 0)
			sequences[s].kv_first = random_below(state, sequences[s].kv_len + 1);
		for (uint64_t i = 0; i < sequences[s].n_pages; i++)
			if ((i + 1) * page_tables->page_size <=
			    mask_max(sequences[s].kv_first, mask->shape.rows[s].kv_first))
				pages[i] = UINT32_MAX;
		/* Pages past kv_len may be unmapped. */
		if (sequences[s].n_pages + 1 < page_tables->n_pages)
			pages[sequences[s].n_pages++] = UINT32_MAX;
	}
}

static void
page_tables_free(struct block_mask_table *page_tables)
{
	for (uint32_t s = 0; s < page_tables->n_sequences; s++)
		free((void *)page_tables->sequences[s].pages);
	free((void *)page_tables->sequences);
}

/* For each part of the row's keys, by the definition: 0 (empty), or 1 + kind. */
static void
expected_coverage(const struct block_mask *mask, const struct block_mask_sequence *sequence, uint32_t part, uint32_t b,
		  uint32_t h, uint64_t q, uint8_t *parts)
{
	uint64_t limit = mask_min(sequence->kv_len, mask->shape.rows[b].kv_len);
	uint64_t kv_first = mask_max(sequence->kv_first, mask->shape.rows[b].kv_first);
	uint32_t n_parts = mask->shape.kv_block > part ? mask->shape.kv_block / part : 1;

	memset(parts, 0, 200);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		struct block_mask_list list = block_mask_list(mask, kind, b, h, q);

		for (uint64_t i = 0; i < list.n; i++)
			for (uint64_t p = (uint64_t)list.blocks[i] * n_parts; p < (list.blocks[i] + 1ull) * n_parts;
			     p++) {
				bool whole = p * part >= kv_first && (p + 1) * part <= limit;

				if (p * part < limit && (p + 1) * part > kv_first && kv_first < limit)
					parts[p] = kind == BLOCK_MASK_FULL && whole ? 2 : 1;
			}
	}
}

static void
expect_physical(const struct block_mask *mask, const struct block_mask *physical,
		const struct block_mask_table *page_tables, uint32_t b, uint32_t h, uint64_t q)
{
	const struct block_mask_sequence *sequence = &page_tables->sequences[b];
	uint32_t part = physical->shape.kv_block, in_page = page_tables->page_size / part;
	uint64_t at[BLOCK_MASK_N_KINDS] = { 0 };
	uint8_t parts[200];

	expected_coverage(mask, sequence, part, b, h, q, parts);
	for (uint64_t p = 0; p < sizeof(parts); p++) {
		enum block_mask_kind kind = parts[p] == 2 ? BLOCK_MASK_FULL : BLOCK_MASK_PARTIAL;
		struct block_mask_list list = block_mask_list(physical, kind, b, h, q);

		if (parts[p] == 0)
			continue;
		cr_assert_lt(at[kind], list.n);
		cr_assert_eq(list.blocks[at[kind]++], sequence->pages[p / in_page] * in_page + p % in_page);
	}
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		cr_assert_eq(at[kind], block_mask_list(physical, kind, b, h, q).n);
}

Test(mask_convert, random_tables)
{
	uint64_t state = test_seed() + 10;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct block_mask *mask, *physical;
		struct block_mask_table page_tables;
		struct mask_dense dense;

		mask_dense_random(&dense, &state);
		mask = mask_from_dense(&dense);
		random_page_tables(&page_tables, mask, &state);
		physical = physical_mask(mask, &page_tables);
		cr_assert(page_tables.page_size % physical->shape.kv_block == 0);
		for (uint32_t b = 0; b < mask->shape.n_rows; b++)
			for (uint32_t h = 0; h < mask->shape.n_heads; h++)
				for (uint64_t q = 0; q < block_mask_q_blocks(mask, b); q++)
					expect_physical(mask, physical, &page_tables, b, h, q);
		cr_assert_not(physical->ascending);
		block_mask_destroy(mask);
		block_mask_destroy(physical);
		page_tables_free(&page_tables);
		mask_dense_close(&dense);
	}
}

/* One block of 16 tokens over pages of 4: with this length two pages remain, and the second is partial. */
static struct block_mask *
one_full_block(uint32_t n_rows, struct block_mask_row *rows)
{
	const uint32_t n_full[] = { 1, 1 }, full[] = { 0, 0 };
	const struct block_mask_lists lists = { { NULL, n_full }, { NULL, full }, { 0, n_rows } };
	const struct block_mask_shape shape = { n_rows, 1, 1, 16, rows, NULL };
	struct paged_error error = { 0 };
	struct block_mask *mask = NULL;

	for (uint32_t r = 0; r < n_rows; r++)
		rows[r] = (struct block_mask_row){ 0, 1, 16, 0 };
	cr_assert_eq(block_mask_from_lists(&shape, &lists, n_rows, 0, &mask, &error), PAGED_OK, "%s", error.text);
	return mask;
}

/* PyTorch lists 4 full blocks for a sequence of 6 tokens and reads tokens that were never written. */
Test(mask_convert, lengths_guard_full_blocks)
{
	const uint32_t pages[] = { 7, 3, 5, 1 };
	const struct block_mask_sequence sequence = { pages, 4, 6, 0 };
	const struct block_mask_table page_tables = page_tables_make(&sequence, 1, 4, 8);
	struct block_mask_row row;
	struct block_mask *mask = one_full_block(1, &row), *physical = physical_mask(mask, &page_tables);
	struct block_mask_list full = block_mask_list(physical, BLOCK_MASK_FULL, 0, 0, 0);
	struct block_mask_list partial = block_mask_list(physical, BLOCK_MASK_PARTIAL, 0, 0, 0);

	cr_assert(full.n == 1 && full.blocks[0] == 7);
	cr_assert(partial.n == 1 && partial.blocks[0] == 3);
	block_mask_destroy(mask);
	block_mask_destroy(physical);
}

/* PyTorch uses row 0 of the mask's page table for every sequence. */
Test(mask_convert, one_mask_row_for_all_sequences)
{
	const uint32_t pages[] = { 7, 3, 5, 1 }, others[] = { 0, 2, 4, 6 };
	const struct block_mask_sequence sequences[] = { { pages, 4, 16, 0 },
							 { others, 4, 13, 0 },
							 { pages, 4, 0, 0 } };
	const struct block_mask_table page_tables = page_tables_make(sequences, 3, 4, 8);
	struct block_mask_row row;
	struct block_mask *mask = one_full_block(1, &row), *physical = physical_mask(mask, &page_tables);

	cr_assert_eq(physical->shape.n_rows, 3);
	cr_assert_arr_eq(block_mask_list(physical, BLOCK_MASK_FULL, 0, 0, 0).blocks, pages, sizeof(pages));
	cr_assert_eq(block_mask_list(physical, BLOCK_MASK_FULL, 1, 0, 0).n, 3);
	cr_assert_arr_eq(block_mask_list(physical, BLOCK_MASK_FULL, 1, 0, 0).blocks, others, 3 * sizeof(*others));
	cr_assert_eq(block_mask_list(physical, BLOCK_MASK_PARTIAL, 1, 0, 0).blocks[0], 6);
	cr_assert_eq(block_mask_list(physical, BLOCK_MASK_PARTIAL, 2, 0, 0).n, 0);
	block_mask_destroy(mask);
	block_mask_destroy(physical);
}

static void
expect_refusal(const struct block_mask *mask, const struct block_mask_table *page_tables, enum paged_status status,
	       const char *text)
{
	struct paged_error error = { 0 };
	struct block_mask *physical = NULL;

	cr_assert_eq(block_mask_to_physical(mask, page_tables, 0, &physical, &error), status, "%s", text);
	cr_assert_str_eq(error.text, text);
	cr_assert_null(physical);
}

/* PyTorch: an unmapped page becomes index -1, or a raw index error; so does a mask with other rows than the batch. */
Test(mask_convert, refusals_name_the_value)
{
	const uint32_t pages[] = { 7, UINT32_MAX, 5, 8 };
	struct block_mask_sequence sequences[] = { { pages, 4, 5, 0 }, { pages, 4, 4, 0 }, { pages, 4, 4, 0 } };
	struct block_mask_table page_tables = page_tables_make(sequences, 2, 4, 8);
	struct block_mask_row rows[2];
	struct block_mask *mask = one_full_block(2, rows);

	expect_refusal(mask, &page_tables, PAGED_ERR_RANGE,
		       "block mask: row 0: logical page 1 is page 4294967295 of a pool of 8");
	sequences[0].kv_len = 4;
	sequences[1].kv_len = 17;
	expect_refusal(mask, &page_tables, PAGED_ERR_CAPACITY,
		       "block mask: row 1: 17 tokens need 5 pages of 4, its sequence has 4");
	page_tables.n_sequences = 3;
	expect_refusal(mask, &page_tables, PAGED_ERR_INVALID, "block mask: 2 rows for 3 sequences");
	page_tables.n_sequences = 2;
	page_tables.page_size = 12;
	expect_refusal(mask, &page_tables, PAGED_ERR_INVALID,
		       "block mask: KV blocks of 16 and pages of 12 tokens: neither divides the other");
	block_mask_destroy(mask);
}
