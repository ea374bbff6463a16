/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding and quantisation in the CUDA append kernel, run on the host: bit-identical to the CPU kernels. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/kernels/cuda/cuda_kernel_fixture.h"
#include "tests/support/kernel_test.h"
#include "tests/support/reference.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const enum paged_dtype tensors[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };
static const enum paged_dtype pools[] = { PAGED_E4M3, PAGED_E5M2, PAGED_I8, PAGED_F16, PAGED_F32 };

#define N_KV_HEADS 3u
#define N_Q_HEADS 6u
#define N_PAGES 9u
#define TOTAL 9u
#define N_POSITIONS 40u

struct append_fixture_params {
	struct layout_params pool;
	enum paged_dtype tensor, q, q_out;
	uint32_t padding;
	bool scales;
	uint32_t rotary_dim, rotary_first; /* 0: none */
	bool interleaved;
	bool positions; /* rotary takes explicit positions */
	bool in_place;
	bool no_queries;
	float amplitude;
};

/* Two rows with pages in arbitrary order; row 2 skips append, but its queries are rotated. */
struct append_fixture {
	const struct append_fixture_params *params;
	struct layout layout;
	uint8_t *pool, *expected;
	struct kernel_tensor k, v, q, q_out, q_expected;
	size_t q_bytes, q_out_bytes;
	float scales[2][N_KV_HEADS];
	float *cos_sin;
	uint32_t positions[TOTAL];
	struct kernel_rotary rotary;
	struct kernel_row rows[3];
	uint32_t pages[3][N_PAGES];
};

static void
tensor_fill(const struct kernel_tensor *tensor, uint64_t seed, float amplitude)
{
	for (uint32_t t = 0; t < TOTAL; t++)
		for (uint32_t h = 0; h < tensor->n_heads; h++)
			for (uint32_t d = 0; d < tensor->dim; d++)
				reference_store((uint8_t *)tensor->data + t * tensor->token_stride +
							h * tensor->head_stride,
						tensor->dtype, d, random_float(seed, (t * 8 + h) * 600 + d, amplitude));
}

static void
rotary_make(struct append_fixture *fixture)
{
	const struct append_fixture_params *params = fixture->params;

	fixture->cos_sin = malloc(N_POSITIONS * (params->rotary_dim + 1) * sizeof(float));
	random_fill(fixture->cos_sin, N_POSITIONS * params->rotary_dim, 9);
	for (uint32_t i = 0; i < TOTAL; i++)
		fixture->positions[i] = (uint32_t)random_bits(3, i) % N_POSITIONS;
	fixture->rotary = (struct kernel_rotary){ .cos_sin = fixture->cos_sin,
						  .n_positions = N_POSITIONS,
						  .dim = params->rotary_dim,
						  .first = params->rotary_first,
						  .interleaved = params->interleaved,
						  .positions = params->positions ? fixture->positions : NULL };
}

static void
queries_make(struct append_fixture *fixture)
{
	const struct append_fixture_params *params = fixture->params;

	fixture->q = kernel_tensor_create(params->q, TOTAL, N_Q_HEADS, params->pool.k_dim, params->padding,
					  &fixture->q_bytes);
	tensor_fill(&fixture->q, 3, 1);
	fixture->q_out = kernel_tensor_create(params->in_place ? params->q : params->q_out, TOTAL, N_Q_HEADS,
					      params->pool.k_dim, params->padding, &fixture->q_out_bytes);
	fixture->q_expected = fixture->q_out;
	fixture->q_expected.data = malloc(fixture->q_out_bytes);
	memset(fixture->q_expected.data, 0xff, fixture->q_out_bytes);
}

