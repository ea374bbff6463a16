/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of every instruction set are bit-identical to convert.h, which is compared with exact arithmetic. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/tile.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

/* The value of an f16 by the definition of the format. */
static double
f16_value(uint16_t half)
{
	int exponent = half >> 10 & 31, fraction = half & 0x3ff;
	double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);

	return half & 0x8000 ? -magnitude : magnitude;
}

Test(convert, f16_to_f32)
{
	for (uint32_t i = 0; i < 65536; i++) {
		float value = convert_from_f16((uint16_t)i);

		if ((i & 0x7c00) != 0x7c00)
			cr_assert_eq((double)value, f16_value((uint16_t)i));
		else if (i & 0x3ff)
			cr_assert(isnan(value));
		else
			cr_assert_eq(value, i >> 15 ? -INFINITY : INFINITY);
	}
}

static uint16_t
convert_to(enum paged_dtype dtype, float value)
{
	return dtype == PAGED_F16 ? convert_to_f16(value) : convert_to_bf16(value);
}

/* a and b are neighbours: values between them round to the nearer, the middle to the even one. */
static void
rounding_check(enum paged_dtype dtype, uint16_t a, uint16_t b)
{
	float low = reference_load(&a, dtype, 0), high = reference_load(&b, dtype, 0);
	float middle = (float)(((double)low + (double)high) / 2);

	cr_assert_eq(convert_to(dtype, low), a);
	cr_assert_eq(convert_to(dtype, middle), a & 1 ? b : a, "%a", (double)middle);
	cr_assert_eq(convert_to(dtype, nextafterf(middle, low)), a);
	cr_assert_eq(convert_to(dtype, nextafterf(middle, high)), b);
}

Test(convert, f32_to_halves_rounds_to_nearest_even)
{
	for (uint16_t i = 0; i < 0x7bff; i++) {
		rounding_check(PAGED_F16, i, i + 1);
		rounding_check(PAGED_F16, i | 0x8000, (uint16_t)(i + 1) | 0x8000);
	}
	for (uint16_t i = 1; i < 0x7f7f; i++)
		rounding_check(PAGED_BF16, i, i + 1);
	cr_assert_eq(convert_to_f16(65519.996f), 0x7bff);
	cr_assert_eq(convert_to_f16(65520), 0x7c00);
	cr_assert_eq(convert_to_f16(-1e30f), 0xfc00);
	cr_assert_eq(convert_to_bf16(3.4e38f), 0x7f80);
}

/* An 8-bit float format: its codes from 0 to n - 1 are finite and ascending. */
struct fp8_format {
	enum paged_dtype dtype;
	unsigned int fraction_bits;
	int bias;
	unsigned int n; /* finite numbers */
};

static const struct fp8_format e4m3_format = { PAGED_E4M3, 3, 7, 0x7f }, e5m2_format = { PAGED_E5M2, 2, 15, 0x7c };

static double
fp8_value(const struct fp8_format *format, uint32_t code)
{
	int exponent = (int)(code >> format->fraction_bits);
	int fraction = (int)(code & ((1u << format->fraction_bits) - 1)), one = 1 << format->fraction_bits;

	if (exponent == 0)
		return ldexp(fraction, 1 - format->bias - (int)format->fraction_bits);
	return ldexp(one + fraction, exponent - format->bias - (int)format->fraction_bits);
}

static void
fp8_codes_check(const struct fp8_format *format)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint8_t code = (uint8_t)i;
		float value = reference_load(&code, format->dtype, 0);

		if ((i & 0x7f) < format->n)
			cr_assert_eq((double)value, fp8_value(format, i & 0x7f) * (i & 0x80 ? -1 : 1), "%#x", i);
		else if (format->dtype == PAGED_E5M2 && (i & 0x7f) == 0x7c)
			cr_assert_eq(value, i & 0x80 ? -INFINITY : INFINITY);
		else
			cr_assert(isnan(value), "%#x", i);
		cr_assert_eq(signbit(value) != 0, i >= 0x80);
	}
}

Test(convert, fp8_to_f32)
{
	fp8_codes_check(&e4m3_format);
	fp8_codes_check(&e5m2_format);
}

