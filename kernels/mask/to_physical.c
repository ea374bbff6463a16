/* SPDX-License-Identifier: Apache-2.0 */
/* Translation of logical blocks to their places in the pool. */
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/mask/builder.h"

#define CHECK_STEP 16u

/* Relation of KV blocks and pages; the smaller of the two becomes the block of the result. */
struct page_split {
	uint32_t kv_block;
	uint32_t n_parts;     /* pages in a KV block, or 1 */
	uint32_t page_blocks; /* KV blocks in a page, or 1 */
};

static enum paged_status
page_split_init(uint32_t kv_block, uint32_t page_size, struct page_split *page_split, struct paged_error *error)
{
	if (page_size != 0 && kv_block % page_size == 0)
		*page_split = (struct page_split){ page_size, kv_block / page_size, 1 };
	else if (page_size != 0 && page_size % kv_block == 0)
		*page_split = (struct page_split){ kv_block, 1, page_size / kv_block };
	else
		return paged_fail(error, PAGED_ERR_INVALID,
				  "block mask: KV blocks of %" PRIu32 " and pages of %" PRIu32
				  " tokens: neither divides the other",
				  kv_block, page_size);
	return PAGED_OK;
}

/*
 * Index of the first step that may contain a page at or past the pool's end; the compiler vectorises
 * the steps. noinline, because the inlined loop would reload its constants from memory.
 */
static __attribute__((noinline)) uint64_t
find_bad_page(const uint32_t *pages, uint64_t n, uint32_t n_pool)
{
	uint64_t i = 0;

	for (; i + CHECK_STEP <= n; i += CHECK_STEP) {
		uint32_t is_bad = 0;

		for (uint32_t j = 0; j < CHECK_STEP; j++)
			is_bad |= pages[i + j] >= n_pool;
		if (is_bad)
			break;
	}
	return i;
}

/* Checks that the sequence has the pages of all its keys, and that those that the row's keys use are in the pool. */
static enum paged_status
check_sequence_pages(const struct block_mask_table *table, uint32_t s, const struct block_mask_sequence *sequence,
		     const struct block_mask_row *row, struct paged_error *error)
{
	uint64_t n_pages = mask_ceil_div(sequence->kv_len, table->page_size),
		 i = block_mask_row_first_block(row, table->page_size);

	if (n_pages > sequence->n_pages)
		return paged_fail(error, PAGED_ERR_CAPACITY,
				  "block mask: row %" PRIu32 ": %" PRIu64 " tokens need %" PRIu64 " pages of %" PRIu32
				  ", its sequence has %" PRIu64,
				  s, sequence->kv_len, n_pages, table->page_size, sequence->n_pages);
	n_pages = mask_ceil_div(row->kv_len, table->page_size);
	if (i < n_pages)
		i += find_bad_page(sequence->pages + i, n_pages - i, table->n_pages);
	for (; i < n_pages; i++)
		if (sequence->pages[i] >= table->n_pages)
			return paged_fail(error, PAGED_ERR_RANGE,
					  "block mask: row %" PRIu32 ": logical page %" PRIu64 " is page %" PRIu32
					  " of a pool of %" PRIu32,
					  s, i, sequence->pages[i], table->n_pages);
	return PAGED_OK;
}

static void
row_to_physical(struct mask_builder *builder, const struct block_mask *logical, const struct block_mask_table *table,
		uint32_t r, const struct page_split *page_split)
{
	const struct block_mask_row *from = &logical->shape.rows[logical->shape.n_rows == 1 ? 0 : r];
	uint64_t n_q_blocks = block_mask_q_blocks(builder->mask, r);
	struct block_mask_row row = { .q_len = from->q_len };
	struct block_mask_sequence sequence;

	if (table->sequences != NULL)
		sequence = table->sequences[r];
	else
		builder->status = table->read(table->context, r, &sequence, builder->error);
	if (builder->status != PAGED_OK)
		return;
	row.kv_len = mask_min(from->kv_len, sequence.kv_len);
	row.kv_first = mask_min(mask_max(from->kv_first, sequence.kv_first), row.kv_len);
	builder->status = check_sequence_pages(table, r, &sequence, &row, builder->error);
	for (uint32_t h = 0; h < logical->shape.n_heads && builder->status == PAGED_OK; h++)
		for (uint64_t q = 0; q < n_q_blocks; q++) {
			struct mask_copy_source source = {
				.list = { block_mask_list(logical, BLOCK_MASK_PARTIAL, r, h, q),
					  block_mask_list(logical, BLOCK_MASK_FULL, r, h, q) },
				.n_parts = page_split->n_parts,
				.clip = mask_clip(&builder->mask->shape, &row, q),
				.pages = sequence.pages,
				.page_blocks = page_split->page_blocks,
			};

			mask_builder_copy_clipped(builder, &source);
		}
}

enum paged_status
block_mask_to_physical(const struct block_mask *logical, const struct block_mask_table *table, uint64_t max_bytes,
		       struct block_mask **mask_p, struct paged_error *error)
{
	struct block_mask_shape shape = logical->shape;
	struct page_split page_split = { 0 };
	struct block_mask_row *rows;
	enum paged_status status;
	struct mask_builder builder;

	status = page_split_init(shape.kv_block, table->page_size, &page_split, error);
	if (status != PAGED_OK)
		return status;
	if (shape.n_rows != 1 && shape.n_rows != table->n_sequences)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: %" PRIu32 " rows for %" PRIu32 " sequences",
				  shape.n_rows, table->n_sequences);
	rows = calloc((size_t)table->n_sequences + 1, sizeof(*rows));
	if (rows == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows",
				  table->n_sequences);
	for (uint32_t s = 0; s < table->n_sequences; s++) {
		rows[s] = logical->shape.rows[shape.n_rows == 1 ? 0 : s];
		rows[s].kv_len = (uint64_t)table->n_pages * table->page_size;
		rows[s].kv_first = 0;
	}
	shape.n_rows = table->n_sequences;
	shape.kv_block = page_split.kv_block;
	shape.rows = rows;
	mask_builder_begin(&builder, &shape, max_bytes, error);
	for (uint32_t r = 0; r < table->n_sequences && builder.status == PAGED_OK; r++)
		row_to_physical(&builder, logical, table, r, &page_split);
	free(rows);
	status = mask_builder_finish(&builder, mask_p);
	if (status == PAGED_OK)
		(*mask_p)->ascending = false; /* pages are in arbitrary order */
	return status;
}
