/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/core/core_case.h"

TestSuite(core, .init = case_setup, .fini = case_teardown);

static uint64_t
version_of(uint32_t pool, paged_seq_id seq)
{
	return atomic_load(&region_slot(core_pool_view(f.core, pool), PAGED_SEQ_SLOT(seq))->version);
}

/* Pools */

Test(core, pool_find)
{
	uint32_t pool;

	assert_ok(core_pool_find(f.core, "draft", &pool, &error));
	cr_assert_eq(pool, 1);
	assert_fails(core_pool_find(f.core, "gpt", &pool, &error), PAGED_ERR_NOENT,
		     "there is no pool gpt; there are: llama, draft");
}

Test(core, pool_add_refuses)
{
	struct core_pool_params params = {
		.name = "llama", .n_pages = 1, .page_size = 1, .n_slots = 1, .max_length = 1
	};
	char name[PAGED_MAX_NAME + 2];
	uint32_t pool;

	assert_fails(core_pool_add(f.core, &params, NULL, &pool, &error), PAGED_ERR_INVALID,
		     "pool llama: the name is already in use");
	params.name = "x";
	params.n_pages = 0;
	cr_assert_eq(core_region_size(&params), 0);
	assert_fails(core_pool_add(f.core, &params, NULL, &pool, &error), PAGED_ERR_INVALID,
		     "pool x: no tables for 0 pages of 1 tokens and 1 sequences of 1 tokens");
	params.name = "";
	assert_fails(core_pool_add(f.core, &params, NULL, &pool, &error), PAGED_ERR_INVALID,
		     "a pool's name has 1 to 63 bytes, not 0");
	memset(name, 'x', sizeof(name));
	name[PAGED_MAX_NAME + 1] = '\0';
	params.name = name;
	assert_fails(core_pool_add(f.core, &params, NULL, &pool, &error), PAGED_ERR_INVALID,
		     "a pool's name has 1 to 63 bytes, not 64");
	cr_assert_eq(core_n_pools(f.core), 2);
}

Test(core, pool_status)
{
	struct paged_pool_entry status;

	create(session, 0);
	core_pool_status(f.core, 0, &status);
	cr_assert_str_eq(status.name, "llama");
	cr_assert_eq(status.n_pages, 12);
	cr_assert_eq(status.page_size, 4);
	cr_assert_eq(status.n_slots, 5);
	cr_assert_eq(status.n_sequences, 1);
	cr_assert_eq(status.max_length, 40);
	cr_assert_eq(core_pool_view(f.core, 1)->header->pool, 1);
}

/* The order of pages */

Test(core, pages_come_and_go_in_order)
{
	paged_seq_id a = create(session, 0), b = create(session, 0), c = create(session, 0);

	assert_ok(reserve(session, a, 3));
	assert_row(0, a, "0");
	assert_ok(reserve(session, b, 11));
	assert_row(0, b, "3 2 1");
	assert_ok(reserve(session, c, 8));
	assert_free_list(0, "11 10 9 8 7 6");
	assert_ok(erase(session, b));
	assert_free_list(0, "11 10 9 8 7 6 3 2 1");
	/* Some that were used, and some new. */
	assert_ok(reserve(session, a, 24));
	assert_row(0, a, "0 7 6 3 2 1");
	assert_ok(cut(session, a, 5));
	assert_row(0, a, "0 7");
	assert_free_list(0, "11 10 9 8 6 3 2 1");
	assert_counts(0, 8, 4, 0);
}

Test(core, erase_of_several_goes_item_by_item)
{
	paged_seq_id ids[3];
	struct paged_seq_item items[3];

	assert_ok(create_n(session, 0, 3, ids));
	for (int i = 0; i < 3; i++)
		items[i] = (struct paged_seq_item){ .seq = ids[i], .n_tokens = 8 };
	assert_ok(core_seq_reserve(f.core, session, 3, items, &error));
	assert_row(0, ids[0], "1 0");
	assert_row(0, ids[2], "5 4");
	assert_ok(core_seq_erase(f.core, session, 2, (paged_seq_id[]){ ids[2], ids[0] }, &error));
	assert_free_list(0, "11 10 9 8 7 6 5 4 1 0");
	assert_accounting();
}

