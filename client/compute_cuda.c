/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's kernels: none are launched yet.  Plans, tables and mods are made on the host all the same. */
#include "config.h"

#include "client/batch.h"
#include "client/compute.h"
#include "client/compute_cuda_blocks.h"
#include "client/map_cuda.h"

static const char *
cuda_isa(const struct paged_pool *pool)
{
	return map_cuda_gpu(&pool->at)->isa;
}

/* For mods, which are bound by the caller's thread alone. */
static enum paged_status
cuda_batch_create(struct paged_batch *batch, struct paged_error *error)
{
	return kernel_team_create(1, batch->pool->client->isa, &batch->team, error);
}

static void
cuda_batch_destroy(struct paged_batch *batch, bool in_child)
{
	if (in_child)
		kernel_team_abandon(batch->team);
	else
		kernel_team_destroy(batch->team);
}

/* Nothing runs on it. */
static enum paged_status
cuda_plan(struct paged_batch *batch, struct paged_error *error)
{
	(void)batch, (void)error;
	return PAGED_OK;
}

static enum paged_status
no_kernel(const struct paged_batch *batch, const char *what, struct paged_error *error)
{
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s: this library has no %s for back end cuda",
			  batch->pool->at.name, what);
}

static enum paged_status
cuda_append(struct paged_batch *batch, const struct append_args *args, struct paged_error *error)
{
	(void)args;
	return no_kernel(batch, "append", error);
}

static enum paged_status
cuda_attention(struct paged_batch *batch, const struct attention_args *args, struct paged_error *error)
{
	(void)args;
	return no_kernel(batch, "attention", error);
}

static enum paged_status
cuda_merge(struct paged_batch *batch, const struct merge_args *args, struct paged_error *error)
{
	(void)args;
	return no_kernel(batch, "merge", error);
}

const struct compute_ops compute_ops_cuda = {
	.isa = cuda_isa,
	.batch_create = cuda_batch_create,
	.batch_destroy = cuda_batch_destroy,
	.plan = cuda_plan,
	.mask_open = compute_cuda_blocks_open,
	.mask_close = compute_cuda_blocks_close,
	.append = cuda_append,
	.attention = cuda_attention,
	.merge = cuda_merge,
};
