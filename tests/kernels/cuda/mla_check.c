/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/cuda/mla_check.h"

#include <criterion/criterion.h>
#include <math.h>

#include "tests/support/reference.h"

struct kernel_fixture_params
mla_defaults(uint32_t q_heads)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.q_heads = q_heads;
	params.kv_heads = 1;
	params.k_dim = 48;
	params.v_in_k = true;
	params.pool = params.q = params.weights = PAGED_BF16;
	params.scale = 0.15f;
	return params;
}

void
mla_pool_dtype(struct kernel_fixture_params *params, enum paged_dtype dtype)
{
	params->pool = params->q = params->weights = dtype;
}

/* The queries of the fixture's row are rows here. */
void
mla_many_rows_check(struct kernel_fixture_params *params, uint32_t n_rows, const struct cuda_attention_options *options)
{
	static struct kernel_row rows[200];
	struct kernel_fixture fixture;
	char what[256];

	cr_assert(n_rows <= sizeof(rows) / sizeof(rows[0]));
	params->causal = true;
	params->rows[0].q_len = n_rows - n_rows / 5;
	kernel_fixture_create(&fixture, params);
	for (uint32_t r = 0, q = 0; r < n_rows; r++) {
		rows[r] = fixture.rows[0];
		rows[r].q_start = q;
		rows[r].q_base += q;
		rows[r].q_len = r % 5 != 4;
		q += r % 5 != 4;
	}
	cuda_attention_run(&(struct attention_args){ .pages = { &fixture.layout, fixture.pool, KERNEL_FIXTURE_LAYER },
						     .rows = rows,
						     .n_rows = n_rows,
						     .q = fixture.q,
						     .out = fixture.out,
						     .scale = params->scale,
						     .causal = true,
						     .lse = fixture.lse,
						     .max_score = fixture.max_score },
			   fixture.total_q, options);
	cr_assert(kernel_fixture_check(&fixture, what, sizeof(what)), "%s, %u rows: %s", options->kernel, n_rows, what);
	kernel_fixture_destroy(&fixture);
}

void
mla_minus_infinity_check(struct kernel_fixture_params *params, uint32_t begin, uint32_t end,
			 const struct cuda_attention_options *options)
{
	bool all = end - begin == 300;
	struct kernel_fixture fixture;

	params->rows[0] = (struct kernel_fixture_row){ .kv_len = 300, .q_len = 1, .q_base = 299 };
	kernel_fixture_create(&fixture, params);
	for (uint32_t h = 0; h < params->q_heads; h++)
		reference_store((uint8_t *)fixture.q.data + h * fixture.q.head_stride, params->q, 0, 1);
	for (uint32_t t = begin; t < end; t++)
		reference_store(kernel_fixture_token(&fixture, LAYOUT_K, t, 0), params->pool, 0, -INFINITY);
	cuda_fixture_attend(&fixture, options);
	for (uint32_t h = 0; h < params->q_heads; h++) {
		cr_assert(kernel_fixture_all_nan(&fixture, 0, h, false));
		cr_assert_eq(fixture.lse[h] == -INFINITY, all);
		cr_assert_eq(fixture.max_score[h] == -INFINITY, all);
		for (uint32_t d = 0; d < params->v_dim; d++)
			cr_assert(all ? kernel_tensor_element(&fixture.out, 0, h, d) == 0
				      : isfinite(kernel_tensor_element(&fixture.out, 0, h, d)));
	}
	kernel_fixture_destroy(&fixture);
}

void
mla_masked_nan_check(const struct kernel_fixture_params *params, uint32_t token, uint32_t dim,
		     const struct cuda_attention_options *options)
{
	const struct kernel_fixture_row *row = &params->rows[0];
	struct kernel_fixture fixture;

	kernel_fixture_create(&fixture, params);
	reference_store(kernel_fixture_token(&fixture, LAYOUT_K, token, 0), params->pool, dim, NAN);
	cuda_fixture_attend(&fixture, options);
	for (uint32_t q = 0; q < row->q_len; q++)
		for (uint32_t h = 0; h < params->q_heads; h++)
			cr_assert(kernel_fixture_all_nan(&fixture, q, h, row->q_base + q >= (int64_t)token),
				  "%s, token %u, query %u", options->kernel, token, q);
	kernel_fixture_destroy(&fixture);
}
