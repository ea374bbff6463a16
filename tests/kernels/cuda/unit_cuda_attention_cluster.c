/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_mla_cluster_* on the host, against the float64 reference.  Each case has its own order of clusters and
 * threads.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/host/choose_kernel.h"
#include "tests/kernels/cuda/mla_check.h"
#include "tests/kernels/cuda/mods_check.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t next_seed;

static struct kernel_fixture_params
defaults(void)
{
	return mla_defaults(CUDA_CLUSTER_Q_ROWS);
}

static struct cuda_attention_options
cluster_options(const struct kernel_fixture_params *params)
{
	struct cuda_attention_options options = { .kernel = params->pool == PAGED_BF16 ? "attention_mla_cluster_bf16"
										       : "attention_mla_cluster_f16",
						  .max_tile_q_rows = CUDA_MAX_TILE_Q_ROWS,
						  .n_blocks = 2 + (uint32_t)(next_seed % 3) * 2,
						  .seed = next_seed };

	next_seed++;
	return options;
}

static void
cluster_check(const struct kernel_fixture_params *params)
{
	struct cuda_attention_options options = cluster_options(params);

	cuda_fixture_check(params, &options);
}

static struct kernel_fixture_row
decode_row(uint32_t id, uint32_t kv_len, uint32_t q_len)
{
	return (struct kernel_fixture_row){
		.id = id, .kv_len = kv_len, .q_len = q_len, .q_base = (int64_t)kv_len - q_len
	};
}

/* Pools and queries that the kernel supports, and others. */
Test(cuda_attention_cluster, kernel_choice)
{
	static const struct {
		uint32_t page_size, max_shared;
		bool v_in_k, chosen;
	} cases[] = { { 8, 227 << 10, true, true },   { 16, 227 << 10, true, true },  { 64, 227 << 10, true, true },
		      { 192, 227 << 10, true, true }, { 4, 227 << 10, true, false },  { 1, 227 << 10, true, false },
		      { 24, 227 << 10, true, false }, { 96, 227 << 10, true, false }, { 16, 226 << 10, true, false },
		      { 16, 227 << 10, false, false } };

	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct layout_params pool = { .k_dim = cases[i].v_in_k ? 576 : 128,
						    .v_dim = cases[i].v_in_k ? 512 : 128,
						    .page_size = cases[i].page_size,
						    .v_in_k = cases[i].v_in_k,
						    .dtype = PAGED_F16 };
		struct cuda_choice choices[CUDA_N_PARTS];
		struct paged_error error;

		cr_assert_eq(cuda_choose(&pool, PAGED_F16, cases[i].max_shared, choices, &error), PAGED_OK);
		cuda_choose_clusters(&pool, PAGED_F16, choices);
		cr_expect_null(choices[CUDA_CLUSTER].kernel, "case %zu: without wgmma", i);
		cuda_choose_wgmma(&pool, PAGED_F16, cases[i].max_shared, choices);
		cr_expect_null(choices[CUDA_CLUSTER].kernel);
		cuda_choose_clusters(&pool, PAGED_F16, choices);
		cr_expect_eq(choices[CUDA_CLUSTER].kernel != NULL, cases[i].chosen, "case %zu", i);
		cr_expect_eq(cuda_uses_clusters(choices, 128), cases[i].chosen);
		cr_expect_eq(cuda_uses_clusters(choices, 384), cases[i].chosen);
		cr_expect(!cuda_uses_clusters(choices, 0) && !cuda_uses_clusters(choices, 64) &&
			  !cuda_uses_clusters(choices, 192));
		cr_expect_eq(cuda_wide_kv_chunk_factor(choices, 256), cases[i].chosen   ? CUDA_CLUSTER_KV_CHUNK_FACTOR
								      : cases[i].v_in_k ? CUDA_WIDE_KV_CHUNK_FACTOR
											: 0);
		cr_expect_eq(cuda_wide_kv_chunk_factor(choices, 16), cases[i].v_in_k ? CUDA_WIDE_KV_CHUNK_FACTOR : 0);
	}
}

