/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows whose keys begin at kv_first.  The fixture has NaN in all tokens before it, and UINT32_MAX in the page table
 * entries wholly before it.
 */
#include <inttypes.h>
#include <math.h>

#include "tests/kernels/cpu/attention_mod_fixture.h"
#include "tests/support/kernel_test.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
params_check(const struct kernel_fixture_params *params, uint32_t n_threads, enum kernel_isa isa)
{
	struct kernel_fixture fixture;
	char what[256];

	kernel_fixture_run(&fixture, params, n_threads, isa);
	cr_assert(kernel_fixture_check(&fixture, what, sizeof(what)),
		  "seed %" PRIu64 ", kv_first %u, page size %u, pool %s, q %s, %u threads: %s", params->seed,
		  params->rows[0].kv_first, params->page_size, paged_dtype_name(params->pool),
		  paged_dtype_name(params->q), n_threads, what);
	kernel_fixture_destroy(&fixture);
}

/* At and next to every boundary of tiles and KV chunks, for decode and prefill in one batch. */
KERNEL_TEST(attention_kv_first, boundaries)
{
	static const uint32_t firsts[] = { 1, 15, 16, 17, 63, 64, 65, 448, 511, 512, 513, 576, 1023, 1024, 1029, 1030 };
	static const uint32_t page_sizes[] = { 16, 3, 64, 1 };
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.n_rows = 3;
	for (size_t i = 0; i < COUNT(firsts); i++) {
		params.page_size = page_sizes[i % COUNT(page_sizes)];
		params.causal = i % 3 != 0;
		params.rows[0] = (struct kernel_fixture_row){ 1, 1030, 1, 1029, firsts[i] };
		params.rows[1] = (struct kernel_fixture_row){ 2, 1030, 70, 960, firsts[COUNT(firsts) - 1 - i] };
		params.rows[2] = (struct kernel_fixture_row){ 3, 200, 9, 191, firsts[i] % 201 };
		params_check(&params, 1, isa);
		params_check(&params, 4, isa);
	}
}

/* Queries before kv_first see nothing: output 0, LSE and maximum -inf. */
KERNEL_TEST(attention_kv_first, queries_before_it)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	for (uint32_t first = 0; first <= 130; first += 13) {
		params.rows[0] = (struct kernel_fixture_row){ 1, 130, 130, 0, first };
		params_check(&params, 2, isa);
		params.rows[0] = (struct kernel_fixture_row){ 1, 130, 3, first / 2, first };
		params_check(&params, 2, isa);
	}
}

KERNEL_TEST(attention_kv_first, dtypes_and_dims)
{
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	static const struct {
		uint32_t k, v;
		bool v_in_k;
	} dims[] = { { 3, 7, false }, { 64, 128, false }, { 121, 94, false }, { 40, 9, true }, { 192, 128, false } };
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.n_rows = 2;
	params.rows[0] = (struct kernel_fixture_row){ 1, 170, 1, 169, 77 };
	params.rows[1] = (struct kernel_fixture_row){ 2, 150, 41, 109, 70 };
	for (size_t i = 0; i < COUNT(dims); i++)
		for (size_t t = 0; t < COUNT(dtypes); t++) {
			params.k_dim = dims[i].k;
			params.v_dim = dims[i].v;
			params.v_in_k = dims[i].v_in_k;
			params.pool = dtypes[t];
			params.q = params.out = (i + t) % 2 ? PAGED_BF16 : PAGED_F32;
			params.scale = t % 3 == 2 ? 0 : 1 / sqrtf((float)dims[i].k);
			params_check(&params, 1, isa);
		}
}

/* The same bits as with a mask mod that hides the keys before kv_first, and with other pages and threads. */
static void
mask_mod_check(struct kernel_fixture_params params, enum kernel_isa isa)
{
	static const struct kernel_fixture_row rows[] = { { 1, 1100, 1, 1099, 0 }, { 2, 1100, 60, 1040, 0 } };
	static struct mod_arrays arrays;
	struct mod_fixture mask;
	struct kernel_fixture plain, masked;
	char text[64];

	mod_arrays_fill(&arrays, params.seed);
	for (uint32_t first = 50; first < 1100; first += 262) {
		params.rows[0] = rows[0];
		params.rows[1] = rows[1];
		params.mods.mask = NULL;
		snprintf(text, sizeof(text), "kv_idx >= %u", first);
		mask = mod_arrays_bind(MOD_MASK, text, &arrays);
		params.mods.mask = mask.binding;
		kernel_fixture_run(&masked, &params, 1, isa);
		params.mods.mask = NULL;
		params.rows[0].kv_first = params.rows[1].kv_first = first;
		for (uint32_t n = 1; n <= 4; n += 3) {
			params.page_size = 13 + n;
			params.placement += n;
			kernel_fixture_run(&plain, &params, n, isa);
			assert_outputs_equal(&plain, 0, &masked, 0, plain.total_q, text);
			kernel_fixture_destroy(&plain);
		}
		kernel_fixture_destroy(&masked);
		mod_fixture_close(&mask);
	}
}

KERNEL_TEST(attention_kv_first, same_bits_as_a_mask_mod)
{
	struct kernel_fixture_params params = mod_chunk_params();

	params.n_rows = 2;
	mask_mod_check(params, isa);
	params.q = params.out = PAGED_BF16;
	mask_mod_check(params, isa);
}
