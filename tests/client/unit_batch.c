/* SPDX-License-Identifier: Apache-2.0 */
/* Plan, append and attention over an embedded owner. */
#include <math.h>
#include <string.h>

#include "tests/support/client_fixture.h"
#include "tests/support/reference.h"
#include "tests/support/sequences.h"

TestSuite(batch, .init = client_setup, .fini = client_teardown);

Test(batch, create)
{
	struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = 4097 };
	struct paged_batch *batch = NULL;

	refused(paged_batch_create(pool, &params, &batch), PAGED_ERR_LIMIT, "max_rows 4097 exceeds 4096");
	refused(paged_batch_create(pool, NULL, NULL), PAGED_ERR_INVALID, "a batch needs a place for its handle");
	cr_assert_null(batch);
	batch = batch_of(0, 0);
	refused(paged_batch_validate(batch), PAGED_ERR_INVALID, "the batch has no plan");
	paged_batch_destroy(batch);
	paged_batch_destroy(NULL);
}

Test(batch, rows_are_checked)
{
	struct paged_batch *batch = batch_of(2, 0);
	paged_seq_id id = sequence_of(8);
	uint32_t pages[11] = { 0, N_PAGES };
	struct paged_batch_row row = { .seq = id, .q_len = 1, .kv_len = 9 };

	refused(paged_batch_plan(batch, 1, &row), PAGED_ERR_CAPACITY,
		"row 0: kv_len 9 exceeds the 8 tokens that sequence " SEQ " has reserved", ARGS(id));
	refused(paged_batch_validate(batch), PAGED_ERR_INVALID, "the batch has no plan");
	cr_assert_eq(paged_batch_pages_missing(batch, 0), 0);
	refused(paged_batch_plan(batch, 3, &row), PAGED_ERR_LIMIT, "3 rows exceed the batch's max_rows of 2");
	refused(paged_batch_plan(batch, 1, NULL), PAGED_ERR_INVALID, "rows is NULL");
	row.flags = 8;
	refused(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID,
		"row 0: flags 0x8 has bits this library does not know");
	row = (struct paged_batch_row){ .q_len = 1 };
	refused(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID, "row 0: names neither a sequence nor pages");
	row = (struct paged_batch_row){ .seq = id, .pages = pages, .n_pages = 1 };
	refused(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID, "row 0: names both sequence " SEQ " and pages",
		ARGS(id));
	row = (struct paged_batch_row){ .pages = pages, .n_pages = 2, .kv_len = 1 };
	refused(paged_batch_plan(batch, 1, &row), PAGED_ERR_RANGE, "row 0: pages[1] is 16, the pool has 16 pages");
	row = (struct paged_batch_row){ .pages = pages, .n_pages = 1, .kv_len = 5 };
	refused(paged_batch_plan(batch, 1, &row), PAGED_ERR_CAPACITY,
		"row 0: kv_len 5 exceeds the 4 tokens of its 1 pages");
	row = (struct paged_batch_row){ .pages = pages, .n_pages = 11 };
	refused(paged_batch_plan(batch, 1, &row), PAGED_ERR_LIMIT,
		"row 0: 11 pages exceed the 10 that max_length 40 takes");
	row = (struct paged_batch_row){ .seq = PAGED_SEQ(1, 0, 7) };
	refused(paged_batch_plan(batch, 1, &row), PAGED_ERR_STALE, "pool small has no live sequence 7.1");
}

