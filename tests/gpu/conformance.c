/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares every function of simt.h on a device with its model, on random words:
 * moves and conversions bit for bit, sums and approximations within the error
 * bounds of the PTX manual.  conformance_run.h selects the device.
 */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "tests/fake-cuda/kernels/simt_cases.h"
#include "tests/gpu/conformance.h"
#include "tests/gpu/conformance_run.h"
#include "tests/support/harness.h"
#include "tests/support/reference.h"

#define SHOWN 5u /* mismatches */
#define MATRIX_IN 10u
#define NUMBER_OUT 10u
#define BYTES_OUT 9u

typedef void fill_fn(uint32_t *in, size_t n);
typedef bool fits_fn(size_t i, uint32_t got, uint32_t wanted, uint32_t magnitude);

struct conformance_case {
	struct conformance_launch launch;
	fill_fn *fill;
	fits_fn *fits;
	bool is_sum; /* `magnitude` is the result of the same numbers without their signs */
};

static float
number_of(uint32_t bits)
{
	float number;

	memcpy(&number, &bits, sizeof(number));
	return number;
}

static uint32_t
bits_of(float number)
{
	uint32_t bits;

	memcpy(&bits, &number, sizeof(bits));
	return bits;
}

/* Inputs */

static void
fill_bits(uint32_t *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		in[i] = (uint32_t)random_bits(11, i);
}

static void
fill_count(uint32_t *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		in[i] = (uint32_t)i;
}

/* Mostly of moderate size, for functions that have a range; any bits among them. */
static void
fill_numbers(uint32_t *in, size_t n)
{
	static const float special[] = { 0.0f,     -0.0f,    1.0f,     448.0f,  464.0f,    -1e9f,
					 0x1p-9f,  0x1p-10f, INFINITY, 65504.f, 65520.f,   0x1p-24f,
					 0x1p-25f, 0x1p-14f, -17.0f,   19.0f,   -INFINITY, NAN };

	for (size_t i = 0; i < n; i++) {
		int exponent = (int)(random_bits(13, i) % 40) - 28;

		in[i] = i % 4 == 3 ? (uint32_t)random_bits(11, i) : bits_of(ldexpf(random_float(12, i, 1), exponent));
		if (i % 3 == 0 && i / 3 < sizeof(special) / sizeof(special[0]))
			in[i] = bits_of(special[i / 3]);
	}
}

/* Lanes of a's 4 words and b's 2 (two elements each) and d's 4. */
static void
fill_matrix(uint32_t *in, size_t n, uint16_t (*element)(float), bool integers)
{
	for (size_t i = 0; i < n; i++) {
		float two[2] = { random_float(14, 2 * i, 4), random_float(14, 2 * i + 1, 4) };

		for (unsigned int j = 0; integers && j < 2; j++)
			two[j] = rintf(two[j] * 2);
		in[i] = i % MATRIX_IN < 6 ? element(two[0]) | (uint32_t)element(two[1]) << 16 : bits_of(two[0] * 4);
	}
}

static void
fill_bf16(uint32_t *in, size_t n)
{
	fill_matrix(in, n, convert_to_bf16, false);
}

static void
fill_f16(uint32_t *in, size_t n)
{
	fill_matrix(in, n, convert_to_f16, false);
}

static void
fill_bf16_integers(uint32_t *in, size_t n)
{
	fill_matrix(in, n, convert_to_bf16, true);
}

static void
fill_f16_integers(uint32_t *in, size_t n)
{
	fill_matrix(in, n, convert_to_f16, true);
}

/* Pairs of small integers. */
static void
fill_pairs(uint32_t *in, size_t n, uint16_t (*element)(float))
{
	for (size_t i = 0; i < n; i++) {
		float two[2] = { rintf(random_float(15, 2 * i, 4)), rintf(random_float(15, 2 * i + 1, 4)) };

		in[i] = element(two[0]) | (uint32_t)element(two[1]) << 16;
	}
}

