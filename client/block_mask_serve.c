/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks that the owner builds. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "client/block_mask.h"
#include "client/mods.h"

static_assert(WIRE_MAX_SYMBOLS == MOD_MAX_NAMES && WIRE_MAX_MOD == MOD_MAX_TEXT, "mods as the wire has them");

/* What is asked, with memory of its own. */
struct inquiry {
	struct wire_mask_order order;
	struct wire_mask_name names[MOD_MAX_NAMES];
	uint64_t *seq;
	uint32_t *q_len, *kv_len;
	int64_t *q_base;
};

static void
inquiry_close(struct inquiry *inquiry)
{
	free(inquiry->seq);
	free(inquiry->q_len);
	free(inquiry->kv_len);
	free(inquiry->q_base);
}

/* A parameter among what the caller gave; arrays are the session's. */
static enum paged_status
parameter_find(const struct mod_array *wanted, size_t n_arrays, const struct paged_array *arrays,
	       struct wire_mask_name *to, struct paged_error *error)
{
	for (size_t i = 0; i < n_arrays; i++) {
		if (arrays[i].name == NULL || strcmp(arrays[i].name, wanted->name) != 0)
			continue;
		if (arrays[i].n_dims != 0 || arrays[i].dtype != (enum paged_dtype)wanted->dtype ||
		    arrays[i].data == NULL)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: '%s' is a parameter of dtype %s in the mod, and is given %s",
					  wanted->name, mod_dtype_name(wanted->dtype),
					  arrays[i].data == NULL ? "without data" : "as something else");
		memcpy(to->value, arrays[i].data, mod_dtype_size(wanted->dtype));
		return PAGED_OK;
	}
	return paged_fail(error, PAGED_ERR_NOENT, "block mask: no parameter '%s' is given", wanted->name);
}

static enum paged_status
names_fill(struct inquiry *inquiry, const struct mod *mod, size_t n_arrays, const struct paged_array *arrays,
	   struct paged_error *error)
{
	struct mod_array wanted;

	for (size_t i = 0; i < n_arrays; i++)
		if (arrays[i].name != NULL && arrays[i].n_dims != 0 && mod_uses(mod, arrays[i].name))
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: array '%s' goes to the owner by paged_array_upload()",
					  arrays[i].name);
	for (uint32_t i = 0; mod_name(mod, i, &wanted); i++) {
		struct wire_mask_name *name = &inquiry->names[i];
		enum paged_status status = PAGED_OK;

		*name = (struct wire_mask_name){ .dtype = (uint32_t)wanted.dtype, .n_dims = wanted.n_dims };
		strcpy(name->name, wanted.name);
		if (wanted.n_dims == 0)
			status = parameter_find(&wanted, n_arrays, arrays, name, error);
		if (status != PAGED_OK)
			return status;
		inquiry->order.n_names++;
	}
	inquiry->order.names = inquiry->names;
	return PAGED_OK;
}

static enum paged_status
rows_fill(struct inquiry *inquiry, const struct batch_mask_order *order, struct paged_error *error)
{
	bool usual = true; /* every q_base is kv_len - q_len */

	if (order->n_rows > PAGED_MAX_MASK_ROWS)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "block mask: %u rows, the owner builds for %u at most; "
				  "paged_block_mask_create() for any number",
				  order->n_rows, PAGED_MAX_MASK_ROWS);
	inquiry->seq = calloc(order->n_rows, sizeof(*inquiry->seq));
	inquiry->q_len = calloc(order->n_rows, sizeof(*inquiry->q_len));
	inquiry->kv_len = calloc(order->n_rows, sizeof(*inquiry->kv_len));
	inquiry->q_base = calloc(order->n_rows, sizeof(*inquiry->q_base));
	if (inquiry->seq == NULL || inquiry->q_len == NULL || inquiry->kv_len == NULL || inquiry->q_base == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %u rows", order->n_rows);
	for (uint32_t r = 0; r < order->n_rows; r++) {
		const struct batch_mask_row *row = &order->rows[r];

		if (row->seq == 0 || row->pages != NULL)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: row %u names no sequence; the owner takes no others", r);
		inquiry->seq[r] = row->seq;
		inquiry->q_len[r] = row->q_len;
		inquiry->kv_len[r] = row->kv_len;
		inquiry->q_base[r] = row->q_base;
		usual = usual && row->q_base == (int64_t)row->kv_len - row->q_len;
	}
	inquiry->order.n = order->n_rows;
	inquiry->order.seq = inquiry->seq;
	inquiry->order.q_len = inquiry->q_len;
	inquiry->order.kv_len = inquiry->kv_len;
	inquiry->order.q_base = usual ? NULL : inquiry->q_base;
	return PAGED_OK;
}

