/* SPDX-License-Identifier: Apache-2.0 */
/* Plan, append and attention over an embedded owner. */
#include <math.h>
#include <string.h>

#include "tests/support/client_fixture.h"
#include "tests/support/reference.h"
#include "tests/support/sequences.h"

TestSuite(batch, .init = client_fixture_setup, .fini = client_fixture_teardown);

Test(batch, create)
{
	struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = 4097 };
	struct paged_batch *batch = NULL;

	expect_error(paged_batch_create(pool, &params, &batch), PAGED_ERR_LIMIT, "max_rows 4097 exceeds 4096");
	expect_error(paged_batch_create(pool, NULL, NULL), PAGED_ERR_INVALID, "a batch needs a place for its handle");
	cr_assert_null(batch);
	batch = fixture_create_batch(0, 0);
	expect_error(paged_batch_validate(batch), PAGED_ERR_INVALID, "the batch has no plan");
	paged_batch_destroy(batch);
	paged_batch_destroy(NULL);
}

Test(batch, rows_are_checked)
{
	struct paged_batch *batch = fixture_create_batch(2, 0);
	paged_seq_id id = fixture_create_seq(8);
	uint32_t pages[11] = { 0, FIXTURE_N_PAGES };
	struct paged_batch_row row = { .seq = id, .q_len = 1, .kv_len = 9 };

	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_CAPACITY,
		     "row 0: kv_len 9 exceeds the 8 tokens that sequence " SEQ_FORMAT " has reserved", SEQ_ARGS(id));
	expect_error(paged_batch_validate(batch), PAGED_ERR_INVALID, "the batch has no plan");
	cr_assert_eq(paged_batch_pages_missing(batch, 0), 0);
	expect_error(paged_batch_plan(batch, 3, &row), PAGED_ERR_LIMIT, "3 rows exceed the batch's max_rows of 2");
	expect_error(paged_batch_plan(batch, 1, NULL), PAGED_ERR_INVALID, "rows is NULL");
	row.flags = 8;
	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID,
		     "row 0: flags 0x8 has bits this library does not know");
	row = (struct paged_batch_row){ .q_len = 1 };
	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID, "row 0: names neither a sequence nor pages");
	row = (struct paged_batch_row){ .seq = id, .pages = pages, .n_pages = 1 };
	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID,
		     "row 0: names both sequence " SEQ_FORMAT " and pages", SEQ_ARGS(id));
	row = (struct paged_batch_row){ .pages = pages, .n_pages = 2, .kv_len = 1 };
	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_RANGE, "row 0: pages[1] is 16, the pool has 16 pages");
	row = (struct paged_batch_row){ .pages = pages, .n_pages = 1, .kv_len = 5 };
	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_CAPACITY,
		     "row 0: kv_len 5 exceeds the 4 tokens of its 1 pages");
	row = (struct paged_batch_row){ .pages = pages, .n_pages = 11 };
	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_LIMIT,
		     "row 0: 11 pages exceed the 10 that max_length 40 takes");
	row = (struct paged_batch_row){ .seq = id, .kv_len = 4, .kv_first = 5 };
	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID, "row 0: kv_first 5 exceeds its kv_len 4");
	row = (struct paged_batch_row){ .seq = PAGED_SEQ(1, 0, 7) };
	expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_STALE, "pool small has no live sequence 7.1");
}

