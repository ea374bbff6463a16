/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/cpu/attention_mod_fixture.h"

#include <inttypes.h>

#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

void
mod_arrays_fill(struct mod_arrays *arrays, uint64_t seed)
{
	for (uint32_t i = 0; i < MOD_ARRAYS_TOKENS; i++)
		arrays->doc[i] = (int32_t)(i / (40 + seed % 300));
	for (uint32_t i = 0; i < 64; i++)
		arrays->tree[i] = (int32_t)random_bits(seed, i);
	for (uint32_t i = 0; i < MOD_ARRAYS_HEADS; i++)
		arrays->slope[i] = random_float(seed, 100 + i, 0.05f);
	for (uint32_t i = 0; i < 64 * 64; i++)
		arrays->bias[i / 64][i % 64] = random_float(seed, 200 + i, 2);
	arrays->list[0] = (struct mod_array)MOD_1D("doc", MOD_I32, arrays->doc);
	arrays->list[1] = (struct mod_array)MOD_1D("tree", MOD_I32, arrays->tree);
	arrays->list[2] = (struct mod_array)MOD_1D("slope", MOD_F32, arrays->slope);
	arrays->list[3] = (struct mod_array){
		.name = "bias", .dtype = MOD_F32, .n_dims = 2, .extents = { 64, 64 }, .data = arrays->bias
	};
}

struct mod_fixture
mod_arrays_bind(enum mod_kind kind, const char *text, const struct mod_arrays *arrays)
{
	return mod_fixture_open(kind, text, arrays->list, COUNT(arrays->list));
}

struct kernel_fixture_params
mod_chunk_params(void)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.q_heads = 6;
	params.k_dim = 24;
	params.v_dim = 40;
	params.pool = PAGED_BF16;
	params.causal = false;
	params.rows[0] = (struct kernel_fixture_row){ .id = 5, .kv_len = 1100, .q_len = 60, .q_base = 1040 };
	return params;
}

void
assert_outputs_equal(const struct kernel_fixture *a, uint64_t a_row, const struct kernel_fixture *b, uint64_t b_row,
		     uint64_t n, const char *what)
{
	cr_assert(kernel_fixture_equal(a, a_row, b, b_row, n), "seed %" PRIu64 ": outputs differ: %s", a->params.seed,
		  what);
}