/* The shape of the model: ragged lengths, one to three queries. */
Test(cuda_attention_cluster, decode_of_576_and_512)
{
	struct kernel_fixture_params params = defaults();

	params.k_dim = 576;
	params.v_dim = 512;
	params.scale = 1 / sqrtf(576);
	params.n_rows = 3;
	for (int f16 = 0; f16 < 2; f16++) {
		params.page_size = f16 ? 64 : 16;
		mla_pool_dtype(&params, f16 ? PAGED_F16 : PAGED_BF16);
		params.rows[0] = decode_row(0, 250, 1);
		params.rows[1] = decode_row(1, 65, 2);
		params.rows[2] = decode_row(2, 31, 1);
		cluster_check(&params);
	}
}

/* Pages of all sizes that the kernel supports; lengths around the ends of pages and tiles. */
Test(cuda_attention_cluster, page_sizes_and_lengths)
{
	static const uint32_t page_sizes[] = { 8, 16, 32, 64, 128, 192 };
	static const uint32_t lengths[] = { 0, 1, 8, 9, 63, 64, 65, 127, 128, 129, 193, 257 };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 4;
	for (size_t p = 0; p < COUNT(page_sizes); p++) {
		params.page_size = page_sizes[p];
		mla_pool_dtype(&params, p % 2 ? PAGED_F16 : PAGED_BF16);
		for (uint32_t r = 0; r < params.n_rows; r++)
			params.rows[r] = decode_row(r, lengths[r * 3 + p % 3], 1);
		cluster_check(&params);
	}
}

/* Rows whose first tokens are hidden: in the middle of a page, of a tile, of a KV chunk. */
Test(cuda_attention_cluster, hidden_first_tokens)
{
	static const uint32_t firsts[] = { 1, 15, 64, 70, 129, 298 };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 2;
	for (size_t i = 0; i < COUNT(firsts); i++) {
		params.page_size = i % 3 == 0 ? 8 : i % 3 == 1 ? 32 : 128;
		for (uint32_t r = 0; r < params.n_rows; r++) {
			params.rows[r] = decode_row(r, 300 + r * 37, 1);
			params.rows[r].kv_first = firsts[i];
		}
		cluster_check(&params);
	}
}

/* Several KV heads; more heads than a cluster has q_rows; dims that end anywhere in a box; padded outputs. */
Test(cuda_attention_cluster, dims_heads_and_strides)
{
	static const struct {
		uint32_t k, v, q_heads, kv_heads;
	} dims[] = { { 16, 16, 128, 1 },   { 32, 16, 256, 2 },   { 144, 128, 256, 1 },
		     { 320, 256, 384, 1 }, { 528, 512, 384, 3 }, { 272, 144, 512, 2 } };
	static const enum paged_dtype outs[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 2;
	for (size_t i = 0; i < COUNT(dims); i++) {
		params.rows[0] = decode_row(0, 70, 1);
		params.rows[1] = decode_row(1, 140, 2);
		params.k_dim = dims[i].k;
		params.v_dim = dims[i].v;
		params.q_heads = dims[i].q_heads;
		params.kv_heads = dims[i].kv_heads;
		params.out = outs[i % 3];
		params.padding = (uint32_t)i % 4;
		params.scale = 1 / sqrtf((float)dims[i].k);
		mla_pool_dtype(&params, i % 2 ? PAGED_F16 : PAGED_BF16);
		cluster_check(&params);
	}
}

/* Items of many tiles, of an even and of an odd number; several for each cluster; causal rows of several queries. */
Test(cuda_attention_cluster, items_of_many_tiles)
{
	struct kernel_fixture_params params = defaults();

	params.n_rows = 3;
	for (uint32_t i = 0; i < 3; i++) {
		struct cuda_attention_options options;

		for (uint32_t r = 0; r < params.n_rows; r++)
			params.rows[r] = decode_row(r, 190 + (201 + 64 * (i % 2)) * r, 1 + (r + i) % 2);
		params.causal = i % 3 != 2;
		options = cluster_options(&params);
		options.target_work_items = 1 + i % 3;
		options.n_blocks = 2 + i % 2 * 2;
		cuda_fixture_check(&params, &options);
	}
}

/* Large scores: a few keys have all the weight, and the running maximum grows late. */
Test(cuda_attention_cluster, row_max_grows_late)
{
	struct kernel_fixture_params params = defaults();

	params.scale = 4;
	params.rows[0] = decode_row(0, 700, 1);
	mla_pool_dtype(&params, PAGED_F16);
	cluster_check(&params);
}

Test(cuda_attention_cluster, query_positions_and_sinks)
{
	static const int64_t bases[] = { -1000000, -5, -1, 0, 1, 99, 100, INT64_C(1) << 40 };
	static float sinks[CUDA_CLUSTER_Q_ROWS];
	struct kernel_fixture_params params = defaults();

	for (uint32_t h = 0; h < COUNT(sinks); h++)
		sinks[h] = h % 4 == 3 ? -INFINITY : 45.0f * (float)(h % 4) - 45.0f;
	params.n_rows = 3;
	params.sink = sinks;
	for (size_t i = 0; i < COUNT(bases); i++) {
		params.lse_without_sink = i % 2;
		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 100, .q_len = 3, .q_base = bases[i] };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 30, .q_len = 0, .q_base = bases[i] };
		params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 0, .q_len = 2, .q_base = bases[i] };
		cluster_check(&params);
	}
}

