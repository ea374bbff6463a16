/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/choose_kernel.h"

_Static_assert((int)CUDA_F32 == PAGED_F32 && (int)CUDA_F16 == PAGED_F16 && (int)CUDA_BF16 == PAGED_BF16 &&
		       (int)CUDA_E4M3 == PAGED_E4M3 && (int)CUDA_E5M2 == PAGED_E5M2 && (int)CUDA_I8 == PAGED_I8,
	       "kernels know dtypes by the same numbers");

enum pages {
	PAGES_SAME,   /* the queries' dtype */
	PAGES_LATENT, /* the queries' dtype, with V in K */
	PAGES_BYTES,  /* one-byte elements */
};

struct candidate {
	enum paged_dtype dtype; /* of queries; PAGED_DTYPE_NONE: any queries and any pages */
	enum pages pages;
	uint32_t most_k_dim, most_v_dim;
	struct cuda_choice choice;
};

/* In order of preference; the first candidate that supports pool, queries and device is chosen. */
static const struct candidate candidates[] = {
#define MLA(dtype, name)                                                                           \
	{                                                                                          \
		dtype, PAGES_LATENT, 576, 512,                                                     \
		{                                                                                  \
			"attention_mla", "attention_mla_" name, CUDA_MLA_THREADS, CUDA_MLA_SHARED, \
				CUDA_MAX_TILE_Q_ROWS                                               \
		}                                                                                  \
	}
#define MMA(dtype, name, dim)                                                                    \
	{                                                                                        \
		dtype, PAGES_SAME, dim, dim,                                                     \
		{                                                                                \
			"attention_mma", "attention_mma_" name "_" #dim, CUDA_ATTENTION_THREADS, \
				CUDA_MMA_SHARED_##dim, CUDA_MAX_TILE_Q_ROWS                      \
		}                                                                                \
	}
#define BYTES(dtype, name, dim)                                                                      \
	{                                                                                            \
		dtype, PAGES_BYTES, dim, dim,                                                        \
		{                                                                                    \
			"attention_bytes", "attention_bytes_" name "_" #dim, CUDA_ATTENTION_THREADS, \
				CUDA_BYTES_SHARED_##dim, CUDA_MAX_TILE_Q_ROWS                        \
		}                                                                                    \
	}
#define SIMT(dim)                                                                                                 \
	{                                                                                                         \
		PAGED_DTYPE_NONE, PAGES_SAME, dim, dim,                                                           \
		{                                                                                                 \
			"attention_simt", "attention_simt_" #dim, CUDA_ATTENTION_THREADS, CUDA_SIMT_SHARED_##dim, \
				CUDA_TILE_Q_ROWS                                                                  \
		}                                                                                                 \
	}
	MLA(PAGED_F16, "f16"),
	MLA(PAGED_BF16, "bf16"),
	MMA(PAGED_F16, "f16", 64),
	MMA(PAGED_F16, "f16", 128),
	MMA(PAGED_F16, "f16", 256),
	MMA(PAGED_BF16, "bf16", 64),
	MMA(PAGED_BF16, "bf16", 128),
	MMA(PAGED_BF16, "bf16", 256),
	BYTES(PAGED_F16, "f16", 64),
	BYTES(PAGED_F16, "f16", 128),
	BYTES(PAGED_F16, "f16", 256),
	BYTES(PAGED_BF16, "bf16", 64),
	BYTES(PAGED_BF16, "bf16", 128),
	BYTES(PAGED_BF16, "bf16", 256),
	SIMT(128),
	SIMT(256),
	SIMT(576),
};

static bool
candidate_supports(const struct candidate *candidate, const struct layout_params *pool, enum paged_dtype q)
{
	uint32_t unit = candidate->pages == PAGES_SAME ? 8 : 16;

	if (pool->k_dim > candidate->most_k_dim || pool->v_dim > candidate->most_v_dim)
		return false;
	if (candidate->dtype == PAGED_DTYPE_NONE)
		return true;
	if (candidate->dtype != q || (candidate->pages == PAGES_LATENT && !pool->v_in_k))
		return false;
	if (candidate->pages == PAGES_BYTES ? paged_dtype_size(pool->dtype) != 1 : pool->dtype != q)
		return false;
	return pool->k_dim % unit == 0 && pool->v_dim % unit == 0;
}

enum paged_status
cuda_choose(const struct layout_params *pool, enum paged_dtype q, uint32_t max_shared, struct cuda_choice *choice,
	    struct paged_error *error)
{
	for (unsigned int i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
		if (!candidate_supports(&candidates[i], pool, q) || candidates[i].choice.shared_size > max_shared)
			continue;
		*choice = candidates[i].choice;
		return PAGED_OK;
	}
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "K dim %u, V dim %u: no kernel for %u bytes of shared memory",
			  pool->k_dim, pool->v_dim, max_shared);
}
