/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong requests to start, publish and fork: each is refused for its cause, and changes nothing.  Floods of a bucket.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/core/sharing_fixture.h"

TestSuite(core_sharing_errors, .init = sharing_setup, .fini = core_fixture_teardown);

/* Start */

static enum paged_status
try_start(const struct sharing_found *found)
{
	paged_seq_id seq;

	return sharing_try_start(fixture_session, 0, found, 0, &seq);
}

Test(core_sharing_errors, start_on_a_stale_chain)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL);
	struct sharing_found found = sharing_find(0, "aaaabbbb", NULL);

	expect_ok(fixture_erase(fixture_session, seq));
	core_prefix_evict(core_fixture.core, 0, 1);
	expect_refused(try_start(&found), PAGED_ERR_STALE);
	core_prefix_evict(core_fixture.core, 0, 1);
	expect_refused(try_start(&found), PAGED_ERR_STALE);
	/* The same prefix on the same pages, but other nodes. */
	seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL);
	expect_found(0, "aaaabbbb", NULL, fixture_numbers_text(found.pages, found.n));
	expect_refused(try_start(&found), PAGED_ERR_STALE);
	found = sharing_find(0, "aaaabbbb", NULL);
	expect_ok(try_start(&found));
}

Test(core_sharing_errors, start_on_a_chain_that_is_none)
{
	struct sharing_found found, other, wrong;
	paged_seq_id unpublished = fixture_create(fixture_session, 0);

	sharing_write(fixture_session, 0, "aaaabbbbcccc", NULL);
	sharing_write(fixture_session, 0, "aaaabbbbdddd", "salt");
	expect_ok(fixture_reserve(fixture_session, unpublished, 4));
	found = sharing_find(0, "aaaabbbbcccc", NULL);
	other = sharing_find(0, "aaaabbbbdddd", "salt");
	cr_assert(found.n == 3 && other.n == 3);

	wrong = found; /* shuffled */
	wrong.pages[0] = found.pages[1];
	wrong.pages[1] = found.pages[0];
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong = found; /* without its beginning */
	memmove(wrong.pages, &found.pages[1], 2 * sizeof(wrong.pages[0]));
	wrong.n = 2;
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong = found; /* with a gap */
	wrong.pages[1] = found.pages[2];
	wrong.n = 2;
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong = found; /* a page twice */
	wrong.pages[1] = found.pages[0];
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong = found; /* the end of another prefix */
	wrong.pages[2] = other.pages[2];
	wrong.serial = other.serial;
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong = found; /* the serial of another node */
	wrong.serial = other.serial;
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong.serial = 0;
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong.serial = UINT64_MAX;
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong = found; /* the page of a sequence that published nothing; a page never used; none of the pool */
	core_seq_pages(core_fixture.core, unpublished, 0, wrong.pages, 1);
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong.pages[0] = CORE_FIXTURE_N_PAGES - 1;
	expect_refused(try_start(&wrong), PAGED_ERR_STALE);
	wrong.pages[0] = CORE_FIXTURE_N_PAGES;
	expect_refused(try_start(&wrong), PAGED_ERR_RANGE);
	wrong.pages[0] = UINT32_MAX;
	expect_refused(try_start(&wrong), PAGED_ERR_RANGE);
}

Test(core_sharing_errors, start_request)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL), ids[2];
	struct sharing_found found = sharing_find(0, "aaaabbbb", NULL);
	struct sharing_start_item starts[2] = {
		{ .n_pages = 2, .pages = found.pages, .serial = found.serial, .n_tokens = 8, .tag = "" },
		{ .n_pages = 2, .pages = found.pages, .serial = found.serial, .n_tokens = 41, .tag = "" },
	};

	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 0, starts, ids, &core_error),
		       PAGED_ERR_INVALID);
	starts[1] = (struct sharing_start_item){ .serial = found.serial, .tag = "" };
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 2, starts, ids, &core_error),
		       PAGED_ERR_STALE);
	starts[1] = starts[0];
	starts[1].n_tokens = 41;
	expect_refused(sharing_starts(core_fixture.core, 77, 0, 1, starts, ids, &core_error), PAGED_ERR_GONE);
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 2, starts, ids, &core_error),
		       PAGED_ERR_LIMIT);
	starts[1].n_tokens = 8;
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 77, 2, starts, ids, &core_error),
		       PAGED_ERR_NOENT);
	expect_refused(sharing_starts(core_fixture.core, fixture_session, SHARING_CLOSED, 2, starts, ids, &core_error),
		       PAGED_ERR_STALE);
	starts[1].n_tokens = 40;
	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, 0), 16));
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 2, starts, ids, &core_error),
		       PAGED_ERR_FULL);
	cr_assert_eq(sharing_count(0, found.pages[0]), 1);
	expect_seq(seq, 2, 2);
}

