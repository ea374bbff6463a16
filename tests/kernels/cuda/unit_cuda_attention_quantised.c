/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by CUDA kernels over pools of e4m3, e5m2 and i8, on the host,
 * against the float64 reference on the dequantised contents.  Each case has
 * its own order of blocks and threads.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/choose_kernel.h"
#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const enum paged_dtype pools[] = { PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
static const float k_scale[] = { 0.5f, 1.7f, 1, 0.8f }, v_scale[] = { 0.3f, 1, 0.9f, 0.01f };

static uint64_t next_seed;

static struct kernel_fixture_params
defaults(enum paged_dtype pool)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.pool = pool;
	params.v_dim = 48;
	params.k_scale = pool == PAGED_I8 ? NULL : k_scale;
	params.v_scale = pool == PAGED_I8 ? NULL : v_scale;
	return params;
}

/* The kernel that the library chooses for a pool of these dims and dtypes. */
static const char *
chosen_kernel(const struct kernel_fixture_params *params)
{
	const struct layout_params pool = { .k_dim = params->k_dim, .v_dim = params->v_dim, .dtype = params->pool };
	struct cuda_choice choices[CUDA_N_PARTS];
	struct paged_error error;

	cr_assert_eq(cuda_choose(&pool, params->q, 163 << 10, choices, &error), PAGED_OK, "%s", error.text);
	cr_assert_null(choices[CUDA_PREFILL].kernel);
	return choices[CUDA_DECODE].kernel;
}

/* Choose a kernel; tensor cores take 16-bit queries. */
static struct cuda_attention_options
choose_kernel(struct kernel_fixture_params *params, bool tensor_cores)
{
	static const char *const simt[] = { "attention_simt_128", "attention_simt_256", "attention_simt_576" };
	uint32_t dim = params->k_dim > params->v_dim ? params->k_dim : params->v_dim;
	struct cuda_attention_options options = { .n_blocks = 1 + (uint32_t)(next_seed % 5), .seed = next_seed };

	params->q = next_seed++ % 2 ? PAGED_F16 : PAGED_BF16;
	params->weights = PAGED_DTYPE_NONE;
	if (!tensor_cores) {
		options.kernel = simt[dim <= 128 ? 0 : dim <= 256 ? 1 : 2];
		return options;
	}
	params->weights = params->pool == PAGED_I8 ? PAGED_BF16 : PAGED_F16;
	options.kernel = chosen_kernel(params);
	options.max_tile_q_rows = CUDA_MAX_TILE_Q_ROWS;
	return options;
}

static void
kernel_check(struct kernel_fixture_params params, bool tensor_cores)
{
	struct cuda_attention_options options = choose_kernel(&params, tensor_cores);
	struct kernel_fixture fixture;
	char what[256];
	bool good;

	kernel_fixture_create(&fixture, &params);
	cuda_fixture_attend(&fixture, &options);
	good = kernel_fixture_check(&fixture, what, sizeof(what));
	kernel_fixture_destroy(&fixture);
	cr_assert(good, "%s, order %" PRIu64 ", %u/%u heads, dims %u %u, page size %u, kv_len %u, pool %s, out %s: %s",
		  options.kernel, options.seed, params.q_heads, params.kv_heads, params.k_dim, params.v_dim,
		  params.page_size, params.rows[0].kv_len, paged_dtype_name(params.pool), paged_dtype_name(params.out),
		  what);
}

static void
simt_and_tensor_core_check(const struct kernel_fixture_params *params)
{
	kernel_check(*params, false);
	if (params->k_dim % 16 == 0 && params->v_dim % 16 == 0 && params->k_dim <= 256 && params->v_dim <= 256)
		kernel_check(*params, true);
}

Test(cuda_attention_quantised, decode_lengths)
{
	static const uint32_t lengths[] = { 0, 1, 15, 16, 33, 127, 128, 257, 511, 640 }, page_sizes[] = { 1, 3, 64 };

	for (size_t i = 0; i < COUNT(pools) * COUNT(page_sizes); i++) {
		struct kernel_fixture_params params = defaults(pools[i % 3]);

		params.page_size = page_sizes[i / 3];
		params.n_rows = COUNT(lengths);
		for (uint32_t r = 0; r < params.n_rows; r++)
			params.rows[r] = (struct kernel_fixture_row){
				.id = r, .kv_len = lengths[r], .q_len = 1, .q_base = (int64_t)lengths[r] - 1
			};
		simt_and_tensor_core_check(&params);
	}
}