Test(batch, tables)
{
	struct paged_batch *batch = fixture_create_batch(0, 0);
	paged_seq_id id = fixture_create_seq(12);
	uint32_t pages[3], explicit_pages[2] = { 9, 3 };
	int32_t indptr[4], indices[5], last[3], padded[3][3], kv_len[3];
	size_t n;

	expect_ok(paged_seq_read(pool, id, NULL, pages, 3));
	expect_ok(
		paged_batch_plan(batch, 3,
				 (struct paged_batch_row[]){ { .seq = id, .q_len = 1, .kv_len = 9 },
							     { .seq = id },
							     { .pages = explicit_pages, .n_pages = 2, .kv_len = 8 } }));
	expect_ok(paged_batch_tables_csr(batch, NULL, NULL, 0, NULL, &n));
	cr_assert_eq(n, 5);
	expect_error(paged_batch_tables_csr(batch, NULL, indices, 4, NULL, NULL), PAGED_ERR_LIMIT,
		     "the plan's rows have 5 pages, indices 4");
	expect_ok(paged_batch_tables_csr(batch, indptr, indices, 5, last, &n));
	cr_assert_arr_eq(indptr, ((int32_t[]){ 0, 3, 3, 5 }), sizeof(indptr));
	cr_assert_arr_eq(last, ((int32_t[]){ 1, 0, 4 }), sizeof(last));
	cr_assert_arr_eq(indices, pages, sizeof(pages));
	cr_assert_eq(indices[3], 9);
	cr_assert_eq(indices[4], 3);
	expect_error(paged_batch_tables_padded(batch, &padded[0][0], 2, NULL), PAGED_ERR_LIMIT,
		     "row 0 has 3 pages, width is 2");
	expect_ok(paged_batch_tables_padded(batch, &padded[0][0], 3, kv_len));
	cr_assert_arr_eq(padded[0], pages, sizeof(pages));
	cr_assert_arr_eq(padded[1], ((int32_t[]){ 0, 0, 0 }), sizeof(padded[1]));
	cr_assert_arr_eq(padded[2], ((int32_t[]){ 9, 3, 0 }), sizeof(padded[2]));
	cr_assert_arr_eq(kv_len, ((int32_t[]){ 9, 0, 8 }), sizeof(kv_len));
}

/* Entries of explicit pages that are wholly before kv_first may be any number; tables have 0 in their places. */
Test(batch, entries_before_kv_first)
{
	struct paged_batch *batch = fixture_create_batch(0, 0);
	paged_seq_id id = fixture_create_seq(12);
	uint32_t pages[3] = { UINT32_MAX, FIXTURE_N_PAGES, 3 }, own[3];
	struct paged_batch_row rows[2] = { { .pages = pages, .n_pages = 3, .kv_len = 9, .kv_first = 7 },
					   { .seq = id, .kv_len = 12, .kv_first = 4 } };
	int32_t indices[6], padded[2][3];
	size_t n;

	expect_error(paged_batch_plan(batch, 2, rows), PAGED_ERR_RANGE, "row 0: pages[1] is 16, the pool has 16 pages");
	rows[0].kv_first = 8;
	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_ok(paged_seq_read(pool, id, NULL, own, 3));
	expect_ok(paged_batch_tables_csr(batch, NULL, indices, 6, NULL, &n));
	cr_assert_eq(n, 6);
	cr_assert_arr_eq(indices, ((int32_t[]){ 0, 0, 3, 0, (int32_t)own[1], (int32_t)own[2] }), sizeof(indices));
	expect_ok(paged_batch_tables_padded(batch, &padded[0][0], 3, NULL));
	cr_assert_arr_eq(padded, indices, sizeof(padded));
	/* kv_first may be the end: the whole table is unused. */
	rows[0] = (struct paged_batch_row){
		.pages = (uint32_t[]){ UINT32_MAX }, .n_pages = 1, .kv_len = 4, .kv_first = 4
	};
	expect_ok(paged_batch_plan(batch, 1, rows));
	expect_ok(paged_batch_validate(batch));
}

