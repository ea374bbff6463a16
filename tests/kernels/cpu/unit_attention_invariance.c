/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results are bit-identical for any placement and size of pages, other rows
 * in the batch, number of threads and grouping of query rows.
 */
#include <inttypes.h>
#include <string.h>

#include "tests/support/kernel_test.h"
#include "tests/support/kernel_fixture.h"

static struct kernel_fixture_params
prefill_params(enum paged_dtype tensors)
{
	struct kernel_fixture_params params = kernel_fixture_defaults();

	params.q_heads = 9;
	params.kv_heads = 3;
	params.k_dim = 48;
	params.v_dim = 64;
	params.pool = PAGED_BF16;
	params.q = params.out = tensors;
	params.scale = 0.14f;
	params.rows[0] = (struct kernel_fixture_row){ .id = 5, .kv_len = 1100, .q_len = 100, .q_base = 1000 };
	return params;
}

static void
assert_same(const struct kernel_fixture *a, uint64_t a_row, const struct kernel_fixture *b, uint64_t b_row, uint64_t n)
{
	cr_assert(kernel_fixture_equal(a, a_row, b, b_row, n), "outputs differ, seed %" PRIu64, a->params.seed);
}

static void
placement_check(enum paged_dtype tensors, enum kernel_isa isa)
{
	static const uint32_t page_sizes[] = { 1, 3, 16, 64, 256 };
	struct kernel_fixture_params params = prefill_params(tensors);
	struct kernel_fixture first, other;

	kernel_fixture_run(&first, &params, 1, isa);
	for (size_t i = 0; i < 5; i++) {
		params.page_size = page_sizes[i];
		params.placement = 100 + i;
		kernel_fixture_run(&other, &params, 1, isa);
		assert_same(&first, 0, &other, 0, 100);
		kernel_fixture_destroy(&other);
	}
	kernel_fixture_destroy(&first);
}

KERNEL_TEST(attention_invariance, page_placement_and_page_size)
{
	placement_check(PAGED_F32, isa);
	placement_check(PAGED_BF16, isa);
}

static void
threads_check(enum paged_dtype tensors, uint32_t q_len, enum kernel_isa isa)
{
	struct kernel_fixture_params params = prefill_params(tensors);
	struct kernel_fixture first, other;

	params.rows[0].q_len = q_len;
	params.rows[0].q_base = 1100 - q_len;
	kernel_fixture_run(&first, &params, 1, isa);
	for (uint32_t n = 2; n <= 5; n++) {
		kernel_fixture_run(&other, &params, n, isa);
		assert_same(&first, 0, &other, 0, q_len);
		kernel_fixture_destroy(&other);
	}
	kernel_fixture_destroy(&first);
}

KERNEL_TEST(attention_invariance, number_of_threads)
{
	threads_check(PAGED_F32, 2, isa);
	threads_check(PAGED_BF16, 2, isa);
}

/* Prefill: the work items are large for one thread, smaller for more, and split over KV where q_rows are few. */
KERNEL_TEST(attention_invariance, number_of_threads_in_prefill)
{
	threads_check(PAGED_F32, 200, isa);
	threads_check(PAGED_BF16, 200, isa);
}

/*
 * KV heads of few q_rows are interleaved. How many at a time depends on the number
 * of threads and the row's length; the last group is smaller.
 */
static void
heads_check(struct kernel_fixture_params params, uint32_t kv_heads, uint32_t group, enum kernel_isa isa)
{
	static const struct kernel_fixture_row rows[] = {
		{ .id = 1, .kv_len = 1030, .q_len = 1, .q_base = 1029 },
		{ .id = 2, .kv_len = 515, .q_len = 2, .q_base = 511 },
		{ .id = 3, .kv_len = 64, .q_len = 1, .q_base = 63 },
	};
	const uint32_t n = sizeof(rows) / sizeof(rows[0]);
	struct kernel_fixture first, other;

	params.kv_heads = kv_heads;
	params.q_heads = kv_heads * group;
	params.n_rows = n;
	memcpy(params.rows, rows, sizeof(rows));
	kernel_fixture_run(&first, &params, 1, isa);
	for (uint32_t threads = 2; threads <= 9; threads += threads == 2 ? 1 : 6) {
		kernel_fixture_run(&other, &params, threads, isa);
		assert_same(&first, 0, &other, 0, 4);
		kernel_fixture_destroy(&other);
	}
	/* With one row, fewer heads are interleaved. */
	params.n_rows = 1;
	kernel_fixture_run(&other, &params, 4, isa);
	assert_same(&first, 0, &other, 0, 1);
	kernel_fixture_destroy(&other);
	kernel_fixture_destroy(&first);
}

KERNEL_TEST(attention_invariance, interleaved_kv_heads)
{
	static const enum paged_dtype pools[] = { PAGED_BF16, PAGED_F32, PAGED_I8 };
	struct kernel_fixture_params params = prefill_params(PAGED_BF16);

	params.page_size = 1;
	for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++) {
		params.pool = pools[i];
		heads_check(params, 5, 2, isa);
		heads_check(params, 19, 1, isa);
	}
	params.pool = PAGED_BF16;
	params.page_size = 16;
	heads_check(params, 8, 4, isa);
	heads_check(params, 3, 7, isa);
	params.k_dim = PAGED_MAX_DIM;
	heads_check(params, 7, 3, isa);
}

