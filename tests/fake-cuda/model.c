/* SPDX-License-Identifier: Apache-2.0 */
/* Warp operations, atomics, asynchronous copies, matrix instructions, conversions. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "tests/fake-cuda/simt_block.h"
#include "tests/fake-cuda/simt_model.h"

/* Warp operations.  Each lane brings a struct on its own stack; the last one fills them all. */

struct word_argument {
	uint32_t value, result;
	int lane;
};

static void
shuffle_complete(void *const arguments[SIMT_WARP])
{
	for (unsigned int i = 0; i < SIMT_WARP; i++) {
		struct word_argument *own = arguments[i];
		const struct word_argument *other = arguments[own->lane & (SIMT_WARP - 1)];

		own->result = other->value;
	}
}

uint32_t
simt_model_shuffle(uint32_t value, int lane, const char *file, int line)
{
	struct word_argument argument = { .value = value, .lane = lane };

	block_meet(shuffle_complete, "a shuffle", &argument, file, line);
	return argument.result;
}

static void
ballot_complete(void *const arguments[SIMT_WARP])
{
	uint32_t bits = 0;

	for (unsigned int i = 0; i < SIMT_WARP; i++)
		bits |= ((const struct word_argument *)arguments[i])->value << i;
	for (unsigned int i = 0; i < SIMT_WARP; i++)
		((struct word_argument *)arguments[i])->result = bits;
}

uint32_t
simt_model_ballot(bool value, const char *file, int line)
{
	struct word_argument argument = { .value = value };

	block_meet(ballot_complete, "a vote", &argument, file, line);
	return argument.result;
}

static void
warp_sync_complete(void *const arguments[SIMT_WARP])
{
	uint16_t lanes[SIMT_WARP];

	(void)arguments;
	for (unsigned int i = 0; i < SIMT_WARP; i++)
		lanes[i] = (uint16_t)(block.thread / SIMT_WARP * SIMT_WARP + i);
	race_join(lanes, SIMT_WARP);
}

void
simt_model_warp_sync(const char *file, int line)
{
	block_meet(warp_sync_complete, "a warp's barrier", NULL, file, line);
}

/* Atomics */

#define SPIN_LIMIT 1000000

/* Blocks run one after another: a block that spins on a word of a later block hangs, as it may on a GPU. */
static void
spin_check(const void *at, const void *code)
{
	static const void *last_at;
	static uint32_t last_thread, n_times;

	if (at != last_at || block.thread != last_thread)
		n_times = 0;
	last_at = at;
	last_thread = block.thread;
	if (++n_times < SPIN_LIMIT)
		return;
	n_times = 0;
	block_fail_at(code, "it waits for another block, by %u looks at one word", SPIN_LIMIT);
}

static uint32_t
atomic_add(uint32_t *at, uint32_t n, const void *code)
{
	uint32_t old;

	spin_check(at, code);
	race_atomic((uintptr_t)at, sizeof(*at), code);
	old = *at;
	*at = old + n;
	return old;
}

uint32_t
simt_atomic_add(uint32_t *at, uint32_t n)
{
	return atomic_add(at, n, __builtin_return_address(0));
}

uint32_t
simt_atomic_add_acq_rel(uint32_t *at, uint32_t n)
{
	race_fence();
	return atomic_add(at, n, __builtin_return_address(0));
}

uint32_t
simt_atomic_max(uint32_t *at, uint32_t n)
{
	uint32_t old;

	spin_check(at, __builtin_return_address(0));
	race_atomic((uintptr_t)at, sizeof(*at), __builtin_return_address(0));
	old = *at;
	*at = old > n ? old : n;
	return old;
}

uint32_t
simt_atomic_or(uint32_t *at, uint32_t n)
{
	uint32_t old;

	spin_check(at, __builtin_return_address(0));
	race_atomic((uintptr_t)at, sizeof(*at), __builtin_return_address(0));
	old = *at;
	*at = old | n;
	return old;
}

void
simt_model_load_fresh(void *value, const void *at, size_t size)
{
	spin_check(at, __builtin_return_address(0));
	if (!race_atomic_load((uintptr_t)at, size))
		race_access((uintptr_t)at, size, false, __builtin_return_address(0));
	memcpy(value, at, size);
}

/* Matrices.  Layouts as in the PTX manual, "Matrix Fragments for mma.m16n8k16" and "ldmatrix". */

struct matrix_argument {
	uint32_t *r;
	const uint16_t *row;
	const void *code;
};

