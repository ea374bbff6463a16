/* SPDX-License-Identifier: Apache-2.0 */
/* Pages given back at the beginning of a sequence: each rule by name.  Random orders are in unit_core_model.c. */
#include "tests/core/sharing_fixture.h"

TestSuite(core_trim, .init = sharing_setup, .fini = core_fixture_teardown);

#define GONE "4294967295 "

static enum paged_status
try_trim(uint32_t by_session, paged_seq_id seq, uint32_t first_token)
{
	return core_seq_trim(core_fixture.core, by_session, 1,
			     &(struct paged_seq_item){ .seq = seq, .n_tokens = first_token }, &core_error);
}

static void
trim(paged_seq_id seq, uint32_t first_token)
{
	expect_ok(try_trim(fixture_session, seq, first_token));
	expect_accounting();
}

static struct region_snapshot
snapshot_of(paged_seq_id seq)
{
	struct region_snapshot snapshot;

	cr_assert_eq(region_snapshot_begin(core_pool_view(core_fixture.core, PAGED_SEQ_POOL(seq)), seq, &snapshot),
		     REGION_READ);
	return snapshot;
}

Test(core_trim, positions_stay_and_pages_are_free)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);
	struct paged_session_entry session = { 0 };
	struct paged_seq_entry entry;

	expect_ok(fixture_reserve(fixture_session, seq, 16));
	expect_page_table(0, seq, "3 2 1 0");
	trim(seq, 11); /* inside page 2, which stays */
	expect_page_table(0, seq, GONE GONE "1 0");
	expect_counts(0, 10, 2, 0);
	expect_seq(seq, 2, 0);
	expect_ok(core_seq_status(core_fixture.core, seq, &entry, &core_error));
	cr_assert(entry.capacity == 16 && entry.n_pages == 4 && entry.n_trimmed == 2);
	cr_assert(core_session_next(core_fixture.core, 0, &session) && session.n_pages == 2);
	expect_ok(fixture_reserve(fixture_session, seq, 20));
	expect_page_table(0, seq, GONE GONE "1 0 2");
	expect_ok(fixture_erase(fixture_session, seq));
	expect_counts(0, 12, 0, 0);
}

Test(core_trim, a_repeated_or_smaller_trim_changes_nothing)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, seq, 16));
	trim(seq, 3);
	expect_page_table(0, seq, "3 2 1 0");
	trim(seq, 8);
	sharing_save();
	trim(seq, 8);
	trim(seq, 11);
	trim(seq, 0);
	cr_assert(sharing_is_saved());
}

Test(core_trim, a_whole_sequence)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, seq, 8));
	trim(seq, 8);
	expect_counts(0, 12, 0, 0);
	expect_ok(fixture_reserve(fixture_session, seq, 12));
	expect_counts(0, 11, 1, 0);
	expect_seq(seq, 2, 0);
}

Test(core_trim, errors_name_the_numbers)
{
	paged_seq_id seq = fixture_create(fixture_session, 0), copy;
	struct paged_seq_item items[2] = { { .seq = seq, .n_tokens = 4 }, { .seq = seq, .n_tokens = 8 } };

	expect_ok(fixture_reserve(fixture_session, seq, 16));
	expect_error(try_trim(fixture_session, seq, 17), PAGED_ERR_CAPACITY,
		     "sequence 0.1 of pool llama has room for 16 tokens, cannot be trimmed to token 17");
	expect_error(core_seq_trim(core_fixture.core, fixture_session, 2, items, &core_error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama is named twice");
	items[0].n_ahead = 3;
	expect_error(core_seq_trim(core_fixture.core, fixture_session, 1, items, &core_error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama is trimmed, but n_ahead is 3");
	expect_page_table(0, seq, "3 2 1 0");
	trim(seq, 8);
	expect_error(fixture_truncate(fixture_session, seq, 7), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama has given back the pages of its first 8 tokens, it cannot keep 7");
	expect_error(sharing_try_fork(fixture_session, seq, 7, &copy), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama has given back the pages of its first 8 tokens, a fork cannot begin "
		     "with 7");
}

Test(core_trim, another_session_is_refused)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);
	uint32_t other, member;

	expect_ok(core_session_open(core_fixture.core, &other, &member, &core_error));
	expect_ok(fixture_reserve(fixture_session, seq, 8));
	expect_refused(try_trim(other, seq, 4), PAGED_ERR_PERM);
}

/* A reader that copied the page table before must copy it again; growth never needs that. */
Test(core_trim, moves_the_version)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);
	struct region_snapshot before, after;

	expect_ok(fixture_reserve(fixture_session, seq, 16));
	before = snapshot_of(seq);
	trim(seq, 8);
	after = snapshot_of(seq);
	cr_assert(before.first == 0 && after.first == 2 && after.version == before.version + 2);
	cr_assert_not(region_snapshot_valid(core_pool_view(core_fixture.core, 0), seq, &before));
}

Test(core_trim, truncates_to_the_first_page)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, seq, 16));
	trim(seq, 8);
	expect_ok(fixture_truncate(fixture_session, seq, 8));
	expect_page_table(0, seq, GONE "4294967295");
	expect_counts(0, 12, 0, 0);
	expect_ok(fixture_reserve(fixture_session, seq, 12));
	expect_counts(0, 11, 1, 0);
}

