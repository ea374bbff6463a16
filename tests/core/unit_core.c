/* SPDX-License-Identifier: Apache-2.0 */
/* The core's pools, sequences and slots; what it refuses. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/core/core_fixture.h"

TestSuite(core, .init = core_fixture_setup, .fini = core_fixture_teardown);

static uint64_t
version_of(uint32_t pool, paged_seq_id seq)
{
	return atomic_load(&region_slot(core_pool_view(core_fixture.core, pool), PAGED_SEQ_SLOT(seq))->version);
}

/* Pools */

Test(core, pool_find)
{
	uint32_t pool;

	expect_ok(core_pool_find(core_fixture.core, "draft", &pool, &core_error));
	cr_assert_eq(pool, 1);
	expect_error(core_pool_find(core_fixture.core, "gpt", &pool, &core_error), PAGED_ERR_NOENT,
		     "there is no pool gpt; there are: llama, draft");
}

Test(core, pool_add_refuses)
{
	struct core_pool_params params = {
		.name = "llama", .n_pages = 1, .page_size = 1, .n_slots = 1, .max_length = 1
	};
	char name[PAGED_MAX_NAME + 2];
	uint32_t pool;

	expect_error(core_pool_add(core_fixture.core, &params, NULL, &pool, &core_error), PAGED_ERR_INVALID,
		     "pool llama: the name is already in use");
	params.name = "x";
	params.n_pages = 0;
	cr_assert_eq(core_region_size(&params), 0);
	expect_error(core_pool_add(core_fixture.core, &params, NULL, &pool, &core_error), PAGED_ERR_INVALID,
		     "pool x: no tables for 0 pages of 1 tokens and 1 sequences of 1 tokens");
	params.name = "";
	expect_error(core_pool_add(core_fixture.core, &params, NULL, &pool, &core_error), PAGED_ERR_INVALID,
		     "a pool's name has 1 to 63 bytes, not 0");
	memset(name, 'x', sizeof(name));
	name[PAGED_MAX_NAME + 1] = '\0';
	params.name = name;
	expect_error(core_pool_add(core_fixture.core, &params, NULL, &pool, &core_error), PAGED_ERR_INVALID,
		     "a pool's name has 1 to 63 bytes, not 64");
	cr_assert_eq(core_n_pools(core_fixture.core), 2);
}

Test(core, pool_status)
{
	struct paged_pool_entry status;

	fixture_create(fixture_session, 0);
	core_pool_status(core_fixture.core, 0, &status);
	cr_assert_str_eq(status.name, "llama");
	cr_assert_eq(status.n_pages, CORE_FIXTURE_N_PAGES);
	cr_assert_eq(status.page_size, CORE_FIXTURE_PAGE_SIZE);
	cr_assert_eq(status.n_slots, CORE_FIXTURE_N_SLOTS);
	cr_assert_eq(status.n_sequences, 1);
	cr_assert_eq(status.max_length, CORE_FIXTURE_MAX_LENGTH);
	cr_assert_eq(core_pool_view(core_fixture.core, 1)->header->pool, 1);
}

/* The order of pages */

Test(core, pages_are_allocated_and_freed_in_order)
{
	paged_seq_id a = fixture_create(fixture_session, 0), b = fixture_create(fixture_session, 0),
		     c = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, a, 3));
	expect_page_table(0, a, "0");
	expect_ok(fixture_reserve(fixture_session, b, 11));
	expect_page_table(0, b, "3 2 1");
	expect_ok(fixture_reserve(fixture_session, c, 8));
	expect_free_list(0, "11 10 9 8 7 6");
	expect_ok(fixture_erase(fixture_session, b));
	expect_free_list(0, "11 10 9 8 7 6 3 2 1");
	/* Pages that were used before, and pages that were not. */
	expect_ok(fixture_reserve(fixture_session, a, 24));
	expect_page_table(0, a, "0 7 6 3 2 1");
	expect_ok(fixture_truncate(fixture_session, a, 5));
	expect_page_table(0, a, "0 7");
	expect_free_list(0, "11 10 9 8 6 3 2 1");
	expect_counts(0, 8, 4, 0);
}

