/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/block_mask.h"

#include <stdlib.h>

struct paged_block_mask *
block_mask_enlist(struct paged_pool *pool, struct block_mask *logical, struct block_mask *physical, paged_seq_id *seq,
		  uint64_t *version)
{
	struct paged_block_mask *mask = calloc(1, sizeof(*mask));

	if (mask == NULL)
		return NULL;
	*mask = (struct paged_block_mask){
		.pool = pool,
		.logical = logical,
		.physical = physical,
		.n_rows = physical != NULL ? physical->shape.n_rows : 0,
		.seq = seq,
		.version = version,
	};
	client_lock(pool->client);
	mask->next = pool->block_masks;
	mask->link = &pool->block_masks;
	if (mask->next != NULL)
		mask->next->link = &mask->next;
	pool->block_masks = mask;
	client_unlock(pool->client);
	return mask;
}

void
block_mask_free(struct paged_block_mask *mask)
{
	*mask->link = mask->next;
	if (mask->next != NULL)
		mask->next->link = mask->link;
	block_mask_destroy(mask->logical);
	block_mask_destroy(mask->physical);
	free(mask->seq);
	free(mask->version);
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
	block_mask_free(mask);
	if (!in_child)
		client_unlock(client);
}
