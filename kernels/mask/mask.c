/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of masks, and their release. */
#include "kernels/mask/mask.h"

#include <stdlib.h>

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
block_mask_n_lists(const struct block_mask *mask)
{
	return mask->first_list[mask->shape.n_rows];
}

bool
block_mask_list_ascends(const uint32_t *blocks, uint64_t n)
{
	for (uint64_t i = 1; i < n; i++)
		if (blocks[i] <= blocks[i - 1])
			return false;
	return true;
}

void
block_mask_set_ascending(struct block_mask *mask)
{
	uint64_t n = block_mask_n_lists(mask);

	mask->ascending = true;
	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
		const uint64_t *start = mask->start[kind];

		for (uint64_t i = 0; mask->ascending && i < n; i++)
			mask->ascending =
				block_mask_list_ascends(mask->indices[kind] + start[i], start[i + 1] - start[i]);
	}
}

uint64_t
block_mask_n_blocks(const struct block_mask *mask)
{
	uint64_t n = 0;

	for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
		n += mask->start[kind][block_mask_n_lists(mask)];
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
	       BLOCK_MASK_N_KINDS * (block_mask_n_lists(mask) + 1) * sizeof(**mask->start) +
	       block_mask_n_blocks(mask) * sizeof(**mask->indices);
}