Test(core, seq_next_goes_by_slot)
{
	paged_seq_id ids[3], id;

	assert_ok(create_n(session, 0, 3, ids));
	assert_ok(erase(session, ids[1]));
	cr_assert(core_seq_next(f.core, 0, 0, UINT32_MAX, &id));
	cr_assert_eq(id, ids[0]);
	cr_assert(core_seq_next(f.core, 0, 1, UINT32_MAX, &id));
	cr_assert_eq(id, ids[2]);
	cr_assert_not(core_seq_next(f.core, 0, 3, UINT32_MAX, &id));
	cr_assert_not(core_seq_next(f.core, 0, 0, 0, &id));
	cr_assert_not(core_seq_next(f.core, 0, UINT32_MAX, UINT32_MAX, &id));
}

/* create */

static void
assert_tag(paged_seq_id id, const char *tag)
{
	struct paged_seq_entry entry;

	assert_ok(core_seq_status(f.core, id, &entry, &error));
	cr_assert_str_eq(entry.tag, tag);
}

Test(core, create_over_two_pools_with_capacity_is_all_or_nothing)
{
	struct seq_spec specs[3] = {
		{ .pool = 0, .n_tokens = 5, .tag = "chat 7" },
		{ .pool = 1, .n_tokens = 49, .tag = "draft of chat 7" },
		{ .pool = 0, .n_tokens = 0, .tag = "" },
	};
	paged_seq_id ids[3] = { 0 };

	assert_fails(core_seq_create(f.core, session, 3, specs, ids, &error), PAGED_ERR_FULL,
		     "pool draft: 4 pages requested, 3 free (0 quarantined)");
	assert_counts(0, 12, 0, 0);
	cr_assert_eq(ids[0], 0);
	specs[1].n_tokens = 101;
	assert_fails(core_seq_create(f.core, session, 3, specs, ids, &error), PAGED_ERR_LIMIT,
		     "pool draft: a sequence may hold 100 tokens, 101 requested");
	specs[1].n_tokens = 48;
	assert_ok(core_seq_create(f.core, session, 3, specs, ids, &error));
	cr_assert_eq(ids[0], PAGED_SEQ(1, 0, 0));
	cr_assert_eq(ids[1], PAGED_SEQ(1, 1, 0));
	cr_assert_eq(ids[2], PAGED_SEQ(1, 0, 1));
	assert_row(0, ids[0], "1 0");
	assert_row(1, ids[1], "2 1 0");
	assert_row(0, ids[2], "");
	assert_tag(ids[0], "chat 7");
	assert_tag(ids[1], "draft of chat 7");
	assert_tag(ids[2], "");
	/* A slot's next sequence has its own tag, or none. */
	assert_ok(core_seq_erase(f.core, session, 3, ids, &error));
	assert_tag(create(session, 0), "");
	assert_tag(create(session, 0), "");
	assert_tag(create(session, 1), "");
}

Test(core, slots_and_pools_fit_an_id)
{
	struct core_pool_params many = {
		.name = "many", .n_pages = 1, .page_size = 1, .n_slots = (1 << 24) + 1, .max_length = 1
	};
	uint32_t pool;

	cr_assert_eq(core_region_size(&many), 0);
	cr_assert_eq(core_pool_add(f.core, &many, NULL, &pool, &error), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "pool many: 16777217 sequences, at most 16777216");
	while (core_n_pools(f.core) < PAGED_MAX_POOLS) {
		char name[8];

		snprintf(name, sizeof(name), "%u", core_n_pools(f.core));
		fixture_add_pool(&f, name, 1, 1, 1, 1);
	}
	cr_assert_eq(create(session, 255), PAGED_SEQ(1, 255, 0));
	many.n_slots = 1;
	cr_assert_eq(core_pool_add(f.core, &many, NULL, &pool, &error), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "pool many: at most 256 pools");
}

