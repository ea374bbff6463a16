/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks of rows with live page tables, over the pools of core_case.h. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/mask/batch_mask.h"
#include "tests/core/core_case.h"
#include "tests/support/mask_fixture.h"
#include "tests/support/mod_fixture.h"

#define PAGE 4u

TestSuite(batch_mask, .init = case_setup, .fini = case_teardown);

static struct batch_mask_request
request_of(const struct batch_mask_row *rows, uint32_t n_rows)
{
	return (struct batch_mask_request){
		.rows = rows,
		.n_rows = n_rows,
		.q_block = 2,
		.kv_block = PAGE,
		.view = core_pool_view(f.core, 0),
	};
}

static struct block_mask *
logical_of(const struct batch_mask_request *request, const char *text)
{
	struct mod_fixture mod = mod_fixture_open(MOD_MASK, text, NULL, 0);
	struct block_mask *mask = NULL;

	assert_ok(batch_mask_create(request, mod.binding, kernel_isa_best(), &mask, &error));
	mod_fixture_close(&mod);
	return mask;
}

static struct block_mask *
physical_of(const struct batch_mask_request *request, const struct block_mask *logical, uint64_t *version)
{
	struct block_mask *mask = NULL;

	assert_ok(batch_mask_to_physical(request, logical, &mask, version, &error));
	return mask;
}

static paged_seq_id
sequence_of(uint32_t n_tokens)
{
	paged_seq_id seq = create(session, 0);

	assert_ok(reserve(session, seq, n_tokens));
	return seq;
}

/* Every list of row r is the logical list, mapped through these pages. */
static void
expect_by_pages(const struct block_mask *physical, const struct block_mask *logical, uint32_t r, const uint32_t *pages)
{
	uint32_t from = logical->shape.n_rows == 1 ? 0 : r;

	for (uint64_t q = 0; q < block_mask_q_blocks(logical, from); q++)
		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
			struct block_mask_list want = block_mask_list(logical, kind, r, 0, q);
			struct block_mask_list got = block_mask_list(physical, kind, r, 0, q);

			cr_assert_eq(got.n, want.n);
			for (uint64_t i = 0; i < want.n; i++)
				cr_assert_eq(got.blocks[i], pages[want.blocks[i]]);
		}
}

static uint64_t
version_of(paged_seq_id seq)
{
	struct region_snapshot snapshot;

	cr_assert_eq(region_snapshot_begin(core_pool_view(f.core, 0), seq, &snapshot), REGION_READ);
	return snapshot.version;
}

Test(batch_mask, converts_by_live_page_tables)
{
	static const uint32_t explicit[] = { 11, 0, 5 };
	paged_seq_id seq[] = { sequence_of(9), sequence_of(20) };
	const struct batch_mask_row rows[] = {
		{ .seq = seq[0], .q_len = 9, .kv_len = 9 },
		{ .pages = explicit, .n_pages = 3, .q_len = 4, .kv_len = 12, .q_base = 8 },
		{ .seq = seq[1], .q_len = 1, .kv_len = 18, .q_base = 17 },
		{ .seq = seq[0], .q_len = 3, .kv_len = 5, .q_base = 2 },
	};
	struct batch_mask_request request = request_of(rows, 4);
	struct block_mask *logical = logical_of(&request, "kv_idx <= q_idx"), *physical;
	uint64_t version[4];
	uint32_t pages[10];

	physical = physical_of(&request, logical, version);
	for (uint32_t r = 0; r < 4; r++) {
		if (rows[r].seq != 0)
			fixture_row(&f, 0, rows[r].seq, pages);
		expect_by_pages(physical, logical, r, rows[r].seq != 0 ? pages : explicit);
		cr_assert_eq(version[r], rows[r].seq != 0 ? version_of(rows[r].seq) : 0);
		cr_assert_eq(physical->shape.rows[r].q_base, rows[r].q_base);
		cr_assert_eq(physical->shape.rows[r].kv_len, 12 * PAGE, "the pool's tokens");
	}
	block_mask_destroy(physical);
	block_mask_destroy(logical);
}

