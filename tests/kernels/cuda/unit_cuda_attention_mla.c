/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pools that keep V in K, on the host, against the float64
 * reference.  Each case has its own order of blocks and threads.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/host/choose_kernel.h"
#include "tests/kernels/cuda/mla_check.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t next_seed;

static struct kernel_fixture_params
defaults(void)
{
	return mla_defaults(16);
}

/* The kernels, which compute the same. */
enum kernel { MMA, WGMMA, N_KERNELS };

static const char *
kernel_name(enum kernel kernel, enum paged_dtype dtype)
{
	static const char *const names[N_KERNELS][2] = { { "attention_mla_f16", "attention_mla_bf16" },
							 { "attention_mla_wgmma_f16", "attention_mla_wgmma_bf16" } };

	return names[kernel][dtype == PAGED_BF16];
}

static struct cuda_attention_options
mla_options(const struct kernel_fixture_params *params, enum kernel kernel)
{
	struct cuda_attention_options options = { .kernel = kernel_name(kernel, params->pool),
						  .max_tile_q_rows = CUDA_MAX_TILE_Q_ROWS,
						  .n_blocks = 1 + (uint32_t)(next_seed % 5),
						  .seed = next_seed };

	next_seed++;
	return options;
}

static void
mla_check(const struct kernel_fixture_params *params)
{
	for (enum kernel kernel = MMA; kernel < N_KERNELS; kernel++) {
		struct cuda_attention_options options = mla_options(params, kernel);

		cuda_fixture_check(params, &options);
	}
}

