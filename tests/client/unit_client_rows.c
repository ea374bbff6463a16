/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a plan on the host: the b that mods get, tokens that two rows write, tensors of equal rows. */
#include <math.h>
#include <string.h>

#include "tests/support/client_fixture.h"
#include "tests/support/reference.h"

#define TOKENS 3u /* of a row */
#define ROWS 2u
#define ELEMENTS (ROWS * TOKENS * FIXTURE_KV_HEADS * FIXTURE_DIM)

static float k[ELEMENTS], v[ELEMENTS], q[ELEMENTS], out[ELEMENTS], other_out[ELEMENTS];
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
static struct paged_batch *batch;

static void
rows_setup(void)
{
	client_fixture_setup();
	batch = fixture_create_batch(4, 0);
	random_fill(k, ELEMENTS, 1);
	random_fill(v, ELEMENTS, 2);
	random_fill(q, ELEMENTS, 3);
}

TestSuite(rows, .init = rows_setup, .fini = client_fixture_teardown);

/* Two sequences of TOKENS tokens. */
static void
rows_create(struct paged_batch_row rows[ROWS])
{
	for (uint32_t r = 0; r < ROWS; r++)
		rows[r] = (struct paged_batch_row){ .seq = fixture_create_seq(TOKENS),
						    .q_len = TOKENS,
						    .kv_len = TOKENS };
	expect_ok(paged_batch_plan(batch, ROWS, rows));
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, NULL));
}

/* PAGED_ROW_B: a sequence keeps its b, and its part of an array, when its row changes. */
Test(rows, b_of_a_row_in_mods)
{
	static const int32_t first[8] = { 9, 9, 9, 9, 9, 0, 9, 2 };
	const struct paged_array array = {
		.name = "first", .data = first, .dtype = PAGED_I32, .n_dims = 1, .extents = { 8 }
	};
	struct paged_mod_set_params params = { .struct_size = sizeof(params) };
	struct paged_attention_params with = { .struct_size = sizeof(with) };
	struct paged_block_mask_params mask_params = {
		.struct_size = sizeof(mask_params), .n_rows = ROWS, .q_block = 1, .kv_block = 1
	};
	struct paged_batch_row rows[ROWS], swapped[ROWS];
	struct paged_block_mask *mask[3] = { NULL };
	struct paged_mod_set *mods = NULL;
	struct paged_mod *mod = NULL;

	rows_create(rows);
	expect_ok(paged_mod_parse(pool, PAGED_MOD_MASK, "kv_idx >= first[b]", 1, &array, &mod));
	params.mask = mod;
	expect_ok(paged_mod_set_create(batch, &params, &mods));
	expect_ok(paged_mod_set_bind(mods, 1, &array, NULL));
	with.mod_set = mods;
	/* By default b is the row's index, 0 and 1: no row attends any key. */
	expect_ok(paged_attention(batch, 0, &q_tensor, &out_tensor, &with));
	for (uint32_t i = 0; i < ELEMENTS; i++)
		cr_assert_eq(out[i], 0);
	for (uint32_t r = 0; r < ROWS; r++) {
		rows[r].flags = PAGED_ROW_B;
		rows[r].b = r == 0 ? 7 : 5;
		swapped[ROWS - 1 - r] = rows[r];
	}
	expect_ok(paged_batch_plan(batch, ROWS, rows));
	expect_ok(paged_attention(batch, 0, &q_tensor, &out_tensor, &with));
	/* Row 0 attends token 2 only, from query row 2 on; row 1 attends all earlier tokens. */
	for (uint32_t i = 0; i < FIXTURE_KV_HEADS * FIXTURE_DIM; i++) {
		cr_assert_eq(out[i], 0);
		cr_assert_float_eq(out[2 * FIXTURE_KV_HEADS * FIXTURE_DIM + i],
				   v[2 * FIXTURE_KV_HEADS * FIXTURE_DIM + i], 1e-6);
		cr_assert_float_eq(out[TOKENS * FIXTURE_KV_HEADS * FIXTURE_DIM + i],
				   v[TOKENS * FIXTURE_KV_HEADS * FIXTURE_DIM + i], 1e-6);
	}
	/* The same sequences in other rows; block masks use the same b. */
	memcpy(other_out, out, sizeof(out));
	for (uint32_t i = 0; i < ELEMENTS / ROWS; i++) {
		float first_half = q[i];

		q[i] = q[ELEMENTS / ROWS + i];
		q[ELEMENTS / ROWS + i] = first_half;
	}
	mask_params.rows = swapped;
	expect_ok(paged_block_mask_create(pool, &mask_params, mod, 1, &array, &mask[1]));
	expect_ok(paged_array_upload(client, &array));
	expect_ok(paged_block_mask_create_remote(pool, &mask_params, mod, 0, NULL, &mask[2]));
	for (int m = 0; m < 3; m++) {
		expect_ok(paged_mod_set_bind(mods, 1, &array, mask[m]));
		expect_ok(paged_batch_plan(batch, ROWS, swapped));
		expect_ok(paged_attention(batch, 0, &q_tensor, &out_tensor, &with));
		for (uint32_t i = 0; i < ELEMENTS; i++)
			cr_assert_eq(out[i], other_out[(i + ELEMENTS / ROWS) % ELEMENTS], "%d: %u", m, i);
	}
	rows[1].flags = 0;
	expect_error(paged_batch_plan(batch, ROWS, rows), PAGED_ERR_INVALID,
		     "row 1: b is 5 without its flag PAGED_ROW_B");
	rows[1].flags = PAGED_ROW_B;
	rows[1].b = 0x80000000u;
	expect_error(paged_batch_plan(batch, ROWS, rows), PAGED_ERR_INVALID,
		     "row 1: b is 2147483648, and 2^31 - 1 is the most");
	mask_params.rows = rows;
	expect_error(paged_block_mask_create(pool, &mask_params, mod, 1, &array, &mask[0]), PAGED_ERR_INVALID,
		     "block mask: row 1: b is 2147483648, and 2^31 - 1 is the most");
}

