/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a mask, and its transpose. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/builder.h"

/* The query rows of a row from first_q on, limited to the lengths and to keys from kv_first on. */
static struct block_mask_row
select_row(const struct block_mask_row *row, uint64_t first_q, uint64_t q_len, uint64_t kv_first, uint64_t kv_len)
{
	uint64_t rest = row->q_len > first_q ? row->q_len - first_q : 0;

	kv_len = mask_min(row->kv_len, kv_len);

	return (struct block_mask_row){
		.q_base = row->q_base + (int64_t)(row->q_len > first_q ? first_q : row->q_len),
		.q_len = rest < q_len ? rest : q_len,
		.kv_len = kv_len,
		.kv_first = mask_min(mask_max(row->kv_first, kv_first), kv_len),
	};
}

static bool
mask_clip_equal(struct mask_clip a, struct mask_clip b)
{
	return a.n_dropped == b.n_dropped && a.first_unclipped == b.first_unclipped && a.n_unclipped == b.n_unclipped &&
	       a.n_blocks == b.n_blocks;
}

static void
select_lists(struct mask_builder *builder, const struct block_mask *mask, const struct block_mask_selection *selection)
{
	uint64_t first_q_block = selection->first_q / mask->shape.q_block;
	struct mask_position position;

	for (bool more = mask_builder_first_list(builder, &position); more;
	     more = mask_builder_next_list(builder, &position)) {
		uint32_t row = selection->first_row + position.row;
		uint64_t q_block = first_q_block + position.q_block;
		struct mask_copy_source source = { .n_parts = 1 };

		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
			source.list[kind] =
				block_mask_list(mask, kind, row, selection->first_head + position.head, q_block);
		source.clip =
			mask_clip(&builder->mask->shape, &builder->mask->shape.rows[position.row], position.q_block);
		row = mask->shape.n_rows == 1 ? 0 : row;
		if (mask_clip_equal(source.clip, mask_clip(&mask->shape, &mask->shape.rows[row], q_block)))
			mask_builder_copy(builder, source.list);
		else
			mask_builder_copy_clipped(builder, &source);
	}
}

/* Copies the lists of a selection over new rows, and frees `rows`. */
static enum paged_status
select_over_rows(const struct block_mask *mask, const struct block_mask_selection *selection,
		 struct block_mask_row *rows, struct block_mask **mask_p, struct paged_error *error)
{
	struct block_mask_shape shape = mask->shape;
	enum paged_status status;
	struct mask_builder builder;

	shape.n_rows = selection->n_rows;
	shape.n_heads = selection->n_heads;
	shape.rows = rows;
	mask_builder_begin(&builder, &shape, UINT64_MAX, error);
	select_lists(&builder, mask, selection);
	free(rows);
	status = mask_builder_finish(&builder, mask_p);
	if (status == PAGED_OK)
		(*mask_p)->ascending = mask->ascending;
	return status;
}

static struct block_mask_row *
rows_alloc(uint32_t n, struct paged_error *error)
{
	struct block_mask_row *rows = calloc((size_t)n + 1, sizeof(*rows));

	if (rows == NULL)
		paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows", n);
	return rows;
}

/* Copies a checked selection, whose numbers are within the mask. */
static enum paged_status
select_checked(const struct block_mask *mask, const struct block_mask_selection *selection, uint64_t kv_len,
	       struct block_mask **mask_p, struct paged_error *error)
{
	struct block_mask_row *rows = rows_alloc(selection->n_rows, error);

	if (rows == NULL)
		return PAGED_ERR_NOMEM;
	for (uint32_t r = 0; r < selection->n_rows; r++)
		rows[r] = select_row(&mask->shape.rows[selection->first_row + r], selection->first_q, selection->n_q, 0,
				     kv_len);
	return select_over_rows(mask, selection, rows, mask_p, error);
}

/* Resolves *n of UINT32_MAX to the rest of the range; false if the range is empty or exceeds `total`. */
static bool
range_fits(uint32_t first, uint32_t *n, uint32_t total)
{
	if (first >= total || *n == 0)
		return false;
	if (*n == UINT32_MAX)
		*n = total - first;
	return *n <= total - first;
}

enum paged_status
block_mask_select(const struct block_mask *mask, const struct block_mask_selection *selection,
		  struct block_mask **mask_p, struct paged_error *error)
{
	struct block_mask_selection fitted = *selection;

