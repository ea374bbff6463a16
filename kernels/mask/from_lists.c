/* SPDX-License-Identifier: Apache-2.0 */
/* Masks from lists, or from PyTorch's arrays, that a caller made: checked and copied. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/builder.h"

/* Scratch memory to check the blocks of one query block. */
struct list_scratch {
	uint32_t *sorted;
	uint64_t room;
};

static const char *const kind_names[BLOCK_MASK_N_KINDS] = { "partial", "full" };
const char *const mask_array_names[BLOCK_MASK_N_KINDS] = { "kv_indices", "full_kv_indices" };

static int
compare_blocks(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void
check_duplicates(struct mask_builder *builder, struct list_scratch *scratch, const struct mask_position *position,
		 const struct block_mask_list *lists)
{
	const struct block_mask_list *partial = &lists[BLOCK_MASK_PARTIAL], *full = &lists[BLOCK_MASK_FULL];
	uint64_t n = partial->n + full->n;

	if (n > scratch->room) {
		uint32_t *sorted = realloc(scratch->sorted, n * sizeof(*sorted));

		if (sorted == NULL) {
			mask_builder_fail(builder, PAGED_ERR_NOMEM,
					  "block mask: no memory to check a list of %" PRIu64 " blocks", n);
			return;
		}
		scratch->sorted = sorted;
		scratch->room = n;
	}
	if (partial->n != 0)
		memcpy(scratch->sorted, partial->blocks, partial->n * sizeof(uint32_t));
	if (full->n != 0)
		memcpy(scratch->sorted + partial->n, full->blocks, full->n * sizeof(uint32_t));
	if (block_mask_list_ascends(scratch->sorted, n))
		return;
	qsort(scratch->sorted, n, sizeof(uint32_t), compare_blocks);
	for (uint64_t i = 1; i < n; i++)
		if (scratch->sorted[i] == scratch->sorted[i - 1]) {
			mask_builder_fail(builder, PAGED_ERR_INVALID,
					  "block mask: " MASK_POSITION_FORMAT ": block %" PRIu32 " is named twice",
					  MASK_POSITION_ARGS(position), scratch->sorted[i]);
			return;
		}
}

/* Appends the lists of a query block after checking them. */
static void
append_checked_lists(struct mask_builder *builder, struct list_scratch *scratch, const struct mask_position *position,
		     const struct block_mask_list lists[BLOCK_MASK_N_KINDS])
{
	const struct block_mask_shape *shape = &builder->mask->shape;
	const uint64_t n_blocks = block_mask_kv_blocks(builder->mask, position->row);
	const struct mask_copy_source source = {
		.list = { lists[BLOCK_MASK_PARTIAL], lists[BLOCK_MASK_FULL] },
		.n_parts = 1,
		.clip = mask_clip(shape, &shape->rows[position->row], position->q_block),
	};

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		for (uint64_t i = 0; i < lists[kind].n; i++)
			if (lists[kind].blocks[i] >= n_blocks)
				mask_builder_fail(builder, PAGED_ERR_RANGE,
						  "block mask: " MASK_POSITION_FORMAT ": %s block %" PRIu32
						  " of %" PRIu64 " KV blocks",
						  MASK_POSITION_ARGS(position), kind_names[kind], lists[kind].blocks[i],
						  n_blocks);
	check_duplicates(builder, scratch, position, lists);
	mask_builder_copy_clipped(builder, &source);
}

static enum paged_status
checked_lists_finish(struct mask_builder *builder, struct list_scratch *scratch, struct block_mask **mask_p)
{
	enum paged_status status = mask_builder_finish(builder, mask_p);

	free(scratch->sorted);
	if (status == PAGED_OK)
		block_mask_set_ascending(*mask_p);
	return status;
}

enum paged_status
block_mask_from_lists(const struct block_mask_shape *shape, const struct block_mask_lists *lists, uint64_t n_lists,
		      uint64_t max_bytes, struct block_mask **mask_p, struct paged_error *error)
{
	uint64_t at[BLOCK_MASK_N_KINDS] = { 0 };
	struct list_scratch scratch = { .room = 0 };
	struct mask_position position;
	struct mask_builder builder;

	mask_builder_begin(&builder, shape, max_bytes, error);
	if (n_lists != builder.n_lists)
		mask_builder_fail(&builder, PAGED_ERR_INVALID,
				  "block mask: %" PRIu64 " lists given, the shape has %" PRIu64, n_lists,
				  builder.n_lists);
	for (bool more = mask_builder_first_list(&builder, &position); more;
	     more = mask_builder_next_list(&builder, &position)) {
		struct block_mask_list list[BLOCK_MASK_N_KINDS] = { 0 };

		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
			const uint32_t *n_blocks = lists->n_blocks[kind];
			uint64_t n = n_blocks != NULL ? n_blocks[builder.n_ended] : 0;
			uint64_t left = lists->n_indices[kind] - at[kind];

			if (n > left)
				mask_builder_fail(&builder, PAGED_ERR_INVALID,
						  "block mask: " MASK_POSITION_FORMAT ": %" PRIu64
						  " %s blocks, but %" PRIu64 " of %" PRIu64 " indices are left",
						  MASK_POSITION_ARGS(&position), n, kind_names[kind], left,
						  lists->n_indices[kind]);
			else if (n != 0)
				list[kind] = (struct block_mask_list){ lists->indices[kind] + at[kind], n };
			at[kind] += list[kind].n;
		}
		append_checked_lists(&builder, &scratch, &position, list);
	}
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		if (at[kind] != lists->n_indices[kind])
			mask_builder_fail(&builder, PAGED_ERR_INVALID,
					  "block mask: the lists have %" PRIu64 " %s blocks, %" PRIu64 " indices given",
					  at[kind], kind_names[kind], lists->n_indices[kind]);
	return checked_lists_finish(&builder, &scratch, mask_p);
}

