/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/choose_kernel.h"

#include <assert.h>
#include <string.h>

_Static_assert((int)CUDA_F32 == PAGED_F32 && (int)CUDA_F16 == PAGED_F16 && (int)CUDA_BF16 == PAGED_BF16 &&
		       (int)CUDA_E4M3 == PAGED_E4M3 && (int)CUDA_E5M2 == PAGED_E5M2 && (int)CUDA_I8 == PAGED_I8,
	       "kernels know dtypes by the same numbers");

/* Chosen with attention_mma_*, whose limits are these kernels' limits too. */
_Static_assert(CUDA_PREFILL_SHARED_64 <= CUDA_MMA_SHARED_64 && CUDA_PREFILL_SHARED_128 <= CUDA_MMA_SHARED_128_LEAST,
	       "a block that has room for decode has room for prefill");

struct candidate {
	enum paged_dtype q, pool; /* PAGED_DTYPE_NONE: any */
	bool v_in_k;              /* only for pools with V in K */
	uint32_t unit;            /* dims are multiples of it */
	uint32_t most_k_dim, most_v_dim;
	struct cuda_choice choices[CUDA_N_PARTS];
};

/* In order of preference; the first candidate that supports pool, queries and device is chosen. */
static const struct candidate candidates[] = {
#define KERNEL_OF(source, name, threads, shared, tile_q_rows, arch_specific, mla)     \
	{                                                                             \
		source, source "_" name, threads, shared, tile_q_rows, arch_specific, \
			(mla) ? 1 : CUDA_BLOCK_KV_CHUNKS, mla, false                  \
	}
#define KERNEL(source, name, threads, shared, tile_q_rows) \
	KERNEL_OF(source, name, threads, shared, tile_q_rows, false, false)
#define MLA(dtype, name, shared, tile_q_rows)                                                                \
	{                                                                                                    \
		dtype, dtype, true, 16, 576, 512,                                                            \
		{                                                                                            \
			KERNEL_OF("attention_mla", name, CUDA_MLA_THREADS, shared, tile_q_rows, false, true) \
		}                                                                                            \
	}
#define MMA(dtype, name, dim, shared, ...)                                                                            \
	{                                                                                                             \
		dtype, dtype, false, 8, dim, dim,                                                                     \
		{                                                                                                     \
			KERNEL("attention_mma", name "_" #dim, CUDA_ATTENTION_THREADS, shared, CUDA_MAX_TILE_Q_ROWS), \
				__VA_ARGS__                                                                           \
		}                                                                                                     \
	}
#define MMA_DIMS(dtype, name)                                                         \
	MMA(dtype, name, 64, CUDA_MMA_SHARED_64, PREFILL(name, 64)),                  \
		MMA(dtype, name, 128, CUDA_MMA_SHARED_128, PREFILL(name, 128)),       \
		MMA(dtype, name, 128, CUDA_MMA_SHARED_128_LEAST, PREFILL(name, 128)), \
		MMA(dtype, name, 256, CUDA_MMA_SHARED_256, { NULL }),                 \
		MMA(dtype, name, 256, CUDA_MMA_SHARED_256_LEAST, { NULL })
#define PREFILL(name, dim)                                                                          \
	KERNEL("attention_prefill", name "_" #dim, CUDA_PREFILL_THREADS, CUDA_PREFILL_SHARED_##dim, \
	       CUDA_PREFILL_TILE_Q_ROWS)
#define BYTES(q, pool, name, dim)                                                                                 \
	{                                                                                                         \
		q, pool, false, 16, dim, dim,                                                                     \
		{                                                                                                 \
			KERNEL("attention_bytes", name "_" #dim, CUDA_ATTENTION_THREADS, CUDA_BYTES_SHARED_##dim, \
			       CUDA_MAX_TILE_Q_ROWS)                                                              \
		}                                                                                                 \
	}
#define BYTES_DIMS(q, pool, name) BYTES(q, pool, name, 64), BYTES(q, pool, name, 128), BYTES(q, pool, name, 256)
#define SIMT(dim)                                                                                      \
	{                                                                                              \
		PAGED_DTYPE_NONE, PAGED_DTYPE_NONE, false, 1, dim, dim,                                \
		{                                                                                      \
			KERNEL("attention_simt", #dim, CUDA_ATTENTION_THREADS, CUDA_SIMT_SHARED_##dim, \
			       CUDA_TILE_Q_ROWS)                                                       \
		}                                                                                      \
	}
	MLA(PAGED_F16, "f16", CUDA_MLA_SHARED_MORE, CUDA_MAX_TILE_Q_ROWS),
	MLA(PAGED_F16, "f16", CUDA_MLA_SHARED, CUDA_MAX_TILE_Q_ROWS),
	MLA(PAGED_BF16, "bf16", CUDA_MLA_SHARED_MORE, CUDA_MAX_TILE_Q_ROWS),
	MLA(PAGED_BF16, "bf16", CUDA_MLA_SHARED, CUDA_MAX_TILE_Q_ROWS),
	MMA_DIMS(PAGED_F16, "f16"),
	MMA_DIMS(PAGED_BF16, "bf16"),
	/* A wide tile's queries and keys fit no block of 99 KiB, so there all tiles are narrow. */
	MLA(PAGED_F16, "f16", CUDA_MLA_SHARED_LEAST, CUDA_TILE_Q_ROWS),
	MLA(PAGED_BF16, "bf16", CUDA_MLA_SHARED_LEAST, CUDA_TILE_Q_ROWS),
	BYTES_DIMS(PAGED_F16, PAGED_E4M3, "e4m3_f16"),
	BYTES_DIMS(PAGED_F16, PAGED_E5M2, "e5m2_f16"),
	BYTES_DIMS(PAGED_F16, PAGED_I8, "i8_f16"),
	BYTES_DIMS(PAGED_BF16, PAGED_E4M3, "e4m3_bf16"),
	BYTES_DIMS(PAGED_BF16, PAGED_E5M2, "e5m2_bf16"),
	BYTES_DIMS(PAGED_BF16, PAGED_I8, "i8_bf16"),
	SIMT(128),
	SIMT(256),
	SIMT(576),
};

bool
cuda_uses_clusters(const struct cuda_choice choices[CUDA_N_PARTS], uint32_t gqa_group)
{
	return choices[CUDA_CLUSTER].kernel != NULL && gqa_group != 0 && gqa_group % CUDA_CLUSTER_Q_ROWS == 0;
}

uint32_t
cuda_wide_kv_chunk_factor(const struct cuda_choice choices[CUDA_N_PARTS], uint32_t gqa_group)
{
	_Static_assert(CUDA_WIDE_KV_CHUNK_FACTOR <= CUDA_CLUSTER_KV_CHUNK_FACTOR, "as choose_kernel.h says");

	if (!choices[CUDA_DECODE].long_kv_chunks)
		return 0;
	return cuda_uses_clusters(choices, gqa_group) ? CUDA_CLUSTER_KV_CHUNK_FACTOR : CUDA_WIDE_KV_CHUNK_FACTOR;
}

static bool
candidate_supports(const struct candidate *candidate, const struct layout_params *pool, enum paged_dtype q)
{
	if (pool->k_dim > candidate->most_k_dim || pool->v_dim > candidate->most_v_dim)
		return false;
	if (candidate->q != PAGED_DTYPE_NONE && (candidate->q != q || candidate->pool != pool->dtype))
		return false;
	if (candidate->v_in_k && !pool->v_in_k)
		return false;
	return pool->k_dim % candidate->unit == 0 && pool->v_dim % candidate->unit == 0;
}

enum paged_status
cuda_choose(const struct layout_params *pool, enum paged_dtype q, uint32_t max_shared,
	    struct cuda_choice choices[CUDA_N_PARTS], struct paged_error *error)
{
	for (unsigned int i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
		const struct candidate *candidate = &candidates[i];

		if (!candidate_supports(candidate, pool, q) || candidate->choices[CUDA_DECODE].shared_size > max_shared)
			continue;
		memcpy(choices, candidate->choices, sizeof(candidate->choices));
		/* combine_kv_chunks copies vectors of four floats. */
		if (pool->v_dim % 4 != 0)
			choices[CUDA_DECODE].block_kv_chunks = CUDA_MAX_KV_CHUNKS;
		return PAGED_OK;
	}
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "K dim %u, V dim %u: no kernel for %u bytes of shared memory",
			  pool->k_dim, pool->v_dim, max_shared);
}