/* The row in the middle of a batch of four; threads then find many work items. */
static void
batch_check(enum paged_dtype tensors, enum kernel_isa isa)
{
	struct kernel_fixture_params params = prefill_params(tensors);
	struct kernel_fixture alone, in_batch;

	kernel_fixture_run(&alone, &params, 1, isa);
	params.n_rows = 4;
	params.rows[2] = params.rows[0];
	params.rows[0] = (struct kernel_fixture_row){ .id = 1, .kv_len = 700, .q_len = 3, .q_base = 697 };
	params.rows[1] = (struct kernel_fixture_row){ .id = 2, .kv_len = 65, .q_len = 65, .q_base = 0 };
	params.rows[3] = (struct kernel_fixture_row){ .id = 3, .kv_len = 1, .q_len = 1, .q_base = 0 };
	kernel_fixture_run(&in_batch, &params, 2, isa);
	assert_same(&alone, 0, &in_batch, 68, 100);
	kernel_fixture_destroy(&alone);
	kernel_fixture_destroy(&in_batch);
}

KERNEL_TEST(attention_invariance, other_rows_in_the_batch)
{
	batch_check(PAGED_F32, isa);
	batch_check(PAGED_BF16, isa);
}

/* A long row, a prefill chunk and short rows in one call: each row has the bits that it has alone. */
static void
skewed_batch_check(enum paged_dtype tensors, enum kernel_isa isa)
{
	static const struct kernel_fixture_row rows[] = {
		{ .id = 1, .kv_len = 20, .q_len = 1, .q_base = 19 },
		{ .id = 2, .kv_len = 700, .q_len = 3, .q_base = 697 },
		{ .id = 3, .kv_len = 5000, .q_len = 1, .q_base = 4999 },
		{ .id = 4, .kv_len = 0, .q_len = 2, .q_base = 0 },
		{ .id = 5, .kv_len = 900, .q_len = 70, .q_base = 830 },
		{ .id = 6, .kv_len = 512, .q_len = 1, .q_base = 511 },
		{ .id = 7, .kv_len = 1100, .q_len = 0, .q_base = 1100 },
		{ .id = 8, .kv_len = 513, .q_len = 1, .q_base = 512 },
	};
	enum { N = sizeof(rows) / sizeof(rows[0]) };
	struct kernel_fixture_params params = prefill_params(tensors);
	struct kernel_fixture alone[N], in_batch;

	params.q_heads = 8;
	params.kv_heads = 2;
	for (uint32_t r = 0; r < N; r++) {
		params.rows[0] = rows[r];
		kernel_fixture_run(&alone[r], &params, 1, isa);
	}
	params.n_rows = N;
	for (uint32_t r = 0; r < N; r++)
		params.rows[r] = rows[r];
	kernel_fixture_create(&in_batch, &params);
	for (uint32_t n = 1; n <= 5; n++) {
		struct kernel_team *team = kernel_test_team(n, isa);

		kernel_fixture_attend(&in_batch, team);
		for (uint32_t r = 0; r < N; r++)
			assert_same(&alone[r], 0, &in_batch, in_batch.rows[r].q_start, rows[r].q_len);
		kernel_team_destroy(team);
	}
	kernel_fixture_destroy(&in_batch);
	for (uint32_t r = 0; r < N; r++)
		kernel_fixture_destroy(&alone[r]);
}

KERNEL_TEST(attention_invariance, skewed_batch)
{
	skewed_batch_check(PAGED_F32, isa);
	skewed_batch_check(PAGED_BF16, isa);
}

/* The query rows of a sequence in one call, and in chunks with the kv_len of their time. */
static void
assert_chunks(struct kernel_fixture_params params, uint32_t q_len, const uint32_t *chunks, uint32_t n_chunks,
	      enum kernel_isa isa)
{
	struct kernel_fixture all, chunk;
	uint32_t i = 0;

	params.rows[0] = (struct kernel_fixture_row){ .id = 5, .kv_len = 500 + q_len, .q_len = q_len, .q_base = 500 };
	kernel_fixture_run(&all, &params, 1, isa);
	for (uint32_t n = 0; i < q_len; n++) {
		uint32_t chunk_len = chunks[n % n_chunks] < q_len - i ? chunks[n % n_chunks] : q_len - i;

		params.rows[0] = (struct kernel_fixture_row){
			.id = 5, .kv_len = 500 + i + chunk_len, .q_len = chunk_len, .q_base = 500 + i
		};
		kernel_fixture_run(&chunk, &params, 2, isa);
		assert_same(&all, i, &chunk, 0, chunk_len);
		kernel_fixture_destroy(&chunk);
		i += chunk_len;
	}
	kernel_fixture_destroy(&all);
}

/* Prefill in every chunk (3 q_rows per query row), or decode in every chunk. */
static void
chunks_check(enum paged_dtype tensors, enum kernel_isa isa)
{
	static const uint32_t prefill_chunks[] = { 6, 7, 22, 9, 64 }, decode_chunks[] = { 1, 1, 2 };
	struct kernel_fixture_params params = prefill_params(tensors);

	assert_chunks(params, 6 + 7 + 22 + 9 + 64 + 6, prefill_chunks, 5, isa);
	params.q_heads = params.kv_heads;
	assert_chunks(params, 5, decode_chunks, 3, isa);
}

KERNEL_TEST(attention_invariance, chunked_prefill)
{
	chunks_check(PAGED_F32, isa);
	chunks_check(PAGED_BF16, isa);
}