static void
fill_bf16_pairs(uint32_t *in, size_t n)
{
	fill_pairs(in, n, convert_to_bf16);
}

static void
fill_f16_pairs(uint32_t *in, size_t n)
{
	fill_pairs(in, n, convert_to_f16);
}

static void
signs_drop(uint32_t *to, const uint32_t *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = in[i] & (i % MATRIX_IN < 6 ? 0x7fff7fff : 0x7fffffff);
}

/* Comparisons */

static bool
fits_bits(size_t i, uint32_t got, uint32_t wanted, uint32_t magnitude)
{
	(void)i, (void)magnitude;
	return got == wanted;
}

/* Zeros are equal, and so are NaNs. */
static bool
fits_number(size_t i, uint32_t got, uint32_t wanted, uint32_t magnitude)
{
	float a = number_of(got), b = number_of(wanted);

	(void)i, (void)magnitude;
	return a == b || (isnan(a) && isnan(b));
}

/* Products are exact; a tensor core may cut off what it adds, each time in the last of 24 bits of the largest. */
static bool
fits_sum(size_t i, uint32_t got, uint32_t wanted, uint32_t magnitude)
{
	(void)i;
	return fabsf(number_of(got) - number_of(wanted)) <= 17 * 0x1p-23f * number_of(magnitude);
}

static bool
near(uint32_t got, uint32_t wanted, float relative, float absolute)
{
	return fits_number(0, got, wanted, 0) ||
	       fabsf(number_of(got) - number_of(wanted)) <= relative * fabsf(number_of(wanted)) + absolute;
}

/*
 * ex2 strays by 2 ulp and flushes what is subnormal; lg2 by 2^-22, of 1 or of the result, and takes a subnormal number
 * for 0.  The model has a rounding of its own.
 */
static bool
fits_function(size_t i, uint32_t got, uint32_t wanted, uint32_t magnitude)
{
	switch (i % NUMBER_OUT) {
	case 0:
		return near(got, wanted, 3 * 0x1p-23f, 0x1p-126f);
	case 1:
		return near(got, wanted, 3 * 0x1p-23f, 0x1p-22f) ||
		       (number_of(wanted) < -126 && number_of(got) == -INFINITY);
	case 2:
	case 3:
	case 9:
		return fits_number(i, got, wanted, magnitude);
	default:
		return got == wanted;
	}
}

/* NaNs are the same for each half; a sum that is 0 has a sign of its own. */
static bool
fits_halves(uint32_t got, uint32_t wanted, float (*number)(uint16_t bits))
{
	return fits_number(0, bits_of(number((uint16_t)got)), bits_of(number((uint16_t)wanted)), 0) &&
	       fits_number(0, bits_of(number((uint16_t)(got >> 16))), bits_of(number((uint16_t)(wanted >> 16))), 0);
}

static bool
fits_bytes(size_t i, uint32_t got, uint32_t wanted, uint32_t magnitude)
{
	switch (i % BYTES_OUT) {
	case 4:
	case 5:
		return fits_number(i, got, wanted, magnitude);
	case 6:
		return fits_halves(got, wanted, convert_from_f16);
	case 7:
		return fits_halves(got, wanted, convert_from_bf16);
	default:
		return got == wanted;
	}
}

/* Cases */

static uint32_t *
words_new(size_t n)
{
	uint32_t *words = aligned_alloc(64, (n * sizeof(*words) + 63) / 64 * 64);

	it_require(words != NULL);
	return words;
}

static void
compare(const struct conformance_case *c, const uint32_t *got, const uint32_t *wanted, const uint32_t *magnitudes)
{
	size_t n_wrong = 0;

	for (size_t i = 0; i < c->launch.n_out; i++) {
		uint32_t magnitude = magnitudes != NULL ? magnitudes[i] : 0;

		if (c->fits(i, got[i], wanted[i], magnitude) || ++n_wrong > SHOWN)
			continue;
		it_note("%s word %zu: %08x (%.9g), the model says %08x (%.9g)", c->launch.record, i,
			(unsigned int)got[i], (double)number_of(got[i]), (unsigned int)wanted[i],
			(double)number_of(wanted[i]));
	}
	it_require(n_wrong == 0, "%s: %zu of %zu words differ", c->launch.record, n_wrong, c->launch.n_out);
}