/* A batch keeps a copy of a row's page table until an entry is replaced. */
Test(batch, cached_page_tables_follow_changes)
{
	struct paged_batch *batch = fixture_create_batch(2, 0);
	paged_seq_id ids[2] = { fixture_create_seq(8), fixture_create_seq(4) }, other = fixture_create_seq(0);
	uint32_t tokens, pages[3];
	int32_t indices[3];

	for (unsigned int i = 0; i < 2; i++)
		expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[0], .kv_len = 8 }));
	/* The table grows; */
	tokens = 12;
	expect_ok(seqs_reserve(client, 1, &ids[0], &tokens));
	expect_ok(paged_batch_validate(batch));
	expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[0], .kv_len = 12 }));
	expect_ok(paged_seq_read(pool, ids[0], NULL, pages, 3));
	expect_ok(paged_batch_tables_csr(batch, NULL, indices, 3, NULL, NULL));
	cr_assert_arr_eq(indices, pages, sizeof(pages));
	/* entries are removed, and allocated again; */
	tokens = 4;
	expect_ok(seqs_truncate(client, 1, &ids[0], &tokens));
	expect_error(paged_batch_validate(batch), PAGED_ERR_STALE,
		     "row 0: pages of sequence " SEQ_FORMAT " were replaced or removed since the plan",
		     SEQ_ARGS(ids[0]));
	expect_ok(seqs_reserve(client, 1, &other, &tokens));
	tokens = 12;
	expect_ok(seqs_reserve(client, 1, &ids[0], &tokens));
	expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[0], .kv_len = 12 }));
	expect_ok(paged_seq_read(pool, ids[0], NULL, pages, 3));
	expect_ok(paged_batch_tables_csr(batch, NULL, indices, 3, NULL, NULL));
	cr_assert_arr_eq(indices, pages, sizeof(pages));
	/* the row gets another sequence. */
	expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[1], .kv_len = 4 }));
	expect_ok(paged_seq_read(pool, ids[1], NULL, pages, 1));
	expect_ok(paged_batch_tables_csr(batch, NULL, indices, 1, NULL, NULL));
	cr_assert_eq((uint32_t)indices[0], pages[0]);
	expect_ok(paged_seq_erase(client, 1, &ids[1]));
	cr_assert_eq(paged_batch_validate(batch), PAGED_ERR_STALE);
	cr_assert_eq(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[1], .kv_len = 4 }),
		     PAGED_ERR_STALE);
}

Test(batch, reserve_ahead)
{
	struct paged_batch *batch = fixture_create_batch(2, 8);
	paged_seq_id id = fixture_create_seq(0);
	uint32_t n_changes = 0, before = 0;

	/* The capacity is too small: the plan reserves, with reserve_ahead. */
	expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = 3, .kv_len = 3 }));
	cr_assert_eq(fixture_seq_capacity(id), 12);
	for (uint32_t kv_len = 4; kv_len <= FIXTURE_MAX_LENGTH; kv_len++) {
		cr_assert_geq(fixture_seq_capacity(id), kv_len);
		expect_ok(paged_batch_plan(batch, 1,
					   &(struct paged_batch_row){ .seq = id, .q_len = 1, .kv_len = kv_len }));
		n_changes += fixture_seq_capacity(id) != before;
		before = fixture_seq_capacity(id);
	}
	/* At most one request per 8 steps, and never past max_length. */
	cr_assert_leq(n_changes, 5);
	cr_assert_eq(fixture_seq_capacity(id), FIXTURE_MAX_LENGTH);
	expect_error(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = 1, .kv_len = 41 }),
		     PAGED_ERR_LIMIT, "row 0: kv_len 41 exceeds max_length 40 of pool small");
}

