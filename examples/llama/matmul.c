/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/matmul.h"

#include "config.h"

#include <assert.h>
#ifdef PAGED_X86_64
#include <cpuid.h>
#endif
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/die.h"

#define MAX_PRODUCTS 3u
/* Weight rows in one part of a job: few enough to balance the threads, enough to outweigh the cost of taking a part. */
#define PART_ROWS 32u

struct matmul_job {
	const struct matmul *matmul;
	const struct product *products;
	uint32_t first_part[MAX_PRODUCTS + 1];
	const float *x;
	uint32_t n_batch;
};

#ifdef PAGED_X86_64
/* clang 14's __builtin_cpu_supports() does not know "f16c". */
static bool
matmul_cpu_has_f16c(void)
{
	unsigned int eax, ebx, ecx, edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

const struct matmul_ops *
matmul_ops_find(const char *name)
{
#ifdef PAGED_X86_64
	if (strcmp(name, "avx512") == 0)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") ? &matmul_ops_avx512
											       : NULL;
	if (strcmp(name, "avx2") == 0)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && matmul_cpu_has_f16c()
			       ? &matmul_ops_avx2
			       : NULL;
#endif
	return strcmp(name, "generic") == 0 ? &matmul_ops_generic : NULL;
}

const struct matmul_ops *
matmul_ops_best(void)
{
	static const char *const names[] = { "avx512", "avx2" };
	const char *forced = getenv("PAGED_ISA");
	const struct matmul_ops *ops = forced != NULL ? matmul_ops_find(forced) : NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && ops == NULL; i++)
		ops = matmul_ops_find(names[i]);
	return ops != NULL ? ops : &matmul_ops_generic;
}

void
matmul_create(struct matmul *matmul, const struct matmul_ops *ops, struct thread_pool *thread_pool,
	      uint32_t max_columns)
{
	size_t row_bytes = ((size_t)max_columns * sizeof(float) + 63) & ~(size_t)63;
	size_t size = thread_pool_n_threads(thread_pool) * MATMUL_ROWS * row_bytes;

	*matmul = (struct matmul){ ops, thread_pool, aligned_alloc(64, size), row_bytes / sizeof(float) };
	if (matmul->rows == NULL)
		die("no memory for %zu bytes of weights", size);
	memset(matmul->rows, 0, size);
}

void
matmul_destroy(struct matmul *matmul)
{
	free(matmul->rows);
}

void
matmul_dequantize_row(const struct matmul_ops *ops, const struct matrix *matrix, uint32_t row, float *to)
{
	ops->dequantize[matrix->type](matrix->data + row * matrix->row_bytes, to, matrix->n_columns);
}

/* Multiply up to MATMUL_ROWS weight rows, from `row` on, with the whole batch. */
static void
matmul_run_tile(const struct matmul_job *job, const struct product *product, uint32_t row, float *rows)
{
	const struct matrix *weights = product->weights;
	const struct matmul *matmul = job->matmul;
	uint32_t n_rows = weights->n_rows - row < MATMUL_ROWS ? weights->n_rows - row : MATMUL_ROWS;
	bool whole = n_rows == MATMUL_ROWS;
	float partial[MATMUL_BATCH * MATMUL_ROWS];

	for (uint32_t r = 0; r < n_rows; r++)
		matmul_dequantize_row(matmul->ops, weights, row + r, rows + r * matmul->stride);
	for (uint32_t b = 0; b < job->n_batch; b += MATMUL_BATCH) {
		uint32_t n_batch = job->n_batch - b < MATMUL_BATCH ? job->n_batch - b : MATMUL_BATCH;
		float *out = product->out + (size_t)b * weights->n_rows + row;

		/*
		 * The last tile may have fewer rows: the kernel still computes MATMUL_ROWS of them, with stale
		 * weights, into `partial`.
		 */
		matmul->ops->dot(rows, matmul->stride, job->x + (size_t)b * weights->n_columns, weights->n_columns,
				 n_batch, weights->n_columns, whole ? out : partial,
				 whole ? weights->n_rows : MATMUL_ROWS);
		for (uint32_t i = 0; i < n_batch && !whole; i++)
			memcpy(out + (size_t)i * weights->n_rows, partial + i * MATMUL_ROWS, n_rows * sizeof(float));
	}
}

static void
matmul_run_part(void *argument, uint32_t part, uint32_t thread)
{
	const struct matmul_job *job = argument;
	float *rows = job->matmul->rows + thread * MATMUL_ROWS * job->matmul->stride;
	const struct product *product;
	uint32_t i = 0, row, end;

	while (part >= job->first_part[i + 1])
		i++;
	product = &job->products[i];
	row = (part - job->first_part[i]) * PART_ROWS;
	end = product->weights->n_rows - row < PART_ROWS ? product->weights->n_rows : row + PART_ROWS;
	for (; row < end; row += MATMUL_ROWS)
		matmul_run_tile(job, product, row, rows);
}

void
matmul_run(const struct matmul *matmul, const struct product *products, uint32_t n_products, const float *x,
	   uint32_t n_batch)
{
	struct matmul_job job = { .matmul = matmul, .products = products, .x = x, .n_batch = n_batch };

	assert(n_products <= MAX_PRODUCTS);
	for (uint32_t i = 0; i < n_products; i++) {
		assert(products[i].weights->n_columns <= matmul->stride);
		job.first_part[i + 1] = job.first_part[i] + (products[i].weights->n_rows + PART_ROWS - 1) / PART_ROWS;
	}
	thread_pool_run(matmul->thread_pool, job.first_part[n_products], matmul_run_part, &job);
}
