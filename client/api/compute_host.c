/* SPDX-License-Identifier: Apache-2.0 */
/* The compute operations of the host.  After the checks only a caller's run() that does not run its tasks can fail. */
#include "config.h"

#include "client/api/compute_ops.h"
#include "client/api/mark.h"

static void
host_describe(const struct paged_pool *pool, struct paged_pool_info *info)
{
	info->isa = kernel_isa_name(pool->client->team.isa);
	info->device = NULL;
}

static void
host_client_close(struct paged_client *client, bool in_child)
{
	(void)client, (void)in_child;
}

static enum paged_status
host_batch_create(struct paged_batch *batch, const struct paged_batch_params *params, struct paged_error *error)
{
	(void)batch, (void)params, (void)error;
	return PAGED_OK;
}

static void
host_batch_destroy(struct paged_batch *batch, bool in_child)
{
	(void)batch, (void)in_child;
}

static enum paged_status
host_stream(struct paged_batch *batch, void *stream, struct paged_error *error)
{
	if (stream == NULL)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s is in the host's memory, which has no streams",
			  batch->pool->mapping.name);
}

static enum paged_status
host_plan(struct paged_batch *batch, const struct compute_lengths *lengths, struct paged_error *error)
{
	if (lengths == NULL)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_UNSUPPORTED,
			  "pool %s is in the host's memory: lengths are paged_batch_plan()'s",
			  batch->pool->mapping.name);
}

/* Host calls are synchronous, so there is nothing to wait for. */
static enum paged_status
host_done(struct paged_batch *batch, struct paged_error *error)
{
	(void)batch, (void)error;
	return PAGED_OK;
}

static enum paged_status
host_mask_open(struct paged_block_mask *mask, struct paged_error *error)
{
	(void)mask, (void)error;
	return PAGED_OK;
}

static void
host_mask_close(struct paged_block_mask *mask, bool in_child)
{
	(void)mask, (void)in_child;
}

static enum paged_status
host_mod_set_open(struct paged_mod_set *set, struct paged_error *error)
{
	(void)set, (void)error;
	return PAGED_OK;
}

static void
host_mod_set_close(struct paged_mod_set *set, bool in_child)
{
	(void)set, (void)in_child;
}

static enum paged_status
host_mod_set_check(const struct paged_mod_set *set, struct paged_error *error)
{
	return kernel_mod_set_check(set->kernel, error);
}

static void
host_mod_set_bound(struct paged_mod_set *set)
{
	(void)set;
}

/* The host interprets mods, so there is no code to prepare. */
static enum paged_status
host_mod_set_prepare(struct paged_mod_set *set, enum paged_dtype q, int timeout_ms, struct paged_error *error)
{
	(void)set, (void)q, (void)timeout_ms, (void)error;
	return PAGED_OK;
}

static enum paged_status
host_append(struct paged_batch *batch, const struct append_args *args, struct paged_error *error)
{
	kernel_append(batch->team, args);
	return kernel_team_check(batch->team, error);
}

static enum paged_status
host_gather(struct paged_batch *batch, const struct gather_args *args, struct paged_error *error)
{
	kernel_gather(batch->team, args);
	return kernel_team_check(batch->team, error);
}

static enum paged_status
host_attention(struct paged_batch *batch, const struct attention_args *args, struct paged_mod_set *set,
	       struct paged_error *error)
{
	(void)set;
	kernel_attention(batch->team, args);
	return kernel_team_check(batch->team, error);
}

static enum paged_status
host_merge(struct paged_batch *batch, const struct merge_args *args, struct paged_error *error)
{
	kernel_attention_merge(batch->team, args);
	return kernel_team_check(batch->team, error);
}

static enum paged_status
host_refuse_capture(struct paged_batch *batch, const char *why, struct paged_error *error)
{
	(void)batch, (void)why, (void)error;
	return PAGED_OK;
}

static enum paged_status
host_copy_pages(struct paged_batch *batch, uint32_t n, const uint32_t *from, const uint32_t *to,
		const uint32_t *n_tokens, struct paged_error *error)
{
	const struct owner_pool *mapping = &batch->pool->mapping;
	const struct copy_args args = {
		.from = { .layout = &mapping->layout, .base = mapping->base, .pages = from },
		.to = { .layout = &mapping->layout, .base = mapping->base, .pages = to },
		.n = n,
		.n_tokens = n_tokens,
	};

	kernel_copy_pages(batch->team, &args);
	return kernel_team_check(batch->team, error);
}

static enum paged_status
host_event_record(struct paged_batch *batch, uint32_t i, struct paged_error *error)
{
	(void)batch, (void)i, (void)error;
	return PAGED_OK;
}

static bool
host_event_reached(struct paged_batch *batch, uint32_t i)
{
	(void)batch, (void)i;
	return true;
}

static enum paged_status
host_mark(struct paged_batch *batch, struct mark *mark, struct paged_error *error)
{
	(void)batch, (void)error;
	mark->kind = MARK_REACHED;
	return PAGED_OK;
}

static enum paged_status
host_wait(struct paged_batch *batch, const struct mark *mark, struct paged_error *error)
{
	if (mark->kind == MARK_REACHED)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_INVALID, "pool %s is in the host's memory, the mark is not",
			  batch->pool->mapping.name);
}

const struct compute_ops compute_ops_host = {
	.name = "host",
	.on_device = false,
	.describe = host_describe,
	.client_close = host_client_close,
	.batch_create = host_batch_create,
	.batch_destroy = host_batch_destroy,
	.stream = host_stream,
	.plan = host_plan,
	.protect = host_done,
	.validate = host_done,
	.mask_open = host_mask_open,
	.mask_close = host_mask_close,
	.mod_set_open = host_mod_set_open,
	.mod_set_close = host_mod_set_close,
	.mod_set_check = host_mod_set_check,
	.mod_set_bound = host_mod_set_bound,
	.mod_set_prepare = host_mod_set_prepare,
	.append = host_append,
	.gather = host_gather,
	.attention = host_attention,
	.merge = host_merge,
	.refuse_capture = host_refuse_capture,
	.copy_pages = host_copy_pages,
	.event_record = host_event_record,
	.event_reached = host_event_reached,
	.mark = host_mark,
	.wait = host_wait,
	.finish = host_done,
};
