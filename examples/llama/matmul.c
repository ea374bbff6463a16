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

#define MAX_PRODUCTS 3u
/* Weight rows in one part of a job: small enough to share out, large enough to be worth it. */
#define PART_ROWS 32u

struct job {
	const struct matmul_ops *ops;
	const struct matmul_scratch *scratch;
	const struct matmul *products;
	uint32_t first_part[MAX_PRODUCTS + 1];
	uint32_t n_products;
	const float *x;
	size_t x_stride;
	uint32_t n_batch;
};

#ifdef PAGED_X86_64
/* clang 14's __builtin_cpu_supports() does not know "f16c". */
static bool
cpu_has_f16c(void)
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
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c()
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

bool
matmul_scratch_create(struct matmul_scratch *scratch, uint32_t n_threads, uint32_t max_columns, struct error *error)
{
	size_t row_bytes = ((size_t)max_columns * sizeof(float) + 63) & ~(size_t)63;

	scratch->stride = row_bytes / sizeof(float);
	scratch->rows = aligned_alloc(64, n_threads * MATMUL_ROWS * row_bytes);
	if (scratch->rows == NULL)
		return error_set(error, "no memory for %u rows of %u weights", n_threads * MATMUL_ROWS, max_columns);
	memset(scratch->rows, 0, n_threads * MATMUL_ROWS * row_bytes);
	return true;
}

void
matmul_scratch_destroy(struct matmul_scratch *scratch)
{
	free(scratch->rows);
	scratch->rows = NULL;
}

void
matmul_expand_row(const struct matmul_ops *ops, const struct matrix *matrix, uint32_t row, float *to)
{
	const uint8_t *from = matrix->data + row * matrix->row_bytes;

	switch (matrix->type) {
	case GGUF_TYPE_F32:
		memcpy(to, from, matrix->row_bytes);
		break;
	case GGUF_TYPE_F16:
		ops->expand_f16(from, to, matrix->n_columns);
		break;
	case GGUF_TYPE_Q8_0:
		ops->expand_q8_0(from, to, matrix->n_columns);
		break;
	case GGUF_TYPE_Q4_0:
		ops->expand_q4_0(from, to, matrix->n_columns);
		break;
	case GGUF_TYPE_Q4_1:
		ops->expand_q4_1(from, to, matrix->n_columns);
		break;
	}
}

/* A tile of up to MATMUL_ROWS weight rows from `row`, for the whole batch. */
static void
run_tile(const struct job *job, const struct matmul *product, uint32_t row, float *rows)
{
	const struct matrix *weights = product->weights;
	uint32_t n_rows = weights->n_rows - row < MATMUL_ROWS ? weights->n_rows - row : MATMUL_ROWS;
	float partial[MATMUL_BATCH * MATMUL_ROWS];

	for (uint32_t r = 0; r < n_rows; r++)
		matmul_expand_row(job->ops, weights, row + r, rows + r * job->scratch->stride);
	for (uint32_t b = 0; b < job->n_batch; b += MATMUL_BATCH) {
		uint32_t n_batch = job->n_batch - b < MATMUL_BATCH ? job->n_batch - b : MATMUL_BATCH;
		float *out = product->out + b * product->out_stride + row;
		bool whole = n_rows == MATMUL_ROWS;

		/* The last tile may be short: the kernel still computes whole tiles, on stale rows. */
		job->ops->dot(rows, job->scratch->stride, job->x + b * job->x_stride, job->x_stride, n_batch,
			      weights->n_columns, whole ? out : partial, whole ? product->out_stride : MATMUL_ROWS);
		for (uint32_t i = 0; i < n_batch && !whole; i++)
			memcpy(out + i * product->out_stride, partial + i * MATMUL_ROWS, n_rows * sizeof(float));
	}
}

static void
run_part(void *argument, uint32_t part, uint32_t thread)
{
	const struct job *job = argument;
	float *rows = job->scratch->rows + thread * MATMUL_ROWS * job->scratch->stride;
	const struct matmul *product;
	uint32_t i = 0, row, end;

	while (part >= job->first_part[i + 1])
		i++;
	product = &job->products[i];
	row = (part - job->first_part[i]) * PART_ROWS;
	end = product->weights->n_rows - row < PART_ROWS ? product->weights->n_rows : row + PART_ROWS;
	for (; row < end; row += MATMUL_ROWS)
		run_tile(job, product, row, rows);
}

void
matmul_run(const struct matmul_ops *ops, struct team *team, struct matmul_scratch *scratch,
	   const struct matmul *products, uint32_t n_products, const float *x, size_t x_stride, uint32_t n_batch)
{
	struct job job = { .ops = ops,
			   .scratch = scratch,
			   .products = products,
			   .n_products = n_products,
			   .x = x,
			   .x_stride = x_stride,
			   .n_batch = n_batch };

	assert(n_products <= MAX_PRODUCTS);
	for (uint32_t i = 0; i < n_products; i++) {
		assert(products[i].weights->n_columns <= scratch->stride);
		job.first_part[i + 1] = job.first_part[i] + (products[i].weights->n_rows + PART_ROWS - 1) / PART_ROWS;
	}
	team_run(team, job.first_part[n_products], run_part, &job);
}
