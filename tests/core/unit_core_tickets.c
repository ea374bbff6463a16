/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-over: the errors of give, adopt and cancel, and who owns a sequence after each possible end. */
#include <string.h>

#include "tests/core/core_fixture.h"

static const uint8_t ticket[PAGED_TICKET_SIZE] = "0123456789abcde";
static const uint8_t other_ticket[PAGED_TICKET_SIZE] = "0123456789abcdX";
static const char unknown_text[] = "the ticket is unknown, used or expired";
static uint32_t taker, taker_member;
static paged_seq_id seq;
static struct paged_seq_item adopted[4];
static uint32_t n_adopted;

static void
tickets_setup(void)
{
	core_fixture_setup();
	core_set_now(core_fixture.core, 1000);
	expect_ok(core_session_open(core_fixture.core, &taker, &taker_member, &core_error));
	seq = fixture_create(fixture_session, 0);
	expect_ok(fixture_reserve(fixture_session, seq, 10));
}

TestSuite(core_tickets, .init = tickets_setup, .fini = core_fixture_teardown);

static enum paged_status
give_with(const struct seq_give *give)
{
	struct paged_seq_item item = { .seq = seq, .n_tokens = 10 };

	return core_seq_give(core_fixture.core, fixture_session, 1, &item, give, ticket, &core_error);
}

static enum paged_status
give(void)
{
	return give_with(&(struct seq_give){ .timeout_ms = 500 });
}

static enum paged_status
adopt_n(uint32_t by, uint32_t n_max)
{
	return core_seq_adopt(core_fixture.core, by, 7, 0, ticket, n_max, adopted, &n_adopted, &core_error);
}

static enum paged_status
adopt(void)
{
	return adopt_n(taker, 4);
}

static void
expect_owner(uint32_t owner, uint32_t flags)
{
	const struct region_slot *slot = region_slot(core_pool_view(core_fixture.core, 0), PAGED_SEQ_SLOT(seq));

	cr_assert_eq(atomic_load(&slot->owner), owner);
	cr_assert_eq(atomic_load(&slot->flags), flags);
	expect_accounting();
}

Test(core_tickets, adopt_keeps_id_and_pages_and_makes_plans_stale)
{
	const struct region_view *view = core_pool_view(core_fixture.core, 0);
	struct region_snapshot before, frozen, after;
	struct paged_seq_item item = { .seq = seq, .n_tokens = 20 };

	cr_assert_eq(region_snapshot_begin(view, seq, &before), REGION_READ);
	expect_ok(give());
	cr_assert_eq(region_snapshot_begin(view, seq, &frozen), REGION_READ);
	cr_assert_eq(frozen.version, before.version);
	cr_assert_eq(frozen.writable_from, UINT32_MAX);
	cr_assert_eq(frozen.owner, fixture_session);
	expect_ok(adopt());
	cr_assert_eq(n_adopted, 1);
	cr_assert_eq(adopted[0].seq, seq);
	cr_assert_eq(adopted[0].n_tokens, 10);
	cr_assert_eq(region_snapshot_begin(view, seq, &after), REGION_READ);
	cr_assert_eq(after.version, before.version + 2);
	cr_assert_eq(after.writable_from, 0);
	expect_page_table(0, seq, "2 1 0");
	expect_owner(taker, 0);
	expect_error(fixture_reserve(fixture_session, seq, 20), PAGED_ERR_PERM,
		     "sequence 0.1 of pool llama belongs to session 2");
	expect_ok(core_seq_reserve(core_fixture.core, taker, 1, &item, &core_error));
}