Test(batch, tables)
{
	struct paged_batch *batch = batch_of(0, 0);
	paged_seq_id id = sequence_of(12);
	uint32_t pages[3], explicit_pages[2] = { 9, 3 };
	int32_t indptr[4], indices[5], last[3], padded[3][3], kv_len[3];
	size_t n;

	done(paged_seq_read(pool, id, NULL, pages, 3));
	done(paged_batch_plan(batch, 3,
			      (struct paged_batch_row[]){ { .seq = id, .q_len = 1, .kv_len = 9 },
							  { .seq = id },
							  { .pages = explicit_pages, .n_pages = 2, .kv_len = 8 } }));
	done(paged_batch_tables_csr(batch, NULL, NULL, 0, NULL, &n));
	cr_assert_eq(n, 5);
	refused(paged_batch_tables_csr(batch, NULL, indices, 4, NULL, NULL), PAGED_ERR_LIMIT,
		"the plan's rows have 5 pages, indices 4");
	done(paged_batch_tables_csr(batch, indptr, indices, 5, last, &n));
	cr_assert_arr_eq(indptr, ((int32_t[]){ 0, 3, 3, 5 }), sizeof(indptr));
	cr_assert_arr_eq(last, ((int32_t[]){ 1, 0, 4 }), sizeof(last));
	cr_assert_arr_eq(indices, pages, sizeof(pages));
	cr_assert_eq(indices[3], 9);
	cr_assert_eq(indices[4], 3);
	refused(paged_batch_tables_padded(batch, &padded[0][0], 2, NULL), PAGED_ERR_LIMIT,
		"row 0 has 3 pages, width is 2");
	done(paged_batch_tables_padded(batch, &padded[0][0], 3, kv_len));
	cr_assert_arr_eq(padded[0], pages, sizeof(pages));
	cr_assert_arr_eq(padded[1], ((int32_t[]){ 0, 0, 0 }), sizeof(padded[1]));
	cr_assert_arr_eq(padded[2], ((int32_t[]){ 9, 3, 0 }), sizeof(padded[2]));
	cr_assert_arr_eq(kv_len, ((int32_t[]){ 9, 0, 8 }), sizeof(kv_len));
}

/* The copy of a row is kept while nothing in it is replaced, and never longer. */
Test(batch, a_kept_row_is_right)
{
	struct paged_batch *batch = batch_of(2, 0);
	paged_seq_id ids[2] = { sequence_of(8), sequence_of(4) }, other = sequence_of(0);
	uint32_t tokens, pages[3];
	int32_t indices[3];

	for (unsigned int i = 0; i < 2; i++)
		done(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[0], .kv_len = 8 }));
	/* Growth is seen, */
	tokens = 12;
	done(seqs_reserve(client, 1, &ids[0], &tokens));
	done(paged_batch_validate(batch));
	done(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[0], .kv_len = 12 }));
	done(paged_seq_read(pool, ids[0], NULL, pages, 3));
	done(paged_batch_tables_csr(batch, NULL, indices, 3, NULL, NULL));
	cr_assert_arr_eq(indices, pages, sizeof(pages));
	/* entries that were removed and taken anew as well, */
	tokens = 4;
	done(seqs_truncate(client, 1, &ids[0], &tokens));
	refused(paged_batch_validate(batch), PAGED_ERR_STALE,
		"row 0: pages of sequence " SEQ " were replaced or removed since the plan", ARGS(ids[0]));
	done(seqs_reserve(client, 1, &other, &tokens));
	tokens = 12;
	done(seqs_reserve(client, 1, &ids[0], &tokens));
	done(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[0], .kv_len = 12 }));
	done(paged_seq_read(pool, ids[0], NULL, pages, 3));
	done(paged_batch_tables_csr(batch, NULL, indices, 3, NULL, NULL));
	cr_assert_arr_eq(indices, pages, sizeof(pages));
	/* and another sequence in the row. */
	done(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[1], .kv_len = 4 }));
	done(paged_seq_read(pool, ids[1], NULL, pages, 1));
	done(paged_batch_tables_csr(batch, NULL, indices, 1, NULL, NULL));
	cr_assert_eq((uint32_t)indices[0], pages[0]);
	done(paged_seq_erase(client, 1, &ids[1]));
	cr_assert_eq(paged_batch_validate(batch), PAGED_ERR_STALE);
	cr_assert_eq(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = ids[1], .kv_len = 4 }),
		     PAGED_ERR_STALE);
}

