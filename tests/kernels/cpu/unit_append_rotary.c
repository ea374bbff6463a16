/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding in append: keys in the pages and queries in their tensor, against float64. */
#include <math.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"
#include "tests/support/reference.h"

/* Row 0 appends 4 tokens; row 1 appends none and has 3 queries. */
#define TOTAL 7u
#define PAGE_SIZE 3u
#define KV_HEADS 2u
#define Q_HEADS 6u
#define K_DIM 40u
#define V_DIM 16u
#define N_POSITIONS 50u

struct rotary_fixture {
	struct layout layout;
	uint8_t *pool;
	struct kernel_tensor k, v, q, q_before;
	struct kernel_row rows[2];
	struct kernel_rotary rotary;
	float table[N_POSITIONS * K_DIM];
};

static const uint32_t pages_0[] = { 3, 0 }, pages_1[] = { 1 };

static void
tensor_fill(const struct kernel_tensor *tensor, uint64_t seed)
{
	for (uint32_t t = 0; t < TOTAL; t++)
		for (uint32_t h = 0; h < tensor->n_heads; h++)
			for (uint32_t d = 0; d < tensor->dim; d++)
				reference_store((uint8_t *)tensor->data + t * tensor->token_stride +
							h * tensor->head_stride,
						tensor->dtype, d, random_float(seed, (t * 8 + h) * 64 + d, 3));
}

static void
rotary_fixture_create(struct rotary_fixture *fixture, enum paged_dtype pool, enum paged_dtype tensor, uint32_t dim,
		      uint32_t first, bool interleaved)
{
	const struct layout_params params = { .n_layers = 1,
					      .n_kv_heads = KV_HEADS,
					      .k_dim = K_DIM,
					      .v_dim = V_DIM,
					      .dtype = pool,
					      .page_size = PAGE_SIZE,
					      .n_pages = 4 };
	struct paged_error error;
	size_t bytes;

	memset(fixture, 0, sizeof(*fixture));
	cr_assert_eq(layout_init(&fixture->layout, &params, &error), PAGED_OK);
	fixture->pool = calloc(1, fixture->layout.size);
	fixture->k = kernel_tensor_create(tensor, TOTAL, KV_HEADS, K_DIM, 2, &bytes);
	fixture->v = kernel_tensor_create(tensor, TOTAL, KV_HEADS, V_DIM, 0, &bytes);
	fixture->q = kernel_tensor_create(tensor, TOTAL, Q_HEADS, K_DIM, 1, &bytes);
	fixture->q_before = kernel_tensor_create(tensor, TOTAL, Q_HEADS, K_DIM, 1, &bytes);
	tensor_fill(&fixture->k, 1);
	tensor_fill(&fixture->v, 2);
	tensor_fill(&fixture->q, 3);
	tensor_fill(&fixture->q_before, 3);
	for (uint32_t p = 0; p < N_POSITIONS; p++)
		for (uint32_t i = 0; i < dim / 2; i++) {
			double angle = p * pow(10000, -2.0 * i / dim);

			fixture->table[p * dim + i] = (float)cos(angle);
			fixture->table[p * dim + dim / 2 + i] = (float)sin(angle);
		}
	fixture->rows[0] = (struct kernel_row){ .pages = pages_0, .q_len = 4, .kv_len = 5, .q_base = 1 };
	fixture->rows[1] = (struct kernel_row){
		.pages = pages_1, .q_start = 4, .q_len = 3, .kv_len = 2, .q_base = 40, .skip_append = true
	};
	fixture->rotary = (struct kernel_rotary){ .cos_sin = fixture->table,
						  .n_positions = N_POSITIONS,
						  .dim = dim,
						  .first = first,
						  .interleaved = interleaved };
}

static void
rotary_fixture_destroy(struct rotary_fixture *fixture)
{
	free(fixture->pool);
	free(fixture->k.data);
	free(fixture->v.data);
	free(fixture->q.data);
	free(fixture->q_before.data);
}

static void
rotary_fixture_run(struct rotary_fixture *fixture, enum kernel_isa isa)
{
	struct kernel_team *team = kernel_test_team(2, isa);

	kernel_append(team, &(struct append_args){ .pages = { &fixture->layout, fixture->pool, 0 },
						   .rows = fixture->rows,
						   .n_rows = 2,
						   .k = fixture->k,
						   .v = fixture->v,
						   .rotary = &fixture->rotary });
	kernel_team_destroy(team);
}

