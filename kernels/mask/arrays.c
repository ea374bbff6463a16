/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's arrays: rectangles, padded to a width. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/build.h"

static const char *const array_names[BLOCK_MASK_N_KINDS] = { "kv_indices", "full_kv_indices" };

uint64_t
block_mask_width(const struct block_mask *mask, enum block_mask_kind kind)
{
	const uint64_t *start = mask->start[kind];
	uint64_t width = 0;

	for (uint64_t i = 0; i < mask->first_list[mask->shape.n_rows]; i++)
		if (start[i + 1] - start[i] > width)
			width = start[i + 1] - start[i];
	return width;
}

static enum paged_status
check_rectangle(const struct block_mask *mask, struct paged_error *error)
{
	for (uint32_t r = 1; r < mask->shape.n_rows; r++)
		if (block_mask_q_blocks(mask, r) != block_mask_q_blocks(mask, 0))
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: rows 0 and %" PRIu32 " have %" PRIu64 " and %" PRIu64
					  " query blocks: no rectangle",
					  r, block_mask_q_blocks(mask, 0), block_mask_q_blocks(mask, r));
	return PAGED_OK;
}

static enum paged_status
check_view(const struct block_mask *mask, const struct block_mask_arrays *arrays, enum block_mask_kind kind,
	   struct paged_error *error)
{
	uint64_t n = mask->start[kind][mask->first_list[mask->shape.n_rows]];
	uint64_t width = block_mask_width(mask, kind);

	if (arrays->num_blocks[kind] == NULL)
		return PAGED_OK;
	if (arrays->width[kind] < width || width > INT32_MAX)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "block mask: %s is %" PRIu64 " wide, the longest list has %" PRIu64 " blocks",
				  array_names[kind], arrays->width[kind], width);
	for (uint64_t i = 0; i < n; i++)
		if (mask->indices[kind][i] > INT32_MAX)
			return paged_fail(error, PAGED_ERR_LIMIT, "block mask: block %" PRIu32 " in %s is past int32",
					  mask->indices[kind][i], array_names[kind]);
	return PAGED_OK;
}

static void
fill_view(const struct block_mask *mask, const struct block_mask_arrays *arrays, enum block_mask_kind kind)
{
	const uint64_t *start = mask->start[kind];

	for (uint64_t i = 0; i < mask->first_list[mask->shape.n_rows]; i++) {
		int32_t *line = arrays->width[kind] != 0 ? arrays->indices[kind] + i * arrays->width[kind] : NULL;
		uint64_t n = start[i + 1] - start[i];

		arrays->num_blocks[kind][i] = (int32_t)n;
		for (uint64_t j = 0; j < arrays->width[kind]; j++)
			line[j] = j < n ? (int32_t)mask->indices[kind][start[i] + j] : 0;
	}
}

enum paged_status
block_mask_view(const struct block_mask *mask, const struct block_mask_arrays *arrays, struct paged_error *error)
{
	enum paged_status status = check_rectangle(mask, error);

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS && status == PAGED_OK; kind++)
		status = check_view(mask, arrays, kind, error);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS && status == PAGED_OK; kind++)
		if (arrays->num_blocks[kind] != NULL)
			fill_view(mask, arrays, kind);
	return status;
}

/* Lists without the padding; `counts` and `indices` are the caller's to free. */
struct packed {
	uint32_t *counts;
	uint32_t *indices;
	uint64_t n_indices;
};

static enum paged_status
check_counts(const struct block_mask_arrays *arrays, enum block_mask_kind kind, uint64_t n_lists, uint64_t *n_p,
	     struct paged_error *error)
{
	*n_p = 0;
	for (uint64_t i = 0; i < n_lists; i++) {
		int32_t n = arrays->num_blocks[kind][i];

		if (n < 0 || (uint64_t)n > arrays->width[kind])
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: list %" PRIu64 " has %" PRId32 " blocks, %s is %" PRIu64 " wide",
					  i, n, array_names[kind], arrays->width[kind]);
		*n_p += (uint64_t)n;
	}
	return PAGED_OK;
}

static enum paged_status
pack(const struct block_mask_arrays *arrays, enum block_mask_kind kind, uint64_t n_lists, struct packed *packed,
     struct paged_error *error)
{
	enum paged_status status = check_counts(arrays, kind, n_lists, &packed->n_indices, error);
	uint32_t *to;

	if (status != PAGED_OK)
		return status;
	packed->counts = calloc(n_lists + 1, sizeof(uint32_t));
	packed->indices = to = calloc(packed->n_indices + 1, sizeof(uint32_t));
	if (packed->counts == NULL || to == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu64 " indices",
				  packed->n_indices);
	for (uint64_t i = 0; i < n_lists; i++) {
		packed->counts[i] = (uint32_t)arrays->num_blocks[kind][i];
		for (uint32_t j = 0; j < packed->counts[i]; j++) {
			int32_t block = arrays->indices[kind][i * arrays->width[kind] + j];

			if (block < 0)
				return paged_fail(error, PAGED_ERR_RANGE,
						  "block mask: list %" PRIu64 " of %s names block %" PRId32, i,
						  array_names[kind], block);
			*to++ = (uint32_t)block;
		}
	}
	return PAGED_OK;
}

/* Of equal rows; 0 if they are not, which from_lists() then refuses. */
static uint64_t
rectangle_lists(const struct block_mask_shape *shape)
{
	uint64_t n;

	if (shape->n_rows == 0 || shape->q_block == 0)
		return 0;
	n = shape->rows[0].q_len / shape->q_block + (shape->rows[0].q_len % shape->q_block != 0);
	for (uint32_t r = 1; r < shape->n_rows; r++)
		if (shape->rows[r].q_len != shape->rows[0].q_len)
			return 0;
	if (__builtin_mul_overflow(n, shape->n_heads, &n) || __builtin_mul_overflow(n, shape->n_rows, &n))
		return 0;
	return n;
}

enum paged_status
block_mask_from_arrays(const struct block_mask_shape *shape, const struct block_mask_arrays *arrays, uint64_t max_bytes,
		       struct block_mask **mask_p, struct paged_error *error)
{
	struct packed packed[BLOCK_MASK_N_KINDS] = { 0 };
	uint64_t n_lists = rectangle_lists(shape);
	struct block_mask_lists lists = { 0 };
	enum paged_status status = PAGED_OK;

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS && status == PAGED_OK; kind++) {
		if (arrays->num_blocks[kind] == NULL)
			continue;
		status = pack(arrays, kind, n_lists, &packed[kind], error);
		lists.n_blocks[kind] = packed[kind].counts;
		lists.indices[kind] = packed[kind].indices;
		lists.n_indices[kind] = packed[kind].n_indices;
	}
	if (status == PAGED_OK)
		status = block_mask_from_lists(shape, &lists, n_lists, max_bytes, mask_p, error);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		free(packed[kind].counts);
		free(packed[kind].indices);
	}
	return status;
}