Test(batch, reserve_ahead)
{
	struct paged_batch *batch = batch_of(2, 8);
	paged_seq_id id = sequence_of(0);
	uint32_t n_changes = 0, before = 0;

	/* Short of capacity: reserved here and now, with the reserve. */
	done(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = 3, .kv_len = 3 }));
	cr_assert_eq(capacity_of(id), 12);
	for (uint32_t kv_len = 4; kv_len <= MAX_LENGTH; kv_len++) {
		cr_assert_geq(capacity_of(id), kv_len);
		done(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = 1, .kv_len = kv_len }));
		n_changes += capacity_of(id) != before;
		before = capacity_of(id);
	}
	/* One request for every 8 steps or more, never past max_length. */
	cr_assert_leq(n_changes, 5);
	cr_assert_eq(capacity_of(id), MAX_LENGTH);
	refused(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = 1, .kv_len = 41 }),
		PAGED_ERR_LIMIT, "row 0: kv_len 41 exceeds max_length 40 of pool small");
}

Test(batch, a_full_pool_says_which_rows_lack_what)
{
	struct paged_batch *batch = batch_of(4, 16);
	paged_seq_id big = sequence_of(40), a = sequence_of(8), b = sequence_of(0);
	struct paged_batch_row rows[] = { { .seq = big, .q_len = 1, .kv_len = 40 },
					  { .seq = a, .q_len = 1, .kv_len = 17 },
					  { .seq = b, .q_len = 9, .kv_len = 9 } };
	char sentence[256];

	/* 10 + 2 pages are taken, 4 free; a lacks 3, which it can have, and b lacks 3. */
	cr_assert_eq(paged_batch_plan(batch, 3, rows), PAGED_ERR_FULL);
	snprintf(sentence, sizeof(sentence), "%s", paged_client_error(client));
	cr_assert_not_null(strstr(sentence, "6 pages requested, 4 free"), "%s", sentence);
	cr_assert_eq(paged_batch_pages_missing(batch, 0), 0);
	cr_assert_eq(paged_batch_pages_missing(batch, 1), 0);
	cr_assert_eq(paged_batch_pages_missing(batch, 2), 3);
	cr_assert_eq(paged_batch_pages_missing(batch, 99), 0);
	cr_assert_eq(capacity_of(b), 0);
	/* The other way round it is a who waits. */
	cr_assert_eq(paged_batch_plan(batch, 2, (struct paged_batch_row[]){ rows[2], rows[1] }), PAGED_ERR_FULL);
	cr_assert_eq(paged_batch_pages_missing(batch, 0), 0);
	cr_assert_eq(paged_batch_pages_missing(batch, 1), 3);
	/* A row that wants more than there is does not keep the next one out. */
	rows[2].kv_len = 17;
	cr_assert_eq(paged_batch_plan(batch, 2, (struct paged_batch_row[]){ rows[2], rows[1] }), PAGED_ERR_FULL);
	cr_assert_eq(paged_batch_pages_missing(batch, 0), 5);
	cr_assert_eq(paged_batch_pages_missing(batch, 1), 0);
	/* Without b there is room, though not for a reserve. */
	done(paged_batch_plan(batch, 2, rows));
	cr_assert_eq(capacity_of(a), 20);
	cr_assert_eq(paged_batch_pages_missing(batch, 1), 0);
	/* Two rows of one sequence are one wish, the larger. */
	rows[1] = (struct paged_batch_row){ .seq = b, .q_len = 1, .kv_len = 1 };
	rows[2] = (struct paged_batch_row){ .seq = b, .q_len = 1, .kv_len = 3, .flags = PAGED_ROW_NO_APPEND };
	done(paged_batch_plan(batch, 3, rows));
	cr_assert_eq(capacity_of(b), 4);
}