/* The shapes and dtypes that choose the MLA kernel, and those that choose another one. */
Test(cuda_attention_mla, kernel_choice)
{
	static const struct {
		uint32_t k_dim, v_dim;
		bool v_in_k;
		enum paged_dtype pool, q;
		uint32_t max_shared;
		const char *kernel;
	} cases[] = {
		{ 576, 512, true, PAGED_F16, PAGED_F16, 163 << 10, "attention_mla_f16" },
		{ 576, 512, true, PAGED_BF16, PAGED_BF16, 227 << 10, "attention_mla_bf16" },
		{ 320, 256, true, PAGED_BF16, PAGED_BF16, 163 << 10, "attention_mla_bf16" },
		{ 16, 16, true, PAGED_BF16, PAGED_BF16, 163 << 10, "attention_mla_bf16" },
		{ 576, 512, true, PAGED_BF16, PAGED_BF16, 99 << 10, "attention_mla_bf16" },
		{ 576, 512, true, PAGED_BF16, PAGED_BF16, 64 << 10, "attention_simt_576" },
		{ 576, 512, true, PAGED_F32, PAGED_F32, 163 << 10, "attention_simt_576" },
		{ 576, 512, true, PAGED_BF16, PAGED_F16, 163 << 10, "attention_simt_576" },
		{ 576, 512, false, PAGED_BF16, PAGED_BF16, 163 << 10, "attention_simt_576" },
		{ 576, 528, true, PAGED_BF16, PAGED_BF16, 163 << 10, "attention_simt_576" },
		{ 72, 64, true, PAGED_BF16, PAGED_BF16, 163 << 10, "attention_mma_bf16_128" },
		{ 64, 40, false, PAGED_F16, PAGED_F16, 99 << 10, "attention_mma_f16_64" },
		{ 64, 136, false, PAGED_F16, PAGED_F16, 163 << 10, "attention_mma_f16_256" },
		{ 128, 128, false, PAGED_BF16, PAGED_BF16, 99 << 10, "attention_mma_bf16_128" },
		{ 192, 128, false, PAGED_F16, PAGED_F16, 99 << 10, "attention_mma_f16_256" },
		{ 256, 256, true, PAGED_BF16, PAGED_BF16, 99 << 10, "attention_mma_bf16_256" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct layout_params pool = { .k_dim = cases[i].k_dim,
						    .v_dim = cases[i].v_dim,
						    .v_in_k = cases[i].v_in_k,
						    .dtype = cases[i].pool };
		bool prefill = strstr(cases[i].kernel, "_mma_") != NULL && strstr(cases[i].kernel, "_256") == NULL;
		struct cuda_choice choices[CUDA_N_PARTS];
		struct paged_error error;

		cr_assert_eq(cuda_choose(&pool, cases[i].q, cases[i].max_shared, choices, &error), PAGED_OK, "%s",
			     error.text);
		cr_expect_str_eq(choices[CUDA_DECODE].kernel, cases[i].kernel, "case %zu: %s", i,
				 choices[CUDA_DECODE].kernel);
		cr_expect_eq(choices[CUDA_DECODE].n_threads,
			     strstr(cases[i].kernel, "mla") != NULL ? CUDA_MLA_THREADS : CUDA_ATTENTION_THREADS);
		cr_expect_leq(choices[CUDA_DECODE].shared_size, cases[i].max_shared);
		if (strstr(cases[i].kernel, "mla") != NULL)
			cr_expect_eq(choices[CUDA_DECODE].shared_size,
				     cases[i].max_shared > 163 << 10    ? CUDA_MLA_SHARED_MORE
				     : cases[i].max_shared == 163 << 10 ? CUDA_MLA_SHARED
									: CUDA_MLA_SHARED_LEAST);
		cr_assert_eq(choices[CUDA_PREFILL].kernel != NULL, prefill, "case %zu", i);
		cr_expect_eq(choices[CUDA_PREFILL].tile_q_rows, prefill ? CUDA_PREFILL_TILE_Q_ROWS : 0);
		if (prefill)
			cr_expect_str_eq(strstr(choices[CUDA_PREFILL].kernel, "16_"), strstr(cases[i].kernel, "16_"));
	}
}

/* wgmma takes the place of the MLA kernel if a block may have all the shared memory of sm_90. */
Test(cuda_attention_mla, kernel_choice_by_wgmma)
{
	const struct layout_params pool = { .k_dim = 576, .v_dim = 512, .v_in_k = true, .dtype = PAGED_BF16 };

	for (uint32_t max_shared = CUDA_MLA_WGMMA_SHARED - 1; max_shared <= CUDA_MLA_WGMMA_SHARED; max_shared++) {
		bool fits = max_shared == CUDA_MLA_WGMMA_SHARED;
		struct cuda_choice choices[CUDA_N_PARTS];
		struct paged_error error;

		cr_assert_eq(cuda_choose(&pool, PAGED_BF16, max_shared, choices, &error), PAGED_OK, "%s", error.text);
		cuda_choose_wgmma(&pool, PAGED_BF16, max_shared, choices);
		cr_expect_str_eq(choices[CUDA_DECODE].kernel, kernel_name(fits ? WGMMA : MMA, PAGED_BF16));
		cr_expect_eq(choices[CUDA_DECODE].n_threads, fits ? CUDA_WGMMA_THREADS : CUDA_MLA_THREADS);
		cr_expect(choices[CUDA_DECODE].block_kv_chunks == 1 && choices[CUDA_PREFILL].kernel == NULL);
	}
}

/* The shape of the model: up to 128 heads, one to three query rows, ragged lengths. */
Test(cuda_attention_mla, decode_of_576_and_512)
{
	static const struct {
		uint32_t q_heads, page_size;
		enum paged_dtype dtype;
	} cases[] = { { 128, 64, PAGED_BF16 }, { 16, 1, PAGED_F16 }, { 40, 16, PAGED_F16 } };
	struct kernel_fixture_params params = defaults();

	params.k_dim = 576;
	params.v_dim = 512;
	params.scale = 1 / sqrtf(576);
	params.n_rows = 3;
	for (size_t i = 0; i < COUNT(cases); i++) {
		params.q_heads = cases[i].q_heads;
		params.page_size = cases[i].page_size;
		mla_pool_dtype(&params, cases[i].dtype);
		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 150, .q_len = 1, .q_base = 149 };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 65, .q_len = 3, .q_base = 62 };
		params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 31, .q_len = 2, .q_base = 29 };
		mla_check(&params);
	}
}

