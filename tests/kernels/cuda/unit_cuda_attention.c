/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by CUDA kernels, on the host, against the float64 reference: the
 * shapes of unit_attention.c, smaller where only the number of tiles counts.
 * Each case has its own order of blocks and threads.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };

static uint64_t next_seed;

static struct kernel_fixture_params
defaults(void)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.k_dim = params.v_dim = 16;
	params.scale = 0.25f;
	return params;
}

enum kernels { WITHOUT_TENSOR_CORES, MMA, MMA_AND_WGMMA, BULK };

/* Kernels for these params. */
static struct cuda_attention_options
choose_kernel(const struct kernel_fixture_params *params, enum kernels kernels)
{
	static const char *const simt[] = { "attention_simt_128", "attention_simt_256", "attention_simt_576" };
	static const char *const mma[2][3] = {
		{ "attention_mma_f16_64", "attention_mma_f16_128", "attention_mma_f16_256" },
		{ "attention_mma_bf16_64", "attention_mma_bf16_128", "attention_mma_bf16_256" }
	};
	static const char *const bulk[2][2] = { { "attention_bulk_f16_64", "attention_bulk_f16_128" },
						{ "attention_bulk_bf16_64", "attention_bulk_bf16_128" } };
	static const char *const prefill[2][2][3] = {
		{ { "attention_prefill_f16_64", "attention_prefill_f16_128", NULL },
		  { "attention_prefill_bf16_64", "attention_prefill_bf16_128", NULL } },
		{ { "attention_wgmma_f16_64", "attention_wgmma_f16_128", NULL },
		  { "attention_wgmma_bf16_64", "attention_wgmma_bf16_128", NULL } }
	};
	uint32_t dim = params->k_dim > params->v_dim ? params->k_dim : params->v_dim;
	uint32_t size = dim <= 64 ? 0 : dim <= 128 ? 1 : 2;
	struct cuda_attention_options options = { .n_blocks = 1 + (uint32_t)(next_seed % 5), .seed = next_seed };

	next_seed++;
	if (kernels == BULK) {
		options.kernel = bulk[params->pool == PAGED_BF16][size];
		options.max_tile_q_rows = CUDA_MAX_TILE_Q_ROWS;
	} else if (kernels != WITHOUT_TENSOR_CORES) {
		options.kernel = mma[params->pool == PAGED_BF16][size];
		options.prefill = prefill[kernels == MMA_AND_WGMMA][params->pool == PAGED_BF16][size];
		options.max_tile_q_rows = CUDA_MAX_TILE_Q_ROWS;
	} else {
		options.kernel = simt[dim <= 128 ? 0 : dim <= 256 ? 1 : 2];
	}
	return options;
}

static void
kernel_check(const struct kernel_fixture_params *params, enum kernels kernels)
{
	const struct cuda_attention_options options = choose_kernel(params, kernels);

	cuda_fixture_check(params, &options);
}

/* The same params for tensor cores, which need a pool and queries of one 16-bit dtype. */
static struct kernel_fixture_params
half_params(const struct kernel_fixture_params *params)
{
	struct kernel_fixture_params half = *params;

	if (half.pool == PAGED_F32)
		half.pool = next_seed % 2 ? PAGED_F16 : PAGED_BF16;
	half.q = half.weights = half.pool;
	return half;
}

/* The nearest dims and page size that attention_bulk_* support. */
static struct kernel_fixture_params
bulk_params(const struct kernel_fixture_params *params)
{
	struct kernel_fixture_params bulk = half_params(params);

	bulk.k_dim = bulk.v_dim = params->k_dim > 64 || params->v_dim > 64 ? 128 : 64;
	bulk.page_size = (params->page_size + 7) / 8 * 8;
	bulk.v_in_k = false;
	return bulk;
}

static void
simt_and_tensor_core_check(const struct kernel_fixture_params *params)
{
	struct kernel_fixture_params half = half_params(params), bulk = bulk_params(params);

	kernel_check(params, WITHOUT_TENSOR_CORES);
	kernel_check(&bulk, BULK);
	if (half.k_dim % 8 != 0 || half.v_dim % 8 != 0 || half.k_dim > 256 || half.v_dim > 256)
		return;
	kernel_check(&half, MMA);
	if (half.k_dim <= 128 && half.v_dim <= 128)
		kernel_check(&half, MMA_AND_WGMMA);
}

static const uint32_t lengths[] = { 0, 1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 255, 257, 511, 513, 640, 1100 };

