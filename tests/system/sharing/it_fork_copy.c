/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fork's copy of a partial page: attention over the child has the bits of attention over a sequence of its own, for
 * every dtype and odd page sizes, whatever the parent writes afterwards.  On both back ends; cuda runs over the fake
 * driver.
 */
#include "config.h"

#include <string.h>

#include "tests/fake-cuda/load.h"
#include "tests/support/sequences.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"

#define KV_LEN 23u
#define Q_HEADS 4u
#define DIM 16u

struct result {
	float out[Q_HEADS * DIM], lse[Q_HEADS];
};

static const enum paged_dtype dtypes[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };

/* Plans row 0 with this sequence, attends, and compares with the reference too. */
static struct result
attend(struct batch_fixture *fixture, paged_seq_id seq)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct result result = { 0 };

	fixture->seq[0] = seq;
	batch_fixture_rows(fixture, rows);
	batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, fixture->params.n_rows, rows));
	batch_fixture_ok(fixture, batch_fixture_attend(fixture, NULL));
	batch_fixture_check(fixture);
	batch_fixture_get(fixture, result.out, fixture->out.data, paged_dtype_size(fixture->params.q) * Q_HEADS * DIM);
	batch_fixture_get(fixture, result.lse, fixture->lse, sizeof(result.lse));
	return result;
}

/* Writes tokens [from, to) with the contents of row `row` to a sequence. */
static void
write_as(struct batch_fixture *fixture, uint32_t row, paged_seq_id seq, uint32_t from, uint32_t to)
{
	fixture->seq[row] = seq;
	batch_fixture_write(fixture, row, from, to);
}

static void
fork_and_compare(const struct batch_fixture_params *params, uint32_t at)
{
	struct result forked, copied;
	struct batch_fixture fixture;
	paged_seq_id parent, child, copy;

	batch_fixture_open(&fixture, params);
	parent = fixture.seq[0];
	copy = fixture.seq[1];
	write_as(&fixture, 0, parent, 0, at);
	write_as(&fixture, 0, copy, 0, at);
	batch_fixture_ok(&fixture, paged_batch_fork(fixture.batch, 1, &parent, &at, &child));
	batch_fixture_ok(&fixture, seqs_reserve(fixture.client, 1, &child, (uint32_t[]){ KV_LEN }));
	/* The parent goes on with other tokens, on its own page. */
	write_as(&fixture, 1, parent, at, KV_LEN);
	write_as(&fixture, 0, copy, at, KV_LEN);
	write_as(&fixture, 0, child, at, KV_LEN);
	forked = attend(&fixture, child);
	copied = attend(&fixture, copy);
	it_require(memcmp(&forked, &copied, sizeof(forked)) == 0, "%s: page size %u, dtype %d, fork at %u",
		   params->backend, params->page_size, params->pool, at);
	batch_fixture_close(&fixture);
}

static void
fork_on(const char *backend)
{
	struct batch_fixture_params params = {
		.backend = backend,
		.q_heads = Q_HEADS,
		.kv_heads = 2,
		.k_dim = DIM,
		.v_dim = DIM,
		.n_rows = 2,
		.rows = { { .kv_len = KV_LEN, .q_len = 1 }, { .kv_len = KV_LEN } },
		.n_pages = 128,
	};
	static const uint32_t page_sizes[] = { 1, 3, 7, 16 }, forks[] = { 1, 11, 22 };

	for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
		params.pool = dtypes[d];
		params.q = paged_dtype_is_tensor(dtypes[d]) ? dtypes[d] : PAGED_F32;
		params.scales = dtypes[d] == PAGED_E4M3 || dtypes[d] == PAGED_E5M2;
		for (size_t p = 0; p < sizeof(page_sizes) / sizeof(page_sizes[0]); p++) {
			params.page_size = page_sizes[p];
			fork_and_compare(&params, forks[(d + p) % 3]);
		}
	}
}

IT_TEST(forks_have_the_bits_of_copies_on_the_host)
{
	fork_on("host");
}

IT_TEST(forks_have_the_bits_of_copies_on_a_gpu)
{
	cuda_daemon_environment();
	it_require(fake_cuda_load(), "%s", dlerror());
	fork_on("cuda");
}

IT_MAIN