Test(rows, append_refuses_to_write_a_token_twice)
{
	const paged_seq_id id = fixture_create_seq(12), second = fixture_create_seq(12);
	struct paged_batch_row rows[3] = { { .seq = id, .q_len = 2, .kv_len = 6 },
					   { .seq = second, .q_len = 2, .kv_len = 6 },
					   { .seq = id, .q_len = 2, .kv_len = 7 } };
	static const uint32_t positions[6] = { 0, 1, 0, 1, 2, 3 };
	const struct paged_append_params append = { .struct_size = sizeof(append), .positions = positions };
	static const uint32_t pages[2] = { 15, 14 }, same[2] = { 13, 15 };

	/* A plan for reading may contain a token twice; append refuses to write it twice. */
	expect_ok(paged_batch_plan(batch, 3, rows));
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "rows 0 and 2 write the same token: position 5 of row 2");
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, &append));
	expect_ok(paged_attention(batch, 0, &q_tensor, &out_tensor, NULL));
	/* One after the other, in one page and across its end. */
	rows[2].kv_len = 8;
	expect_ok(paged_batch_plan(batch, 3, rows));
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, NULL));
	rows[2].kv_len = 7;
	rows[0].flags = PAGED_ROW_NO_APPEND;
	expect_ok(paged_batch_plan(batch, 3, rows));
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, NULL));
	/* The same slot of a page that both tables contain, at any index. */
	rows[0] = (struct paged_batch_row){ .pages = pages, .n_pages = 2, .q_len = 2, .kv_len = 3 };
	rows[1] = (struct paged_batch_row){ .pages = same, .n_pages = 2, .q_len = 2, .kv_len = 6 };
	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "rows 0 and 1 write the same token: position 5 of row 1");
	rows[1].q_len = 1;
	rows[1].kv_len = 5;
	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, NULL));
}

