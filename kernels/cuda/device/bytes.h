/* SPDX-License-Identifier: Apache-2.0 */
/**
 * bytes.h - convert four one-byte elements to two pairs of f16 or bf16
 *
 * The conversion is exact, NaN and infinity included.  Scales are not applied.
 * STEP 1: pair 0 has bytes 0 and 1 of the register, pair 1 has bytes 2 and 3.
 * STEP 2: pair 0 has bytes 0 and 2, pair 1 has bytes 1 and 3.
 */
#ifndef PAGED_KERNELS_CUDA_DEVICE_BYTES_H
#define PAGED_KERNELS_CUDA_DEVICE_BYTES_H

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/simt/simt.h"

/* Selectors of simt_permute() that put a pair's bytes into the high (tops) or low (ends) bytes of the two halves. */
template <uint32_t STEP>
SIMT_FUNCTION constexpr uint32_t
bytes_tops(uint32_t pair)
{
	return pair == 0 ? 0x0404 | STEP << 12 : STEP == 1 ? 0x3424 : 0x3414;
}

template <uint32_t STEP>
SIMT_FUNCTION constexpr uint32_t
bytes_ends(uint32_t pair)
{
	return pair == 0 ? 0x4040 | STEP << 8 : STEP == 1 ? 0x4342 : 0x4341;
}

/* Sets the high bit of each byte that is NaN (e4m3), or NaN or infinity (e5m2). */
SIMT_FUNCTION uint32_t
bytes_non_finite(uint32_t bytes, uint32_t dtype)
{
	if (dtype == CUDA_I8)
		return 0;
	if (dtype == CUDA_E4M3)
		return ((bytes & 0x7f7f7f7f) + 0x01010101) & 0x80808080;
	return ((bytes & 0x7c7c7c7c) + 0x04040404) & 0x80808080;
}

template <uint32_t STEP>
SIMT_FUNCTION void
bytes_to_f16(uint32_t bytes, uint32_t dtype, uint32_t pairs[2])
{
	if (dtype == CUDA_E4M3) {
		simt_widen_four_e4m3(STEP == 1 ? bytes : simt_permute(bytes, 0, 0x3120), pairs);
	} else if (dtype == CUDA_E5M2) {
		pairs[0] = simt_permute(bytes, 0, bytes_tops<STEP>(0));
		pairs[1] = simt_permute(bytes, 0, bytes_tops<STEP>(1));
	} else { /* i8: the f16 0x6400 + byte is 1024 + 128 + the number; subtract 1152 */
		bytes ^= 0x80808080;
		pairs[0] = simt_fma_f16(simt_permute(bytes, 0x64646464, bytes_ends<STEP>(0)), 0x3c003c00, 0xe480e480);
		pairs[1] = simt_fma_f16(simt_permute(bytes, 0x64646464, bytes_ends<STEP>(1)), 0x3c003c00, 0xe480e480);
	}
}

/* The bf16 0x4300 + low seven bits is 128 + these; subtract 128, or 256 if the sign bit is set. */
SIMT_FUNCTION uint32_t
bytes_i8_pair_to_bf16(uint32_t halves)
{
	return simt_fma_bf16((halves & 0x007f007f) | 0x43004300, 0x3f803f80, (halves & 0x00800080) | 0xc300c300);
}

template <uint32_t STEP>
SIMT_FUNCTION void
bytes_i8_to_bf16(uint32_t bytes, uint32_t pairs[2])
{
	pairs[0] = bytes_i8_pair_to_bf16(simt_permute(bytes, 0, bytes_ends<STEP>(0)));
	pairs[1] = bytes_i8_pair_to_bf16(simt_permute(bytes, 0, bytes_ends<STEP>(1)));
}

#endif
