/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tensor.h - check the caller's tensors and convert their strides to bytes
 */
#ifndef PAGED_CLIENT_TENSOR_H
#define PAGED_CLIENT_TENSOR_H

#include "client/pagedclient.h"
#include "common/status.h"
#include "kernels/kernels.h"

/** Number of tokens of a tensor. */
struct tensor_tokens {
	uint64_t n;
	uint64_t uniform; /* tokens of every row of the plan; 0: rows differ, or the host does not know */
};

/**
 * client_tensor_in - check an input tensor and convert it
 *
 * @param[in] name     begins the error text
 * @param[in] n_heads  0: any number
 */
enum paged_status client_tensor_in(struct kernel_tensor *to, const char *name, const struct paged_tensor *from,
				   uint32_t n_heads, uint32_t dim, const struct tensor_tokens *tokens,
				   struct paged_error *error);

/** client_tensor_out - client_tensor_in() for an output tensor, no two elements of which may overlap */
enum paged_status client_tensor_out(struct kernel_tensor *to, const char *name, const struct paged_tensor *from,
				    uint32_t n_heads, uint32_t dim, const struct tensor_tokens *tokens,
				    struct paged_error *error);

/**
 * client_tensor_check_in_place - refuse an output that is in the input's memory with another layout
 *
 * Elements would be overwritten before they are read.
 */
enum paged_status client_tensor_check_in_place(const char *name, const struct kernel_tensor *to, const char *from_name,
					       const struct kernel_tensor *from, struct paged_error *error);

#endif
