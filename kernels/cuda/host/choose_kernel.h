/* SPDX-License-Identifier: Apache-2.0 */
/** choose_kernel.h - the attention kernels for a pool and a batch's queries */
#ifndef PAGED_KERNELS_CUDA_HOST_CHOOSE_KERNEL_H
#define PAGED_KERNELS_CUDA_HOST_CHOOSE_KERNEL_H

#include <stdbool.h>

#include "kernels/cuda/kernels.h"
#include "kernels/layout.h"

/**
 * The kernels of one attention call, by the rows that they compute.  CUDA_PREFILL computes rows with more q_rows than
 * the tile of CUDA_DECODE has, CUDA_DECODE the others; if a pool has no CUDA_PREFILL, all rows.  CUDA_CLUSTER takes the
 * place of CUDA_DECODE where cuda_uses_clusters() says so and the call has no block mask.
 */
enum cuda_attention_part { CUDA_DECODE, CUDA_PREFILL, CUDA_CLUSTER, CUDA_N_PARTS };

/** A kernel. */
struct cuda_choice {
	const char *source; /* of the module: "attention_mma" */
	const char *kernel; /* NULL: there is none */
	uint32_t n_threads;
	uint32_t shared_size; /* bytes; above 48 KiB the launcher must opt in (CUDA_FUNCTION_MAX_DYNAMIC_SHARED) */
	uint32_t tile_q_rows; /* of the plan: max_tile_q_rows, or prefill_tile_q_rows; 0: there is no kernel */
	bool arch_specific; /* only code for the device's exact compute capability has the kernel: sm_90a, not sm_90 */
	uint32_t block_kv_chunks; /* it leaves tiles with more KV chunks to combine_kv_chunks */
	bool long_kv_chunks;      /* its plans have a wide_kv_chunk_factor */
	bool clusters;            /* it has an even number of blocks, and struct cuda_attention_cluster_params */
};

/** cuda_uses_clusters - does CUDA_CLUSTER compute queries with so many heads for each KV head, without a block mask? */
bool cuda_uses_clusters(const struct cuda_choice choices[CUDA_N_PARTS], uint32_t gqa_group);

/**
 * cuda_wide_kv_chunk_factor - the field of struct cuda_plan_params for queries with this many heads for each KV head
 *
 * It is least for a gqa_group of 0.
 */
uint32_t cuda_wide_kv_chunk_factor(const struct cuda_choice choices[CUDA_N_PARTS], uint32_t gqa_group);

/**
 * cuda_choose - choose tensor core kernels if some support the pool, else the f32 kernel
 *
 * The tensor core kernels support:
 * - f16 and bf16 pools with queries of the same dtype, and dims of at most 256
 *   that are multiples of 8;
 * - such pools with V in K (MLA), with K of at most 576 dims and V of at most
 *   512, both multiples of 16;
 * - e4m3, e5m2 and i8 pools with queries of f16 or bf16, and dims that are
 *   multiples of 16.
 *
 * Those of the first item have a CUDA_PREFILL for dims of at most 128.  All of
 * them fit blocks of 99 KiB (sm_86, sm_89, sm_120): there, some fetch fewer tiles
 * ahead, and those for V in K have no wide tiles.
 *
 * The choice depends on nothing that changes between batches, so results are
 * bit-identical from batch to batch.
 *
 * @param[in]  max_shared  shared memory in bytes that a block may have on the device
 * @param[out] choices     by enum cuda_attention_part
 * @retval PAGED_ERR_UNSUPPORTED  max_shared is too small for every kernel
 */
enum paged_status cuda_choose(const struct layout_params *pool, enum paged_dtype q, uint32_t max_shared,
			      struct cuda_choice choices[CUDA_N_PARTS], struct paged_error *error);

/**
 * cuda_choose_wgmma - replace what cuda_choose() chose by kernels of devices of compute capability 9.0
 *
 * These are a CUDA_PREFILL, if there was one, or the CUDA_DECODE of pools with V
 * in K (MLA).  They have the same tiles as those that they replace, and the same
 * results up to rounding.
 *
 * @param[in,out] choices  as cuda_choose() set them for this pool, q and max_shared
 */
void cuda_choose_wgmma(const struct layout_params *pool, enum paged_dtype q, uint32_t max_shared,
		       struct cuda_choice choices[CUDA_N_PARTS]);

/**
 * cuda_choose_clusters - choose a CUDA_CLUSTER, if cuda_choose_wgmma() chose a kernel for V in K
 *
 * Pages must have 8, 16, 32 or a multiple of 64 tokens, else there is none.
 */
void cuda_choose_clusters(const struct layout_params *pool, enum paged_dtype q,
			  struct cuda_choice choices[CUDA_N_PARTS]);

/**
 * cuda_choose_bulk - choose the decode kernel of devices of compute capability 9.0 and later
 *
 * It takes the place of the CUDA_DECODE that cuda_choose() chose for this pool
 * and q: it has the same tiles, and the same results up to rounding.  It
 * supports f16 and bf16 pools with K and V of 64 or of 128 dims, and pages of a
 * multiple of CUDA_BULK_TOKENS tokens.
 *
 * @return false: the pool or max_shared does not permit it; *choice is unchanged
 */
bool cuda_choose_bulk(const struct layout_params *pool, enum paged_dtype q, uint32_t max_shared,
		      struct cuda_choice *choice);

#endif
