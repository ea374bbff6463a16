/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/mod_set.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "client/api/array.h"
#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/mod.h"
#include "client/params.h"

static const struct mod *
binding_mod(const struct mod_binding *binding)
{
	return binding != NULL ? mod_binding_mod(binding) : NULL;
}

static struct kernel_mods_params
kernel_params(const struct paged_mod_set *mods)
{
	return (struct kernel_mods_params){
		.blocks = mods->blocks != NULL ? mods->blocks->logical : NULL,
		.mask = mods->mask,
		.score = mods->score,
	};
}

static enum paged_status
side_create(const struct paged_batch *batch, const char *name, enum mod_kind kind, const struct paged_mod *mod,
	    struct mod_binding **binding_p, struct paged_error *error)
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
bind_prepare(struct paged_mod_set *mods, const struct mod_array *arrays, uint32_t n, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	if (mods->mask != NULL)
		status = mod_rebind_prepare(mods->mask, arrays, n, error);
	if (status == PAGED_OK && mods->score != NULL)
		status = mod_rebind_prepare(mods->score, arrays, n, error);
	return status;
}

static void
parts_free(struct paged_mod_set *mods)
{
	kernel_mods_destroy(mods->kernel);
	mod_binding_destroy(mods->score);
	mod_binding_destroy(mods->mask);
	array_values_free(mods->narrowed);
	free(mods);
}

static enum paged_status
mods_create(struct paged_batch *batch, const struct paged_mod_set_params *params, struct paged_mod_set **mods_p,
	    struct paged_error *error)
{
	struct paged_mod_set *mods = calloc(1, sizeof(*mods));
	struct kernel_mods_params ready;
	struct paged_error unbound;
	enum paged_status status;

