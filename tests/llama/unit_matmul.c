/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of every instruction set: against float64, and bit-identical for every batch size. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/matmul.h"

#define MAX_BATCH 9u
/* The second byte of a half: its magnitude stays below 2. */
#define SMALL_HALF 0xbf

static const char *const isas[] = { "generic", "avx2", "avx512" };
#define N_ISAS (sizeof(isas) / sizeof(isas[0]))

static const struct shape {
	enum gguf_type type;
	uint32_t n_rows, n_columns;
} shapes[] = {
	{ GGUF_TYPE_F32, 7, 33 },   { GGUF_TYPE_F32, 64, 172 },   { GGUF_TYPE_F16, 5, 31 },
	{ GGUF_TYPE_F16, 70, 576 }, { GGUF_TYPE_Q8_0, 100, 576 }, { GGUF_TYPE_Q4_0, 33, 1536 },
	{ GGUF_TYPE_Q4_1, 66, 64 }, { GGUF_TYPE_Q4_1, 1, 32 },
};
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static uint32_t
random_u32(void)
{
	static uint64_t state = 20261121;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 32);
}

static float
random_float(void)
{
	return (float)((double)random_u32() / 0x1p31 - 1);
}

/* Random bytes are right weights, once the halves that scale a block are small numbers. */
static struct matrix
random_matrix(const struct shape *shape)
{
	uint32_t n_elements = gguf_type(shape->type)->n_elements, n_bytes = gguf_type(shape->type)->n_bytes;
	struct matrix matrix = { .type = shape->type, .n_rows = shape->n_rows, .n_columns = shape->n_columns };
	uint8_t *data;

	matrix.row_bytes = (size_t)(shape->n_columns / n_elements) * n_bytes;
	data = malloc(matrix.row_bytes * shape->n_rows);
	for (size_t at = 0; at < matrix.row_bytes * shape->n_rows; at += n_bytes) {
		float value = random_float();

		for (uint32_t i = 0; i < n_bytes; i++)
			data[at + i] = (uint8_t)random_u32();
		if (shape->type == GGUF_TYPE_F32)
			memcpy(data + at, &value, sizeof(value));
		else
			data[at + 1] &= SMALL_HALF;
		if (shape->type == GGUF_TYPE_Q4_1)
			data[at + 3] &= SMALL_HALF;
	}
	matrix.data = data;
	return matrix;
}

static void
run(const struct matmul_ops *ops, uint32_t n_threads, const struct matrix *matrix, const float *x, uint32_t n_batch,
    float *out)
{
	struct thread_pool *thread_pool = thread_pool_create(n_threads);
	struct matmul matmul;

	matmul_create(&matmul, ops, thread_pool, matrix->n_columns);
	matmul_run(&matmul, &(struct product){ matrix, out }, 1, x, n_batch);
	matmul_destroy(&matmul);
	thread_pool_destroy(thread_pool);
}

/* The bound of a sum of n products in any order: n * 2^-24 * sum of magnitudes. */
static void
check_against_float64(const struct matrix *matrix, const float *x, uint32_t n_batch, const float *out)
{
	float *row = malloc(matrix->n_columns * sizeof(float));

	for (uint32_t r = 0; r < matrix->n_rows; r++) {
		matmul_dequantize_row(&matmul_ops_generic, matrix, r, row);
		for (uint32_t b = 0; b < n_batch; b++) {
			double sum = 0, magnitude = 0, got = (double)out[b * matrix->n_rows + r];

			for (uint32_t c = 0; c < matrix->n_columns; c++) {
				double product = (double)row[c] * (double)x[b * matrix->n_columns + c];

				sum += product;
				magnitude += fabs(product);
			}
			cr_assert(fabs(got - sum) <= (matrix->n_columns + 1) * 0x1p-24 * magnitude,
				  "row %u, batch %u: %.9g, %.9g expected", r, b, got, sum);
		}
	}
	free(row);
}

static void
check_shape(const char *isa, const struct shape *shape)
{
	const struct matmul_ops *ops = matmul_ops_find(isa);
	struct matrix matrix = random_matrix(shape);
	float *x = malloc(sizeof(float) * MAX_BATCH * shape->n_columns);
	float *whole = malloc(sizeof(float) * MAX_BATCH * shape->n_rows),
	      *part = malloc(sizeof(float) * MAX_BATCH * shape->n_rows);

	for (uint32_t i = 0; i < MAX_BATCH * shape->n_columns; i++)
		x[i] = random_float();
	run(ops, 1, &matrix, x, MAX_BATCH, whole);
	check_against_float64(&matrix, x, MAX_BATCH, whole);
	for (uint32_t n = 1; n <= MAX_BATCH; n++)
		for (uint32_t first = 0; first + n <= MAX_BATCH; first += 2) {
			run(ops, 1 + n % 3, &matrix, x + first * shape->n_columns, n, part);
			cr_assert(memcmp(part, whole + first * shape->n_rows, sizeof(float) * n * shape->n_rows) == 0,
				  "%s: %s %u x %u: rows %u to %u have other bits in a batch of %u", isa,
				  gguf_type(shape->type)->name, shape->n_rows, shape->n_columns, first, first + n - 1,
				  n);
		}
	free((void *)matrix.data);
	free(x);
	free(whole);
	free(part);
}