/* What is a GPU's alone. */
Test(batch, the_host_has_no_streams)
{
	struct paged_plan_device_params params = { .struct_size = sizeof(params) };
	struct paged_batch *batch = batch_of(2, 0);

	done(paged_batch_plan(batch, 0, NULL));
	refused(paged_batch_stream(batch, &params), PAGED_ERR_UNSUPPORTED,
		"pool small is in the host's memory, which has no streams");
	done(paged_batch_validate(batch));
	done(paged_batch_stream(batch, NULL));
	refused(paged_batch_plan_device(batch, &params), PAGED_ERR_UNSUPPORTED,
		"pool small is in the host's memory: lengths are paged_batch_plan()'s");
	refused(paged_batch_validate(batch), PAGED_ERR_INVALID, "the batch has no plan");
	params.tables_only = 2;
	refused(paged_batch_plan_device(batch, &params), PAGED_ERR_INVALID, "tables_only is 2, neither 0 nor 1");
}

/* ------------------------------------------------------- append, attention */

static float k[4 * HEADS * DIM], v[4 * HEADS * DIM], q[4 * 2 * HEADS * DIM], out[4 * 2 * HEADS * DIM];
static const struct paged_tensor kt = { .data = k, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };
static const struct paged_tensor vt = { .data = v, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };
static const struct paged_tensor qt = { .data = q, .dtype = PAGED_F32, .n_heads = 2 * HEADS, .dim = DIM };
static const struct paged_tensor ot = { .data = out, .dtype = PAGED_F32, .n_heads = 2 * HEADS, .dim = DIM };

Test(batch, append_is_checked)
{
	struct paged_batch *batch = batch_of(0, 0);
	paged_seq_id id = sequence_of(8);
	uint32_t positions[2] = { 0, 8 };
	struct paged_append_params params = { .struct_size = sizeof(params), .positions = positions };
	struct paged_batch_row row = { .seq = id, .q_len = 2, .kv_len = 2 };
	struct paged_tensor bad = kt;

	refused(paged_append(batch, 0, &kt, &vt, NULL), PAGED_ERR_INVALID, "the batch has no plan");
	done(paged_batch_plan(batch, 1, &row));
	refused(paged_append(batch, 2, &kt, &vt, NULL), PAGED_ERR_INVALID, "layer 2 of a pool of 2 layers");
	refused(paged_append(batch, 0, NULL, &vt, NULL), PAGED_ERR_INVALID, "k has no data");
	refused(paged_append(batch, 0, &kt, NULL, NULL), PAGED_ERR_INVALID, "v has no data");
	refused(paged_append(batch, 0, &kt, &vt, &params), PAGED_ERR_CAPACITY,
		"row 0: position 8 is past the 8 tokens it has room for");
	bad.n_heads = 3;
	refused(paged_append(batch, 0, &bad, &vt, NULL), PAGED_ERR_INVALID, "k has 3 heads, not 2");
	bad = kt;
	bad.dtype = (enum paged_dtype)9;
	refused(paged_append(batch, 0, &bad, &vt, NULL), PAGED_ERR_INVALID, "k: dtype 9 is none of f32, f16, bf16");
	bad = kt;
	bad.data = (char *)k + 1;
	refused(paged_append(batch, 0, &bad, &vt, NULL), PAGED_ERR_INVALID,
		"k: data is not aligned to its elements of 4 bytes");
	bad = kt;
	bad.head_stride = -8;
	refused(paged_append(batch, 0, &bad, &vt, NULL), PAGED_ERR_INVALID,
		"k: strides of 16 (token) and -8 (head) elements for 8 dims");
	bad = kt;
	bad.token_stride = INT64_MAX / 8;
	refused(paged_append(batch, 0, &bad, &vt, NULL), PAGED_ERR_LIMIT,
		"k: 2 tokens of these strides exceed 2^63 bytes");
	bad = kt;
	bad.reserved[4] = 1;
	refused(paged_append(batch, 0, &bad, &vt, NULL), PAGED_ERR_INVALID, "k: reserved words must be 0");

	/* More rows than kv_len has no default positions, but may be given some. */
	row.kv_len = 1;
	done(paged_batch_plan(batch, 1, &row));
	refused(paged_append(batch, 0, &kt, &vt, NULL), PAGED_ERR_INVALID,
		"row 0: 2 tokens to append end at kv_len 1: positions are needed");
	positions[1] = 7;
	done(paged_append(batch, 0, &kt, &vt, &params));
}

