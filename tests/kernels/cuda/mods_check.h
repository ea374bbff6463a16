/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mods_check.h - CUDA attention with mods and block masks, against float64
 */
#ifndef TESTS_KERNELS_CUDA_MODS_CHECK_H
#define TESTS_KERNELS_CUDA_MODS_CHECK_H

#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/kernel_fixture.h"

#define MODS_CHECK_HEADS 4u

/** Arguments of tests/fake-cuda/kernels/mod_window.h and mod_document.h. */
struct window_args {
	int32_t window;
	float cap;
};

struct document_args {
	uint64_t doc, slope, fault;
	int32_t n_doc, n_slope;
};

/** mods_check_params - three rows: decode over several KV chunks, many queries, and queries with few keys */
struct kernel_fixture_params mods_check_params(void);

/** mods_check_blocks - the block mask of a bound mask mod over a fixture's rows, its lists in descending order */
struct block_mask *mods_check_blocks(const struct kernel_fixture_params *params, const struct mod_binding *mask,
				     uint32_t n_heads, uint32_t q_block, uint32_t kv_block);

/** mods_check - attention with the mods alone is correct; block masks of several block sizes give the same bits */
void mods_check(struct kernel_fixture_params *params, struct cuda_attention_options options, const char *what);

#endif
