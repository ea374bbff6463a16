/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over random batches and pools, by the kernel that a GPU would run
 * and by the CPU kernel, against float64.  Pool contents outside the rows and
 * before their kv_first are NaN.  PAGED_TEST_SEED selects other cases.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/host/choose_kernel.h"
#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

#define N_CASES 48u
#define MAX_HEADS 64u
#define MAX_SCORES 20000u /* of all rows of a case */

/* The random numbers of a case, one after the other. */
struct draw {
	uint64_t seed, n;
};

static float sinks[MAX_HEADS], k_scale[MAX_HEADS], v_scale[MAX_HEADS];

static uint32_t
draw_below(struct draw *draw, uint32_t n)
{
	return (uint32_t)(random_bits(draw->seed, draw->n++) % n);
}

static bool
draw_one_in(struct draw *draw, uint32_t n)
{
	return draw_below(draw, n) == 0;
}

static void
draw_dims(struct draw *draw, struct kernel_fixture_params *params)
{
	uint32_t unit = draw_one_in(draw, 3)   ? 1
			: draw_one_in(draw, 2) ? 8
					       : 16,
		 max = draw_one_in(draw, 4) ? 512 : 128;

	params->k_dim = unit * (1 + draw_below(draw, max / unit));
	params->v_dim = unit * (1 + draw_below(draw, max / unit));
	params->v_in_k = draw_one_in(draw, 3);
	if (params->v_in_k && params->v_dim > params->k_dim)
		params->v_dim = params->k_dim;
	params->kv_heads = 1 + draw_below(draw, 3);
	params->q_heads = params->kv_heads * (1 + draw_below(draw, draw_one_in(draw, 3) ? 20 : 4));
}

static void
draw_scales(struct draw *draw, struct kernel_fixture_params *params)
{
	for (uint32_t h = 0; h < MAX_HEADS; h++) {
		sinks[h] = draw_one_in(draw, 5) ? -INFINITY : (float)draw_below(draw, 200) / 20 - 5;
		/* Values stay below 1, V in K too. */
		k_scale[h] = (float)(1 + draw_below(draw, 1000)) / 1600;
		v_scale[h] = (float)(1 + draw_below(draw, 1000)) / 1001;
	}
	params->sink = draw_one_in(draw, 3) ? sinks : NULL;
	params->lse_without_sink = draw_one_in(draw, 2);
	if (params->pool != PAGED_E4M3 && params->pool != PAGED_E5M2)
		return;
	params->k_scale = draw_one_in(draw, 4) ? NULL : k_scale;
	params->v_scale = draw_one_in(draw, 4) || params->v_in_k ? NULL : v_scale;
}

/* Rows without queries or keys, prefill chunks, decode, and queries before the first key or after the last one. */
static void
draw_rows(struct draw *draw, struct kernel_fixture_params *params)
{
	uint32_t left = MAX_SCORES / params->q_heads;

	params->n_rows = 1 + draw_below(draw, 5);
	for (uint32_t r = 0; r < params->n_rows; r++) {
		struct kernel_fixture_row *row = &params->rows[r];

		row->id = r;
		row->kv_len = draw_one_in(draw, 8) ? 0 : 1 + draw_below(draw, draw_one_in(draw, 5) ? 700 : 200);
		row->q_len = draw_one_in(draw, 8) ? 0 : draw_one_in(draw, 2) ? 1 : 1 + draw_below(draw, 70);
		while (row->q_len > 1 && row->q_len * row->kv_len > left / params->n_rows)
			row->q_len /= 2;
		row->kv_first = draw_one_in(draw, 2) ? draw_below(draw, row->kv_len + 1) : 0;
		row->q_base =
			draw_one_in(draw, 5) ? (int64_t)draw_below(draw, 400) - 100 : (int64_t)row->kv_len - row->q_len;
	}
}

