/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of block masks, and block masks seen from their keys. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "client/block_mask.h"

static enum paged_status
part_enter(const struct paged_block_mask *mask, struct paged_block_mask **mask_p)
{
	enum paged_status status = client_enter(block_mask_client(mask));

	if (status == PAGED_OK && mask_p == NULL)
		return client_failf(mask->pool->client, PAGED_ERR_INVALID, "a block mask needs a place for its handle");
	return status;
}

/* 0 means all that follow, of which there must be some. */
static enum paged_status
part_in(const struct paged_block_mask_part *from, const struct block_mask *mask, struct block_mask_part *part,
	struct paged_error *error)
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
	*part = (struct block_mask_part){
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
select_sequences(const struct paged_block_mask *mask, uint32_t first, uint32_t n, struct block_mask_parts *parts,
		 struct paged_error *error)
{
	parts->seq = calloc(n, sizeof(*parts->seq));
	parts->version = calloc(n, sizeof(*parts->version));
	if (parts->seq == NULL || parts->version == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %u rows", n);
	memcpy(parts->seq, mask->seq + first, n * sizeof(*parts->seq));
	memcpy(parts->version, mask->version + first, n * sizeof(*parts->version));
	return PAGED_OK;
}

enum paged_status
paged_block_mask_select(const struct paged_block_mask *mask, const struct paged_block_mask_part *part,
			struct paged_block_mask **mask_p)
{
	enum paged_status status = part_enter(mask, mask_p);
	struct block_mask_parts parts = { 0 };
	struct block_mask_part ours;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = part_in(part, mask->logical, &ours, &error);
	if (status == PAGED_OK)
		status = block_mask_select(mask->logical, &ours, &parts.logical, &error);
	if (status == PAGED_OK && mask->physical != NULL)
		status = block_mask_select(mask->physical, &ours, &parts.physical, &error);
	if (status == PAGED_OK && mask->physical != NULL)
		status = select_sequences(mask, ours.first_row, ours.n_rows, &parts, &error);
	return block_mask_deliver(mask->pool, status, &parts, mask_p, &error);
}

enum paged_status
paged_block_mask_crop(const struct paged_block_mask *mask, uint32_t q_len, uint32_t kv_len,
		      struct paged_block_mask **mask_p)
{
	enum paged_status status = part_enter(mask, mask_p);
	struct block_mask_parts parts = { 0 };
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (mask->physical != NULL)
		return client_failf(mask->pool->client, PAGED_ERR_INVALID,
				    "block mask: a physical one has no lengths to crop: crop the logical one");
	status = block_mask_crop(mask->logical, q_len, kv_len, &parts.logical, &error);
	return block_mask_deliver(mask->pool, status, &parts, mask_p, &error);
}

enum paged_status
paged_block_mask_transpose(const struct paged_block_mask *mask, struct paged_block_mask **mask_p)
{
	enum paged_status status = part_enter(mask, mask_p);
	struct block_mask_parts parts = { 0 };
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = block_mask_transpose(block_mask_named(mask), UINT64_MAX, &parts.logical, &error);
	return block_mask_deliver(mask->pool, status, &parts, mask_p, &error);
}
