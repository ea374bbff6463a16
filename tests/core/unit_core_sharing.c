/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that several sequences share: the cases that shaped the rules of publish, fork and truncate, each by name.
 * What is cached, and in which order it is evicted, is in unit_core_eviction.c.
 */
#include <string.h>

#include "tests/core/sharing_fixture.h"

TestSuite(core_sharing, .init = sharing_setup, .fini = core_fixture_teardown);

/* A publish that was sent before the sequence was truncated and grew again arrives late: its pages are others. */
Test(core_sharing, delayed_publish_after_truncate_and_reserve)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);
	struct sharing_keys keys;
	struct core_publish delayed;
	uint32_t n_published;

	expect_ok(fixture_reserve(fixture_session, seq, 8));
	delayed = sharing_publish_request(&keys, seq, 0, "aaaabbbb", NULL);
	expect_ok(fixture_truncate(fixture_session, seq, 4));
	expect_ok(fixture_reserve(fixture_session, seq, 8));
	expect_refused(core_seq_publish(core_fixture.core, fixture_session, 1, &delayed, &n_published, fixture_ends,
					&core_error),
		       PAGED_ERR_STALE);
	expect_found(0, "aaaabbbb", NULL, "");
	cr_assert_eq(sharing_publish(seq, 0, "aaaacccc", NULL), 2);
}

Test(core_sharing, growth_does_not_delay_a_publish)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);
	struct sharing_keys keys;
	struct core_publish request;
	uint32_t n_published;

	expect_ok(fixture_reserve(fixture_session, seq, 8));
	request = sharing_publish_request(&keys, seq, 0, "aaaabbbb", NULL);
	expect_ok(fixture_reserve(fixture_session, seq, 12));
	sharing_fork(fixture_session, seq, 8);
	expect_ok(core_seq_publish(core_fixture.core, fixture_session, 1, &request, &n_published, fixture_ends,
				   &core_error));
	cr_assert_eq(n_published, 2);
}

/* Children of one parent share its page; the page can be a node of one prefix only. */
Test(core_sharing, two_forks_publish_one_page_under_two_salts)
{
	paged_seq_id parent = fixture_create(fixture_session, 0), child, other;

	expect_ok(fixture_reserve(fixture_session, parent, 8));
	child = sharing_fork(fixture_session, parent, 8);
	other = sharing_fork(fixture_session, parent, 8);
	cr_assert_eq(sharing_publish(child, 0, "aaaabbbb", "tenant"), 2);
	cr_assert_eq(sharing_publish(other, 0, "aaaabbbb", "another tenant"), 0);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_OTHER);
	expect_found(0, "aaaabbbb", "another tenant", "");
	cr_assert_eq(sharing_publish(other, 0, "aaaabbbb", "tenant"), 2);
	cr_assert_eq(sharing_publish(parent, 0, "aaaabbbb", "tenant"), 2);
	expect_found(0, "aaaabbbb", "tenant", "1 0");
	cr_assert_eq(atomic_load(&core_pool_view(core_fixture.core, 0)->header->n_published), 2);
}

/* In one request, too: the second item stops short. */
Test(core_sharing, two_forks_publish_one_page_under_two_salts_at_once)
{
	paged_seq_id parent = fixture_create(fixture_session, 0), child;
	struct core_publish requests[2];
	struct sharing_keys keys[2];
	uint32_t n_published[2];

	expect_ok(fixture_reserve(fixture_session, parent, 8));
	child = sharing_fork(fixture_session, parent, 8);
	requests[0] = sharing_publish_request(&keys[0], parent, 0, "aaaabbbb", "tenant");
	requests[1] = sharing_publish_request(&keys[1], child, 0, "aaaabbbb", "another tenant");
	expect_ok(core_seq_publish(core_fixture.core, fixture_session, 2, requests, n_published, fixture_ends,
				   &core_error));
	expect_accounting();
	cr_assert_eq(n_published[0], 2);
	cr_assert_eq(n_published[1], 0);
	cr_assert(fixture_ends[0] == PAGED_PUBLISH_DONE && fixture_ends[1] == PAGED_PUBLISH_OTHER);
	expect_seq(child, 2, 0);
	expect_found(0, "aaaabbbb", "another tenant", "");
}