/* The nearest number of the format, found by bisection; ties go to the even code. */
static uint8_t
nearest_fp8(const struct fp8_format *format, float value)
{
	double magnitude = fabs((double)value);
	uint32_t low = 0, high = format->n - 1, sign = signbit(value) ? 0x80 : 0;

	if (isnan(value))
		return 0x7f;
	if (magnitude >= fp8_value(format, high))
		return (uint8_t)(sign | high);
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		if (fp8_value(format, middle) <= magnitude)
			low = middle;
		else
			high = middle;
	}
	if (magnitude - fp8_value(format, low) > fp8_value(format, high) - magnitude ||
	    (magnitude - fp8_value(format, low) == fp8_value(format, high) - magnitude && (low & 1)))
		low = high;
	return (uint8_t)(sign | low);
}

/* All signs, exponents and upper fraction bits; the lower bits are 0, 1, all ones of the predecessor, and random. */
static void
fp8_rounding_check(const struct fp8_format *format)
{
	for (uint32_t i = 0; i < 4 * 65536; i++) {
		uint32_t upper = i >> 2 << 16, lower = (uint32_t)random_bits(9, i) & 0xffff;
		float value = convert_float(i % 4 < 2 ? upper | (i & 1) : i % 4 == 2 ? upper - 1 : upper | lower);
		uint8_t got;

		reference_store(&got, format->dtype, 0, value);
		cr_assert_eq(got, nearest_fp8(format, value), "%a: %#x", (double)value, got);
	}
}

Test(convert, f32_to_fp8_and_i8_rounds_to_nearest_even)
{
	fp8_rounding_check(&e4m3_format);
	fp8_rounding_check(&e5m2_format);
	for (int i = -1270; i <= 1270; i++)
		cr_assert_eq(convert_to_i8((float)i / 10), (int8_t)lrint((double)((float)i / 10)));
	cr_assert_eq(convert_to_i8(0.5f), 0);
	cr_assert_eq(convert_to_i8(1.5f), 2);
	cr_assert_eq(convert_to_i8(-2.5f), -2);
}

Test(convert, nan_becomes_quiet)
{
	float signaling = convert_float(0x7f800001);

	cr_assert_eq(convert_to_bf16(signaling), 0x7fc0);
	cr_assert_eq(convert_to_f16(signaling), 0x7e00);
	cr_assert_eq(convert_to_f16(convert_float(0xffc00000)), 0xfe00);
}

/* Numbers of all magnitudes, and numbers near the limits of f16 and bf16. */
static float
edge_value(uint32_t i)
{
	static const uint32_t special[] = { 0,          0x80000000, 0x7f800000, 0xff800000, 0x7f800001, 0x7fc00123,
					    0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fffff, 0x38800000,
					    1,          0x7f7fffff, 0x7f7f8000, 0xffbfffff };

	return convert_float(i % 37 < 16 ? special[i % 37] : (uint32_t)random_bits(7, i));
}

static void
assert_same_bits(const void *got, const void *expected, size_t size, uint32_t n)
{
	cr_assert_eq(memcmp(got, expected, size), 0, "%u elements", n);
}

KERNEL_TEST(convert, vectors_equal_scalars_f16_bf16)
{
	const struct kernel_tile_ops *ops = kernel_tile_ops(isa);
	static const enum paged_dtype halves[] = { PAGED_F16, PAGED_BF16 };
	static float wide[65536], expected[65536];
	static uint16_t narrow[65537], expected_narrow[65536];

	for (size_t t = 0; t < 2; t++) {
		for (uint32_t i = 0; i < 65536; i++) {
			narrow[i] = (uint16_t)i;
			expected[i] = reference_load(narrow, halves[t], i);
		}
		ops->widen(wide, narrow, halves[t], 65536);
		assert_same_bits(wide, expected, sizeof(wide), 65536);
		for (uint32_t i = 0; i < 65536; i++) {
			wide[i] = edge_value(i);
			reference_store(expected_narrow, halves[t], i, wide[i]);
		}
		ops->narrow(narrow, halves[t], wide, 1, 65536);
		assert_same_bits(narrow, expected_narrow, sizeof(expected_narrow), 65536);
	}
}