Test(core_tickets, a_given_sequence_is_refused_to_everybody)
{
	static const char text[] = "sequence 0.1 of pool llama was given away";
	struct seq_fork fork = { .parent = seq, .n_tokens = 4 };
	struct core_publish publish = { .seq = seq };
	uint32_t n_published;
	paged_seq_id child;

	expect_ok(give());
	expect_error(fixture_reserve(fixture_session, seq, 4), PAGED_ERR_PERM, text);
	expect_error(fixture_truncate(fixture_session, seq, 4), PAGED_ERR_PERM, text);
	expect_error(fixture_erase(fixture_session, seq), PAGED_ERR_PERM, text);
	expect_error(fixture_erase(taker, seq), PAGED_ERR_PERM, text);
	expect_error(core_seq_fork(core_fixture.core, fixture_session, 1, &fork, &child, &core_error), PAGED_ERR_PERM,
		     text);
	expect_error(core_seq_publish(core_fixture.core, fixture_session, 1, &publish, &n_published, fixture_ends,
				      &core_error),
		     PAGED_ERR_PERM, text);
	expect_error(give(), PAGED_ERR_INVALID, "session 1: there is a ticket with these bytes");
	expect_owner(fixture_session, REGION_SLOT_FROZEN);
}

Test(core_tickets, a_ticket_is_used_once)
{
	expect_ok(give());
	expect_ok(adopt());
	expect_error(adopt(), PAGED_ERR_NOENT, unknown_text);
	expect_error(core_ticket_cancel(core_fixture.core, fixture_session, ticket, &core_error), PAGED_ERR_NOENT,
		     unknown_text);
}

Test(core_tickets, all_tickets_that_do_not_work_have_one_error)
{
	expect_error(adopt(), PAGED_ERR_NOENT, unknown_text);
	expect_ok(give());
	expect_error(core_seq_adopt(core_fixture.core, taker, 7, 0, other_ticket, 4, adopted, &n_adopted, &core_error),
		     PAGED_ERR_NOENT, unknown_text);
	expect_error(core_seq_adopt(core_fixture.core, taker, 7, 1, ticket, 4, adopted, &n_adopted, &core_error),
		     PAGED_ERR_NOENT, unknown_text);
	core_set_now(core_fixture.core, 1500);
	expect_error(adopt(), PAGED_ERR_NOENT, unknown_text);
	expect_error(core_ticket_cancel(core_fixture.core, fixture_session, ticket, &core_error), PAGED_ERR_NOENT,
		     unknown_text);
}

Test(core_tickets, expiry_returns_the_sequence)
{
	const struct region_view *view = core_pool_view(core_fixture.core, 0);
	struct region_snapshot snapshot;

	expect_ok(give());
	cr_assert_eq(region_snapshot_begin(view, seq, &snapshot), REGION_READ);
	cr_assert_eq(core_next_deadline(core_fixture.core), 1500);
	core_set_now(core_fixture.core, 1499);
	cr_assert_not(core_tick(core_fixture.core, 100));
	expect_owner(fixture_session, REGION_SLOT_FROZEN);
	core_set_now(core_fixture.core, 1500);
	cr_assert_not(core_tick(core_fixture.core, 100));
	cr_assert_not(core_reap_needed(core_fixture.core));
	cr_assert_eq(core_next_deadline(core_fixture.core), CORE_NO_DEADLINE);
	expect_owner(fixture_session, 0);
	cr_assert(region_snapshot_valid(view, seq, &snapshot), "what was planned stays valid");
	expect_ok(fixture_erase(fixture_session, seq));
}

/* The time 0 is a deadline like any other. */
Test(core_tickets_of_time_0, first_deadline, .init = core_fixture_setup, .fini = core_fixture_teardown)
{
	static const uint32_t timeouts_ms[2] = { 0, 500 };

	cr_assert_eq(core_next_deadline(core_fixture.core), CORE_NO_DEADLINE);
	for (uint32_t i = 0; i < 2; i++) {
		struct paged_seq_item item = { .seq = fixture_create(fixture_session, 0) };

		expect_ok(core_seq_give(core_fixture.core, fixture_session, 1, &item,
					&(struct seq_give){ .timeout_ms = timeouts_ms[i] },
					i == 0 ? ticket : other_ticket, &core_error));
		cr_assert_eq(core_next_deadline(core_fixture.core), 0);
	}
	cr_assert_not(core_tick(core_fixture.core, 100));
	cr_assert_eq(core_next_deadline(core_fixture.core), 500);
}

