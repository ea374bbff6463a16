/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/choose.h"

_Static_assert((int)CUDA_F32 == PAGED_F32 && (int)CUDA_F16 == PAGED_F16 && (int)CUDA_BF16 == PAGED_BF16 &&
		       (int)CUDA_E4M3 == PAGED_E4M3 && (int)CUDA_E5M2 == PAGED_E5M2 && (int)CUDA_I8 == PAGED_I8,
	       "kernels know dtypes by the same numbers");

struct candidate {
	enum paged_dtype dtype; /* of queries; PAGED_DTYPE_NONE: any */
	bool bytes;             /* in the pages; else the same as queries */
	uint32_t most_dim;
	struct cuda_choice choice;
};

/* The first that takes everything. */
static const struct candidate candidates[] = {
#define MMA(dtype, name, dim)                                                                    \
	{                                                                                        \
		dtype, false, dim,                                                               \
		{                                                                                \
			"attention_mma", "attention_mma_" name "_" #dim, CUDA_ATTENTION_THREADS, \
				CUDA_MMA_SHARED_##dim, CUDA_MAX_TILE_LINES                       \
		}                                                                                \
	}
#define BYTES(dtype, name, dim)                                                                      \
	{                                                                                            \
		dtype, true, dim,                                                                    \
		{                                                                                    \
			"attention_bytes", "attention_bytes_" name "_" #dim, CUDA_ATTENTION_THREADS, \
				CUDA_BYTES_SHARED_##dim, CUDA_MAX_TILE_LINES                         \
		}                                                                                    \
	}
#define SIMT(dim)                                                                                                 \
	{                                                                                                         \
		PAGED_DTYPE_NONE, false, dim,                                                                     \
		{                                                                                                 \
			"attention_simt", "attention_simt_" #dim, CUDA_ATTENTION_THREADS, CUDA_SIMT_SHARED_##dim, \
				CUDA_TILE_LINES                                                                   \
		}                                                                                                 \
	}
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
takes(const struct candidate *candidate, const struct layout_params *pool, enum paged_dtype q)
{
	uint32_t unit = candidate->bytes ? 16 : 8;

	if (pool->k_dim > candidate->most_dim || pool->v_dim > candidate->most_dim)
		return false;
	if (candidate->dtype == PAGED_DTYPE_NONE)
		return true;
	if (candidate->dtype != q || (candidate->bytes ? paged_dtype_size(pool->dtype) != 1 : pool->dtype != q))
		return false;
	return pool->k_dim % unit == 0 && pool->v_dim % unit == 0;
}

enum paged_status
cuda_choose(const struct layout_params *pool, enum paged_dtype q, uint32_t max_shared, struct cuda_choice *choice,
	    struct paged_error *error)
{
	for (unsigned int i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
		if (!takes(&candidates[i], pool, q) || candidates[i].choice.shared_size > max_shared)
			continue;
		*choice = candidates[i].choice;
		return PAGED_OK;
	}
	return paged_fail(error, PAGED_ERR_UNSUPPORTED, "K dim %u, V dim %u: no kernel for %u bytes of shared memory",
			  pool->k_dim, pool->v_dim, max_shared);
}
