/* SPDX-License-Identifier: Apache-2.0 */
/**
 * quantise.h - quantise floats to e4m3, e5m2 and i8, eight at a time
 *
 * kernels/kernels.h specifies the stored values; they are bit-identical to
 * those of the host kernels.
 */
#ifndef PAGED_KERNELS_CUDA_DEVICE_QUANTISE_H
#define PAGED_KERNELS_CUDA_DEVICE_QUANTISE_H

#include "kernels/cuda/device/elements.h"

/* An i8 head whose absolute maximum is below 2^-120 is stored as zeros. */
#define QUANTISE_MIN_ABSMAX 0x1p-120f

/** The scale that is stored with an i8 head, and the factor that its elements are multiplied by (127 / absmax). */
struct quantise_scale {
	float scale;
	float factor;
};

SIMT_FUNCTION float
quantise_abs(float value)
{
	return bits_as_float(float_as_bits(value) & 0x7fffffff);
}

/* `absmax` is the largest magnitude, or NaN if one element is NaN. */
SIMT_FUNCTION quantise_scale
quantise_scale_of(float absmax)
{
	if (!(absmax < infinity()))
		return { bits_as_float(0x7fc00000), 0 };
	if (absmax < QUANTISE_MIN_ABSMAX)
		return { 0, 0 };
	return { absmax / 127.0f, 127.0f / absmax };
}

SIMT_FUNCTION uint32_t
quantise_byte(uint32_t dtype, float value)
{
	if (dtype == CUDA_I8)
		return (uint32_t)simt_to_int(value) & 0xff;
	return dtype == CUDA_E4M3 ? simt_to_e4m3(value) : simt_to_e5m2(value);
}

/* Four elements as the bytes of a little-endian word. */
SIMT_FUNCTION uint32_t
quantise_four(uint32_t dtype, const float v[4])
{
	if (dtype == CUDA_E4M3)
		return simt_pack_e4m3(v[0], v[1]) | (uint32_t)simt_pack_e4m3(v[2], v[3]) << 16;
	if (dtype == CUDA_E5M2)
		return simt_pack_e5m2(v[0], v[1]) | (uint32_t)simt_pack_e5m2(v[2], v[3]) << 16;
	return quantise_byte(dtype, v[0]) | quantise_byte(dtype, v[1]) << 8 | quantise_byte(dtype, v[2]) << 16 |
	       quantise_byte(dtype, v[3]) << 24;
}

/* Store the first n of eight numbers, times a factor.  Factor 0 stores zeros, even for NaN. */
SIMT_FUNCTION void
quantise_store(uint64_t address, uint32_t dtype, const float v[8], float factor, uint32_t n)
{
	float scaled[8];

	SIMT_UNROLL
	for (uint32_t i = 0; i < 8; i++)
		scaled[i] = factor == 0 ? 0 : simt_mul(v[i], factor);
	if (n >= 8 && address % 8 == 0) {
		*pointer_to<simt_vec2>(address) = { quantise_four(dtype, scaled), quantise_four(dtype, scaled + 4) };
		return;
	}
	SIMT_UNROLL
	for (uint32_t i = 0; i < 8; i++)
		if (i < n)
			pointer_to<uint8_t>(address)[i] = (uint8_t)quantise_byte(dtype, scaled[i]);
}

#endif
