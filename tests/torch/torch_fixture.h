/* SPDX-License-Identifier: Apache-2.0 */
/**
 * torch_fixture.h - fixtures of the tests ported from PyTorch: random q, k, v, and flex_attention in float64
 *
 * PyTorch allows 10 (f32) or 1.1 (f16, bf16) times the mean error of its
 * eager mode, and 0.2 where that is small; 5e-3 for single calls, 2e-2 for
 * the LSE.  Here every single result must be within
 *
 *     2^-24 (256 + 8 |largest score|)
 *
 * for LSE and largest score, and twice that times the largest value (1) for
 * outputs.  A score with a significant weight has about the magnitude of the
 * largest score and is rounded in f32 a few times; the 256 units cover sums,
 * exponentials and the slopes of mods.  For scores of magnitude 1 the tolerance
 * is 1.5e-5.
 */
#ifndef TESTS_TORCH_FIXTURE_H
#define TESTS_TORCH_FIXTURE_H

#include "kernels/kernels.h"
#include "tests/torch/paged_attention.h"

struct torch_shape {
	uint32_t batch, q_heads, kv_heads, q_len, kv_len, k_dim, v_dim;
	enum paged_dtype dtype; /* of the cache; 0: f32 */
	float amplitude;        /* of q and k; 0: 1.5 */
};

struct torch_inputs {
	struct torch_shape shape;
	float *q; /* [batch][q_len][q_heads][k_dim] */
	float *k; /* [batch][kv_heads][kv_len][k_dim], rounded to dtype */
	float *v; /* [batch][kv_heads][kv_len][v_dim] */
};

void torch_inputs_open(struct torch_inputs *inputs, const struct torch_shape *shape, uint64_t seed);
void torch_inputs_close(struct torch_inputs *inputs);
struct pa_tensor torch_inputs_k(const struct torch_inputs *inputs);
struct pa_tensor torch_inputs_v(const struct torch_inputs *inputs);

/** torch_inputs_fill - open a pool for these inputs, reserve as PyTorch's decode suite does, assign k and v */
void torch_inputs_fill(const struct torch_inputs *inputs, struct pa *pa, uint32_t page_size);

/** Texts of mods; NULL: no mod. */
struct torch_mods {
	const char *mask, *score;
	const struct paged_array *arrays;
	size_t n_arrays;
};

/** float64 results, computed for every q_step-th query row: [batch][q_len][q_heads]. */
struct torch_golden {
	uint32_t q_step;
	double *out; /* has a last dimension [v_dim] */
	double *lse, *max_score;
};

/** torch_golden_open - compute attention over the keys below kv_len[b] (NULL: all keys); q_idx begins at 0 */
void torch_golden_open(struct torch_golden *golden, const struct torch_inputs *inputs, const struct torch_mods *mods,
		       const uint32_t *kv_len, uint32_t q_step);
void torch_golden_close(struct torch_golden *golden);

struct torch_result {
	float *out, *lse, *max_score;
};

void torch_result_open(struct torch_result *result, const struct torch_inputs *inputs);
void torch_result_close(struct torch_result *result);
/** torch_result_check - results are within the tolerance of the float64 ones */
void torch_result_check(const struct torch_result *result, const struct torch_inputs *inputs,
			const struct torch_golden *golden, const char *what);
/** torch_result_expect_equal - two results are bit-identical */
void torch_result_expect_equal(const struct torch_result *a, const struct torch_result *b,
			       const struct torch_inputs *inputs, const char *what);

/**
 * torch_check_all_mask_forms - attention by mods alone, by logical and by physical
 * block mask is bit-identical and correct
 */
void torch_check_all_mask_forms(struct pa *pa, const struct torch_inputs *inputs, const struct torch_mods *mods,
				uint32_t kv_block, const struct torch_golden *golden);

/** torch_isa - select the instruction set of pools opened later; false: unsupported.  On cuda only the first is */
bool torch_isa(enum kernel_isa isa);

/** torch_isa_check - fails the test unless the pool uses this instruction set */
void torch_isa_check(const struct pa *pa, enum kernel_isa isa);

/** torch_parse - parse a text, which must be valid; NULL for NULL */
struct paged_mod *torch_parse(const struct pa *pa, enum paged_mod_kind kind, const char *text,
			      const struct torch_mods *mods);

#endif
