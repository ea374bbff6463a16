/* SPDX-License-Identifier: Apache-2.0 */
/**
 * convert.h - one element between f16 or bf16 and f32
 *
 * Towards f32 everything is exact.  From f32 rounds to nearest even, overflow
 * gives infinity, a NaN stays a NaN and becomes quiet: bit for bit what the
 * vector instruction sets do.
 */
#ifndef PAGED_KERNELS_CPU_CONVERT_H
#define PAGED_KERNELS_CPU_CONVERT_H

#include <stdint.h>
#include <string.h>

static inline uint32_t
convert_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float
convert_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline float
convert_from_bf16(uint16_t half)
{
	return convert_float((uint32_t)half << 16);
}

static inline uint16_t
convert_to_bf16(float value)
{
	uint32_t bits = convert_bits(value);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float
convert_from_f16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16;
	uint32_t magnitude = half & 0x7fff;

	if (magnitude >= 0x7c00) /* infinity, NaN (made quiet) */
		return convert_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 |
				     (magnitude > 0x7c00 ? 0x400000 : 0));
	if (magnitude >= 0x400)
		return convert_float(sign | ((magnitude << 13) + (112u << 23)));
	/* Subnormal: the integer times 2^-24, exact in f32. */
	return convert_float(sign | convert_bits((float)magnitude * 0x1p-24f));
}

static inline uint16_t
convert_to_f16(float value)
{
	uint32_t bits = convert_bits(value);
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	uint32_t magnitude = bits & 0x7fffffff;

	if (magnitude > 0x7f800000)
		return sign | 0x7e00 | (uint16_t)(magnitude >> 13 & 0x3ff);
	if (magnitude >= 0x47800000) /* 65536 and up */
		return sign | 0x7c00;
	if (magnitude >= 0x38800000) { /* normal in f16; a carry may reach infinity, as it should */
		magnitude -= 112u << 23;
		return sign | (uint16_t)((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13);
	}
	/* Adding 0.5 leaves multiples of 2^-24 in the low bits, rounded by the addition itself. */
	return sign | (uint16_t)(convert_bits(convert_float(magnitude) + 0.5f) - convert_bits(0.5f));
}

#endif