/* Element d of a head at a position, after rotation. */
static double
rotated_element(const struct kernel_rotary *rotary, const struct kernel_tensor *tensor, uint32_t packed_token,
		uint32_t head, uint32_t d, uint32_t position)
{
	uint32_t at = d - rotary->first, half = rotary->dim / 2, pair, other;
	double cosine, sine, x = (double)kernel_tensor_element(tensor, packed_token, head, d), y;
	bool second;

	if (d < rotary->first || at >= rotary->dim)
		return x;
	pair = rotary->interleaved ? at / 2 : at % half;
	second = rotary->interleaved ? at % 2 : at >= half;
	other = rotary->interleaved ? (second ? d - 1 : d + 1) : (second ? d - half : d + half);
	y = (double)kernel_tensor_element(tensor, packed_token, head, other);
	cosine = (double)rotary->cos_sin[position * rotary->dim + pair];
	sine = (double)rotary->cos_sin[position * rotary->dim + half + pair];
	return second ? x * cosine + y * sine : x * cosine - y * sine;
}

static uint32_t
position_of(const struct rotary_fixture *fixture, uint32_t packed_token)
{
	if (fixture->rotary.positions != NULL)
		return fixture->rotary.positions[packed_token];
	return packed_token < 4 ? 1 + packed_token : 40 + packed_token - 4;
}

static void
assert_near(double got, double expected, enum paged_dtype dtype, uint32_t packed_token, uint32_t d)
{
	cr_assert_leq(fabs(got - expected),
		      reference_unit(dtype) * fabs(expected) + 0x1p-21 + (dtype > PAGED_BF16) * 0x1p-10,
		      "token %u dim %u: %.9g, expected %.9g", packed_token, d, got, expected);
}

static void
rotary_fixture_check(const struct rotary_fixture *fixture, const struct kernel_tensor *q)
{
	enum paged_dtype dtype = fixture->layout.params.dtype;

	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t h = 0; h < KV_HEADS; h++) {
			uint32_t page = pages_0[(i + 1) / PAGE_SIZE], slot = (i + 1) % PAGE_SIZE;
			const uint8_t *k = fixture->pool + layout_offset(&fixture->layout, LAYOUT_K, 0, page, h, slot);
			const uint8_t *v = fixture->pool + layout_offset(&fixture->layout, LAYOUT_V, 0, page, h, slot);

			for (uint32_t d = 0; d < K_DIM; d++)
				assert_near((double)reference_load(k, dtype, d),
					    rotated_element(&fixture->rotary, &fixture->k, i, h, d,
							    position_of(fixture, i)),
					    dtype, i, d);
			for (uint32_t d = 0; d < V_DIM; d++)
				assert_near((double)reference_load(v, dtype, d),
					    (double)kernel_tensor_element(&fixture->v, i, h, d), dtype, i, d);
		}
	for (uint32_t i = 0; q != NULL && i < TOTAL; i++)
		for (uint32_t h = 0; h < Q_HEADS; h++)
			for (uint32_t d = 0; d < K_DIM; d++)
				assert_near((double)kernel_tensor_element(q, i, h, d),
					    rotated_element(&fixture->rotary, &fixture->q_before, i, h, d,
							    position_of(fixture, i)),
					    q->dtype, i, d);
}

/* Rotary over whole heads, over their first and last dims, and over an odd number of pairs; each style and dtype. */
KERNEL_TEST(append_rotary, keys_match_float64)
{
	static const uint32_t spans[][2] = { { 40, 0 }, { 16, 0 }, { 2, 0 }, { 14, 5 }, { 16, 24 }, { 26, 14 } };
	static const enum paged_dtype pools[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2 };
	static const enum paged_dtype tensors[] = { PAGED_F32, PAGED_F16, PAGED_BF16 };

	for (size_t i = 0; i < 6 * 5 * 3 * 2; i++) {
		struct rotary_fixture fixture;

		rotary_fixture_create(&fixture, pools[i / 6 % 5], tensors[i / 30 % 3], spans[i % 6][0], spans[i % 6][1],
				      i >= 90);
		rotary_fixture_run(&fixture, isa);
		rotary_fixture_check(&fixture, NULL);
		rotary_fixture_destroy(&fixture);
	}
}

