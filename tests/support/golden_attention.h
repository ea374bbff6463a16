/* SPDX-License-Identifier: Apache-2.0 */
/**
 * golden_attention.h - reads golden/attention/ *.case and the .out file of the same name
 *
 * Format: golden/README.md.
 */
#ifndef PAGED_TESTS_GOLDEN_ATTENTION_H
#define PAGED_TESTS_GOLDEN_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/paged_types.h"

#define GOLDEN_MAX_SEQUENCES 8u
#define GOLDEN_MAX_NAMES 8u

struct golden_sequence {
	uint32_t kv_len, q_len;
	int64_t q_base;
	uint32_t n_pages;
	uint32_t *pages; /* as PyTorch's allocator assigned them */
};

struct golden_reserve {
	uint32_t sequence;
	uint32_t tokens;
};

/** A parameter (no dims; its value is element 0) or a captured array. */
struct golden_array {
	char name[32];
	bool is_param, is_float;
	uint32_t n_dims, dims[4], n;
	int32_t *i32; /* either i32 or f32 is used, as is_float says */
	float *f32;
};

/** q, k or v: row-major [n_sequences][heads][max_tokens][dim]; contents are random_float(seed, i, amplitude). */
struct golden_tensor {
	uint32_t heads, max_tokens, dim;
	uint64_t seed;
	float amplitude;
};

struct golden_attention {
	enum paged_dtype dtype;
	uint32_t q_heads, kv_heads, k_dim, v_dim, page_size, n_pages;
	double scale;
	bool v_in_k;
	char *mask, *score; /* text; NULL: none */
	float *sink;        /* [q_heads], or NULL */
	uint32_t n_sequences, n_reserves, n_arrays;
	struct golden_sequence sequences[GOLDEN_MAX_SEQUENCES];
	struct golden_reserve *reserves;
	struct golden_array arrays[GOLDEN_MAX_NAMES];
	struct golden_tensor q, k, v;

	/* Expected results: [n_sequences][q_heads][q.max_tokens]; out has a last dimension [v_dim]. */
	float *out, *lse, *max_score;
};

/**
 * golden_attention_open - read a case and its results
 *
 * @param[in] path  ends in ".case"
 * @retval false  the file is unreadable or has a line that is not in the format; `what` says which
 */
bool golden_attention_open(struct golden_attention *golden, const char *path, char *what, size_t size);
void golden_attention_close(struct golden_attention *golden);

/** golden_attention_array - find an array by name; NULL if there is none */
const struct golden_array *golden_attention_array(const struct golden_attention *golden, const char *name);

/** golden_tensor_element - one element as f32, before rounding to the case's dtype */
float golden_tensor_element(const struct golden_tensor *tensor, uint32_t sequence, uint32_t head, uint32_t token,
			    uint32_t dim);

#endif
