/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_append() on every instruction set, compared with float64. */
#include <math.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/reference.h"

/* Two rows over eight pages of 3 tokens; row 1 writes 4 tokens, row 0 writes 5. */
#define PAGE_SIZE 3u
#define N_HEADS 2u
#define K_DIM 19u
#define V_DIM 33u
#define TOTAL 9u

struct append_fixture {
	struct layout layout;
	uint8_t *pool;
	struct kernel_tensor k, v;
	struct kernel_row rows[2];
	const float *k_scale, *v_scale;
};

static const uint32_t pages_0[] = { 7, 2, 5 }, pages_1[] = { 0, 6 };

static void
tensor_fill(struct kernel_tensor *tensor, uint64_t seed)
{
	for (uint32_t t = 0; t < TOTAL; t++)
		for (uint32_t h = 0; h < tensor->n_heads; h++)
			for (uint32_t d = 0; d < tensor->dim; d++)
				reference_store((uint8_t *)tensor->data + t * tensor->token_stride +
							h * tensor->head_stride,
						tensor->dtype, d, random_float(seed, (t * 8 + h) * 64 + d, 70000.0f));
}

static void
append_fixture_create(struct append_fixture *fixture, enum paged_dtype pool, enum paged_dtype tensor, bool v_in_k)
{
	struct paged_error error;
	size_t bytes;

	memset(fixture, 0, sizeof(*fixture));
	cr_assert_eq(layout_init(&fixture->layout,
				 &(struct layout_params){ .n_layers = 2,
							  .n_kv_heads = N_HEADS,
							  .k_dim = K_DIM,
							  .v_dim = v_in_k ? 5 : V_DIM,
							  .v_in_k = v_in_k,
							  .dtype = pool,
							  .page_size = PAGE_SIZE,
							  .n_pages = 8 },
				 &error),
		     PAGED_OK);
	fixture->pool = malloc(fixture->layout.size);
	memset(fixture->pool, 0xff, fixture->layout.size);
	fixture->k = kernel_tensor_create(tensor, TOTAL, N_HEADS, K_DIM, 1, &bytes);
	fixture->v = kernel_tensor_create(tensor, TOTAL, N_HEADS, V_DIM, 3, &bytes);
	tensor_fill(&fixture->k, 1);
	tensor_fill(&fixture->v, 2);
	fixture->rows[0] = (struct kernel_row){ .pages = pages_0, .q_start = 4, .q_len = 5, .kv_len = 7 };
	fixture->rows[1] = (struct kernel_row){ .pages = pages_1, .q_start = 0, .q_len = 4, .kv_len = 4 };
}

static void
append_fixture_destroy(struct append_fixture *fixture)
{
	free(fixture->pool);
	free(fixture->k.data);
	free(fixture->v.data);
}

static void
append_fixture_run(struct append_fixture *fixture, enum kernel_isa isa, const uint32_t *positions)
{
	struct kernel_team *team = kernel_test_team(2, isa);
	struct append_args args = { .pages = { &fixture->layout, fixture->pool, 1 },
				    .rows = fixture->rows,
				    .n_rows = 2,
				    .k = fixture->k,
				    .v = fixture->v,
				    .positions = positions,
				    .k_scale = fixture->k_scale,
				    .v_scale = fixture->v_scale };

	if (fixture->layout.params.v_in_k)
		args.v.data = NULL;
	kernel_append(team, &args);
	kernel_team_destroy(team);
}

/* The i8 scale of one head of one token; *factor_p is the factor that elements are multiplied by. */
static float
scale_expected(const struct kernel_tensor *tensor, uint32_t packed_token, uint32_t h, float *factor_p)
{
	float max = 0;

	*factor_p = 0;
	for (uint32_t d = 0; d < tensor->dim; d++) {
		float x = kernel_tensor_element(tensor, packed_token, h, d);

		if (!isfinite(x))
			return NAN;
		max = fmaxf(max, fabsf(x));
	}
	if (max < 0x1p-120f)
		return 0;
	*factor_p = 127 / max;
	return max / 127;
}

static void
scale_check(struct append_fixture *fixture, unsigned int plane, uint32_t packed_token, uint32_t page, uint32_t h,
	    uint32_t slot, float expected)
{
	uint8_t *at = fixture->pool + layout_offset(&fixture->layout, plane + LAYOUT_K_SCALE, 1, page, h, slot);
	float got;

	memcpy(&got, at, sizeof(got));
	cr_assert(got == expected || (isnan(got) && isnan(expected)), "plane %u token %u head %u: scale %a, not %a",
		  plane, packed_token, h, (double)got, (double)expected);
	memset(at, 0xff, sizeof(got));
}

