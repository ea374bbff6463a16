/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks of rows with live page tables, over the pools of core_fixture.h. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/mask/batch_mask.h"
#include "tests/core/core_fixture.h"
#include "tests/support/mask_fixture.h"
#include "tests/support/mod_fixture.h"

#define CORE_FIXTURE_PAGE_SIZE 4u

TestSuite(batch_mask, .init = core_fixture_setup, .fini = core_fixture_teardown);

static struct batch_mask_request
mask_request(const struct batch_mask_row *rows, uint32_t n_rows)
{
	return (struct batch_mask_request){
		.rows = rows,
		.n_rows = n_rows,
		.q_block = 2,
		.kv_block = CORE_FIXTURE_PAGE_SIZE,
		.view = core_pool_view(core_fixture.core, 0),
	};
}

static struct block_mask *
logical_mask(const struct batch_mask_request *request, const char *text)
{
	struct mod_fixture mod = mod_fixture_open(MOD_MASK, text, NULL, 0);
	struct block_mask *mask = NULL;

	expect_ok(batch_mask_create(request, mod.binding, kernel_isa_best(), &mask, &core_error));
	mod_fixture_close(&mod);
	return mask;
}

static struct block_mask *
physical_mask(const struct batch_mask_request *request, const struct block_mask *logical, uint64_t *version)
{
	struct block_mask *mask = NULL;

	expect_ok(batch_mask_to_physical(request, logical, &mask, version, &core_error));
	return mask;
}

static paged_seq_id
create_seq(uint32_t n_tokens)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, seq, n_tokens));
	return seq;
}

/* Row r's physical lists are its logical ones with each block replaced by its page. */
static void
expect_blocks_by_pages(const struct block_mask *physical, const struct block_mask *logical, uint32_t r,
		       const uint32_t *pages)
{
	uint32_t from = logical->shape.n_rows == 1 ? 0 : r;

	for (uint64_t q = 0; q < block_mask_q_blocks(logical, from); q++)
		for (int kind = 0; kind < BLOCK_MASK_N_KINDS; kind++) {
			struct block_mask_list expected = block_mask_list(logical, kind, r, 0, q);
			struct block_mask_list got = block_mask_list(physical, kind, r, 0, q);

			cr_assert_eq(got.n, expected.n);
			for (uint64_t i = 0; i < expected.n; i++)
				cr_assert_eq(got.blocks[i], pages[expected.blocks[i]]);
		}
}

static uint64_t
seq_version(paged_seq_id seq)
{
	struct region_snapshot snapshot;

	cr_assert_eq(region_snapshot_begin(core_pool_view(core_fixture.core, 0), seq, &snapshot), REGION_READ);
	return snapshot.version;
}

Test(batch_mask, rows_with_sequences_and_explicit_pages)
{
	static const uint32_t explicit[] = { 11, 0, 5 };
	paged_seq_id seq[] = { create_seq(9), create_seq(20) };
	const struct batch_mask_row rows[] = {
		{ .seq = seq[0], .q_len = 9, .kv_len = 9 },
		{ .pages = explicit, .n_pages = 3, .q_len = 4, .kv_len = 12, .q_base = 8 },
		{ .seq = seq[1], .q_len = 1, .kv_len = 18, .q_base = 17 },
		{ .seq = seq[0], .q_len = 3, .kv_len = 5, .q_base = 2 },
	};
	struct batch_mask_request request = mask_request(rows, 4);
	struct block_mask *logical = logical_mask(&request, "kv_idx <= q_idx"), *physical;
	uint64_t version[4];
	uint32_t pages[10];

	physical = physical_mask(&request, logical, version);
	for (uint32_t r = 0; r < 4; r++) {
		if (rows[r].seq != 0)
			core_fixture_page_table(&core_fixture, 0, rows[r].seq, pages);
		expect_blocks_by_pages(physical, logical, r, rows[r].seq != 0 ? pages : explicit);
		cr_assert_eq(version[r], rows[r].seq != 0 ? seq_version(rows[r].seq) : 0);
		cr_assert_eq(physical->shape.rows[r].q_base, rows[r].q_base);
		cr_assert_eq(physical->shape.rows[r].kv_len, 12 * CORE_FIXTURE_PAGE_SIZE, "the pool's tokens");
	}
	block_mask_destroy(physical);
	block_mask_destroy(logical);
}

