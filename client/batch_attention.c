/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/compute.h"
#include "client/mods.h"

#include <math.h>

static enum paged_status
attention_check(const struct paged_batch *batch, const struct attention_args *args,
		const struct paged_attention_params *params, struct paged_error *error)
{
	uint32_t n_kv_heads = batch->pool->at.layout.params.n_kv_heads;

	if (args->q.n_heads % n_kv_heads != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "q has %u heads, no multiple of the pool's %u KV heads",
				  args->q.n_heads, n_kv_heads);
	if (args->out.data == args->q.data && batch->total_q != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "out must not overlap q");
	if (!isfinite(params->scale))
		return paged_fail(error, PAGED_ERR_INVALID, "scale is not finite");
	if (params->mask != PAGED_MASK_CAUSAL && params->mask != PAGED_MASK_NONE)
		return paged_fail(error, PAGED_ERR_INVALID, "mask %d is neither causal nor none", (int)params->mask);
	if (params->lse_without_sink > 1)
		return paged_fail(error, PAGED_ERR_INVALID, "lse_without_sink is %u, neither 0 nor 1",
				  params->lse_without_sink);
	if (params->mods != NULL) {
		enum paged_status status = mods_check(params->mods, batch, args->q.n_heads, error);

		if (status != PAGED_OK)
			return status;
	}
	return batch_tensor_check_apart("out", &args->out, batch->total_q, error);
}

enum paged_status
paged_attention(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *q, const struct paged_tensor *out,
		const struct paged_attention_params *params)
{
	const struct layout_params *geometry = &batch->pool->at.layout.params;
	struct attention_args args = { .rows = batch->kernel_row, .n_rows = batch->n_rows };
	enum paged_status status = batch_layer_enter(batch, layer);
	struct paged_attention_params complete;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_attention_params", &error);
	if (status == PAGED_OK)
		status = batch_tensor_in(&args.q, "q", q, 0, geometry->k_dim, batch->total_q, &error);
	if (status == PAGED_OK)
		status = batch_tensor_in(&args.out, "out", out, q->n_heads, geometry->v_dim, batch->total_q, &error);
	if (status == PAGED_OK)
		status = attention_check(batch, &args, &complete, &error);
	if (status == PAGED_OK)
		status = batch_check_scales(batch, complete.k_scale, complete.v_scale, &error);
	if (status != PAGED_OK)
		return client_fail(batch->pool->client, &error);
	args.pages = batch_layer_pages(batch, layer);
	args.scale = complete.scale != 0 ? complete.scale : 1.0f / sqrtf((float)geometry->k_dim);
	args.causal = complete.mask == PAGED_MASK_CAUSAL;
	args.mods = complete.mods != NULL ? complete.mods->kernel : NULL;
	args.sink = complete.sink;
	args.lse_without_sink = complete.lse_without_sink != 0;
	args.lse = complete.lse;
	args.maximum = complete.max_score;
	args.k_scale = complete.k_scale;
	args.v_scale = complete.v_scale;
	status = batch->pool->at.compute->attention(batch, &args, complete.mods, &error);
	return status == PAGED_OK ? PAGED_OK : client_fail(batch->pool->client, &error);
}