/* Narrow tiles alone, with one stage: devices whose blocks have 99 KiB of shared memory. */
Test(cuda_attention_mla, one_stage)
{
	static const uint32_t heads[] = { 16, 40, 128 };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 4;
	for (size_t i = 0; i < COUNT(heads) * 3; i++) {
		struct cuda_attention_options options;

		params.q_heads = heads[i % COUNT(heads)];
		params.k_dim = i == 2 ? 576 : 64;
		params.v_dim = i == 2 ? 512 : 48;
		params.page_size = i % 2 ? 64 : 3;
		mla_pool_dtype(&params, i % 2 ? PAGED_F16 : PAGED_BF16);
		for (uint32_t r = 0; r < params.n_rows; r++)
			params.rows[r] = (struct kernel_fixture_row){
				.id = r, .kv_len = 60 + 91 * r, .q_len = 1 + r % 2, .q_base = 59 + 91 * r - r % 2
			};
		options = mla_options(&params, MMA);
		options.max_tile_q_rows = CUDA_TILE_Q_ROWS;
		options.target_work_items = 1 + (uint32_t)i / 3 * 20;
		options.n_blocks = 1 + (uint32_t)i % 4;
		cuda_fixture_check(&params, &options);
	}
}

static const uint32_t lengths[] = { 0, 1, 2, 15, 16, 17, 31, 32, 33, 64, 127, 128, 129, 257, 511, 513, 640, 1100 };

Test(cuda_attention_mla, decode_lengths)
{
	static const uint32_t page_sizes[] = { 1, 3, 16, 64, 256 }, heads[] = { 16, 5, 33 };
	struct kernel_fixture_params params = defaults();

	for (size_t p = 0; p < COUNT(page_sizes); p++) {
		params.page_size = page_sizes[p];
		params.q_heads = heads[p % COUNT(heads)];
		mla_pool_dtype(&params, p % 2 ? PAGED_F16 : PAGED_BF16);
		for (size_t begin = 0; begin < COUNT(lengths); begin += params.n_rows) {
			params.n_rows = 9;
			for (uint32_t r = 0; r < params.n_rows; r++)
				params.rows[r] =
					(struct kernel_fixture_row){ .id = r,
								     .kv_len = lengths[begin + r],
								     .q_len = 1,
								     .q_base = (int64_t)lengths[begin + r] - 1 };
			mla_check(&params);
		}
	}
}

Test(cuda_attention_mla, prefill_lengths)
{
	static const struct {
		uint32_t q_len, kv_len, page_size, q_heads;
	} cases[] = { { 2, 2, 3, 16 },     { 17, 17, 16, 4 },  { 63, 63, 1, 1 },   { 33, 129, 3, 8 },
		      { 20, 513, 16, 16 }, { 9, 700, 256, 7 }, { 130, 130, 64, 3 } };
	struct kernel_fixture_params params = defaults();

	for (size_t i = 0; i < COUNT(cases); i++)
		for (int causal = 0; causal < 2; causal++) {
			params.causal = causal;
			params.page_size = cases[i].page_size;
			params.q_heads = cases[i].q_heads;
			params.rows[0] =
				(struct kernel_fixture_row){ .kv_len = cases[i].kv_len,
							     .q_len = cases[i].q_len,
							     .q_base = (int64_t)cases[i].kv_len - cases[i].q_len };
			mla_check(&params);
		}
}

/* Dims that end anywhere in a warp's part; several KV heads; outputs of every dtype with padding. */
Test(cuda_attention_mla, dims_heads_and_strides)
{
	static const struct {
		uint32_t k, v, q_heads, kv_heads;
	} dims[] = { { 16, 16, 3, 1 },    { 32, 16, 24, 2 }, { 144, 128, 16, 1 }, { 288, 256, 20, 1 },
		     { 320, 256, 64, 1 }, { 576, 16, 8, 4 }, { 528, 512, 17, 1 }, { 192, 192, 6, 3 },
		     { 272, 144, 65, 1 }, { 64, 48, 128, 1 } };
	static const enum paged_dtype outs[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 2;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 140, .q_len = 1, .q_base = 139 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 40, .q_len = 3, .q_base = 37 };
	for (size_t i = 0; i < COUNT(dims); i++) {
		params.k_dim = dims[i].k;
		params.v_dim = dims[i].v;
		params.q_heads = dims[i].q_heads;
		params.kv_heads = dims[i].kv_heads;
		params.out = outs[i % 3];
		params.padding = (uint32_t)i % 4;
		params.scale = 1 / sqrtf((float)dims[i].k);
		mla_pool_dtype(&params, i % 2 ? PAGED_F16 : PAGED_BF16);
		mla_check(&params);
	}
}