Test(batch, append_where_it_may)
{
	struct paged_batch_row row = { .q_len = 2, .kv_len = 2 };
	uint32_t pages[1] = { 3 };
	struct paged_batch *batch;

	/* A kicked session's sequence is stale at once, so an ended one cannot be appended to. */
	row.seq = sequence_of(4);
	batch = batch_of(0, 0);
	done(paged_batch_plan(batch, 1, &row));
	done(paged_append(batch, 0, &kt, &vt, NULL));
	/* An engine's own block manager owns its pages. */
	row = (struct paged_batch_row){ .pages = pages, .n_pages = 1, .q_len = 2, .kv_len = 2 };
	done(paged_batch_plan(batch, 1, &row));
	done(paged_append(batch, 1, &kt, &vt, NULL));
	done(paged_batch_validate(batch));
}

Test(batch, attention_is_checked)
{
	struct paged_batch *batch = batch_of(0, 0);
	paged_seq_id id = sequence_of(8);
	struct paged_attention_params params = { .struct_size = sizeof(params), .mask = (enum paged_mask)5 };
	struct paged_tensor bad = qt;

	done(paged_batch_plan(batch, 1, &(struct paged_batch_row){ .seq = id, .q_len = 2, .kv_len = 2 }));
	refused(paged_attention(batch, 0, &qt, &ot, &params), PAGED_ERR_INVALID, "mask 5 is neither causal nor none");
	params = (struct paged_attention_params){ .struct_size = sizeof(params), .scale = __builtin_inff() };
	refused(paged_attention(batch, 0, &qt, &ot, &params), PAGED_ERR_INVALID, "scale is not finite");
	refused(paged_attention(batch, 0, &qt, &qt, NULL), PAGED_ERR_INVALID, "out must not overlap q");
	refused(paged_attention(batch, 0, &qt, NULL, NULL), PAGED_ERR_INVALID, "out has no data");
	bad.n_heads = 3;
	cr_assert_eq(paged_attention(batch, 0, &bad, &ot, NULL), PAGED_ERR_INVALID);
	refused(paged_attention(batch, 0, &qt, &bad, NULL), PAGED_ERR_INVALID, "out has 3 heads, not 4");
	bad = ot;
	bad.token_stride = DIM;
	refused(paged_attention(batch, 0, &qt, &bad, NULL), PAGED_ERR_INVALID,
		"out: its strides let heads and tokens overlap");
	done(paged_attention(batch, 0, &qt, &ot, NULL));
}

/* ----------------------------------------------------------------- results */

#define N_TOKENS 23u
#define Q_HEADS (2 * HEADS)

/* What a sequence holds: number `token` of a stream of its own. */
static float
content(uint64_t seed, uint32_t token, uint32_t head, uint32_t dim)
{
	return random_float(seed, ((uint64_t)token * 64 + head) * 64 + dim, 1.0f);
}

static void
content_fill(float *to, uint64_t seed, uint32_t from, uint32_t n, uint32_t n_heads)
{
	for (uint32_t t = 0; t < n; t++)
		for (uint32_t h = 0; h < n_heads; h++)
			for (uint32_t d = 0; d < DIM; d++)
				to[(t * n_heads + h) * DIM + d] = content(seed, from + t, h, d);
}

