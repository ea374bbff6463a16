/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/batch.h"

#include <inttypes.h>
#include <math.h>

/* The tensor's extent in bytes must be an int64_t. */
static enum paged_status
tensor_check_extent(const char *name, const struct kernel_tensor *tensor, uint64_t total_q, struct paged_error *error)
{
	int64_t tokens, heads, extent;

	if (total_q > INT64_MAX || __builtin_mul_overflow((int64_t)total_q, tensor->token_stride, &tokens) ||
	    __builtin_mul_overflow((int64_t)tensor->n_heads, tensor->head_stride, &heads) ||
	    __builtin_add_overflow(tokens, heads, &extent))
		return paged_fail(error, PAGED_ERR_LIMIT, "%s: %" PRIu64 " tokens of these strides exceed 2^63 bytes",
				  name, total_q);
	return PAGED_OK;
}

/* The caller's tensor with strides in bytes; n_heads 0: any number. */
static enum paged_status
tensor_in(struct kernel_tensor *to, const char *name, const struct paged_tensor *from, uint32_t n_heads, uint32_t dim,
	  uint64_t total_q, struct paged_error *error)
{
	uint32_t size;
	int64_t token_stride, head_stride;

	if (from == NULL || (from->data == NULL && total_q != 0))
		return paged_fail(error, PAGED_ERR_INVALID, "%s has no data", name);
	size = paged_dtype_size(from->dtype);
	if (size == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%s: dtype %d is none of f32, f16, bf16", name,
				  (int)from->dtype);
	if (from->reserved != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%s: reserved is %u, must be 0", name, from->reserved);
	if ((uintptr_t)from->data % size != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%s: data is not aligned to its elements of %u bytes", name,
				  size);
	if (from->dim != dim || from->n_heads == 0 || (n_heads != 0 && from->n_heads != n_heads))
		return paged_fail(error, PAGED_ERR_INVALID, "%s has %u heads of %u dims, %u of %u are wanted", name,
				  from->n_heads, from->dim, n_heads != 0 ? n_heads : 1, dim);
	head_stride = from->head_stride != 0 ? from->head_stride : dim;
	token_stride = from->token_stride != 0 ? from->token_stride : (int64_t)from->n_heads * dim;
	if (head_stride < dim || token_stride < dim || head_stride > INT64_MAX / 4 || token_stride > INT64_MAX / 4)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "%s: strides of %" PRId64 " (token) and %" PRId64 " (head) elements for %u dims",
				  name, token_stride, head_stride, dim);
	*to = (struct kernel_tensor){
		.data = from->data,
		.dtype = from->dtype,
		.n_heads = from->n_heads,
		.dim = dim,
		.token_stride = token_stride * size,
		.head_stride = head_stride * size,
	};
	return tensor_check_extent(name, to, total_q, error);
}

/* What is written must not write over itself: heads inside tokens, or tokens inside heads. */
static enum paged_status
tensor_check_apart(const char *name, const struct kernel_tensor *to, uint64_t total_q, struct paged_error *error)
{
	int64_t row = (int64_t)to->dim * paged_dtype_size(to->dtype);
	int64_t heads = (to->n_heads - 1) * to->head_stride + row;
	int64_t tokens = (int64_t)(total_q - 1) * to->token_stride + row;

	if (total_q <= 1 || to->token_stride >= heads || to->n_heads == 1 || to->head_stride >= tokens)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_INVALID, "%s: its strides let heads and tokens overlap", name);
}

static enum paged_status
layer_enter(const struct paged_batch *batch, uint32_t layer)
{
	uint32_t n_layers = batch->pool->at.layout.params.n_layers;
	enum paged_status status = batch_enter(batch);

	if (status != PAGED_OK)
		return status;
	if (layer >= n_layers)
		return client_failf(batch->pool->client, PAGED_ERR_INVALID, "layer %u of a pool of %u layers", layer,
				    n_layers);
	return PAGED_OK;
}

static struct kernel_pages
layer_pages(const struct paged_batch *batch, uint32_t layer)
{
	return (struct kernel_pages){ .layout = &batch->pool->at.layout, .base = batch->pool->at.base, .layer = layer };
}

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
	if (positions != NULL)
		return positions_check(batch, positions, error);
	if (batch->unplaced_row != BATCH_NO_ROW)
		return unplaced_error(batch, batch->unplaced_row, error);
	return PAGED_OK;
}

enum paged_status
paged_append(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *k, const struct paged_tensor *v,
	     const struct paged_append_params *params)
{
	const struct layout_params *geometry = &batch->pool->at.layout.params;
	struct paged_client *client = batch->pool->client;
	enum paged_status status = layer_enter(batch, layer);
	struct append_args args = { .rows = batch->kernel_row, .n_rows = batch->n_rows };
	struct paged_append_params complete;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_append_params", &error);
	if (status == PAGED_OK)
		status = append_check_rows(batch, complete.positions, &error);
	if (status == PAGED_OK)
		status = tensor_in(&args.k, "k", k, geometry->n_kv_heads, geometry->k_dim, batch->total_q, &error);
	if (status == PAGED_OK && geometry->v_in_k && v != NULL)
		status = paged_fail(&error, PAGED_ERR_INVALID, "pool %s keeps V in K: v must be NULL",
				    batch->pool->at.name);
	if (status == PAGED_OK && !geometry->v_in_k)
		status = tensor_in(&args.v, "v", v, geometry->n_kv_heads, geometry->v_dim, batch->total_q, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	args.pages = layer_pages(batch, layer);
	args.positions = complete.positions;
	kernel_append(batch->team, &args);
	return PAGED_OK;
}

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
	return tensor_check_apart("out", &args->out, batch->total_q, error);
}

enum paged_status
paged_attention(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *q, const struct paged_tensor *out,
		const struct paged_attention_params *params)
{
	const struct layout_params *geometry = &batch->pool->at.layout.params;
	struct attention_args args = { .rows = batch->kernel_row, .n_rows = batch->n_rows };
	enum paged_status status = layer_enter(batch, layer);
	struct paged_attention_params complete;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_attention_params", &error);
	if (status == PAGED_OK)
		status = tensor_in(&args.q, "q", q, 0, geometry->k_dim, batch->total_q, &error);
	if (status == PAGED_OK)
		status = tensor_in(&args.out, "out", out, q->n_heads, geometry->v_dim, batch->total_q, &error);
	if (status == PAGED_OK)
		status = attention_check(batch, &args, &complete, &error);
	if (status != PAGED_OK)
		return client_fail(batch->pool->client, &error);
	args.pages = layer_pages(batch, layer);
	args.scale = complete.scale != 0 ? complete.scale : 1.0f / sqrtf((float)geometry->k_dim);
	args.causal = complete.mask == PAGED_MASK_CAUSAL;
	args.lse = complete.lse;
	args.maximum = complete.max_score;
	kernel_attention(batch->team, &args);
	return PAGED_OK;
}
