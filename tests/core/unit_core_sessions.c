/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/core_case.h"

TestSuite(core_sessions, .init = case_setup, .fini = case_teardown);

Test(core_sessions, sessions_in_order)
{
	struct paged_session_entry status;
	uint32_t second, third, m;

	assert_ok(core_session_open(f.core, &second, &m, &error));
	core_member_leave(f.core, m);
	assert_ok(core_session_open(f.core, &third, &m, &error));
	cr_assert_eq(third, 3, "ids are not used again");
	cr_assert_eq(core_n_sessions(f.core), 2);
	cr_assert_eq(core_member_session(f.core, m), 3);
	assert_ok(core_session_join(f.core, third, &m, &error));
	create(third, 1);
	assert_ok(reserve(third, create(third, 1), 20));
	cr_assert(core_session_next(f.core, 0, &status));
	cr_assert_eq(status.session, 1);
	cr_assert(core_session_next(f.core, 1, &status));
	cr_assert_eq(status.session, 3);
	cr_assert_eq(status.ended, 0);
	cr_assert_eq(status.n_sequences, 2);
	cr_assert_eq(status.n_pages, 2);
	cr_assert_eq(status.n_quarantined, 0);
	cr_assert_not(core_session_next(f.core, 3, &status));
	cr_assert_not(core_session_next(f.core, UINT32_MAX, &status));
}

Test(core_sessions, many_sessions_come_and_go)
{
	uint32_t sessions[64], members[64];

	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < 64; i++)
			assert_ok(core_session_open(f.core, &sessions[i], &members[i], &error));
		for (int i = 0; i < 64; i++)
			core_member_leave(f.core, members[(i * 37) % 64]);
		cr_assert_eq(core_n_sessions(f.core), 1);
	}
	cr_assert_eq(sessions[63], 1 + 200 * 64);
	cr_assert_eq(core_member_session(f.core, members[5]), 0);
	cr_assert_eq(core_member_session(f.core, member), session);
}

Test(core_sessions, an_ended_session_may_ask_for_nothing)
{
	paged_seq_id a = create(session, 0);
	uint32_t m;

	assert_ok(core_session_end(f.core, session, &error));
	assert_fails(reserve(session, a, 4), PAGED_ERR_GONE, "session 1 has ended");
	assert_fails(cut(session, a, 0), PAGED_ERR_GONE, "session 1 has ended");
	assert_fails(erase(session, a), PAGED_ERR_GONE, "session 1 has ended");
	assert_fails(create_n(session, 0, 1, &a), PAGED_ERR_GONE, "session 1 has ended");
	assert_fails(core_session_join(f.core, session, &m, &error), PAGED_ERR_GONE, "session 1 has ended");
	assert_fails(core_session_join(f.core, 9, &m, &error), PAGED_ERR_GONE, "there is no session 9");
	assert_fails(reserve(0, a, 4), PAGED_ERR_GONE, "there is no session 0");
	assert_ok(core_session_end(f.core, session, &error));
	assert_fails(core_session_end(f.core, 9, &error), PAGED_ERR_NOENT, "there is no session 9");
	core_member_leave(f.core, member);
	cr_assert_not(core_reap(f.core, 0));
	cr_assert_eq(core_n_sessions(f.core), 0);
	assert_fails(core_session_end(f.core, session, &error), PAGED_ERR_NOENT, "there is no session 1");
	assert_fails(core_session_join(f.core, session, &m, &error), PAGED_ERR_GONE, "session 1 has ended");
	core_member_leave(f.core, member);
}

Test(core_sessions, without_members_pages_are_free_at_once)
{
	paged_seq_id a = create(session, 0), id;

	assert_ok(reserve(session, a, 12));
	core_member_leave(f.core, member);
	assert_counts(0, 9, 3, 0);
	cr_assert_not(core_reap(f.core, 0));
	assert_counts(0, 12, 0, 0);
	assert_free_list(0, "11 10 9 8 7 6 5 4 3 2 1 0");
	cr_assert_not(core_seq_next(f.core, 0, 0, UINT32_MAX, &id));
	cr_assert_eq(core_n_sessions(f.core), 0);
}