Test(cuda_attention, decode_lengths)
{
	static const uint32_t page_sizes[] = { 1, 3, 64, 256 };
	struct kernel_fixture_params params = defaults();

	for (size_t p = 0; p < COUNT(page_sizes); p++) {
		params.page_size = page_sizes[p];
		for (size_t begin = 0; begin < COUNT(lengths); begin += params.n_rows) {
			params.n_rows = 9;
			for (uint32_t r = 0; r < params.n_rows; r++)
				params.rows[r] =
					(struct kernel_fixture_row){ .id = r,
								     .kv_len = lengths[begin + r],
								     .q_len = 1,
								     .q_base = (int64_t)lengths[begin + r] - 1 };
			simt_and_tensor_core_check(&params);
		}
	}
}

/* So many tiles in one KV chunk that each stage of a pipeline is used several times. */
Test(cuda_attention, prefill_of_many_tiles)
{
	static const uint32_t dims[] = { 16, 128 };
	struct kernel_fixture_params params = defaults();

	params.pool = params.q = params.weights = PAGED_BF16;
	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 1413, .q_len = 40, .q_base = 1373, .kv_first = 37 };
	for (size_t i = 0; i < COUNT(dims); i++)
		for (enum kernels kernels = MMA; kernels <= BULK; kernels++) {
			struct cuda_attention_options options;

			params.k_dim = params.v_dim = kernels == BULK && dims[i] == 16 ? 64 : dims[i];
			options = choose_kernel(&params, kernels);
			options.target_work_items = 1;
			options.n_blocks = 1; /* which goes on with the item of another KV head */
			cuda_fixture_check(&params, &options);
		}
}

/* A block's items have narrow and wide tiles in turn, whose places in shared memory overlap. */
Test(cuda_attention, tiles_of_both_shapes_in_turn)
{
	struct kernel_fixture_params params = defaults();

	params.pool = params.q = params.weights = PAGED_F16;
	params.n_rows = 4;
	for (uint32_t r = 0; r < params.n_rows; r++) {
		uint32_t q_len = r % 2 ? 1 : 20;

		params.rows[r] = (struct kernel_fixture_row){ r, 500 + r * 60, q_len, 500 + r * 60 - q_len, 0 };
	}
	for (uint32_t dim = 64; dim <= 128; dim *= 2)
		for (enum kernels kernels = MMA; kernels <= BULK; kernels++) {
			struct cuda_attention_options options;

			params.k_dim = params.v_dim = dim;
			options = choose_kernel(&params, kernels);
			options.target_work_items = 1;
			options.n_blocks = 1;
			cuda_fixture_check(&params, &options);
		}
}

Test(cuda_attention, prefill_lengths)
{
	static const struct {
		uint32_t q_len, kv_len, page_size;
	} cases[] = { { 1, 1, 1 },    { 2, 2, 3 },     { 17, 17, 16 },   { 63, 63, 1 },
		      { 33, 129, 3 }, { 20, 513, 16 }, { 130, 130, 64 }, { 9, 700, 256 } };
	struct kernel_fixture_params params = defaults();

	for (size_t i = 0; i < COUNT(cases); i++)
		for (int causal = 0; causal < 2; causal++) {
			params.causal = causal;
			params.page_size = cases[i].page_size;
			params.rows[0] =
				(struct kernel_fixture_row){ .kv_len = cases[i].kv_len,
							     .q_len = cases[i].q_len,
							     .q_base = (int64_t)cases[i].kv_len - cases[i].q_len };
			simt_and_tensor_core_check(&params);
		}
}

/*
 * A tile whose tokens not all q_rows see, one that all see, and one more of the first kind, in one item.  Only the
 * tiles of the first kind order the warps of attention_wgmma, so those of different groups may be two tiles apart.
 */
Test(cuda_attention, masked_tiles_around_a_full_one)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.q_heads = params.kv_heads = 1;
	params.page_size = 16;
	params.causal = true;
	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 384, .q_len = 128, .q_base = 256, .kv_first = 10 };
	params.pool = params.q = params.weights = PAGED_F16;
	for (params.k_dim = 64; params.k_dim <= 128; params.k_dim += 64)
		for (unsigned int i = 0; i < 6; i++) {
			struct cuda_attention_options options;

			params.v_dim = params.k_dim;
			options = choose_kernel(&params, MMA_AND_WGMMA);
			options.target_work_items = 1;
			cuda_fixture_check(&params, &options);
		}
}