void
cuda_choose_wgmma(const struct layout_params *pool, enum paged_dtype q, uint32_t max_shared,
		  struct cuda_choice choices[CUDA_N_PARTS])
{
#define WGMMA(name, dim)                                                                         \
	KERNEL_OF("attention_wgmma", name "_" #dim, CUDA_WGMMA_THREADS, CUDA_WGMMA_SHARED_##dim, \
		  CUDA_PREFILL_TILE_Q_ROWS, true, false)
	static const struct cuda_choice kernels[2][2] = {
		{ WGMMA("f16", 64), WGMMA("f16", 128) },
		{ WGMMA("bf16", 64), WGMMA("bf16", 128) },
	};
#define MLA_WGMMA(name)                                                                                               \
	KERNEL_OF("attention_mla_wgmma", name, CUDA_WGMMA_THREADS, CUDA_MLA_WGMMA_SHARED, CUDA_MAX_TILE_Q_ROWS, true, \
		  true)
	static const struct cuda_choice mla_kernels[2] = { MLA_WGMMA("f16"), MLA_WGMMA("bf16") };
	uint32_t dim = pool->k_dim > pool->v_dim ? pool->k_dim : pool->v_dim;
	bool mla = choices[CUDA_DECODE].long_kv_chunks;
	const struct cuda_choice *found;

