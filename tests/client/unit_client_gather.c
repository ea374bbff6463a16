/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering tokens from pages and appending them to others, through the public API. */
#include <string.h>

#include "tests/support/client_fixture.h"
#include "tests/support/reference.h"
#include "tests/support/sequences.h"

#define TOKENS 11u
#define ELEMENTS (TOKENS * FIXTURE_KV_HEADS * FIXTURE_DIM)

static float k[ELEMENTS], v[ELEMENTS], k_out[2 * ELEMENTS], v_out[2 * ELEMENTS];
static const struct paged_tensor k_tensor = {
	.data = k, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_tensor v_tensor = {
	.data = v, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_tensor k_out_tensor = {
	.data = k_out, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_tensor v_out_tensor = {
	.data = v_out, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};

static void
gather_setup(void)
{
	client_fixture_setup();
	random_fill(k, ELEMENTS, 1);
	random_fill(v, ELEMENTS, 2);
	memset(k_out, 0, sizeof(k_out));
	memset(v_out, 0, sizeof(v_out));
}

TestSuite(client_gather, .init = gather_setup, .fini = client_fixture_teardown);

static struct paged_batch *
append_tokens(paged_seq_id id)
{
	struct paged_batch *batch = fixture_create_batch(3, 0);

	expect_ok(
		paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = TOKENS, .kv_len = TOKENS }));
	expect_ok(paged_append(batch, 1, &k_tensor, &v_tensor, NULL));
	return batch;
}

/* Gathers a sequence, appends it to another in a different order, and gathers that. */
Test(client_gather, gather_inverts_append)
{
	static const uint32_t positions[TOKENS] = { 10, 3, 0, 7, 1, 9, 2, 8, 4, 6, 5 };
	struct paged_append_params append = { .struct_size = sizeof(append), .positions = positions };
	paged_seq_id a = fixture_create_seq(TOKENS), b = fixture_create_seq(TOKENS);
	struct paged_batch *batch = append_tokens(a);

	expect_ok(paged_gather(batch, 1, &k_out_tensor, &v_out_tensor, NULL));
	cr_assert_eq(memcmp(k_out, k, sizeof(k)), 0);
	cr_assert_eq(memcmp(v_out, v, sizeof(v)), 0);
	expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = b, .q_len = TOKENS, .kv_len = TOKENS }));
	expect_ok(paged_append(batch, 1, &k_out_tensor, &v_out_tensor, &append));
	memset(k_out, 0, sizeof(k_out));
	expect_ok(paged_gather(batch, 1, &k_out_tensor, &v_out_tensor, NULL));
	for (uint32_t i = 0; i < TOKENS; i++) {
		size_t at = positions[i] * FIXTURE_KV_HEADS * FIXTURE_DIM,
		       size = FIXTURE_KV_HEADS * FIXTURE_DIM * sizeof(float);

		cr_assert_eq(memcmp(k_out + at, k + i * FIXTURE_KV_HEADS * FIXTURE_DIM, size), 0, "token %u", i);
		cr_assert_eq(memcmp(v_out + at, v + i * FIXTURE_KV_HEADS * FIXTURE_DIM, size), 0, "token %u", i);
	}
}