Test(core_sessions, pages_wait_for_the_last_member)
{
	struct paged_session_entry status;
	uint32_t rank, other, other_member;
	paged_seq_id a = create(session, 0);

	assert_ok(core_session_join(f.core, session, &rank, &error));
	assert_ok(core_session_open(f.core, &other, &other_member, &error));
	assert_ok(reserve(session, a, 40));
	assert_ok(reserve(session, create(session, 1), 17));
	core_member_leave(f.core, member);
	/* Its sequences live on until somebody reaps, but are nobody else's. */
	assert_fails(erase(other, a), PAGED_ERR_PERM, "sequence 0.1 of pool llama belongs to session 1");
	cr_assert_not(core_reap(f.core, 0));
	assert_counts(0, 2, 0, 10);
	assert_counts(1, 1, 0, 2);
	cr_assert(core_session_next(f.core, 0, &status));
	cr_assert_eq(status.session, session);
	cr_assert_eq(status.ended, 1);
	cr_assert_eq(status.n_sequences, 0);
	cr_assert_eq(status.n_pages, 0);
	cr_assert_eq(status.n_quarantined, 12);

	assert_fails(reserve(other, create(other, 0), 12), PAGED_ERR_FULL,
		     "pool llama: 3 pages requested, 2 free (10 quarantined)");
	cr_assert_not(core_reap(f.core, 0), "nothing can be done while the rank lives");
	core_member_leave(f.core, rank);
	assert_counts(0, 2, 0, 10);
	cr_assert_not(core_reap(f.core, 0));
	assert_counts(0, 12, 0, 0);
	assert_counts(1, 3, 0, 0);
	cr_assert_eq(core_n_sessions(f.core), 1);
}

Test(core_sessions, a_lost_rank_ends_nothing)
{
	uint32_t rank;

	assert_ok(core_session_join(f.core, session, &rank, &error));
	core_member_leave(f.core, rank);
	cr_assert_eq(core_member_session(f.core, rank), 0);
	assert_ok(core_session_join(f.core, session, &rank, &error));
	cr_assert_eq(rank, 3);
}

Test(core_sessions, kick)
{
	paged_seq_id a = create(session, 0);

	assert_ok(reserve(session, a, 8));
	assert_ok(core_session_end(f.core, session, &error));
	cr_assert_eq(core_member_session(f.core, member), session, "the process is still there");
	cr_assert_not(core_reap(f.core, 0));
	assert_counts(0, 10, 0, 2);
	core_member_leave(f.core, member);
	cr_assert_not(core_reap(f.core, 0));
	assert_counts(0, 12, 0, 0);
	assert_free_list(0, "11 10 9 8 7 6 5 4 3 2 1 0");
}

Test(core_sessions, reap_in_steps)
{
	uint32_t n_steps = 0;

	assert_ok(reserve(session, create(session, 0), 40));
	create(session, 0);
	assert_ok(core_session_end(f.core, session, &error));
	/* 10 pages and an empty sequence, three at a time: the sequence and 2 pages, 3, 3, 2. */
	cr_assert(core_reap(f.core, 3));
	n_steps++;
	assert_accounting();
	while (core_reap(f.core, 3)) {
		n_steps++;
		assert_accounting();
	}
	cr_assert_eq(n_steps, 3);
	assert_counts(0, 2, 0, 10);
	core_member_leave(f.core, member);
	cr_assert(core_reap(f.core, 4));
	assert_counts(0, 6, 0, 6);
	cr_assert(core_reap(f.core, 4));
	cr_assert_not(core_reap(f.core, 4));
	assert_counts(0, 12, 0, 0);
	cr_assert_eq(core_n_sessions(f.core), 0);
}

/* The last member may leave when a part of the pages is in quarantine already. */
Test(core_sessions, reap_halfway_when_the_last_member_leaves)
{
	assert_ok(reserve(session, create(session, 0), 40));
	assert_ok(core_session_end(f.core, session, &error));
	cr_assert(core_reap(f.core, 4));
	assert_counts(0, 2, 6, 4);
	core_member_leave(f.core, member);
	cr_assert_not(core_reap(f.core, 0));
	assert_counts(0, 12, 0, 0);
	cr_assert_eq(core_n_sessions(f.core), 0);
}

Test(core_sessions, ended_sequences_are_stale_to_readers)
{
	paged_seq_id a = create(session, 0);
	const struct region_view *view = core_pool_view(f.core, 0);
	struct region_snapshot snapshot;

	assert_ok(reserve(session, a, 8));
	cr_assert_eq(region_snapshot_begin(view, a, &snapshot), REGION_READ);
	assert_ok(core_session_end(f.core, session, &error));
	cr_assert(region_snapshot_valid(view, a, &snapshot));
	core_reap(f.core, 0);
	cr_assert_not(region_snapshot_valid(view, a, &snapshot));
	cr_assert_eq(region_snapshot_begin(view, a, &snapshot), REGION_STALE);
}