/* Lanes 8m to 8m + 7 give the rows of matrix m; lane l gets elements 2 (l % 4) and the next of row l / 4. */
static void
ldmatrix(void *const arguments[SIMT_WARP], bool transposed)
{
	uint16_t rows[SIMT_WARP][8];

	for (unsigned int i = 0; i < SIMT_WARP; i++)
		memcpy(rows[i], ((const struct matrix_argument *)arguments[i])->row, sizeof(rows[i]));
	for (unsigned int lane = 0; lane < SIMT_WARP; lane++) {
		uint32_t *r = ((struct matrix_argument *)arguments[lane])->r;
		unsigned int i = lane / 4, j = lane % 4 * 2;

		for (unsigned int m = 0; m < 4; m++) {
			uint16_t(*matrix)[8] = &rows[m * 8];

			r[m] = transposed ? matrix[j][i] | (uint32_t)matrix[j + 1][i] << 16
					  : matrix[i][j] | (uint32_t)matrix[i][j + 1] << 16;
		}
	}
}

static void
ldmatrix_plain_complete(void *const arguments[SIMT_WARP])
{
	ldmatrix(arguments, false);
}

static void
ldmatrix_trans_complete(void *const arguments[SIMT_WARP])
{
	ldmatrix(arguments, true);
}

static void
ldmatrix_meet(block_complete_fn complete, struct matrix_argument argument, const char *file, int line)
{
	if ((uintptr_t)argument.row % 16 != 0)
		block_fail("ldmatrix of a row that is not aligned to 16 bytes (%s:%d)", file, line);
	race_access((uintptr_t)argument.row, 16, false, argument.code);
	block_meet(complete, "ldmatrix", &argument, file, line);
}

void
simt_model_ldmatrix_x4(uint32_t r[4], const void *row, const char *file, int line)
{
	ldmatrix_meet(ldmatrix_plain_complete,
		      (struct matrix_argument){ .r = r, .row = row, .code = __builtin_return_address(0) }, file, line);
}

void
simt_model_ldmatrix_x4_trans(uint32_t r[4], const void *row, const char *file, int line)
{
	ldmatrix_meet(ldmatrix_trans_complete,
		      (struct matrix_argument){ .r = r, .row = row, .code = __builtin_return_address(0) }, file, line);
}

struct mma_argument {
	float *d;
	const uint32_t *a, *b;
};

/*
 * Computed in float64 with one rounding at the end: more exact than a tensor
 * core, whose order and truncation of sums are unspecified.
 */
static inline void
mma(void *const arguments[SIMT_WARP], float (*element)(uint16_t bits))
{
	double a[16][16], b[8][16];

	for (unsigned int lane = 0; lane < SIMT_WARP; lane++) {
		const struct mma_argument *own = arguments[lane];
		unsigned int g = lane / 4, t = lane % 4 * 2;

		for (unsigned int i = 0; i < 8; i++) { /* four registers of two */
			uint16_t bits = (uint16_t)(own->a[i / 2] >> i % 2 * 16);

			a[g + i / 2 % 2 * 8][t + i / 4 * 8 + i % 2] = (double)element(bits);
		}
		for (unsigned int i = 0; i < 4; i++) {
			uint16_t bits = (uint16_t)(own->b[i / 2] >> i % 2 * 16);

			b[g][t + i / 2 * 8 + i % 2] = (double)element(bits);
		}
	}
	for (unsigned int lane = 0; lane < SIMT_WARP; lane++) {
		float *d = ((const struct mma_argument *)arguments[lane])->d;

		for (unsigned int i = 0; i < 4; i++) {
			const double *row = a[lane / 4 + i / 2 * 8], *column = b[lane % 4 * 2 + i % 2];
			double sum = 0;

			for (unsigned int k = 0; k < 16; k++)
				sum += row[k] * column[k];
			d[i] = (float)((double)d[i] + sum);
		}
	}
}

static void
mma_bf16_complete(void *const arguments[SIMT_WARP])
{
	mma(arguments, convert_from_bf16);
}

static void
mma_f16_complete(void *const arguments[SIMT_WARP])
{
	mma(arguments, convert_from_f16);
}

void
simt_model_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line)
{
	block_meet(mma_bf16_complete, "mma", &(struct mma_argument){ d, a, b }, file, line);
}

void
simt_model_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line)
{
	block_meet(mma_f16_complete, "mma", &(struct mma_argument){ d, a, b }, file, line);
}

/* Numbers */

float
simt_exp2(float x)
{
	return exp2f(x);
}

float
simt_log2(float x)
{
	return log2f(x);
}