Test(core, erase_frees_the_pages_of_each_item_in_turn)
{
	paged_seq_id ids[3];
	struct paged_seq_item items[3];

	expect_ok(fixture_create_n(fixture_session, 0, 3, ids));
	for (int i = 0; i < 3; i++)
		items[i] = (struct paged_seq_item){ .seq = ids[i], .n_tokens = 8 };
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 3, items, &core_error));
	expect_page_table(0, ids[0], "1 0");
	expect_page_table(0, ids[2], "5 4");
	expect_ok(
		core_seq_erase(core_fixture.core, fixture_session, 2, (paged_seq_id[]){ ids[2], ids[0] }, &core_error));
	expect_free_list(0, "11 10 9 8 7 6 5 4 1 0");
	expect_accounting();
}

Test(core, seq_next_is_in_slot_order)
{
	paged_seq_id ids[3], id;

	expect_ok(fixture_create_n(fixture_session, 0, 3, ids));
	expect_ok(fixture_erase(fixture_session, ids[1]));
	cr_assert(core_seq_next(core_fixture.core, 0, 0, UINT32_MAX, &id));
	cr_assert_eq(id, ids[0]);
	cr_assert(core_seq_next(core_fixture.core, 0, 1, UINT32_MAX, &id));
	cr_assert_eq(id, ids[2]);
	cr_assert_not(core_seq_next(core_fixture.core, 0, 3, UINT32_MAX, &id));
	cr_assert_not(core_seq_next(core_fixture.core, 0, 0, 0, &id));
	cr_assert_not(core_seq_next(core_fixture.core, 0, UINT32_MAX, UINT32_MAX, &id));
}

/* create */

static void
assert_tag(paged_seq_id id, const char *tag)
{
	struct paged_seq_entry entry;

	expect_ok(core_seq_status(core_fixture.core, id, &entry, &core_error));
	cr_assert_str_eq(entry.tag, tag);
}

Test(core, create_in_two_pools_is_atomic)
{
	struct seq_spec specs[3] = {
		{ .pool = 0, .n_tokens = 5, .tag = "chat 7" },
		{ .pool = 1, .n_tokens = 49, .tag = "draft of chat 7" },
		{ .pool = 0, .n_tokens = 0, .tag = "" },
	};
	paged_seq_id ids[3] = { 0 };

	expect_error(core_seq_create(core_fixture.core, fixture_session, 3, specs, ids, &core_error), PAGED_ERR_FULL,
		     "pool draft: 4 pages requested, 3 free (0 quarantined)");
	expect_counts(0, 12, 0, 0);
	cr_assert_eq(ids[0], 0);
	specs[1].n_tokens = 101;
	expect_error(core_seq_create(core_fixture.core, fixture_session, 3, specs, ids, &core_error), PAGED_ERR_LIMIT,
		     "pool draft: a sequence may hold 100 tokens, 101 requested");
	specs[1].n_tokens = 48;
	expect_ok(core_seq_create(core_fixture.core, fixture_session, 3, specs, ids, &core_error));
	cr_assert_eq(ids[0], PAGED_SEQ(1, 0, 0));
	cr_assert_eq(ids[1], PAGED_SEQ(1, 1, 0));
	cr_assert_eq(ids[2], PAGED_SEQ(1, 0, 1));
	expect_page_table(0, ids[0], "1 0");
	expect_page_table(1, ids[1], "2 1 0");
	expect_page_table(0, ids[2], "");
	assert_tag(ids[0], "chat 7");
	assert_tag(ids[1], "draft of chat 7");
	assert_tag(ids[2], "");
	/* A slot's next sequence has its own tag, or none. */
	expect_ok(core_seq_erase(core_fixture.core, fixture_session, 3, ids, &core_error));
	assert_tag(fixture_create(fixture_session, 0), "");
	assert_tag(fixture_create(fixture_session, 0), "");
	assert_tag(fixture_create(fixture_session, 1), "");
}

