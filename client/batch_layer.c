/* SPDX-License-Identifier: Apache-2.0 */
/* What calls on one layer begin with: its pages, and the caller's tensors. */
#include "config.h"

#include "client/batch.h"

#include <inttypes.h>

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

enum paged_status
batch_tensor_in(struct kernel_tensor *to, const char *name, const struct paged_tensor *from, uint32_t n_heads,
		uint32_t dim, uint64_t total_q, struct paged_error *error)
{
	uint32_t size;
	int64_t token_stride, head_stride;

	if (from == NULL || (from->data == NULL && total_q != 0))
		return paged_fail(error, PAGED_ERR_INVALID, "%s has no data", name);
	size = paged_dtype_size(from->dtype);
	if (!paged_dtype_is_tensor(from->dtype))
		return paged_fail(error, PAGED_ERR_INVALID, "%s: dtype %d is none of f32, f16, bf16", name,
				  (int)from->dtype);
	if (!client_is_zero(from->reserved, sizeof(from->reserved)))
		return paged_fail(error, PAGED_ERR_INVALID, "%s: reserved words must be 0", name);
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

enum paged_status
batch_tensor_check_apart(const char *name, const struct kernel_tensor *to, uint64_t total_q, struct paged_error *error)
{
	int64_t row = (int64_t)to->dim * paged_dtype_size(to->dtype);
	int64_t heads = (to->n_heads - 1) * to->head_stride + row;
	int64_t tokens = (int64_t)(total_q - 1) * to->token_stride + row;

	if (total_q <= 1 || to->token_stride >= heads || to->n_heads == 1 || to->head_stride >= tokens)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_INVALID, "%s: its strides let heads and tokens overlap", name);
}

enum paged_status
batch_layer_enter(const struct paged_batch *batch, uint32_t layer)
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

struct kernel_pages
batch_layer_pages(const struct paged_batch *batch, uint32_t layer)
{
	return (struct kernel_pages){ .layout = &batch->pool->at.layout, .base = batch->pool->at.base, .layer = layer };
}