/*
 * Two sequences publish the same prefix in turns, so each one's nodes stand on the other's.  When one of them ends, its
 * half of the chain is cached; when that is evicted, the other is published as far as the chain still goes.
 */
Test(core_sharing, twins_published_alternately_and_evicted_by_half)
{
	paged_seq_id first = fixture_create(fixture_session, 0), second = fixture_create(fixture_session, 0);
	const struct region_header *header = core_pool_view(core_fixture.core, 0)->header;

	expect_ok(fixture_reserve(fixture_session, first, 16));
	expect_ok(fixture_reserve(fixture_session, second, 20));
	expect_page_table(0, first, "3 2 1 0");
	expect_page_table(0, second, "8 7 6 5 4");
	cr_assert_eq(sharing_publish(first, 0, "aaaa", NULL), 1);
	cr_assert_eq(sharing_publish(second, 0, "aaaabbbb", NULL), 2);
	cr_assert_eq(sharing_publish(first, 1, "aaaabbbbcccc", NULL), 3);
	cr_assert_eq(sharing_publish(second, 2, "aaaabbbbccccdddd", NULL), 4);
	expect_found(0, "aaaabbbbccccdddd", NULL, "3 7 1 5");

	expect_ok(fixture_erase(fixture_session, first));
	expect_free_list(0, "11 10 9 2 0");
	expect_cached(0, "1 3");
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 1), 1);
	expect_found(0, "aaaabbbbccccdddd", NULL, "3 7");

	expect_seq(second, 4, 2);
	cr_assert_eq(sharing_publish(second, 4, "aaaabbbbccccddddeeee", NULL), 2);
	expect_found(0, "aaaabbbbccccddddeeee", NULL, "3 7");
	cr_assert_eq(sharing_publish(second, 2, "aaaabbbbccccddddeeee", NULL), 5);
	expect_found(0, "aaaabbbbccccddddeeee", NULL, "3 7 6 5 4");
	cr_assert_eq(atomic_load(&header->n_orphaned), 1);
	expect_ok(fixture_erase(fixture_session, second));
	expect_cached(0, "4 5 6 7 3");
}

/* What a sequence says is published can be found: it is published again once the page that stood for it is gone. */
Test(core_sharing, a_twin_is_evicted)
{
	paged_seq_id first = sharing_write(fixture_session, 0, "aaaa", NULL), second;

	second = sharing_write(fixture_session, 0, "aaaabbbb", NULL);
	expect_ok(fixture_erase(fixture_session, first));
	expect_seq(second, 2, 2);
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 1), 1);
	expect_seq(second, 2, 0);
	expect_found(0, "aaaabbbb", NULL, "");
	cr_assert_eq(sharing_publish(second, 0, "aaaabbbb", NULL), 2);
	expect_found(0, "aaaabbbb", NULL, "2 1");
}

/* The parent stands on a page that was published first by another sequence; the fork ends before it. */
Test(core_sharing, a_fork_does_not_depend_on_twins_past_it)
{
	paged_seq_id parent = sharing_write(fixture_session, 0, "aaaa", NULL), other, child;

	other = sharing_start(fixture_session, 0, "aaaa", NULL, 8);
	cr_assert_eq(sharing_publish(other, 1, "aaaabbbb", NULL), 2);
	expect_ok(fixture_reserve(fixture_session, parent, 8));
	cr_assert_eq(sharing_publish(parent, 1, "aaaabbbb", NULL), 2);
	child = sharing_fork(fixture_session, parent, 4);
	expect_ok(fixture_erase(fixture_session, other));
	expect_cached(0, "1");
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 1), 1);
	expect_seq(parent, 2, 1);
	expect_seq(child, 1, 1);
	expect_ok(fixture_reserve(fixture_session, child, 8));
	cr_assert_eq(sharing_publish(child, 1, "aaaacccc", NULL), 2);
	expect_found(0, "aaaacccc", NULL, "0 1");
}