/* Whole vectors of one value, because instruction sets may convert a vector with a subnormal number in another way. */
KERNEL_TEST(convert, alike_vectors_equal_scalars_bf16)
{
	const struct kernel_tile_ops *ops = kernel_tile_ops(isa);
	float wide[64];
	uint16_t narrow[64], expected[64];

	for (uint32_t i = 0; i < 65536; i++) {
		for (uint32_t j = 0; j < 64; j++) {
			wide[j] = edge_value(i);
			reference_store(expected, PAGED_BF16, j, wide[j]);
		}
		ops->narrow(narrow, PAGED_BF16, wide, 1, 64);
		assert_same_bits(narrow, expected, sizeof(expected), 64);
	}
}

KERNEL_TEST(convert, vectors_equal_scalars_fp8_i8)
{
	const struct kernel_tile_ops *ops = kernel_tile_ops(isa);
	static const enum paged_dtype dtypes[] = { PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	static float wide[65536], expected[256];
	static uint8_t narrow[65536], expected_narrow[65536];

	for (size_t t = 0; t < 3; t++) {
		for (uint32_t i = 0; i < 256; i++) {
			narrow[i] = (uint8_t)i;
			expected[i] = reference_load(narrow, dtypes[t], i);
		}
		ops->widen(wide, narrow, dtypes[t], 256);
		assert_same_bits(wide, expected, sizeof(expected), 256);
		for (uint32_t i = 0; i < 65536; i++) {
			wide[i] = dtypes[t] == PAGED_I8 ? random_float(3, i, 127)
				  : i % 2 == 0          ? edge_value(i)
							: convert_float((uint32_t)random_bits(7, i) >> 20 << 20);
			reference_store(expected_narrow, dtypes[t], i, wide[i]);
		}
		ops->narrow(narrow, dtypes[t], wide, 1, 65536);
		assert_same_bits(narrow, expected_narrow, sizeof(expected_narrow), 65536);
	}
}

/* Tails: the rest of the last vector is zero, and nothing is written past element n - 1. */
KERNEL_TEST(convert, tails)
{
	const struct kernel_tile_ops *ops = kernel_tile_ops(isa);
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };

	for (size_t i = 0; i < 6 * 40; i++) {
		enum paged_dtype dtype = dtypes[i % 6];
		uint32_t n = (uint32_t)i / 6 + 1, size = n * paged_dtype_size(dtype);
		uint8_t *from = malloc(size), *to = malloc(size); /* exact, for the sanitizer */
		float wide[64];

		for (uint32_t j = 0; j < n; j++)
			reference_store(from, dtype, j, (float)(j % 16) - 7); /* exact in every dtype */
		ops->widen(wide, from, dtype, n);
		for (uint32_t j = 0; j < n; j++)
			cr_assert_eq(wide[j], (float)(j % 16) - 7);
		for (uint32_t j = n; j % ops->lanes != 0; j++)
			cr_assert_eq(wide[j], 0);
		ops->narrow(to, dtype, wide, 1, n);
		cr_assert_eq(memcmp(to, from, size), 0);
		free(from);
		free(to);
	}
}

/* softmax() of one tile: exp within 2 ulp while the result is a normal number, then 0. */
KERNEL_TEST(convert, exp_within_2_ulp)
{
	const float min_x = -87.33f; /* vec_exp()'s limit; exp(min_x) is 1.004 times the smallest normal number */
	const struct kernel_tile_ops *ops = kernel_tile_ops(isa);
	static struct tile_scores scores;
	static struct softmax_state state;
	double worst = 0;

	for (uint32_t round = 0; round < 4000; round++) {
		float x[TILE_TOKENS];

		x[0] = 0;
		for (uint32_t i = 1; i < TILE_TOKENS; i++)
			x[i] = -fabsf(random_float(round, i, 88));
		x[1] = min_x;
		x[2] = nextafterf(min_x, -INFINITY);
		memcpy(scores.score[0], x, sizeof(x));
		scores.visible[0] = TILE_TOKENS;
		state.row_max[0] = -INFINITY;
		ops->softmax(&scores, &state, 0, 1, 1);
		for (uint32_t i = 0; i < TILE_TOKENS; i++) {
			double exact = exp((double)x[i]), unit = ldexp(1, ilogb(exact) - 23);

			if (x[i] < min_x) {
				cr_assert(scores.score[0][i] == 0, "exp(%g) is %g", (double)x[i],
					  (double)scores.score[0][i]);
				continue;
			}
			worst = fmax(worst, fabs((double)scores.score[0][i] - exact) / unit);
		}
	}
	cr_assert_leq(worst, 2, "%g units", worst);
}