/* Rows that share pages, have no queries, or no tokens; V alone. */
Test(client_gather, rows_with_shared_pages_or_without_tokens)
{
	paged_seq_id id = fixture_create_seq(TOKENS);
	struct paged_batch *batch = append_tokens(id);
	uint32_t pages[3], begin[3] = { 2, 0, 5 }, end[3] = { 9, 0, 6 };
	struct paged_gather_params params = { .struct_size = sizeof(params), .begin = begin, .end = end };
	struct paged_batch_row rows[3] = { { .seq = id, .q_len = 1, .kv_len = TOKENS }, { .seq = id } };

	expect_ok(paged_seq_read(pool, id, NULL, pages, 3));
	rows[2] = (struct paged_batch_row){ .pages = pages, .n_pages = 2, .kv_len = 6 };
	expect_ok(paged_batch_plan(batch, 3, rows));
	expect_ok(paged_gather(batch, 1, NULL, &v_out_tensor, &params));
	cr_assert_eq(memcmp(v_out, v + 2 * FIXTURE_KV_HEADS * FIXTURE_DIM,
			    7 * FIXTURE_KV_HEADS * FIXTURE_DIM * sizeof(float)),
		     0);
	cr_assert_eq(memcmp(v_out + 7 * FIXTURE_KV_HEADS * FIXTURE_DIM, v + 5 * FIXTURE_KV_HEADS * FIXTURE_DIM,
			    FIXTURE_KV_HEADS * FIXTURE_DIM * sizeof(float)),
		     0);
	for (uint32_t i = 8 * FIXTURE_KV_HEADS * FIXTURE_DIM; i < 2 * ELEMENTS; i++)
		cr_assert_eq(v_out[i], 0);
	params.begin = params.end = NULL;
	expect_ok(paged_gather(batch, 1, &k_out_tensor, NULL, &params));
	cr_assert_eq(memcmp(k_out, k, sizeof(k)), 0);
	cr_assert_eq(memcmp(k_out + ELEMENTS, k, 6 * FIXTURE_KV_HEADS * FIXTURE_DIM * sizeof(float)), 0);
	expect_ok(paged_batch_plan(batch, 0, NULL));
	expect_ok(paged_gather(batch, 1, &k_out_tensor, &v_out_tensor, NULL));
}

/* Without bounds, a row's tokens begin at kv_first. */
Test(client_gather, from_kv_first_on)
{
	paged_seq_id id = fixture_create_seq(TOKENS);
	struct paged_batch *batch = append_tokens(id);
	uint32_t pages[3];
	struct paged_batch_row row = { .pages = pages, .n_pages = 3, .kv_len = TOKENS, .kv_first = 9 };
	const size_t token = FIXTURE_KV_HEADS * FIXTURE_DIM;

	expect_ok(paged_seq_read(pool, id, NULL, pages, 3));
	pages[0] = pages[1] = UINT32_MAX;
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_ok(paged_gather(batch, 1, &k_out_tensor, &v_out_tensor, NULL));
	cr_assert_eq(memcmp(k_out, k + 9 * token, (TOKENS - 9) * token * sizeof(float)), 0);
	cr_assert_eq(memcmp(v_out, v + 9 * token, (TOKENS - 9) * token * sizeof(float)), 0);
	for (size_t i = (TOKENS - 9) * token; i < 2 * ELEMENTS; i++)
		cr_assert_eq(v_out[i], 0);
}

/* A trimmed sequence yields the tokens that it has kept; exports have no page before them. */
Test(client_gather, trimmed_sequence)
{
	paged_seq_id id = fixture_create_seq(TOKENS);
	struct paged_batch *batch = append_tokens(id);
	uint32_t first = 9, begin = 7, end = TOKENS, pages[3];
	struct paged_gather_params params = { .struct_size = sizeof(params), .begin = &begin, .end = &end };
	const struct paged_batch_row row = { .seq = id, .kv_len = TOKENS };
	const size_t token = FIXTURE_KV_HEADS * FIXTURE_DIM;
	int32_t indptr[2], indices[3], last, table[3];
	size_t n;

	expect_ok(paged_seq_read(pool, id, NULL, pages, 3));
	expect_ok(seqs_trim(client, 1, &id, &first));
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_ok(paged_gather(batch, 1, &k_out_tensor, &v_out_tensor, NULL));
	cr_assert_eq(memcmp(k_out, k + 8 * token, (TOKENS - 8) * token * sizeof(float)), 0);
	cr_assert_eq(memcmp(v_out, v + 8 * token, (TOKENS - 8) * token * sizeof(float)), 0);
	for (size_t i = (TOKENS - 8) * token; i < 2 * ELEMENTS; i++)
		cr_assert_eq(v_out[i], 0);
	expect_error(paged_gather(batch, 1, &k_out_tensor, NULL, &params), PAGED_ERR_RANGE,
		     "row 0: tokens 7 to 11 are wanted, its kv_first is 8");
	begin = 10;
	expect_ok(paged_gather(batch, 1, &k_out_tensor, NULL, &params));
	cr_assert_eq(memcmp(k_out, k + 10 * token, token * sizeof(float)), 0);
	expect_ok(paged_batch_tables_csr(batch, indptr, indices, 3, &last, &n));
	cr_assert(n == 3 && indptr[1] == 3 && last == 3);
	cr_assert(indices[0] == 0 && indices[1] == 0 && indices[2] == (int32_t)pages[2]);
	expect_ok(paged_batch_tables_padded(batch, table, 3, NULL));
	cr_assert_arr_eq(table, indices, sizeof(table));
	expect_ok(paged_batch_kv_first(batch, &first));
	cr_assert_eq(first, 8);
	expect_error(paged_batch_kv_first(batch, NULL), PAGED_ERR_INVALID, "kv_first is NULL");
}

