/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mla_check.h - attention over pools that keep V in K, by any of its CUDA kernels, against float64
 */
#ifndef TESTS_KERNELS_CUDA_MLA_CHECK_H
#define TESTS_KERNELS_CUDA_MLA_CHECK_H

#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/kernel_fixture.h"

/** mla_defaults - bf16, 48 and 32 dims, one KV head */
struct kernel_fixture_params mla_defaults(uint32_t q_heads);

/** mla_pool_dtype - set the dtype of pool, queries and rounded weights */
void mla_pool_dtype(struct kernel_fixture_params *params, enum paged_dtype dtype);

/** mla_many_rows_check - cuda_fixture_check() with n_rows rows of at most one query, of which every fifth has none */
void mla_many_rows_check(struct kernel_fixture_params *params, uint32_t n_rows,
			 const struct cuda_attention_options *options);

/** mla_minus_infinity_check - keys [begin, end) of 300 begin with -inf, which is V too: they have no weight */
void mla_minus_infinity_check(struct kernel_fixture_params *params, uint32_t begin, uint32_t end,
			      const struct cuda_attention_options *options);

/** mla_masked_nan_check - row 0's token has a NaN in K, which is V too: queries that do not see it are not NaN */
void mla_masked_nan_check(const struct kernel_fixture_params *params, uint32_t token, uint32_t dim,
			  const struct cuda_attention_options *options);

#endif