/*
 * Check one token, then set it to NaN again: append_fixture_check_rest_unwritten()
 * finds any other write.
 */
static void
token_check(struct append_fixture *fixture, unsigned int plane, const struct kernel_tensor *tensor,
	    uint32_t packed_token, uint32_t page, uint32_t slot)
{
	enum paged_dtype dtype = fixture->layout.params.dtype;
	const float *scales = plane == LAYOUT_K ? fixture->k_scale : fixture->v_scale;

	for (uint32_t h = 0; h < N_HEADS; h++) {
		uint8_t *at = fixture->pool + layout_offset(&fixture->layout, plane, 1, page, h, slot);
		float factor = scales != NULL ? 1 / scales[h] : 1;

		if (dtype == PAGED_I8)
			scale_check(fixture, plane, packed_token, page, h, slot,
				    scale_expected(tensor, packed_token, h, &factor));
		for (uint32_t d = 0; d < tensor->dim; d++) {
			uint32_t expected = 0, got = 0;
			float x = kernel_tensor_element(tensor, packed_token, h, d);

			reference_store(&expected, dtype, 0, factor == 0 ? 0 : x * factor);
			memcpy(&got, at + d * paged_dtype_size(dtype), paged_dtype_size(dtype));
			cr_assert_eq(got, expected, "plane %u token %u head %u dim %u", plane, packed_token, h, d);
		}
		memset(at, 0xff, tensor->dim * paged_dtype_size(dtype));
	}
}

static void
row_check(struct append_fixture *fixture, uint32_t row, const uint32_t *positions)
{
	const struct kernel_row *r = &fixture->rows[row];

	for (uint32_t i = 0; i < r->q_len; i++) {
		uint32_t packed_token = (uint32_t)r->q_start + i;
		uint32_t position = positions ? positions[packed_token] : r->kv_len - r->q_len + i;
		uint32_t page = r->pages[position / PAGE_SIZE], slot = position % PAGE_SIZE;

		token_check(fixture, LAYOUT_K, &fixture->k, packed_token, page, slot);
		if (!fixture->layout.params.v_in_k)
			token_check(fixture, LAYOUT_V, &fixture->v, packed_token, page, slot);
	}
}

static void
append_fixture_check_rest_unwritten(const struct append_fixture *fixture)
{
	for (size_t i = 0; i < fixture->layout.size; i++)
		cr_assert_eq(fixture->pool[i], 0xff, "byte %zu was written", i);
}

KERNEL_TEST(append, converts_between_all_dtypes)
{
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };

	for (size_t i = 0; i < 6 * 3; i++) {
		struct append_fixture fixture;

		append_fixture_create(&fixture, dtypes[i / 3], dtypes[i % 3], false);
		append_fixture_run(&fixture, isa, NULL);
		row_check(&fixture, 0, NULL);
		row_check(&fixture, 1, NULL);
		append_fixture_check_rest_unwritten(&fixture);
		append_fixture_destroy(&fixture);
	}
}

KERNEL_TEST(append, explicit_positions)
{
	static const uint32_t positions[TOTAL] = { 5, 0, 3, 1, 8, 7, 0, 4, 2 };
	struct append_fixture fixture;

	append_fixture_create(&fixture, PAGED_F16, PAGED_F32, false);
	append_fixture_run(&fixture, isa, positions);
	row_check(&fixture, 0, positions);
	row_check(&fixture, 1, positions);
	append_fixture_check_rest_unwritten(&fixture);
	append_fixture_destroy(&fixture);
}

KERNEL_TEST(append, skips_rows_with_skip_append)
{
	struct append_fixture fixture;

	append_fixture_create(&fixture, PAGED_F32, PAGED_F32, false);
	fixture.rows[0].skip_append = true;
	append_fixture_run(&fixture, isa, NULL);
	row_check(&fixture, 1, NULL);
	append_fixture_check_rest_unwritten(&fixture);
	append_fixture_destroy(&fixture);
}

