/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_cuda_blocks.h - block masks in a GPU's memory
 *
 * A mask never changes, so what was copied when it was bound first serves
 * until the mask ends, whichever batches of its pool use it.
 */
#ifndef PAGED_CLIENT_COMPUTE_CUDA_BLOCKS_H
#define PAGED_CLIENT_COMPUTE_CUDA_BLOCKS_H

#include "client/block_mask.h"
#include "kernels/cuda/kernels.h"

/** compute_cuda_blocks_open - copy the mask's lists, unless they are there; waits for the copy.  Under the client's
 * mutex */
enum paged_status compute_cuda_blocks_open(struct paged_block_mask *mask, struct paged_error *error);

/** compute_cuda_blocks_close - also of a mask that was never bound; in a child memory alone is freed */
void compute_cuda_blocks_close(struct paged_block_mask *mask, bool in_child);

/** compute_cuda_blocks_of - of a mask that is there */
struct cuda_block_mask compute_cuda_blocks_of(const struct paged_block_mask *mask);

#endif
