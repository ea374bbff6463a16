/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA gather kernel, run on the host: bit-identical to the CPU kernel. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define N_HEADS 3u
#define N_ROWS 4u
#define N_PAGES 12u
#define MAX_TOKENS 200u

static const enum paged_dtype pools[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
static const uint32_t page_lists[N_ROWS][4] = { { 7, 2, 11, 5 }, { 0 }, { UINT32_MAX, 2 }, { 9, 3, 1, 4 } };
static const struct kernel_row rows[N_ROWS] = {
	{ .pages = page_lists[0], .q_len = 2, .kv_len = 13 },
	{ .pages = page_lists[1], .q_start = 2 },
	{ .pages = page_lists[2], .q_start = 2, .kv_len = 7, .kv_first = 5 },
	{ .pages = page_lists[3], .q_start = 2, .q_len = 1, .kv_len = 16 },
};

struct gather_fixture {
	struct layout layout;
	uint8_t *pool;
	struct gather_args args;
	struct kernel_tensor k, v; /* the CUDA kernel's output */
	size_t k_bytes, v_bytes;
};

/* The pool holds the bits of random f32 numbers, so some elements are NaN; scales of tokens are finite. */
static void
gather_fixture_create(struct gather_fixture *fixture, uint32_t i, enum paged_dtype to)
{
	static const uint32_t dims[][2] = { { 19, 33 }, { 64, 16 }, { 8, 3 } };
	const struct layout_params params = { .n_layers = 2,
					      .n_kv_heads = N_HEADS,
					      .k_dim = dims[i % 3][0],
					      .v_dim = dims[i % 3][1],
					      .v_in_k = i % 3 == 1,
					      .dtype = pools[i % COUNT(pools)],
					      .page_size = 4,
					      .n_pages = N_PAGES };
	uint32_t padding = i % 2 ? 0 : 3;
	struct paged_error error;

	cr_assert_eq(layout_init(&fixture->layout, &params, &error), PAGED_OK);
	fixture->pool = malloc(fixture->layout.size);
	for (uint64_t at = 0; at < fixture->layout.size / 4; at++) {
		float x = random_float(i, at, 100);

		memcpy(fixture->pool + 4 * at, &x, sizeof(x));
	}
	fixture->args =
		(struct gather_args){ .pages = { &fixture->layout, fixture->pool, 1 }, .rows = rows, .n_rows = N_ROWS };
	fixture->k = kernel_tensor_create(to, MAX_TOKENS, N_HEADS, params.k_dim, padding, &fixture->k_bytes);
	fixture->args.k = kernel_tensor_create(to, MAX_TOKENS, N_HEADS, params.k_dim, padding, &fixture->k_bytes);
	fixture->v = kernel_tensor_create(to, MAX_TOKENS, N_HEADS, params.v_dim, padding, &fixture->v_bytes);
	fixture->args.v = kernel_tensor_create(to, MAX_TOKENS, N_HEADS, params.v_dim, padding, &fixture->v_bytes);
}

static void
gather_fixture_destroy(struct gather_fixture *fixture)
{
	free(fixture->pool);
	free(fixture->k.data);
	free(fixture->v.data);
	free(fixture->args.k.data);
	free(fixture->args.v.data);
}

static struct cuda_plan_head
gather_fixture_run(struct gather_fixture *fixture, uint64_t seed)
{
	const struct gather_args *args = &fixture->args;
	struct cuda_gather_params p;
	struct cuda_batch batch;
	struct cuda_plan_head head;

	cuda_batch_create(&batch, &(struct cuda_batch_params){ .rows = args->rows,
							       .n_rows = args->n_rows,
							       .page_size = 4,
							       .n_q_heads = N_HEADS,
							       .n_kv_heads = N_HEADS,
							       .v_dim = fixture->layout.params.v_dim });
	cuda_batch_plan(&batch, seed);
	p = (struct cuda_gather_params){
		.pages = cuda_fixture_pages(&batch.arena, &args->pages, false),
		.plan = batch.plan.plan,
		.k = cuda_fixture_tensor(&batch.arena, &fixture->k, MAX_TOKENS, true, "keys"),
		.v = cuda_fixture_tensor(&batch.arena, &fixture->v, MAX_TOKENS, true, "values"),
		.begin = cuda_arena_register(&batch.arena, args->begin, args->begin != NULL ? args->n_rows * 4 : 0,
					     false, "begin"),
		.end = cuda_arena_register(&batch.arena, args->end, args->end != NULL ? args->n_rows * 4 : 0, false,
					   "end"),
		.k_scale = cuda_arena_register(&batch.arena, args->k_scale, args->k_scale != NULL ? N_HEADS * 4 : 0,
					       false, "scales of keys"),
		.v_scale = cuda_arena_register(&batch.arena, args->v_scale, args->v_scale != NULL ? N_HEADS * 4 : 0,
					       false, "scales of values"),
	};
	cuda_kernel_run("gather_tokens", &p, 1 + (uint32_t)seed % 7, 32 << seed % 3, 0, seed);
	head = *batch.head;
	cuda_batch_destroy(&batch);
	return head;
}

static void
tensor_check(const struct kernel_tensor *got, const struct kernel_tensor *expected, size_t bytes)
{
	size_t size = paged_dtype_size(got->dtype);

	for (size_t at = 0; at < bytes / size; at++) {
		const uint8_t *a = (const uint8_t *)got->data + at * size,
			      *b = (const uint8_t *)expected->data + at * size;

		cr_assert(memcmp(a, b, size) == 0 ||
				  (isnan(reference_load(a, got->dtype, 0)) && isnan(reference_load(b, got->dtype, 0))),
			  "element %zu", at);
	}
}

Test(cuda_gather, equals_the_cpu_kernel)
{
	static const uint32_t begin[N_ROWS] = { 3, 0, 5, 0 }, end[N_ROWS] = { 11, 0, 5, 16 };
	static const float k_scale[] = { 0.3f, 2, 1.7f }, v_scale[] = { 5, 0.01f, 1 };
	struct kernel_team *team = kernel_test_team(1, KERNEL_GENERIC);

	for (uint32_t i = 0; i < 36; i++) {
		enum paged_dtype pool = pools[i % COUNT(pools)];
		bool scales = i % 4 != 0 && (pool == PAGED_E4M3 || pool == PAGED_E5M2);
		struct gather_fixture fixture;

		gather_fixture_create(&fixture, i, PAGED_F32 + i / 12);
		fixture.args.begin = i % 5 > 1 ? begin : NULL;
		fixture.args.end = i % 5 > 2 ? end : NULL;
		fixture.args.k_scale = scales ? k_scale : NULL;
		fixture.args.v_scale = scales && !fixture.layout.params.v_in_k ? v_scale : NULL;
		kernel_gather(team, &fixture.args);
		cr_assert_eq(gather_fixture_run(&fixture, i).faults, 0);
		tensor_check(&fixture.k, &fixture.args.k, fixture.k_bytes);
		tensor_check(&fixture.v, &fixture.args.v, fixture.v_bytes);
		gather_fixture_destroy(&fixture);
	}
	kernel_team_destroy(team);
}

/* More rows than a warp has lanes. */
Test(cuda_gather, many_rows)
{
	struct kernel_team *team = kernel_test_team(1, KERNEL_GENERIC);
	struct kernel_row many[75];
	struct gather_fixture fixture;

	for (uint32_t r = 0; r < COUNT(many); r++)
		many[r] = (struct kernel_row){ .pages = page_lists[r % 2 * 3], .kv_len = r * 7 % 5 };
	for (uint32_t i = 0; i < 4; i++) {
		gather_fixture_create(&fixture, i, PAGED_F32);
		fixture.args.rows = many;
		fixture.args.n_rows = i % 2 ? 64 : COUNT(many);
		kernel_gather(team, &fixture.args);
		cr_assert_eq(gather_fixture_run(&fixture, i).faults, 0);
		tensor_check(&fixture.k, &fixture.args.k, fixture.k_bytes);
		tensor_check(&fixture.v, &fixture.args.v, fixture.v_bytes);
		gather_fixture_destroy(&fixture);
	}
	kernel_team_destroy(team);
}

/* A row with invalid bounds is reported and has no tokens. */
Test(cuda_gather, reports_invalid_bounds)
{
	static const uint32_t begin[N_ROWS] = { 0, 0, 4, 2 }, end[N_ROWS] = { 13, 0, 3, 16 };
	static const uint32_t past[N_ROWS] = { 14, 0, 5, 16 };
	static const uint32_t before[N_ROWS] = { 13, 0, 7, 16 }, none[N_ROWS] = { 13, 0, 4, 16 };
	struct cuda_plan_head head;
	struct gather_fixture fixture;

	gather_fixture_create(&fixture, 0, PAGED_F32);
	fixture.args.begin = begin;
	fixture.args.end = end;
	head = gather_fixture_run(&fixture, 1);
	cr_assert(head.faults == CUDA_FAULT_BOUNDS && head.fault_row == 2);
	cr_assert_eq(memcmp((uint8_t *)fixture.k.data + 13 * fixture.k.token_stride,
			    fixture.pool + layout_offset(&fixture.layout, LAYOUT_K, 1, page_lists[3][0], 0, 2),
			    fixture.layout.params.k_dim * 4),
		     0);
	/* A token before kv_first; no token there is no fault. */
	fixture.args.begin = begin;
	fixture.args.end = before;
	head = gather_fixture_run(&fixture, 3);
	cr_assert(head.faults == CUDA_FAULT_BOUNDS && head.fault_row == 2);
	fixture.args.end = none;
	head = gather_fixture_run(&fixture, 4);
	cr_assert_eq(head.faults, 0);
	fixture.args.begin = NULL;
	fixture.args.end = past;
	head = gather_fixture_run(&fixture, 2);
	cr_assert(head.faults == CUDA_FAULT_BOUNDS && head.fault_row == 0);
	gather_fixture_destroy(&fixture);
}
