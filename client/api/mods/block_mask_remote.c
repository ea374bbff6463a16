/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks that the owner builds on request. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "client/api/enter.h"
#include "client/api/mods/block_mask.h"
#include "client/api/mods/mod.h"

/* Maximum of attempts to request a mask; an attempt fails if an array that the mask uses is replaced between parts. */
enum { ATTEMPTS = 8 };

/* A request and the memory that it owns. */
struct remote_mask {
	struct mask_request request;
	struct mask_request_name names[MASK_MAX_NAMES];
	int64_t *q_base; /* one allocation, which also has q_len, kv_len, kv_first and b */
};

/* Find a parameter's value among the caller's arrays.  Other arrays are not sent: the session has uploaded them. */
static enum paged_status
remote_mask_find_parameter(const struct mod_array *wanted, size_t n_arrays, const struct paged_array *arrays,
			   struct mask_request_name *to, struct paged_error *error)
{
	for (size_t i = 0; i < n_arrays; i++) {
		enum paged_status status = PAGED_OK;
		const void *value = arrays[i].data;
		int32_t narrowed;

		if (arrays[i].name == NULL || strcmp(arrays[i].name, wanted->name) != 0)
			continue;
		if (arrays[i].n_dims != 0 || client_array_dtype(arrays[i].dtype) != wanted->dtype ||
		    arrays[i].data == NULL)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: '%s' is a parameter of dtype %s in the mod, and is given %s",
					  wanted->name, mod_dtype_name(wanted->dtype),
					  arrays[i].data == NULL ? "without data" : "as something else");
		if (arrays[i].dtype == PAGED_I64) {
			status = array_narrow_value(&arrays[i], &narrowed, error);
			value = &narrowed;
		}
		if (status == PAGED_OK)
			memcpy(to->value, value, mod_dtype_size(wanted->dtype));
		return status;
	}
	return paged_fail(error, PAGED_ERR_NOENT, "block mask: no parameter '%s' is given", wanted->name);
}

static enum paged_status
remote_mask_fill_names(struct remote_mask *remote, const struct mod *mod, size_t n_arrays,
		       const struct paged_array *arrays, struct paged_error *error)
{
	struct mod_array wanted;

	for (size_t i = 0; i < n_arrays; i++)
		if (arrays[i].name != NULL && arrays[i].n_dims != 0 && mod_uses(mod, arrays[i].name))
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: array '%s' must be uploaded to the owner first", arrays[i].name);
	for (uint32_t i = 0; mod_name(mod, i, &wanted); i++) {
		struct mask_request_name *name = &remote->names[i];
		enum paged_status status = PAGED_OK;

		*name = (struct mask_request_name){ .dtype = (uint32_t)wanted.dtype, .n_dims = wanted.n_dims };
		strcpy(name->name, wanted.name);
		if (wanted.n_dims == 0)
			status = remote_mask_find_parameter(&wanted, n_arrays, arrays, name, error);
		if (status != PAGED_OK)
			return status;
		remote->request.n_names++;
	}
	remote->request.names = remote->names;
	return PAGED_OK;
}

static enum paged_status
remote_mask_fill_rows(struct remote_mask *remote, const struct batch_mask_request *request, struct paged_error *error)
{
	bool usual = true;  /* every q_base is kv_len - q_len */
	bool places = true; /* every b is the row's index */
	bool whole = true;  /* every kv_first is 0 */
	uint32_t *q_len, *kv_len, *kv_first, *b;

	if (request->n_rows > PAGED_MAX_MASK_ROWS)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "block mask: %u rows, the owner builds for %u at most; "
				  "a mask that is not remote may have any number",
				  request->n_rows, PAGED_MAX_MASK_ROWS);
	remote->q_base = calloc(request->n_rows, sizeof(*remote->q_base) + 4 * sizeof(uint32_t));
	if (remote->q_base == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %u rows", request->n_rows);
	q_len = (uint32_t *)(remote->q_base + request->n_rows);
	kv_len = q_len + request->n_rows;
	kv_first = kv_len + request->n_rows;
	b = kv_first + request->n_rows;
	for (uint32_t r = 0; r < request->n_rows; r++) {
		const struct batch_mask_row *row = &request->rows[r];

		q_len[r] = row->q_len;
		kv_len[r] = row->kv_len;
		kv_first[r] = row->kv_first;
		whole = whole && row->kv_first == 0;
		remote->q_base[r] = row->q_base;
		b[r] = (uint32_t)row->b;
		places = places && row->b == (int32_t)r;
		usual = usual && row->q_base == (int64_t)row->kv_len - row->q_len;
	}
	remote->request.q_len = q_len;
	remote->request.kv_len = kv_len;
	remote->request.q_base = usual ? NULL : remote->q_base;
	remote->request.kv_first = whole ? NULL : kv_first;
	remote->request.b = places ? NULL : b;
	return PAGED_OK;
}