/* Items of more tiles than there are stages, with each number of stages; several for each block, narrow and wide. */
Test(cuda_attention_mla, items_of_many_tiles)
{
	static const uint32_t heads[] = { 16, 33 };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 4;
	for (size_t i = 0; i < COUNT(heads) * 4 * N_KERNELS; i++) {
		struct cuda_attention_options options;

		params.q_heads = heads[i / N_KERNELS / 4];
		for (uint32_t r = 0; r < params.n_rows; r++)
			params.rows[r] = (struct kernel_fixture_row){
				.id = r, .kv_len = 290 + 301 * r, .q_len = 1 + r % 2, .q_base = 289 + 301 * r - r % 2
			};
		options = mla_options(&params, (enum kernel)(i % N_KERNELS));
		options.target_work_items = 1 + (uint32_t)i / N_KERNELS % 3;
		options.n_blocks = 1 + (uint32_t)i / N_KERNELS % 2;
		cuda_fixture_check(&params, &options);
	}
}

/*
 * Pieces of combine_kv_chunks: many q_rows, one, and parts of one; tiles that see fewer chunks than their row has; KV
 * chunks of 128 tokens to 512.
 */
Test(cuda_attention_mla, many_kv_chunks)
{
	static const struct {
		uint32_t q_heads, k, v, kv_len, q_len;
	} cases[] = { { 16, 48, 32, 8500, 1 },  { 70, 64, 48, 4000, 1 },   { 3, 528, 512, 2500, 1 },
		      { 64, 528, 512, 300, 1 }, { 16, 288, 272, 1400, 2 }, { 20, 32, 16, 700, 30 },
		      { 20, 32, 16, 9000, 1 } };
	struct kernel_fixture_params params = defaults();

	params.causal = true;
	for (size_t i = 0; i < COUNT(cases); i++) {
		params.q_heads = cases[i].q_heads;
		params.k_dim = cases[i].k;
		params.v_dim = cases[i].v;
		params.out = i % 3 == 0 ? PAGED_F32 : i % 3 == 1 ? PAGED_BF16 : PAGED_F16;
		params.padding = (uint32_t)i % 4;
		params.scale = 1 / sqrtf((float)cases[i].k);
		params.rows[0] = (struct kernel_fixture_row){ .kv_len = cases[i].kv_len,
							      .q_len = cases[i].q_len,
							      .q_base = (int64_t)cases[i].kv_len / 2 };
		mla_pool_dtype(&params, i % 2 ? PAGED_F16 : PAGED_BF16);
		mla_check(&params);
		params.rows[0].q_base = (int64_t)cases[i].kv_len - cases[i].q_len;
		mla_check(&params);
	}
}

Test(cuda_attention_mla, query_positions)
{
	static const int64_t bases[] = { -1000000, -21, -20, -5, -1, 0, 1, 30, 99, 100, 5000, INT64_C(1) << 40 };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 3;
	params.q_heads = 6;
	for (size_t i = 0; i < COUNT(bases); i++) {
		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 100, .q_len = 20, .q_base = bases[i] };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 30, .q_len = 0, .q_base = bases[i] };
		params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 0, .q_len = 3, .q_base = bases[i] };
		mla_check(&params);
	}
}

Test(cuda_attention_mla, sinks)
{
	float sinks[24];
	struct kernel_fixture_params params = defaults();

	for (uint32_t h = 0; h < COUNT(sinks); h++)
		sinks[h] = h % 4 == 3 ? -INFINITY : 45.0f * (float)(h % 4) - 45.0f;
	params.q_heads = COUNT(sinks);
	params.sink = sinks;
	params.n_rows = 3;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 600, .q_len = 2, .q_base = 598 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 30, .q_len = 9, .q_base = -3 };
	params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 0, .q_len = 1, .q_base = 0 };
	for (int without = 0; without < 2; without++) {
		params.lse_without_sink = without;
		mla_check(&params);
	}
}

