/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of e4m3, e5m2 and i8, scales and rotary embedding, through the public API. */
#include <math.h>
#include <string.h>

#include "tests/support/client_fixture.h"
#include "tests/support/reference.h"

#define TOKENS 4u

enum { POOL_E4M3, POOL_E5M2, POOL_I8, POOL_MLA, N_POOLS };

static const enum paged_dtype dtypes[N_POOLS] = { PAGED_E4M3, PAGED_E5M2, PAGED_I8, PAGED_E4M3 };
static const char *const names[N_POOLS] = { "e4m3", "e5m2", "i8", "mla" };

static float k[TOKENS][FIXTURE_KV_HEADS][FIXTURE_DIM], v[TOKENS][FIXTURE_KV_HEADS][FIXTURE_DIM],
	q[TOKENS][FIXTURE_KV_HEADS][FIXTURE_DIM], out[TOKENS][FIXTURE_KV_HEADS][FIXTURE_DIM];
static const struct paged_tensor k_tensor = {
	.data = k, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_tensor v_tensor = {
	.data = v, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_tensor q_tensor = {
	.data = q, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_tensor out_tensor = {
	.data = out, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};

static void
quantised_setup(void)
{
	struct paged_pool_params pools[N_POOLS];

	for (unsigned int i = 0; i < N_POOLS; i++) {
		pools[i] = fixture_pool_params;
		pools[i].name = names[i];
		pools[i].dtype = dtypes[i];
		pools[i].v_in_k = i == POOL_MLA;
	}
	expect_ok(paged_client_open_embedded(pools, N_POOLS, NULL, &client));
	random_fill(k[0][0], TOKENS * FIXTURE_KV_HEADS * FIXTURE_DIM, 1);
	random_fill(v[0][0], TOKENS * FIXTURE_KV_HEADS * FIXTURE_DIM, 2);
	random_fill(q[0][0], TOKENS * FIXTURE_KV_HEADS * FIXTURE_DIM, 3);
}

TestSuite(quantised, .init = quantised_setup, .fini = client_fixture_teardown);

/* A batch of one sequence of TOKENS tokens, all of them queries. */
static struct paged_batch *
plan_tokens(unsigned int i)
{
	struct paged_batch *batch;

	expect_ok(paged_pool_open(client, names[i], &pool));
	batch = fixture_create_batch(1, 0);
	expect_ok(paged_batch_plan(
		batch, 1,
		&(struct paged_batch_row){ .seq = fixture_create_seq(TOKENS), .q_len = TOKENS, .kv_len = TOKENS }));
	return batch;
}

static const void *
plane_address(const struct paged_pool_info *info, const struct paged_plane_info *plane, uint32_t head, uint32_t token)
{
	return (const uint8_t *)info->base + plane->offset + head * plane->head_stride + token * plane->token_stride;
}

/* Element d of a token in the sequence's page, times its scale. */
static float
stored_value(const struct paged_pool_info *info, bool of_v, uint32_t head, uint32_t token, uint32_t d,
	     const float *scales)
{
	const struct paged_plane_info *plane = of_v ? &info->v : &info->k;
	float x = reference_load(plane_address(info, plane, head, token), plane->dtype, d), scale = 1;

	if (plane->dtype == PAGED_I8)
		memcpy(&scale, plane_address(info, of_v ? &info->v_scale : &info->k_scale, head, token), sizeof(scale));
	else if (scales != NULL)
		scale = scales[head];
	return x * scale;
}

static double
error_bound(enum paged_dtype dtype, const float *x, uint32_t d)
{
	double most = 0;

	for (uint32_t i = 0; i < FIXTURE_DIM; i++)
		most = fmax(most, fabs((double)x[i]));
	if (dtype == PAGED_I8)
		return most / 254 * 1.00001;
	return reference_unit(dtype) * fabs((double)x[d]) + 0x1p-10; /* below the normal numbers of e4m3 */
}

/* Stored values are within the documented error, and attention matches the reference on the stored values. */
Test(quantised, stored_values_and_attention)
{
	static const float k_scale[FIXTURE_KV_HEADS] = { 0.25f, 1.5f }, v_scale[FIXTURE_KV_HEADS] = { 1, 0.01f };

	for (unsigned int i = 0; i <= POOL_I8; i++) {
		struct paged_append_params append = { .struct_size = sizeof(append) };
		struct paged_attention_params params = { .struct_size = sizeof(params) };
		struct paged_pool_info info = { .struct_size = sizeof(info) };
		struct paged_batch *batch = plan_tokens(i);
		float stored_k[FIXTURE_KV_HEADS][TOKENS][FIXTURE_DIM], stored_v[FIXTURE_KV_HEADS][TOKENS][FIXTURE_DIM];

		if (dtypes[i] != PAGED_I8) {
			append.k_scale = params.k_scale = k_scale;
			append.v_scale = params.v_scale = v_scale;
		}
		expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, &append));
		expect_ok(paged_attention(batch, 0, &q_tensor, &out_tensor, &params));
		expect_ok(paged_pool_get_info(pool, &info));
		cr_assert_eq(info.k.dtype, dtypes[i]);
		cr_assert_eq(info.k_scale.dtype, dtypes[i] == PAGED_I8 ? PAGED_F32 : PAGED_DTYPE_NONE);
		cr_assert_eq(info.v_scale.dim, dtypes[i] == PAGED_I8);
		for (uint32_t h = 0; h < FIXTURE_KV_HEADS; h++) {
			for (uint32_t at = 0; at < TOKENS * FIXTURE_DIM; at++) {
				uint32_t t = at / FIXTURE_DIM, d = at % FIXTURE_DIM;

				stored_k[h][t][d] = stored_value(&info, false, h, t, d, params.k_scale);
				stored_v[h][t][d] = stored_value(&info, true, h, t, d, params.v_scale);
				cr_assert_leq(fabs((double)(stored_k[h][t][d] - k[t][h][d])),
					      error_bound(dtypes[i], k[t][h], d));
				cr_assert_leq(fabs((double)(stored_v[h][t][d] - v[t][h][d])),
					      error_bound(dtypes[i], v[t][h], d));
			}
			for (uint32_t t = 0; t < TOKENS; t++) {
				struct reference_result wanted;

				reference_attend(&(struct reference_q_row){ .q = q[t][h],
									    .k = stored_k[h][0],
									    .v = stored_v[h][0],
									    .k_stride = FIXTURE_DIM,
									    .v_stride = FIXTURE_DIM,
									    .k_dim = FIXTURE_DIM,
									    .v_dim = FIXTURE_DIM,
									    .n_keys = t + 1,
									    .scale = 1 / sqrt((double)FIXTURE_DIM) },
						 &wanted);
				for (uint32_t d = 0; d < FIXTURE_DIM; d++)
					cr_assert_leq(fabs((double)out[t][h][d] - wanted.out[d]),
						      wanted.out_tolerance + 1e-7);
			}
		}
		paged_pool_close(pool);
	}
}

Test(quantised, scales_are_checked)
{
	static const float bad[] = { 0, -1, NAN, INFINITY, 1e-40f };
	static const char *const words[] = { "0", "-1", "nan", "inf", "9.99995e-41" };
	float scale[FIXTURE_KV_HEADS] = { 1, 1 };
	struct paged_append_params append = { .struct_size = sizeof(append), .k_scale = scale };
	struct paged_attention_params params = { .struct_size = sizeof(params), .v_scale = scale };
	struct paged_batch *batch = plan_tokens(POOL_E5M2);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		scale[1] = bad[i];
		expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, &append), PAGED_ERR_INVALID,
			     "k_scale: KV head 1 has %s; a scale and its reciprocal are finite and above 0", words[i]);
		expect_error(paged_attention(batch, 0, &q_tensor, &out_tensor, &params), PAGED_ERR_INVALID,
			     "v_scale: KV head 1 has %s; a scale and its reciprocal are finite and above 0", words[i]);
	}
	scale[1] = 1;
	batch = plan_tokens(POOL_I8);
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, &append), PAGED_ERR_INVALID,
		     "k_scale: pool i8 keeps i8, scales are of e4m3 and e5m2");
	expect_error(paged_attention(batch, 0, &q_tensor, &out_tensor, &params), PAGED_ERR_INVALID,
		     "v_scale: pool i8 keeps i8, scales are of e4m3 and e5m2");
	batch = plan_tokens(POOL_MLA);
	expect_ok(paged_append(batch, 0, &k_tensor, NULL, &append));
	expect_error(paged_attention(batch, 0, &q_tensor, &out_tensor, &params), PAGED_ERR_INVALID,
		     "pool mla keeps V in K: v_scale is not possible");
}