static void
conform(const struct conformance_case *c)
{
	uint32_t *in = words_new(c->launch.n_in), *got = words_new(c->launch.n_out),
		 *wanted = words_new(c->launch.n_out), *magnitudes = NULL, *without = NULL;

	c->fill(in, c->launch.n_in);
	conformance_device(&c->launch, in, got);
	conformance_model(&c->launch, in, wanted);
	if (c->is_sum) {
		without = words_new(c->launch.n_in);
		magnitudes = words_new(c->launch.n_out);
		signs_drop(without, in, c->launch.n_in);
		conformance_model(&c->launch, without, magnitudes);
	}
	compare(c, got, wanted, magnitudes);
	free(in);
	free(got);
	free(wanted);
	free(magnitudes);
	free(without);
}

_Static_assert(CONFORMANCE_BULK_WORDS == BULK_CASE_ROUNDS * BULK_CASE_WORDS, "as of one block");
_Static_assert(CONFORMANCE_CLUSTER_IN ==
		       CLUSTER_CASE_PAGES * CLUSTER_CASE_HEADS * CLUSTER_CASE_TOKENS * CLUSTER_CASE_DIM / 2,
	       "all elements");
_Static_assert(CONFORMANCE_CLUSTER_OUT == CONFORMANCE_CLUSTER_BLOCKS * CLUSTER_CASE_WORDS, "those of all blocks");

static const struct conformance_tensor cluster_tensor = {
	.dims = { CLUSTER_CASE_DIM, CLUSTER_CASE_TOKENS, CLUSTER_CASE_HEADS, CLUSTER_CASE_PAGES },
	.box = { 64, CLUSTER_CASE_BOX_TOKENS, CLUSTER_CASE_BOX_HEADS, 1 },
};

#define CONFORM(name, kernel, n_blocks, n_threads, n_items, n_in, n_out, fill, fits, is_sum)                       \
	IT_TEST(name)                                                                                              \
	{                                                                                                          \
		static const struct conformance_case c = { { kernel, #name, n_blocks, 1, n_threads, n_items, n_in, \
							     n_out, 0, 0, false, NULL },                           \
							   fill,                                                   \
							   fits,                                                   \
							   is_sum };                                               \
		conform(&c);                                                                                       \
	}

/* Cases of instructions that devices of compute capability 9.0 have, or that these and later ones have. */
#define CONFORM_NEW(name, kernel, n_blocks, n_threads, n_in, n_out, or_later, tensor, fill, fits)                      \
	IT_TEST(name)                                                                                                  \
	{                                                                                                              \
		static const struct conformance_case c = { { kernel, #name, n_blocks, 1, n_threads, 0, n_in, n_out, 0, \
							     90, or_later, tensor },                                   \
							   fill,                                                       \
							   fits,                                                       \
							   false };                                                    \
		conform(&c);                                                                                           \
	}
#define CONFORM_FROM_9_0(name, kernel, n_blocks, n_threads, n_in, n_out, fill, fits) \
	CONFORM_NEW(name, kernel, n_blocks, n_threads, n_in, n_out, true, NULL, fill, fits)
#define CONFORM_9_0(name, kernel, n_blocks, n_threads, n_in, n_out, fill, fits) \
	CONFORM_NEW(name, kernel, n_blocks, n_threads, n_in, n_out, false, NULL, fill, fits)

IT_TEST(where)
{
	static const struct conformance_case c = {
		{ "where", "where", 3, 2, 96, 0, 1, 3 * 2 * 96 * 7, 0, 0, false, NULL }, fill_count, fits_bits, false
	};

	conform(&c);
}