Test(core, slots_and_pools_fit_an_id)
{
	struct core_pool_params many = {
		.name = "many", .n_pages = 1, .page_size = 1, .n_slots = (1 << 24) + 1, .max_length = 1
	};
	uint32_t pool;

	cr_assert_eq(core_region_size(&many), 0);
	cr_assert_eq(core_pool_add(core_fixture.core, &many, NULL, &pool, &core_error), PAGED_ERR_LIMIT);
	cr_assert_str_eq(core_error.text, "pool many: 16777217 sequences, at most 16777216");
	while (core_n_pools(core_fixture.core) < PAGED_MAX_POOLS) {
		char name[8];

		snprintf(name, sizeof(name), "%u", core_n_pools(core_fixture.core));
		core_fixture_add_pool(&core_fixture, name, 1, 1, 1, 1);
	}
	cr_assert_eq(fixture_create(fixture_session, 255), PAGED_SEQ(1, 255, 0));
	many.n_slots = 1;
	cr_assert_eq(core_pool_add(core_fixture.core, &many, NULL, &pool, &core_error), PAGED_ERR_LIMIT);
	cr_assert_str_eq(core_error.text, "pool many: at most 256 pools");
}

Test(core, create_refuses)
{
	paged_seq_id ids[6] = { 0 };

	expect_error(fixture_create_n(fixture_session, 0, 0, ids), PAGED_ERR_INVALID, "the request names no sequence");
	expect_error(fixture_create_n(fixture_session, 0, 4097, ids), PAGED_ERR_LIMIT,
		     "the request names 4097 sequences, at most 4096 are allowed");
	expect_error(fixture_create_n(fixture_session, 2, 1, ids), PAGED_ERR_NOENT,
		     "there is no pool 2; there are 2, numbered from 0");
	fixture_create(fixture_session, 0);
	expect_error(fixture_create_n(fixture_session, 0, 5, ids), PAGED_ERR_FULL,
		     "pool llama: 5 sequences requested, 4 of 5 slots free");
	cr_assert_eq(ids[0], 0);
	expect_ok(fixture_create_n(fixture_session, 0, 4, ids));
}

Test(core, slots_are_reused_with_new_ids)
{
	paged_seq_id a = fixture_create(fixture_session, 0), b;

	cr_assert_eq(a, (paged_seq_id)1 << 32);
	expect_ok(fixture_reserve(fixture_session, a, 4));
	expect_ok(fixture_erase(fixture_session, a));
	expect_error(fixture_reserve(fixture_session, a, 4), PAGED_ERR_STALE, "sequence 0.1 of pool llama has ended");
	b = fixture_create(fixture_session, 0);
	cr_assert_eq(b, (paged_seq_id)2 << 32);
	expect_page_table(0, b, "");
	expect_error(fixture_erase(fixture_session, a), PAGED_ERR_STALE, "sequence 0.1 of pool llama has ended");
	expect_ok(fixture_erase(fixture_session, b));
}

Test(core, a_slot_is_not_reused_after_its_last_generation)
{
	paged_seq_id ids[2], last;

	expect_ok(fixture_create_n(fixture_session, 1, 2, ids));
	expect_ok(fixture_erase(fixture_session, ids[0]));
	atomic_store(&region_slot(core_pool_view(core_fixture.core, 1), 0)->generation, UINT32_MAX - 1);
	last = fixture_create(fixture_session, 1);
	cr_assert_eq(last, PAGED_SEQ(UINT32_MAX, 1, 0));
	expect_ok(fixture_reserve(fixture_session, last, 1));
	expect_ok(fixture_erase(fixture_session, last));
	expect_error(fixture_create_n(fixture_session, 1, 1, ids), PAGED_ERR_FULL,
		     "pool draft: 1 sequences requested, 0 of 2 slots free");
}

/* reserve */