/* The caller's tensors have a floating-point dtype of 16 or 32 bits. */
Test(quantised, tensors_must_be_floats)
{
	struct paged_batch *batch = plan_tokens(POOL_I8);
	struct paged_tensor bytes = k_tensor;

	bytes.dtype = PAGED_I8;
	expect_error(paged_append(batch, 0, &bytes, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "k: dtype 18 is none of f32, f16, bf16");
	bytes.dtype = PAGED_E4M3;
	expect_error(paged_attention(batch, 0, &bytes, &out_tensor, NULL), PAGED_ERR_INVALID,
		     "q: dtype 4 is none of f32, f16, bf16");
}

#define N_POSITIONS 6u

static float rotary_table[N_POSITIONS * FIXTURE_DIM];

Test(quantised, rotary_is_checked)
{
	static const uint32_t positions[TOKENS] = { 5, 0, 6, 1 };
	const struct paged_rotary good = {
		.struct_size = sizeof(good), .cos_sin = rotary_table, .n_positions = N_POSITIONS, .dim = FIXTURE_DIM
	};
	struct paged_rotary bad;
	const struct paged_append_params append = { .struct_size = sizeof(append), .rotary = &bad };
	struct paged_batch *batch = plan_tokens(POOL_E4M3);

#define BAD(status, text, ...)                                                                     \
	do {                                                                                       \
		bad = good;                                                                        \
		__VA_ARGS__;                                                                       \
		expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, &append), status, text); \
	} while (0)
	BAD(PAGED_ERR_INVALID, "paged_rotary: struct_size is 0; set it to sizeof(the struct)", bad.struct_size = 0);
	BAD(PAGED_ERR_INVALID, "rotary has no table of cosines and sines", bad.cos_sin = NULL);
	BAD(PAGED_ERR_INVALID, "rotary has no table of cosines and sines", bad.n_positions = 0);
	BAD(PAGED_ERR_INVALID, "rotary turns 0 dims, which are no pairs", bad.dim = 0);
	BAD(PAGED_ERR_INVALID, "rotary turns 7 dims, which are no pairs", bad.dim = 7);
	BAD(PAGED_ERR_INVALID, "rotary turns 10 dims from 0 on, K has 8", bad.dim = 10);
	BAD(PAGED_ERR_INVALID, "rotary turns 8 dims from 1 on, K has 8", bad.first = 1);
	BAD(PAGED_ERR_INVALID, "rotary turns 2 dims from 4294967295 on, K has 8", bad.dim = 2; bad.first = UINT32_MAX);
	BAD(PAGED_ERR_INVALID, "rotary style 2 is neither NeoX nor interleaved", bad.style = 2);
	BAD(PAGED_ERR_INVALID, "rotary has a q_out and no q", bad.q_out = out_tensor);
	BAD(PAGED_ERR_INVALID, "rotary q_out has no data", bad.q = q_tensor);
	BAD(PAGED_ERR_INVALID, "rotary q_out has 2 heads, not 1", bad.q = q_tensor; bad.q.n_heads = 1;
	    bad.q_out = out_tensor);
	BAD(PAGED_ERR_INVALID, "rotary q_out is in the memory of q, with another dtype or other strides",
	    bad.q = q_tensor;
	    bad.q_out = q_tensor; bad.q_out.dtype = PAGED_F16);
	BAD(PAGED_ERR_RANGE, "row 0: rotary position 6 of query row 2, the table has 6 positions",
	    bad.positions = positions);
	BAD(PAGED_ERR_RANGE, "row 0: rotary position 3 of query row 3, the table has 3 positions", bad.n_positions = 3);
