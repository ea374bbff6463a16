/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA attention with mods compiled into it, and with block masks, on the host. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/kernels/cuda/mods_check.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

static void
window_check(const char *kernel, const char *prefill, uint32_t tile_q_rows, enum paged_dtype dtype, uint32_t dim,
	     bool v_in_k)
{
	struct kernel_fixture_params params = mods_check_params();
	struct mod_array names[] = { { .name = "window", .dtype = MOD_I32 }, { .name = "cap", .dtype = MOD_F32 } };
	struct window_args args = { .cap = 1.5f };
	struct mod_fixture mask, score;

	params.pool = params.q = dtype;
	if (tile_q_rows != CUDA_TILE_Q_ROWS)
		params.weights = dtype;
	params.v_in_k = v_in_k;
	params.k_dim = params.v_dim = dim;
	for (args.window = 1; args.window < 1000; args.window *= 37) {
		names[0].data = &args.window;
		names[1].data = &args.cap;
		mask = mod_fixture_open(MOD_MASK, "kv_idx <= q_idx && q_idx - kv_idx < window", names, 2);
		score = mod_fixture_open(MOD_SCORE, "cap * tanh(score / cap)", names, 2);
		params.mods.mask = mask.binding;
		params.mods.score = score.binding;
		mods_check(&params,
			   (struct cuda_attention_options){ .kernel = kernel,
							    .prefill = prefill,
							    .max_tile_q_rows = tile_q_rows,
							    .mod = &args,
							    .mod_size = sizeof(args) },
			   kernel);
		mod_fixture_close(&mask);
		mod_fixture_close(&score);
	}
}

static void
documents_check(const char *kernel, enum paged_dtype dtype, uint32_t dim, uint32_t n_doc, uint32_t faults)
{
	static const float slope[MODS_CHECK_HEADS] = { 0, 0.01f, 0.02f, 0.03f };
	struct kernel_fixture_params params = mods_check_params();
	struct document_mods mods;

	params.pool = params.q = dtype;
	params.k_dim = params.v_dim = dim;
	document_mods_open(&mods, &params, n_doc, slope);
	mods_check(
		&params,
		(struct cuda_attention_options){ .kernel = kernel, .mod = &mods.args, .mod_size = sizeof(mods.args) },
		kernel);
	cr_assert_eq(mods.fault, faults);
	document_mods_close(&mods);
}

Test(cuda_mods, window_and_soft_cap)
{
	window_check("attention_simt_128_window", NULL, CUDA_TILE_Q_ROWS, PAGED_F16, 16, false);
	window_check("attention_mma_bf16_64_window", NULL, CUDA_MAX_TILE_Q_ROWS, PAGED_BF16, 24, false);
	window_check("attention_mma_bf16_64_window", "attention_prefill_bf16_64_window", CUDA_MAX_TILE_Q_ROWS,
		     PAGED_BF16, 24, false);
	window_check("attention_mma_bf16_64_window", "attention_wgmma_bf16_64_window", CUDA_MAX_TILE_Q_ROWS, PAGED_BF16,
		     24, false);
	window_check("attention_mma_f16_128_window", "attention_wgmma_f16_128_window", CUDA_MAX_TILE_Q_ROWS, PAGED_F16,
		     72, false);
	window_check("attention_bulk_bf16_64_window", NULL, CUDA_MAX_TILE_Q_ROWS, PAGED_BF16, 64, false);
	window_check("attention_mla_f16_window", NULL, CUDA_MAX_TILE_Q_ROWS, PAGED_F16, 32, true);
	window_check("attention_mla_wgmma_f16_window", NULL, CUDA_MAX_TILE_Q_ROWS, PAGED_F16, 32, true);
}

Test(cuda_mods, document_mask_and_alibi)
{
	documents_check("attention_simt_128_document", PAGED_F16, 16, MODS_CHECK_DOCS, 0);
}