Test(core_tickets, expiry_of_many_tickets_takes_steps)
{
	uint8_t bytes[PAGED_TICKET_SIZE] = { 0 };

	for (uint8_t i = 0; i < 4; i++) {
		struct paged_seq_item item = { .seq = fixture_create(fixture_session, 0) };

		bytes[9] = i;
		expect_ok(core_seq_give(core_fixture.core, fixture_session, 1, &item,
					&(struct seq_give){ .timeout_ms = 5 }, bytes, &core_error));
	}
	core_set_now(core_fixture.core, 2000);
	cr_assert(core_tick(core_fixture.core, 3));
	cr_assert_eq(core_next_deadline(core_fixture.core), 1005);
	cr_assert_not(core_tick(core_fixture.core, 3));
	cr_assert_eq(core_next_deadline(core_fixture.core), CORE_NO_DEADLINE);
	expect_accounting();
}

/* Tickets that expire at a time, between others, which keep their order. */
Test(core_tickets, expiry_keeps_the_other_tickets)
{
	struct paged_ticket_entry entry;
	uint8_t bytes[PAGED_TICKET_SIZE] = { 0 };
	paged_seq_id seqs[4];

	for (uint8_t i = 0; i < 4; i++) {
		struct paged_seq_item item = { .seq = seqs[i] = fixture_create(fixture_session, 0) };

		bytes[0] = i;
		expect_ok(core_seq_give(core_fixture.core, fixture_session, 1, &item,
					&(struct seq_give){ .timeout_ms = i % 2 == 0 ? 5 : 100 - i }, bytes,
					&core_error));
	}
	core_set_now(core_fixture.core, 1005);
	cr_assert_not(core_tick(core_fixture.core, 100));
	cr_assert_eq(core_next_deadline(core_fixture.core), 1097);
	cr_assert(core_ticket_next(core_fixture.core, 0, &entry) && entry.number == 2);
	cr_assert(core_ticket_next(core_fixture.core, 2, &entry) && entry.number == 4);
	cr_assert_not(core_ticket_next(core_fixture.core, 4, &entry));
	expect_ok(fixture_erase(fixture_session, seqs[0]));
	expect_ok(fixture_erase(fixture_session, seqs[2]));
	bytes[0] = 1;
	expect_ok(core_seq_adopt(core_fixture.core, taker, 7, 0, bytes, 4, adopted, &n_adopted, &core_error));
	cr_assert_eq(adopted[0].seq, seqs[1]);
	expect_accounting();
}

/* The taker could not plan it. */
Test(core_tickets, a_length_before_the_first_page)
{
	struct paged_seq_item item = { .seq = seq, .n_tokens = 8 };

	expect_ok(core_seq_trim(core_fixture.core, fixture_session, 1, &item, &core_error));
	item.n_tokens = 7;
	expect_error(
		core_seq_give(core_fixture.core, fixture_session, 1, &item, &(struct seq_give){ .timeout_ms = 9 },
			      ticket, &core_error),
		PAGED_ERR_INVALID,
		"sequence 0.1 of pool llama has given back the pages of its first 8 tokens, it cannot be given with "
		"7");
	expect_owner(fixture_session, 0);
	item.n_tokens = 8;
	expect_ok(core_seq_give(core_fixture.core, fixture_session, 1, &item, &(struct seq_give){ .timeout_ms = 9 },
				ticket, &core_error));
}

Test(core_tickets, the_giver_cancels)
{
	expect_ok(give());
	expect_error(core_ticket_cancel(core_fixture.core, taker, ticket, &core_error), PAGED_ERR_PERM,
		     "the sequences of the ticket were given by session 1");
	expect_ok(core_ticket_cancel(core_fixture.core, fixture_session, ticket, &core_error));
	expect_owner(fixture_session, 0);
	expect_ok(give());
	expect_ok(adopt_n(fixture_session, 4));
	expect_owner(fixture_session, 0);
}