/* The child of an evicted page leaves the index with it, and is free when its last sequence ends. */
Test(core_sharing, orphans_are_not_cached)
{
	paged_seq_id first = fixture_create(fixture_session, 0), second = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, first, 4));
	expect_ok(fixture_reserve(fixture_session, second, 12));
	sharing_publish(first, 0, "aaaa", NULL);
	sharing_publish(second, 0, "aaaabbbbcccc", NULL);
	expect_ok(fixture_erase(fixture_session, first));
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 0), 1);
	expect_ok(fixture_erase(fixture_session, second));
	expect_counts(0, 12, 0, 0);
	cr_assert_eq(atomic_load(&core_pool_view(core_fixture.core, 0)->header->n_orphaned), 2);
}

/* A member of the ended session may still write its pages, but not the published ones. */
Test(core_sharing, session_ends_while_a_fork_shares_its_page)
{
	paged_seq_id parent, child, reader;
	uint32_t session, member, pages[2];

	expect_ok(core_session_open(core_fixture.core, &session, &member, &core_error));
	parent = fixture_create(session, 0);
	expect_ok(fixture_reserve(session, parent, 8));
	cr_assert_eq(core_fixture_page_table(&core_fixture, 0, parent, pages), 2);
	cr_assert_eq(sharing_publish(parent, 0, "aaaa", NULL), 1);
	child = sharing_fork(session, parent, 8);
	reader = sharing_start(fixture_session, 0, "aaaa", NULL, 0);
	cr_assert_eq(sharing_count(0, pages[0]), 3);

	expect_ok(core_session_end(core_fixture.core, session, &core_error));
	cr_assert(core_reap(core_fixture.core, 2));
	expect_counts(0, 10, 2, 0);
	cr_assert_eq(sharing_count(0, pages[0]), 2);
	cr_assert_eq(sharing_count(0, pages[1]), 1);
	cr_assert(!core_reap(core_fixture.core, 0));
	expect_counts(0, 10, 1, 1);
	expect_refused(fixture_erase(session, child), PAGED_ERR_GONE);
	expect_ok(fixture_erase(fixture_session, reader));
	expect_counts(0, 10, 0, 1);
	expect_found(0, "aaaa", NULL, fixture_numbers_text(pages, 1));
	core_member_leave(core_fixture.core, member);
	cr_assert(!core_reap(core_fixture.core, 0));
	expect_counts(0, 11, 0, 0);
}

/* What a killed worker has published is cached at once, and taken by a reserve although its member still lives. */
Test(core_sharing, publisher_ends)
{
	uint32_t session, member;
	paged_seq_id seq, other;

	expect_ok(core_session_open(core_fixture.core, &session, &member, &core_error));
	seq = fixture_create(session, 0);
	expect_ok(fixture_reserve(session, seq, 20));
	sharing_publish(seq, 0, "aaaabbbbcccc", NULL);
	expect_ok(core_session_end(core_fixture.core, session, &core_error));
	cr_assert(!core_reap(core_fixture.core, 0));
	expect_counts(0, 7, 0, 2);
	expect_cached(0, "2 3 4");
	other = fixture_create(fixture_session, 0);
	expect_ok(fixture_reserve(fixture_session, other, 40));
	expect_counts(0, 0, 10, 2);
}

/* Pages that were shared when the sequence was longer have left it: the ones that take their place can be written. */
Test(core_sharing, truncate_below_writable_from_then_growth)
{
	paged_seq_id parent = fixture_create(fixture_session, 0), child;

	expect_ok(fixture_reserve(fixture_session, parent, 12));
	child = sharing_fork(fixture_session, parent, 12);
	expect_seq(parent, 3, 0);
	expect_seq(child, 3, 0);
	expect_ok(fixture_truncate(fixture_session, parent, 5)); /* keeps the page that it shares in part */
	expect_seq(parent, 2, 0);
	expect_ok(fixture_truncate(fixture_session, parent, 4));
	expect_seq(parent, 1, 0);
	expect_ok(fixture_reserve(fixture_session, parent, 12));
	expect_seq(parent, 1, 0);
	expect_page_table(0, child, "2 1 0");
	expect_page_table(0, parent, "2 4 3");
}

