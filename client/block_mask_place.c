/* SPDX-License-Identifier: Apache-2.0 */
/* Where blocks lie: physical masks, and whether they still say so. */
#include "config.h"

#include <stdlib.h>

#include "client/block_mask.h"

enum paged_status
block_mask_place(struct paged_pool *pool, const struct batch_mask_order *order, const struct block_mask *logical,
		 struct block_mask_parts *parts, struct paged_error *error)
{
	enum paged_status status;

	parts->seq = calloc(order->n_rows, sizeof(*parts->seq));
	parts->version = calloc(order->n_rows, sizeof(*parts->version));
	if (parts->seq == NULL || parts->version == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %u rows", order->n_rows);
	for (uint32_t r = 0; r < order->n_rows; r++)
		parts->seq[r] = order->rows[r].seq;
	status = batch_mask_place(order, logical, &parts->physical, parts->version, error);
	if (status != PAGED_ERR_AGAIN)
		return status;
	/* A row that stays busy is an owner's that died inside a change, or was just stopped there. */
	client_look(pool->client);
	return owner_state(pool->client->owner) >= OWNER_ENDED ? client_gone(pool->client->owner, error) : status;
}

/*
 * The logical mask over the rows that were asked for.  The physical one is made
 * of what was not yet cut: pages of a large block that a length cuts may be full.
 */
static enum paged_status
lay_over(const struct block_mask *from, const struct batch_mask_order *order, struct block_mask **mask_p,
	 struct paged_error *error)
{
	uint64_t *kv_len = calloc(order->n_rows, sizeof(*kv_len));
	enum paged_status status;

	if (kv_len == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %u rows", order->n_rows);
	for (uint32_t r = 0; r < order->n_rows; r++)
		kv_len[r] = order->rows[r].kv_len;
	status = block_mask_over(from, order->n_rows, kv_len, mask_p, error);
	free(kv_len);
	return status;
}

static enum paged_status
to_physical(const struct paged_block_mask *mask, size_t n_rows, const struct paged_batch_row *rows,
	    struct block_mask_parts *parts, struct paged_error *error)
{
	struct batch_mask_order order = { .view = &mask->pool->at.view };
	struct batch_mask_row *ours = NULL;
	enum paged_status status;

	if (mask->physical != NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: it is physical already");
	status = block_mask_rows_in(mask->pool, rows, n_rows, &ours, error);
	if (status != PAGED_OK)
		return status;
	order.rows = ours;
	order.n_rows = (uint32_t)n_rows;
	status = lay_over(mask->logical, &order, &parts->logical, error);
	if (status == PAGED_OK)
		status = block_mask_place(mask->pool, &order, mask->logical, parts, error);
	free(ours);
	return status;
}

enum paged_status
paged_block_mask_to_physical(const struct paged_block_mask *mask, size_t n_rows, const struct paged_batch_row *rows,
			     struct paged_block_mask **mask_p)
{
	struct block_mask_parts parts = { 0 };
	struct paged_client *client = block_mask_client(mask);
	enum paged_status status = client_enter_owner(client);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (mask_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "a block mask needs a place for its handle");
	status = to_physical(mask, n_rows, rows, &parts, &error);
	return block_mask_deliver(mask->pool, status, &parts, mask_p, &error);
}

enum paged_status
paged_block_mask_to_logical(const struct paged_block_mask *mask, struct paged_block_mask **mask_p)
{
	const struct block_mask_part all = { .n_rows = UINT32_MAX, .n_heads = UINT32_MAX, .n_q = UINT64_MAX };
	struct paged_client *client = block_mask_client(mask);
	enum paged_status status = client_enter(client);
	struct block_mask_parts parts = { 0 };
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (mask_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "a block mask needs a place for its handle");
	if (mask->physical == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "block mask: it is logical already");
	status = block_mask_select(mask->logical, &all, &parts.logical, &error);
	return block_mask_deliver(mask->pool, status, &parts, mask_p, &error);
}

enum paged_status
paged_block_mask_validate(const struct paged_block_mask *mask)
{
	struct paged_client *client = block_mask_client(mask);
	enum paged_status status = client_enter_owner(client);

	if (status != PAGED_OK)
		return status;
	for (uint32_t r = 0; r < mask->n_rows; r++) {
		struct region_look look = { .version = mask->version[r] };

		/* A slot's version never returns, so it stands for the id's generation too. */
		if (mask->seq[r] == 0 || region_look_holds(&mask->pool->at.view, mask->seq[r], &look))
			continue;
		client_look(client);
		status = client_enter_owner(client);
		if (status != PAGED_OK)
			return status;
		return client_failf(client, PAGED_ERR_STALE,
				    "block mask: row %u: pages of sequence " SEQ_FORMAT
				    " were replaced or removed since it was made",
				    r, SEQ_ARGS(mask->seq[r]));
	}
	return PAGED_OK;
}