Test(cuda_attention_quantised, prefill_lengths)
{
	static const struct {
		uint32_t q_len, kv_len, page_size;
	} cases[] = { { 17, 17, 16 }, { 63, 63, 1 }, { 33, 129, 3 }, { 20, 513, 16 }, { 130, 130, 64 } };

	for (size_t i = 0; i < COUNT(cases) * COUNT(pools); i++) {
		struct kernel_fixture_params params = defaults(pools[i % 3]);

		params.causal = i % 2;
		params.page_size = cases[i / 3].page_size;
		params.rows[0] =
			(struct kernel_fixture_row){ .kv_len = cases[i / 3].kv_len,
						     .q_len = cases[i / 3].q_len,
						     .q_base = (int64_t)cases[i / 3].kv_len - cases[i / 3].q_len };
		simt_and_tensor_core_check(&params);
	}
}

/* More tiles than stages, of more than 16 q_rows: what was unpacked of a tile is overwritten. */
Test(cuda_attention_quantised, wide_tiles)
{
	static const uint32_t dims[] = { 64, 128, 256 };

	for (size_t i = 0; i < COUNT(dims) * COUNT(pools) * 2; i++) {
		struct kernel_fixture_params params = defaults(pools[i % 3]);

		params.k_dim = params.v_dim = dims[i / 3 % 3];
		params.scale = 1 / sqrtf((float)params.k_dim);
		params.kv_heads = 1;
		params.q_heads = 2;
		params.causal = i / 9;
		params.rows[0] = (struct kernel_fixture_row){ .kv_len = 371, .q_len = 41, .q_base = 330 };
		kernel_check(params, true);
	}
}

Test(cuda_attention_quantised, head_ratios)
{
	static const uint32_t heads[][2] = { { 1, 1 }, { 3, 1 }, { 9, 3 }, { 4, 4 }, { 16, 2 }, { 71, 1 } };

	for (size_t i = 0; i < COUNT(heads) * COUNT(pools); i++) {
		struct kernel_fixture_params params = defaults(pools[i % 3]);

		params.n_rows = 2;
		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 150, .q_len = 1, .q_base = 149 };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 77, .q_len = 7, .q_base = 70 };
		params.q_heads = heads[i / 3][0];
		params.kv_heads = heads[i / 3][1];
		simt_and_tensor_core_check(&params);
	}
}

Test(cuda_attention_quantised, dims_and_strides)
{
	static const struct {
		uint32_t k, v;
		bool v_in_k;
	} dims[] = { { 16, 16, false },   { 64, 64, false },  { 128, 128, false },
		     { 112, 128, false }, { 256, 80, false }, { 240, 256, false },
		     { 48, 32, true },    { 19, 33, false },  { 576, 512, true } };
	static const enum paged_dtype out[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };

	for (size_t i = 0; i < COUNT(dims) * COUNT(pools); i++) {
		struct kernel_fixture_params params = defaults(pools[i % 3]);

		params.n_rows = 2;
		params.kv_heads = 1;
		params.q_heads = 2;
		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 140, .q_len = 1, .q_base = 139 };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 70, .q_len = 40, .q_base = 30 };
		params.k_dim = dims[i / 3].k;
		params.v_dim = dims[i / 3].v;
		params.v_in_k = dims[i / 3].v_in_k;
		if (params.v_in_k)
			params.v_scale = NULL;
		params.padding = (uint32_t)i % 4;
		params.out = out[i / 3 % 3];
		params.scale = 1 / sqrtf((float)params.k_dim);
		simt_and_tensor_core_check(&params);
	}
}

/* Set all bits: NaN in every plane except i8's elements. */
static void
token_fill_nan(const struct kernel_fixture *fixture, unsigned int plane, uint32_t token)
{
	const struct layout_plane *to = &fixture->layout.plane[plane];

	for (uint32_t h = 0; h < fixture->params.kv_heads; h++)
		memset(kernel_fixture_token(fixture, plane, token, h), 0xff, to->token_stride);
}

Test(cuda_attention_quantised, masked_nan_tokens_have_no_effect)
{
	static const uint32_t tokens[] = { 40, 64, 69, 99 };

	for (size_t i = 0; i < COUNT(tokens) * COUNT(pools) * 4; i++) {
		struct kernel_fixture_params params = defaults(pools[i % 3]);
		bool tensor_cores = i / 3 % 2, values = i / 6 % 2;
		uint32_t token = tokens[i / 12];
		struct cuda_attention_options options;
		struct kernel_fixture fixture;

		params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_len = 70, .q_base = 30 };
		options = choose_kernel(&params, tensor_cores);
		kernel_fixture_create(&fixture, &params);
		token_fill_nan(&fixture, (params.pool == PAGED_I8 ? LAYOUT_K_SCALE : LAYOUT_K) + values, token);
		cuda_fixture_attend(&fixture, &options);
		for (uint32_t q = 0; q < 70; q++)
			for (uint32_t h = 0; h < params.q_heads; h++)
				for (uint32_t d = 0; d < params.v_dim; d += 5)
					cr_assert_eq(isnan(kernel_tensor_element(&fixture.out, q, h, d)) != 0,
						     30 + q >= token,
						     "%s, %s: row %u attends keys up to %u, token %u is NaN",
						     options.kernel, paged_dtype_name(params.pool), q, 30 + q, token);
		kernel_fixture_destroy(&fixture);
	}
}

