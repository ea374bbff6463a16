/* SPDX-License-Identifier: Apache-2.0 */
/* Logical blocks to where they lie, and back. */
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/mask/build.h"

#define CHECK_STEP 16u

/* How KV blocks and pages divide; the finer of the two becomes the block. */
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

/* Where a page at or past the pool's end may first come: steps that the compiler does by vectors have none. */
static uint64_t
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

/* Every page that the row's keys lie in is there, and is one of the pool's. */
static enum paged_status
check_sequence(const struct block_mask_table *table, uint32_t s, const struct block_mask_sequence *sequence,
	       uint64_t kv_len, struct paged_error *error)
{
	uint64_t n_pages = sequence->kv_len / table->page_size + (sequence->kv_len % table->page_size != 0);

	if (n_pages > sequence->n_pages)
		return paged_fail(error, PAGED_ERR_CAPACITY,
				  "block mask: row %" PRIu32 ": %" PRIu64 " tokens need %" PRIu64 " pages of %" PRIu32
				  ", its sequence has %" PRIu64,
				  s, sequence->kv_len, n_pages, table->page_size, sequence->n_pages);
	n_pages = kv_len / table->page_size + (kv_len % table->page_size != 0);
	for (uint64_t i = first_alien(sequence->pages, n_pages, table->n_pages); i < n_pages; i++)
		if (sequence->pages[i] >= table->n_pages)
			return paged_fail(error, PAGED_ERR_RANGE,
					  "block mask: row %" PRIu32 ": logical page %" PRIu64 " is page %" PRIu32
					  " of a pool of %" PRIu32,
					  s, i, sequence->pages[i], table->n_pages);
	return PAGED_OK;
}

