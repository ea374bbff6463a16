/* SPDX-License-Identifier: Apache-2.0 */
/* Masks from given lists, and what can be asked of a mask. */
#include "kernels/mask/mask.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/build.h"

void
block_mask_destroy(struct block_mask *mask)
{
	struct mask_memory *memory;

	if (mask == NULL)
		return;
	memory = mask->shape.memory;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		mask_memory_free(memory, mask->start[kind]);
		mask_memory_free(memory, mask->indices[kind]);
	}
	mask_memory_free(memory, mask->first_list);
	mask_memory_free(memory, (void *)mask->shape.rows);
	free(mask);
}

static uint64_t
count_lists(const struct block_mask *mask)
{
	return mask->first_list[mask->shape.n_rows];
}

/* Lists that were given, and the checks of one after another. */
struct given {
	const struct block_mask_lists *lists;
	uint64_t at[BLOCK_MASK_N_KINDS];
	uint32_t *sorted; /* room for the blocks of one query block */
	uint64_t room;
};

static const char *const kind_names[BLOCK_MASK_N_KINDS] = { "partial", "full" };

static void
check_range(struct build *build, const struct build_place *place, enum block_mask_kind kind,
	    const struct block_mask_list *list)
{
	uint64_t n_blocks = block_mask_kv_blocks(build->mask, place->row);

	for (uint64_t i = 0; i < list->n; i++)
		if (list->blocks[i] >= n_blocks) {
			build_fail(build, PAGED_ERR_RANGE,
				   "block mask: " BUILD_PLACE ": %s block %" PRIu32 " of %" PRIu64 " KV blocks",
				   BUILD_PLACE_OF(place), kind_names[kind], list->blocks[i], n_blocks);
			return;
		}
}

static int
compare_blocks(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static bool
ascends(const uint32_t *blocks, uint64_t n)
{
	for (uint64_t i = 1; i < n; i++)
		if (blocks[i] <= blocks[i - 1])
			return false;
	return true;
}

void
block_mask_judge(struct block_mask *mask)
{
	uint64_t n = count_lists(mask);

	mask->ascending = true;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		const uint64_t *start = mask->start[kind];

		for (uint64_t i = 0; mask->ascending && i < n; i++)
			mask->ascending = ascends(mask->indices[kind] + start[i], start[i + 1] - start[i]);
	}
}

static bool
make_room(struct build *build, struct given *given, uint64_t n)
{
	uint32_t *sorted;

	if (n <= given->room)
		return true;
	sorted = realloc(given->sorted, n * sizeof(*sorted));
	if (sorted == NULL) {
		build_fail(build, PAGED_ERR_NOMEM, "block mask: no memory to check a list of %" PRIu64 " blocks", n);
		return false;
	}
	given->sorted = sorted;
	given->room = n;
	return true;
}

static void
check_twice(struct build *build, struct given *given, const struct build_place *place,
	    const struct block_mask_list *lists)
{
	const struct block_mask_list *partial = &lists[BLOCK_MASK_PARTIAL], *full = &lists[BLOCK_MASK_FULL];
	uint64_t n = partial->n + full->n;

	if (n == 0 || !make_room(build, given, n))
		return;
	if (partial->n != 0)
		memcpy(given->sorted, partial->blocks, partial->n * sizeof(uint32_t));
	if (full->n != 0)
		memcpy(given->sorted + partial->n, full->blocks, full->n * sizeof(uint32_t));
	if (ascends(given->sorted, n))
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

static void
take_list(struct build *build, struct given *given, const struct build_place *place)
{
	const struct block_mask_row *row = &build->mask->shape.rows[place->row];
	struct build_source source = { .n_parts = 1, .cut = build_cut(&build->mask->shape, row, place->q_block) };

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		const uint32_t *n_blocks = given->lists->n_blocks[kind];
		uint64_t n = n_blocks != NULL ? n_blocks[build->n_ended] : 0;

		if (n > given->lists->n_indices[kind] - given->at[kind]) {
			build_fail(build, PAGED_ERR_INVALID,
				   "block mask: " BUILD_PLACE ": %" PRIu64 " %s blocks, but %" PRIu64 " of %" PRIu64
				   " indices are left",
				   BUILD_PLACE_OF(place), n, kind_names[kind],
				   given->lists->n_indices[kind] - given->at[kind], given->lists->n_indices[kind]);
			return;
		}
		if (n != 0)
			source.list[kind] =
				(struct block_mask_list){ given->lists->indices[kind] + given->at[kind], n };
		given->at[kind] += n;
		check_range(build, place, kind, &source.list[kind]);
	}
	check_twice(build, given, place, source.list);
	build_copy(build, &source);
}

enum paged_status
block_mask_from_lists(const struct block_mask_shape *shape, const struct block_mask_lists *lists, uint64_t n_lists,
		      uint64_t max_bytes, struct block_mask **mask_p, struct paged_error *error)
{
	struct given given = { .lists = lists };
	struct build_place place;
	enum paged_status status;
	struct build build;

	build_begin(&build, shape, max_bytes, error);
	if (n_lists != build.n_lists)
		build_fail(&build, PAGED_ERR_INVALID, "block mask: %" PRIu64 " lists given, the shape has %" PRIu64,
			   n_lists, build.n_lists);
	if (build.status == PAGED_OK && build_place_first(build.mask, &place)) {
		do
			take_list(&build, &given, &place);
		while (build.status == PAGED_OK && build_place_next(build.mask, &place));
	}
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		if (given.at[kind] != lists->n_indices[kind])
			build_fail(&build, PAGED_ERR_INVALID,
				   "block mask: the lists have %" PRIu64 " %s blocks, %" PRIu64 " indices given",
				   given.at[kind], kind_names[kind], lists->n_indices[kind]);
	free(given.sorted);
	status = build_finish(&build, mask_p);
	if (status == PAGED_OK)
		block_mask_judge(*mask_p);
	return status;
}

uint64_t
block_mask_n_blocks(const struct block_mask *mask)
{
	uint64_t n = 0;

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		n += mask->start[kind][count_lists(mask)];
	return n;
}

double
block_mask_sparsity(const struct block_mask *mask)
{
	double total = 0;

	for (uint32_t r = 0; r < mask->shape.n_rows; r++)
		total += (double)mask->shape.n_heads * (double)block_mask_q_blocks(mask, r) *
			 (double)block_mask_kv_blocks(mask, r);
	return total == 0 ? 0 : 100 * (1 - (double)block_mask_n_blocks(mask) / total);
}

uint64_t
block_mask_bytes(const struct block_mask *mask)
{
	return sizeof(*mask) + mask->shape.n_rows * sizeof(*mask->shape.rows) +
	       (mask->shape.n_rows + UINT64_C(1)) * sizeof(*mask->first_list) +
	       BLOCK_MASK_N_KINDS * (count_lists(mask) + 1) * sizeof(**mask->start) +
	       block_mask_n_blocks(mask) * sizeof(**mask->indices);
}
