/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and members of the core: their end, quarantine, and cleanup in steps. */
#include "tests/core/core_fixture.h"

TestSuite(core_sessions, .init = core_fixture_setup, .fini = core_fixture_teardown);

Test(core_sessions, sessions_are_listed_in_order)
{
	struct paged_session_entry status;
	uint32_t second, third, m;

	expect_ok(core_session_open(core_fixture.core, &second, &m, &core_error));
	core_member_leave(core_fixture.core, m);
	expect_ok(core_session_open(core_fixture.core, &third, &m, &core_error));
	cr_assert_eq(third, 3, "ids are not used again");
	cr_assert_eq(core_n_sessions(core_fixture.core), 2);
	cr_assert_eq(core_member_session(core_fixture.core, m), 3);
	expect_ok(core_session_join(core_fixture.core, third, &m, &core_error));
	fixture_create(third, 1);
	expect_ok(fixture_reserve(third, fixture_create(third, 1), 20));
	cr_assert(core_session_next(core_fixture.core, 0, &status));
	cr_assert_eq(status.session, 1);
	cr_assert(core_session_next(core_fixture.core, 1, &status));
	cr_assert_eq(status.session, 3);
	cr_assert_eq(status.ended, 0);
	cr_assert_eq(status.n_sequences, 2);
	cr_assert_eq(status.n_pages, 2);
	cr_assert_eq(status.n_quarantined, 0);
	cr_assert_not(core_session_next(core_fixture.core, 3, &status));
	cr_assert_not(core_session_next(core_fixture.core, UINT32_MAX, &status));
}

Test(core_sessions, many_sessions_open_and_close)
{
	uint32_t sessions[64], members[64];

	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < 64; i++)
			expect_ok(core_session_open(core_fixture.core, &sessions[i], &members[i], &core_error));
		for (int i = 0; i < 64; i++)
			core_member_leave(core_fixture.core, members[(i * 37) % 64]);
		cr_assert_eq(core_n_sessions(core_fixture.core), 1);
	}
	cr_assert_eq(sessions[63], 1 + 200 * 64);
	cr_assert_eq(core_member_session(core_fixture.core, members[5]), 0);
	cr_assert_eq(core_member_session(core_fixture.core, fixture_member), fixture_session);
}

Test(core_sessions, requests_of_an_ended_session_are_refused)
{
	paged_seq_id a = fixture_create(fixture_session, 0);
	uint32_t m;

	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	expect_error(fixture_reserve(fixture_session, a, 4), PAGED_ERR_GONE, "session 1 has ended");
	expect_error(fixture_truncate(fixture_session, a, 0), PAGED_ERR_GONE, "session 1 has ended");
	expect_error(fixture_erase(fixture_session, a), PAGED_ERR_GONE, "session 1 has ended");
	expect_error(fixture_create_n(fixture_session, 0, 1, &a), PAGED_ERR_GONE, "session 1 has ended");
	expect_error(core_session_join(core_fixture.core, fixture_session, &m, &core_error), PAGED_ERR_GONE,
		     "session 1 has ended");
	expect_error(core_session_join(core_fixture.core, 9, &m, &core_error), PAGED_ERR_GONE, "there is no session 9");
	expect_error(fixture_reserve(0, a, 4), PAGED_ERR_GONE, "there is no session 0");
	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	expect_error(core_session_end(core_fixture.core, 9, &core_error), PAGED_ERR_NOENT, "there is no session 9");
	core_member_leave(core_fixture.core, fixture_member);
	cr_assert_not(core_reap(core_fixture.core, 0));
	cr_assert_eq(core_n_sessions(core_fixture.core), 0);
	expect_error(core_session_end(core_fixture.core, fixture_session, &core_error), PAGED_ERR_NOENT,
		     "there is no session 1");
	expect_error(core_session_join(core_fixture.core, fixture_session, &m, &core_error), PAGED_ERR_GONE,
		     "session 1 has ended");
	core_member_leave(core_fixture.core, fixture_member);
}

Test(core_sessions, pages_of_a_session_without_members_are_free_after_reap)
{
	paged_seq_id a = fixture_create(fixture_session, 0), id;

	expect_ok(fixture_reserve(fixture_session, a, 12));
	core_member_leave(core_fixture.core, fixture_member);
	expect_counts(0, 9, 3, 0);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 12, 0, 0);
	expect_free_list(0, "11 10 9 8 7 6 5 4 3 2 1 0");
	cr_assert_not(core_seq_next(core_fixture.core, 0, 0, UINT32_MAX, &id));
	cr_assert_eq(core_n_sessions(core_fixture.core), 0);
}