Test(cuda_attention_cluster, nan_query_affects_its_q_row_only)
{
	struct kernel_fixture_params params = defaults();

	for (uint32_t head = 7; head < CUDA_CLUSTER_Q_ROWS; head += 71) {
		struct cuda_attention_options options = cluster_options(&params);
		struct kernel_fixture fixture;

		params.rows[0] = decode_row(0, 300, 2);
		kernel_fixture_create(&fixture, &params);
		reference_store((uint8_t *)fixture.q.data + fixture.q.token_stride + head * fixture.q.head_stride,
				params.q, 3, NAN);
		cuda_fixture_attend(&fixture, &options);
		for (uint32_t q = 0; q < 2; q++)
			for (uint32_t h = 0; h < params.q_heads; h++)
				cr_assert(kernel_fixture_all_nan(&fixture, q, h, q == 1 && h == head));
		kernel_fixture_destroy(&fixture);
	}
}

/*
 * Tokens past a query's causal limit may contain NaN in K, which is V too.  dim: the element with NaN, of values of
 * either group.  The token is in a first or in a second tile of a pair, or in one alone.
 */
Test(cuda_attention_cluster, masked_nan_tokens_have_no_effect)
{
	static const struct {
		uint32_t kv_len, token, dim;
	} cases[] = { { 100, 98, 0 },   { 100, 99, 130 },  { 60, 58, 271 },   { 130, 127, 400 },
		      { 130, 129, 15 }, { 190, 188, 300 }, { 200, 199, 511 }, { 330, 328, 140 } };
	struct kernel_fixture_params params = defaults();

	params.k_dim = 528;
	params.v_dim = 512;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct cuda_attention_options options = cluster_options(&params);

		params.rows[0] = decode_row(0, cases[i].kv_len, 3);
		options.n_blocks = 2;
		mla_masked_nan_check(&params, cases[i].token, cases[i].dim, &options);
	}
}

/* -inf in K, which is V too: weight 0, and the value is ignored. */
Test(cuda_attention_cluster, score_of_minus_infinity_has_zero_weight)
{
	static const uint32_t spans[][2] = { { 3, 4 }, { 0, 64 }, { 0, 128 }, { 64, 300 }, { 0, 300 } };
	struct kernel_fixture_params params = defaults();

	for (size_t i = 0; i < COUNT(spans); i++) {
		struct cuda_attention_options options = cluster_options(&params);

		mla_minus_infinity_check(&params, spans[i][0], spans[i][1], &options);
	}
}