Test(batch_mask, one_row_is_broadcast)
{
	paged_seq_id seq[] = { create_seq(12), create_seq(8) };
	const struct batch_mask_row one = { .q_len = 4, .kv_len = 12, .q_base = 8 };
	const struct batch_mask_row rows[] = { { .seq = seq[1], .kv_len = 8 }, { .seq = seq[0], .kv_len = 12 } };
	struct batch_mask_request request = mask_request(&one, 1);
	struct block_mask *logical = logical_mask(&request, "causal"), *over = NULL, *physical;
	uint64_t version[2], kv_first[] = { 0, 0 }, kv_len[] = { 8, 12 };
	uint32_t pages[10];

	request.rows = rows;
	request.n_rows = 2;
	physical = physical_mask(&request, logical, version);
	expect_ok(block_mask_over_rows(logical, 2, kv_first, kv_len, &over, &core_error));
	for (uint32_t r = 0; r < 2; r++) {
		core_fixture_page_table(&core_fixture, 0, rows[r].seq, pages);
		expect_blocks_by_pages(physical, over, r, pages);
		cr_assert_eq(over->shape.rows[r].q_base, 8);
		cr_assert_eq(over->shape.rows[r].kv_len, kv_len[r]);
	}
	core_error.text[0] = '\0';
	cr_assert_eq(block_mask_over_rows(over, 3, kv_first, kv_len, &physical, &core_error), PAGED_ERR_INVALID);
	cr_assert_str_eq(core_error.text, "block mask: 3 rows for a mask of 2");
	block_mask_destroy(physical);
	block_mask_destroy(over);
	block_mask_destroy(logical);
}

static void
expect_convert_error(struct batch_mask_request *request, enum paged_status status, const char *sentence)
{
	const struct batch_mask_row one = { .q_len = 1, .kv_len = 12, .q_base = 11 };
	struct batch_mask_request of_one = mask_request(&one, 1);
	struct block_mask *logical = logical_mask(&of_one, "true"), *physical = NULL;
	uint64_t version[4];

	expect_error(batch_mask_to_physical(request, logical, &physical, version, &core_error), status, sentence);
	cr_assert_null(physical);
	block_mask_destroy(logical);
}

Test(batch_mask, errors_name_the_row)
{
	static const uint32_t explicit[] = { 11, 12, 0 };
	paged_seq_id seq = create_seq(8), ended = create_seq(4);
	struct batch_mask_row rows[] = { { .seq = seq, .kv_len = 8 }, { .seq = seq, .kv_len = 9 } };
	struct batch_mask_request request = mask_request(rows, 2);
	char sentence[256];

	expect_convert_error(&request, PAGED_ERR_CAPACITY,
			     "block mask: row 1: 9 tokens need 3 pages of 4, its sequence has 2");
	rows[1].kv_len = 200;
	expect_convert_error(&request, PAGED_ERR_CAPACITY,
			     "block mask: row 1: 200 tokens need 50 pages of 4, its sequence has 2");
	expect_ok(fixture_erase(fixture_session, ended));
	rows[1].seq = ended;
	snprintf(sentence, sizeof(sentence), "block mask: row 1: no live sequence %u.%u", PAGED_SEQ_SLOT(ended),
		 PAGED_SEQ_GENERATION(ended));
	expect_convert_error(&request, PAGED_ERR_STALE, sentence);
	rows[1].pages = explicit;
	expect_convert_error(&request, PAGED_ERR_INVALID, "block mask: row 1 names both a sequence and pages");
	rows[1].seq = 0;
	rows[1].n_pages = 3;
	rows[1].kv_len = 12;
	expect_convert_error(&request, PAGED_ERR_RANGE, "block mask: row 1: logical page 1 is page 12 of a pool of 12");
	rows[1].pages = NULL;
	expect_convert_error(&request, PAGED_ERR_INVALID, "block mask: row 1 names neither a sequence nor pages");
}