/* The pool has NaN before kv_first, and entries of pages wholly before it are UINT32_MAX. */
Test(cuda_attention, kv_first)
{
	static const uint32_t firsts[] = {
		1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192, 300, 511, 512, 640, 699, 700
	};
	struct kernel_fixture_params params = defaults();

	params.n_rows = 3;
	for (size_t i = 0; i < COUNT(firsts); i++) {
		params.page_size = i % 2 ? 16 : 3;
		params.causal = i % 3 != 0;
		params.rows[0] = (struct kernel_fixture_row){ 1, 700, 1, 699, firsts[i] };
		params.rows[1] = (struct kernel_fixture_row){ 2, 700, 20, 680, firsts[COUNT(firsts) - 1 - i] };
		params.rows[2] = (struct kernel_fixture_row){ 3, 130, 40, 60, firsts[i] % 131 };
		simt_and_tensor_core_check(&params);
	}
}

/* More KV chunks than a warp loads at once, and more weights than are in shared memory at once. */
Test(cuda_attention, many_kv_chunks)
{
	static const uint32_t v_dims[] = { 7, 16, 40 };
	struct kernel_fixture_params params = defaults();

	params.q_heads = 5;
	params.kv_heads = 1;
	params.page_size = 64;
	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 129 * 128 + 1, .q_len = 2, .q_base = 129 * 128 - 1 };
	for (size_t i = 0; i < COUNT(v_dims); i++) {
		params.v_dim = v_dims[i];
		params.out = dtypes[i];
		params.padding = (uint32_t)i;
		simt_and_tensor_core_check(&params);
	}
}

Test(cuda_attention, head_ratios)
{
	static const uint32_t heads[][2] = { { 1, 1 }, { 3, 1 }, { 9, 3 }, { 8, 8 }, { 5, 1 }, { 16, 2 }, { 71, 1 } };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 2;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 150, .q_len = 1, .q_base = 149 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 77, .q_len = 7, .q_base = 70 };
	for (size_t i = 0; i < COUNT(heads); i++) {
		params.q_heads = heads[i][0];
		params.kv_heads = heads[i][1];
		simt_and_tensor_core_check(&params);
	}
}

Test(cuda_attention, dims_and_strides)
{
	static const struct {
		uint32_t k, v;
		bool v_in_k;
	} dims[] = { { 1, 1, false },     { 3, 7, false },    { 8, 16, false },    { 24, 40, false },
		     { 64, 128, false },  { 121, 94, false }, { 192, 128, false }, { 129, 250, false },
		     { 576, 576, false }, { 576, 512, true }, { 40, 9, true } };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 2;
	params.kv_heads = 1;
	params.q_heads = 2;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 140, .q_len = 1, .q_base = 139 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 40, .q_len = 9, .q_base = 31 };
	for (size_t i = 0; i < COUNT(dims); i++) {
		params.k_dim = dims[i].k;
		params.v_dim = dims[i].v;
		params.v_in_k = dims[i].v_in_k;
		params.pool = dtypes[i % 3];
		params.padding = (uint32_t)i % 4;
		params.scale = 1 / sqrtf((float)dims[i].k);
		simt_and_tensor_core_check(&params);
	}
}

Test(cuda_attention, dtypes)
{
	struct kernel_fixture_params params = defaults();

	params.n_rows = 2;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 81, .q_len = 1, .q_base = 80 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 30, .q_len = 20, .q_base = 10 };
	for (size_t i = 0; i < 27; i++) {
		params.pool = dtypes[i % 3];
		params.q = dtypes[i / 3 % 3];
		params.out = dtypes[i / 9];
		simt_and_tensor_core_check(&params);
	}
}

Test(cuda_attention, query_positions)
{
	static const int64_t bases[] = { -1000000, -21, -20, -5, -1, 0, 1, 30, 99, 100, 5000, INT64_C(1) << 40 };
	struct kernel_fixture_params params = defaults();

	params.n_rows = 3;
	for (size_t i = 0; i < COUNT(bases); i++) {
		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 100, .q_len = 20, .q_base = bases[i] };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 30, .q_len = 0, .q_base = bases[i] };
		params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 0, .q_len = 3, .q_base = bases[i] };
		simt_and_tensor_core_check(&params);
	}
}

Test(cuda_attention, sinks)
{
	static const float sinks[] = { -100, 0.5f, 90, -INFINITY };
	struct kernel_fixture_params params = defaults();

	params.sink = sinks;
	params.n_rows = 3;
	params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 600, .q_len = 2, .q_base = 598 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 30, .q_len = 30, .q_base = -3 };
	params.rows[2] = (struct kernel_fixture_row){ .id = 2, .kv_len = 0, .q_len = 1, .q_base = 0 };
	for (int without = 0; without < 2; without++) {
		params.lse_without_sink = without;
		simt_and_tensor_core_check(&params);
	}
}

