/* SPDX-License-Identifier: Apache-2.0 */
/* Masks as PyTorch's arrays: rectangular, padded to a width. */
#include <inttypes.h>

#include "kernels/mask/builder.h"

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
check_widths(const struct block_mask *mask, const struct block_mask_arrays *arrays, enum block_mask_kind kind,
	     struct paged_error *error)
{
	uint64_t n = mask->start[kind][mask->first_list[mask->shape.n_rows]];
	uint64_t width = block_mask_width(mask, kind);

	if (arrays->num_blocks[kind] == NULL)
		return PAGED_OK;
	if (arrays->width[kind] < width || width > INT32_MAX)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "block mask: %s is %" PRIu64 " wide, the longest list has %" PRIu64 " blocks",
				  mask_array_names[kind], arrays->width[kind], width);
	for (uint64_t i = 0; i < n; i++)
		if (mask->indices[kind][i] > INT32_MAX)
			return paged_fail(error, PAGED_ERR_LIMIT, "block mask: block %" PRIu32 " in %s is past int32",
					  mask->indices[kind][i], mask_array_names[kind]);
	return PAGED_OK;
}

static void
fill_arrays(const struct block_mask *mask, const struct block_mask_arrays *arrays, enum block_mask_kind kind)
{
	const uint64_t *start = mask->start[kind];

	for (uint64_t i = 0; i < mask->first_list[mask->shape.n_rows]; i++) {
		int32_t *entries = arrays->width[kind] != 0 ? arrays->indices[kind] + i * arrays->width[kind] : NULL;
		uint64_t n = start[i + 1] - start[i];

		arrays->num_blocks[kind][i] = (int32_t)n;
		for (uint64_t j = 0; j < arrays->width[kind]; j++)
			entries[j] = j < n ? (int32_t)mask->indices[kind][start[i] + j] : 0;
	}
}

enum paged_status
block_mask_to_arrays(const struct block_mask *mask, const struct block_mask_arrays *arrays, struct paged_error *error)
{
	enum paged_status status = check_rectangle(mask, error);

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS && status == PAGED_OK; kind++)
		status = check_widths(mask, arrays, kind, error);
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS && status == PAGED_OK; kind++)
		if (arrays->num_blocks[kind] != NULL)
			fill_arrays(mask, arrays, kind);
	return status;
}