/* A sequence can go on only from its end, which must be published. */
Test(core_sharing_errors, start_goes_on_from_elsewhere)
{
	paged_seq_id other, seq, stranger, ids[2];
	uint32_t session, member;
	struct sharing_found found;
	struct sharing_start_item starts[2];

	sharing_write(fixture_session, 0, "aaaabbbbcccc", NULL);
	other = sharing_write(fixture_session, 0, "ddddeeee", NULL);
	seq = sharing_start(fixture_session, 0, "aaaa", NULL, 0);
	expect_ok(core_session_open(core_fixture.core, &session, &member, &core_error));
	stranger = sharing_start(session, 0, "aaaa", NULL, 0);
	found = sharing_find(0, "aaaabbbbcccc", NULL);
	starts[0] = (struct sharing_start_item){
		.n_pages = 2, .pages = &found.pages[1], .serial = found.serial, .seq = stranger, .tag = ""
	};

	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 1, starts, ids, &core_error),
		       PAGED_ERR_PERM);
	starts[0].seq = other;
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 1, starts, ids, &core_error),
		       PAGED_ERR_STALE);
	starts[0].seq = seq;
	starts[0].pages = &found.pages[2];
	starts[0].n_pages = 1;
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 1, starts, ids, &core_error),
		       PAGED_ERR_STALE);
	starts[0].pages = &found.pages[1];
	starts[0].n_pages = 2;
	starts[1] = starts[0];
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 2, starts, ids, &core_error),
		       PAGED_ERR_INVALID);
	expect_ok(fixture_reserve(fixture_session, seq, 8)); /* a page that is not published */
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 1, starts, ids, &core_error),
		       PAGED_ERR_STALE);
	expect_ok(fixture_erase(fixture_session, seq));
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 1, starts, ids, &core_error),
		       PAGED_ERR_STALE);
}

/* A sequence on a twin, which is cached, as is the page after it; returns the sequence, and the cached pages. */
static paged_seq_id
sequence_on_a_cached_twin(struct sharing_found *found)
{
	paged_seq_id first = sharing_write(fixture_session, 0, "aaaa", NULL);
	paged_seq_id second = sharing_write(fixture_session, 0, "aaaabbbb", NULL);
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaa", NULL);

	*found = sharing_find(0, "aaaabbbb", NULL);
	cr_assert_eq(found->n, 2);
	expect_ok(fixture_erase(fixture_session, first));
	expect_ok(fixture_erase(fixture_session, second));
	expect_cached(0, "1 0");
	expect_page_table(0, seq, "3");
	return seq;
}

/* Between the search and the start, the node before the pages that it found is evicted. */
Test(core_sharing_errors, start_goes_on_from_a_twin_that_is_gone)
{
	struct sharing_found found;
	paged_seq_id seq = sequence_on_a_cached_twin(&found), id;
	struct sharing_start_item start = {
		.n_pages = 1, .pages = &found.pages[1], .serial = found.serial, .seq = seq, .tag = ""
	};
	paged_seq_id holder = sharing_start(fixture_session, 0, "aaaabbbb", NULL, 0);

	/* A hold of the last page keeps it while the page before it is evicted. */
	expect_ok(core_pages_hold(core_fixture.core, fixture_session, 0, 1, &found.pages[1], &found.serial, &id,
				  &core_error));
	expect_ok(fixture_erase(fixture_session, holder));
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 0), 1);
	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 1, &start, &id, &core_error),
		       PAGED_ERR_STALE);
	expect_seq(seq, 1, 0);
}