Test(cuda_attention, nan_query_affects_its_q_row_only)
{
	static const float poison[] = { NAN, INFINITY };
	struct kernel_fixture_params params = defaults();

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 300, .q_len = 9, .q_base = 291 };
	for (size_t i = 0; i < COUNT(poison) * 2; i++) {
		struct cuda_attention_options options;
		struct kernel_fixture fixture;

		if (i == COUNT(poison))
			params = half_params(&params);
		options = choose_kernel(&params, i >= COUNT(poison) ? MMA : WITHOUT_TENSOR_CORES);
		kernel_fixture_create(&fixture, &params);
		reference_store((uint8_t *)fixture.q.data + 4 * fixture.q.token_stride + fixture.q.head_stride,
				params.q, 3, poison[i % COUNT(poison)]);
		cuda_fixture_attend(&fixture, &options);
		for (uint32_t q = 0; q < 9; q++)
			for (uint32_t h = 0; h < params.q_heads; h++)
				cr_assert(kernel_fixture_all_nan(&fixture, q, h, q == 4 && h == 1));
		kernel_fixture_destroy(&fixture);
	}
}

Test(cuda_attention, masked_nan_tokens_have_no_effect)
{
	static const uint32_t tokens[] = { 40, 64, 69, 99 };
	struct kernel_fixture_params params = defaults();

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_len = 70, .q_base = 30 };
	for (size_t i = 0; i < COUNT(tokens) * 3; i++)
		for (unsigned int plane = 0; plane <= LAYOUT_V; plane++) {
			uint32_t token = tokens[i % COUNT(tokens)];
			struct cuda_attention_options options;
			struct kernel_fixture fixture;

			if (i == COUNT(tokens))
				params = half_params(&params);
			options = choose_kernel(&params, (enum kernels)(i / COUNT(tokens)));
			kernel_fixture_create(&fixture, &params);
			for (uint32_t h = 0; h < params.kv_heads; h++)
				memset(kernel_fixture_token(&fixture, plane, token, h), 0xff,
				       params.k_dim * paged_dtype_size(params.pool));
			cuda_fixture_attend(&fixture, &options);
			for (uint32_t q = 0; q < 70; q++)
				for (uint32_t h = 0; h < params.q_heads; h++)
					cr_assert_eq(isnan(kernel_tensor_element(&fixture.out, q, h, 5)) != 0,
						     30 + q >= token, "row %u attends keys up to %u, token %u is NaN",
						     q, 30 + q, token);
			kernel_fixture_destroy(&fixture);
		}
}

Test(cuda_attention, score_of_minus_infinity_has_zero_weight)
{
	static const uint32_t spans[][2] = { { 3, 4 }, { 0, 64 }, { 0, 128 }, { 64, 300 }, { 0, 300 } };
	struct kernel_fixture_params params = defaults();

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 300, .q_len = 1, .q_base = 299 };
	for (size_t i = 0; i < COUNT(spans) * 2; i++) {
		const uint32_t *masked_span = spans[i % COUNT(spans)];
		bool all = masked_span[1] - masked_span[0] == 300;
		struct cuda_attention_options options;
		struct kernel_fixture fixture;

		if (i == COUNT(spans))
			params = half_params(&params);
		options = choose_kernel(&params, i >= COUNT(spans) ? MMA : WITHOUT_TENSOR_CORES);
		kernel_fixture_create(&fixture, &params);
		for (uint32_t h = 0; h < params.q_heads; h++)
			reference_store((uint8_t *)fixture.q.data + h * fixture.q.head_stride, params.q, 0, 1);
		for (uint32_t t = masked_span[0]; t < masked_span[1]; t++)
			for (uint32_t h = 0; h < params.kv_heads; h++)
				reference_store(kernel_fixture_token(&fixture, LAYOUT_K, t, h), params.pool, 0,
						-INFINITY);
		cuda_fixture_attend(&fixture, &options);
		for (uint32_t h = 0; h < params.q_heads; h++) {
			cr_assert(kernel_fixture_all_nan(&fixture, 0, h, false));
			cr_assert_eq(fixture.lse[h] == -INFINITY, all);
			cr_assert_eq(fixture.max_score[h] == -INFINITY, all);
			for (uint32_t d = 0; all && d < params.v_dim; d++)
				cr_assert_eq(kernel_tensor_element(&fixture.out, 0, h, d), 0);
		}
		kernel_fixture_destroy(&fixture);
	}
}