/* Head 0 has the argument as its exponent, each head 1 less than the one before, every third element 20 less. */
static int
magnitude_exponent(const void *argument, uint64_t query, uint32_t head, uint32_t dim)
{
	const int *exponent = argument;

	(void)query;
	return *exponent - (int)head - (dim % 3 == 1 ? 20 : 0);
}

/* Queries of bf16 as large and as small as they may be; 2^-128 makes subnormal numbers. */
Test(cuda_attention_quantised, bf16_queries_of_any_magnitude)
{
	static const int exponents[] = { -128, -120, -112, -100, -14, 17, 100, 120 };
	static const uint32_t dims[] = { 64, 128, 256 };

	for (size_t i = 0; i < COUNT(exponents) * COUNT(pools); i++) {
		struct kernel_fixture_params params = defaults(pools[i % 3]);
		int exponent = exponents[i / 3];
		struct cuda_attention_options options;
		struct kernel_fixture fixture;
		char what[256];

		params.rows[0] = (struct kernel_fixture_row){ .kv_len = 150, .q_len = i % 2 ? 1 : 40, .q_base = 110 };
		params.k_dim = dims[i % COUNT(dims)] - 16 * (uint32_t)(i % 2);
		params.scale = ldexpf(1, exponent < -120 ? 120 : -exponent) / 8;
		next_seed |= 1;
		next_seed++; /* even: bf16 */
		options = choose_kernel(&params, true);
		cr_assert_eq(params.q, PAGED_BF16);
		kernel_fixture_create(&fixture, &params);
		kernel_fixture_scale_queries(&fixture, magnitude_exponent, &exponent);
		cuda_fixture_attend(&fixture, &options);
		cr_assert(kernel_fixture_check(&fixture, what, sizeof(what)), "%s, queries of 2^%d: %s", options.kernel,
			  exponent, what);
		kernel_fixture_destroy(&fixture);
	}
}

/* A NaN or an infinity in a query is in its results, and in no other's. */
Test(cuda_attention_quantised, non_finite_queries)
{
	static const float special[] = { NAN, INFINITY, -INFINITY };

	for (size_t i = 0; i < COUNT(special) * COUNT(pools) * 2; i++) {
		struct kernel_fixture_params params = defaults(pools[i % 3]);
		struct cuda_attention_options options;
		struct kernel_fixture fixture;

		params.rows[0] = (struct kernel_fixture_row){ .kv_len = 100, .q_len = i % 2 ? 2 : 40, .q_base = 60 };
		options = choose_kernel(&params, true);
		kernel_fixture_create(&fixture, &params);
		reference_store((uint8_t *)fixture.q.data + fixture.q.token_stride + 2 * fixture.q.head_stride,
				params.q, 7, special[i / 6]);
		cuda_fixture_attend(&fixture, &options);
		for (uint64_t q = 0; q < fixture.total_q; q++)
			for (uint32_t h = 0; h < params.q_heads; h++)
				cr_assert_eq(isnan(kernel_tensor_element(&fixture.out, q, h, 0)) != 0, q == 1 && h == 2,
					     "%s, %s queries, %g: query %u, head %u is %g", options.kernel,
					     paged_dtype_name(params.q), (double)special[i / 6], (unsigned int)q, h,
					     (double)kernel_tensor_element(&fixture.out, q, h, 0));
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

/* The bits of a row do not depend on the order of blocks, the grid, the placement of pages, or the batch. */
Test(cuda_attention_quantised, batch_invariance)
{
	for (size_t i = 0; i < COUNT(pools); i++) {
		struct kernel_fixture_params params = defaults(pools[i]);
		struct cuda_attention_options options = choose_kernel(&params, true);
		struct kernel_fixture all, other;

		params.n_rows = 2;
		params.rows[0] = (struct kernel_fixture_row){ .id = 0, .kv_len = 300, .q_len = 1, .q_base = 299 };
		params.rows[1] = (struct kernel_fixture_row){ .id = 1, .kv_len = 200, .q_len = 17, .q_base = 183 };
		all = cuda_fixture_create_and_attend(&params, &options);
		for (uint32_t r = 0; r < 2; r++) {
			struct kernel_fixture_params alone = params;

			alone.placement = r;
			alone.page_size = 1u << (r * 3 + 1);
			alone.n_rows = 1;
			alone.rows[0] = params.rows[r];
			options.seed = r;
			options.n_blocks = 1 + r * 3;
			other = cuda_fixture_create_and_attend(&alone, &options);
			cr_assert(kernel_fixture_equal(&all, all.rows[r].q_start, &other, 0, other.total_q),
				  "%s, row %u", paged_dtype_name(params.pool), r);
			kernel_fixture_destroy(&other);
		}
		kernel_fixture_destroy(&all);
	}
}
