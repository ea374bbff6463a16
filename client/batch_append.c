/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/batch.h"
#include "client/compute.h"

static enum paged_status
unplaced_error(const struct paged_batch *batch, uint32_t r, struct paged_error *error)
{
	const struct kernel_row *row = &batch->kernel_row[r];

	if (row->q_len > row->kv_len)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "row %u: %u tokens to append end at kv_len %u: positions are needed", r, row->q_len,
				  row->kv_len);
	return paged_fail(error, PAGED_ERR_PERM,
			  "row %u: position %u of sequence " SEQ_FORMAT " may not be written, it is writable from %u",
			  r, row->kv_len - row->q_len, SEQ_ARGS(batch->row[r].id), batch->row[r].writable_from);
}

static enum paged_status
positions_check(const struct paged_batch *batch, const uint32_t *positions, struct paged_error *error)
{
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];
		const struct batch_row *known = &batch->row[r];

		for (uint32_t i = 0; !row->skip_append && i < row->q_len; i++) {
			uint32_t position = positions[row->q_start + i];

			if (position >= known->capacity)
				return paged_fail(error, PAGED_ERR_CAPACITY,
						  "row %u: position %u is past the %u tokens it has room for", r,
						  position, known->capacity);
			if (position < known->writable_from)
				return paged_fail(error, PAGED_ERR_PERM,
						  "row %u: position %u may not be written, the row is writable from %u",
						  r, position, known->writable_from);
		}
	}
	return PAGED_OK;
}

static enum paged_status
append_check_rows(const struct paged_batch *batch, const uint32_t *positions, struct paged_error *error)
{
	uint32_t r = batch->foreign_row;

	if (r != BATCH_NO_ROW)
		return paged_fail(error, PAGED_ERR_PERM,
				  "row %u: sequence " SEQ_FORMAT " belongs to session %u, this is session %u", r,
				  SEQ_ARGS(batch->row[r].id), batch->row[r].owner, batch->pool->client->owner->session);
	if (positions != NULL && batch->pool->at.compute->on_device)
		return PAGED_OK;
	if (positions != NULL)
		return positions_check(batch, positions, error);
	if (batch->unplaced_row != BATCH_NO_ROW)
		return unplaced_error(batch, batch->unplaced_row, error);
	return PAGED_OK;
}

static enum paged_status
tensors_in(const struct paged_batch *batch, struct append_args *args, const struct paged_tensor *k,
	   const struct paged_tensor *v, struct paged_error *error)
{
	const struct layout_params *geometry = &batch->pool->at.layout.params;
	enum paged_status status =
		batch_tensor_in(&args->k, "k", k, geometry->n_kv_heads, geometry->k_dim, batch->total_q, error);

	if (status != PAGED_OK)
		return status;
	if (!geometry->v_in_k)
		return batch_tensor_in(&args->v, "v", v, geometry->n_kv_heads, geometry->v_dim, batch->total_q, error);
	if (v == NULL)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_INVALID, "pool %s keeps V in K: v must be NULL", batch->pool->at.name);
}

enum paged_status
paged_append(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *k, const struct paged_tensor *v,
	     const struct paged_append_params *params)
{
	struct paged_client *client = batch->pool->client;
	enum paged_status status = batch_layer_enter(batch, layer);
	struct append_args args = { .rows = batch->kernel_row, .n_rows = batch->n_rows };
	struct paged_append_params complete;
	struct kernel_rotary rotary;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_append_params", &error);
	if (status == PAGED_OK)
		status = append_check_rows(batch, complete.positions, &error);
	if (status == PAGED_OK)
		status = tensors_in(batch, &args, k, v, &error);
	if (status == PAGED_OK)
		status = batch_check_scales(batch, complete.k_scale, complete.v_scale, &error);
	if (status == PAGED_OK && complete.rotary != NULL)
		status = batch_rotary_in(batch, &rotary, complete.rotary, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	args.pages = batch_layer_pages(batch, layer);
	args.positions = complete.positions;
	args.k_scale = complete.k_scale;
	args.v_scale = complete.v_scale;
	args.rotary = complete.rotary != NULL ? &rotary : NULL;
	status = batch->pool->at.compute->append(batch, &args, &error);
	return status == PAGED_OK ? PAGED_OK : client_fail(client, &error);
}