Test(core, reserve_is_absolute)
{
	paged_seq_id a = fixture_create(fixture_session, 0);
	uint64_t version;

	expect_ok(fixture_reserve(fixture_session, a, 8));
	version = version_of(0, a);
	expect_ok(fixture_reserve(fixture_session, a, 8));
	expect_ok(fixture_reserve(fixture_session, a, 0));
	expect_page_table(0, a, "1 0");
	expect_ok(fixture_reserve(fixture_session, a, 9));
	expect_page_table(0, a, "1 0 2");
	/* Growth does not change the version. */
	cr_assert_eq(version_of(0, a), version);
	expect_ok(fixture_reserve(fixture_session, a, 40));
	expect_counts(0, 2, 10, 0);
}

Test(core, reserve_refuses)
{
	struct paged_seq_item items[2];
	uint32_t other, other_member;
	paged_seq_id a = fixture_create(fixture_session, 0), b = fixture_create(fixture_session, 0), foreign;

	expect_ok(core_session_open(core_fixture.core, &other, &other_member, &core_error));
	foreign = fixture_create(other, 0);
	expect_error(core_seq_reserve(core_fixture.core, fixture_session, 0, items, &core_error), PAGED_ERR_INVALID,
		     "the request names no sequence");
	expect_error(core_seq_reserve(core_fixture.core, fixture_session, 4097, items, &core_error), PAGED_ERR_LIMIT,
		     "the request names 4097 sequences, at most 4096 are allowed");
	expect_error(fixture_reserve(fixture_session, PAGED_SEQ(1, 7, 0), 1), PAGED_ERR_NOENT,
		     "there is no pool 7; there are 2, numbered from 0");
	expect_error(fixture_reserve(fixture_session, foreign, 1), PAGED_ERR_PERM,
		     "sequence 2.1 of pool llama belongs to session 2");
	expect_error(fixture_reserve(fixture_session, PAGED_SEQ(9, 0, 4), 1), PAGED_ERR_STALE,
		     "sequence 4.9 of pool llama has ended");
	expect_error(fixture_reserve(fixture_session, PAGED_SEQ(UINT32_MAX, 0, 0xffffff), 1), PAGED_ERR_STALE,
		     "sequence 16777215.4294967295 of pool llama has ended");
	expect_error(fixture_reserve(fixture_session, 0, 1), PAGED_ERR_INVALID, "0 is not a sequence id");
	expect_error(fixture_reserve(fixture_session, a, 41), PAGED_ERR_LIMIT,
		     "sequence 0.1 of pool llama may hold 40 tokens, 41 requested");
	expect_error(fixture_reserve(fixture_session, a, UINT32_MAX), PAGED_ERR_LIMIT,
		     "sequence 0.1 of pool llama may hold 40 tokens, 4294967295 requested");
	items[0] = (struct paged_seq_item){ .seq = a, .n_tokens = 4 };
	items[1] = (struct paged_seq_item){ .seq = a, .n_tokens = 4 };
	expect_error(core_seq_reserve(core_fixture.core, fixture_session, 2, items, &core_error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama is named twice");
	/* 13 pages, and no page for the first of the two. */
	items[0].n_tokens = 40;
	items[1] = (struct paged_seq_item){ .seq = b, .n_tokens = 12 };
	expect_error(core_seq_reserve(core_fixture.core, fixture_session, 2, items, &core_error), PAGED_ERR_FULL,
		     "pool llama: 13 pages requested, 12 free (0 quarantined)");
	expect_counts(0, 12, 0, 0);
	items[1].n_tokens = 8;
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 2, items, &core_error));
	expect_counts(0, 0, 12, 0);
}

Test(core, reserve_in_two_pools_is_atomic)
{
	paged_seq_id target = fixture_create(fixture_session, 0), draft = fixture_create(fixture_session, 1);
	struct paged_seq_item items[2] = {
		{ .seq = target, .n_tokens = 16 },
		{ .seq = draft, .n_tokens = 64 },
	};

	/* The first sequence of each pool. */
	cr_assert_eq(target, PAGED_SEQ(1, 0, 0));
	cr_assert_eq(draft, PAGED_SEQ(1, 1, 0));
	expect_error(core_seq_reserve(core_fixture.core, fixture_session, 2, items, &core_error), PAGED_ERR_FULL,
		     "pool draft: 4 pages requested, 3 free (0 quarantined)");
	expect_counts(0, 12, 0, 0);
	items[1].n_tokens = 48;
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 2, items, &core_error));
	expect_page_table(0, target, "3 2 1 0");
	expect_page_table(1, draft, "2 1 0");
}

