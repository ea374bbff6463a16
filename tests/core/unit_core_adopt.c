/* SPDX-License-Identifier: Apache-2.0 */
/* An adopt that charges many pages to another tenant, in steps: what others can do meanwhile, and each of its ends. */
#include <string.h>

#include "tests/core/sharing_fixture.h"

enum { STEP = 7, N_FIRST = 150, N_CHILD = 100, N_TRIMMED = 60, N_PAGES = N_FIRST + 60 };

static const uint8_t ticket[PAGED_TICKET_SIZE] = "0123456789abcde";
static const char unknown_text[] = "the ticket is unknown, used or expired";
static uint32_t research, sales, giver, giver_member, taker, taker_member;
static struct paged_seq_item given[3], adopted[3];
static uint32_t n_adopted;

static uint32_t
charged(uint32_t tenant)
{
	uint32_t position = (tenant - 1) * core_n_pools(core_fixture.core) + SHARING_WIDE;
	struct paged_quota_entry entry;

	cr_assert(core_tenant_next(core_fixture.core, &position, &entry));
	cr_assert_eq(entry.pool, SHARING_WIDE);
	return entry.n_charged;
}

static void
open_of(uint32_t tenant, uint32_t *session, uint32_t *member)
{
	expect_ok(core_session_open(core_fixture.core, session, member, &core_error));
	core_session_tenant(core_fixture.core, *session, tenant);
}

/* Three sequences are given: one, a fork of it, and one of whose pages some were given back; N_PAGES pages in all. */
static void
adopt_setup(void)
{
	struct paged_seq_item trim;
	const struct seq_give give = { .timeout_ms = 500 };

	sharing_setup();
	core_set_now(core_fixture.core, 1000);
	expect_ok(core_tenant_add(core_fixture.core, "research", &research, &core_error));
	expect_ok(core_tenant_add(core_fixture.core, "sales", &sales, &core_error));
	open_of(research, &giver, &giver_member);
	open_of(sales, &taker, &taker_member);
	for (int i = 0; i < 3; i += 2)
		given[i].seq = fixture_create(giver, SHARING_WIDE);
	expect_ok(fixture_reserve(giver, given[0].seq, N_FIRST));
	given[1].seq = sharing_fork(giver, given[0].seq, N_CHILD);
	expect_ok(fixture_reserve(giver, given[2].seq, N_TRIMMED + 60));
	trim = (struct paged_seq_item){ .seq = given[2].seq, .n_tokens = N_TRIMMED };
	expect_ok(core_seq_trim(core_fixture.core, giver, 1, &trim, &core_error));
	given[2].n_tokens = N_TRIMMED;
	expect_ok(core_seq_give(core_fixture.core, giver, 3, given, &give, ticket, &core_error));
	cr_assert_eq(charged(research), N_PAGES);
	core_set_step(core_fixture.core, STEP);
}

TestSuite(core_adopt, .init = adopt_setup, .fini = core_fixture_teardown);

static enum paged_status
adopt(uint32_t session)
{
	return core_seq_adopt(core_fixture.core, session, 0, SHARING_WIDE, ticket, 3, adopted, &n_adopted, &core_error);
}

static struct core_progress
step(void)
{
	struct core_progress progress;

	core_step(core_fixture.core, &progress);
	cr_assert_leq(progress.n_worked, STEP);
	expect_accounting();
	return progress;
}

/* Does all steps; returns the last one. */
static struct core_progress
finish(uint32_t session)
{
	struct core_progress progress;

	do
		progress = step();
	while (!progress.finished);
	cr_assert_eq(progress.session, session);
	cr_assert_not(core_step(core_fixture.core, &(struct core_progress){ 0 }));
	return progress;
}

static void
expect_owner(uint32_t owner)
{
	const struct region_view *view = core_pool_view(core_fixture.core, SHARING_WIDE);

	for (int i = 0; i < 3; i++)
		cr_assert_eq(atomic_load(&region_slot(view, PAGED_SEQ_SLOT(given[i].seq))->owner), owner);
	expect_accounting();
}

