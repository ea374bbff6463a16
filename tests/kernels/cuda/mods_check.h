/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mods_check.h - CUDA attention with mods and block masks, against float64
 */
#ifndef TESTS_KERNELS_CUDA_MODS_CHECK_H
#define TESTS_KERNELS_CUDA_MODS_CHECK_H

#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/mod_fixture.h"

#define MODS_CHECK_HEADS 4u
#define MODS_CHECK_DOCS 600u

/** Arguments of tests/fake-cuda/kernels/mod_window.h and mod_document.h. */
struct window_args {
	int32_t window;
	float cap;
};

struct document_args {
	uint64_t doc, slope, fault;
	int32_t n_doc, n_slope;
};

/** The mods of mod_document.h, their arrays and the kernel's arguments.  Do not move it. */
struct document_mods {
	int32_t doc[MODS_CHECK_DOCS];
	uint32_t fault; /* the kernel's faults */
	struct document_args args;
	struct cuda_arena arena;
	struct mod_fixture mask, score;
};

/**
 * document_mods_open - bind the mods to arrays that kernels may read, and store the bindings in params
 *
 * @param[in] n_doc  length of the array `doc`, at most MODS_CHECK_DOCS
 * @param[in] slope  [MODS_CHECK_HEADS], borrowed until document_mods_close()
 */
void document_mods_open(struct document_mods *mods, struct kernel_fixture_params *params, uint32_t n_doc,
			const float *slope);
void document_mods_close(struct document_mods *mods);

/** mods_check_params - three rows: decode over several KV chunks, many queries, and queries with few keys */
struct kernel_fixture_params mods_check_params(void);

/** mods_check_blocks - the block mask of a bound mask mod over a fixture's rows, its lists in descending order */
struct block_mask *mods_check_blocks(const struct kernel_fixture_params *params, const struct mod_binding *mask,
				     uint32_t n_heads, uint32_t q_block, uint32_t kv_block);

/** mods_check - attention with the mods alone is correct; block masks of several block sizes give the same bits */
void mods_check(struct kernel_fixture_params *params, struct cuda_attention_options options, const char *what);

#endif
