/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the parameters of block masks. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/api/batch/batch.h"
#include "client/api/enter.h"
#include "client/api/mods/block_mask.h"
#include "client/api/pool_read.h"

#define BLOCK_DEFAULT 128u /* tokens, as in PyTorch */

enum paged_status
block_mask_rows_in(struct paged_pool *pool, const struct paged_batch_row *rows, size_t n_rows,
		   struct batch_mask_row **rows_p, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	struct batch_mask_row *ours;

	if (n_rows == 0 || n_rows > UINT32_MAX)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: %zu rows", n_rows);
	if (rows == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: rows is NULL");
	ours = calloc(n_rows, sizeof(*ours));
	if (ours == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %zu rows", n_rows);
	for (size_t r = 0; r < n_rows && status == PAGED_OK; r++) {
		const struct paged_batch_row *row = &rows[r];

		if (!batch_row_is_valid(row))
			status = batch_row_fail_invalid(row, "block mask: ", r, error);
		if (status == PAGED_OK && row->kv_first > row->kv_len)
			status = paged_fail(error, PAGED_ERR_INVALID,
					    "block mask: row %zu: kv_first %u exceeds its kv_len %u", r, row->kv_first,
					    row->kv_len);
		if (status == PAGED_OK && row->seq != 0)
			status = pool_check_seq(pool, row->seq, error);
		ours[r] = (struct batch_mask_row){
			.seq = row->seq,
			.pages = row->pages,
			.n_pages = row->n_pages,
			.q_len = row->q_len,
			.kv_len = row->kv_len,
			.kv_first = row->kv_first,
			.q_base = row->flags & PAGED_ROW_Q_BASE ? row->q_base : (int64_t)row->kv_len - row->q_len,
			.b = (int32_t)(row->flags & PAGED_ROW_B ? row->b : r),
		};
	}
	if (status != PAGED_OK) {
		free(ours);
		return status;
	}
	*rows_p = ours;
	return PAGED_OK;
}

enum paged_status
block_mask_request_open(struct block_mask_request *request, struct paged_pool *pool,
			const struct paged_block_mask_params *from, struct paged_block_mask **mask_p)
{
	enum paged_status status = client_enter(pool_client(pool));
	struct paged_block_mask_params params;
	struct batch_mask_row *rows = NULL;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (mask_p == NULL)
		return client_failf(pool->client, PAGED_ERR_INVALID, "a block mask needs a place for its handle");
	status = client_params_in(&params, sizeof(params), from, "paged_block_mask_params", &error);
	if (status == PAGED_OK && params.physical > 1)
		status = paged_fail(&error, PAGED_ERR_INVALID, "block mask: physical is %" PRIu32 ", neither 0 nor 1",
				    params.physical);
	if (status == PAGED_OK)
		status = block_mask_rows_in(pool, params.rows, params.n_rows, &rows, &error);
	if (status != PAGED_OK)
		return client_fail(pool->client, &error);
	if (params.kv_block == 0)
		params.kv_block = params.physical ? pool->mapping.view.page_size : BLOCK_DEFAULT;
	request->is_physical = params.physical == 1;
	request->batch = (struct batch_mask_request){
		.rows = rows,
		.n_rows = (uint32_t)params.n_rows,
		.n_heads = params.n_heads,
		.q_block = params.q_block != 0 ? params.q_block : BLOCK_DEFAULT,
		.kv_block = params.kv_block,
		.max_bytes = params.max_bytes,
		.view = &pool->mapping.view,
		.memory = &pool->mask_memory,
	};
	/* A physical mask reads page tables, which need a living owner. */
	if (request->is_physical)
		status = client_enter_shared(pool->client);
	if (status != PAGED_OK)
		block_mask_request_close(request);
	return status;
}

void
block_mask_request_close(struct block_mask_request *request)
{
	free((void *)request->batch.rows);
}
