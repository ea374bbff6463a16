/* SPDX-License-Identifier: Apache-2.0 */
/**
 * matmul.h - multiplies rows of activations by a quantised weight matrix of the file
 *
 * Weights stay quantised in the mapped file.  A thread dequantizes a few weight
 * rows at a time to f32, which stay in its core's cache, and multiplies them with
 * every activation row.  Activations are never rounded.
 *
 * Each output is accumulated in vector lanes over the columns, in order, and the
 * lanes are added in a fixed order.  A row of activations therefore gives the same
 * bits for any batch and any number of threads.  Instruction sets differ in the
 * number of lanes and therefore in the last bits.
 */
#ifndef LLAMA_MATMUL_H
#define LLAMA_MATMUL_H

#include <stddef.h>
#include <stdint.h>

#include "examples/llama/gguf.h"
#include "examples/llama/thread_pool.h"

/** Weight rows that are dequantized and multiplied together. */
#define MATMUL_ROWS 4u
/** Maximum number of activation rows that a kernel multiplies at a time. */
#define MATMUL_BATCH 4u

/** A matrix in the file: n_rows outputs of n_columns inputs each. */
struct matrix {
	const uint8_t *data;
	enum gguf_type type;
	uint32_t n_rows, n_columns;
	size_t row_bytes;
};

/** The kernels of one instruction set. */
struct matmul_ops {
	/** Indexed by gguf_type: dequantize n_columns weights, a multiple of the type's block size. */
	void (*dequantize[GGUF_TYPE_Q8_0 + 1])(const uint8_t *from, float *to, uint32_t n_columns);
	/** out[b * out_stride + r] = x[b] . w[r] for MATMUL_ROWS weight rows and n_batch <= MATMUL_BATCH. */
	void (*dot)(const float *w, size_t w_stride, const float *x, size_t x_stride, uint32_t n_batch,
		    uint32_t n_columns, float *out, size_t out_stride);
	/** out = softmax(scores) v, over n > 0 rows of dim values; overwrites scores. */
	void (*softmax_v)(float *scores, uint32_t n, const float *v, size_t v_stride, uint32_t dim, float *out);
};

extern const struct matmul_ops matmul_ops_generic, matmul_ops_avx2, matmul_ops_avx512;

/** matmul_ops_best - the best set that this CPU runs; PAGED_ISA (generic, avx2, avx512) overrides it if supported */
const struct matmul_ops *matmul_ops_best(void);

/** matmul_ops_find - find a set by name; NULL if this build or CPU does not have it */
const struct matmul_ops *matmul_ops_find(const char *name);

/** matmul_dequantize_row - convert one row of weights to f32 */
void matmul_dequantize_row(const struct matmul_ops *ops, const struct matrix *matrix, uint32_t row, float *to);

/** One product; products with the same x can be run as one job. */
struct product {
	const struct matrix *weights;
	float *out; /* [n_batch][weights->n_rows] */
};

/** Kernels, threads, and scratch memory of each thread. */
struct matmul {
	const struct matmul_ops *ops;
	struct thread_pool *thread_pool; /* borrowed */
	float *rows;                     /* [n_threads][MATMUL_ROWS][stride] */
	size_t stride;
};

/** matmul_create - allocate memory for products with weights of up to max_columns columns */
void matmul_create(struct matmul *matmul, const struct matmul_ops *ops, struct thread_pool *thread_pool,
		   uint32_t max_columns);
void matmul_destroy(struct matmul *matmul);

/**
 * matmul_run - out = x weights^T, for up to 3 products that share x
 *
 * @param[in] x  [n_batch][n_columns]; all weights have n_columns columns
 */
void matmul_run(const struct matmul *matmul, const struct product *products, uint32_t n_products, const float *x,
		uint32_t n_batch);

#endif