static enum paged_status
remote_mask_open(struct remote_mask *remote, const struct batch_mask_request *request, const struct paged_mod *mod,
		 size_t n_arrays, const struct paged_array *arrays, struct paged_error *error)
{
	enum paged_status status;

	*remote = (struct remote_mask){
		.request = { .n_rows = request->n_rows,
			     .n_heads = request->n_heads,
			     .q_block = request->q_block,
			     .kv_block = request->kv_block },
	};
	if (mod_kind(mod->mod) != MOD_MASK)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: no mask mod");
	if (arrays == NULL && n_arrays != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "arrays is NULL");
	remote->request.text = mod_text(mod->mod);
	status = remote_mask_fill_names(remote, mod->mod, n_arrays, arrays, error);
	return status == PAGED_OK ? remote_mask_fill_rows(remote, request, error) : status;
}

/* Request the mask part by part; *again_p: an array was replaced between two parts, so they do not match. */
static enum paged_status
remote_mask_request_parts(struct paged_client *client, const struct block_mask_shape *shape, uint64_t max_bytes,
			  struct mask_request *request, struct block_mask **logical_p, bool *again_p,
			  struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	struct rle_reader reader;

	rle_read_begin(&reader, shape, max_bytes, error);
	while (status == PAGED_OK && !reader.done) {
		request->first_list = reader.builder.n_ended;
		request->first_block = reader.block;
		client_lock(client);
		status = client->owner->ops->mask(client->owner, request, &reader, error);
		client_unlock(client);
	}
	*again_p = reader.builder.status == PAGED_ERR_AGAIN;
	return rle_read_end(&reader, status, logical_p);
}

static enum paged_status
block_mask_build_remote(struct paged_pool *pool, const struct batch_mask_request *request, const struct paged_mod *mod,
			size_t n_arrays, const struct paged_array *arrays, struct block_mask **logical_p,
			struct paged_error *error)
{
	struct block_mask_shape shape = { .rows = NULL };
	struct remote_mask remote = { .q_base = NULL };
	enum paged_status status;
	bool again = true;

	if (pool->client->owner->session == 0)
		return paged_fail(error, PAGED_ERR_PERM,
				  "an observer has no session to build for; a mask that is not remote is built here");
	status = remote_mask_open(&remote, request, mod, n_arrays, arrays, error);
	if (status == PAGED_OK)
		status = batch_mask_shape(request, &shape, error);
	if (status == PAGED_OK)
		for (int i = 0; i < ATTEMPTS && again; i++)
			status = remote_mask_request_parts(pool->client, &shape, request->max_bytes, &remote.request,
							   logical_p, &again, error);
	free((void *)shape.rows);
	free(remote.q_base);
	return status;
}

enum paged_status
paged_block_mask_create_remote(struct paged_pool *pool, const struct paged_block_mask_params *params,
			       const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays,
			       struct paged_block_mask **mask_p)
{
	enum paged_status status = client_enter_owner(pool_client(pool));

	return status == PAGED_OK
		       ? block_mask_make(block_mask_build_remote, pool, params, mod, n_arrays, arrays, mask_p)
		       : status;
}