#undef BAD
}

/* Rotations by 180 and 90 degrees; a struct_size without rotary means no rotation. */
Test(quantised, rotary_rotates_k)
{
	const struct paged_rotary rotary = { .struct_size = sizeof(rotary),
					     .cos_sin = rotary_table,
					     .n_positions = N_POSITIONS,
					     .dim = 4,
					     .first = 2,
					     .style = PAGED_ROTARY_INTERLEAVED,
					     .q = q_tensor,
					     .q_out = out_tensor };
	struct paged_append_params append = { .struct_size = sizeof(append), .rotary = &rotary };
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_batch *batch;

	for (uint32_t p = 0; p < N_POSITIONS; p++) {
		float *row = &rotary_table[p * 4];

		row[0] = -1; /* cosines of two pairs, then sines */
		row[1] = 0;
		row[2] = 0;
		row[3] = 1;
	}
	batch = plan_tokens(POOL_I8);
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, &append));
	expect_ok(paged_pool_get_info(pool, &info));
	for (uint32_t t = 0; t < TOKENS; t++)
		for (uint32_t h = 0; h < FIXTURE_KV_HEADS; h++) {
			const float *x = q[t][h], *y = k[t][h];
			const float turned[FIXTURE_DIM] = { y[0], y[1], -y[2], -y[3], -y[5], y[4], y[6], y[7] };
			const float wanted[FIXTURE_DIM] = { x[0], x[1], -x[2], -x[3], -x[5], x[4], x[6], x[7] };

			for (uint32_t d = 0; d < FIXTURE_DIM; d++) {
				cr_assert_eq(out[t][h][d], wanted[d]);
				cr_assert_leq(fabs((double)(stored_value(&info, false, h, t, d, NULL) - turned[d])),
					      error_bound(PAGED_I8, turned, d));
			}
		}
	memset(out, 0, sizeof(out));
	append.struct_size = offsetof(struct paged_append_params, rotary);
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, &append));
	cr_assert_eq(out[0][0][0], 0);
}
