/* SPDX-License-Identifier: Apache-2.0 */
/* layout_params.h - a pool's geometry, as used in messages, in the configuration and in kernels/layout.h */
#ifndef PAGED_LAYOUT_PARAMS_H
#define PAGED_LAYOUT_PARAMS_H

#include <stdbool.h>

#include "common/paged_types.h"

struct layout_params {
	uint32_t n_layers;
	uint32_t n_kv_heads;
	uint32_t k_dim;
	uint32_t v_dim;
	bool v_in_k; /* V is the first v_dim dims of K: it has no memory of its own and uses K's scales */
	enum paged_dtype dtype;
	uint32_t page_size; /* tokens */
	uint32_t n_pages;
	uint32_t alignment; /* bytes, a power of two; 0: the default for host memory */
};

#endif
