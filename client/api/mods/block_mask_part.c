/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of block masks, and transposed block masks (for each KV block, its query blocks). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "client/api/enter.h"
#include "client/api/mods/block_mask.h"
#include "client/params.h"

/* Convert a slice's params; a count of 0 means all that follow, of which there must be at least one. */
static enum paged_status
block_mask_part_in(const struct paged_block_mask_part *from, const struct block_mask *mask,
		   struct block_mask_selection *part, struct paged_error *error)
{
	struct paged_block_mask_part ours;
	enum paged_status status = client_params_in(&ours, sizeof(ours), from, "paged_block_mask_part", error);

	if (status != PAGED_OK)
		return status;
	if (ours.first_row >= mask->shape.n_rows)
		return paged_fail(error, PAGED_ERR_RANGE, "block mask: row %u of %u", ours.first_row,
				  mask->shape.n_rows);
	if (ours.first_head >= mask->shape.n_heads)
		return paged_fail(error, PAGED_ERR_RANGE, "block mask: head %u of %u", ours.first_head,
				  mask->shape.n_heads);
	if (ours.n_rows > mask->shape.n_rows - ours.first_row)
		return paged_fail(error, PAGED_ERR_RANGE, "block mask: %u rows from %u on, of %u", ours.n_rows,
				  ours.first_row, mask->shape.n_rows);
	if (ours.n_heads > mask->shape.n_heads - ours.first_head)
		return paged_fail(error, PAGED_ERR_RANGE, "block mask: %u heads from %u on, of %u", ours.n_heads,
				  ours.first_head, mask->shape.n_heads);
	*part = (struct block_mask_selection){
		.first_row = ours.first_row,
		.n_rows = ours.n_rows != 0 ? ours.n_rows : mask->shape.n_rows - ours.first_row,
		.first_head = ours.first_head,
		.n_heads = ours.n_heads != 0 ? ours.n_heads : mask->shape.n_heads - ours.first_head,
		.first_q = ours.first_q,
		.n_q = ours.n_q != 0 ? ours.n_q : UINT64_MAX,
	};
	return PAGED_OK;
}

static enum paged_status
block_mask_select_sequences(const struct paged_block_mask *mask, uint32_t first, uint32_t n,
			    struct paged_block_mask *made, struct paged_error *error)
{
	made->seq = calloc(n, sizeof(*made->seq));
	made->version = calloc(n, sizeof(*made->version));
	if (made->seq == NULL || made->version == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %u rows", n);
	memcpy(made->seq, mask->seq + first, n * sizeof(*made->seq));
	memcpy(made->version, mask->version + first, n * sizeof(*made->version));
	return PAGED_OK;
}

enum paged_status
paged_block_mask_select(const struct paged_block_mask *mask, const struct paged_block_mask_part *part,
			struct paged_block_mask **mask_p)
{
	enum paged_status status = block_mask_enter(mask, mask_p);
	struct paged_block_mask made = { .pool = block_mask_pool(mask) };
	struct block_mask_selection ours;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = block_mask_part_in(part, mask->logical, &ours, &error);
	if (status == PAGED_OK)
		status = block_mask_select(mask->logical, &ours, &made.logical, &error);
	if (status == PAGED_OK && mask->physical != NULL)
		status = block_mask_select(mask->physical, &ours, &made.physical, &error);
	if (status == PAGED_OK && mask->physical != NULL)
		status = block_mask_select_sequences(mask, ours.first_row, ours.n_rows, &made, &error);
	return block_mask_publish(&made, status, mask_p, &error);
}

enum paged_status
paged_block_mask_crop(const struct paged_block_mask *mask, uint32_t q_len, uint32_t kv_len,
		      struct paged_block_mask **mask_p)
{
	enum paged_status status = block_mask_enter(mask, mask_p);
	struct paged_block_mask made = { .pool = block_mask_pool(mask) };
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (mask->physical != NULL)
		return client_failf(mask->pool->client, PAGED_ERR_INVALID,
				    "block mask: a physical one has no lengths to crop: crop the logical one");
	status = block_mask_crop(mask->logical, q_len, kv_len, &made.logical, &error);
	return block_mask_publish(&made, status, mask_p, &error);
}

enum paged_status
paged_block_mask_transpose(const struct paged_block_mask *mask, struct paged_block_mask **mask_p)
{
	enum paged_status status = block_mask_enter(mask, mask_p);
	struct paged_block_mask made = { .pool = block_mask_pool(mask) };
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = block_mask_transpose(block_mask_shown(mask), UINT64_MAX, &made.logical, &error);
	return block_mask_publish(&made, status, mask_p, &error);
}