/* One list of PyTorch's arrays. */
static struct block_mask_list
arrays_get_list(struct mask_builder *builder, const struct block_mask_arrays *arrays, enum block_mask_kind kind)
{
	const uint64_t i = builder->n_ended, width = arrays->width[kind];
	int32_t n = arrays->num_blocks[kind] != NULL ? arrays->num_blocks[kind][i] : 0;
	const int32_t *indices = n != 0 ? arrays->indices[kind] + i * width : NULL;

	if (n < 0 || (uint64_t)n > width) {
		mask_builder_fail(builder, PAGED_ERR_INVALID,
				  "block mask: list %" PRIu64 " has %" PRId32 " blocks, %s is %" PRIu64 " wide", i, n,
				  mask_array_names[kind], width);
		n = 0;
	}
	for (int32_t j = 0; j < n; j++)
		if (indices[j] < 0)
			mask_builder_fail(builder, PAGED_ERR_RANGE,
					  "block mask: list %" PRIu64 " of %s names block %" PRId32, i,
					  mask_array_names[kind], indices[j]);
	return (struct block_mask_list){ (const uint32_t *)indices, (uint64_t)n };
}

enum paged_status
block_mask_from_arrays(const struct block_mask_shape *shape, const struct block_mask_arrays *arrays, uint64_t max_bytes,
		       struct block_mask **mask_p, struct paged_error *error)
{
	struct list_scratch scratch = { .room = 0 };
	struct mask_position position;
	struct mask_builder builder;

	mask_builder_begin(&builder, shape, max_bytes, error);
	for (uint32_t r = 1; r < shape->n_rows; r++)
		if (shape->rows[r].q_len != shape->rows[0].q_len)
			mask_builder_fail(&builder, PAGED_ERR_INVALID,
					  "block mask: rows 0 and %" PRIu32 " have %" PRIu64 " and %" PRIu64
					  " query rows: no rectangle",
					  r, shape->rows[0].q_len, shape->rows[r].q_len);
	for (bool more = mask_builder_first_list(&builder, &position); more;
	     more = mask_builder_next_list(&builder, &position)) {
		const struct block_mask_list list[BLOCK_MASK_N_KINDS] = {
			arrays_get_list(&builder, arrays, BLOCK_MASK_PARTIAL),
			arrays_get_list(&builder, arrays, BLOCK_MASK_FULL)
		};

		append_checked_lists(&builder, &scratch, &position, list);
	}
	return checked_lists_finish(&builder, &scratch, mask_p);
}