Test(core_adopt, in_steps)
{
	expect_ok(adopt(taker));
	cr_assert_eq(n_adopted, 3);
	cr_assert_eq(memcmp(adopted, given, sizeof(given)), 0);
	cr_assert(core_session_is_busy(core_fixture.core, taker));
	step();
	expect_owner(giver);
	/* The ticket counts as used, and does not expire. */
	expect_error(adopt(fixture_session), PAGED_ERR_NOENT, unknown_text);
	expect_error(core_ticket_cancel(core_fixture.core, giver, ticket, &core_error), PAGED_ERR_NOENT, unknown_text);
	core_set_now(core_fixture.core, 2000);
	cr_assert_not(core_tick(core_fixture.core, 100));
	cr_assert_eq(core_next_deadline(core_fixture.core), CORE_NO_DEADLINE);
	/* Others go on, with the shared pages too. */
	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, SHARING_WIDE), 5));
	cr_assert_eq(finish(taker).error.status, PAGED_OK);
	expect_owner(taker);
	cr_assert_eq(charged(sales), N_PAGES);
	cr_assert_eq(charged(research), 0);
	cr_assert_not(core_ticket_next(core_fixture.core, 0, &(struct paged_ticket_entry){ 0 }));
	core_set_step(core_fixture.core, CORE_NO_STEP);
	expect_ok(core_session_end(core_fixture.core, taker, &core_error));
	core_member_leave(core_fixture.core, taker_member);
	core_reap(core_fixture.core, 0);
	cr_assert_eq(charged(sales), 0);
}

/* Another session of the tenant takes pages meanwhile, so that the limit is reached at the last sequence. */
Test(core_adopt, goes_back_at_the_limit)
{
	struct core_progress progress;
	uint32_t other, member;
	paged_seq_id seq;

	core_tenant_limit_pages(core_fixture.core, sales, SHARING_WIDE, N_PAGES);
	open_of(sales, &other, &member);
	seq = fixture_create(other, SHARING_WIDE);
	expect_ok(adopt(taker));
	step();
	expect_ok(fixture_reserve(other, seq, 5));
	progress = finish(taker);
	cr_assert_eq(progress.error.status, PAGED_ERR_QUOTA);
	cr_assert_str_eq(progress.error.text,
			 "tenant sales, pool wide: 210 pages requested, 5 charged, limit 210: free "
			 "pages of its sequences, or raise the limit");
	cr_assert_not(core_session_is_busy(core_fixture.core, taker));
	expect_owner(giver);
	cr_assert_eq(charged(sales), 5);
	cr_assert_eq(charged(research), N_PAGES);
	cr_assert_eq(core_next_deadline(core_fixture.core), 1500);
	expect_ok(fixture_erase(other, seq));
	expect_ok(adopt(taker));
	cr_assert_eq(finish(taker).error.status, PAGED_OK);
	expect_owner(taker);
}

Test(core_adopt, goes_back_if_its_session_ends)
{
	expect_ok(adopt(taker));
	for (int i = 0; i < 25; i++)
		step();
	core_member_leave(core_fixture.core, taker_member);
	core_reap(core_fixture.core, 0);
	expect_error(adopt(fixture_session), PAGED_ERR_NOENT, unknown_text);
	cr_assert_eq(finish(0).finished, true);
	cr_assert_eq(charged(sales), 0);
	cr_assert_eq(charged(research), N_PAGES);
	expect_owner(giver);
	core_set_step(core_fixture.core, CORE_NO_STEP);
	expect_ok(adopt(fixture_session));
	expect_owner(fixture_session);
}

Test(core_adopt, goes_back_if_a_session_without_a_tenant_ends)
{
	expect_ok(adopt(fixture_session));
	for (int i = 0; i < 22; i++)
		step();
	cr_assert_lt(charged(research), N_PAGES);
	core_member_leave(core_fixture.core, fixture_member);
	finish(0);
	cr_assert_eq(charged(research), N_PAGES);
	expect_owner(giver);
}

/* The tenant of a user is removed with its last session, but not before its charges are. */
Test(core_adopt, goes_back_if_its_user_leaves)
{
	uint32_t user, session, member, again;
	bool created;

	expect_ok(core_tenant_of_user(core_fixture.core, 1000, &user, &created, &core_error));
	open_of(user, &session, &member);
	expect_ok(adopt(session));
	step();
	core_member_leave(core_fixture.core, member);
	core_reap(core_fixture.core, 0);
	expect_ok(core_tenant_of_user(core_fixture.core, 1000, &again, &created, &core_error));
	cr_assert_not(created);
	finish(0);
	expect_ok(core_tenant_of_user(core_fixture.core, 1000, &again, &created, &core_error));
	cr_assert(created);
	expect_owner(giver);
}

/* An expired ticket of an ended session ends its sequences, once the adopt has gone back. */
Test(core_adopt, of_an_ended_giver)
{
	expect_ok(adopt(taker));
	step();
	core_member_leave(core_fixture.core, giver_member);
	core_reap(core_fixture.core, 0);
	expect_owner(REGION_OWNER_TICKET);
	cr_assert_eq(core_tickets_revoke(core_fixture.core, giver), 1);
	cr_assert_not(core_tick(core_fixture.core, 100));
	core_member_leave(core_fixture.core, taker_member);
	finish(0);
	core_tick(core_fixture.core, 100);
	core_reap(core_fixture.core, 0);
	expect_owner(0);
	cr_assert_eq(charged(research), 0);
}
