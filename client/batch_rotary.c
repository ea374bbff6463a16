/* SPDX-License-Identifier: Apache-2.0 */
/* What the caller said of a rotary embedding. */
#include "config.h"

#include "client/batch.h"
#include "client/compute.h"

#include <inttypes.h>

static enum paged_status
table_check(const struct paged_batch *batch, const struct paged_rotary *from, struct paged_error *error)
{
	uint32_t k_dim = batch->pool->at.layout.params.k_dim;

	if (from->cos_sin == NULL || from->n_positions == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "rotary has no table of cosines and sines");
	if (from->dim == 0 || from->dim % 2 != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "rotary turns %u dims, which are no pairs", from->dim);
	if (from->dim > k_dim || from->first > k_dim - from->dim)
		return paged_fail(error, PAGED_ERR_INVALID, "rotary turns %u dims from %u on, K has %u", from->dim,
				  from->first, k_dim);
	if (from->style != PAGED_ROTARY_NEOX && from->style != PAGED_ROTARY_INTERLEAVED)
		return paged_fail(error, PAGED_ERR_INVALID, "rotary style %d is neither NeoX nor interleaved",
				  (int)from->style);
	return PAGED_OK;
}

static enum paged_status
queries_in(const struct paged_batch *batch, struct kernel_rotary *to, const struct paged_rotary *from,
	   struct paged_error *error)
{
	uint32_t k_dim = batch->pool->at.layout.params.k_dim;
	enum paged_status status;

	if (from->q.data == NULL) {
		if (from->q_out.data == NULL)
			return PAGED_OK;
		return paged_fail(error, PAGED_ERR_INVALID, "rotary has a q_out and no q");
	}
	status = batch_tensor_in(&to->q, "rotary q", &from->q, 0, k_dim, batch->total_q, error);
	if (status == PAGED_OK)
		status = batch_tensor_in(&to->q_out, "rotary q_out", &from->q_out, from->q.n_heads, k_dim,
					 batch->total_q, error);
	if (status != PAGED_OK)
		return status;
	if (to->q_out.data == to->q.data &&
	    (to->q_out.dtype != to->q.dtype || to->q_out.token_stride != to->q.token_stride ||
	     to->q_out.head_stride != to->q.head_stride))
		return paged_fail(error, PAGED_ERR_INVALID,
				  "rotary q_out is in the memory of q, with another dtype or other strides");
	return batch_tensor_check_apart("rotary q_out", &to->q_out, batch->total_q, error);
}

static enum paged_status
position_error(uint32_t r, uint32_t i, int64_t position, uint32_t n_positions, struct paged_error *error)
{
	return paged_fail(error, PAGED_ERR_RANGE,
			  "row %u: rotary position %" PRId64 " of query row %u, the table has %u positions", r,
			  position, i, n_positions);
}

static enum paged_status
row_check(uint32_t r, const struct kernel_row *row, const struct kernel_rotary *rotary, struct paged_error *error)
{
	if (rotary->positions == NULL) {
		if (row->q_base < 0 || row->q_base >= (int64_t)rotary->n_positions)
			return position_error(r, 0, row->q_base, rotary->n_positions, error);
		if (row->q_len > rotary->n_positions - (uint32_t)row->q_base)
			return position_error(r, row->q_len - 1, row->q_base + (row->q_len - 1), rotary->n_positions,
					      error);
		return PAGED_OK;
	}
	for (uint32_t i = 0; i < row->q_len; i++) {
		uint32_t position = rotary->positions[row->q_start + i];

		if (position >= rotary->n_positions)
			return position_error(r, i, position, rotary->n_positions, error);
	}
	return PAGED_OK;
}

/* Rows with anything to turn. */
static enum paged_status
positions_check(const struct paged_batch *batch, const struct kernel_rotary *rotary, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t r = 0; status == PAGED_OK && r < batch->n_rows; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];

		if (row->q_len != 0 && (!row->skip_append || rotary->q.data != NULL))
			status = row_check(r, row, rotary, error);
	}
	return status;
}

enum paged_status
batch_rotary_in(const struct paged_batch *batch, struct kernel_rotary *to, const struct paged_rotary *from,
		struct paged_error *error)
{
	struct paged_rotary complete;
	enum paged_status status = client_params_in(&complete, sizeof(complete), from, "paged_rotary", error);

	if (status == PAGED_OK)
		status = table_check(batch, &complete, error);
	if (status != PAGED_OK)
		return status;
	*to = (struct kernel_rotary){
		.cos_sin = complete.cos_sin,
		.n_positions = complete.n_positions,
		.dim = complete.dim,
		.first = complete.first,
		.interleaved = complete.style == PAGED_ROTARY_INTERLEAVED,
		.positions = complete.positions,
	};
	status = queries_in(batch, to, &complete, error);
	if (status != PAGED_OK || batch->pool->at.compute->on_device)
		return status;
	return positions_check(batch, to, error);
}