static struct kernel_fixture_params
draw_fixture_params(struct draw *draw)
{
	static const enum paged_dtype pools[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	struct kernel_fixture_params params = { .seed = draw->seed,
						.placement = draw->seed,
						.pool = pools[draw_below(draw, 6)] };

	params.q =
		paged_dtype_is_tensor(params.pool) && !draw_one_in(draw, 3) ? params.pool : pools[draw_below(draw, 3)];
	params.out = draw_one_in(draw, 2) ? PAGED_F32 : PAGED_BF16;
	params.page_size = 1u << draw_below(draw, 9);
	params.page_size -= params.page_size > 2 && draw_one_in(draw, 3);
	params.padding = draw_one_in(draw, 2) ? 0 : draw_below(draw, 9);
	params.causal = !draw_one_in(draw, 3);
	draw_dims(draw, &params);
	params.scale = 1 / sqrtf((float)params.k_dim);
	draw_scales(draw, &params);
	draw_rows(draw, &params);
	return params;
}

static void
fixture_expect_correct(const struct kernel_fixture *fixture, const char *kernel, unsigned int number)
{
	const struct kernel_fixture_params *p = &fixture->params;
	char what[256] = "";

	cr_expect(kernel_fixture_check(fixture, what, sizeof(what)),
		  "seed %" PRIu64 ", case %u, %s: pool %s, q %s, %u/%u heads, dims %u %u%s, page size %u, %u rows: %s",
		  test_seed(), number, kernel, paged_dtype_name(p->pool), paged_dtype_name(p->q), p->q_heads,
		  p->kv_heads, p->k_dim, p->v_dim, p->v_in_k ? " in K" : "", p->page_size, p->n_rows, what);
}

/* The kernels that cuda_choose() gives for a random limit of shared memory. */
static struct cuda_attention_options
draw_kernel(struct draw *draw, struct kernel_fixture_params *params)
{
	const struct layout_params pool = {
		.k_dim = params->k_dim, .v_dim = params->v_dim, .v_in_k = params->v_in_k, .dtype = params->pool
	};
	struct cuda_choice choices[CUDA_N_PARTS];
	struct paged_error error;

	cr_assert_eq(cuda_choose(&pool, params->q, draw_one_in(draw, 3) ? 99 << 10 : 163 << 10, choices, &error),
		     PAGED_OK, "%s", error.text);
	/* The dtype to which tensor cores round weights. */
	if (strstr(choices[CUDA_DECODE].kernel, "simt") == NULL)
		params->weights = paged_dtype_is_tensor(params->pool) ? params->pool
				  : params->pool == PAGED_I8          ? PAGED_BF16
								      : PAGED_F16;
	return (struct cuda_attention_options){ .kernel = choices[CUDA_DECODE].kernel,
						.prefill = choices[CUDA_PREFILL].kernel,
						.max_tile_q_rows = choices[CUDA_DECODE].tile_q_rows,
						.n_blocks = 1 + draw_below(draw, 7),
						.seed = draw_below(draw, 1000),
						.target_work_items =
							draw_one_in(draw, 3) ? 1 + draw_below(draw, 60) : 0 };
}

Test(cuda_random, random_batches_match_float64)
{
	for (unsigned int i = 0; i < N_CASES; i++) {
		struct draw draw = { .seed = random_bits(test_seed(), i) };
		struct kernel_fixture_params params = draw_fixture_params(&draw);
		struct kernel_team *team = kernel_test_team(1 + i % 2, kernel_isa_best());
		struct cuda_attention_options options = draw_kernel(&draw, &params);
		struct kernel_fixture fixture;

		kernel_fixture_create(&fixture, &params);
		cuda_fixture_attend(&fixture, &options);
		fixture_expect_correct(&fixture, options.kernel, i);
		fixture.params.weights = PAGED_DTYPE_NONE;
		kernel_fixture_attend(&fixture, team);
		fixture_expect_correct(&fixture, kernel_isa_name(kernel_isa_best()), i);
		kernel_fixture_destroy(&fixture);
		kernel_team_destroy(team);
	}
}
