/* SPDX-License-Identifier: Apache-2.0 */
/**
 * convert.h - conversion of one element between a storage dtype and f32
 *
 * Conversion to f32 is exact.  Conversion from f32 rounds to nearest even; overflow gives infinity; a
 * NaN stays NaN and becomes quiet: bit for bit what the vector instruction sets do.  For e4m3 and
 * e5m2, values beyond the largest finite number, infinity included, saturate to it, and NaN becomes
 * 0x7f.  For i8 the value must round to -127 .. 127.
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
	/* After adding 0.5, the low bits count units of 2^-24 (f16's smallest subnormal), rounded by the addition. */
	return sign | (uint16_t)(convert_bits(convert_float(magnitude) + 0.5f) - convert_bits(0.5f));
}

/* e4m3 shifted into an f16 has the same bits except for the exponent's bias: 7 in e4m3, 15 in f16. */
static inline float
convert_from_e4m3(uint8_t code)
{
	uint16_t half = (uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 7);

	if ((code & 0x7f) == 0x7f) /* NaN */
		half |= 0x7c00;
	return convert_from_f16(half) * 256.0f;
}

/* e5m2 is the high byte of an f16. */
static inline float
convert_from_e5m2(uint8_t code)
{
	return convert_from_f16((uint16_t)(code << 8));
}

/** Constants for conversion from f32 to an 8-bit float format. */
struct convert_fp8 {
	uint32_t shift;   /* f32 fraction bits minus this format's */
	uint32_t bias;    /* f32 exponent bias minus this format's, shifted into an f32's exponent field */
	uint32_t normal;  /* bits of the smallest normal number of the format, as an f32 */
	uint32_t largest; /* code of the largest finite number */
	float rounder;    /* adding it to a number below `normal` leaves the code in the low bits */
};

static const struct convert_fp8 convert_e4m3 = { 20, 120u << 23, 0x3c800000, 0x7e, 0x1p14f };
static const struct convert_fp8 convert_e5m2 = { 21, 112u << 23, 0x38800000, 0x7b, 0x1p7f };

static inline uint8_t
convert_to_fp8(const struct convert_fp8 *to, float value)
{
	uint32_t bits = convert_bits(value);
	uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff, code;

	if (magnitude > 0x7f800000)
		return 0x7f;
	if (magnitude < to->normal) {
		code = convert_bits(convert_float(magnitude) + to->rounder) - convert_bits(to->rounder);
	} else {
		code = magnitude - to->bias + (1u << (to->shift - 1)) - 1 + (magnitude >> to->shift & 1);
		code >>= to->shift;
	}
	return (uint8_t)(sign | (code < to->largest ? code : to->largest));
}

static inline uint8_t
convert_to_e4m3(float value)
{
	return convert_to_fp8(&convert_e4m3, value);
}

static inline uint8_t
convert_to_e5m2(float value)
{
	return convert_to_fp8(&convert_e5m2, value);
}

/* Adding 1.5 * 2^23 leaves the rounded integer in the low bits. */
static inline int8_t
convert_to_i8(float value)
{
	return (int8_t)(convert_bits(value + 0x1.8p23f) - convert_bits(0x1.8p23f));
}

#endif
