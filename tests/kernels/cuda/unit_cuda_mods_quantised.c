/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores over pools of e4m3, e5m2 and i8, with mods compiled into it, block masks and sinks, on the
 * host, against float64.  A score mod must get the true score: neither the scale of a token or a KV head nor the power
 * of two that a q_row of bf16 is multiplied by may be missing from it.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/kernels/cuda/mods_check.h"
#include "tests/support/kernel_test.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct byte_kernel {
	const char *name;
	enum paged_dtype pool, q;
	uint32_t dim;
};

static const struct byte_kernel window_kernels[] = {
	{ "attention_bytes_e4m3_f16_64_window", PAGED_E4M3, PAGED_F16, 48 },
	{ "attention_bytes_e5m2_f16_64_window", PAGED_E5M2, PAGED_F16, 64 },
	{ "attention_bytes_i8_f16_64_window", PAGED_I8, PAGED_F16, 32 },
	{ "attention_bytes_e4m3_bf16_64_window", PAGED_E4M3, PAGED_BF16, 64 },
	{ "attention_bytes_e5m2_bf16_64_window", PAGED_E5M2, PAGED_BF16, 16 },
	{ "attention_bytes_i8_bf16_64_window", PAGED_I8, PAGED_BF16, 64 },
	{ "attention_bytes_e4m3_bf16_128_window", PAGED_E4M3, PAGED_BF16, 112 },
	{ "attention_bytes_i8_bf16_256_window", PAGED_I8, PAGED_BF16, 144 },
};

static const struct byte_kernel document_kernels[] = {
	{ "attention_bytes_e5m2_f16_64_document", PAGED_E5M2, PAGED_F16, 32 },
	{ "attention_bytes_e4m3_bf16_64_document", PAGED_E4M3, PAGED_BF16, 48 },
	{ "attention_bytes_i8_bf16_64_document", PAGED_I8, PAGED_BF16, 64 },
};

static const float sinks[MODS_CHECK_HEADS] = { 1.5f, -INFINITY, -2, 0.25f };
static const float k_scale[] = { 0.5f, 1.7f }, v_scale[] = { 0.3f, 1 }; /* of two KV heads */

/* Rows of narrow and of wide tiles, with sinks. */
static struct kernel_fixture_params
params_of(const struct byte_kernel *kernel)
{
	struct kernel_fixture_params params = mods_check_params();

	params.pool = kernel->pool;
	params.q = kernel->q;
	params.weights = kernel->pool == PAGED_I8 ? PAGED_BF16 : PAGED_F16;
	params.k_dim = params.v_dim = kernel->dim;
	params.scale = 1 / sqrtf((float)kernel->dim);
	params.sink = sinks;
	params.lse_without_sink = kernel->q == PAGED_F16;
	params.k_scale = kernel->pool == PAGED_I8 ? NULL : k_scale;
	params.v_scale = kernel->pool == PAGED_I8 ? NULL : v_scale;
	return params;
}

static struct cuda_attention_options
options_of(const struct byte_kernel *kernel, const void *mod, size_t mod_size)
{
	return (struct cuda_attention_options){
		.kernel = kernel->name, .max_tile_q_rows = CUDA_MAX_TILE_Q_ROWS, .mod = mod, .mod_size = mod_size
	};
}

/* Call check() with a kernel's params, whose mods are bound, and options. */
typedef void (*check_fn)(struct kernel_fixture_params *params, struct cuda_attention_options options, const char *what);

static void
window_check(const struct byte_kernel *kernel, int32_t window, float cap, check_fn check)
{
	struct kernel_fixture_params params = params_of(kernel);
	struct window_args args = { .window = window, .cap = cap };
	struct mod_array names[] = { { .name = "window", .dtype = MOD_I32, .data = &args.window },
				     { .name = "cap", .dtype = MOD_F32, .data = &args.cap } };
	struct mod_fixture mask = mod_fixture_open(MOD_MASK, "kv_idx <= q_idx && q_idx - kv_idx < window", names, 2);
	struct mod_fixture score = mod_fixture_open(MOD_SCORE, "cap * tanh(score / cap)", names, 2);

	params.mods.mask = mask.binding;
	params.mods.score = score.binding;
	check(&params, options_of(kernel, &args, sizeof(args)), kernel->name);
	mod_fixture_close(&mask);
	mod_fixture_close(&score);
}