Test(batch_mask, one_mask_row_for_all_rows)
{
	paged_seq_id seq[] = { sequence_of(12), sequence_of(8) };
	const struct batch_mask_row one = { .q_len = 4, .kv_len = 12, .q_base = 8 };
	const struct batch_mask_row rows[] = { { .seq = seq[1], .kv_len = 8 }, { .seq = seq[0], .kv_len = 12 } };
	struct batch_mask_request request = request_of(&one, 1);
	struct block_mask *logical = logical_of(&request, "causal"), *over = NULL, *physical;
	uint64_t version[2], kv_len[] = { 8, 12 };
	uint32_t pages[10];

	request.rows = rows;
	request.n_rows = 2;
	physical = physical_of(&request, logical, version);
	assert_ok(block_mask_over_rows(logical, 2, kv_len, &over, &error));
	for (uint32_t r = 0; r < 2; r++) {
		fixture_row(&f, 0, rows[r].seq, pages);
		expect_by_pages(physical, over, r, pages);
		cr_assert_eq(over->shape.rows[r].q_base, 8);
		cr_assert_eq(over->shape.rows[r].kv_len, kv_len[r]);
	}
	error.text[0] = '\0';
	cr_assert_eq(block_mask_over_rows(over, 3, kv_len, &physical, &error), PAGED_ERR_INVALID);
	cr_assert_str_eq(error.text, "block mask: 3 rows for a mask of 2");
	block_mask_destroy(physical);
	block_mask_destroy(over);
	block_mask_destroy(logical);
}

static void
expect_to_physical_refused(struct batch_mask_request *request, enum paged_status status, const char *text)
{
	const struct batch_mask_row one = { .q_len = 1, .kv_len = 12, .q_base = 11 };
	struct batch_mask_request of_one = request_of(&one, 1);
	struct block_mask *logical = logical_of(&of_one, "true"), *physical = NULL;
	uint64_t version[4];

	assert_fails(batch_mask_to_physical(request, logical, &physical, version, &error), status, text);
	cr_assert_null(physical);
	block_mask_destroy(logical);
}

Test(batch_mask, refusals_name_the_row)
{
	static const uint32_t explicit[] = { 11, 12, 0 };
	paged_seq_id seq = sequence_of(8), ended = sequence_of(4);
	struct batch_mask_row rows[] = { { .seq = seq, .kv_len = 8 }, { .seq = seq, .kv_len = 9 } };
	struct batch_mask_request request = request_of(rows, 2);
	char text[256];

	expect_to_physical_refused(&request, PAGED_ERR_CAPACITY,
				   "block mask: row 1: 9 tokens need 3 pages of 4, its sequence has 2");
	rows[1].kv_len = 200;
	expect_to_physical_refused(&request, PAGED_ERR_CAPACITY,
				   "block mask: row 1: 200 tokens need 50 pages of 4, its sequence has 2");
	assert_ok(erase(session, ended));
	rows[1].seq = ended;
	snprintf(text, sizeof(text), "block mask: row 1: no live sequence %u.%u", PAGED_SEQ_SLOT(ended),
		 PAGED_SEQ_GENERATION(ended));
	expect_to_physical_refused(&request, PAGED_ERR_STALE, text);
	rows[1].pages = explicit;
	expect_to_physical_refused(&request, PAGED_ERR_INVALID, "block mask: row 1 names both a sequence and pages");
	rows[1].seq = 0;
	rows[1].n_pages = 3;
	rows[1].kv_len = 12;
	expect_to_physical_refused(&request, PAGED_ERR_RANGE,
				   "block mask: row 1: logical page 1 is page 12 of a pool of 12");
	rows[1].pages = NULL;
	expect_to_physical_refused(&request, PAGED_ERR_INVALID, "block mask: row 1 names neither a sequence nor pages");
}