/* The bits of a row do not depend on the order of clusters, the grid, the placement of pages, or the batch. */
Test(cuda_attention_cluster, batch_invariance)
{
	struct kernel_fixture_params params = defaults();
	struct cuda_attention_options options = cluster_options(&params);
	struct kernel_fixture all, other;

	params.n_rows = 3;
	for (uint32_t r = 0; r < params.n_rows; r++)
		params.rows[r] = decode_row(r, 150 + 220 * r, 1);
	kernel_fixture_create(&all, &params);
	cuda_fixture_attend(&all, &options);
	for (uint32_t i = 0; i < 7; i++) {
		struct kernel_fixture_params changed = params;
		uint32_t r = i % 4;

		if (i < 4) {
			changed.placement = options.seed = i;
			changed.page_size = 8u << i;
			options.n_blocks = 2 + i * 4;
		} else {
			r = i - 4;
			changed.n_rows = 1;
			changed.rows[0] = params.rows[r];
		}
		kernel_fixture_create(&other, &changed);
		cuda_fixture_attend(&other, &options);
		cr_assert(kernel_fixture_equal(&all, i < 4 ? 0 : all.rows[r].q_start, &other, 0, other.total_q),
			  "case %u", i);
		kernel_fixture_destroy(&other);
	}
	kernel_fixture_destroy(&all);
}

/* Mods: a sliding window that hides most tokens, or few, and a score mod. */
Test(cuda_attention_cluster, window_and_soft_cap)
{
	struct kernel_fixture_params params = mods_check_params();
	struct mod_array names[] = { { .name = "window", .dtype = MOD_I32 }, { .name = "cap", .dtype = MOD_F32 } };
	struct window_args args = { .cap = 1.5f };

	params.q_heads = CUDA_CLUSTER_Q_ROWS;
	params.kv_heads = 1;
	params.v_in_k = true;
	params.k_dim = params.v_dim = 32;
	params.rows[1].q_len = 3;
	params.rows[2].q_len = 2;
	mla_pool_dtype(&params, PAGED_F16);
	for (args.window = 1; args.window < 1000; args.window *= 37) {
		struct cuda_attention_options options = cluster_options(&params);
		struct mod_fixture mask, score;

		names[0].data = &args.window;
		names[1].data = &args.cap;
		mask = mod_fixture_open(MOD_MASK, "kv_idx <= q_idx && q_idx - kv_idx < window", names, 2);
		score = mod_fixture_open(MOD_SCORE, "cap * tanh(score / cap)", names, 2);
		params.mods.mask = mask.binding;
		params.mods.score = score.binding;
		options.kernel = "attention_mla_cluster_f16_window";
		options.mod = &args;
		options.mod_size = sizeof(args);
		cuda_fixture_check(&params, &options);
		mod_fixture_close(&mask);
		mod_fixture_close(&score);
	}
}

/* Clusters find the rows of their pairs of items among many, some of which have none. */
Test(cuda_attention_cluster, many_rows)
{
	static const uint32_t n_rows[] = { 2, 9, 67 };
	struct kernel_fixture_params params = defaults();

	for (size_t i = 0; i < COUNT(n_rows); i++) {
		struct cuda_attention_options options = cluster_options(&params);

		params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_base = 30 };
		mla_many_rows_check(&params, n_rows[i], &options);
	}
}

/* An unmapped page table entry below kv_len is reported, and no address is computed from it. */
Test(cuda_attention_cluster, reports_unmapped_page)
{
	struct kernel_fixture_params params = defaults();

	params.rows[0] = decode_row(0, 100, 1);
	cr_assert_eq(cuda_fixture_unmapped_faults(&params, 3, "attention_mla_cluster_bf16", CUDA_MLA_WGMMA_SHARED),
		     CUDA_FAULT_PAGE);
}
