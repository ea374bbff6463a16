/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_attention.h - PyTorch's class PagedAttention, implemented with pagedclient.h only
 *
 * torch.nn.attention.experimental._paged_attention has a page table with a row
 * for each of max_batch_size sequences.  Here each row is a sequence that
 * exists as long as the struct pa; the caches belong to the pool.  PyTorch's
 * six methods are pa_reserve, pa_erase, pa_assign,
 * pa_convert_logical_block_mask, pa_get_mask_mod and pa_get_score_mod;
 * pa_flex_attention takes their results.
 *
 * pa_open() fills the pool with NaN, as if earlier users had left NaN there.
 * done() and refused() of client_fixture.h use the client of the struct pa
 * opened last.
 */
#ifndef TESTS_PAGED_ATTENTION_H
#define TESTS_PAGED_ATTENTION_H

#include <stdbool.h>

#include "tests/support/client_fixture.h"

/** The most rows that a page table can have. */
#define PA_MAX_BATCH 32u

struct pa_params {
	uint32_t n_pages, page_size, max_batch;
	uint32_t n_layers; /* 0: 1; PyTorch has a pair of caches for each layer */
	uint32_t kv_heads; /* 0: 1 */
	uint32_t k_dim;    /* 0: 1 */
	uint32_t v_dim;    /* 0: as k_dim */
	bool v_in_k;
	enum paged_dtype dtype; /* 0: f32 */
};

struct pa {
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	struct paged_pool_info info;
	uint32_t max_batch;
	paged_seq_id page_table[PA_MAX_BATCH];
};

void pa_open(struct pa *pa, const struct pa_params *params);
void pa_close(struct pa *pa);

/** pa_reserve - reserve(b, seq_len) */
enum paged_status pa_reserve(struct pa *pa, uint32_t b, uint32_t seq_len);

/** pa_batch_reserve - batch_reserve() of PyTorch's tests: pa_reserve() of rows 0 .. n - 1 in order; must succeed */
void pa_batch_reserve(struct pa *pa, uint32_t n, const uint32_t *seq_len);

/** pa_erase - erase(batch_idx); sends one request */
enum paged_status pa_erase(struct pa *pa, uint32_t n, const uint32_t *batch_idx);

/** A tensor [B, H, S, D] of f32.  Strides count elements; all 0: dense. */
struct pa_tensor {
	const float *data;
	uint32_t n_heads, n_tokens, dim;
	int64_t batch_stride, head_stride, token_stride;
};

/**
 * pa_assign - assign(batch_idx, input_pos, k, v, k_cache, v_cache)
 *
 * @param[in] batch_idx  NULL: 0 .. n - 1
 * @param[in] input_pos  [n][n_tokens]
 * @param[in] v          NULL if the pool stores V in K (v_in_k)
 */
enum paged_status pa_assign(struct pa *pa, uint32_t layer, uint32_t n, const uint32_t *batch_idx,
			    const uint32_t *input_pos, const struct pa_tensor *k, const struct pa_tensor *v);

/** pa_fill - assign() of positions 0 .. n_tokens - 1 of rows 0 .. n - 1; must succeed */
void pa_fill(struct pa *pa, uint32_t layer, uint32_t n, const struct pa_tensor *k, const struct pa_tensor *v);

/** Rows of a batch: their indices in the page table, and their lengths. */
struct pa_rows {
	uint32_t n;
	const uint32_t *batch_idx; /* [n]; NULL: 0 .. n - 1 */
	const uint32_t *kv_len;    /* [n] tokens; NULL: all reserved tokens of the row */
	const uint32_t *q_len;     /* [n]; NULL: 1 each */
	const int64_t *q_base;     /* [n]; NULL: q_idx begins at 0, as in PyTorch */
};

/** A mask mod or a score mod, with the arrays that it captures. */
struct pa_mod {
	const struct paged_mod *mod; /* NULL: noop, identity */
	const struct paged_array *arrays;
	size_t n_arrays;
};

/** pa_convert_logical_block_mask - convert_logical_block_mask(block_mask, batch_idx, kv_len) */
enum paged_status pa_convert_logical_block_mask(struct pa *pa, const struct paged_block_mask *block_mask,
						const struct pa_rows *rows, struct paged_block_mask **converted_p);

/** The result of get_mask_mod() and get_score_mod(): the same mod, called with physical instead of logical kv_idx. */
struct pa_converted_mod {
	struct pa *pa;
	struct pa_mod mod;
	struct pa_rows rows;
};

struct pa_converted_mod pa_get_mask_mod(struct pa *pa, const struct pa_mod *mask_mod, const struct pa_rows *rows);
struct pa_converted_mod pa_get_score_mod(struct pa *pa, const struct pa_mod *score_mod, const struct pa_rows *rows);

/** pa_mask_at, pa_score_at - call a converted mod; false, -inf if physical_kv_idx is no live token of row b */
bool pa_mask_at(const struct pa_converted_mod *mod, uint32_t b, uint32_t h, int32_t q_idx, uint32_t physical_kv_idx);
double pa_score_at(const struct pa_converted_mod *mod, double score, uint32_t b, uint32_t h, int32_t q_idx,
		   uint32_t physical_kv_idx);

/** pa_logical - physical_to_logical of row b for one token; -1 if the row has no token there */
int64_t pa_logical(const struct pa *pa, uint32_t b, uint32_t physical);

/** Arguments of flex_attention().  Results are packed: [sum of q_len][q_heads]. */
struct pa_flex {
	uint32_t layer;
	const struct paged_mod *mask_mod, *score_mod;
	const struct paged_array *arrays; /* of both mods */
	size_t n_arrays;
	const struct paged_block_mask *block_mask;
	float scale;
	const float *sink;
	uint32_t q_heads;
	const float *q;                        /* [sum of q_len][q_heads][k_dim] */
	int64_t q_token_stride, q_head_stride; /* elements; 0: packed */
	float *out;                            /* [...][v_dim] */
	float *lse, *max_score;
};

/** pa_flex_attention - flex_attention() over the cache; PAGED_ERR_RANGE also if a mod read out of bounds */
enum paged_status pa_flex_attention(struct pa *pa, const struct pa_rows *rows, const struct pa_flex *flex);

/** pa_cached - one element of the cache: plane 'k' or 'v' of layer 0, at a physical token */
float pa_cached(const struct pa *pa, char plane, uint32_t head, uint32_t physical, uint32_t dim);

/** pa_pages - write at most n_max pages of a row to `pages`; returns how many pages the row has */
uint32_t pa_pages(const struct pa *pa, uint32_t b, uint32_t *pages, uint32_t n_max);
uint32_t pa_capacity(const struct pa *pa, uint32_t b);
uint32_t pa_n_free(const struct pa *pa);

/** pa_row_is - fails the test unless the row has exactly these pages in this order */
#define pa_row_is(pa, b, ...)                                                                             \
	do {                                                                                              \
		const uint32_t wanted_[] = { __VA_ARGS__ };                                               \
		uint32_t got_[64];                                                                        \
		cr_assert_eq(pa_pages(pa, b, got_, 64), sizeof(wanted_) / sizeof(*wanted_), "row %u", b); \
		cr_assert_arr_eq(got_, wanted_, sizeof(wanted_), "row %u", b);                            \
	} while (0)

#endif