	if (mods == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for mods");
	mods->batch = batch;
	status = side_create(batch, "mask", MOD_MASK, params->mask, &mods->mask, error);
	if (status == PAGED_OK)
		status = side_create(batch, "score", MOD_SCORE, params->score, &mods->score, error);
	if (status != PAGED_OK)
		goto err_free;
	ready = kernel_params(mods);
	status = kernel_mods_create(batch->team, &ready, &mods->kernel, error);
	if (status != PAGED_OK)
		goto err_free;
	status = batch->pool->compute->mods_open(mods, error);
	if (status != PAGED_OK)
		goto err_free;
	mods->bound = bind_prepare(mods, NULL, 0, &unbound) == PAGED_OK;
	*mods_p = mods;
	return PAGED_OK;

err_free:
	parts_free(mods);
	return status;
}

enum paged_status
paged_mod_set_create(struct paged_batch *batch, const struct paged_mod_set_params *params,
		     struct paged_mod_set **mods_p)
{
	struct paged_client *client = batch_client(batch);
	enum paged_status status = client_enter(client);
	struct paged_mod_set_params complete;
	struct paged_mod_set *mods = NULL;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (mods_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "mods need a place for their handle");
	status = client_params_in(&complete, sizeof(complete), params, "paged_mod_set_params", &error);
	if (status == PAGED_OK)
		status = mods_create(batch, &complete, &mods, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	mods->next = batch->mods;
	batch->mods = mods;
	*mods_p = mods;
	return PAGED_OK;
}

/* Keep an out-of-bounds index of the current binding: it is an error of the plan that used it. */
static void
range_keep(struct paged_mod_set *mods)
{
	struct paged_error found;

	if (mods->batch->range.status == PAGED_OK &&
	    mods->batch->pool->compute->mods_check(mods, &found) == PAGED_ERR_RANGE)
		mods->batch->range = found;
}

void
mods_free(struct paged_mod_set *mods, bool in_child)
{
	struct paged_mod_set **link;

	for (link = &mods->batch->mods; *link != mods; link = &(*link)->next)
		;
	*link = mods->next;
	mods->batch->pool->compute->mods_close(mods, in_child);
	parts_free(mods);
}

void
paged_mod_set_destroy(struct paged_mod_set *mods)
{
	bool in_child;

	if (mods == NULL)
		return;
	in_child = guard_in_child(&mods->batch->pool->client->guard);
	if (!in_child)
		range_keep(mods);
	mods_free(mods, in_child);
}

/* Bind after all checks; cannot fail. */
static void
bind_commit(struct paged_mod_set *mods, const struct mods_arrays *arrays, const struct paged_block_mask *blocks)
{
	enum paged_status status = PAGED_OK;
	const struct compute_ops *compute = mods->batch->pool->compute;
	struct kernel_mods_params params;
	struct paged_error error;

	if (mods->mask != NULL)
		status = mod_rebind(mods->mask, arrays->at, arrays->n, &error);
	if (status == PAGED_OK && mods->score != NULL)
		status = mod_rebind(mods->score, arrays->at, arrays->n, &error);
	assert(status == PAGED_OK);
	array_values_free(mods->narrowed);
	mods->narrowed = arrays->narrowed;
	/*
	 * If only the mask mod decides which keys to visit, index its arrays: this
	 * costs a nanosecond per element and saves several in each layer.  The
	 * index is optional, so a failure is ignored.
	 */
	if (mods->mask != NULL && blocks == NULL && !compute->on_device)
		(void)mod_binding_add_range_trees(mods->mask, &error);
	mods->blocks = blocks;
	mods->bound = true;
	mods->fits_plan = 0;
	params = kernel_params(mods);
	kernel_mods_bind(mods->kernel, &params);
	compute->mods_bound(mods);
}

/* Create the mask's copy on the pool's device, if there is none. */
static enum paged_status
blocks_open(const struct paged_block_mask *blocks, struct paged_error *error)
{
	const struct paged_pool *pool = blocks->pool;
	enum paged_status status;

	client_lock(pool->client);
	status = pool->compute->mask_open((struct paged_block_mask *)(uintptr_t)blocks, error);
	client_unlock(pool->client);
	return status;
}

static const struct paged_client *
mods_client(const struct paged_mod_set *mods)
{
	return mods != NULL ? mods->batch->pool->client : NULL;
}

enum paged_status
paged_mod_set_bind(struct paged_mod_set *mods, size_t n_arrays, const struct paged_array *arrays,
		   const struct paged_block_mask *blocks)
{
	enum paged_status status = client_enter(mods_client(mods));
	struct mods_arrays ours = { .n = 0 };
	const struct paged_pool *pool;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	pool = mods->batch->pool;
	ours.on_device = pool->compute->on_device;
	status = mods_arrays_in(&ours, binding_mod(mods->mask), binding_mod(mods->score), n_arrays, arrays, &error);
	if (status == PAGED_OK)
		status = bind_prepare(mods, ours.at, ours.n, &error);
	if (status == PAGED_OK && blocks != NULL && blocks->pool != pool)
		status =
			paged_fail(&error, PAGED_ERR_INVALID, "the block mask is one of another pool than the batch's");
	if (status == PAGED_OK && blocks != NULL)
		status = blocks_open(blocks, &error);
	if (status != PAGED_OK) {
		array_values_free(ours.narrowed);
		return client_fail(pool->client, &error);
	}
	/* On a device the record survives a bind, so there is no need to wait for the stream and read it. */
	if (!pool->compute->on_device)
		range_keep(mods);
	bind_commit(mods, &ours, blocks);
	return PAGED_OK;
}

enum paged_status
paged_mod_set_prepare(struct paged_mod_set *mods, enum paged_dtype q, int timeout_ms)
{
	enum paged_status status = client_enter(mods_client(mods));
	const struct paged_pool *pool;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	pool = mods->batch->pool;
	if (!paged_dtype_is_tensor(q))
		return client_failf(pool->client, PAGED_ERR_INVALID, "q: dtype %d is none of f32, f16, bf16", (int)q);
	status = pool->compute->mods_prepare(mods, q, timeout_ms, &error);
	return status == PAGED_OK ? PAGED_OK : client_fail(pool->client, &error);
}

/* Check a plan's row against the block mask, which has no lists for query rows and keys past its lengths. */
static enum paged_status
row_check(const struct paged_batch *batch, uint32_t r, const struct block_mask *mask, struct paged_error *error)
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
	return PAGED_OK;
}

/* Physical blocks are of one version of the page table, which must be the plan's.  A row without queries uses none. */
static enum paged_status
row_check_version(const struct paged_batch *batch, uint32_t r, const struct paged_block_mask *mask,
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
blocks_check(const struct paged_batch *batch, const struct paged_block_mask *blocks, uint32_t n_heads,
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
		status = row_check(batch, r, mask, error);
		if (status == PAGED_OK)
			status = row_check_version(batch, r, blocks, error);
	}
	return status;
}

static enum paged_status
unbound_error(struct paged_mod_set *mods, struct paged_error *error)
{
	struct paged_error missing = { 0 };

	bind_prepare(mods, NULL, 0, &missing);
	return paged_fail(error, PAGED_ERR_INVALID, "the mods were never bound: %s", missing.text);
}

enum paged_status
mods_check(struct paged_mod_set *mods, const struct paged_batch *batch, uint32_t n_heads, struct paged_error *error)
{
	uint32_t r = batch->wide_row;
	enum paged_status status;

	if (mods->batch != batch)
		return paged_fail(error, PAGED_ERR_INVALID, "the mods are another batch's");
	if (!mods->bound)
		return unbound_error(mods, error);
	if (mods->fits_plan == batch->plan_number && mods->fits_heads == n_heads)
		return PAGED_OK;
	if (r != BATCH_NO_ROW)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "row %u: mods count to 2^31 - 1, not to q_idx %" PRId64 " + %u and kv_len %u", r,
				  batch->kernel_row[r].q_base, batch->kernel_row[r].q_len, batch->kernel_row[r].kv_len);
	status = mods->blocks == NULL ? PAGED_OK : blocks_check(batch, mods->blocks, n_heads, error);
	if (status != PAGED_OK)
		return status;
	mods->fits_plan = batch->plan_number;
	mods->fits_heads = n_heads;
	return PAGED_OK;
}

void
mods_forget_range(struct paged_batch *batch)
{
	batch->range.status = PAGED_OK;
	for (struct paged_mod_set *mods = batch->mods; mods != NULL; mods = mods->next)
		kernel_mods_clear_range(mods->kernel);
}

enum paged_status
mods_check_range(const struct paged_batch *batch, struct paged_error *error)
{
	enum paged_status status = batch->range.status;

	if (status != PAGED_OK) {
		*error = batch->range;
		return status;
	}
	for (struct paged_mod_set *mods = batch->mods; status == PAGED_OK && mods != NULL; mods = mods->next)
		status = batch->pool->compute->mods_check(mods, error);
	return status;
}