static void
append_fixture_create(struct append_fixture *fixture, const struct append_fixture_params *params)
{
	struct paged_error error;
	uint32_t page = 0;
	size_t bytes;

	*fixture = (struct append_fixture){ .params = params, .scales = { { 0.5f, 3, 1.1f }, { 2, 0.013f, 700 } } };
	cr_assert_eq(layout_init(&fixture->layout, &params->pool, &error), PAGED_OK, "%s", error.text);
	fixture->pool = malloc(fixture->layout.size);
	fixture->expected = malloc(fixture->layout.size);
	memset(fixture->pool, 0xff, fixture->layout.size);
	memset(fixture->expected, 0xff, fixture->layout.size);
	fixture->k =
		kernel_tensor_create(params->tensor, TOTAL, N_KV_HEADS, params->pool.k_dim, params->padding, &bytes);
	fixture->v =
		kernel_tensor_create(params->tensor, TOTAL, N_KV_HEADS, params->pool.v_dim, params->padding, &bytes);
	tensor_fill(&fixture->k, 1, params->amplitude);
	tensor_fill(&fixture->v, 2, params->amplitude);
	rotary_make(fixture);
	queries_make(fixture);
	fixture->rows[0] = (struct kernel_row){ .q_start = 0, .q_len = 4, .kv_len = 4, .q_base = 30 };
	fixture->rows[1] = (struct kernel_row){ .q_start = 4, .q_len = 3, .kv_len = 7, .q_base = 0 };
	fixture->rows[2] =
		(struct kernel_row){ .q_start = 7, .q_len = 2, .kv_len = 5, .q_base = 7, .skip_append = true };
	for (uint32_t r = 0; r < 3; r++) {
		for (uint32_t i = 0; i * params->pool.page_size < fixture->rows[r].kv_len; i++)
			fixture->pages[r][i] = page++ * 5 % params->pool.n_pages;
		fixture->rows[r].pages = fixture->pages[r];
	}
}

static void
append_fixture_destroy(struct append_fixture *fixture)
{
	free(fixture->pool);
	free(fixture->expected);
	free(fixture->k.data);
	free(fixture->v.data);
	free(fixture->q.data);
	free(fixture->q_out.data);
	free(fixture->q_expected.data);
	free(fixture->cos_sin);
}

/* The arguments of both kernels; they differ only in the destinations. */
static struct append_args
append_fixture_args(struct append_fixture *fixture, uint8_t *pool, const struct kernel_rotary *rotary)
{
	struct append_args args = { .pages = { &fixture->layout, pool, 1 },
				    .rows = fixture->rows,
				    .n_rows = 3,
				    .k = fixture->k,
				    .v = fixture->v,
				    .rotary = fixture->params->rotary_dim == 0 ? NULL : rotary };

	if (fixture->params->pool.v_in_k)
		args.v.data = NULL;
	if (!fixture->params->scales)
		return args;
	args.k_scale = fixture->scales[0];
	args.v_scale = fixture->params->pool.v_in_k ? NULL : fixture->scales[1];
	return args;
}

static struct cuda_rotary
rotary_register(struct cuda_arena *arena, const struct append_fixture *fixture)
{
	const struct kernel_rotary *rotary = &fixture->rotary;
	struct cuda_rotary to = { .n_positions = N_POSITIONS,
				  .dim = rotary->dim,
				  .first = rotary->first,
				  .interleaved = rotary->interleaved,
				  .n_q_heads = N_Q_HEADS };

	if (rotary->dim == 0)
		return (struct cuda_rotary){ .cos_sin = 0 };
	to.cos_sin =
		cuda_arena_register(arena, rotary->cos_sin, N_POSITIONS * rotary->dim * sizeof(float), false, "angles");
	to.positions = cuda_arena_register(arena, rotary->positions, TOTAL * sizeof(uint32_t), false, "positions");
	if (fixture->params->no_queries)
		return to;
	if (!fixture->params->in_place)
		to.q = cuda_fixture_tensor(arena, &fixture->q, TOTAL, false, "queries");
	to.q_out = cuda_fixture_tensor(arena, &fixture->q_out, TOTAL, true, "turned queries");
	if (fixture->params->in_place)
		to.q = to.q_out;
	return to;
}

