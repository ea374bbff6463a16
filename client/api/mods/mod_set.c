/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/mods/mod_set.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/mods/array.h"
#include "client/api/mods/mod.h"
#include "client/params.h"

static const struct mod *
mod_set_binding_mod(const struct mod_binding *binding)
{
	return binding != NULL ? mod_binding_mod(binding) : NULL;
}

static struct kernel_mod_set_params
mod_set_kernel_params(const struct paged_mod_set *set)
{
	return (struct kernel_mod_set_params){
		.blocks = set->blocks != NULL ? set->blocks->logical : NULL,
		.mask = set->mask,
		.score = set->score,
	};
}

static enum paged_status
mod_set_create_binding(const struct paged_batch *batch, const char *name, enum mod_kind kind,
		       const struct paged_mod *mod, struct mod_binding **binding_p, struct paged_error *error)
{
	if (mod == NULL)
		return PAGED_OK;
	if (mod->pool != batch->pool)
		return paged_fail(error, PAGED_ERR_INVALID, "%s is a mod of another pool than the batch's", name);
	if (mod_kind(mod->mod) != kind)
		return paged_fail(error, PAGED_ERR_INVALID, "%s is a %s mod", name,
				  kind == MOD_MASK ? "score" : "mask");
	return mod_bind_empty(mod->mod, binding_p, error);
}

/* Check that a bind to these arrays will succeed, and allocate the memory that it needs. */
static enum paged_status
mod_set_bind_prepare(struct paged_mod_set *set, const struct mod_array *arrays, uint32_t n, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	if (set->mask != NULL)
		status = mod_rebind_prepare(set->mask, arrays, n, error);
	if (status == PAGED_OK && set->score != NULL)
		status = mod_rebind_prepare(set->score, arrays, n, error);
	return status;
}

static void
mod_set_free_parts(struct paged_mod_set *set)
{
	kernel_mod_set_destroy(set->kernel);
	mod_binding_destroy(set->score);
	mod_binding_destroy(set->mask);
	array_values_free(set->narrowed);
	free(set);
}

static enum paged_status
mod_set_create(struct paged_batch *batch, const struct paged_mod_set_params *params, struct paged_mod_set **set_p,
	       struct paged_error *error)
{
	struct paged_mod_set *set = calloc(1, sizeof(*set));
	struct kernel_mod_set_params ready;
	struct paged_error unbound;
	enum paged_status status;

