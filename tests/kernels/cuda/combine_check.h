/* SPDX-License-Identifier: Apache-2.0 */
/**
 * combine_check.h - recompute the combination of KV chunks from the workspace that an attention kernel left
 */
#ifndef PAGED_TESTS_CUDA_COMBINE_CHECK_H
#define PAGED_TESTS_CUDA_COMBINE_CHECK_H

#include "kernels/cuda/kernels.h"

/**
 * combine_check - combine the states of each tile's KV chunks one after another, in their order, and compare
 *
 * Fails the test unless output, LSE and maximum have the same bits.
 *
 * @param[in] p   an attention kernel's parameters, after it ran on the host
 */
void combine_check(const struct cuda_attention_params *p);

#endif