/* Returns the faults. */
static uint32_t
append_fixture_run(struct append_fixture *fixture, uint64_t seed)
{
	struct append_args args = append_fixture_args(fixture, fixture->pool, NULL);
	size_t scales = N_KV_HEADS * sizeof(float);
	struct cuda_append_params p;
	struct cuda_batch batch;
	uint32_t faults;

	cuda_batch_create(&batch, &(struct cuda_batch_params){ .rows = fixture->rows,
							       .n_rows = 3,
							       .page_size = fixture->layout.params.page_size,
							       .n_q_heads = N_Q_HEADS,
							       .n_kv_heads = N_KV_HEADS,
							       .v_dim = fixture->layout.params.v_dim });
	cuda_batch_plan(&batch, seed);
	p = (struct cuda_append_params){
		.pages = cuda_fixture_pages(&batch.arena, &args.pages, true),
		.plan = batch.plan.plan,
		.k = cuda_fixture_tensor(&batch.arena, &args.k, TOTAL, false, "keys"),
		.v = cuda_fixture_tensor(&batch.arena, &args.v, TOTAL, false, "values"),
		.k_scale = cuda_arena_register(&batch.arena, args.k_scale, scales, false, "K scales"),
		.v_scale = cuda_arena_register(&batch.arena, args.v_scale, scales, false, "V scales"),
		.rotary = rotary_register(&batch.arena, fixture),
	};
	cuda_kernel_run("append_tokens", &p, 1 + (uint32_t)seed % 11, 64 << seed % 3, 0, seed);
	faults = batch.head->faults;
	cuda_batch_destroy(&batch);
	return faults;
}

static void
append_fixture_check(const struct append_fixture_params *params, uint64_t seed)
{
	struct kernel_team *team = kernel_test_team(1, KERNEL_GENERIC);
	struct kernel_rotary rotary;
	struct append_args args;
	struct append_fixture fixture;

	append_fixture_create(&fixture, params);
	if (params->in_place)
		memcpy(fixture.q_out.data, fixture.q.data, fixture.q_bytes);
	rotary = fixture.rotary;
	rotary.q = fixture.q;
	rotary.q_out = fixture.q_expected;
	args = append_fixture_args(&fixture, fixture.expected, &rotary);
	if (params->in_place)
		memcpy(fixture.q_expected.data, fixture.q.data, fixture.q_bytes);
	kernel_append(team, &args);
	kernel_team_destroy(team);
	cr_assert_eq(append_fixture_run(&fixture, seed), 0);
	cr_assert_eq(memcmp(fixture.pool, fixture.expected, fixture.layout.size), 0, "seed %u, %s from %s, dims %u %u",
		     (unsigned int)seed, paged_dtype_name(params->pool.dtype), paged_dtype_name(params->tensor),
		     params->pool.k_dim, params->pool.v_dim);
	if (params->rotary_dim != 0)
		cr_assert_eq(memcmp(fixture.q_out.data, fixture.q_expected.data, fixture.q_out_bytes), 0,
			     "seed %u, queries of dim %u, %u turned from %u", (unsigned int)seed, params->pool.k_dim,
			     params->rotary_dim, params->rotary_first);
	append_fixture_destroy(&fixture);
}

static struct append_fixture_params
defaults(uint64_t i)
{
	static const uint32_t page_sizes[] = { 1, 3, 16, 256 };

	return (struct append_fixture_params){
		.pool = { .n_layers = 2,
			  .n_kv_heads = N_KV_HEADS,
			  .k_dim = 64,
			  .v_dim = 64,
			  .dtype = pools[i % 5],
			  .page_size = page_sizes[i % 4],
			  .n_pages = 17 },
		.tensor = tensors[i / 5 % 3],
		.q = tensors[(i / 2 + 1) % 3],
		.q_out = tensors[i / 3 % 3],
		.padding = i % 3 == 0 ? 0 : (uint32_t)i % 8,
		.in_place = i % 2,
		.amplitude = 70000,
	};
}

Test(cuda_append_quantise, dtypes_dims_and_scales)
{
	static const uint32_t dims[][2] = { { 1, 1 }, { 19, 33 }, { 64, 64 }, { 128, 8 }, { 256, 40 }, { 576, 512 } };

	for (uint64_t i = 0; i < 3 * 3 * COUNT(dims); i++) {
		struct append_fixture_params params = defaults(i);

		params.pool.dtype = pools[i % 3];
		params.tensor = tensors[i / 3 % 3];
		params.pool.k_dim = dims[i / 9][0];
		params.pool.v_dim = dims[i / 9][1];
		params.pool.v_in_k = params.pool.k_dim == 576 && i % 2;
		params.scales = i % 3 != 2 && i % 4 != 0;
		params.amplitude = i % 5 == 0 ? 1 : 70000;
		append_fixture_check(&params, i);
	}
}