static struct kernel_fixture
cuda_fixture_create_and_attend(const struct kernel_fixture_params *params, const struct cuda_attention_options *options)
{
	struct kernel_fixture fixture;

	kernel_fixture_create(&fixture, params);
	cuda_fixture_attend(&fixture, options);
	return fixture;
}

static void
batch_invariance_check(struct kernel_fixture_params params, enum kernels kernels)
{
	struct cuda_attention_options options = choose_kernel(&params, kernels);
	struct kernel_fixture all, other;

	params.n_rows = 4;
	for (uint32_t r = 0; r < 4; r++)
		params.rows[r] = (struct kernel_fixture_row){
			.id = r, .kv_len = 300 + 100 * r, .q_len = 1 + r % 2 * 16, .q_base = 280 + 100 * r
		};
	all = cuda_fixture_create_and_attend(&params, &options);
	for (uint64_t seed = 0; seed < 4; seed++) {
		params.placement = seed;
		params.page_size = 1u << (seed + 1);
		options.seed = seed;
		options.n_blocks = 1 + (uint32_t)seed * 3;
		other = cuda_fixture_create_and_attend(&params, &options);
		cr_assert(kernel_fixture_equal(&all, 0, &other, 0, all.total_q));
		kernel_fixture_destroy(&other);
	}
	for (uint32_t r = 0; r < 4; r++) {
		struct kernel_fixture_params alone = params;

		alone.n_rows = 1;
		alone.rows[0] = params.rows[r];
		other = cuda_fixture_create_and_attend(&alone, &options);
		cr_assert(kernel_fixture_equal(&all, all.rows[r].q_start, &other, 0, other.total_q), "row %u", r);
		kernel_fixture_destroy(&other);
	}
	kernel_fixture_destroy(&all);
}

/* The bits of a row do not depend on the order of blocks, the grid, the placement of pages, or the batch. */
Test(cuda_attention, batch_invariance)
{
	struct kernel_fixture_params params = defaults();

	batch_invariance_check(params, WITHOUT_TENSOR_CORES);
	params.pool = params.q = PAGED_F16;
	batch_invariance_check(params, MMA);
	batch_invariance_check(params, MMA_AND_WGMMA);
}

/*
 * Items of one block, so that each one's tiles are fetched during the one before: of more tiles than there are stages,
 * of fewer, and of none; narrow and wide.
 */
Test(cuda_attention, items_of_one_block)
{
	static const uint32_t kv_lens[] = { 300, 520, 40, 0, 460, 260, 330 }, dims[] = { 16, 128, 256 };
	struct kernel_fixture_params params = defaults();

	params.pool = params.q = params.weights = PAGED_BF16;
	params.n_rows = COUNT(kv_lens);
	for (uint32_t i = 0; i < COUNT(dims) * 2; i++) {
		struct cuda_attention_options options;
		struct kernel_fixture fixture;
		char what[256];

		params.k_dim = params.v_dim = dims[i / 2];
		params.page_size = i % 2 ? 16 : 3;
		for (uint32_t r = 0; r < params.n_rows; r++)
			params.rows[r] = (struct kernel_fixture_row){
				.id = r, .kv_len = kv_lens[r], .q_len = r > 4 && i % 2 ? 20 : 1, .q_base = kv_lens[r]
			};
		options = choose_kernel(&params, true);
		options.prefill = NULL;
		options.n_blocks = options.target_work_items = 1;
		fixture = cuda_fixture_create_and_attend(&params, &options);
		cr_assert(kernel_fixture_check(&fixture, what, sizeof(what)), "%s: %s", options.kernel, what);
		kernel_fixture_destroy(&fixture);
	}
}

/* An unmapped page table entry below kv_len is reported, and no address is computed from it. */
Test(cuda_attention, reports_unmapped_page)
{
	struct kernel_fixture_params params = defaults();

	params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_len = 1, .q_base = 99 };
	cr_assert_eq(cuda_fixture_unmapped_faults(&params, 3, "attention_simt_128", 160u << 10), CUDA_FAULT_PAGE);
	params.pool = params.q = PAGED_F16;
	cr_assert_eq(cuda_fixture_unmapped_faults(&params, 3, "attention_mma_f16_64", 160u << 10), CUDA_FAULT_PAGE);
}
