/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fp8.h - e4m3 and e5m2 by their bits, for GPUs without instructions for them
 *
 * Exact where the instructions are, and rounded as they round: to nearest
 * even, infinity and what is larger than all becomes the largest number, every
 * NaN 0x7f.  simt.h has the functions to call; these take part in its tests on
 * any machine.
 */
#ifndef PAGED_KERNELS_CUDA_FP8_H
#define PAGED_KERNELS_CUDA_FP8_H

union fp8_float {
	float value;
	uint32_t bits;
};

/*
 * A number of `digits` digits after the point, with the exponent's bias.  Subnormal numbers count the last place
 * of the smallest normal one: added to a number whose last place that is, f32 rounds them itself.
 */
template <int DIGITS, uint32_t BIAS>
SIMT_FUNCTION uint8_t
fp8_round(float value, float largest, uint32_t largest_code)
{
	union fp8_float number = { value }, place;
	uint32_t sign = number.bits >> 24 & 0x80, smallest = (128 - BIAS) << 23;

	number.bits &= 0x7fffffff;
	if (number.value != number.value)
		return 0x7f;
	if (number.value >= largest)
		return (uint8_t)(sign | largest_code);
	if (number.bits < smallest) {
		place.bits = smallest + ((23 - DIGITS) << 23);
		number.value += place.value;
		return (uint8_t)(sign | (number.bits - place.bits));
	}
	number.bits += (1u << (22 - DIGITS)) - 1 + (number.bits >> (23 - DIGITS) & 1);
	return (uint8_t)(sign | ((number.bits >> (23 - DIGITS)) - ((127 - BIAS) << DIGITS)));
}

SIMT_FUNCTION uint8_t
fp8_to_e4m3(float value)
{
	return fp8_round<3, 7>(value, 448.0f, 0x7e);
}

SIMT_FUNCTION uint8_t
fp8_to_e5m2(float value)
{
	return fp8_round<2, 15>(value, 57344.0f, 0x7b);
}

/* The digits of e4m3 as f16 stand for 2^-8 of the number, but for NaN, which has all ones. */
SIMT_FUNCTION uint32_t
fp8_widen_e4m3(uint16_t two)
{
	uint32_t bytes = simt_permute(two, 0, 0x1404), sign = bytes & 0x80008000, digits = bytes & 0x7f007f00;
	uint32_t nan = (digits + 0x01000100) & 0x80008000;

	return simt_fma_f16(sign | digits >> 1, 0x5c005c00, 0x80008000) | (nan - (nan >> 6));
}

SIMT_FUNCTION uint32_t
fp8_widen_e5m2(uint16_t two)
{
	return simt_permute(two, 0, 0x1404);
}

#endif
