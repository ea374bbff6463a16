/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/batch.h"
#include "client/compute.h"

/* Tokens of all rows, or the most that it may be where the device has the bounds; checks them where the host has. */
static enum paged_status
tokens_count(const struct paged_batch *batch, const struct paged_gather_params *params, uint64_t *n_tokens_p,
	     struct paged_error *error)
{
	bool known = !batch->pool->at.compute->on_device;
	uint64_t n_tokens = 0;

	for (uint32_t r = 0; r < batch->n_rows; r++) {
		uint32_t kv_len = batch->kernel_row[r].kv_len;
		uint32_t begin = known && params->begin != NULL ? params->begin[r] : 0;
		uint32_t end = known && params->end != NULL ? params->end[r] : kv_len;

		if (begin > end || end > kv_len)
			return paged_fail(error, PAGED_ERR_RANGE,
					  "row %u: tokens %u to %u are wanted, its kv_len is %u", r, begin, end,
					  kv_len);
		n_tokens += end - begin;
	}
	*n_tokens_p = n_tokens;
	return PAGED_OK;
}

static enum paged_status
tensor_out(const struct paged_batch *batch, struct kernel_tensor *to, const char *name, const struct paged_tensor *from,
	   uint32_t dim, uint64_t n_tokens, struct paged_error *error)
{
	enum paged_status status;

	if (from == NULL)
		return PAGED_OK;
	status = batch_tensor_in(to, name, from, batch->pool->at.layout.params.n_kv_heads, dim, n_tokens, error);
	return status == PAGED_OK ? batch_tensor_check_apart(name, to, n_tokens, error) : status;
}

static enum paged_status
tensors_out(const struct paged_batch *batch, struct gather_args *args, const struct paged_tensor *k,
	    const struct paged_tensor *v, uint64_t n_tokens, struct paged_error *error)
{
	const struct layout_params *geometry = &batch->pool->at.layout.params;
	enum paged_status status;

	if (k == NULL && v == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "neither k nor v is wanted");
	status = tensor_out(batch, &args->k, "k", k, geometry->k_dim, n_tokens, error);
	return status == PAGED_OK ? tensor_out(batch, &args->v, "v", v, geometry->v_dim, n_tokens, error) : status;
}

enum paged_status
paged_gather(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *k, const struct paged_tensor *v,
	     const struct paged_gather_params *params)
{
	struct paged_client *client = batch->pool->client;
	enum paged_status status = batch_layer_enter(batch, layer);
	struct gather_args args = { .rows = batch->kernel_row, .n_rows = batch->n_rows };
	struct paged_gather_params complete;
	struct paged_error error;
	uint64_t n_tokens = 0;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_gather_params", &error);
	if (status == PAGED_OK)
		status = tokens_count(batch, &complete, &n_tokens, &error);
	if (status == PAGED_OK)
		status = tensors_out(batch, &args, k, v, n_tokens, &error);
	if (status == PAGED_OK)
		status = batch_check_scales(batch, complete.k_scale, complete.v_scale, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	args.pages = batch_layer_pages(batch, layer);
	args.begin = complete.begin;
	args.end = complete.end;
	args.k_scale = complete.k_scale;
	args.v_scale = complete.v_scale;
	status = batch->pool->at.compute->gather(batch, &args, &error);
	return status == PAGED_OK ? PAGED_OK : client_fail(client, &error);
}