static enum paged_status
inquiry_open(struct inquiry *inquiry, const struct paged_pool *pool, const struct batch_mask_order *order,
	     const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays, struct paged_error *error)
{
	enum paged_status status;

	*inquiry = (struct inquiry){
		.order = { .pool = pool->at.index,
			   .n_heads = order->n_heads,
			   .q_block = order->q_block,
			   .kv_block = order->kv_block,
			   .max_bytes = order->max_bytes },
	};
	if (mod == NULL || mod_kind(mod->mod) != MOD_MASK)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: no mask mod");
	if (mod->pool != pool)
		return paged_fail(error, PAGED_ERR_INVALID, "block mask: a mod of pool %s for a mask of pool %s",
				  mod->pool->at.name, pool->at.name);
	if (arrays == NULL && n_arrays != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "arrays is NULL");
	inquiry->order.text = mod_text(mod->mod);
	status = names_fill(inquiry, mod->mod, n_arrays, arrays, error);
	return status == PAGED_OK ? rows_fill(inquiry, order, error) : status;
}

/* Is it the mask that was asked for, in this life of the owner? */
static enum paged_status
image_check(const struct paged_pool *pool, const struct batch_mask_order *order, const struct image *image,
	    struct paged_error *error)
{
	const struct block_mask_shape *shape = &image->mask->shape;
	bool same = image->page_size == pool->at.view.page_size && image->n_pages == pool->at.view.n_pages &&
		    shape->n_rows == order->n_rows && shape->q_block == order->q_block &&
		    shape->n_heads == (order->n_heads != 0 ? order->n_heads : 1);

	if (memcmp(image->boot_id, pool->at.view.header->boot_id, sizeof(image->boot_id)) != 0)
		return paged_fail(error, PAGED_ERR_GONE, "block mask: it is of another life of the daemon");
	for (uint32_t r = 0; r < order->n_rows && same; r++) {
		const struct image_row *row = &image->rows[r];
		const struct batch_mask_row *asked = &order->rows[r];

		same = row->seq == asked->seq && row->q_base == asked->q_base && row->q_len == asked->q_len &&
		       row->kv_len == asked->kv_len;
	}
	if (!same)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "block mask: the owner's is not the one asked for");
	return PAGED_OK;
}

static enum paged_status
parts_fill(struct block_mask_parts *parts, struct image *image, struct paged_error *error)
{
	const uint32_t n_rows = image->mask->shape.n_rows;

	parts->seq = calloc(n_rows, sizeof(*parts->seq));
	parts->version = calloc(n_rows, sizeof(*parts->version));
	if (parts->seq == NULL || parts->version == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %u rows", n_rows);
	for (uint32_t r = 0; r < n_rows; r++) {
		parts->seq[r] = image->rows[r].seq;
		parts->version[r] = image->rows[r].version;
	}
	parts->physical = image->mask;
	parts->logical = image->logical;
	image->mask = image->logical = NULL;
	return PAGED_OK;
}

static enum paged_status
owner_ask(struct paged_pool *pool, const struct batch_mask_order *order, const struct wire_mask_order *inquiry,
	  struct image *image, struct paged_error *error)
{
	struct paged_client *client = pool->client;
	enum paged_status status;

	client_lock(client);
	status = client->owner->ops->mask(client->owner, inquiry, &pool->mask_memory, image, error);
	client_unlock(client);
	if (status == PAGED_OK)
		status = image_check(pool, order, image, error);
	if (status != PAGED_OK)
		image_free(image);
	return status;
}

static enum paged_status
serve(struct paged_pool *pool, const struct batch_mask_order *order, const struct paged_mod *mod, size_t n_arrays,
      const struct paged_array *arrays, struct block_mask_parts *parts, struct paged_error *error)
{
	struct image image = { 0 };
	struct inquiry inquiry;
	enum paged_status status;

	if (pool->client->owner->session == 0)
		return paged_fail(error, PAGED_ERR_PERM,
				  "an observer has no session to build for; paged_block_mask_create() does it here");
	status = inquiry_open(&inquiry, pool, order, mod, n_arrays, arrays, error);
	if (status == PAGED_OK)
		status = owner_ask(pool, order, &inquiry.order, &image, error);
	if (status == PAGED_OK)
		status = parts_fill(parts, &image, error);
	image_free(&image);
	inquiry_close(&inquiry);
	return status;
}

enum paged_status
paged_block_mask_serve(struct paged_pool *pool, const struct paged_block_mask_params *params,
		       const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays,
		       struct paged_block_mask **mask_p)
{
	struct paged_client *client = pool->client;
	enum paged_status status = client_enter_owner(client);
	struct paged_block_mask_params physical;
	struct block_mask_parts parts = { 0 };
	struct block_mask_order order;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (client_params_in(&physical, sizeof(physical), params, "paged_block_mask_params", &error) != PAGED_OK)
		return client_fail(client, &error);
	physical.physical = 1;
	status = block_mask_order_open(&order, pool, &physical, mask_p);
	if (status != PAGED_OK)
		return status;
	status = serve(pool, &order.order, mod, n_arrays, arrays, &parts, &error);
	block_mask_order_close(&order);
	return block_mask_deliver(pool, status, &parts, mask_p, &error);
}
