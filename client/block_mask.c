/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/block_mask.h"
#include "client/compute.h"

#include <stdlib.h>

static void
parts_free(const struct block_mask_parts *parts)
{
	block_mask_destroy(parts->logical);
	block_mask_destroy(parts->physical);
	free(parts->seq);
	free(parts->version);
}

static enum paged_status
enlist(struct paged_pool *pool, const struct block_mask_parts *parts, struct paged_block_mask **mask_p,
       struct paged_error *error)
{
	struct paged_block_mask *mask = calloc(1, sizeof(*mask));

	if (mask == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a block mask");
	*mask = (struct paged_block_mask){
		.pool = pool,
		.logical = parts->logical,
		.physical = parts->physical,
		.n_rows = parts->physical != NULL ? parts->physical->shape.n_rows : 0,
		.seq = parts->seq,
		.version = parts->version,
	};
	client_lock(pool->client);
	mask->next = pool->block_masks;
	mask->link = &pool->block_masks;
	if (mask->next != NULL)
		mask->next->link = &mask->next;
	pool->block_masks = mask;
	client_unlock(pool->client);
	*mask_p = mask;
	return PAGED_OK;
}

enum paged_status
block_mask_deliver(struct paged_pool *pool, enum paged_status status, struct block_mask_parts *parts,
		   struct paged_block_mask **mask_p, struct paged_error *error)
{
	if (status == PAGED_OK)
		status = enlist(pool, parts, mask_p, error);
	if (status == PAGED_OK)
		return PAGED_OK;
	parts_free(parts);
	return client_fail(pool->client, error);
}

void
block_mask_free(struct paged_block_mask *mask, bool in_child)
{
	const struct block_mask_parts parts = { mask->logical, mask->physical, mask->seq, mask->version };

	*mask->link = mask->next;
	if (mask->next != NULL)
		mask->next->link = mask->link;
	mask->pool->at.compute->mask_close(mask, in_child);
	parts_free(&parts);
	free(mask);
}

void
paged_block_mask_destroy(struct paged_block_mask *mask)
{
	struct paged_client *client;
	bool in_child;

	if (mask == NULL)
		return;
	client = mask->pool->client;
	in_child = guard_in_child(&client->guard);
	if (!in_child)
		client_lock(client);
	block_mask_free(mask, in_child);
	if (!in_child)
		client_unlock(client);
}
