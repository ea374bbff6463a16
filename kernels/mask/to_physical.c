/* SPDX-License-Identifier: Apache-2.0 */
/* Translation of logical blocks to their places in the pool. */
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/mask/builder.h"

#define CHECK_STEP 16u

/* Relation of KV blocks and pages; the smaller of the two becomes the block of the result. */
struct division {
	uint32_t kv_block;
	uint32_t n_parts;     /* pages in a KV block, or 1 */
	uint32_t page_blocks; /* KV blocks in a page, or 1 */
};

static enum paged_status
divide(uint32_t kv_block, uint32_t page_size, struct division *division, struct paged_error *error)
{
	if (page_size != 0 && kv_block % page_size == 0)
		*division = (struct division){ page_size, kv_block / page_size, 1 };
	else if (page_size != 0 && page_size % kv_block == 0)
		*division = (struct division){ kv_block, 1, page_size / kv_block };
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
first_alien(const uint32_t *pages, uint64_t n, uint32_t n_pool)
{
	uint64_t i = 0;

	for (; i + CHECK_STEP <= n; i += CHECK_STEP) {
		uint32_t alien = 0;

		for (uint32_t j = 0; j < CHECK_STEP; j++)
			alien |= pages[i + j] >= n_pool;
		if (alien)
			break;
	}
	return i;
}

/* Checks that the sequence has the pages of all its keys, and that those that are used are in the pool. */
static enum paged_status
check_sequence(const struct block_mask_table *table, uint32_t s, const struct block_mask_sequence *sequence,
	       uint64_t kv_len, struct paged_error *error)
{
	uint64_t n_pages = mask_count_parts(sequence->kv_len, table->page_size);

	if (n_pages > sequence->n_pages)
		return paged_fail(error, PAGED_ERR_CAPACITY,
				  "block mask: row %" PRIu32 ": %" PRIu64 " tokens need %" PRIu64 " pages of %" PRIu32
				  ", its sequence has %" PRIu64,
				  s, sequence->kv_len, n_pages, table->page_size, sequence->n_pages);
	n_pages = mask_count_parts(kv_len, table->page_size);
	for (uint64_t i = first_alien(sequence->pages, n_pages, table->n_pages); i < n_pages; i++)
		if (sequence->pages[i] >= table->n_pages)
			return paged_fail(error, PAGED_ERR_RANGE,
					  "block mask: row %" PRIu32 ": logical page %" PRIu64 " is page %" PRIu32
					  " of a pool of %" PRIu32,
					  s, i, sequence->pages[i], table->n_pages);
	return PAGED_OK;
}

static void
place_row(struct build *build, const struct block_mask *logical, const struct block_mask_table *table, uint32_t r,
	  const struct division *division)
{
	const struct block_mask_row *from = &logical->shape.rows[logical->shape.n_rows == 1 ? 0 : r];
	uint64_t n_q_blocks = block_mask_q_blocks(build->mask, r);
	struct block_mask_row row = { .q_len = from->q_len };
	struct block_mask_sequence sequence;

	if (table->sequences != NULL)
		sequence = table->sequences[r];
	else
		build->status = table->read(table->context, r, &sequence, build->error);
	if (build->status != PAGED_OK)
		return;
	row.kv_len = mask_smaller(from->kv_len, sequence.kv_len);
	build->status = check_sequence(table, r, &sequence, row.kv_len, build->error);
	for (uint32_t h = 0; h < logical->shape.n_heads && build->status == PAGED_OK; h++)
		for (uint64_t q = 0; q < n_q_blocks; q++) {
			struct build_source source = {
				.list = { block_mask_list(logical, BLOCK_MASK_PARTIAL, r, h, q),
					  block_mask_list(logical, BLOCK_MASK_FULL, r, h, q) },
				.n_parts = division->n_parts,
				.cut = build_cut(&build->mask->shape, &row, q),
				.pages = sequence.pages,
				.page_blocks = division->page_blocks,
			};

			build_copy(build, &source);
		}
}

enum paged_status
block_mask_to_physical(const struct block_mask *logical, const struct block_mask_table *table, uint64_t max_bytes,
		       struct block_mask **mask_p, struct paged_error *error)
{
	struct block_mask_shape shape = logical->shape;
	struct division division = { 0 };
	struct block_mask_row *rows;
	enum paged_status status;
	struct build build;

	status = divide(shape.kv_block, table->page_size, &division, error);
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
	}
	shape.n_rows = table->n_sequences;
	shape.kv_block = division.kv_block;
	shape.rows = rows;
	build_begin(&build, &shape, max_bytes, error);
	for (uint32_t r = 0; r < table->n_sequences && build.status == PAGED_OK; r++)
		place_row(&build, logical, table, r, &division);
	free(rows);
	status = build_finish(&build, mask_p);
	if (status == PAGED_OK)
		(*mask_p)->ascending = false; /* pages are in arbitrary order */
	return status;
}