Test(core_sessions, pages_are_quarantined_until_the_last_member_leaves)
{
	struct paged_session_entry status;
	uint32_t rank, other, other_member;
	paged_seq_id a = fixture_create(fixture_session, 0);

	expect_ok(core_session_join(core_fixture.core, fixture_session, &rank, &core_error));
	expect_ok(core_session_open(core_fixture.core, &other, &other_member, &core_error));
	expect_ok(fixture_reserve(fixture_session, a, 40));
	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, 1), 17));
	core_member_leave(core_fixture.core, fixture_member);
	/* The session's sequences exist until core_reap(), and other sessions may not use them. */
	expect_error(fixture_erase(other, a), PAGED_ERR_PERM, "sequence 0.1 of pool llama belongs to session 1");
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 2, 0, 10);
	expect_counts(1, 1, 0, 2);
	cr_assert(core_session_next(core_fixture.core, 0, &status));
	cr_assert_eq(status.session, fixture_session);
	cr_assert_eq(status.ended, 1);
	cr_assert_eq(status.n_sequences, 0);
	cr_assert_eq(status.n_pages, 0);
	cr_assert_eq(status.n_quarantined, 12);

	expect_error(fixture_reserve(other, fixture_create(other, 0), 12), PAGED_ERR_FULL,
		     "pool llama: 3 pages requested, 2 free (10 quarantined)");
	cr_assert_not(core_reap(core_fixture.core, 0), "pages are quarantined until the member leaves");
	core_member_leave(core_fixture.core, rank);
	expect_counts(0, 2, 0, 10);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 12, 0, 0);
	expect_counts(1, 3, 0, 0);
	cr_assert_eq(core_n_sessions(core_fixture.core), 1);
}

Test(core_sessions, a_session_survives_a_member_that_joined)
{
	uint32_t rank;

	expect_ok(core_session_join(core_fixture.core, fixture_session, &rank, &core_error));
	core_member_leave(core_fixture.core, rank);
	cr_assert_eq(core_member_session(core_fixture.core, rank), 0);
	expect_ok(core_session_join(core_fixture.core, fixture_session, &rank, &core_error));
	cr_assert_eq(rank, 3);
}

Test(core_sessions, session_end_quarantines_pages)
{
	paged_seq_id a = fixture_create(fixture_session, 0);

	expect_ok(fixture_reserve(fixture_session, a, 8));
	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	cr_assert_eq(core_member_session(core_fixture.core, fixture_member), fixture_session,
		     "the member has not left");
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 10, 0, 2);
	core_member_leave(core_fixture.core, fixture_member);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 12, 0, 0);
	expect_free_list(0, "11 10 9 8 7 6 5 4 3 2 1 0");
}

Test(core_sessions, reap_in_steps)
{
	uint32_t n_steps = 0;

	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, 0), 40));
	fixture_create(fixture_session, 0);
	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	/* 10 pages and an empty sequence, three at a time: the sequence and 2 pages, 3, 3, 2. */
	cr_assert(core_reap(core_fixture.core, 3));
	n_steps++;
	expect_accounting();
	while (core_reap(core_fixture.core, 3)) {
		n_steps++;
		expect_accounting();
	}
	cr_assert_eq(n_steps, 3);
	expect_counts(0, 2, 0, 10);
	core_member_leave(core_fixture.core, fixture_member);
	cr_assert(core_reap(core_fixture.core, 4));
	expect_counts(0, 6, 0, 6);
	cr_assert(core_reap(core_fixture.core, 4));
	cr_assert_not(core_reap(core_fixture.core, 4));
	expect_counts(0, 12, 0, 0);
	cr_assert_eq(core_n_sessions(core_fixture.core), 0);
}

Test(core_sessions, the_last_member_leaves_between_reap_steps)
{
	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, 0), 40));
	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	cr_assert(core_reap(core_fixture.core, 4));
	expect_counts(0, 2, 6, 4);
	core_member_leave(core_fixture.core, fixture_member);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 12, 0, 0);
	cr_assert_eq(core_n_sessions(core_fixture.core), 0);
}

Test(core_sessions, ended_sequences_are_stale_to_readers)
{
	paged_seq_id a = fixture_create(fixture_session, 0);
	const struct region_view *view = core_pool_view(core_fixture.core, 0);
	struct region_snapshot snapshot;

	expect_ok(fixture_reserve(fixture_session, a, 8));
	cr_assert_eq(region_snapshot_begin(view, a, &snapshot), REGION_READ);
	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	cr_assert(region_snapshot_valid(view, a, &snapshot));
	core_reap(core_fixture.core, 0);
	cr_assert_not(region_snapshot_valid(view, a, &snapshot));
	cr_assert_eq(region_snapshot_begin(view, a, &snapshot), REGION_STALE);
}
