/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/batch.h"
#include "client/compute.h"

static enum paged_status
merge_part_in(struct merge_part *to, const char *name, const struct paged_merge_params *params, unsigned int i,
	      struct paged_error *error)
{
	const struct paged_tensor *out = &params->out;
	enum paged_status status =
		batch_tensor_in(&to->out, name, &params->part[i], out->n_heads, out->dim, params->n_tokens, error);

	if (status != PAGED_OK)
		return status;
	if (params->part_lse[i] == NULL && params->n_tokens != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%s has no lse", name);
	to->lse = params->part_lse[i];
	return PAGED_OK;
}

/* What is read must not be written elsewhere before. */
static enum paged_status
merge_check_overlap(const struct kernel_tensor *out, const struct kernel_tensor *part, const char *name,
		    struct paged_error *error)
{
	if (out->data != part->data || (out->dtype == part->dtype && out->token_stride == part->token_stride &&
					out->head_stride == part->head_stride))
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_INVALID, "out is in the memory of %s, with another dtype or other strides",
			  name);
}

static enum paged_status
merge_args_in(struct merge_args *args, const struct paged_merge_params *params, struct paged_error *error)
{
	static const char *const names[2] = { "part 0", "part 1" };
	const struct paged_tensor *out = &params->out;
	enum paged_status status;

	if (out->dim == 0 || out->dim > PAGED_MAX_DIM)
		return paged_fail(error, PAGED_ERR_INVALID, "out has %u dims, 1 to %u are possible", out->dim,
				  PAGED_MAX_DIM);
	status = batch_tensor_in(&args->out, "out", out, 0, out->dim, params->n_tokens, error);
	if (status == PAGED_OK)
		status = batch_tensor_check_apart("out", &args->out, params->n_tokens, error);
	for (unsigned int i = 0; status == PAGED_OK && i < 2; i++) {
		status = merge_part_in(&args->part[i], names[i], params, i, error);
		if (status == PAGED_OK && params->n_tokens != 0)
			status = merge_check_overlap(&args->out, &args->part[i].out, names[i], error);
	}
	args->n_tokens = params->n_tokens;
	args->lse = params->lse;
	return status;
}

enum paged_status
paged_merge(struct paged_batch *batch, const struct paged_merge_params *params)
{
	struct paged_client *client = batch->pool->client;
	enum paged_status status = client_enter(client);
	struct paged_merge_params complete;
	struct merge_args args = { 0 };
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_merge_params", &error);
	if (status == PAGED_OK)
		status = merge_args_in(&args, &complete, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	status = batch->pool->at.compute->merge(batch, &args, &error);
	return status == PAGED_OK ? PAGED_OK : client_fail(client, &error);
}