/* Truncate inside a published page: the page stays a node, and cannot be published as another. */
Test(core_sharing, truncate_inside_a_published_page)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbbcccc", NULL);

	expect_ok(fixture_truncate(fixture_session, seq, 6));
	expect_seq(seq, 2, 1);
	expect_cached(0, "0");
	cr_assert_eq(sharing_publish(seq, 1, "aaaaxxxx", NULL), 1);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_OTHER);
	cr_assert_eq(sharing_publish(seq, 1, "aaaabbbb", NULL), 2);
	expect_found(0, "aaaabbbbcccc", NULL, "2 1 0");
}

/* Where the row's page is private, as a twin stands for it, truncate forgets what was published. */
Test(core_sharing, truncate_to_a_private_page)
{
	paged_seq_id seq;

	sharing_write(fixture_session, 0, "aaaa", NULL);
	seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL);
	expect_ok(fixture_truncate(fixture_session, seq, 4));
	expect_seq(seq, 1, 0);
	expect_cached(0, "1");
	cr_assert_eq(sharing_publish(seq, 0, "aaaa", NULL), 1);
}

/* The reply to a fork came too late: the library erases the children, because their partial pages were not copied. */
Test(core_sharing, forks_erased)
{
	paged_seq_id parent = fixture_create(fixture_session, 0), children[3];
	struct seq_fork forks[3] = {
		{ .parent = parent, .n_tokens = 10 },
		{ .parent = parent, .n_tokens = 10 },
		{ .parent = parent, .n_tokens = 6 },
	};

	expect_ok(fixture_reserve(fixture_session, parent, 12));
	expect_ok(core_seq_fork(core_fixture.core, fixture_session, 3, forks, children, &core_error));
	expect_page_table(0, children[0], "2 1 3");
	expect_page_table(0, children[1], "2 1 4");
	expect_page_table(0, children[2], "2 5");
	expect_counts(0, 6, 6, 0);
	expect_ok(core_seq_erase(core_fixture.core, fixture_session, 3, children, &core_error));
	expect_counts(0, 9, 3, 0);
	expect_free_list(0, "11 10 9 8 7 6 3 4 5");
	cr_assert_eq(sharing_count(0, 2), 1);
	expect_seq(parent, 2, 0);
}

Test(core_sharing, forks_of_forks)
{
	paged_seq_id parent = sharing_write(fixture_session, 0, "aaaabbbb", NULL), child, grandchild;

	child = sharing_fork(fixture_session, parent, 7);
	expect_seq(child, 1, 1);
	expect_ok(fixture_erase(fixture_session, parent));
	expect_cached(0, "0");
	grandchild = sharing_fork(fixture_session, child, 8);
	expect_seq(child, 2, 1);
	expect_ok(fixture_erase(fixture_session, child));
	expect_page_table(0, grandchild, "1 2");
	cr_assert_eq(sharing_publish(grandchild, 1, "aaaacccc", NULL), 2);
	expect_found(0, "aaaacccc", NULL, "1 2");
	expect_found(0, "aaaabbbb", NULL, "1 0");
	expect_ok(fixture_erase(fixture_session, grandchild));
	expect_cached(0, "0 2 1");
}