/* Large scores: a few keys have all the weight, and the running maximum grows late. */
Test(cuda_attention_mla, row_max_grows_late)
{
	struct kernel_fixture_params params = defaults();

	params.scale = 4;
	params.q_heads = 48;
	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 1000, .q_len = 2, .q_base = 998 };
	mla_pool_dtype(&params, PAGED_F16);
	mla_check(&params);
}

Test(cuda_attention_mla, nan_query_affects_its_q_row_only)
{
	static const float poison[] = { NAN, INFINITY };
	static const uint32_t q_lens[] = { 1, 9 };
	struct kernel_fixture_params params = defaults();

	for (size_t i = 0; i < 4 * N_KERNELS; i++) {
		uint32_t n = q_lens[i / 2 % 2], nan_q_row = n / 2;
		struct cuda_attention_options options = mla_options(&params, (enum kernel)(i / 4));
		struct kernel_fixture fixture;

		params.rows[0] = (struct kernel_fixture_row){ .kv_len = 300, .q_len = n, .q_base = 300 - n };
		kernel_fixture_create(&fixture, &params);
		reference_store((uint8_t *)fixture.q.data + nan_q_row * fixture.q.token_stride +
					7 * fixture.q.head_stride,
				params.q, 3, poison[i % 2]);
		cuda_fixture_attend(&fixture, &options);
		for (uint32_t q = 0; q < n; q++)
			for (uint32_t h = 0; h < params.q_heads; h++)
				cr_assert(kernel_fixture_all_nan(&fixture, q, h, q == nan_q_row && h == 7));
		kernel_fixture_destroy(&fixture);
	}
}

/*
 * Tokens past a q_row's causal limit may contain NaN in K, which is V too.  dim: the element with NaN.  One block has
 * all items, which begin with tiles of even numbers and of odd ones; some have the token and some have not.
 */
Test(cuda_attention_mla, masked_nan_tokens_have_no_effect)
{
	static const struct {
		uint32_t kv_len, token, dim;
	} cases[] = { { 100, 40, 0 }, { 100, 63, 31 }, { 100, 64, 47 }, { 100, 69, 16 },  { 100, 99, 40 },
		      { 60, 40, 31 }, { 150, 70, 16 }, { 150, 140, 0 }, { 300, 190, 31 }, { 300, 270, 15 } };
	struct kernel_fixture_params params = defaults();

	params.q_heads = 3;
	for (size_t i = 0; i < COUNT(cases) * N_KERNELS; i++) {
		uint32_t kv_len = cases[i / N_KERNELS].kv_len;
		struct cuda_attention_options options = mla_options(&params, (enum kernel)(i % N_KERNELS));

		params.rows[0] =
			(struct kernel_fixture_row){ .kv_len = kv_len, .q_len = 70, .q_base = (int64_t)kv_len - 70 };
		options.n_blocks = 1;
		mla_masked_nan_check(&params, cases[i / N_KERNELS].token, cases[i / N_KERNELS].dim, &options);
	}
}

/* -inf in K, which is V too: weight 0, and the value is ignored. */
Test(cuda_attention_mla, score_of_minus_infinity_has_zero_weight)
{
	static const uint32_t spans[][2] = { { 3, 4 }, { 0, 64 }, { 0, 128 }, { 64, 300 }, { 0, 300 } };
	struct kernel_fixture_params params = defaults();

	for (size_t i = 0; i < COUNT(spans) * 2 * N_KERNELS; i++) {
		const uint32_t *span = spans[i / 2 % COUNT(spans)];
		struct cuda_attention_options options = mla_options(&params, (enum kernel)(i / 2 / COUNT(spans)));

		params.q_heads = i % 2 ? 20 : 12;
		mla_minus_infinity_check(&params, span[0], span[1], &options);
	}
}