Test(cuda_mods, reports_index_out_of_bounds)
{
	documents_check("attention_simt_128_document", PAGED_F32, 8, 528, CUDA_FAULT_INDEX);
}

/* Pages that are in no block of the mask may be unmapped. */
Test(cuda_mods, masked_pages_are_not_looked_up)
{
	struct block_mask_row row = { .q_base = 99, .q_len = 1, .kv_len = 100 };
	const struct block_mask_shape shape = {
		.n_rows = 1, .n_heads = 1, .q_block = 128, .kv_block = 16, .rows = &row
	};
	const uint32_t n_partial[] = { 2 }, partial[] = { 6, 1 }, n_full[] = { 0 };
	const struct block_mask_lists lists = { .n_blocks = { n_partial, n_full },
						.indices = { partial, NULL },
						.n_indices = { 2, 0 } };
	struct kernel_fixture_params params = mods_check_params();
	struct paged_error error = { 0 };
	struct block_mask *mask;
	struct kernel_fixture fixture;

	cr_assert_eq(block_mask_from_lists(&shape, &lists, 1, 0, &mask, &error), PAGED_OK, "%s", error.text);
	params.n_rows = 1;
	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_len = 1, .q_base = 99 };
	kernel_fixture_create(&fixture, &params);
	for (uint32_t i = 0; i < 7; i++)
		if (i != 1 && i != 6)
			((uint32_t *)(uintptr_t)fixture.rows[0].pages)[i] = UINT32_MAX;
	cuda_fixture_attend(&fixture, &(struct cuda_attention_options){
					      .kernel = "attention_simt_128", .blocks = mask, .seed = 2 });
	for (uint32_t h = 0; h < MODS_CHECK_HEADS; h++)
		cr_assert(isfinite(fixture.lse[h]));
	kernel_fixture_destroy(&fixture);
	block_mask_destroy(mask);
}

/*
 * A block mask's bitmap is of CUDA_MASK_BITMAP_TOKENS tokens, and is built again for the next ones.  If it hides all of
 * them, no tile that is copied or computed orders those who read it before those who build it, or, after the last one,
 * before those who store results to its memory.
 */
static void
hidden_bitmaps_check(const char *decode, const char *prefill, uint32_t n, uint32_t last)
{
	struct mod_array name = { .name = "last", .dtype = MOD_I32, .data = &last };
	struct mod_fixture mask = mod_fixture_open(MOD_MASK, "kv_idx < 64 || kv_idx >= last", &name, 1);
	struct kernel_fixture_params params = mods_check_params();
	struct block_mask *blocks;

	params.q = params.weights = params.pool;
	params.k_dim = params.v_dim = 64;
	params.v_in_k = strstr(decode, "_mla_") != NULL;
	params.mods.mask = mask.binding;
	params.n_rows = 2;
	params.rows[0] = (struct kernel_fixture_row){ .kv_len = n + 20, .q_len = 33, .q_base = n - 13 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = n + 20, .q_len = 1, .q_base = n + 19 };
	blocks = mods_check_blocks(&params, mask.binding, 1, 128, 32);
	for (uint64_t seed = 0; seed < 2; seed++) {
		struct kernel_fixture fixture;
		char what[256];

		kernel_fixture_create(&fixture, &params);
		cuda_fixture_attend(&fixture, &(struct cuda_attention_options){ .kernel = decode,
										.prefill = prefill,
										.max_tile_q_rows = CUDA_MAX_TILE_Q_ROWS,
										.target_work_items = 1,
										.n_blocks = 1,
										.seed = seed,
										.blocks = blocks });
		cr_assert(kernel_fixture_check(&fixture, what, sizeof(what)), "%s, %s, tokens from %u on: %s", decode,
			  prefill == NULL ? "" : prefill, last, what);
		kernel_fixture_destroy(&fixture);
	}
	block_mask_destroy(blocks);
	mod_fixture_close(&mask);
}

