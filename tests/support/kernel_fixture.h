/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kernel_fixture.h - a pool filled with NaN, sequences placed in it at random, and a batch over them
 *
 * The contents of a sequence depend only on (seed, id), not on batch, page
 * size or placement.  A page table has exactly the entries that cover kv_len,
 * so AddressSanitizer reports a kernel that reads past them.
 */
#ifndef PAGED_TESTS_KERNEL_FIXTURE_H
#define PAGED_TESTS_KERNEL_FIXTURE_H

#include "kernels/kernels.h"

#define KERNEL_FIXTURE_MAX_ROWS 16u

struct kernel_fixture_row {
	uint32_t id;
	uint32_t kv_len;
	uint32_t q_len;
	int64_t q_base;
	uint32_t kv_first; /* the pool has NaN in the tokens before it, and entries wholly before it are UINT32_MAX */
};

struct kernel_fixture_params {
	uint64_t seed;      /* of contents */
	uint64_t placement; /* seed of the pages' placement in the pool */
	uint32_t q_heads, kv_heads, k_dim, v_dim;
	bool v_in_k;
	enum paged_dtype pool, q, out;
	uint32_t page_size;
	uint32_t padding; /* elements between heads and between tokens of q and out */
	bool causal;
	float scale;
	const float *sink; /* [q_heads] or NULL */
	bool lse_without_sink;
	const float *k_scale, *v_scale; /* [kv_heads] for e4m3 and e5m2, or NULL; i8 has a scale per token */
	enum paged_dtype weights; /* dtype to which the kernel rounds weights before the product with V; 0: none */
	struct kernel_mod_set_params mods; /* `blocks` must be equivalent to `mask` */
	uint32_t n_rows;
	struct kernel_fixture_row rows[KERNEL_FIXTURE_MAX_ROWS];
};

struct kernel_fixture {
	struct kernel_fixture_params params;
	struct layout layout;
	uint8_t *pool;
	uint64_t total_q;
	struct kernel_row rows[KERNEL_FIXTURE_MAX_ROWS];
	struct kernel_tensor q, out;
	size_t out_bytes;
	float *lse, *max_score; /* [total_q][q_heads] */
};

#define KERNEL_FIXTURE_LAYERS 2u
#define KERNEL_FIXTURE_LAYER 1u

/** kernel_fixture_defaults - f32, 4 query heads on 2 KV heads of 32 dims, pages of 16 tokens, causal; n_rows is 1 */
struct kernel_fixture_params kernel_fixture_defaults(void);

void kernel_fixture_create(struct kernel_fixture *fixture, const struct kernel_fixture_params *params);
void kernel_fixture_destroy(struct kernel_fixture *fixture);

/** kernel_fixture_key, kernel_fixture_value - one element of K, V as the pool stores it, in f32 */
float kernel_fixture_key(const struct kernel_fixture *fixture, uint32_t id, uint32_t token, uint32_t head,
			 uint32_t dim);
float kernel_fixture_value(const struct kernel_fixture *fixture, uint32_t id, uint32_t token, uint32_t head,
			   uint32_t dim);

/** kernel_fixture_token - address in the pool of a token of the first row */
uint8_t *kernel_fixture_token(const struct kernel_fixture *fixture, unsigned int plane, uint32_t token, uint32_t head);

/** kernel_tensor_create - allocate a packed tensor filled with 0xff bytes; *bytes_p is its size */
struct kernel_tensor kernel_tensor_create(enum paged_dtype dtype, uint64_t n_tokens, uint32_t n_heads, uint32_t dim,
					  uint32_t padding, size_t *bytes_p);

/** kernel_tensor_element - one element of a tensor as f32 */
float kernel_tensor_element(const struct kernel_tensor *tensor, uint64_t token, uint32_t head, uint32_t dim);

/** Returns the exponent of one element of the queries. */
typedef int (*kernel_fixture_exponent_fn)(const void *argument, uint64_t query, uint32_t head, uint32_t dim);

/** kernel_fixture_scale_queries - multiply each element of the queries by 2^exponent(argument, query, head, dim) */
void kernel_fixture_scale_queries(const struct kernel_fixture *fixture, kernel_fixture_exponent_fn exponent,
				  const void *argument);

/** kernel_fixture_attend - fill the outputs with 0xff bytes and run kernel_attention() */
void kernel_fixture_attend(struct kernel_fixture *fixture, struct kernel_team *team);

/** kernel_fixture_attend_with_mods - like kernel_fixture_attend(), with mods that the caller owns */
void kernel_fixture_attend_with_mods(struct kernel_fixture *fixture, struct kernel_team *team,
				     struct kernel_mod_set *mods);

/**
 * kernel_fixture_run - kernel_fixture_create() and kernel_fixture_attend() with
 * a team of n_threads, which ends afterwards
 */
void kernel_fixture_run(struct kernel_fixture *fixture, const struct kernel_fixture_params *params, uint32_t n_threads,
			enum kernel_isa isa);

/**
 * kernel_fixture_block_mask - create the block mask of a bound mask mod over the rows; a failure fails the test
 *
 * In rows of odd index the mask begins at key 0, even if the row's kv_first is greater.
 *
 * @param[in] isa  the instruction set that evaluates the mod
 * @return free with block_mask_destroy()
 */
struct block_mask *kernel_fixture_block_mask(const struct kernel_fixture_params *params, const struct mod_binding *mask,
					     enum kernel_isa isa, uint32_t n_heads, uint32_t q_block,
					     uint32_t kv_block);

/** kernel_fixture_all_nan - whether the outputs, LSE and max_score of a q_row are all NaN (nan) or all not (!nan) */
bool kernel_fixture_all_nan(const struct kernel_fixture *fixture, uint64_t q_row, uint32_t head, bool nan);

/** kernel_fixture_equal - whether all outputs of n query rows are bit-identical in two fixtures */
bool kernel_fixture_equal(const struct kernel_fixture *a, uint64_t a_row, const struct kernel_fixture *b,
			  uint64_t b_row, uint64_t n);

/**
 * kernel_fixture_check - compare every output with the float64 reference
 *
 * @param[out] what  a sentence about the first output outside the tolerance
 */
bool kernel_fixture_check(const struct kernel_fixture *fixture, char *what, size_t size);

#endif