static float
rotated_bits(const struct rotary_fixture *fixture, uint32_t packed_token, uint32_t head, uint32_t d)
{
	const struct kernel_rotary *rotary = &fixture->rotary;
	const float *angles = rotary->cos_sin + position_of(fixture, packed_token) * rotary->dim;
	uint32_t at = d - rotary->first, half = rotary->dim / 2, pair, other;
	volatile float cosine, sine;
	bool second;

	if (d < rotary->first || at >= rotary->dim)
		return kernel_tensor_element(&fixture->k, packed_token, head, d);
	pair = rotary->interleaved ? at / 2 : at % half;
	second = rotary->interleaved ? at % 2 : at >= half;
	other = rotary->interleaved ? d ^ 1 : second ? d - half : d + half;
	cosine = kernel_tensor_element(&fixture->k, packed_token, head, d) * angles[pair];
	sine = kernel_tensor_element(&fixture->k, packed_token, head, other) * angles[half + pair];
	return second ? cosine + sine : cosine - sine;
}

/* Each product and each sum is rounded separately on every instruction set. */
KERNEL_TEST(append_rotary, products_and_sums_are_rounded_separately)
{
	static const uint32_t spans[][2] = { { 40, 0 }, { 32, 8 }, { 38, 2 }, { 10, 0 } };

	for (uint32_t i = 0; i < 8; i++) {
		struct rotary_fixture fixture;

		rotary_fixture_create(&fixture, PAGED_F32, PAGED_F32, spans[i / 2][0], spans[i / 2][1], i % 2);
		rotary_fixture_run(&fixture, isa);
		for (uint32_t at = 0; at < 4 * KV_HEADS * K_DIM; at++) {
			uint32_t packed_token = at / K_DIM / KV_HEADS, h = at / K_DIM % KV_HEADS, d = at % K_DIM;
			uint32_t page = pages_0[(packed_token + 1) / PAGE_SIZE], slot = (packed_token + 1) % PAGE_SIZE;
			const uint8_t *k = fixture.pool + layout_offset(&fixture.layout, LAYOUT_K, 0, page, h, slot);
			float expected = rotated_bits(&fixture, packed_token, h, d);

			cr_assert_eq(memcmp(k + d * sizeof(float), &expected, sizeof(float)), 0,
				     "token %u head %u dim %u", packed_token, h, d);
		}
		rotary_fixture_destroy(&fixture);
	}
}

/* i8: the scale is computed from the rotated key. */
KERNEL_TEST(append_rotary, i8_scale_follows_rotation)
{
	struct rotary_fixture fixture;

	rotary_fixture_create(&fixture, PAGED_I8, PAGED_F32, K_DIM, 0, false);
	rotary_fixture_run(&fixture, isa);
	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t h = 0; h < KV_HEADS; h++) {
			uint32_t page = pages_0[(i + 1) / PAGE_SIZE], slot = (i + 1) % PAGE_SIZE;
			const uint8_t *k = fixture.pool + layout_offset(&fixture.layout, LAYOUT_K, 0, page, h, slot);
			double max = 0;
			float scale;

			memcpy(&scale, fixture.pool + layout_offset(&fixture.layout, LAYOUT_K_SCALE, 0, page, h, slot),
			       4);
			for (uint32_t d = 0; d < K_DIM; d++) {
				double expected = rotated_element(&fixture.rotary, &fixture.k, i, h, d, i + 1);

				max = fmax(max, fabs(expected));
				cr_assert_leq(fabs((double)((float)(int8_t)k[d] * scale) - expected),
					      (double)scale * 0.5001);
			}
			cr_assert_leq(fabs((double)scale * 127 - max), 0x1p-20);
		}
	rotary_fixture_destroy(&fixture);
}

/* Queries of all rows, in place and into a tensor of another dtype, at explicit positions. */
KERNEL_TEST(append_rotary, queries_in_place_and_to_q_out)
{
	static const uint32_t positions[TOTAL] = { 0, 49, 7, 7, 3, 0, 48 };

	for (int i = 0; i < 8; i++) {
		struct rotary_fixture fixture;
		struct kernel_tensor q_out;
		size_t bytes;

		rotary_fixture_create(&fixture, PAGED_F16, i & 1 ? PAGED_F32 : PAGED_BF16, 24, 6, i & 2);
		q_out = kernel_tensor_create(PAGED_F16, TOTAL, Q_HEADS, K_DIM, 3, &bytes);
		fixture.rotary.q = fixture.q;
		fixture.rotary.q_out = i & 4 ? q_out : fixture.q;
		fixture.rotary.positions = i & 1 ? positions : NULL;
		rotary_fixture_run(&fixture, isa);
		rotary_fixture_check(&fixture, &fixture.rotary.q_out);
		rotary_fixture_destroy(&fixture);
		free(q_out.data);
	}
}
