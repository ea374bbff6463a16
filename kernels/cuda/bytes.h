/* SPDX-License-Identifier: Apache-2.0 */
/**
 * bytes.h - convert four one-byte elements to two pairs of f16 or bf16
 *
 * The conversion is exact, NaN and infinity included.  Scales are not applied.
 * Pair 0 has bytes 0 and 1 of the register, pair 1 has bytes 2 and 3.
 */
#ifndef PAGED_KERNELS_CUDA_BYTES_H
#define PAGED_KERNELS_CUDA_BYTES_H

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/simt.h"

/* Selectors of simt_permute() that put a pair's bytes into the high (TOPS) or low (ENDS) bytes of the two halves. */
#define BYTES_TOPS(pair) ((pair) == 0 ? 0x1404u : 0x3424u)
#define BYTES_ENDS(pair) ((pair) == 0 ? 0x4140u : 0x4342u)

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

SIMT_FUNCTION void
bytes_to_f16(uint32_t bytes, uint32_t dtype, uint32_t pairs[2])
{
	if (dtype == CUDA_E4M3) {
		pairs[0] = simt_widen_e4m3((uint16_t)bytes);
		pairs[1] = simt_widen_e4m3((uint16_t)(bytes >> 16));
	} else if (dtype == CUDA_E5M2) {
		pairs[0] = simt_permute(bytes, 0, BYTES_TOPS(0));
		pairs[1] = simt_permute(bytes, 0, BYTES_TOPS(1));
	} else { /* i8: the f16 0x6400 + byte is 1024 + 128 + the number; subtract 1152 */
		bytes ^= 0x80808080;
		pairs[0] = simt_fma_f16(simt_permute(bytes, 0x64646464, BYTES_ENDS(0)), 0x3c003c00, 0xe480e480);
		pairs[1] = simt_fma_f16(simt_permute(bytes, 0x64646464, BYTES_ENDS(1)), 0x3c003c00, 0xe480e480);
	}
}

/*
 * Two halves, each with a byte in its high eight bits: the byte's bits, shifted to bf16's fields, are 2^-120 (e4m3) or
 * 2^-112 (e5m2) of the number.
 */
SIMT_FUNCTION uint32_t
bytes_fp8_to_bf16(uint32_t halves, uint32_t dtype)
{
	uint32_t sign = halves & 0x80008000, digits = halves & 0x7f007f00;

	if (dtype == CUDA_E4M3)
		return simt_fma_bf16(sign | digits >> 4, 0x7b807b80, 0x80008000);
	return simt_fma_bf16(sign | digits >> 3, 0x77807780, 0x80008000);
}

/* The bf16 0x4300 + low seven bits is 128 + these; subtract 128, or 256 if the sign bit is set. */
SIMT_FUNCTION uint32_t
bytes_i8_to_bf16(uint32_t halves)
{
	return simt_fma_bf16((halves & 0x007f007f) | 0x43004300, 0x3f803f80, (halves & 0x00800080) | 0xc300c300);
}

SIMT_FUNCTION void
bytes_to_bf16(uint32_t bytes, uint32_t dtype, uint32_t pairs[2])
{
	uint32_t non_finite;

	if (dtype == CUDA_I8) {
		pairs[0] = bytes_i8_to_bf16(simt_permute(bytes, 0, BYTES_ENDS(0)));
		pairs[1] = bytes_i8_to_bf16(simt_permute(bytes, 0, BYTES_ENDS(1)));
		return;
	}
	pairs[0] = bytes_fp8_to_bf16(simt_permute(bytes, 0, BYTES_TOPS(0)), dtype);
	pairs[1] = bytes_fp8_to_bf16(simt_permute(bytes, 0, BYTES_TOPS(1)), dtype);
	non_finite = bytes_non_finite(bytes, dtype);
	if (non_finite == 0)
		return;
	/* NaN and infinity get bf16's largest exponent. */
	for (uint32_t pair = 0; pair < 2; pair++) {
		uint32_t tops = simt_permute(non_finite, 0, BYTES_TOPS(pair));

		pairs[pair] |= tops - (tops >> 8);
	}
}

#endif