KERNEL_TEST(append, v_in_k_writes_k_only)
{
	struct append_fixture fixture;

	append_fixture_create(&fixture, PAGED_BF16, PAGED_F32, true);
	append_fixture_run(&fixture, isa, NULL);
	row_check(&fixture, 0, NULL);
	row_check(&fixture, 1, NULL);
	append_fixture_check_rest_unwritten(&fixture);
	append_fixture_destroy(&fixture);
}

KERNEL_TEST(append, per_head_scales)
{
	static const float k_scale[] = { 300, 0.7f }, v_scale[] = { 1, 1e5f };

	for (int i = 0; i < 4; i++) {
		struct append_fixture fixture;

		append_fixture_create(&fixture, i % 2 ? PAGED_E4M3 : PAGED_E5M2, PAGED_F32, i >= 2);
		fixture.k_scale = k_scale;
		fixture.v_scale = i >= 2 ? NULL : v_scale;
		append_fixture_run(&fixture, isa, NULL);
		row_check(&fixture, 0, NULL);
		row_check(&fixture, 1, NULL);
		append_fixture_check_rest_unwritten(&fixture);
		append_fixture_destroy(&fixture);
	}
}

static void
k_head_fill(struct append_fixture *fixture, uint32_t packed_token, uint32_t head, float value)
{
	float *at = (float *)(void *)((uint8_t *)fixture->k.data + packed_token * fixture->k.token_stride +
				      head * fixture->k.head_stride);

	for (uint32_t d = 0; d < K_DIM; d++)
		at[d] = d % 2 ? value : -value;
}

/* i8 heads that are all 0, near 0, or contain NaN or infinity. */
KERNEL_TEST(append, i8_scales_of_zero_tiny_and_nan_heads)
{
	static const float finite[] = { 0, 0x1p-121f, 0x1p-120f, 0x1p-149f, 0x1.fffffep127f };
	static const float not_finite[] = { NAN, INFINITY, -INFINITY };

	for (int v_in_k = 0; v_in_k < 2; v_in_k++) {
		struct append_fixture fixture;

		append_fixture_create(&fixture, PAGED_I8, PAGED_F32, v_in_k);
		for (uint32_t i = 0; i < 5; i++)
			k_head_fill(&fixture, i, i % 2, finite[i]);
		for (uint32_t i = 0; i < 3; i++)
			((float *)(void *)((uint8_t *)fixture.k.data + (5 + i) * fixture.k.token_stride))[i * 9] =
				not_finite[i];
		append_fixture_run(&fixture, isa, NULL);
		row_check(&fixture, 0, NULL);
		row_check(&fixture, 1, NULL);
		append_fixture_check_rest_unwritten(&fixture);
		append_fixture_destroy(&fixture);
	}
}

/* Enough tokens for every thread of the team. */
KERNEL_TEST(append, long_rows_on_several_threads)
{
	enum { TOKENS = 3000, DIM = 64 };
	struct kernel_team *team = kernel_test_team(3, isa);
	struct layout layout;
	struct paged_error error;
	struct kernel_tensor k, v;
	uint32_t pages[TOKENS / 8];
	struct kernel_row row = { .pages = pages, .q_len = TOKENS, .kv_len = TOKENS };
	uint16_t *pool;
	size_t bytes;

	layout_init(&layout,
		    &(struct layout_params){ .n_layers = 1,
					     .n_kv_heads = 1,
					     .k_dim = DIM,
					     .v_dim = DIM,
					     .dtype = PAGED_BF16,
					     .page_size = 8,
					     .n_pages = TOKENS / 8 },
		    &error);
	pool = calloc(1, layout.size);
	k = kernel_tensor_create(PAGED_F32, TOKENS, 1, DIM, 0, &bytes);
	v = kernel_tensor_create(PAGED_F32, TOKENS, 1, DIM, 0, &bytes);
	for (uint32_t i = 0; i < TOKENS * DIM; i++) {
		((float *)k.data)[i] = (float)(i / DIM % 251);
		((float *)v.data)[i] = (float)(i % 253);
	}
	for (uint32_t i = 0; i < TOKENS / 8; i++)
		pages[i] = TOKENS / 8 - 1 - i;
	kernel_append(team,
		      &(struct append_args){
			      .pages = { &layout, (uint8_t *)pool, 0 }, .rows = &row, .n_rows = 1, .k = k, .v = v });
	for (uint32_t i = 0; i < TOKENS * DIM; i++) {
		uint32_t t = i / DIM;

		cr_assert_eq(
			reference_load((uint8_t *)pool + layout_offset(&layout, LAYOUT_K, 0, pages[t / 8], 0, t % 8),
				       PAGED_BF16, i % DIM),
			(float)(i / DIM % 251));
		cr_assert_eq(
			reference_load((uint8_t *)pool + layout_offset(&layout, LAYOUT_V, 0, pages[t / 8], 0, t % 8),
				       PAGED_BF16, i % DIM),
			(float)(i % 253));
	}
	free(pool);
	free(k.data);
	free(v.data);
	kernel_team_destroy(team);
}

