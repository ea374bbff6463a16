/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_fp8.h - convert e4m3 and e5m2 in integer arithmetic, for GPUs without conversion instructions
 *
 * The results equal those of the instructions: conversions from fp8 are exact;
 * conversions to fp8 round to nearest even and saturate, so infinity and
 * numbers out of range become the largest number, and every NaN becomes 0x7f.
 * Kernels call the functions of simt.h; these functions also run in the tests
 * of simt.h on any machine.
 */
#ifndef PAGED_KERNELS_CUDA_SIMT_SIMT_FP8_H
#define PAGED_KERNELS_CUDA_SIMT_SIMT_FP8_H

union fp8_float {
	float value;
	uint32_t bits;
};

/*
 * Round to a format with DIGITS mantissa bits and exponent bias BIAS.  To round a subnormal, add an f32 whose unit in
 * the last place is the format's smallest subnormal: the f32 addition rounds to nearest even.
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

/* The bits of an e4m3 placed in an f16 are 2^-8 of the number: multiply by 256.  NaN, all ones, is set separately. */
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