	if (set == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for mods");
	set->batch = batch;
	status = mod_set_create_binding(batch, "mask", MOD_MASK, params->mask, &set->mask, error);
	if (status == PAGED_OK)
		status = mod_set_create_binding(batch, "score", MOD_SCORE, params->score, &set->score, error);
	if (status != PAGED_OK)
		goto err_free;
	ready = mod_set_kernel_params(set);
	status = kernel_mod_set_create(batch->team, &ready, &set->kernel, error);
	if (status != PAGED_OK)
		goto err_free;
	status = batch->pool->compute_ops->mod_set_open(set, error);
	if (status != PAGED_OK)
		goto err_free;
	set->bound = mod_set_bind_prepare(set, NULL, 0, &unbound) == PAGED_OK;
	*set_p = set;
	return PAGED_OK;

err_free:
	mod_set_free_parts(set);
	return status;
}

enum paged_status
paged_mod_set_create(struct paged_batch *batch, const struct paged_mod_set_params *params, struct paged_mod_set **set_p)
{
	struct paged_client *client = batch_client(batch);
	enum paged_status status = client_enter(client);
	struct paged_mod_set_params complete;
	struct paged_mod_set *set = NULL;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (set_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "mods need a place for their handle");
	status = client_params_in(&complete, sizeof(complete), params, "paged_mod_set_params", &error);
	if (status == PAGED_OK)
		status = mod_set_create(batch, &complete, &set, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	set->next = batch->mod_sets;
	batch->mod_sets = set;
	*set_p = set;
	return PAGED_OK;
}

/* Keep an out-of-bounds index of the current binding: it is an error of the plan that used it. */
static void
mod_set_keep_range(struct paged_mod_set *set)
{
	struct paged_error found;

	if (set->batch->mod_range_error.status == PAGED_OK &&
	    set->batch->pool->compute_ops->mod_set_check(set, &found) == PAGED_ERR_RANGE)
		set->batch->mod_range_error = found;
}

void
mod_set_free(struct paged_mod_set *set, bool in_child)
{
	struct paged_mod_set **link;

	for (link = &set->batch->mod_sets; *link != set; link = &(*link)->next)
		;
	*link = set->next;
	set->batch->pool->compute_ops->mod_set_close(set, in_child);
	mod_set_free_parts(set);
}

void
paged_mod_set_destroy(struct paged_mod_set *set)
{
	bool in_child;

	if (set == NULL)
		return;
	in_child = guard_in_child(&set->batch->pool->client->guard);
	if (!in_child)
		mod_set_keep_range(set);
	mod_set_free(set, in_child);
}

/* Bind after all checks; cannot fail. */
static void
mod_set_bind_commit(struct paged_mod_set *set, const struct client_arrays *arrays,
		    const struct paged_block_mask *blocks)
{
	enum paged_status status = PAGED_OK;
	const struct compute_ops *compute_ops = set->batch->pool->compute_ops;
	struct kernel_mod_set_params params;
	struct paged_error error;

	if (set->mask != NULL)
		status = mod_rebind(set->mask, arrays->at, arrays->n, &error);
	if (status == PAGED_OK && set->score != NULL)
		status = mod_rebind(set->score, arrays->at, arrays->n, &error);
	assert(status == PAGED_OK);
	array_values_free(set->narrowed);
	set->narrowed = arrays->narrowed;
	/*
	 * If only the mask mod decides which keys to visit, index its arrays: this
	 * costs a nanosecond per element and saves several in each layer.  The
	 * index is optional, so a failure is ignored.
	 */
	if (set->mask != NULL && blocks == NULL && !compute_ops->on_device)
		(void)mod_binding_add_range_trees(set->mask, &error);
	set->blocks = blocks;
	set->bound = true;
	set->checked_plan = 0;
	params = mod_set_kernel_params(set);
	kernel_mod_set_bind(set->kernel, &params);
	compute_ops->mod_set_bound(set);
}

/* Create the mask's copy on the pool's device, if there is none. */
static enum paged_status
mod_set_open_blocks(const struct paged_block_mask *blocks, struct paged_error *error)
{
	const struct paged_pool *pool = blocks->pool;
	enum paged_status status;

	client_lock(pool->client);
	status = pool->compute_ops->mask_open((struct paged_block_mask *)(uintptr_t)blocks, error);
	client_unlock(pool->client);
	return status;
}

static const struct paged_client *
mod_set_client(const struct paged_mod_set *set)
{
	return set != NULL ? set->batch->pool->client : NULL;
}

enum paged_status
paged_mod_set_bind(struct paged_mod_set *set, size_t n_arrays, const struct paged_array *arrays,
		   const struct paged_block_mask *blocks)
{
	enum paged_status status = client_enter(mod_set_client(set));
	struct client_arrays ours = { .n = 0 };
	const struct paged_pool *pool;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	pool = set->batch->pool;
	ours.on_device = pool->compute_ops->on_device;
	status = client_arrays_in(&ours, mod_set_binding_mod(set->mask), mod_set_binding_mod(set->score), n_arrays,
				  arrays, &error);
	if (status == PAGED_OK)
		status = mod_set_bind_prepare(set, ours.at, ours.n, &error);
	if (status == PAGED_OK && blocks != NULL && blocks->pool != pool)
		status =
			paged_fail(&error, PAGED_ERR_INVALID, "the block mask is one of another pool than the batch's");
	if (status == PAGED_OK && blocks != NULL)
		status = mod_set_open_blocks(blocks, &error);
	if (status != PAGED_OK) {
		array_values_free(ours.narrowed);
		return client_fail(pool->client, &error);
	}
	/* On a device the record survives a bind, so there is no need to wait for the stream and read it. */
	if (!pool->compute_ops->on_device)
		mod_set_keep_range(set);
	mod_set_bind_commit(set, &ours, blocks);
	return PAGED_OK;
}

enum paged_status
paged_mod_set_prepare(struct paged_mod_set *set, enum paged_dtype q, int timeout_ms)
{
	enum paged_status status = client_enter(mod_set_client(set));
	const struct paged_pool *pool;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	pool = set->batch->pool;
	if (!paged_dtype_is_tensor(q))
		return client_failf(pool->client, PAGED_ERR_INVALID, "q: dtype %d is none of f32, f16, bf16", (int)q);
	status = pool->compute_ops->mod_set_prepare(set, q, timeout_ms, &error);
	return client_leave(pool->client, status, &error);
}

/*
 * Check a plan's row against the block mask, which has no lists for query rows and keys past its lengths or before its
 * kv_first.
 */
static enum paged_status
mod_set_check_row(const struct paged_batch *batch, uint32_t r, const struct block_mask *mask, struct paged_error *error)
{
	const struct block_mask_row *has = &mask->shape.rows[mask->shape.n_rows == 1 ? 0 : r];
	const struct kernel_row *row = &batch->kernel_row[r];

	if (row->q_len > has->q_len)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "row %u: %u query rows, its block mask was made for %" PRIu64, r, row->q_len,
				  has->q_len);
	if (row->q_len != 0 && row->kv_len > has->kv_len)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "row %u: kv_len is %u, its block mask was made for %" PRIu64, r, row->kv_len,
				  has->kv_len);
	if (row->q_len != 0 && row->kv_first < has->kv_first)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "row %u: kv_first is %u, its block mask was made for keys from %" PRIu64 " on", r,
				  row->kv_first, has->kv_first);
	return PAGED_OK;
}