Test(batch_mask, mods_of_h_need_n_heads)
{
	const struct batch_mask_row row = { .q_len = 4, .kv_len = 4 };
	struct mod_fixture mod = mod_fixture_open(MOD_MASK, "kv_idx <= q_idx - h", NULL, 0);
	struct batch_mask_request request = request_of(&row, 1);
	struct block_mask *mask = NULL;

	assert_fails(batch_mask_create(&request, mod.binding, kernel_isa_best(), &mask, &error), PAGED_ERR_INVALID,
		     "block mask: 'kv_idx <= q_idx - h' depends on h: say with n_heads how many heads there are");
	request.n_heads = 3;
	assert_ok(batch_mask_create(&request, mod.binding, kernel_isa_best(), &mask, &error));
	cr_assert_eq(mask->shape.n_heads, 3);
	block_mask_destroy(mask);
	mod_fixture_close(&mod);
}

Test(batch_mask, reports_index_out_of_bounds)
{
	static const int32_t doc[] = { 0, 0, 1 };
	const struct mod_array arrays[] = { MOD_1D("doc", MOD_I32, doc) };
	struct mod_fixture mod = mod_fixture_open(MOD_MASK, "doc[q_idx] == doc[kv_idx]", arrays, 1);
	const struct batch_mask_row row = { .q_len = 4, .kv_len = 4 };
	struct batch_mask_request request = request_of(&row, 1);
	struct block_mask *mask = NULL;

	cr_assert_eq(batch_mask_create(&request, mod.binding, kernel_isa_best(), &mask, &error), PAGED_ERR_RANGE);
	cr_assert_null(mask);
	mod_fixture_close(&mod);
}

/* Extends and truncates one sequence until it is stopped. */
struct table_writer {
	pthread_t thread;
	paged_seq_id seq;
	atomic_bool stop;
};

static void *
write_page_table(void *argument)
{
	struct table_writer *table_writer = argument;
	struct paged_error ours;

	while (!table_writer->stop) {
		struct paged_seq_item more = { .n_tokens = 40, .seq = table_writer->seq };
		struct paged_seq_item less = { .n_tokens = 8, .seq = table_writer->seq };

		core_seq_reserve(f.core, session, 1, &more, &ours);
		core_seq_truncate(f.core, session, 1, &less, &ours);
	}
	return NULL;
}

/* While another thread changes a page table, a mask is correct for the version that it returns, or is refused. */
Test(batch_mask, concurrent_page_table_changes)
{
	struct table_writer table_writer = { .seq = sequence_of(8) };
	const struct batch_mask_row rows[] = { { .seq = table_writer.seq, .q_len = 1, .kv_len = 40, .q_base = 39 } };
	struct batch_mask_request request = request_of(rows, 1);
	struct block_mask *logical = logical_of(&request, "true");
	uint32_t n_made = 0;

	cr_assert_eq(pthread_create(&table_writer.thread, NULL, write_page_table, &table_writer), 0);
	for (uint32_t i = 0; i < 20000 || n_made == 0; i++) {
		struct block_mask *physical = NULL;
		struct paged_error ours;
		uint64_t version;
		enum paged_status status = batch_mask_to_physical(&request, logical, &physical, &version, &ours);
		bool seen[12] = { false };

		cr_assert(status == PAGED_OK || status == PAGED_ERR_CAPACITY || status == PAGED_ERR_AGAIN, "%s",
			  ours.text);
		if (status != PAGED_OK)
			continue;
		n_made++;
		cr_assert_eq(version % 2, 0);
		for (uint32_t b = 0; b < 10; b++) {
			uint32_t page = block_mask_list(physical, BLOCK_MASK_PARTIAL, 0, 0, 0).blocks[b];

			cr_assert_not(seen[page], "page %u twice", page);
			seen[page] = true;
		}
		block_mask_destroy(physical);
	}
	table_writer.stop = true;
	pthread_join(table_writer.thread, NULL);
	block_mask_destroy(logical);
}