static void
check_isa(const char *isa)
{
	if (matmul_ops_find(isa) == NULL)
		cr_skip_test("this CPU lacks %s", isa);
	for (size_t i = 0; i < N_SHAPES; i++)
		check_shape(isa, &shapes[i]);
}

Test(matmul, generic)
{
	check_isa("generic");
}

Test(matmul, avx2)
{
	check_isa("avx2");
}

Test(matmul, avx512)
{
	check_isa("avx512");
}

/* softmax(scores) v, of scores near and far from each other, and of any number and width. */
static void
check_weigh(const char *isa, uint32_t n, uint32_t dim, float range)
{
	uint32_t stride = dim + 5;
	float *scores = malloc(n * sizeof(float)), *v = malloc((size_t)n * stride * sizeof(float));
	double *weights = malloc(n * sizeof(double)), most = -INFINITY, sum = 0;
	float out[130];

	for (uint32_t i = 0; i < n; i++) {
		scores[i] = range * random_float();
		most = fmax(most, (double)scores[i]);
	}
	for (size_t i = 0; i < (size_t)n * stride; i++)
		v[i] = random_float();
	for (uint32_t i = 0; i < n; i++) {
		weights[i] = exp((double)scores[i] - most);
		sum += weights[i];
	}
	matmul_ops_find(isa)->softmax_v(scores, n, v, stride, dim, out);
	for (uint32_t d = 0; d < dim; d++) {
		double expected = 0;

		for (uint32_t i = 0; i < n; i++)
			expected += weights[i] / sum * (double)v[(size_t)i * stride + d];
		cr_assert_float_eq((double)out[d], expected, 2e-6, "%s: %u x %u, +-%g: %g is %g", isa, n, dim,
				   (double)range, (double)out[d], expected);
	}
	free(weights);
	free(v);
	free(scores);
}

Test(matmul, softmax_v)
{
	static const uint32_t ns[] = { 1, 3, 16, 17, 100, 999 }, dims[] = { 1, 10, 64, 80, 128, 130 };
	static const float ranges[] = { 0.1f, 4, 200 };

	for (size_t i = 0; i < N_ISAS; i++)
		for (size_t n = 0; n < 6 && matmul_ops_find(isas[i]) != NULL; n++)
			for (size_t d = 0; d < 6; d++)
				for (size_t r = 0; r < 3; r++)
					check_weigh(isas[i], ns[n], dims[d], ranges[r]);
}

Test(matmul, weights_expand_to_the_same_bits)
{
	for (size_t i = 0; i < N_SHAPES; i++) {
		struct matrix matrix = random_matrix(&shapes[i]);
		size_t size = sizeof(float) * matrix.n_columns;
		float *expected = malloc(size), *got = malloc(size);

		for (size_t j = 0; j < N_ISAS; j++)
			for (uint32_t r = 0; r < matrix.n_rows && matmul_ops_find(isas[j]) != NULL; r++) {
				matmul_dequantize_row(&matmul_ops_generic, &matrix, r, expected);
				matmul_dequantize_row(matmul_ops_find(isas[j]), &matrix, r, got);
				for (uint32_t c = 0; c < matrix.n_columns; c++)
					cr_assert(memcmp(&got[c], &expected[c], sizeof(float)) == 0 ||
							  (isnan(got[c]) && isnan(expected[c])),
						  "%s: %s: %g, %g expected", isas[j], gguf_type(matrix.type)->name,
						  (double)got[c], (double)expected[c]);
			}
		free((void *)matrix.data);
		free(expected);
		free(got);
	}
}

/* What each half is, by the format's definition. */
Test(matmul, halves)
{
	static uint16_t halves[0x10000];
	static float values[0x10000];
	struct matrix matrix = { (const uint8_t *)halves, GGUF_TYPE_F16, 1, 0x10000, sizeof(halves) };

	for (uint32_t half = 0; half < 0x10000; half++)
		halves[half] = (uint16_t)half;
	for (size_t i = 0; i < N_ISAS; i++) {
		if (matmul_ops_find(isas[i]) == NULL)
			continue;
		matmul_dequantize_row(matmul_ops_find(isas[i]), &matrix, 0, values);
		for (uint32_t half = 0; half < 0x10000; half++) {
			int exponent = half >> 10 & 31, fraction = half & 0x3ff;
			float expected = ldexpf((float)(exponent > 0 ? fraction + 0x400 : fraction),
						exponent > 0 ? exponent - 25 : -24);

			if (exponent == 31)
				expected = fraction == 0 ? INFINITY : NAN;
			expected = half >= 0x8000 ? -expected : expected;
			cr_assert(isnan(expected) ? isnan(values[half])
						  : memcmp(&values[half], &expected, sizeof(expected)) == 0,
				  "%s: %04x is %g, %g expected", isas[i], half, (double)values[half], (double)expected);
		}
	}
}