Test(core, create_refuses)
{
	paged_seq_id ids[6] = { 0 };

	assert_fails(create_n(session, 0, 0, ids), PAGED_ERR_INVALID, "the request names no sequence");
	assert_fails(create_n(session, 0, 4097, ids), PAGED_ERR_LIMIT,
		     "the request names 4097 sequences, at most 4096 are allowed");
	assert_fails(create_n(session, 2, 1, ids), PAGED_ERR_NOENT, "there is no pool 2; there are 2, numbered from 0");
	create(session, 0);
	assert_fails(create_n(session, 0, 5, ids), PAGED_ERR_FULL,
		     "pool llama: 5 sequences requested, 4 of 5 slots free");
	cr_assert_eq(ids[0], 0);
	assert_ok(create_n(session, 0, 4, ids));
}

Test(core, slots_are_used_again_under_new_ids)
{
	paged_seq_id a = create(session, 0), b;

	cr_assert_eq(a, (paged_seq_id)1 << 32);
	assert_ok(reserve(session, a, 4));
	assert_ok(erase(session, a));
	assert_fails(reserve(session, a, 4), PAGED_ERR_STALE, "sequence 0.1 of pool llama has ended");
	b = create(session, 0);
	cr_assert_eq(b, (paged_seq_id)2 << 32);
	assert_row(0, b, "");
	assert_fails(erase(session, a), PAGED_ERR_STALE, "sequence 0.1 of pool llama has ended");
	assert_ok(erase(session, b));
}

Test(core, a_slot_retires_with_its_last_generation)
{
	paged_seq_id ids[2], last;

	assert_ok(create_n(session, 1, 2, ids));
	assert_ok(erase(session, ids[0]));
	atomic_store(&region_slot(core_pool_view(f.core, 1), 0)->generation, UINT32_MAX - 1);
	last = create(session, 1);
	cr_assert_eq(last, PAGED_SEQ(UINT32_MAX, 1, 0));
	assert_ok(reserve(session, last, 1));
	assert_ok(erase(session, last));
	assert_fails(create_n(session, 1, 1, ids), PAGED_ERR_FULL,
		     "pool draft: 1 sequences requested, 0 of 2 slots free");
}

/* reserve */

Test(core, reserve_is_absolute)
{
	paged_seq_id a = create(session, 0);
	uint64_t version;

	assert_ok(reserve(session, a, 8));
	version = version_of(0, a);
	assert_ok(reserve(session, a, 8));
	assert_ok(reserve(session, a, 0));
	assert_row(0, a, "1 0");
	assert_ok(reserve(session, a, 9));
	assert_row(0, a, "1 0 2");
	/* Growth disturbs no reader. */
	cr_assert_eq(version_of(0, a), version);
	assert_ok(reserve(session, a, 40));
	assert_counts(0, 2, 10, 0);
}