Test(batch, pages_missing_of_each_row_of_a_full_pool)
{
	struct paged_batch *batch = fixture_create_batch(4, 16);
	paged_seq_id big = fixture_create_seq(40), a = fixture_create_seq(8), b = fixture_create_seq(0);
	struct paged_batch_row rows[] = { { .seq = big, .q_len = 1, .kv_len = 40 },
					  { .seq = a, .q_len = 1, .kv_len = 17 },
					  { .seq = b, .q_len = 9, .kv_len = 9 } };
	char sentence[256];

	/* 12 pages are allocated, 4 are free.  Row a needs 3 and can have them; row b needs 3 more. */
	cr_assert_eq(paged_batch_plan(batch, 3, rows), PAGED_ERR_FULL);
	snprintf(sentence, sizeof(sentence), "%s", paged_client_error(client));
	cr_assert_not_null(strstr(sentence, "6 pages requested, 4 free"), "%s", sentence);
	cr_assert_eq(paged_batch_pages_missing(batch, 0), 0);
	cr_assert_eq(paged_batch_pages_missing(batch, 1), 0);
	cr_assert_eq(paged_batch_pages_missing(batch, 2), 3);
	cr_assert_eq(paged_batch_pages_missing(batch, 99), 0);
	cr_assert_eq(fixture_seq_capacity(b), 0);
	/* In the other order, row a is short. */
	cr_assert_eq(paged_batch_plan(batch, 2, (struct paged_batch_row[]){ rows[2], rows[1] }), PAGED_ERR_FULL);
	cr_assert_eq(paged_batch_pages_missing(batch, 0), 0);
	cr_assert_eq(paged_batch_pages_missing(batch, 1), 3);
	/* A row that needs more than the free pages does not block the next row. */
	rows[2].kv_len = 17;
	cr_assert_eq(paged_batch_plan(batch, 2, (struct paged_batch_row[]){ rows[2], rows[1] }), PAGED_ERR_FULL);
	cr_assert_eq(paged_batch_pages_missing(batch, 0), 5);
	cr_assert_eq(paged_batch_pages_missing(batch, 1), 0);
	/* Without row b there is room, but not for reserve_ahead. */
	expect_ok(paged_batch_plan(batch, 2, rows));
	cr_assert_eq(fixture_seq_capacity(a), 20);
	cr_assert_eq(paged_batch_pages_missing(batch, 1), 0);
	/* Two rows of one sequence make one request, for the larger length. */
	rows[1] = (struct paged_batch_row){ .seq = b, .q_len = 1, .kv_len = 1 };
	rows[2] = (struct paged_batch_row){ .seq = b, .q_len = 1, .kv_len = 3, .flags = PAGED_ROW_NO_APPEND };
	expect_ok(paged_batch_plan(batch, 3, rows));
	cr_assert_eq(fixture_seq_capacity(b), 4);
}

/* Calls for pools in GPU memory. */
Test(batch, host_pools_have_no_streams)
{
	struct paged_plan_device_params params = { .struct_size = sizeof(params) };
	struct paged_batch *batch = fixture_create_batch(2, 0);

	expect_ok(paged_batch_plan(batch, 0, NULL));
	expect_error(paged_batch_stream(batch, &params), PAGED_ERR_UNSUPPORTED,
		     "pool small is in the host's memory, which has no streams");
	expect_ok(paged_batch_validate(batch));
	expect_ok(paged_batch_stream(batch, NULL));
	expect_error(paged_batch_plan_device(batch, &params), PAGED_ERR_UNSUPPORTED,
		     "pool small is in the host's memory: lengths are paged_batch_plan()'s");
	expect_error(paged_batch_validate(batch), PAGED_ERR_INVALID, "the batch has no plan");
	params.tables_only = 2;
	expect_error(paged_batch_plan_device(batch, &params), PAGED_ERR_INVALID, "tables_only is 2, neither 0 nor 1");
	params.tables_only = 0;
	params.reserved = 1;
	expect_error(paged_batch_plan_device(batch, &params), PAGED_ERR_INVALID, "reserved words must be 0");
}

/* ------------------------------------------------------- append, attention */

static float k[4 * FIXTURE_KV_HEADS * FIXTURE_DIM], v[4 * FIXTURE_KV_HEADS * FIXTURE_DIM],
	q[4 * 2 * FIXTURE_KV_HEADS * FIXTURE_DIM], out[4 * 2 * FIXTURE_KV_HEADS * FIXTURE_DIM];