static uint64_t
shorter(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static enum paged_status
take_sequence(const struct block_mask_table *table, uint32_t s, struct block_mask_sequence *sequence,
	      struct paged_error *error)
{
	if (table->sequences == NULL)
		return table->read(table->context, s, sequence, error);
	*sequence = table->sequences[s];
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

	build->status = take_sequence(table, r, &sequence, build->error);
	if (build->status != PAGED_OK)
		return;
	row.kv_len = shorter(from->kv_len, sequence.kv_len);
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

/* The rows of a result: the mask's, one a sequence; kv_len by `lengths`, or the whole pool. */
static enum paged_status
make_rows(const struct block_mask *mask, const struct block_mask_table *table, bool whole_pool,
	  struct block_mask_row **rows_p, struct paged_error *error)
{
	struct block_mask_row *rows;

	if (mask->shape.n_rows != 1 && mask->shape.n_rows != table->n_sequences)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: %" PRIu32 " rows for %" PRIu32 " sequences",
				  mask->shape.n_rows, table->n_sequences);
	rows = calloc((size_t)table->n_sequences + 1, sizeof(*rows));
	if (rows == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows",
				  table->n_sequences);
	for (uint32_t s = 0; s < table->n_sequences; s++) {
		rows[s] = mask->shape.rows[mask->shape.n_rows == 1 ? 0 : s];
		rows[s].kv_len = whole_pool ? (uint64_t)table->n_pages * table->page_size : table->sequences[s].kv_len;
	}
	*rows_p = rows;
	return PAGED_OK;
}

enum paged_status
block_mask_to_physical(const struct block_mask *logical, const struct block_mask_table *table, uint64_t max_bytes,
		       struct block_mask **mask_p, struct paged_error *error)
{
	struct block_mask_shape shape = logical->shape;
	struct block_mask_row *rows = NULL;
	struct division division = { 0 };
	enum paged_status status;
	struct build build;

	status = divide(shape.kv_block, table->page_size, &division, error);
	if (status == PAGED_OK)
		status = make_rows(logical, table, true, &rows, error);
	if (status != PAGED_OK)
		return status;
	shape.n_rows = table->n_sequences;
	shape.kv_block = division.kv_block;
	shape.rows = rows;
	build_begin(&build, &shape, max_bytes, error);
	for (uint32_t r = 0; r < table->n_sequences && build.status == PAGED_OK; r++)
		place_row(&build, logical, table, r, &division);
	free(rows);
	status = build_finish(&build, mask_p);
	if (status == PAGED_OK)
		(*mask_p)->ascending = false; /* pages lie anywhere */
	return status;
}

/* What finds a sequence's logical page by its physical one. */
struct finder {
	const struct block_mask_table *table;
	uint32_t page_blocks;
	uint32_t *logical;                    /* [pool's pages] logical page + 1, or 0 */
	uint32_t *blocks[BLOCK_MASK_N_KINDS]; /* room for the longest list */
};

static enum paged_status
finder_open(struct finder *finder, const struct block_mask *mask, const struct block_mask_table *table,
	    uint32_t page_blocks, struct paged_error *error)
{
	*finder = (struct finder){ .table = table, .page_blocks = page_blocks };
	finder->logical = calloc((size_t)table->n_pages + 1, sizeof(uint32_t));
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		finder->blocks[kind] = calloc(block_mask_width(mask, kind) + 1, sizeof(uint32_t));
	if (finder->logical == NULL || finder->blocks[BLOCK_MASK_PARTIAL] == NULL ||
	    finder->blocks[BLOCK_MASK_FULL] == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory to find %" PRIu32 " pages",
				  table->n_pages);
	return PAGED_OK;
}

static void
finder_close(struct finder *finder)
{
	free(finder->logical);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		free(finder->blocks[kind]);
}

/* The pages of a sequence; those that it does not need may be unmapped. */
static void
finder_enter(struct finder *finder, struct build *build, uint32_t s)
{
	const struct block_mask_sequence *sequence = &finder->table->sequences[s];

	build->status = check_sequence(finder->table, s, sequence, sequence->kv_len, build->error);
	if (build->status != PAGED_OK)
		return;
	for (uint64_t i = 0; i < sequence->n_pages; i++) {
		uint32_t page = sequence->pages[i];

		if (page >= finder->table->n_pages)
			continue;
		if (finder->logical[page] != 0)
			build_fail(build, PAGED_ERR_INVALID,
				   "block mask: row %" PRIu32 ": its sequence has page %" PRIu32 " twice", s, page);
		finder->logical[page] = (uint32_t)i + 1;
	}
}

static void
finder_leave(struct finder *finder, uint32_t s)
{
	const struct block_mask_sequence *sequence = &finder->table->sequences[s];

	for (uint64_t i = 0; i < sequence->n_pages; i++)
		if (sequence->pages[i] < finder->table->n_pages)
			finder->logical[sequence->pages[i]] = 0;
}

static struct block_mask_list
finder_list(struct finder *finder, struct build *build, const struct build_place *place, enum block_mask_kind kind,
	    struct block_mask_list list)
{
	for (uint64_t i = 0; i < list.n; i++) {
		uint32_t page = list.blocks[i] / finder->page_blocks;
		uint32_t logical = page < finder->table->n_pages ? finder->logical[page] : 0;

		if (logical == 0) {
			build_fail(build, PAGED_ERR_RANGE,
				   "block mask: " BUILD_PLACE ": block %" PRIu32 " lies in page %" PRIu32
				   ", which is not the sequence's",
				   BUILD_PLACE_OF(place), list.blocks[i], page);
			return (struct block_mask_list){ 0 };
		}
		finder->blocks[kind][i] = (logical - 1) * finder->page_blocks + list.blocks[i] % finder->page_blocks;
	}
	return (struct block_mask_list){ finder->blocks[kind], list.n };
}

static void
find_row(struct build *build, struct finder *finder, const struct block_mask *physical, uint32_t r)
{
	struct build_place place = { .row = r };

	finder_enter(finder, build, r);
	for (place.head = 0; place.head < physical->shape.n_heads; place.head++)
		for (place.q_block = 0; place.q_block < block_mask_q_blocks(build->mask, r); place.q_block++) {
			struct build_source source = { .n_parts = 1 };

			for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
				source.list[kind] =
					finder_list(finder, build, &place, kind,
						    block_mask_list(physical, kind, r, place.head, place.q_block));
			source.cut = build_cut(&build->mask->shape, &build->mask->shape.rows[r], place.q_block);
			build_copy(build, &source);
			if (build->status != PAGED_OK)
				return;
		}
	finder_leave(finder, r);
}

enum paged_status
block_mask_to_logical(const struct block_mask *physical, const struct block_mask_table *table, uint64_t max_bytes,
		      struct block_mask **mask_p, struct paged_error *error)
{
	struct block_mask_shape shape = physical->shape;
	struct block_mask_row *rows = NULL;
	enum paged_status status;
	struct finder finder;
	struct build build;

	if (table->page_size == 0 || table->page_size % shape.kv_block != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "block mask: KV blocks of %" PRIu32 " tokens do not divide pages of %" PRIu32,
				  shape.kv_block, table->page_size);
	status = make_rows(physical, table, false, &rows, error);
	if (status != PAGED_OK)
		return status;
	status = finder_open(&finder, physical, table, table->page_size / shape.kv_block, error);
	if (status == PAGED_OK) {
		shape.n_rows = table->n_sequences;
		shape.rows = rows;
		build_begin(&build, &shape, max_bytes, error);
		for (uint32_t r = 0; r < table->n_sequences && build.status == PAGED_OK; r++)
			find_row(&build, &finder, physical, r);
		status = build_finish(&build, mask_p);
		if (status == PAGED_OK)
			block_mask_judge(*mask_p);
	}
	finder_close(&finder);
	free(rows);
	return status;
}
