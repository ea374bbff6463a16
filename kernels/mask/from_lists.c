/* SPDX-License-Identifier: Apache-2.0 */
/* Masks from lists, or from PyTorch's arrays, that a caller made: checked and copied. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/builder.h"

/* Scratch memory to check the blocks of one query block. */
struct given {
	uint32_t *sorted;
	uint64_t room;
};

static const char *const kind_names[BLOCK_MASK_N_KINDS] = { "partial", "full" };
const char *const build_array_names[BLOCK_MASK_N_KINDS] = { "kv_indices", "full_kv_indices" };

static int
compare_blocks(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void
check_twice(struct build *build, struct given *given, const struct build_place *place,
	    const struct block_mask_list *lists)
{
	const struct block_mask_list *partial = &lists[BLOCK_MASK_PARTIAL], *full = &lists[BLOCK_MASK_FULL];
	uint64_t n = partial->n + full->n;

	if (n > given->room) {
		uint32_t *sorted = realloc(given->sorted, n * sizeof(*sorted));

		if (sorted == NULL) {
			build_fail(build, PAGED_ERR_NOMEM,
				   "block mask: no memory to check a list of %" PRIu64 " blocks", n);
			return;
		}
		given->sorted = sorted;
		given->room = n;
	}
	if (partial->n != 0)
		memcpy(given->sorted, partial->blocks, partial->n * sizeof(uint32_t));
	if (full->n != 0)
		memcpy(given->sorted + partial->n, full->blocks, full->n * sizeof(uint32_t));
	if (block_mask_list_ascends(given->sorted, n))
		return;
	qsort(given->sorted, n, sizeof(uint32_t), compare_blocks);
	for (uint64_t i = 1; i < n; i++)
		if (given->sorted[i] == given->sorted[i - 1]) {
			build_fail(build, PAGED_ERR_INVALID,
				   "block mask: " BUILD_PLACE ": block %" PRIu32 " is named twice",
				   BUILD_PLACE_OF(place), given->sorted[i]);
			return;
		}
}

/* Appends the lists of a query block after checking them. */
static void
take_lists(struct build *build, struct given *given, const struct build_place *place,
	   const struct block_mask_list lists[BLOCK_MASK_N_KINDS])
{
	const struct block_mask_shape *shape = &build->mask->shape;
	const uint64_t n_blocks = block_mask_kv_blocks(build->mask, place->row);
	const struct build_source source = {
		.list = { lists[BLOCK_MASK_PARTIAL], lists[BLOCK_MASK_FULL] },
		.n_parts = 1,
		.cut = build_cut(shape, &shape->rows[place->row], place->q_block),
	};

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		for (uint64_t i = 0; i < lists[kind].n; i++)
			if (lists[kind].blocks[i] >= n_blocks)
				build_fail(build, PAGED_ERR_RANGE,
					   "block mask: " BUILD_PLACE ": %s block %" PRIu32 " of %" PRIu64 " KV blocks",
					   BUILD_PLACE_OF(place), kind_names[kind], lists[kind].blocks[i], n_blocks);
	check_twice(build, given, place, lists);
	build_copy(build, &source);
}

static enum paged_status
given_finish(struct build *build, struct given *given, struct block_mask **mask_p)
{
	enum paged_status status = build_finish(build, mask_p);

	free(given->sorted);
	if (status == PAGED_OK)
		block_mask_judge(*mask_p);
	return status;
}

enum paged_status
block_mask_from_lists(const struct block_mask_shape *shape, const struct block_mask_lists *lists, uint64_t n_lists,
		      uint64_t max_bytes, struct block_mask **mask_p, struct paged_error *error)
{
	uint64_t at[BLOCK_MASK_N_KINDS] = { 0 };
	struct given given = { .room = 0 };
	struct build_place place;
	struct build build;

	build_begin(&build, shape, max_bytes, error);
	if (n_lists != build.n_lists)
		build_fail(&build, PAGED_ERR_INVALID, "block mask: %" PRIu64 " lists given, the shape has %" PRIu64,
			   n_lists, build.n_lists);
	for (bool more = build_first(&build, &place); more; more = build_next(&build, &place)) {
		struct block_mask_list list[BLOCK_MASK_N_KINDS] = { 0 };

		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
			const uint32_t *n_blocks = lists->n_blocks[kind];
			uint64_t n = n_blocks != NULL ? n_blocks[build.n_ended] : 0;
			uint64_t left = lists->n_indices[kind] - at[kind];

			if (n > left)
				build_fail(&build, PAGED_ERR_INVALID,
					   "block mask: " BUILD_PLACE ": %" PRIu64 " %s blocks, but %" PRIu64
					   " of %" PRIu64 " indices are left",
					   BUILD_PLACE_OF(&place), n, kind_names[kind], left, lists->n_indices[kind]);
			else if (n != 0)
				list[kind] = (struct block_mask_list){ lists->indices[kind] + at[kind], n };
			at[kind] += list[kind].n;
		}
		take_lists(&build, &given, &place, list);
	}
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		if (at[kind] != lists->n_indices[kind])
			build_fail(&build, PAGED_ERR_INVALID,
				   "block mask: the lists have %" PRIu64 " %s blocks, %" PRIu64 " indices given",
				   at[kind], kind_names[kind], lists->n_indices[kind]);
	return given_finish(&build, &given, mask_p);
}

/* One list of PyTorch's arrays. */
static struct block_mask_list
array_list(struct build *build, const struct block_mask_arrays *arrays, enum block_mask_kind kind)
{
	const uint64_t i = build->n_ended, width = arrays->width[kind];
	int32_t n = arrays->num_blocks[kind] != NULL ? arrays->num_blocks[kind][i] : 0;
	const int32_t *indices = n != 0 ? arrays->indices[kind] + i * width : NULL;

	if (n < 0 || (uint64_t)n > width) {
		build_fail(build, PAGED_ERR_INVALID,
			   "block mask: list %" PRIu64 " has %" PRId32 " blocks, %s is %" PRIu64 " wide", i, n,
			   build_array_names[kind], width);
		n = 0;
	}
	for (int32_t j = 0; j < n; j++)
		if (indices[j] < 0)
			build_fail(build, PAGED_ERR_RANGE, "block mask: list %" PRIu64 " of %s names block %" PRId32, i,
				   build_array_names[kind], indices[j]);
	return (struct block_mask_list){ (const uint32_t *)indices, (uint64_t)n };
}

enum paged_status
block_mask_from_arrays(const struct block_mask_shape *shape, const struct block_mask_arrays *arrays, uint64_t max_bytes,
		       struct block_mask **mask_p, struct paged_error *error)
{
	struct given given = { .room = 0 };
	struct build_place place;
	struct build build;

	build_begin(&build, shape, max_bytes, error);
	for (uint32_t r = 1; r < shape->n_rows; r++)
		if (shape->rows[r].q_len != shape->rows[0].q_len)
			build_fail(&build, PAGED_ERR_INVALID,
				   "block mask: rows 0 and %" PRIu32 " have %" PRIu64 " and %" PRIu64
				   " query rows: no rectangle",
				   r, shape->rows[0].q_len, shape->rows[r].q_len);
	for (bool more = build_first(&build, &place); more; more = build_next(&build, &place)) {
		const struct block_mask_list list[BLOCK_MASK_N_KINDS] = {
			array_list(&build, arrays, BLOCK_MASK_PARTIAL), array_list(&build, arrays, BLOCK_MASK_FULL)
		};

		take_lists(&build, &given, &place, list);
	}
	return given_finish(&build, &given, mask_p);
}