/* The start itself evicts the twin that the sequence stands on: it shares the page, which is then published by none. */
Test(core_sharing_errors, start_evicts_the_twin_that_it_goes_on_from)
{
	struct sharing_found found;
	paged_seq_id seq = sequence_on_a_cached_twin(&found), id;
	struct sharing_start_item start = {
		.n_pages = 1, .pages = &found.pages[1], .serial = found.serial, .n_tokens = 40, .seq = seq, .tag = ""
	};

	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, 0), 8));
	expect_ok(sharing_starts(core_fixture.core, fixture_session, 0, 1, &start, &id, &core_error));
	expect_seq(seq, 2, 0);
	expect_found(0, "aaaabbbb", NULL, "");
	cr_assert_eq(sharing_publish(seq, 0, "aaaabbbb", NULL), 2);
	expect_found(0, "aaaabbbb", NULL, "3 1");
	expect_accounting();
}

/* Publish */

static enum paged_status
try_publish(const struct core_publish *request)
{
	uint32_t n_published;

	return core_seq_publish(core_fixture.core, fixture_session, 1, request, &n_published, fixture_ends,
				&core_error);
}

Test(core_sharing_errors, publish_request)
{
	paged_seq_id seq = fixture_create(fixture_session, 0), closed = fixture_create(fixture_session, SHARING_CLOSED);
	struct core_publish request, requests[2];
	uint32_t session, member, n_published[2];
	struct sharing_keys keys;

	expect_ok(fixture_reserve(fixture_session, seq, 12));
	expect_ok(fixture_reserve(fixture_session, closed, 4));
	cr_assert_eq(sharing_publish(seq, 0, "aaaa", NULL), 1);
	/* The page before it is not published, perhaps any more: nothing is stored. */
	cr_assert_eq(sharing_publish(seq, 2, "aaaabbbbcccc", NULL), 1);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_REMOVED);
	expect_seq(seq, 1, 1);
	request = sharing_publish_request(&keys, seq, 1, "aaaabbbbccccdddd", NULL);
	expect_refused(try_publish(&request), PAGED_ERR_CAPACITY);
	request.keys.n_pages = UINT32_MAX;
	expect_refused(try_publish(&request), PAGED_ERR_CAPACITY);
	request.from = UINT32_MAX;
	expect_refused(try_publish(&request), PAGED_ERR_CAPACITY);
	request = sharing_publish_request(&keys, seq, 1, "aaaabbbb", NULL);
	request.version++;
	expect_refused(try_publish(&request), PAGED_ERR_STALE);
	request.version--;
	keys.tokens[7] = PREFIX_NO_TOKENS;
	expect_refused(try_publish(&request), PAGED_ERR_INVALID);
	request = sharing_publish_request(&keys, closed, 0, "aaaa", NULL);
	expect_refused(try_publish(&request), PAGED_ERR_UNSUPPORTED);
	expect_found(SHARING_CLOSED, "aaaa", NULL, "");

	request = sharing_publish_request(&keys, seq, 1, "aaaabbbb", NULL);
	requests[0] = requests[1] = request;
	expect_refused(core_seq_publish(core_fixture.core, fixture_session, 2, requests, n_published, fixture_ends,
					&core_error),
		       PAGED_ERR_INVALID);
	requests[1].seq = closed; /* the first item alone would be right */
	expect_refused(core_seq_publish(core_fixture.core, fixture_session, 2, requests, n_published, fixture_ends,
					&core_error),
		       PAGED_ERR_UNSUPPORTED);
	expect_refused(core_seq_publish(core_fixture.core, fixture_session, 0, requests, n_published, fixture_ends,
					&core_error),
		       PAGED_ERR_INVALID);
	expect_ok(core_session_open(core_fixture.core, &session, &member, &core_error));
	expect_refused(
		core_seq_publish(core_fixture.core, session, 1, &request, n_published, fixture_ends, &core_error),
		PAGED_ERR_PERM);
	request.seq = PAGED_SEQ(1, 77, 0);
	expect_refused(try_publish(&request), PAGED_ERR_NOENT);
	expect_seq(seq, 1, 1);
}