	if (!range_fits(selection->first_row, &fitted.n_rows, mask->shape.n_rows))
		return paged_fail(error, PAGED_ERR_RANGE,
				  "block mask: %" PRIu32 " rows from %" PRIu32 " on, of %" PRIu32, selection->n_rows,
				  selection->first_row, mask->shape.n_rows);
	if (!range_fits(selection->first_head, &fitted.n_heads, mask->shape.n_heads))
		return paged_fail(error, PAGED_ERR_RANGE,
				  "block mask: %" PRIu32 " heads from %" PRIu32 " on, of %" PRIu32, selection->n_heads,
				  selection->first_head, mask->shape.n_heads);
	if (selection->first_q % mask->shape.q_block != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "block mask: query row %" PRIu64 " is inside a query block of %" PRIu32,
				  selection->first_q, mask->shape.q_block);
	return select_checked(mask, &fitted, UINT64_MAX, mask_p, error);
}

enum paged_status
block_mask_crop(const struct block_mask *mask, uint64_t q_len, uint64_t kv_len, struct block_mask **mask_p,
		struct paged_error *error)
{
	const struct block_mask_selection all = { .n_rows = mask->shape.n_rows,
						  .n_heads = mask->shape.n_heads,
						  .n_q = q_len };

	return select_checked(mask, &all, kv_len, mask_p, error);
}

enum paged_status
block_mask_over_rows(const struct block_mask *mask, uint32_t n_rows, const uint64_t *kv_first, const uint64_t *kv_len,
		     struct block_mask **mask_p, struct paged_error *error)
{
	const struct block_mask_selection all = { .n_rows = n_rows, .n_heads = mask->shape.n_heads };
	bool one = mask->shape.n_rows == 1;
	struct block_mask_row *rows;

	if (!one && mask->shape.n_rows != n_rows)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: %" PRIu32 " rows for a mask of %" PRIu32,
				  n_rows, mask->shape.n_rows);
	rows = rows_alloc(n_rows, error);
	if (rows == NULL)
		return PAGED_ERR_NOMEM;
	for (uint32_t r = 0; r < n_rows; r++)
		rows[r] = select_row(&mask->shape.rows[one ? 0 : r], 0, UINT64_MAX, kv_first[r], kv_len[r]);
	return select_over_rows(mask, &all, rows, mask_p, error);
}

/* Index of the list of (row, head, KV block) in the transposed mask. */
static uint64_t
transposed_list(const struct block_mask *transposed, const struct mask_position *position, uint32_t block)
{
	return transposed->first_list[position->row] + position->head * block_mask_q_blocks(transposed, position->row) +
	       block;
}

/* Fills in the transposed lists of a kind, for which memory is reserved. */
static void
transpose_lists(const struct block_mask *mask, struct block_mask *transposed, enum block_mask_kind kind,
		uint64_t n_lists)
{
	uint64_t *start = transposed->start[kind];
	struct mask_position position;

	for (bool more = mask_position_first(mask, &position); more; more = mask_position_next(mask, &position)) {
		struct block_mask_list list =
			block_mask_list(mask, kind, position.row, position.head, position.q_block);

		for (uint64_t i = 0; i < list.n; i++)
			start[transposed_list(transposed, &position, list.blocks[i]) + 1]++;
	}
	for (uint64_t i = 0; i < n_lists; i++)
		start[i + 1] += start[i];
	/* While a list is filled, its start advances to where the next list begins. */
	for (bool more = mask_position_first(mask, &position); more; more = mask_position_next(mask, &position)) {
		struct block_mask_list list =
			block_mask_list(mask, kind, position.row, position.head, position.q_block);

		for (uint64_t i = 0; i < list.n; i++)
			transposed->indices[kind][start[transposed_list(transposed, &position, list.blocks[i])]++] =
				(uint32_t)position.q_block;
	}
	memmove(start + 1, start, n_lists * sizeof(*start));
	start[0] = 0;
}

enum paged_status
block_mask_transpose(const struct block_mask *mask, uint64_t max_bytes, struct block_mask **mask_p,
		     struct paged_error *error)
{
	struct block_mask_row *rows = rows_alloc(mask->shape.n_rows, error);
	struct block_mask_shape shape = mask->shape;
	struct mask_builder builder;

	if (rows == NULL)
		return PAGED_ERR_NOMEM;
	for (uint32_t r = 0; r < mask->shape.n_rows; r++)
		rows[r] = (struct block_mask_row){ .q_base = mask->shape.rows[r].q_base,
						   .q_len = mask->shape.rows[r].kv_len,
						   .kv_len = mask->shape.rows[r].q_len };
	shape.q_block = mask->shape.kv_block;
	shape.kv_block = mask->shape.q_block;
	shape.rows = rows;
	mask_builder_begin(&builder, &shape, max_bytes, error);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS && builder.status == PAGED_OK; kind++) {
		builder.n[kind] = mask->start[kind][mask->first_list[mask->shape.n_rows]];
		if (mask_builder_reserve(&builder, kind, 0))
			transpose_lists(mask, builder.mask, kind, builder.n_lists);
	}
	builder.n_ended = builder.n_lists;
	free(rows);
	return mask_builder_finish(&builder, mask_p);
}
