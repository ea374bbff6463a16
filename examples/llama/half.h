/* SPDX-License-Identifier: Apache-2.0 */
/**
 * half.h - IEEE half precision and bfloat16, one number at a time
 */
#ifndef LLAMA_HALF_H
#define LLAMA_HALF_H

#include <stdint.h>
#include <string.h>

static inline float
float_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t
bits_of_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float
half_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = (uint32_t)(half & 0x7fff) << 13;

	if (magnitude >= 0x7c00u << 13) /* infinity, NaN: the largest exponent stays the largest */
		return float_of_bits(sign | magnitude | 0x7f800000u);
	/* The exponent's bias differs by 112; the product is exact, for subnormal numbers too. */
	return float_of_bits(sign | bits_of_float(float_of_bits(magnitude) * 0x1p112f));
}

/* To nearest, ties to even. */
static inline uint16_t
half_of_float(float value)
{
	uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;

	if (magnitude > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00);
	if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (magnitude < 0x38800000u) /* below 2^-14: adding 0.5 leaves multiples of 2^-24, rounded by the FPU */
		return (uint16_t)(sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f)));
	magnitude += 0xfff + (magnitude >> 13 & 1);
	return (uint16_t)(sign | ((magnitude - (112u << 23)) >> 13));
}

static inline float
bfloat_to_float(uint16_t bfloat)
{
	return float_of_bits((uint32_t)bfloat << 16);
}

/* To nearest, ties to even. */
static inline uint16_t
bfloat_of_float(float value)
{
	uint32_t bits = bits_of_float(value);

	if ((bits & 0x7fffffff) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