/* Requests of more pages than the core handles at once, extras at the boundaries, and a twin for most of them. */
Test(core_sharing, long_prefix)
{
	static const uint32_t extra_page[] = { 0, 31, 32, 33, 64, 199 };
	static const prefix_key extra[6] = { "0", "31", "32", "33", "64", "199" };
	paged_seq_id seq = fixture_create(fixture_session, SHARING_WIDE), twin;
	uint32_t tokens[200], n_published[2];
	struct core_publish requests[2] = { { .keys = { .n_pages = 200,
							.tokens = tokens,
							.n_extras = 6,
							.extra_page = extra_page,
							.extra = extra } } };
	struct sharing_found found;

	for (uint32_t i = 0; i < 200; i++)
		tokens[i] = i % 7;
	twin = fixture_create(fixture_session, SHARING_WIDE);
	expect_ok(fixture_reserve(fixture_session, seq, 200));
	expect_ok(fixture_reserve(fixture_session, twin, 200));
	requests[0].seq = seq;
	requests[0].version = sharing_version(seq);
	requests[1] = requests[0];
	requests[1].seq = twin;
	requests[1].version = sharing_version(twin);
	expect_ok(core_seq_publish(core_fixture.core, fixture_session, 2, requests, n_published, fixture_ends,
				   &core_error));
	expect_accounting();
	cr_assert(n_published[0] == 200 && n_published[1] == 200);
	found = sharing_find_keys(SHARING_WIDE, &requests[0].keys);
	cr_assert_eq(found.n, 200);
	cr_assert_eq(atomic_load(&core_pool_view(core_fixture.core, SHARING_WIDE)->header->n_published), 200);
	/* Without one of the extras, the prefix ends there. */
	requests[0].keys.n_extras = 4;
	found = sharing_find_keys(SHARING_WIDE, &requests[0].keys);
	cr_assert_eq(found.n, 64);
	tokens[40]++;
	found = sharing_find_keys(SHARING_WIDE, &requests[0].keys);
	cr_assert_eq(found.n, 40);
}

/* A long prefix is started in several requests; the version stays, so that no plan becomes stale. */
Test(core_sharing, start_goes_on)
{
	paged_seq_id seq, id;
	struct sharing_found found;
	struct sharing_start_item start;
	uint64_t version;

	sharing_write(fixture_session, 0, "aaaabbbbccccdddd", NULL);
	seq = sharing_start(fixture_session, 0, "aaaabbbb", NULL, 0);
	version = sharing_version(seq);
	found = sharing_find(0, "aaaabbbbccccdddd", NULL);
	start = (struct sharing_start_item){
		.n_pages = 2, .pages = &found.pages[2], .serial = found.serial, .n_tokens = 18, .seq = seq, .tag = ""
	};
	expect_ok(sharing_starts(core_fixture.core, fixture_session, 0, 1, &start, &id, &core_error));
	cr_assert_eq(id, seq);
	cr_assert_eq(sharing_version(seq), version);
	expect_page_table(0, seq, "3 2 1 0 4");
	expect_seq(seq, 4, 4);
	cr_assert_eq(sharing_publish(seq, 4, "aaaabbbbccccddddeeee", NULL), 5);
}

Test(core_sharing, totals)
{
	struct sharing_found found;
	struct paged_pool_entry status;
	struct sharing_start_item start = { .n_tokens = 12, .n_asked = 12, .tag = "tag" };
	struct paged_seq_entry entry;
	paged_seq_id id;

	core_set_now(core_fixture.core, 5000);
	sharing_write(fixture_session, 0, "aaaabbbb", NULL);
	found = sharing_find(0, "aaaabbbbcccc", NULL);
	start.n_pages = found.n;
	start.pages = found.pages;
	start.serial = found.serial;
	core_set_now(core_fixture.core, 7999);
	expect_ok(sharing_starts(core_fixture.core, fixture_session, 0, 1, &start, &id, &core_error));
	core_pool_status(core_fixture.core, 0, &status);
	cr_assert(status.publishes == 1 && status.n_starts == 1);
	cr_assert(status.n_tokens_asked == 12 && status.n_tokens_found == 8);
	cr_assert(status.n_published == 2 && status.n_evicted == 0);
	expect_ok(core_seq_status(core_fixture.core, id, &entry, &core_error));
	cr_assert_str_eq(entry.tag, "tag");
	for (uint32_t i = 0; i < found.n; i++) {
		const struct region_node *node = region_node(core_pool_view(core_fixture.core, 0), found.pages[i]);

		cr_assert(atomic_load(&node->used) == 7 && atomic_load(&node->hits) == 1);
	}
}
