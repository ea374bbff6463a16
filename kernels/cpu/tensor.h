/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tensor.h - addresses in packed tensors
 */
#ifndef PAGED_KERNELS_CPU_TENSOR_H
#define PAGED_KERNELS_CPU_TENSOR_H

#include "kernels/kernels.h"

/** tensor_at - address of one head of one packed token */
static inline void *
tensor_at(const struct kernel_tensor *tensor, uint64_t token, uint32_t head)
{
	uint8_t *at =
		(uint8_t *)tensor->data + (int64_t)token * tensor->token_stride + (int64_t)head * tensor->head_stride;

	return tensor->batch_skip == 0 ? at : at + (int64_t)(token / tensor->batch_tokens) * tensor->batch_skip;
}

/** tensor_prefetch - prefetch the cache lines of tensor_at() */
static inline void
tensor_prefetch(const struct kernel_tensor *tensor, uint64_t token, uint32_t head)
{
	const uint8_t *at = tensor_at(tensor, token, head);
	const size_t bytes = tensor->dim * paged_dtype_size(tensor->dtype);

	for (size_t b = 0; b < bytes; b += 64)
		__builtin_prefetch(at + b);
}

#endif