static const struct paged_tensor k_tensor = {
	.data = k, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_tensor v_tensor = {
	.data = v, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_tensor q_tensor = {
	.data = q, .dtype = PAGED_F32, .n_heads = 2 * FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_tensor out_tensor = {
	.data = out, .dtype = PAGED_F32, .n_heads = 2 * FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};

Test(batch, append_is_checked)
{
	struct paged_batch *batch = fixture_create_batch(0, 0);
	paged_seq_id id = fixture_create_seq(8);
	uint32_t positions[2] = { 0, 8 };
	struct paged_append_params params = { .struct_size = sizeof(params), .positions = positions };
	struct paged_batch_row row = { .seq = id, .q_len = 2, .kv_len = 2 };
	struct paged_tensor bad = k_tensor;

	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, NULL), PAGED_ERR_INVALID, "the batch has no plan");
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_error(paged_append(batch, 2, &k_tensor, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "layer 2 of a pool of 2 layers");
	expect_error(paged_append(batch, 0, NULL, &v_tensor, NULL), PAGED_ERR_INVALID, "k has no data");
	expect_error(paged_append(batch, 0, &k_tensor, NULL, NULL), PAGED_ERR_INVALID, "v has no data");
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, &params), PAGED_ERR_CAPACITY,
		     "row 0: position 8 is past the 8 tokens it has room for");
	bad.n_heads = 3;
	expect_error(paged_append(batch, 0, &bad, &v_tensor, NULL), PAGED_ERR_INVALID, "k has 3 heads, not 2");
	bad = k_tensor;
	bad.dtype = (enum paged_dtype)9;
	expect_error(paged_append(batch, 0, &bad, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "k: dtype 9 is none of f32, f16, bf16");
	bad = k_tensor;
	bad.data = (char *)k + 1;
	expect_error(paged_append(batch, 0, &bad, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "k: data is not aligned to its elements of 4 bytes");
	bad = k_tensor;
	bad.head_stride = -8;
	expect_error(paged_append(batch, 0, &bad, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "k: strides of 16 (token) and -8 (head) elements for 8 dims");
	bad = k_tensor;
	bad.token_stride = INT64_MAX / 8;
	expect_error(paged_append(batch, 0, &bad, &v_tensor, NULL), PAGED_ERR_LIMIT,
		     "k: 2 tokens of these strides exceed 2^63 bytes");
	bad = k_tensor;
	bad.reserved[4] = 1;
	expect_error(paged_append(batch, 0, &bad, &v_tensor, NULL), PAGED_ERR_INVALID, "k: reserved words must be 0");

	/* q_len larger than kv_len: there are no default positions, so the caller must pass them. */
	row.kv_len = 1;
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, NULL), PAGED_ERR_INVALID,
		     "row 0: 2 tokens to append end at kv_len 1: positions are needed");
	positions[1] = 7;
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, &params));
}

Test(batch, append_to_sequences_and_explicit_pages)
{
	struct paged_batch_row row = { .q_len = 2, .kv_len = 2 };
	uint32_t pages[1] = { 3 };
	struct paged_batch *batch;

	/* Sequences of an ended session are stale immediately, so append cannot write to them. */
	row.seq = fixture_create_seq(4);
	batch = fixture_create_batch(0, 0);
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, NULL));
	/* Explicit pages belong to the engine's own block manager. */
	row = (struct paged_batch_row){ .pages = pages, .n_pages = 1, .q_len = 2, .kv_len = 2 };
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_ok(paged_append(batch, 1, &k_tensor, &v_tensor, NULL));
	expect_ok(paged_batch_validate(batch));
}

Test(batch, append_before_kv_first)
{
	struct paged_batch *batch = fixture_create_batch(0, 0);
	uint32_t pages[2] = { UINT32_MAX, 3 }, positions[2] = { 4, 3 };
	struct paged_batch_row rows[2] = {
		{ .pages = pages, .n_pages = 2, .q_len = 1, .kv_len = 7, .kv_first = 4 },
		{ .pages = pages, .n_pages = 2, .q_len = 1, .kv_len = 4, .kv_first = 4 },
	};
	const struct paged_append_params params = { .struct_size = sizeof(params), .positions = positions };

	expect_ok(paged_batch_plan(batch, 2, rows));
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, NULL), PAGED_ERR_PERM,
		     "row 1: position 3 lies in a page before kv_first 4, so its entry of pages is not used");
	expect_error(paged_append(batch, 0, &k_tensor, &v_tensor, &params), PAGED_ERR_PERM,
		     "row 1: position 3 may not be written, the row is writable from 4");
	positions[1] = 5;
	expect_ok(paged_append(batch, 0, &k_tensor, &v_tensor, &params));
}