Test(core_trim, a_fork_is_trimmed_as_its_parent)
{
	paged_seq_id seq = fixture_create(fixture_session, 0), child;

	expect_ok(fixture_reserve(fixture_session, seq, 16));
	trim(seq, 4);
	child = sharing_fork(fixture_session, seq, 14);
	expect_page_table(0, child, GONE "2 1 3");
	expect_page_table(0, seq, GONE "2 1 0");
	expect_seq(child, 3, 0);
	cr_assert_eq(snapshot_of(child).first, 1);
	/* The parent gives pages back that the child keeps. */
	trim(seq, 12);
	cr_assert(sharing_count(0, 2) == 1 && sharing_count(0, 1) == 1);
	trim(child, 8);
	expect_counts(0, 9, 3, 0);
}

Test(core_trim, published_pages_are_cached)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbbccccdddd", NULL), other;

	expect_found(0, "aaaabbbbccccdddd", NULL, "3 2 1 0");
	trim(seq, 12);
	/* The deepest first. */
	expect_cached(0, "1 2 3");
	expect_found(0, "aaaabbbbccccdddd", NULL, "3 2 1 0");
	other = sharing_start(fixture_session, 0, "aaaabbbbccccdddd", NULL, 0);
	expect_page_table(0, other, "3 2 1 0");
	cr_assert_eq(snapshot_of(seq).first, 3);
}

/* A trim is no use of the pages before it: they keep their age, and the page becomes as old as they are. */
Test(core_trim, pages_become_as_old_as_their_cached_ancestors)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbbccccdddd", NULL);

	trim(seq, 4);
	expect_ok(fixture_erase(fixture_session, sharing_write(fixture_session, 0, "eeee", NULL)));
	expect_cached(0, "3 4");
	trim(seq, 12);
	expect_cached(0, "1 2 3 4");
}

/* Descendants that another sequence left in the cache stay colder. */
Test(core_trim, pages_stay_hotter_than_their_descendants)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbbccccdddd", NULL), other;

	other = sharing_start(fixture_session, 0, "aaaabbbbcccc", NULL, 0);
	expect_ok(fixture_reserve(fixture_session, other, 16));
	cr_assert_eq(sharing_publish(other, 3, "aaaabbbbcccceeee", NULL), 4);
	trim(seq, 8);
	expect_cached(0, "");
	expect_ok(fixture_erase(fixture_session, other));
	expect_cached(0, "4 2 3");
	trim(seq, 12);
	expect_cached(0, "4 1 2 3");
}

Test(core_trim, goes_on_publishing_after_its_tip)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL);

	trim(seq, 8);
	expect_ok(fixture_reserve(fixture_session, seq, 12));
	cr_assert_eq(sharing_publish(seq, 2, "aaaabbbbcccc", NULL), 3);
	expect_found(0, "aaaabbbbcccc", NULL, "1 0 2");
}

Test(core_trim, publishes_nothing_once_its_tip_is_evicted)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL);

	trim(seq, 8);
	expect_ok(fixture_reserve(fixture_session, seq, 12));
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 1), 1);
	expect_seq(seq, 2, 0);
	cr_assert_eq(sharing_publish(seq, 2, "aaaabbbbcccc", NULL), 0);
	cr_assert_eq(sharing_publish(seq, 0, "aaaabbbbcccc", NULL), 0);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_TRIMMED);
	expect_found(0, "aaaabbbbcccc", NULL, "1");
}

/* Past what is published, there is nothing to go on from. */
Test(core_trim, past_what_is_published)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL);

	expect_ok(fixture_reserve(fixture_session, seq, 16));
	trim(seq, 8);
	expect_seq(seq, 2, 2);
	trim(seq, 12);
	expect_seq(seq, 3, 0);
	cr_assert_eq(sharing_publish(seq, 2, "aaaabbbbccccdddd", NULL), 0);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_TRIMMED);
	expect_found(0, "aaaabbbbccccdddd", NULL, "1 0");
}

