/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_cuda_block_mask.h - block masks in a GPU's memory
 *
 * A mask never changes.  Its lists are copied to the device when it is first
 * bound; every batch of the pool uses that copy until the mask is freed.
 */
#ifndef PAGED_CLIENT_COMPUTE_CUDA_BLOCK_MASK_H
#define PAGED_CLIENT_COMPUTE_CUDA_BLOCK_MASK_H

#include "client/api/objects.h"
#include "kernels/cuda/kernels.h"

/**
 * compute_cuda_block_mask_open - copy the mask's lists to the device if they are not there yet; waits for the copy
 *
 * The client's mutex is held.
 */
enum paged_status compute_cuda_block_mask_open(struct paged_block_mask *mask, struct paged_error *error);

/** compute_cuda_block_mask_close - free the copy, if there is one; in a forked child, free host memory only */
void compute_cuda_block_mask_close(struct paged_block_mask *mask, bool in_child);

/** compute_cuda_block_mask_view - the kernels' view of the mask's copy, which must exist */
struct cuda_block_mask compute_cuda_block_mask_view(const struct paged_block_mask *mask);

#endif