Test(cuda_append_quantise, rotary)
{
	static const struct {
		uint32_t k_dim, first, dim;
	} dims[] = { { 64, 0, 64 }, { 128, 0, 128 }, { 128, 64, 64 },  { 80, 0, 32 }, { 80, 16, 48 },
		     { 40, 3, 10 }, { 24, 1, 22 },   { 576, 512, 64 }, { 2, 0, 2 },   { 33, 8, 16 } };

	for (uint64_t i = 0; i < 4 * COUNT(dims); i++) {
		struct append_fixture_params params = defaults(i);

		params.pool.k_dim = dims[i / 4].k_dim;
		params.rotary_first = dims[i / 4].first;
		params.rotary_dim = dims[i / 4].dim;
		params.interleaved = i % 2;
		params.positions = i / 2 % 2;
		params.in_place = i % 3 != 0;
		params.pool.v_dim = 24;
		params.amplitude = 3;
		append_fixture_check(&params, i);
	}
}

/* i8 heads with NaN or infinity, and heads of zeros and tiny values only. */
Test(cuda_append_quantise, i8_with_nan_infinity_and_tiny_values)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY, 0, 0x1p-121f, 0x1p-120f, -0x1p-126f, 0x1.fffffep127f };
	struct append_fixture_params params = defaults(2);

	params.tensor = PAGED_F32;
	params.pool.page_size = 3;
	for (uint64_t i = 0; i < COUNT(odd); i++) {
		struct kernel_team *team = kernel_test_team(1, KERNEL_GENERIC);
		struct append_args args;
		struct append_fixture fixture;

		params.amplitude = fabsf(odd[i]) < 1 ? fabsf(odd[i]) / 2 : 1;
		append_fixture_create(&fixture, &params);
		reference_store((uint8_t *)fixture.k.data + 5 * fixture.k.token_stride, PAGED_F32, i * 7, odd[i]);
		reference_store((uint8_t *)fixture.v.data + fixture.v.token_stride + fixture.v.head_stride, PAGED_F32,
				63, odd[i]);
		args = append_fixture_args(&fixture, fixture.expected, NULL);
		kernel_append(team, &args);
		kernel_team_destroy(team);
		cr_assert_eq(append_fixture_run(&fixture, i), 0);
		cr_assert_eq(memcmp(fixture.pool, fixture.expected, fixture.layout.size), 0, "%g", (double)odd[i]);
		append_fixture_destroy(&fixture);
	}
}

/* A position past the rotary table is reported; its token and its query are not written. */
Test(cuda_append_quantise, reports_positions_past_the_rotary_table)
{
	struct append_fixture_params params = defaults(3);
	size_t token_bytes;
	struct append_fixture fixture;

	params.rotary_dim = 64;
	params.positions = true;
	params.in_place = false;
	params.padding = 0;
	append_fixture_create(&fixture, &params);
	fixture.positions[5] = N_POSITIONS;
	fixture.positions[8] = UINT32_MAX;
	cr_assert_eq(append_fixture_run(&fixture, 1), CUDA_FAULT_POSITION);
	token_bytes = (size_t)fixture.q_out.token_stride;
	for (uint32_t t = 0; t < TOTAL; t++) {
		const uint8_t *at = (const uint8_t *)fixture.q_out.data + t * token_bytes;
		bool written = false;

		for (size_t i = 0; i < token_bytes; i++)
			written |= at[i] != 0xff;
		cr_assert_eq(written, t != 5 && t != 8, "query %u", t);
	}
	for (uint32_t t = 4; t < 7; t++) {
		uint64_t at = layout_offset(&fixture.layout, LAYOUT_K, 1, fixture.pages[1][t / params.pool.page_size],
					    0, t % params.pool.page_size);
		uint16_t bits;

		memcpy(&bits, fixture.pool + at, sizeof(bits));
		cr_assert_eq(bits == 0xffff, t == 5, "token %u", t);
	}
	append_fixture_destroy(&fixture);
}

/* The positions of a row that skips append and has no queries to rotate are not checked. */
Test(cuda_append_quantise, skipped_rows_need_no_rotary_position)
{
	struct append_fixture_params params = defaults(3);
	struct append_fixture fixture;

	params.rotary_dim = 64;
	params.positions = true;
	params.no_queries = true;
	append_fixture_create(&fixture, &params);
	fixture.positions[7] = N_POSITIONS;
	fixture.positions[8] = UINT32_MAX;
	cr_assert_eq(append_fixture_run(&fixture, 1), 0);
	append_fixture_destroy(&fixture);
}