/* Reserve-ahead */

Test(core, reserve_ahead_shares_the_free_pages_except_an_eighth)
{
	paged_seq_id a = fixture_create(fixture_session, 0), b = fixture_create(fixture_session, 0), c;
	struct paged_seq_item items[] = { { .seq = a, .n_tokens = 4, .n_ahead = 36 },
					  { .seq = b, .n_tokens = 8, .n_ahead = 18 } };
	uint32_t other, other_member;

	/* 3 of 12 pages are needed and 1 stays: of the other 8, a gets 9/14 and b 5/14, rounded down. */
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 2, items, &core_error));
	expect_page_table(0, a, "5 4 3 2 1 0");
	expect_page_table(0, b, "9 8 7 6");
	expect_counts(0, 2, 10, 0);
	/* One page is left to share, less than any sequence would get. */
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 2, items, &core_error));
	expect_counts(0, 2, 10, 0);
	/* Needed pages are allocated up to the last one, for any session. */
	expect_ok(core_session_open(core_fixture.core, &other, &other_member, &core_error));
	c = fixture_create(other, 0);
	expect_ok(fixture_reserve(other, c, 8));
	expect_counts(0, 0, 12, 0);
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 2, items, &core_error));
	items[0].n_tokens = 25;
	expect_error(core_seq_reserve(core_fixture.core, fixture_session, 2, items, &core_error), PAGED_ERR_FULL,
		     "pool llama: 1 pages requested, 0 free (0 quarantined)");
}