Test(client_gather, arguments_are_checked)
{
	paged_seq_id id = fixture_create_seq(TOKENS);
	struct paged_batch *batch = fixture_create_batch(1, 0);
	struct paged_batch_row row = { .seq = id, .kv_len = TOKENS };
	uint32_t begin = 4, end = 3;
	float scale[FIXTURE_KV_HEADS] = { 1, 1 };
	struct paged_gather_params params = { .struct_size = sizeof(params), .begin = &begin, .end = &end };
	struct paged_tensor bad = k_out_tensor;

	expect_error(paged_gather(batch, 0, &k_out_tensor, &v_out_tensor, NULL), PAGED_ERR_INVALID,
		     "the batch has no plan");
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_error(paged_gather(batch, 2, &k_out_tensor, &v_out_tensor, NULL), PAGED_ERR_INVALID,
		     "layer 2 of a pool of 2 layers");
	expect_error(paged_gather(batch, 0, NULL, NULL, NULL), PAGED_ERR_INVALID, "neither k nor v is wanted");
	expect_error(paged_gather(batch, 0, &k_out_tensor, &v_out_tensor, &params), PAGED_ERR_RANGE,
		     "row 0: tokens 4 to 3 are wanted, its kv_len is 11");
	end = 12;
	expect_error(paged_gather(batch, 0, &k_out_tensor, &v_out_tensor, &params), PAGED_ERR_RANGE,
		     "row 0: tokens 4 to 12 are wanted, its kv_len is 11");
	row.kv_first = 5;
	end = 6;
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_error(paged_gather(batch, 0, &k_out_tensor, &v_out_tensor, &params), PAGED_ERR_RANGE,
		     "row 0: tokens 4 to 6 are wanted, its kv_first is 5");
	end = 4;
	expect_ok(paged_gather(batch, 0, &k_out_tensor, &v_out_tensor, &params));
	params.begin = params.end = NULL;
	params.v_scale = scale;
	expect_error(paged_gather(batch, 0, &k_out_tensor, &v_out_tensor, &params), PAGED_ERR_INVALID,
		     "v_scale: pool small keeps f32, scales are of e4m3 and e5m2");
	bad.dim = 7;
	expect_error(paged_gather(batch, 0, &k_out_tensor, &bad, NULL), PAGED_ERR_INVALID,
		     "v has heads of 7 dims, not 8");
	bad = k_out_tensor;
	bad.dtype = PAGED_I8;
	expect_error(paged_gather(batch, 0, &bad, &v_out_tensor, NULL), PAGED_ERR_INVALID,
		     "k: dtype %d is none of f32, f16, bf16", (int)PAGED_I8);
	bad = k_out_tensor;
	bad.data = NULL;
	expect_error(paged_gather(batch, 0, &bad, &v_out_tensor, NULL), PAGED_ERR_INVALID, "k has no data");
	bad = k_out_tensor;
	bad.token_stride = FIXTURE_DIM;
	expect_error(paged_gather(batch, 0, &bad, &v_out_tensor, NULL), PAGED_ERR_INVALID,
		     "k: its strides let heads and tokens overlap");
}