static void
result_check(const float *got, float lse, uint64_t seed, uint32_t q_idx, uint32_t head)
{
	float query[DIM], keys[N_TOKENS * HEADS * DIM], values[N_TOKENS * HEADS * DIM];
	struct reference_q_row line = {
		.q = query,
		.k = keys + head / 2 * DIM,
		.v = values + head / 2 * DIM,
		.k_stride = HEADS * DIM,
		.v_stride = HEADS * DIM,
		.k_dim = DIM,
		.v_dim = DIM,
		.n_keys = q_idx + 1,
		.scale = 1 / sqrt(DIM),
	};
	struct reference_result wanted;

	content_fill(keys, seed, 0, N_TOKENS, HEADS);
	content_fill(values, seed + 1, 0, N_TOKENS, HEADS);
	for (uint32_t d = 0; d < DIM; d++)
		query[d] = content(seed + 2, q_idx, head, d);
	reference_attend(&line, &wanted);
	for (uint32_t d = 0; d < DIM; d++)
		cr_assert_leq(fabs(got[d] - wanted.out[d]), wanted.out_tolerance + 1e-7, "q %u head %u dim %u: %g, %g",
			      q_idx, head, d, got[d], wanted.out[d]);
	cr_assert_leq(fabs(lse - wanted.lse), wanted.score_tolerance + 1e-6);
}

/* Two sequences, one prefilled in two chunks while the other is decoded, give what float64 gives. */
Test(batch, results_equal_the_reference)
{
	static const struct {
		uint32_t first_q, first_kv, second_q, second_kv;
	} steps[] = {
		{ 7, 7, 1, 1 }, { 9, 16, 1, 2 }, { 1, 17, 4, 6 }, { 0, 17, 17, N_TOKENS }, { 6, N_TOKENS, 0, 0 }
	};
	float keys[24 * HEADS * DIM], values[24 * HEADS * DIM], queries[24 * Q_HEADS * DIM],
		results[24 * Q_HEADS * DIM];
	float lse[24 * Q_HEADS];
	struct paged_tensor k_step = { .data = keys, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };
	struct paged_tensor v_step = { .data = values, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };
	struct paged_tensor q_step = { .data = queries, .dtype = PAGED_F32, .n_heads = Q_HEADS, .dim = DIM };
	struct paged_tensor out_step = { .data = results, .dtype = PAGED_F32, .n_heads = Q_HEADS, .dim = DIM };
	struct paged_attention_params params = { .struct_size = sizeof(params), .lse = lse };
	paged_seq_id ids[2] = { sequence_of(0), sequence_of(0) };
	struct paged_batch *batch = batch_of(2, 4);

	for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
		struct paged_batch_row rows[2] = {
			{ .seq = ids[0], .q_len = steps[s].first_q, .kv_len = steps[s].first_kv },
			{ .seq = ids[1], .q_len = steps[s].second_q, .kv_len = steps[s].second_kv },
		};
		uint32_t at = 0;

		for (uint32_t r = 0; r < 2; r++) {
			uint32_t n = rows[r].q_len, from = rows[r].kv_len - n;

			content_fill(keys + at * HEADS * DIM, 10 * r, from, n, HEADS);
			content_fill(values + at * HEADS * DIM, 10 * r + 1, from, n, HEADS);
			content_fill(queries + at * Q_HEADS * DIM, 10 * r + 2, from, n, Q_HEADS);
			at += n;
		}
		done(paged_batch_plan(batch, 2, rows));
		done(paged_append(batch, 1, &k_step, &v_step, NULL));
		done(paged_attention(batch, 1, &q_step, &out_step, &params));
		at = 0;
		for (uint32_t r = 0; r < 2; r++)
			for (uint32_t i = 0; i < rows[r].q_len; i++, at++)
				for (uint32_t h = 0; h < Q_HEADS; h++)
					result_check(results + (at * Q_HEADS + h) * DIM, lse[at * Q_HEADS + h], 10 * r,
						     rows[r].kv_len - rows[r].q_len + i, h);
	}
}