Test(core, reserve_ahead_is_limited_to_max_length)
{
	struct paged_seq_item item = { .seq = fixture_create(fixture_session, 0),
				       .n_tokens = 1,
				       .n_ahead = UINT32_MAX };

	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 1, &item, &core_error));
	expect_page_table(0, item.seq, "9 8 7 6 5 4 3 2 1 0");
	expect_error(core_seq_truncate(core_fixture.core, fixture_session, 1, &item, &core_error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama is truncated, but n_ahead is 4294967295");
}

/* truncate and erase */

Test(core, truncate)
{
	paged_seq_id a = fixture_create(fixture_session, 0);
	uint64_t version;

	expect_ok(fixture_reserve(fixture_session, a, 16));
	version = version_of(0, a);
	expect_error(fixture_truncate(fixture_session, a, 17), PAGED_ERR_CAPACITY,
		     "sequence 0.1 of pool llama has room for 16 tokens, cannot keep 17");
	expect_ok(fixture_truncate(fixture_session, a, 16));
	cr_assert_eq(version_of(0, a), version, "nothing was removed");
	expect_ok(fixture_truncate(fixture_session, a, 13));
	cr_assert_eq(version_of(0, a), version + 2, "a page was cut");
	expect_page_table(0, a, "3 2 1 0");
	expect_ok(fixture_truncate(fixture_session, a, 12));
	cr_assert_eq(version_of(0, a), version + 4);
	expect_page_table(0, a, "3 2 1");
	expect_ok(fixture_truncate(fixture_session, a, 0));
	expect_page_table(0, a, "");
	expect_ok(fixture_truncate(fixture_session, a, 0));
	expect_free_list(0, "11 10 9 8 7 6 5 4 0 3 2 1");
	expect_counts(0, 12, 0, 0);
}

Test(core, truncate_and_erase_are_atomic)
{
	paged_seq_id a = fixture_create(fixture_session, 0), b = fixture_create(fixture_session, 0);
	struct paged_seq_item items[2] = { { .seq = a, .n_tokens = 4 }, { .seq = b, .n_tokens = 5 } };

	expect_ok(fixture_reserve(fixture_session, a, 8));
	expect_ok(fixture_reserve(fixture_session, b, 4));
	expect_error(core_seq_truncate(core_fixture.core, fixture_session, 2, items, &core_error), PAGED_ERR_CAPACITY,
		     "sequence 1.1 of pool llama has room for 4 tokens, cannot keep 5");
	expect_page_table(0, a, "1 0");
	expect_error(core_seq_erase(core_fixture.core, fixture_session, 2, (paged_seq_id[]){ a, a }, &core_error),
		     PAGED_ERR_INVALID, "sequence 0.1 of pool llama is named twice");
	expect_page_table(0, a, "1 0");
	expect_ok(core_seq_erase(core_fixture.core, fixture_session, 2, (paged_seq_id[]){ a, b }, &core_error));
	expect_counts(0, 12, 0, 0);
}

/* Accounting */

Test(core, check_finds_a_wrong_count)
{
	struct paged_check_result accounting;
	_Atomic uint32_t *count = &region_page(core_pool_view(core_fixture.core, 0), 1)->count;

	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, 0), 12));
	atomic_store(count, 2);
	cr_assert_eq(core_check(core_fixture.core, 0, &accounting, &core_error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(core_error.text, "pool llama: page 1: count 2, but 1 page table entries name it");
	atomic_store(count, 1);
	expect_accounting();
}

Test(core, an_audit_reports_the_state_when_it_began)
{
	struct core_audit *audit;
	struct paged_check_result accounting;
	_Atomic uint32_t *count = &region_page(core_pool_view(core_fixture.core, 0), 1)->count;
	paged_seq_id seq = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, seq, 12));
	atomic_store(count, 2);
	expect_ok(core_audit_begin(core_fixture.core, 0, &audit, &core_error));
	cr_assert(core_audit_step(audit, 1));
	expect_ok(fixture_erase(fixture_session, seq));
	while (core_audit_step(audit, 1))
		;
	cr_assert_eq(core_audit_end(audit, &accounting, &core_error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(core_error.text, "pool llama: page 1: count 2, but 1 page table entries name it");
	cr_assert_eq(accounting.n_sequences, 1);
	/* After erase, the page still has one reference, in no page table. */
	expect_ok(core_audit_begin(core_fixture.core, 0, &audit, &core_error));
	while (core_audit_step(audit, 7))
		;
	cr_assert_eq(core_audit_end(audit, &accounting, &core_error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(core_error.text, "pool llama: page 1: count 1, but 0 page table entries name it");
}

/* Memory */

static long
resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long total, resident = 0;

	cr_assert_not_null(file);
	cr_assert_eq(fscanf(file, "%ld %ld", &total, &resident), 2);
	fclose(file);
	return resident * sysconf(_SC_PAGESIZE);
}

Test(core, memory_of_a_large_pool_is_proportional_to_its_use)
{
	paged_seq_id ids[256];
	struct paged_seq_item items[256];
	struct paged_check_result accounting;
	uint32_t pool;
	long before = resident_bytes(), after;

#ifdef __SANITIZE_THREAD__
	cr_skip("the sanitizer has memory of its own for each access");
#endif
	/* tools/arm64-run sets it. */
	if (getenv("QEMU_LD_PREFIX") != NULL)
		cr_skip("qemu has memory of its own for the code that it translates");
	pool = core_fixture_add_pool(&core_fixture, "large", 10 * 1000 * 1000, 16, 100 * 1000, 131072);
	expect_ok(fixture_create_n(fixture_session, pool, 256, ids));
	for (uint32_t i = 0; i < 256; i++)
		items[i] = (struct paged_seq_item){ .seq = ids[i], .n_tokens = 16 * 16 };
	expect_ok(core_seq_reserve(core_fixture.core, fixture_session, 256, items, &core_error));
	expect_ok(core_seq_erase(core_fixture.core, fixture_session, 128, ids, &core_error));
	after = resident_bytes();
	cr_assert_leq(after - before, 4l << 20, "%ld bytes more than before", after - before);
	cr_assert_eq(core_check(core_fixture.core, pool, &accounting, &core_error), PAGED_OK, "%s", core_error.text);
	cr_assert_eq(accounting.n_free, 10 * 1000 * 1000 - 128 * 16);
}