/* Physical blocks are of one version of the page table, which must be the plan's.  A row without queries uses none. */
static enum paged_status
mod_set_check_row_version(const struct paged_batch *batch, uint32_t r, const struct paged_block_mask *mask,
			  struct paged_error *error)
{
	uint32_t m = mask->n_rows == 1 ? 0 : r;
	const struct batch_row *row = &batch->row[r];

	if (mask->n_rows == 0 || mask->seq[m] == 0 || batch->kernel_row[r].q_len == 0)
		return PAGED_OK;
	if (row->id != mask->seq[m])
		return paged_fail(error, PAGED_ERR_STALE,
				  "row %u: the plan has sequence " SEQ_FORMAT ", the block mask " SEQ_FORMAT, r,
				  SEQ_ARGS(row->id), SEQ_ARGS(mask->seq[m]));
	if (row->version != mask->version[m])
		return paged_fail(error, PAGED_ERR_STALE,
				  "row %u: pages of sequence " SEQ_FORMAT
				  " were replaced or removed since the block mask",
				  r, SEQ_ARGS(row->id));
	return PAGED_OK;
}

static enum paged_status
mod_set_check_blocks(const struct paged_batch *batch, const struct paged_block_mask *blocks, uint32_t n_heads,
		     struct paged_error *error)
{
	const struct block_mask *mask = blocks->logical;
	enum paged_status status = PAGED_OK;

	if (mask->shape.n_rows != 1 && mask->shape.n_rows != batch->n_rows)
		return paged_fail(error, PAGED_ERR_INVALID, "a block mask of %u rows for a plan of %u",
				  mask->shape.n_rows, batch->n_rows);
	if (mask->shape.n_heads != 1 && mask->shape.n_heads != n_heads)
		return paged_fail(error, PAGED_ERR_INVALID, "a block mask of %u heads for q of %u", mask->shape.n_heads,
				  n_heads);
	for (uint32_t r = 0; status == PAGED_OK && r < batch->n_rows; r++) {
		status = mod_set_check_row(batch, r, mask, error);
		if (status == PAGED_OK)
			status = mod_set_check_row_version(batch, r, blocks, error);
	}
	return status;
}

static enum paged_status
mod_set_fail_unbound(struct paged_mod_set *set, struct paged_error *error)
{
	struct paged_error missing = { 0 };

	mod_set_bind_prepare(set, NULL, 0, &missing);
	return paged_fail(error, PAGED_ERR_INVALID, "the mods were never bound: %s", missing.text);
}

enum paged_status
mod_set_check(struct paged_mod_set *set, const struct paged_batch *batch, uint32_t n_heads, struct paged_error *error)
{
	uint32_t r = batch->bad_row_wide;
	enum paged_status status;

	if (set->batch != batch)
		return paged_fail(error, PAGED_ERR_INVALID, "the mods are another batch's");
	if (!set->bound)
		return mod_set_fail_unbound(set, error);
	if (set->checked_plan == batch->plan_number && set->checked_heads == n_heads)
		return PAGED_OK;
	if (r != BATCH_NO_ROW)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "row %u: mods count to 2^31 - 1, not to q_idx %" PRId64 " + %u and kv_len %u", r,
				  batch->kernel_row[r].q_base, batch->kernel_row[r].q_len, batch->kernel_row[r].kv_len);
	status = set->blocks == NULL ? PAGED_OK : mod_set_check_blocks(batch, set->blocks, n_heads, error);
	if (status != PAGED_OK)
		return status;
	set->checked_plan = batch->plan_number;
	set->checked_heads = n_heads;
	return PAGED_OK;
}

void
mod_set_clear_range(struct paged_batch *batch)
{
	batch->mod_range_error.status = PAGED_OK;
	for (struct paged_mod_set *set = batch->mod_sets; set != NULL; set = set->next)
		kernel_mods_clear_range(set->kernel);
}

enum paged_status
mod_set_check_range(const struct paged_batch *batch, struct paged_error *error)
{
	enum paged_status status = batch->mod_range_error.status;

	if (status != PAGED_OK) {
		*error = batch->mod_range_error;
		return status;
	}
	for (struct paged_mod_set *set = batch->mod_sets; status == PAGED_OK && set != NULL; set = set->next)
		status = batch->pool->compute_ops->mod_set_check(set, error);
	return status;
}