CONFORM(warp, "warp", 16, 128, 0, 16 * 128 * 3, 16 * 128 * 6, fill_bits, fits_bits, false)
CONFORM(barrier, "barrier", 16, 128, 0, 16 * 128, 16 * 128, fill_bits, fits_bits, false)
CONFORM(between_blocks, "between", 29, CONFORMANCE_BLOCK, 0, 29 * CONFORMANCE_BLOCK, CONFORMANCE_BETWEEN_WORDS(29),
	fill_bits, fits_bits, false)
CONFORM(copy_async, "copy", 8, CONFORMANCE_BLOCK, 0, 8 * CONFORMANCE_BLOCK * 16, 8 * CONFORMANCE_BLOCK * 12, fill_bits,
	fits_bits, false)
CONFORM(ldmatrix, "ldmatrix", 32, 32, 0, 32 * 160, 32 * 32 * 8, fill_bits, fits_bits, false)
CONFORM(mma_bf16_layout, "mma_bf16", 16, 32, 0, 16 * 32 * MATRIX_IN, 16 * 32 * 4, fill_bf16_integers, fits_number,
	false)
CONFORM(mma_f16_layout, "mma_f16", 16, 32, 0, 16 * 32 * MATRIX_IN, 16 * 32 * 4, fill_f16_integers, fits_number, false)
CONFORM(mma_bf16_sums, "mma_bf16", 64, 32, 0, 64 * 32 * MATRIX_IN, 64 * 32 * 4, fill_bf16, fits_sum, true)
CONFORM(mma_f16_sums, "mma_f16", 64, 32, 0, 64 * 32 * MATRIX_IN, 64 * 32 * 4, fill_f16, fits_sum, true)
CONFORM(numbers, "number", 8, 128, 8192, 8192 * 3, 8192 * NUMBER_OUT, fill_numbers, fits_function, false)
CONFORM(every_half_and_e4m3, "from", 16, 128, 65536, 65536, 65536 * 3, fill_count, fits_number, false)
CONFORM(copy_async_of_words, "copy_word", 8, CONFORMANCE_BLOCK, 0, 8 * CONFORMANCE_BLOCK * 2, 8 * CONFORMANCE_BLOCK,
	fill_bits, fits_bits, false)
CONFORM(bytes, "bytes", 8, 128, 8192, 8192 * 3, 8192 * BYTES_OUT, fill_numbers, fits_bytes, false)
CONFORM(every_pair_of_fp8, "widen", 16, 128, 65536, 65536, 65536 * 10, fill_count, fits_number, false)

/* Last, so that one that hangs leaves the results of the others: what is off by default. */

/* Programmatic dependent launches: each step sees all that the steps before wrote. */
IT_TEST(dependent_launches)
{
	static const struct conformance_case c = { { "chain", "chain", 16, 1, 128, 0, 16 * 128, 2 * 16 * 128, 12, 0,
						     false, NULL },
						   fill_bits,
						   fits_bits,
						   false };

	conform(&c);
}

CONFORM_FROM_9_0(bulk_copies, "bulk", 8, BULK_CASE_THREADS, 8 * CONFORMANCE_BULK_WORDS, 8 * CONFORMANCE_BULK_WORDS,
		 fill_bits, fits_bits)
CONFORM_9_0(wgmma_bf16, "wgmma_bf16", 4, WGMMA_CASE_THREADS, 4 * CONFORMANCE_WGMMA_IN, 4 * CONFORMANCE_WGMMA_OUT,
	    fill_bf16_pairs, fits_number)
CONFORM_9_0(wgmma_f16, "wgmma_f16", 4, WGMMA_CASE_THREADS, 4 * CONFORMANCE_WGMMA_IN, 4 * CONFORMANCE_WGMMA_OUT,
	    fill_f16_pairs, fits_number)
CONFORM_NEW(clusters, "cluster", CONFORMANCE_CLUSTER_BLOCKS, CLUSTER_CASE_THREADS, CONFORMANCE_CLUSTER_IN,
	    CONFORMANCE_CLUSTER_OUT, false, &cluster_tensor, fill_bits, fits_bits)

IT_MAIN