Test(batch, attention_is_checked)
{
	struct paged_batch *batch = fixture_create_batch(0, 0);
	paged_seq_id id = fixture_create_seq(8);
	struct paged_attention_params params = { .struct_size = sizeof(params), .mask = (enum paged_mask)5 };
	struct paged_tensor bad = q_tensor;

	expect_ok(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = 2, .kv_len = 2 }));
	expect_error(paged_attention(batch, 0, &q_tensor, &out_tensor, &params), PAGED_ERR_INVALID,
		     "mask 5 is neither causal nor none");
	params = (struct paged_attention_params){ .struct_size = sizeof(params), .scale = __builtin_inff() };
	expect_error(paged_attention(batch, 0, &q_tensor, &out_tensor, &params), PAGED_ERR_INVALID,
		     "scale is not finite");
	expect_error(paged_attention(batch, 0, &q_tensor, &q_tensor, NULL), PAGED_ERR_INVALID,
		     "q shares memory with out, which is written: pass a tensor with its own memory");
	expect_error(paged_attention(batch, 0, &q_tensor, NULL, NULL), PAGED_ERR_INVALID, "out has no data");
	bad.n_heads = 3;
	cr_assert_eq(paged_attention(batch, 0, &bad, &out_tensor, NULL), PAGED_ERR_INVALID);
	expect_error(paged_attention(batch, 0, &q_tensor, &bad, NULL), PAGED_ERR_INVALID, "out has 3 heads, not 4");
	bad = out_tensor;
	bad.token_stride = FIXTURE_DIM;
	expect_error(paged_attention(batch, 0, &q_tensor, &bad, NULL), PAGED_ERR_INVALID,
		     "out: its strides let heads and tokens overlap");
	expect_ok(paged_attention(batch, 0, &q_tensor, &out_tensor, NULL));
}

/* ----------------------------------------------------------------- results */

#define N_TOKENS 23u
#define Q_HEADS (2 * FIXTURE_KV_HEADS)

/* Element of token `token` in the random stream of a sequence. */
static float
stream_element(uint64_t seed, uint32_t token, uint32_t head, uint32_t dim)
{
	return random_float(seed, ((uint64_t)token * 64 + head) * 64 + dim, 1.0f);
}

static void
stream_fill(float *to, uint64_t seed, uint32_t from, uint32_t n, uint32_t n_heads)
{
	for (uint32_t t = 0; t < n; t++)
		for (uint32_t h = 0; h < n_heads; h++)
			for (uint32_t d = 0; d < FIXTURE_DIM; d++)
				to[(t * n_heads + h) * FIXTURE_DIM + d] = stream_element(seed, from + t, h, d);
}

