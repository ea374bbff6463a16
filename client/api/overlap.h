/* SPDX-License-Identifier: Apache-2.0 */
/**
 * overlap.h - refuse outputs that share memory with other operands of a call
 *
 * An output may be an input's tensor where the call says so; client_tensor_check_in_place() checks that.  Two slices of
 * one larger tensor, such as Q and K of a packed QKV tensor, interleave without sharing an element: their strides tell
 * them apart.  All other memory of which the bounds intersect counts as shared.
 */
#ifndef PAGED_CLIENT_OVERLAP_H
#define PAGED_CLIENT_OVERLAP_H

#include "client/api/compute_ops.h"
#include "client/api/tensor.h"

/* PAGED_ERR_INVALID: the two operands, and which is written.  Lengths in device memory are not known: no check. */

enum paged_status overlap_check_append(const struct paged_batch *batch, const struct append_args *args,
				       struct paged_error *error);
enum paged_status overlap_check_gather(const struct paged_batch *batch, const struct gather_args *args,
				       const struct tensor_tokens *tokens, struct paged_error *error);
enum paged_status overlap_check_attention(const struct paged_batch *batch, const struct attention_args *args,
					  struct paged_error *error);
enum paged_status overlap_check_merge(const struct merge_args *args, const struct tensor_tokens *tokens,
				      struct paged_error *error);

#endif