/* Append compares only rows whose sequence changed since the last plan. */
Test(rows, duplicate_check_after_rows_change)
{
	const paged_seq_id first = fixture_create_seq(12), second = fixture_create_seq(12),
			   empty = fixture_create_seq(0);
	struct paged_batch_row rows[2] = { { .seq = first, .q_len = 1, .kv_len = 6 },
					   { .seq = second, .q_len = 1, .kv_len = 6 } };

	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, NULL));
	/* Row 1 still has its sequence of two plans ago. */
	rows[0].seq = second;
	expect_ok(paged_batch_plan(batch, 1, rows));
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, NULL));
	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "rows 0 and 1 write the same token: position 5 of row 1");
	/* The same sequences, which write different tokens, and then the same token. */
	rows[1].kv_len = 7;
	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, NULL));
	rows[0].kv_len = 7;
	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "rows 0 and 1 write the same token: position 6 of row 1");
	/* A sequence without pages is in two rows, and then gets pages. */
	rows[0] = rows[1] = (struct paged_batch_row){ .seq = empty };
	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_ok(paged_seq_reserve(client, 1, &(struct paged_seq_item){ .seq = empty, .n_tokens = 4 }));
	rows[0].q_len = rows[1].q_len = rows[0].kv_len = rows[1].kv_len = 1;
	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "rows 0 and 1 write the same token: position 0 of row 1");
}

/* From [row][token][head][dim] to [row][head][token][dim]. */
static void
transpose_to_bhsd(float to[ELEMENTS], const float from[ELEMENTS])
{
	for (uint32_t i = 0; i < ELEMENTS; i++) {
		uint32_t d = i % FIXTURE_DIM, head = i / FIXTURE_DIM % FIXTURE_KV_HEADS,
			 token = i / FIXTURE_DIM / FIXTURE_KV_HEADS % TOKENS;

		to[((i / FIXTURE_DIM / FIXTURE_KV_HEADS / TOKENS * FIXTURE_KV_HEADS + head) * TOKENS + token) *
			   FIXTURE_DIM +
		   d] = from[i];
	}
}