Test(core_tickets, a_ticket_names_its_taker)
{
	expect_ok(give_with(&(struct seq_give){ .timeout_ms = 9, .flags = PAGED_GIVE_SESSION, .session = taker }));
	expect_error(adopt_n(fixture_session, 4), PAGED_ERR_PERM, "the ticket is for session 2, this is session 1");
	expect_error(adopt_n(taker, 0), PAGED_ERR_INVALID, "the ticket has 1 sequences, there is room for 0");
	expect_ok(adopt());
	expect_error(fixture_erase(fixture_session, seq), PAGED_ERR_PERM,
		     "sequence 0.1 of pool llama belongs to session 2");
}

Test(core_tickets, a_ticket_names_its_user)
{
	expect_ok(give_with(&(struct seq_give){ .timeout_ms = 9, .flags = PAGED_GIVE_UID, .uid = 8 }));
	expect_error(adopt(), PAGED_ERR_PERM, "the ticket is for user id 8, this process has user id 7");
	expect_ok(core_seq_adopt(core_fixture.core, taker, 8, 0, ticket, 4, adopted, &n_adopted, &core_error));
}

Test(core_tickets, refused_gives)
{
	struct paged_seq_item items[2] = { { .seq = seq, .n_tokens = 13 },
					   { .seq = fixture_create(fixture_session, 1) } };
	const struct seq_give defaults = { .timeout_ms = 9 };
	struct core *core = core_fixture.core;

	expect_error(core_seq_give(core, fixture_session, 1, items, &defaults, ticket, &core_error), PAGED_ERR_CAPACITY,
		     "sequence 0.1 of pool llama has room for 12 tokens, cannot be given with 13");
	items[0].n_tokens = 12;
	expect_error(core_seq_give(core, fixture_session, 2, items, &defaults, ticket, &core_error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool draft is given together with sequences of pool llama");
	items[1] = items[0];
	expect_error(core_seq_give(core, fixture_session, 2, items, &defaults, ticket, &core_error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama is named twice");
	items[0].n_ahead = 3;
	expect_error(core_seq_give(core, fixture_session, 1, items, &defaults, ticket, &core_error), PAGED_ERR_INVALID,
		     "sequence 0.1 of pool llama is given, but n_ahead is 3");
	expect_error(core_seq_give(core, taker, 1, items, &defaults, ticket, &core_error), PAGED_ERR_PERM,
		     "sequence 0.1 of pool llama belongs to session 1");
	expect_error(core_seq_give(core, fixture_session, 0, items, &defaults, ticket, &core_error), PAGED_ERR_INVALID,
		     "the request names no sequence");
	expect_error(give_with(&(struct seq_give){ .flags = 4 }), PAGED_ERR_INVALID,
		     "flags 0x4: the flags of a give are 0x3");
	expect_error(give_with(&(struct seq_give){ .flags = PAGED_GIVE_SESSION, .session = 9 }), PAGED_ERR_NOENT,
		     "sequences are given to a session that cannot adopt: there is no session 9");
	core_member_leave(core, taker_member);
	expect_error(give_with(&(struct seq_give){ .flags = PAGED_GIVE_SESSION, .session = taker }), PAGED_ERR_NOENT,
		     "sequences are given to a session that cannot adopt: session 2 has ended");
	expect_owner(fixture_session, 0);
}

Test(core_tickets, a_session_has_a_limit_of_tickets)
{
	uint8_t bytes[PAGED_TICKET_SIZE] = { 0 };
	struct core_fixture fixture;
	uint32_t session, member, pool;

	core_fixture_open(&fixture);
	pool = core_fixture_add_pool(&fixture, "large", 8, 4, PAGED_MAX_TICKETS + 1, 8);
	expect_ok(core_session_open(fixture.core, &session, &member, &core_error));
	for (uint32_t i = 0; i <= PAGED_MAX_TICKETS; i++) {
		struct paged_seq_item item = { 0 };
		enum paged_status status;

		expect_ok(core_seq_create(fixture.core, session, 1, &(struct seq_spec){ .pool = pool, .tag = "" },
					  &item.seq, &core_error));
		memcpy(bytes, &i, sizeof(i));
		status = core_seq_give(fixture.core, session, 1, &item, &(struct seq_give){ .timeout_ms = 9 }, bytes,
				       &core_error);
		cr_assert_eq(status, i < PAGED_MAX_TICKETS ? PAGED_OK : PAGED_ERR_LIMIT);
	}
	cr_assert_str_eq(core_error.text, "session 1 has 1024 tickets, the most that a session may have");
	core_fixture_close(&fixture);
}

/* The giver has died; its process may still run. */
Test(core_tickets, a_ticket_outlives_its_session)
{
	struct paged_ticket_entry entry;

	expect_ok(give());
	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	cr_assert_not(core_reap(core_fixture.core, 0));
	core_member_leave(core_fixture.core, fixture_member);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_owner(REGION_OWNER_TICKET, REGION_SLOT_FROZEN);
	cr_assert(core_ticket_next(core_fixture.core, 0, &entry));
	cr_assert_eq(entry.ended, 1);
	cr_assert_eq(entry.session, fixture_session);
	cr_assert_eq(entry.n_pages, 3);
	cr_assert_eq(core_n_sessions(core_fixture.core), 2);
	expect_ok(adopt());
	expect_owner(taker, 0);
	cr_assert_eq(core_n_sessions(core_fixture.core), 1);
	core_member_leave(core_fixture.core, taker_member);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 12, 0, 0);
}

Test(core_tickets, an_expired_ticket_of_a_gone_session_frees_its_pages)
{
	expect_ok(give());
	core_member_leave(core_fixture.core, fixture_member);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 9, 3, 0);
	core_set_now(core_fixture.core, 1500);
	core_tick(core_fixture.core, 100);
	cr_assert(core_reap_needed(core_fixture.core));
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 12, 0, 0);
	cr_assert_eq(core_n_sessions(core_fixture.core), 1);
}

/* An administrator need not wait for the tickets of a session that has ended. */
Test(core_tickets, tickets_of_an_ended_session_are_revoked)
{
	expect_ok(give());
	cr_assert_eq(core_tickets_revoke(core_fixture.core, fixture_session), 0);
	cr_assert_eq(core_tickets_revoke(core_fixture.core, taker), 0);
	core_member_leave(core_fixture.core, fixture_member);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_owner(REGION_OWNER_TICKET, REGION_SLOT_FROZEN);
	cr_assert_eq(core_tickets_revoke(core_fixture.core, fixture_session), 1);
	expect_error(adopt(), PAGED_ERR_NOENT, unknown_text);
	cr_assert_not(core_tick(core_fixture.core, 100));
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 12, 0, 0);
	cr_assert_eq(core_tickets_revoke(core_fixture.core, fixture_session), 0);
}

Test(core_tickets, an_expired_ticket_of_an_ended_session_is_quarantined_while_its_process_lives)
{
	expect_ok(give());
	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	core_set_now(core_fixture.core, 1500);
	core_tick(core_fixture.core, 100);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 9, 0, 3);
	core_member_leave(core_fixture.core, fixture_member);
	cr_assert_not(core_reap(core_fixture.core, 0));
	expect_counts(0, 12, 0, 0);
}

/* GMS adopt_without_free_window: a reload takes over while neither pages nor slots are free. */
Test(core_tickets, adopting_needs_no_free_page_and_no_free_slot)
{
	paged_seq_id fill;

	for (uint32_t i = 1; i < CORE_FIXTURE_N_SLOTS; i++)
		fill = fixture_create(fixture_session, 0);
	expect_ok(fixture_reserve(fixture_session, fill, 36));
	expect_counts(0, 0, 12, 0);
	expect_ok(give());
	expect_ok(adopt());
	expect_owner(taker, 0);
	expect_counts(0, 0, 12, 0);
}