static void
expect_result(const float *got, float lse, uint64_t seed, uint32_t q_idx, uint32_t head)
{
	float query[FIXTURE_DIM], keys[N_TOKENS * FIXTURE_KV_HEADS * FIXTURE_DIM],
		values[N_TOKENS * FIXTURE_KV_HEADS * FIXTURE_DIM];
	struct reference_q_row line = {
		.q = query,
		.k = keys + head / 2 * FIXTURE_DIM,
		.v = values + head / 2 * FIXTURE_DIM,
		.k_stride = FIXTURE_KV_HEADS * FIXTURE_DIM,
		.v_stride = FIXTURE_KV_HEADS * FIXTURE_DIM,
		.k_dim = FIXTURE_DIM,
		.v_dim = FIXTURE_DIM,
		.n_keys = q_idx + 1,
		.scale = 1 / sqrt(FIXTURE_DIM),
	};
	struct reference_result expected;

	stream_fill(keys, seed, 0, N_TOKENS, FIXTURE_KV_HEADS);
	stream_fill(values, seed + 1, 0, N_TOKENS, FIXTURE_KV_HEADS);
	for (uint32_t d = 0; d < FIXTURE_DIM; d++)
		query[d] = stream_element(seed + 2, q_idx, head, d);
	reference_attend(&line, &expected);
	for (uint32_t d = 0; d < FIXTURE_DIM; d++)
		cr_assert_leq(fabs(got[d] - expected.out[d]), expected.out_tolerance + 1e-7,
			      "q %u head %u dim %u: %g, %g", q_idx, head, d, got[d], expected.out[d]);
	cr_assert_leq(fabs(lse - expected.lse), expected.score_tolerance + 1e-6);
}

/* Two sequences, one prefilled in two chunks while the other decodes; results are compared with float64. */
Test(batch, results_equal_the_reference)
{
	static const struct {
		uint32_t first_q, first_kv, second_q, second_kv;
	} steps[] = {
		{ 7, 7, 1, 1 }, { 9, 16, 1, 2 }, { 1, 17, 4, 6 }, { 0, 17, 17, N_TOKENS }, { 6, N_TOKENS, 0, 0 }
	};
	float keys[24 * FIXTURE_KV_HEADS * FIXTURE_DIM], values[24 * FIXTURE_KV_HEADS * FIXTURE_DIM],
		queries[24 * Q_HEADS * FIXTURE_DIM], results[24 * Q_HEADS * FIXTURE_DIM];
	float lse[24 * Q_HEADS];
	struct paged_tensor k_step = {
		.data = keys, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
	};
	struct paged_tensor v_step = {
		.data = values, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
	};
	struct paged_tensor q_step = { .data = queries, .dtype = PAGED_F32, .n_heads = Q_HEADS, .dim = FIXTURE_DIM };
	struct paged_tensor out_step = { .data = results, .dtype = PAGED_F32, .n_heads = Q_HEADS, .dim = FIXTURE_DIM };
	struct paged_attention_params params = { .struct_size = sizeof(params), .lse = lse };
	paged_seq_id ids[2] = { fixture_create_seq(0), fixture_create_seq(0) };
	struct paged_batch *batch = fixture_create_batch(2, 4);

	for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
		struct paged_batch_row rows[2] = {
			{ .seq = ids[0], .q_len = steps[s].first_q, .kv_len = steps[s].first_kv },
			{ .seq = ids[1], .q_len = steps[s].second_q, .kv_len = steps[s].second_kv },
		};
		uint32_t at = 0;

		for (uint32_t r = 0; r < 2; r++) {
			uint32_t n = rows[r].q_len, from = rows[r].kv_len - n;

			stream_fill(keys + at * FIXTURE_KV_HEADS * FIXTURE_DIM, 10 * r, from, n, FIXTURE_KV_HEADS);
			stream_fill(values + at * FIXTURE_KV_HEADS * FIXTURE_DIM, 10 * r + 1, from, n,
				    FIXTURE_KV_HEADS);
			stream_fill(queries + at * Q_HEADS * FIXTURE_DIM, 10 * r + 2, from, n, Q_HEADS);
			at += n;
		}
		expect_ok(paged_batch_plan(batch, 2, rows));
		expect_ok(paged_append(batch, 1, &k_step, &v_step, NULL));
		expect_ok(paged_attention(batch, 1, &q_step, &out_step, &params));
		at = 0;
		for (uint32_t r = 0; r < 2; r++)
			for (uint32_t i = 0; i < rows[r].q_len; i++, at++)
				for (uint32_t h = 0; h < Q_HEADS; h++)
					expect_result(results + (at * Q_HEADS + h) * FIXTURE_DIM, lse[at * Q_HEADS + h],
						      10 * r, rows[r].kv_len - rows[r].q_len + i, h);
	}
}