/* cvt makes every NaN the same. */
uint16_t
simt_to_bf16(float value)
{
	return isnan(value) ? 0x7fff : convert_to_bf16(value);
}

uint16_t
simt_to_f16(float value)
{
	return isnan(value) ? 0x7fff : convert_to_f16(value);
}

float
simt_from_bf16(uint16_t bits)
{
	return convert_from_bf16(bits);
}

float
simt_from_f16(uint16_t bits)
{
	return convert_from_f16(bits);
}

int32_t
simt_to_int(float value)
{
	if (isnan(value))
		return 0;
	if (value >= 0x1p31f)
		return INT32_MAX;
	return value < -0x1p31f ? INT32_MIN : (int32_t)rintf(value);
}

/* Not inline in simt_host.h, so that the compiler cannot contract both into an fma. */
float
simt_mul(float a, float b)
{
	return a * b;
}

float
simt_add(float a, float b)
{
	return a + b;
}

/*
 * fp8: `digits` after the point, the smallest normal number 2^least.  cvt
 * gives the largest number for what is larger, and one NaN for all.
 */
static uint8_t
fp8_round(float value, int digits, int least, float largest)
{
	uint8_t sign = signbit(value) ? 0x80 : 0;
	float magnitude = fminf(fabsf(value), largest), unit;
	int exponent;

	if (isnan(value))
		return 0x7f;
	frexpf(magnitude, &exponent);
	exponent = magnitude == 0 || exponent - 1 < least ? least : exponent - 1;
	unit = ldexpf(1.0f, exponent - digits);
	magnitude = rintf(magnitude / unit); /* from 0 to 2^(digits + 1), which is 1 of the next exponent */
	return (uint8_t)(sign | (((exponent - least) << digits) + (int)magnitude));
}

static float
fp8_value(uint8_t bits, int digits, int least)
{
	int exponent = (bits & 0x7f) >> digits, mantissa = bits & ((1 << digits) - 1);
	float value = exponent == 0 ? ldexpf((float)mantissa, least - digits)
				    : ldexpf((float)(mantissa + (1 << digits)), exponent - 1 + least - digits);

	return bits & 0x80 ? -value : value;
}

/* 448 is the largest; there is no infinity, and NaN is all ones. */
uint8_t
simt_to_e4m3(float value)
{
	return fp8_round(value, 3, -6, 448.0f);
}

float
simt_from_e4m3(uint8_t bits)
{
	return (bits & 0x7f) == 0x7f ? NAN : fp8_value(bits, 3, -6);
}

/* The largest exponent is infinity's and NaN's, as in f16. */
uint8_t
simt_to_e5m2(float value)
{
	return fp8_round(value, 2, -14, 57344.0f);
}

float
simt_from_e5m2(uint8_t bits)
{
	if ((bits & 0x7c) == 0x7c)
		return bits & 3 ? NAN : copysignf(INFINITY, bits & 0x80 ? -1.0f : 1.0f);
	return fp8_value(bits, 2, -14);
}

/* Pairs of halves */

uint32_t
simt_permute(uint32_t low, uint32_t high, uint32_t which)
{
	uint64_t bytes = (uint64_t)high << 32 | low;
	uint32_t to = 0;

	for (unsigned int i = 0; i < 4; i++)
		to |= (uint32_t)(bytes >> (which >> i * 4 & 7) * 8 & 0xff) << i * 8;
	return to;
}

/* Rounded to odd, so that rounding it once more, to a half, is as if it were the only time. */
static float
fma_odd(float a, float b, float c)
{
	double sum = fma((double)a, (double)b, (double)c);
	float cut = (float)sum;
	uint32_t bits = convert_bits(cut);

	if (isnan(sum) || isinf(cut) || (double)cut == sum)
		return cut;
	bits -= fabs((double)cut) > fabs(sum);
	return convert_float(bits | 1);
}

uint32_t
simt_fma_f16(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t to = 0;

	for (unsigned int i = 0; i < 32; i += 16)
		to |= (uint32_t)simt_to_f16(fma_odd(convert_from_f16((uint16_t)(a >> i)),
						    convert_from_f16((uint16_t)(b >> i)),
						    convert_from_f16((uint16_t)(c >> i))))
		      << i;
	return to;
}

uint32_t
simt_fma_bf16(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t to = 0;

	for (unsigned int i = 0; i < 32; i += 16)
		to |= (uint32_t)simt_to_bf16(fma_odd(convert_from_bf16((uint16_t)(a >> i)),
						     convert_from_bf16((uint16_t)(b >> i)),
						     convert_from_bf16((uint16_t)(c >> i))))
		      << i;
	return to;
}
