/* SPDX-License-Identifier: Apache-2.0 */
/* What a batch does on a GPU alone: streams, and plans of lengths that the host does not know. */
#include "config.h"

#include "client/batch.h"
#include "client/compute.h"

enum paged_status
paged_batch_stream(struct paged_batch *batch, void *stream)
{
	struct paged_client *client = batch->pool->client;
	enum paged_status status = client_enter(client);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = batch->pool->at.compute->stream(batch, stream, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	batch->planned = false;
	return PAGED_OK;
}

static enum paged_status
lengths_in(struct compute_lengths *to, const struct paged_plan_device_params *from, struct paged_error *error)
{
	static const char *const names[] = { "q_indptr", "kv_len", "q_base" };
	const int32_t *const arrays[] = { from->q_indptr, from->kv_len, from->q_base };

	for (unsigned int i = 0; i < 3; i++) {
		if (arrays[i] == NULL && i < 2 && from->n_rows != 0 && from->tables_only == 0)
			return paged_fail(error, PAGED_ERR_INVALID, "%s is NULL", names[i]);
		if ((uintptr_t)arrays[i] % sizeof(int32_t) != 0)
			return paged_fail(error, PAGED_ERR_INVALID, "%s is not aligned to its elements of 4 bytes",
					  names[i]);
	}
	if (from->tables_only > 1)
		return paged_fail(error, PAGED_ERR_INVALID, "tables_only is %u, neither 0 nor 1", from->tables_only);
	*to = (struct compute_lengths){
		.q_indptr = (uintptr_t)from->q_indptr,
		.kv_len = (uintptr_t)from->kv_len,
		.q_base = (uintptr_t)from->q_base,
		.tables_only = from->tables_only != 0,
	};
	return PAGED_OK;
}

enum paged_status
paged_batch_plan_device(struct paged_batch *batch, const struct paged_plan_device_params *params)
{
	struct paged_client *client = batch->pool->client;
	enum paged_status status = client_enter(client);
	struct paged_plan_device_params complete;
	struct compute_lengths lengths;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	batch->planned = false;
	status = client_params_in(&complete, sizeof(complete), params, "paged_plan_device_params", &error);
	if (status == PAGED_OK)
		status = lengths_in(&lengths, &complete, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	return batch_plan(batch, complete.n_rows, complete.rows, &lengths);
}
