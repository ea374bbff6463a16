/* SPDX-License-Identifier: Apache-2.0 */
/* Physical block masks, and the check that they are not stale. */
#include "config.h"

#include <stdlib.h>

#include "client/api/enter.h"
#include "client/api/mods/block_mask.h"
#include "client/api/pool_read.h"

enum paged_status
block_mask_make_physical(struct paged_block_mask *made, const struct batch_mask_request *request,
			 const struct block_mask *logical, struct paged_error *error)
{
	enum paged_status status, owner;

	made->seq = calloc(request->n_rows, sizeof(*made->seq));
	made->version = calloc(request->n_rows, sizeof(*made->version));
	if (made->seq == NULL || made->version == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %u rows", request->n_rows);
	for (uint32_t r = 0; r < request->n_rows; r++)
		made->seq[r] = request->rows[r].seq;
	status = batch_mask_to_physical(request, logical, &made->physical, made->version, error);
	if (status != PAGED_ERR_AGAIN)
		return status;
	/* A slot stays locked if the owner died, or was stopped, during a change. */
	owner = pool_check_owner(made->pool, error);
	return owner != PAGED_OK ? owner : status;
}

/*
 * Make the logical mask over the requested rows, and the physical mask.  The
 * physical mask is made from the unclipped blocks: a large block that a length
 * clips is partial, but pages in it may still be full.
 */
static enum paged_status
block_mask_derive_physical(const struct paged_block_mask *mask, const struct batch_mask_request *request,
			   struct paged_block_mask *made, struct paged_error *error)
{
	uint64_t *kv_len = calloc(request->n_rows, 2 * sizeof(*kv_len)), *kv_first;
	enum paged_status status;

	if (kv_len == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %u rows", request->n_rows);
	kv_first = kv_len + request->n_rows;
	for (uint32_t r = 0; r < request->n_rows; r++) {
		kv_len[r] = request->rows[r].kv_len;
		kv_first[r] = request->rows[r].kv_first;
	}
	status = block_mask_over_rows(mask->logical, request->n_rows, kv_first, kv_len, &made->logical, error);
	free(kv_len);
	return status == PAGED_OK ? block_mask_make_physical(made, request, mask->logical, error) : status;
}

enum paged_status
paged_block_mask_to_physical(const struct paged_block_mask *mask, size_t n_rows, const struct paged_batch_row *rows,
			     struct paged_block_mask **mask_p)
{
	struct paged_block_mask made = { .pool = block_mask_pool(mask) };
	struct batch_mask_request request = { .n_rows = (uint32_t)n_rows };
	enum paged_status status = client_enter_shared(pool_client(made.pool));
	struct batch_mask_row *ours = NULL;
	struct paged_error error;

	if (status == PAGED_OK)
		status = block_mask_enter(mask, mask_p);
	if (status != PAGED_OK)
		return status;
	if (mask->physical != NULL)
		status = paged_fail(&error, PAGED_ERR_INVALID, "block mask: it is physical already");
	else
		status = block_mask_rows_in(mask->pool, rows, n_rows, &ours, &error);
	if (status == PAGED_OK) {
		request.rows = ours;
		request.view = &mask->pool->mapping.view;
		status = block_mask_derive_physical(mask, &request, &made, &error);
	}
	free(ours);
	return block_mask_publish(&made, status, mask_p, &error);
}

enum paged_status
paged_block_mask_to_logical(const struct paged_block_mask *mask, struct paged_block_mask **mask_p)
{
	const struct block_mask_selection all = { .n_rows = UINT32_MAX, .n_heads = UINT32_MAX, .n_q = UINT64_MAX };
	struct paged_block_mask made = { .pool = block_mask_pool(mask) };
	enum paged_status status = block_mask_enter(mask, mask_p);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (mask->physical == NULL)
		return client_failf(made.pool->client, PAGED_ERR_INVALID, "block mask: it is logical already");
	status = block_mask_select(mask->logical, &all, &made.logical, &error);
	return block_mask_publish(&made, status, mask_p, &error);
}

enum paged_status
paged_block_mask_validate(const struct paged_block_mask *mask)
{
	struct paged_client *client = pool_client(block_mask_pool(mask));
	enum paged_status status = client_enter_shared(client);

	if (status != PAGED_OK)
		return status;
	for (uint32_t r = 0; r < mask->n_rows; r++) {
		struct region_snapshot snapshot = { .version = mask->version[r] };

		/* A slot's version never repeats, so the check also covers the id's generation. */
		if (mask->seq[r] == 0 || region_snapshot_valid(&mask->pool->mapping.view, mask->seq[r], &snapshot))
			continue;
		client_poll_owner(client);
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