Test(batch_mask, n_heads_is_required_when_the_mod_reads_h)
{
	const struct batch_mask_row row = { .q_len = 4, .kv_len = 4 };
	struct mod_fixture mod = mod_fixture_open(MOD_MASK, "kv_idx <= q_idx - h", NULL, 0);
	struct batch_mask_request request = mask_request(&row, 1);
	struct block_mask *mask = NULL;

	expect_error(batch_mask_create(&request, mod.binding, kernel_isa_best(), &mask, &core_error), PAGED_ERR_INVALID,
		     "block mask: 'kv_idx <= q_idx - h' depends on h: say with n_heads how many heads there are");
	request.n_heads = 3;
	expect_ok(batch_mask_create(&request, mod.binding, kernel_isa_best(), &mask, &core_error));
	cr_assert_eq(mask->shape.n_heads, 3);
	block_mask_destroy(mask);
	mod_fixture_close(&mod);
}

Test(batch_mask, indexes_out_of_bounds)
{
	static const int32_t doc[] = { 0, 0, 1 };
	const struct mod_array arrays[] = { MOD_1D("doc", MOD_I32, doc) };
	struct mod_fixture mod = mod_fixture_open(MOD_MASK, "doc[q_idx] == doc[kv_idx]", arrays, 1);
	const struct batch_mask_row row = { .q_len = 4, .kv_len = 4 };
	struct batch_mask_request request = mask_request(&row, 1);
	struct block_mask *mask = NULL;

	cr_assert_eq(batch_mask_create(&request, mod.binding, kernel_isa_best(), &mask, &core_error), PAGED_ERR_RANGE);
	cr_assert_null(mask);
	mod_fixture_close(&mod);
}

/* A thread that reserves and truncates one sequence until `stop`. */
struct table_writer {
	pthread_t thread;
	paged_seq_id seq;
	atomic_bool stop;
};

static void *
reserve_and_truncate(void *argument)
{
	struct table_writer *table_writer = argument;
	struct paged_error error;

	while (!table_writer->stop) {
		struct paged_seq_item more = { .n_tokens = 40, .seq = table_writer->seq };
		struct paged_seq_item less = { .n_tokens = 8, .seq = table_writer->seq };

		core_seq_reserve(core_fixture.core, fixture_session, 1, &more, &error);
		core_seq_truncate(core_fixture.core, fixture_session, 1, &less, &error);
	}
	return NULL;
}

/* While another thread changes the page table, a conversion either fails or matches the version that it returns. */
Test(batch_mask, page_table_changes_during_conversion)
{
	struct table_writer table_writer = { .seq = create_seq(8) };
	const struct batch_mask_row rows[] = { { .seq = table_writer.seq, .q_len = 1, .kv_len = 40, .q_base = 39 } };
	struct batch_mask_request request = mask_request(rows, 1);
	struct block_mask *logical = logical_mask(&request, "true");
	uint32_t n_made = 0;

	cr_assert_eq(pthread_create(&table_writer.thread, NULL, reserve_and_truncate, &table_writer), 0);
	for (uint32_t i = 0; i < 20000 || n_made == 0; i++) {
		struct block_mask *physical = NULL;
		struct paged_error error;
		uint64_t version;
		enum paged_status status = batch_mask_to_physical(&request, logical, &physical, &version, &error);
		bool seen[12] = { false };

		cr_assert(status == PAGED_OK || status == PAGED_ERR_CAPACITY || status == PAGED_ERR_AGAIN, "%s",
			  error.text);
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
