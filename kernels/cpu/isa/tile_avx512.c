/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/isa/tile_avx512.h"

static inline void
vec_store_bf16(uint8_t *at, vec v)
{
	x86_store_bf16(at, v);
}

#include "kernels/cpu/isa/tile_body.h"
#include "kernels/cpu/prefill/tile_prefill_body.h"

const struct kernel_tile_ops kernel_tile_ops_avx512 = TILE_OPS;