/* Its later pages would stand on a page that is gone. */
Test(core_trim, published_pages_go_with_a_trimmed_one)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbbcccc", NULL);

	trim(seq, 4);
	expect_seq(seq, 3, 3);
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 1), 1);
	expect_seq(seq, 3, 0);
	expect_found(0, "aaaabbbbcccc", NULL, "");
	expect_counts(0, 10, 2, 0);
	expect_ok(fixture_reserve(fixture_session, seq, 16));
	cr_assert_eq(sharing_publish(seq, 0, "aaaabbbbccccdddd", NULL), 0);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_TRIMMED);
}

Test(core_trim, publishes_nothing_if_it_was_trimmed_first)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, seq, 12));
	trim(seq, 4);
	cr_assert_eq(sharing_publish(seq, 0, "aaaabbbbcccc", NULL), 0);
	expect_seq(seq, 1, 0);
	expect_found(0, "aaaabbbbcccc", NULL, "");
}

/* A publish that was sent before a trim names another version of the page table. */
Test(core_trim, a_delayed_publish_is_stale)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);
	struct sharing_keys keys;
	struct core_publish delayed;
	uint32_t n_published;

	expect_ok(fixture_reserve(fixture_session, seq, 8));
	delayed = sharing_publish_request(&keys, seq, 0, "aaaabbbb", NULL);
	trim(seq, 4);
	expect_refused(core_seq_publish(core_fixture.core, fixture_session, 1, &delayed, &n_published, fixture_ends,
					&core_error),
		       PAGED_ERR_STALE);
}

Test(core_trim, goes_on_from_its_end_with_a_start)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL);
	struct sharing_found found;
	struct sharing_start_item start;

	expect_ok(fixture_erase(fixture_session, sharing_write(fixture_session, 0, "aaaabbbbcccc", NULL)));
	trim(seq, 4);
	found = sharing_find(0, "aaaabbbbcccc", NULL);
	cr_assert_eq(found.n, 3);
	start = (struct sharing_start_item){
		.n_pages = 1, .pages = &found.pages[2], .serial = found.serial, .seq = seq, .tag = ""
	};
	expect_ok(sharing_starts(core_fixture.core, fixture_session, 0, 1, &start, &seq, &core_error));
	expect_accounting();
	cr_assert_eq(snapshot_of(seq).first, 1);
	cr_assert_eq(snapshot_of(seq).capacity, 12);
	expect_seq(seq, 3, 3);
}

Test(core_trim, an_unclean_end_quarantines_what_was_left)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, seq, 16));
	trim(seq, 12);
	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	while (core_reap(core_fixture.core, 1))
		;
	expect_counts(0, 11, 0, 1);
	core_member_leave(core_fixture.core, fixture_member);
	core_reap(core_fixture.core, 0);
	expect_counts(0, 12, 0, 0);
}

/* A window of 12 tokens over 4000, in a pool of 16. */
Test(core_trim, a_sequence_longer_than_its_pool)
{
	uint32_t pool = core_fixture_add_pool(&core_fixture, "window", 4, 4, 1, 4000);
	paged_seq_id seq = fixture_create(fixture_session, pool);

	for (uint32_t n_tokens = 1; n_tokens <= 4000; n_tokens++) {
		expect_ok(fixture_reserve(fixture_session, seq, n_tokens));
		if (n_tokens > 12)
			expect_ok(try_trim(fixture_session, seq, n_tokens - 12));
	}
	expect_counts(pool, 1, 3, 0);
	cr_assert_eq(snapshot_of(seq).first, 997);
}

/* Eviction while trimmed sequences hold the ends of the chains: a node without its parent is freed, not cached. */
Test(core_trim, a_node_without_its_parent_is_freed)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbbcccc", NULL);

	trim(seq, 8);
	expect_cached(0, "1 2");
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 1), 1);
	expect_found(0, "aaaabbbbcccc", NULL, "2");
	trim(seq, 12);
	expect_cached(0, "2");
	expect_counts(0, 11, 0, 0);
}

Test(core_trim, checks_see_a_wrong_first_page)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);
	const struct region_view *view = core_pool_view(core_fixture.core, 0);
	struct paged_check_result accounting;

	expect_ok(fixture_reserve(fixture_session, seq, 16));
	trim(seq, 8);
	atomic_store(&region_slot(view, PAGED_SEQ_SLOT(seq))->first, 1);
	cr_assert_eq(region_check(view, &accounting, &core_error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(core_error.text,
			 "slot 0: entry 1 names page 4294967295, but only pages below 4 were handed out");
	cr_assert_eq(core_check(core_fixture.core, 0, &accounting, &core_error), PAGED_ERR_CORRUPT);
	atomic_store(&region_slot(view, PAGED_SEQ_SLOT(seq))->first, 5);
	cr_assert_eq(region_check(view, &accounting, &core_error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(core_error.text, "slot 0: 5 pages were given back, but the page table has 4 entries");
	atomic_store(&region_slot(view, PAGED_SEQ_SLOT(seq))->first, 2);
	expect_accounting();
}
