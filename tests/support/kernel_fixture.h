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

#define WORLD_MAX_ROWS 16u

struct world_row {
	uint32_t id;
	uint32_t kv_len;
	uint32_t q_len;
	int64_t q_base;
};

struct world_params {
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
	struct world_row rows[WORLD_MAX_ROWS];
};

struct world {
	struct world_params params;
	struct layout layout;
	uint8_t *pool;
	uint64_t total_q;
	struct kernel_row rows[WORLD_MAX_ROWS];
	struct kernel_tensor q, out;
	size_t out_bytes;
	float *lse, *maximum; /* [total_q][q_heads] */
};

#define WORLD_LAYERS 2u
#define WORLD_LAYER 1u

void world_create(struct world *world, const struct world_params *params);
void world_destroy(struct world *world);

/** world_key, world_value - an element of a sequence's K, V as the pool stores it, converted to f32 */
float world_key(const struct world *world, uint32_t id, uint32_t token, uint32_t head, uint32_t dim);
float world_value(const struct world *world, uint32_t id, uint32_t token, uint32_t head, uint32_t dim);

/** world_token - address in the pool of a token of the first row */
uint8_t *world_token(const struct world *world, unsigned int plane, uint32_t token, uint32_t head);

/** world_tensor - allocate a packed tensor filled with 0xff bytes; *bytes_p is its size */
struct kernel_tensor world_tensor(enum paged_dtype dtype, uint64_t n_tokens, uint32_t n_heads, uint32_t dim,
				  uint32_t padding, size_t *bytes_p);

/** world_element - one element of a tensor as f32 */
float world_element(const struct kernel_tensor *tensor, uint64_t token, uint32_t head, uint32_t dim);

/** world_attend - run kernel_attention; fills the outputs with 0xff bytes first */
void world_attend(struct world *world, struct kernel_team *team);

/** world_attend_with - like world_attend(), with mods that the caller owns */
void world_attend_with(struct world *world, struct kernel_team *team, struct kernel_mod_set *mods);

/** world_run - world_create() and world_attend() with a team of n_threads, which ends afterwards */
void world_run(struct world *world, const struct world_params *params, uint32_t n_threads, enum kernel_isa isa);

/** world_line_nan - whether all outputs of one head of a query row are NaN (nan), or none of them (!nan) */
bool world_line_nan(const struct world *world, uint64_t q_row, uint32_t head, bool nan);

/** world_same - whether all outputs of n query rows are bit-identical in two worlds */
bool world_same(const struct world *a, uint64_t a_row, const struct world *b, uint64_t b_row, uint64_t n);

/**
 * world_check - compare every output with the float64 reference
 *
 * @param[out] what  a sentence about the first output outside the tolerance
 */
bool world_check(const struct world *world, char *what, size_t size);

#endif