Test(core_sharing_errors, publish_extras)
{
	static const prefix_key extra[3] = { "x", "y", "z" };
	paged_seq_id seq = fixture_create(fixture_session, 0);
	uint32_t pages[3] = { 1, 0, 2 };
	struct core_publish request;
	struct sharing_keys keys;

	expect_ok(fixture_reserve(fixture_session, seq, 8));
	request = sharing_publish_request(&keys, seq, 0, "aaaabbbb", NULL);
	request.keys.extra = extra;
	request.keys.extra_page = pages;
	request.keys.n_extras = 2; /* descending */
	expect_refused(try_publish(&request), PAGED_ERR_INVALID);
	pages[1] = 1; /* twice */
	expect_refused(try_publish(&request), PAGED_ERR_INVALID);
	pages[1] = 2; /* past the keys */
	expect_refused(try_publish(&request), PAGED_ERR_INVALID);
	request.keys.tokens = NULL; /* keys of the caller: one for each page */
	request.keys.extra_page = NULL;
	request.keys.n_extras = 1;
	expect_refused(try_publish(&request), PAGED_ERR_INVALID);
	request.keys.n_extras = 3;
	expect_refused(try_publish(&request), PAGED_ERR_INVALID);
	request.keys.n_extras = 2;
	expect_ok(try_publish(&request));
}

/* The page is a node already: under another key, or another parent. */
Test(core_sharing_errors, publish_a_node_as_another)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL), child;

	child = sharing_fork(fixture_session, seq, 8);
	expect_ok(fixture_truncate(fixture_session, child, 7));
	cr_assert_eq(sharing_publish(child, 1, "aaaaxxxx", NULL), 1);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_OTHER);
	expect_ok(fixture_truncate(fixture_session, child, 3));
	expect_seq(child, 1, 0);
	cr_assert_eq(sharing_publish(child, 0, "xxxx", NULL), 0);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_OTHER);
	cr_assert_eq(sharing_publish(child, 0, "aaaa", "salt"), 0);
	cr_assert_eq(sharing_publish(child, 0, "aaaa", NULL), 1);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_DONE);
	expect_found(0, "aaaabbbb", NULL, "1 0");
}

/* Fork */

Test(core_sharing_errors, fork_request)
{
	paged_seq_id seq = fixture_create(fixture_session, 0), child;
	uint32_t session, member;
	struct seq_fork *forks;
	paged_seq_id *children;

	expect_ok(fixture_reserve(fixture_session, seq, 40));
	expect_refused(sharing_try_fork(fixture_session, seq, 41, &child), PAGED_ERR_CAPACITY);
	expect_refused(sharing_try_fork(fixture_session, 0, 0, &child), PAGED_ERR_INVALID);
	expect_refused(sharing_try_fork(fixture_session, PAGED_SEQ(1, 77, 0), 0, &child), PAGED_ERR_NOENT);
	expect_refused(sharing_try_fork(fixture_session, PAGED_SEQ(2, 0, 0), 0, &child), PAGED_ERR_STALE);
	expect_ok(core_session_open(core_fixture.core, &session, &member, &core_error));
	expect_refused(sharing_try_fork(session, seq, 8, &child), PAGED_ERR_PERM);
	expect_refused(core_seq_fork(core_fixture.core, fixture_session, 0, NULL, NULL, &core_error),
		       PAGED_ERR_INVALID);

	forks = calloc(PAGED_MAX_REQUEST_SEQS + 1, sizeof(*forks));
	children = calloc(PAGED_MAX_REQUEST_SEQS + 1, sizeof(*children));
	cr_assert(forks != NULL && children != NULL);
	for (uint32_t i = 0; i <= PAGED_MAX_REQUEST_SEQS; i++)
		forks[i] = (struct seq_fork){ .parent = seq, .n_tokens = 37 }; /* 2 pages are free, 4 slots */
	expect_refused(core_seq_fork(core_fixture.core, fixture_session, PAGED_MAX_REQUEST_SEQS + 1, forks, children,
				     &core_error),
		       PAGED_ERR_LIMIT);
	expect_refused(core_seq_fork(core_fixture.core, fixture_session, 3, forks, children, &core_error),
		       PAGED_ERR_FULL);
	expect_refused(core_seq_fork(core_fixture.core, fixture_session, 5, forks, children, &core_error),
		       PAGED_ERR_FULL);
	free(forks);
	free(children);
}