#define LARGE_TOKENS 2080u
#define LARGE_HEADS 8u
#define LARGE_DIM 128u
#define LARGE_PAGE_SIZE 16u

/* Append all tokens of a pool in n calls. A call with many tokens uses non-temporal stores. */
static uint8_t *
append_in_calls(const struct layout *layout, const struct append_args *args, uint32_t n_calls, enum kernel_isa isa)
{
	struct kernel_team *team = kernel_test_team(2, isa);
	uint8_t *pool = aligned_alloc(64, layout->size);
	struct append_args call_args = *args;
	uint32_t tokens_per_call = LARGE_TOKENS / n_calls;

	memset(pool, 0xff, layout->size);
	call_args.pages.base = pool;
	for (uint32_t first = 0; first < LARGE_TOKENS; first += tokens_per_call) {
		struct kernel_row row = *args->rows;

		call_args.rows = &row;
		row.q_len = tokens_per_call;
		row.kv_len = first + tokens_per_call;
		row.q_base = first;
		call_args.k.data = (uint8_t *)args->k.data + first * args->k.token_stride;
		call_args.v.data = (uint8_t *)args->v.data + first * args->v.token_stride;
		kernel_append(team, &call_args);
	}
	kernel_team_destroy(team);
	return pool;
}

/* One large call writes the same bits as ten small ones, and every instruction set the same bits as portable C. */
KERNEL_TEST(append, non_temporal_stores_write_equal_bits)
{
	static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };
	uint32_t pages[LARGE_TOKENS / LARGE_PAGE_SIZE];
	float *angles = malloc(LARGE_TOKENS * LARGE_DIM * sizeof(*angles));
	size_t bytes;
	struct kernel_row row = { .pages = pages };
	struct kernel_tensor k = kernel_tensor_create(PAGED_BF16, LARGE_TOKENS, LARGE_HEADS, LARGE_DIM, 0, &bytes);

	for (uint32_t i = 0; i < LARGE_TOKENS / LARGE_PAGE_SIZE; i++)
		pages[i] = i * 7 % (LARGE_TOKENS / LARGE_PAGE_SIZE);
	for (uint32_t i = 0; i < LARGE_TOKENS * LARGE_DIM; i++)
		angles[i] = random_float(1, i, 1);
	for (uint32_t i = 0; i < LARGE_TOKENS * LARGE_HEADS * LARGE_DIM; i++)
		reference_store(k.data, PAGED_BF16, i, random_float(2, i, 300));
	for (uint32_t i = 0; i < 12; i++) {
		struct kernel_rotary rotary = { angles, LARGE_TOKENS, LARGE_DIM, 0, i % 4 < 2, NULL, { 0 }, { 0 } };
		struct append_args args = { .rows = &row, .n_rows = 1, .k = k, .v = k };
		struct layout layout;
		struct paged_error error;
		uint8_t *one_call, *ten_calls;

		args.pages.layout = &layout;
		args.rotary = i % 2 ? &rotary : NULL;
		cr_assert_eq(layout_init(&layout,
					 &(struct layout_params){ .n_layers = 1,
								  .n_kv_heads = LARGE_HEADS,
								  .k_dim = LARGE_DIM,
								  .v_dim = LARGE_DIM,
								  .dtype = dtypes[i / 2],
								  .page_size = LARGE_PAGE_SIZE,
								  .n_pages = LARGE_TOKENS / LARGE_PAGE_SIZE },
					 &error),
			     PAGED_OK);
		one_call = append_in_calls(&layout, &args, 1, isa);
		ten_calls = append_in_calls(&layout, &args, 10, KERNEL_GENERIC);
		cr_assert_eq(memcmp(one_call, ten_calls, layout.size), 0, "pools of %s",
			     paged_dtype_name(dtypes[i / 2]));
		free(one_call);
		free(ten_calls);
	}
	free(angles);
	free(k.data);
}