static void
document_check(const struct byte_kernel *kernel, check_fn check)
{
	static const float slope[MODS_CHECK_HEADS] = { 0.02f, 0.04f, 0.06f, 0.08f };
	struct kernel_fixture_params params = params_of(kernel);
	struct document_mods mods;

	document_mods_open(&mods, &params, MODS_CHECK_DOCS, slope);
	check(&params, options_of(kernel, &mods.args, sizeof(mods.args)), kernel->name);
	cr_assert_eq(mods.fault, 0);
	document_mods_close(&mods);
}

Test(cuda_mods_quantised, window_and_soft_cap)
{
	for (size_t i = 0; i < COUNT(window_kernels); i++)
		window_check(&window_kernels[i], i % 2 ? 1000 : 37, 1.5f, mods_check);
}

Test(cuda_mods_quantised, document_mask_and_alibi)
{
	for (size_t i = 0; i < COUNT(document_kernels); i++)
		document_check(&document_kernels[i], mods_check);
}

/* A tile's q_rows are of about 2^100, 2^-100 and 1, in turn. */
static int
spread_exponent(const void *argument, uint64_t query, uint32_t head, uint32_t dim)
{
	static const int exponents[] = { 100, -100, 0 };

	(void)argument, (void)dim;
	return exponents[(query + head) % COUNT(exponents)];
}

/*
 * With a scale of 2^-100 the scores of the largest q_rows are ordinary, and those of the others are 0; with one of
 * 2^100 those of the smallest are ordinary, and the others are infinite: only a soft cap makes results of them.
 */
static void
spread_check(struct kernel_fixture_params *params, struct cuda_attention_options options, const char *what)
{
	static const uint32_t q_blocks[] = { 128, 7 };
	struct kernel_fixture plain, masked;
	char where[256];

	kernel_fixture_create(&plain, params);
	kernel_fixture_scale_queries(&plain, spread_exponent, NULL);
	cuda_fixture_attend(&plain, &options);
	cr_assert(kernel_fixture_check(&plain, where, sizeof(where)), "%s, scale %g: %s", what, (double)params->scale,
		  where);
	for (uint32_t i = 0; i < COUNT(q_blocks); i++) {
		struct block_mask *blocks = mods_check_blocks(params, params->mods.mask, 1, q_blocks[i], 32);

		options.blocks = blocks;
		options.seed = i + 1;
		kernel_fixture_create(&masked, params);
		kernel_fixture_scale_queries(&masked, spread_exponent, NULL);
		cuda_fixture_attend(&masked, &options);
		cr_assert(kernel_fixture_equal(&plain, 0, &masked, 0, plain.total_q), "%s, scale %g: q_blocks of %u",
			  what, (double)params->scale, q_blocks[i]);
		kernel_fixture_destroy(&masked);
		block_mask_destroy(blocks);
	}
	kernel_fixture_destroy(&plain);
}

static void
spread_check_largest(struct kernel_fixture_params *params, struct cuda_attention_options options, const char *what)
{
	params->scale = ldexpf(params->scale, -100);
	spread_check(params, options, what);
}

static void
spread_check_smallest(struct kernel_fixture_params *params, struct cuda_attention_options options, const char *what)
{
	params->scale = ldexpf(params->scale, 100);
	spread_check(params, options, what);
}

Test(cuda_mods_quantised, soft_cap_of_q_rows_of_any_magnitude)
{
	for (size_t i = 0; i < COUNT(window_kernels); i++)
		if (window_kernels[i].q == PAGED_BF16) {
			window_check(&window_kernels[i], 300, 1.5f, spread_check_largest);
			window_check(&window_kernels[i], 300, 1.5f, spread_check_smallest);
		}
}

Test(cuda_mods_quantised, alibi_of_q_rows_of_any_magnitude)
{
	for (size_t i = 0; i < COUNT(document_kernels); i++)
		if (document_kernels[i].q == PAGED_BF16)
			document_check(&document_kernels[i], spread_check_largest);
}