	if (!mla && choices[CUDA_PREFILL].kernel == NULL)
		return;
	assert((q == PAGED_F16 || q == PAGED_BF16) && q == pool->dtype && (mla || dim <= 128)); /* of both */
	found = mla ? &mla_kernels[q == PAGED_BF16] : &kernels[q == PAGED_BF16][dim > 64];
	if (found->shared_size <= max_shared)
		choices[mla ? CUDA_DECODE : CUDA_PREFILL] = *found;
}

/* Does a tile of attention_mla_cluster_* consist of whole pages, or lie in one, so that a box is a part of a page? */
static bool
pages_have_boxes(uint32_t page_size)
{
	return page_size >= CUDA_CLUSTER_LEAST_PAGE &&
	       (CUDA_CLUSTER_TOKENS % page_size == 0 || page_size % CUDA_CLUSTER_TOKENS == 0);
}

void
cuda_choose_clusters(const struct layout_params *pool, enum paged_dtype q, struct cuda_choice choices[CUDA_N_PARTS])
{
#define MLA_CLUSTER(name)                                                                                          \
	{                                                                                                          \
		"attention_mla_cluster", "attention_mla_cluster_" name, CUDA_WGMMA_THREADS, CUDA_MLA_WGMMA_SHARED, \
			CUDA_MAX_TILE_Q_ROWS, true, 1, true, true                                                  \
	}
	static const struct cuda_choice kernels[2] = { MLA_CLUSTER("f16"), MLA_CLUSTER("bf16") };
	bool mla_wgmma = choices[CUDA_DECODE].long_kv_chunks && choices[CUDA_DECODE].arch_specific;

	if (mla_wgmma && pages_have_boxes(pool->page_size))
		choices[CUDA_CLUSTER] = kernels[q == PAGED_BF16];
}

bool
cuda_choose_bulk(const struct layout_params *pool, enum paged_dtype q, uint32_t max_shared, struct cuda_choice *choice)
{
#define BULK(name, dim) \
	KERNEL("attention_bulk", name "_" #dim, CUDA_BULK_THREADS, CUDA_BULK_SHARED_##dim, CUDA_MAX_TILE_Q_ROWS)
	static const struct cuda_choice kernels[2][2] = {
		{ BULK("f16", 64), BULK("f16", 128) },
		{ BULK("bf16", 64), BULK("bf16", 128) },
	};
	const struct cuda_choice *found = &kernels[q == PAGED_BF16][pool->k_dim > 64];

	if ((q != PAGED_F16 && q != PAGED_BF16) || q != pool->dtype || pool->v_in_k || pool->k_dim != pool->v_dim ||
	    (pool->k_dim != 64 && pool->k_dim != 128) || pool->page_size % CUDA_BULK_TOKENS != 0 ||
	    found->shared_size > max_shared)
		return false;
	*choice = *found;
	return true;
}
