/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512's functions, plus products of bf16 pairs. */
#include "kernels/cpu/isa/tile_avx512bf16.h"

#include "kernels/cpu/isa/tile_body.h"
#include "kernels/cpu/prefill/tile_prefill_body.h"

#include "kernels/cpu/decode/tile_decode_bf16_body.h"

static const struct tile_decode_bf16_ops tile_decode_bf16_avx512 = TILE_DECODE_BF16;

const struct kernel_tile_ops kernel_tile_ops_avx512bf16 = {
	TILE_FUNCTIONS,
	.decode_bf16 = &tile_decode_bf16_avx512,
	.prefill_bf16 = &tile_prefill_bf16,
};