Test(cuda_mods, hidden_bitmaps)
{
	static const struct {
		const char *decode, *prefill;
	} kernels[] = { { "attention_mma_f16_64", "attention_prefill_f16_64" },
			{ "attention_mma_f16_64", "attention_wgmma_f16_64" },
			{ "attention_bulk_f16_64", NULL },
			{ "attention_mla_f16", NULL },
			{ "attention_mla_wgmma_f16", NULL } };
	const uint32_t n = 4 * CUDA_MASK_BITMAP_TOKENS;

	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		hidden_bitmaps_check(kernels[i].decode, kernels[i].prefill, n, n);
		hidden_bitmaps_check(kernels[i].decode, kernels[i].prefill, n, 2 * n);
	}
}

#define LISTED_BLOCK 4u
#define N_LISTED_BLOCKS 402u
#define N_LISTED_KEYS (N_LISTED_BLOCKS * LISTED_BLOCK)
/* Blocks of each list: more than a thread block has threads. */
#define N_LISTED (N_LISTED_BLOCKS / 3)

/* Two of three blocks are listed: one in the partial list, one in the full list. Lists ascend or descend. */
static struct block_mask *
listed_mask(bool ascending)
{
	struct block_mask_row row = { .q_base = N_LISTED_KEYS - 1, .q_len = 1, .kv_len = N_LISTED_KEYS };
	const struct block_mask_shape shape = {
		.n_rows = 1, .n_heads = 1, .q_block = 1, .kv_block = LISTED_BLOCK, .rows = &row
	};
	const uint32_t n = N_LISTED;
	uint32_t blocks[BLOCK_MASK_N_KINDS][N_LISTED];
	const struct block_mask_lists lists = { .n_blocks = { &n, &n },
						.indices = { blocks[0], blocks[1] },
						.n_indices = { N_LISTED, N_LISTED } };
	struct paged_error error = { 0 };
	struct block_mask *mask;

	for (uint32_t i = 0; i < N_LISTED; i++)
		for (uint32_t kind = 0; kind < BLOCK_MASK_N_KINDS; kind++)
			blocks[kind][i] = (ascending ? i : N_LISTED - 1 - i) * 3 + kind;
	cr_assert_eq(block_mask_from_lists(&shape, &lists, 1, 0, &mask, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(mask->ascending, ascending);
	return mask;
}

/* The blocks of a KV chunk are found by binary search in an ascending list, and by a scan of any other list. */
Test(cuda_mods, block_lists_in_any_order)
{
	static const char *const kernels[] = { "attention_simt_128", "attention_mma_f16_64", "attention_bulk_f16_64" };
	struct block_mask *mask[2] = { listed_mask(false), listed_mask(true) };

	for (unsigned int i = 0; i < 3; i++) {
		struct kernel_fixture_params params = mods_check_params();
		struct kernel_fixture fixture[2];

		params.pool = params.q = PAGED_F16;
		params.k_dim = params.v_dim = 64;
		params.q_heads = params.kv_heads = params.n_rows = 1;
		params.rows[0] =
			(struct kernel_fixture_row){ .kv_len = N_LISTED_KEYS, .q_len = 1, .q_base = N_LISTED_KEYS - 1 };
		for (unsigned int ascending = 0; ascending < 2; ascending++) {
			struct cuda_attention_options options = { .kernel = kernels[i],
								  .blocks = mask[ascending],
								  .seed = i };

			kernel_fixture_create(&fixture[ascending], &params);
			cuda_fixture_attend(&fixture[ascending], &options);
		}
		cr_assert(kernel_fixture_equal(&fixture[0], 0, &fixture[1], 0, 1), "%s", kernels[i]);
		cr_assert(isfinite(fixture[0].lse[0]));
		kernel_fixture_destroy(&fixture[0]);
		kernel_fixture_destroy(&fixture[1]);
	}
	block_mask_destroy(mask[0]);
	block_mask_destroy(mask[1]);
}