Test(core, reserve_refuses)
{
	struct paged_seq_item items[2];
	uint32_t other, other_member;
	paged_seq_id a = create(session, 0), b = create(session, 0), foreign;

	assert_ok(core_session_open(f.core, &other, &other_member, &error));
	foreign = create(other, 0);
	assert_fails(core_seq_reserve(f.core, session, 0, items, &error), PAGED_ERR_INVALID,
		     "the request names no sequence");
	assert_fails(core_seq_reserve(f.core, session, 4097, items, &error), PAGED_ERR_LIMIT,
		     "the request names 4097 sequences, at most 4096 are allowed");
	assert_fails(reserve(session, PAGED_SEQ(1, 7, 0), 1), PAGED_ERR_NOENT, "there is no pool 7; there are 2, numbered from 0");
	assert_fails(reserve(session, foreign, 1), PAGED_ERR_PERM, "sequence 2.1 of pool llama belongs to session 2");
	assert_fails(reserve(session, PAGED_SEQ(9, 0, 4), 1), PAGED_ERR_STALE, "sequence 4.9 of pool llama has ended");
	assert_fails(reserve(session, PAGED_SEQ(UINT32_MAX, 0, 0xffffff), 1), PAGED_ERR_STALE,
		     "sequence 16777215.4294967295 of pool llama has ended");
	assert_fails(reserve(session, 0, 1), PAGED_ERR_INVALID, "0 is not a sequence id");
	assert_fails(reserve(session, a, 41), PAGED_ERR_LIMIT,
		     "sequence 0.1 of pool llama may hold 40 tokens, 41 requested");
	assert_fails(reserve(session, a, UINT32_MAX), PAGED_ERR_LIMIT,
		     "sequence 0.1 of pool llama may hold 40 tokens, 4294967295 requested");
	items[0] = (struct paged_seq_item){ .seq = a, .n_tokens = 4 };
	items[1] = (struct paged_seq_item){ .seq = a, .n_tokens = 4 };
	assert_fails(core_seq_reserve(f.core, session, 2, items, &error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama is named twice");
	/* 13 pages, and no page for the first of the two. */
	items[0].n_tokens = 40;
	items[1] = (struct paged_seq_item){ .seq = b, .n_tokens = 12 };
	assert_fails(core_seq_reserve(f.core, session, 2, items, &error), PAGED_ERR_FULL,
		     "pool llama: 13 pages requested, 12 free (0 quarantined)");
	assert_counts(0, 12, 0, 0);
	items[1].n_tokens = 8;
	assert_ok(core_seq_reserve(f.core, session, 2, items, &error));
	assert_counts(0, 0, 12, 0);
}

Test(core, reserve_over_pools_is_all_or_nothing)
{
	paged_seq_id target = create(session, 0), draft = create(session, 1);
	struct paged_seq_item items[2] = {
		{ .seq = target, .n_tokens = 16 },
		{ .seq = draft, .n_tokens = 64 },
	};

	/* The first sequence of each pool. */
	cr_assert_eq(target, PAGED_SEQ(1, 0, 0));
	cr_assert_eq(draft, PAGED_SEQ(1, 1, 0));
	assert_fails(core_seq_reserve(f.core, session, 2, items, &error), PAGED_ERR_FULL,
		     "pool draft: 4 pages requested, 3 free (0 quarantined)");
	assert_counts(0, 12, 0, 0);
	items[1].n_tokens = 48;
	assert_ok(core_seq_reserve(f.core, session, 2, items, &error));
	assert_row(0, target, "3 2 1 0");
	assert_row(1, draft, "2 1 0");
}

/* Tokens ahead of need */

Test(core, reserve_ahead_leaves_an_eighth_and_shares_the_rest)
{
	paged_seq_id a = create(session, 0), b = create(session, 0), c;
	struct paged_seq_item items[] = { { .seq = a, .n_tokens = 4, .n_ahead = 36 },
					  { .seq = b, .n_tokens = 8, .n_ahead = 18 } };
	uint32_t other, other_member;

	/* 3 of 12 pages are needed and 1 stays: of the other 8, a gets 9/14 and b 5/14, rounded down. */
	assert_ok(core_seq_reserve(f.core, session, 2, items, &error));
	assert_row(0, a, "5 4 3 2 1 0");
	assert_row(0, b, "9 8 7 6");
	assert_counts(0, 2, 10, 0);
	/* The one page that is left to spare is less than a share. */
	assert_ok(core_seq_reserve(f.core, session, 2, items, &error));
	assert_counts(0, 2, 10, 0);
	/* What is needed is given to the last page, of whatever session. */
	assert_ok(core_session_open(f.core, &other, &other_member, &error));
	c = create(other, 0);
	assert_ok(reserve(other, c, 8));
	assert_counts(0, 0, 12, 0);
	assert_ok(core_seq_reserve(f.core, session, 2, items, &error));
	items[0].n_tokens = 25;
	assert_fails(core_seq_reserve(f.core, session, 2, items, &error), PAGED_ERR_FULL,
		     "pool llama: 1 pages requested, 0 free (0 quarantined)");
}

Test(core, tokens_ahead_end_at_max_length)
{
	struct paged_seq_item item = { .seq = create(session, 0), .n_tokens = 1, .n_ahead = UINT32_MAX };

	assert_ok(core_seq_reserve(f.core, session, 1, &item, &error));
	assert_row(0, item.seq, "9 8 7 6 5 4 3 2 1 0");
	assert_fails(core_seq_truncate(f.core, session, 1, &item, &error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama is truncated, but n_ahead is 4294967295");
}

/* truncate and erase */

Test(core, truncate)
{
	paged_seq_id a = create(session, 0);
	uint64_t version;

	assert_ok(reserve(session, a, 16));
	version = version_of(0, a);
	assert_fails(cut(session, a, 17), PAGED_ERR_CAPACITY,
		     "sequence 0.1 of pool llama has room for 16 tokens, cannot keep 17");
	assert_ok(cut(session, a, 13));
	cr_assert_eq(version_of(0, a), version, "nothing was removed");
	assert_ok(cut(session, a, 12));
	cr_assert_eq(version_of(0, a), version + 2);
	assert_row(0, a, "3 2 1");
	assert_ok(cut(session, a, 0));
	assert_row(0, a, "");
	assert_ok(cut(session, a, 0));
	assert_free_list(0, "11 10 9 8 7 6 5 4 0 3 2 1");
	assert_counts(0, 12, 0, 0);
}

Test(core, truncate_and_erase_are_all_or_nothing)
{
	paged_seq_id a = create(session, 0), b = create(session, 0);
	struct paged_seq_item items[2] = { { .seq = a, .n_tokens = 4 }, { .seq = b, .n_tokens = 5 } };

	assert_ok(reserve(session, a, 8));
	assert_ok(reserve(session, b, 4));
	assert_fails(core_seq_truncate(f.core, session, 2, items, &error), PAGED_ERR_CAPACITY,
		     "sequence 1.1 of pool llama has room for 4 tokens, cannot keep 5");
	assert_row(0, a, "1 0");
	assert_fails(core_seq_erase(f.core, session, 2, (paged_seq_id[]){ a, a }, &error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama is named twice");
	assert_row(0, a, "1 0");
	assert_ok(core_seq_erase(f.core, session, 2, (paged_seq_id[]){ a, b }, &error));
	assert_counts(0, 12, 0, 0);
}

/* Accounting */

Test(core, check_finds_a_wrong_count)
{
	struct paged_check_result accounting;
	_Atomic uint32_t *count = &region_page(core_pool_view(f.core, 0), 1)->count;

	assert_ok(reserve(session, create(session, 0), 12));
	atomic_store(count, 2);
	cr_assert_eq(core_check(f.core, 0, &accounting, &error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(error.text, "pool llama: page 1: count 2, but 1 page table entries name it");
	atomic_store(count, 1);
	assert_accounting();
}

Test(core, an_audit_sees_what_was_wrong_when_it_began)
{
	struct core_audit *audit;
	struct paged_check_result accounting;
	_Atomic uint32_t *count = &region_page(core_pool_view(f.core, 0), 1)->count;
	paged_seq_id seq = create(session, 0);

	assert_ok(reserve(session, seq, 12));
	atomic_store(count, 2);
	assert_ok(core_audit_begin(f.core, 0, &audit, &error));
	cr_assert(core_audit_step(audit, 1));
	assert_ok(erase(session, seq));
	while (core_audit_step(audit, 1))
		;
	cr_assert_eq(core_audit_end(audit, &accounting, &error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(error.text, "pool llama: page 1: count 2, but 1 page table entries name it");
	cr_assert_eq(accounting.n_sequences, 1);
	/* Erasing left it a reference that no page table has. */
	assert_ok(core_audit_begin(f.core, 0, &audit, &error));
	while (core_audit_step(audit, 7))
		;
	cr_assert_eq(core_audit_end(audit, &accounting, &error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(error.text, "pool llama: page 1: count 1, but 0 page table entries name it");
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

Test(core, a_large_pool_costs_what_is_used)
{
	paged_seq_id ids[256];
	struct paged_seq_item items[256];
	struct paged_check_result accounting;
	uint32_t pool;
	long before = resident_bytes(), after;

	pool = fixture_add_pool(&f, "large", 10 * 1000 * 1000, 16, 100 * 1000, 131072);
	assert_ok(create_n(session, pool, 256, ids));
	for (uint32_t i = 0; i < 256; i++)
		items[i] = (struct paged_seq_item){ .seq = ids[i], .n_tokens = 16 * 16 };
	assert_ok(core_seq_reserve(f.core, session, 256, items, &error));
	assert_ok(core_seq_erase(f.core, session, 128, ids, &error));
	after = resident_bytes();
	cr_assert_leq(after - before, 4l << 20, "%ld bytes more than before", after - before);
	cr_assert_eq(core_check(f.core, pool, &accounting, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(accounting.n_free, 10 * 1000 * 1000 - 128 * 16);
}