Test(rows, tensors_in_bhsd_layout)
{
	static float k2[ELEMENTS], v2[ELEMENTS], q2[ELEMENTS], out2[ELEMENTS], lse[2][ROWS * TOKENS * FIXTURE_KV_HEADS];
	const struct paged_tensor like = { .dtype = PAGED_F32,
					   .n_heads = FIXTURE_KV_HEADS,
					   .dim = FIXTURE_DIM,
					   .token_stride = FIXTURE_DIM,
					   .head_stride = TOKENS * FIXTURE_DIM,
					   .batch_stride = FIXTURE_KV_HEADS * TOKENS * FIXTURE_DIM };
	struct paged_tensor k2t = like, v2t = like, q2t = like, o2t = like;
	struct paged_attention_params params = { .struct_size = sizeof(params), .lse = lse[0] };
	struct paged_merge_params merge = { .struct_size = sizeof(merge), .n_tokens = ROWS * TOKENS };
	struct paged_batch_row rows[ROWS];

	k2t.data = k2, v2t.data = v2, q2t.data = q2, o2t.data = out2;
	transpose_to_bhsd(k2, k);
	transpose_to_bhsd(v2, v);
	transpose_to_bhsd(q2, q);
	rows_create(rows);
	expect_ok(paged_attention(batch, 0, &q_tensor, &out_tensor, &params));
	for (uint32_t r = 0; r < ROWS; r++)
		rows[r].seq = fixture_create_seq(TOKENS);
	expect_ok(paged_batch_plan(batch, ROWS, rows));
	expect_ok(paged_append(batch, 0, &k2t, &v2t, NULL));
	params.lse = lse[1];
	expect_ok(paged_attention(batch, 0, &q2t, &o2t, &params));
	transpose_to_bhsd(other_out, out);
	cr_assert_eq(memcmp(other_out, out2, sizeof(out2)), 0);
	cr_assert_eq(memcmp(lse[0], lse[1], sizeof(lse[0])), 0);
	memset(k2, 0, sizeof(k2));
	memset(v2, 0, sizeof(v2));
	expect_ok(paged_gather(batch, 0, &k2t, &v2t, NULL));
	transpose_to_bhsd(other_out, k);
	cr_assert_eq(memcmp(other_out, k2, sizeof(k2)), 0);
	transpose_to_bhsd(other_out, v);
	cr_assert_eq(memcmp(other_out, v2, sizeof(v2)), 0);
	/* Merging a result with itself gives the same result. */
	merge.part[0] = merge.part[1] = merge.out = o2t;
	merge.part_lse[0] = merge.part_lse[1] = lse[0];
	memcpy(other_out, out2, sizeof(out2));
	expect_error(paged_merge(batch, &merge), PAGED_ERR_INVALID,
		     "out has a batch_stride: rows must have equally many tokens, as the host knows them");
	merge.q_len = 4;
	expect_error(paged_merge(batch, &merge), PAGED_ERR_INVALID,
		     "n_tokens is 6, which is not a multiple of q_len 4");
	merge.q_len = TOKENS;
	expect_ok(paged_merge(batch, &merge));
	for (uint32_t i = 0; i < ELEMENTS; i++)
		cr_assert_float_eq(out2[i], other_out[i], 1e-6);
	/* Strides that let rows overlap. */
	o2t.batch_stride = TOKENS * FIXTURE_DIM;
	expect_error(paged_attention(batch, 0, &q2t, &o2t, NULL), PAGED_ERR_INVALID,
		     "out: its strides let heads and tokens overlap");
	o2t.batch_stride = FIXTURE_DIM - 1;
	expect_error(paged_attention(batch, 0, &q2t, &o2t, NULL), PAGED_ERR_INVALID,
		     "out: batch_stride of 7 elements for 8 dims");
	rows[1].q_len = 2;
	expect_ok(paged_batch_plan(batch, ROWS, rows));
	expect_error(paged_attention(batch, 0, &q2t, &out_tensor, NULL), PAGED_ERR_INVALID,
		     "q has a batch_stride: rows must have equally many tokens, as the host knows them");
}

Test(rows, tensor_strides_are_checked)
{
	struct paged_batch_row rows[ROWS];
	struct paged_tensor bad = q_tensor, big = out_tensor;

	rows_create(rows);
	bad.n_heads = big.n_heads = 5;
	expect_error(paged_attention(batch, 0, &bad, &big, NULL), PAGED_ERR_INVALID,
		     "q has 5 heads, which is not a multiple of the pool's 2 KV heads");
	bad = q_tensor;
	bad.dim = 4;
	expect_error(paged_attention(batch, 0, &bad, &out_tensor, NULL), PAGED_ERR_INVALID,
		     "q has heads of 4 dims, not 8");
	bad.n_heads = 0;
	expect_error(paged_attention(batch, 0, &bad, &out_tensor, NULL), PAGED_ERR_INVALID, "q has no heads");
	/* A tensor without tokens is not read, so its strides do not matter. */
	bad = q_tensor;
	bad.token_stride = bad.head_stride = 1;
	bad.batch_stride = INT64_MAX;
	expect_error(paged_attention(batch, 0, &bad, &out_tensor, NULL), PAGED_ERR_INVALID,
		     "q: strides of 1 (token) and 1 (head) elements for 8 dims");
	rows[0].q_len = rows[1].q_len = 0;
	expect_ok(paged_batch_plan(batch, ROWS, rows));
	expect_ok(paged_append(batch, 0, &bad, &bad, NULL));
	expect_ok(paged_attention(batch, 0, &bad, &bad, NULL));
}
