/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/tensor.h"

#include <inttypes.h>

#include "client/params.h"

/* The tensor's extent in bytes must be an int64_t. */
static enum paged_status
tensor_check_extent(const char *name, const struct kernel_tensor *tensor, uint64_t total_q, struct paged_error *error)
{
	int64_t tokens, heads, skips = 0, extent;

	if (total_q > INT64_MAX || __builtin_mul_overflow((int64_t)total_q, tensor->token_stride, &tokens) ||
	    __builtin_mul_overflow((int64_t)tensor->n_heads, tensor->head_stride, &heads) ||
	    (tensor->batch_skip != 0 &&
	     __builtin_mul_overflow((int64_t)(total_q / tensor->batch_tokens), tensor->batch_skip, &skips)) ||
	    __builtin_add_overflow(tokens, heads, &extent) || __builtin_add_overflow(extent, skips, &extent))
		return paged_fail(error, PAGED_ERR_LIMIT, "%s: %" PRIu64 " tokens of these strides exceed 2^63 bytes",
				  name, total_q);
	return PAGED_OK;
}

static enum paged_status
tensor_batch_stride_in(struct kernel_tensor *to, const char *name, const struct paged_tensor *from,
		       uint64_t batch_tokens, struct paged_error *error)
{
	int64_t size = paged_dtype_size(from->dtype), row;

	if (from->batch_stride == 0)
		return PAGED_OK;
	if (batch_tokens == 0 || batch_tokens > UINT32_MAX)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "%s has a batch_stride: rows must have equally many tokens, as the host knows them",
				  name);
	if (from->batch_stride < to->dim || from->batch_stride > INT64_MAX / 8 ||
	    __builtin_mul_overflow((int64_t)batch_tokens, to->token_stride, &row))
		return paged_fail(error, PAGED_ERR_INVALID, "%s: batch_stride of %" PRId64 " elements for %u dims",
				  name, from->batch_stride, to->dim);
	to->batch_tokens = (uint32_t)batch_tokens;
	to->batch_skip = from->batch_stride * size - row;
	return PAGED_OK;
}

enum paged_status
client_tensor_in(struct kernel_tensor *to, const char *name, const struct paged_tensor *from, uint32_t n_heads,
		 uint32_t dim, const struct tensor_tokens *tokens, struct paged_error *error)
{
	int64_t token_stride, head_stride;
	enum paged_status status;
	uint32_t size;

	if (from == NULL || (from->data == NULL && tokens->n != 0))
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
	if (from->n_heads == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%s has no heads", name);
	if (n_heads != 0 && from->n_heads != n_heads)
		return paged_fail(error, PAGED_ERR_INVALID, "%s has %u heads, not %u", name, from->n_heads, n_heads);
	if (from->dim != dim)
		return paged_fail(error, PAGED_ERR_INVALID, "%s has heads of %u dims, not %u", name, from->dim, dim);
	*to = (struct kernel_tensor){ .data = from->data, .dtype = from->dtype, .n_heads = from->n_heads, .dim = dim };
	if (tokens->n == 0)
		return PAGED_OK;
	head_stride = from->head_stride != 0 ? from->head_stride : dim;
	token_stride = from->token_stride != 0 ? from->token_stride : (int64_t)from->n_heads * dim;
	if (head_stride < dim || token_stride < dim || head_stride > INT64_MAX / 8 || token_stride > INT64_MAX / 8)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "%s: strides of %" PRId64 " (token) and %" PRId64 " (head) elements for %u dims",
				  name, token_stride, head_stride, dim);
	to->token_stride = token_stride * size;
	to->head_stride = head_stride * size;
	status = tensor_batch_stride_in(to, name, from, tokens->uniform, error);
	return status == PAGED_OK ? tensor_check_extent(name, to, tokens->n, error) : status;
}

/*
 * Check that no two elements of an output tensor overlap: in ascending order, each stride must be at least the extent
 * of the dimensions before it.
 */
static enum paged_status
tensor_check_no_overlap(const char *name, const struct kernel_tensor *to, const struct tensor_tokens *tokens,
			struct paged_error *error)
{
	int64_t n[3] = { to->n_heads, (int64_t)tokens->n, 1 }, stride[3] = { to->head_stride, to->token_stride, 0 };
	int64_t within = (int64_t)to->dim * paged_dtype_size(to->dtype);

	if (tokens->n == 0)
		return PAGED_OK;
	if (to->batch_skip != 0) {
		n[1] = to->batch_tokens;
		n[2] = (int64_t)tokens->n / to->batch_tokens;
		stride[2] = to->batch_skip + n[1] * to->token_stride;
	}
	for (int round = 0; round < 3; round++) {
		int least = -1;

		for (int i = 0; i < 3; i++)
			if (n[i] > 1 && (least < 0 || stride[i] < stride[least]))
				least = i;
		if (least < 0)
			return PAGED_OK;
		if (stride[least] < within)
			return paged_fail(error, PAGED_ERR_INVALID, "%s: its strides let heads and tokens overlap",
					  name);
		within += (n[least] - 1) * stride[least];
		n[least] = 1;
	}
	return PAGED_OK;
}

enum paged_status
client_tensor_out(struct kernel_tensor *to, const char *name, const struct paged_tensor *from, uint32_t n_heads,
		  uint32_t dim, const struct tensor_tokens *tokens, struct paged_error *error)
{
	enum paged_status status = client_tensor_in(to, name, from, n_heads, dim, tokens, error);

	return status == PAGED_OK ? tensor_check_no_overlap(name, to, tokens, error) : status;
}

enum paged_status
client_tensor_check_in_place(const char *name, const struct kernel_tensor *to, const char *from_name,
			     const struct kernel_tensor *from, struct paged_error *error)
{
	if (to->data != from->data || (to->dtype == from->dtype && to->token_stride == from->token_stride &&
				       to->head_stride == from->head_stride && to->batch_skip == from->batch_skip))
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_INVALID, "%s is in the memory of %s, with another dtype or other strides",
			  name, from_name);
}