/* Make the first element of all queries 1: a key that begins with -inf then has a score of -inf. */
static void
queries_begin_with_1(struct kernel_fixture *fixture)
{
	for (uint32_t q = 0; q < fixture->total_q; q++)
		for (uint32_t h = 0; h < fixture->params.q_heads; h++)
			reference_store((uint8_t *)fixture->q.data + q * fixture->q.token_stride +
						h * fixture->q.head_stride,
					fixture->params.q, 0, 1);
}

/* Let two tokens of row 0 begin with -inf in K, which is V too. */
static void
row_0_has_infinities(struct kernel_fixture *fixture)
{
	reference_store(kernel_fixture_token(fixture, LAYOUT_K, 70, 0), fixture->params.pool, 0, -INFINITY);
	reference_store(kernel_fixture_token(fixture, LAYOUT_K, 200, 0), fixture->params.pool, 0, -INFINITY);
}

/*
 * The bits of a row do not depend on the order of blocks, the grid, the placement of pages, or the batch.  Narrow rows
 * have KV chunks of 128 tokens, wide ones of 256.
 */
static void
batch_invariance_check(enum kernel kernel)
{
	struct kernel_fixture_params params = defaults();
	struct cuda_attention_options options = mla_options(&params, kernel);
	struct kernel_fixture all, other;

	params.n_rows = 4;
	for (uint32_t r = 0; r < 4; r++)
		params.rows[r] = (struct kernel_fixture_row){
			.id = r, .kv_len = 500 + 700 * r, .q_len = 1 + r % 2 * 4, .q_base = 480 + 700 * r
		};
	kernel_fixture_create(&all, &params);
	queries_begin_with_1(&all);
	row_0_has_infinities(&all);
	cuda_fixture_attend(&all, &options);
	cr_assert(kernel_fixture_all_nan(&all, 0, 0, false));
	for (uint32_t i = 0; i < 8; i++) {
		struct kernel_fixture_params changed = params;
		uint32_t r = i % 4;

		if (i < 4) {
			changed.placement = options.seed = i;
			changed.page_size = 1u << (i + 1);
			options.n_blocks = 1 + i * 3;
		} else {
			changed.n_rows = 1;
			changed.rows[0] = params.rows[r];
		}
		kernel_fixture_create(&other, &changed);
		queries_begin_with_1(&other);
		if (changed.rows[0].id == 0)
			row_0_has_infinities(&other);
		cuda_fixture_attend(&other, &options);
		cr_assert(kernel_fixture_equal(&all, i < 4 ? 0 : all.rows[r].q_start, &other, 0, other.total_q),
			  "case %u", i);
		kernel_fixture_destroy(&other);
	}
	kernel_fixture_destroy(&all);
}

Test(cuda_attention_mla, batch_invariance)
{
	batch_invariance_check(MMA);
	batch_invariance_check(WGMMA);
}

/* Work items find their rows among many, some of which have none. */
Test(cuda_attention_mla, many_rows)
{
	static const uint32_t n_rows[] = { 2, 8, 9, 64, 65, 67, 200 };
	struct kernel_fixture_params params = defaults();

	params.q_heads = 3;
	for (size_t i = 0; i < COUNT(n_rows) * N_KERNELS; i++) {
		struct cuda_attention_options options = mla_options(&params, (enum kernel)(i % N_KERNELS));

		params.rows[0] = (struct kernel_fixture_row){ .kv_len = 270, .q_base = 60 };
		mla_many_rows_check(&params, n_rows[i / N_KERNELS], &options);
	}
}

/* An unmapped page table entry below kv_len is reported, and no address is computed from it. */
Test(cuda_attention_mla, reports_unmapped_page)
{
	struct kernel_fixture_params params = defaults();

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_len = 1, .q_base = 99 };
	cr_assert_eq(cuda_fixture_unmapped_faults(&params, 3, "attention_mla_bf16", CUDA_MLA_SHARED), CUDA_FAULT_PAGE);
	cr_assert_eq(cuda_fixture_unmapped_faults(&params, 3, "attention_mla_wgmma_bf16", CUDA_MLA_WGMMA_SHARED),
		     CUDA_FAULT_PAGE);
}
