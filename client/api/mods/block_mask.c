/* SPDX-License-Identifier: Apache-2.0 */
/* A block mask's life. */
#include "config.h"

#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/mods/block_mask.h"

#include <stdlib.h>

enum paged_status
block_mask_enter(const struct paged_block_mask *mask, struct paged_block_mask **mask_p)
{
	enum paged_status status = client_enter(pool_client(block_mask_pool(mask)));

	if (status == PAGED_OK && mask_p == NULL)
		return client_failf(mask->pool->client, PAGED_ERR_INVALID, "a block mask needs a place for its handle");
	return status;
}

static void
block_mask_free_parts(const struct paged_block_mask *mask)
{
	block_mask_destroy(mask->logical);
	block_mask_destroy(mask->physical);
	free(mask->seq);
	free(mask->version);
}

enum paged_status
block_mask_publish(const struct paged_block_mask *made, enum paged_status status, struct paged_block_mask **mask_p,
		   struct paged_error *error)
{
	struct paged_pool *pool = made->pool;
	struct paged_block_mask *mask = NULL;

	if (status == PAGED_OK) {
		mask = malloc(sizeof(*mask));
		if (mask == NULL)
			paged_fail(error, PAGED_ERR_NOMEM, "no memory for a block mask");
	}
	if (mask == NULL) {
		block_mask_free_parts(made);
		return client_fail(pool->client, error);
	}
	*mask = *made;
	mask->n_rows = mask->physical != NULL ? mask->physical->shape.n_rows : 0;
	client_lock(pool->client);
	LIST_INSERT_HEAD(&pool->block_masks, mask, link);
	client_unlock(pool->client);
	*mask_p = mask;
	return PAGED_OK;
}

void
block_mask_free(struct paged_block_mask *mask, bool in_child)
{
	LIST_REMOVE(mask, link);
	mask->pool->compute_ops->mask_close(mask, in_child);
	block_mask_free_parts(mask);
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
