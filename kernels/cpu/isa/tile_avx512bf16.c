/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512's functions, plus products of bf16 pairs. */
#include "kernels/cpu/isa/tile_avx512bf16.h"

#include "kernels/cpu/isa/tile_body.h"
#include "kernels/cpu/prefill/tile_prefill_body.h"

#include "kernels/cpu/decode/tile_decode_bf16_body.h"

static const struct tile_dot_ops tile_dots_avx512bf16 = TILE_DOTS;

const struct kernel_tile_ops kernel_tile_ops_avx512bf16 = {
	TILE_FUNCTIONS,
	.dot = &tile_dots_avx512bf16,
	.pairs = &tile_packed_pairs,
};
