/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: limits, what counts against them, and sequences that change their tenant. */
#include <string.h>

#include "core/core_internal.h"
#include "tests/core/sharing_fixture.h"

static uint32_t research, sales, research_session, sales_session;

/* The id of the first member of the session is *member. */
static uint32_t
open_session_of(uint32_t tenant, uint32_t *member)
{
	uint32_t session;

	expect_ok(core_session_open(core_fixture.core, &session, member, &core_error));
	core_session_tenant(core_fixture.core, session, tenant);
	return session;
}

static uint32_t
open_session(uint32_t tenant)
{
	return open_session_of(tenant, &(uint32_t){ 0 });
}

static void
tenants_setup(void)
{
	sharing_setup();
	expect_ok(core_tenant_add(core_fixture.core, "research", &research, &core_error));
	expect_ok(core_tenant_add(core_fixture.core, "sales", &sales, &core_error));
	research_session = open_session(research);
	sales_session = open_session(sales);
}

TestSuite(core_tenants, .init = tenants_setup, .fini = core_fixture_teardown);

/* Limits the pages of pool "llama". */
static void
limit_pages(uint32_t tenant, uint32_t n_pages)
{
	core_tenant_limit_pages(core_fixture.core, tenant, 0, n_pages);
}

static void
limit_sequences(uint32_t tenant, uint32_t n_sequences)
{
	struct core_tenant_pool_limits limits = CORE_POOL_UNLIMITED;

	limits.n_sequences = n_sequences;
	core_tenant_limit_pool(core_fixture.core, tenant, 0, &limits);
}

/* Pages of pool "llama" that a tenant is charged; the recount of all charges agrees. */
static void
expect_charged(uint32_t tenant, uint32_t expected)
{
	uint32_t position = (tenant - 1) * core_n_pools(core_fixture.core);
	struct paged_quota_entry entry;

	cr_assert(core_tenant_next(core_fixture.core, &position, &entry));
	cr_assert_eq(entry.pool, 0);
	cr_assert_eq(entry.n_charged, expected, "%s is charged %u", entry.tenant, entry.n_charged);
	expect_accounting();
}

Test(core_tenants, limit_of_each_request)
{
	struct seq_spec spec = { .n_tokens = 40, .tag = "" };
	paged_seq_id seq, child;

	limit_pages(research, 9);
	expect_error(core_seq_create(core_fixture.core, research_session, 1, &spec, &seq, &core_error), PAGED_ERR_QUOTA,
		     "tenant research, pool llama: 10 pages requested, 0 charged, limit 9: ask for less, or raise the "
		     "limit");
	seq = fixture_create(research_session, 0);
	expect_ok(fixture_reserve(research_session, seq, 34));
	expect_charged(research, 9);
	expect_error(
		fixture_reserve(research_session, seq, 37), PAGED_ERR_QUOTA,
		"tenant research, pool llama: 1 pages requested, 9 charged, limit 9: free pages of its sequences, or "
		"raise the limit");
	expect_refused(sharing_try_fork(research_session, seq, 5, &child), PAGED_ERR_QUOTA);
	/* The shared pages of a child are charged once. */
	child = sharing_fork(research_session, seq, 8);
	expect_charged(research, 9);
	expect_ok(fixture_erase(research_session, seq));
	expect_charged(research, 2);
	/* Another tenant and sessions without one are not affected. */
	expect_ok(fixture_reserve(sales_session, fixture_create(sales_session, 0), 12));
	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, 0), 12));
	expect_charged(sales, 3);
	expect_charged(research, 2);
}

/* A reserve is never refused for what it asks ahead. */
Test(core_tenants, ahead_is_cut_to_the_limit)
{
	struct paged_seq_item item = { .n_tokens = 4, .n_ahead = 36 };
	uint32_t pages[CORE_FIXTURE_N_PAGES];

	limit_pages(research, 3);
	item.seq = fixture_create(research_session, 0);
	expect_ok(core_seq_reserve(core_fixture.core, research_session, 1, &item, &core_error));
	cr_assert_eq(core_fixture_page_table(&core_fixture, 0, item.seq, pages), 3);
	expect_charged(research, 3);
}

/* A page that two tenants share is charged to both; cached, it is charged to none. */
Test(core_tenants, shared_pages)
{
	paged_seq_id first = sharing_write(research_session, 0, "aaaabbbbcccc", NULL), second, third;
	struct sharing_found found;

	expect_charged(research, 3);
	limit_pages(sales, 2);
	found = sharing_find(0, "aaaabbbbcccc", NULL);
	expect_refused(sharing_try_start(sales_session, 0, &found, 0, &second), PAGED_ERR_QUOTA);
	limit_pages(sales, 3);
	second = sharing_start(sales_session, 0, "aaaabbbbcccc", NULL, 0);
	expect_charged(sales, 3);
	expect_charged(research, 3);
	/* What is charged already is free to share again, and by a session without a tenant. */
	third = sharing_start(sales_session, 0, "aaaabbbbcccc", NULL, 0);
	sharing_start(fixture_session, 0, "aaaabbbb", NULL, 0);
	expect_charged(sales, 3);
	expect_ok(fixture_erase(sales_session, second));
	expect_charged(sales, 3);
	expect_ok(fixture_erase(research_session, first));
	expect_charged(research, 0);
	expect_ok(fixture_erase(sales_session, third));
	expect_charged(sales, 0);
}

/* Held pages are charged as shared ones are, and are free again for the tenant when the hold ends. */
Test(core_tenants, holds)
{
	const struct region_view *view = core_pool_view(core_fixture.core, 0);
	paged_seq_id seq = sharing_write(sales_session, 0, "aaaabbbbcccc", NULL), hold, again, empty;
	uint32_t pages[3];
	uint64_t serials[3];

	for (uint32_t i = 0; i < 3; i++) {
		pages[i] = i;
		serials[i] = atomic_load(&region_node(view, i)->serial);
	}
	limit_pages(research, 2);
	expect_error(core_pages_hold(core_fixture.core, research_session, 0, 3, pages, serials, &hold, &core_error),
		     PAGED_ERR_QUOTA,
		     "tenant research, pool llama: 3 pages requested, 0 charged, limit 2: ask for less, or raise the "
		     "limit");
	expect_charged(research, 0);
	expect_ok(core_pages_hold(core_fixture.core, research_session, 0, 2, pages, serials, &hold, &core_error));
	expect_ok(core_pages_hold(core_fixture.core, research_session, 0, 1, pages, serials, &again, &core_error));
	expect_charged(research, 2);
	empty = fixture_create(research_session, 0);
	expect_refused(fixture_reserve(research_session, empty, 4), PAGED_ERR_QUOTA);
	/* The hold keeps them when their writer has gone. */
	expect_ok(fixture_erase(sales_session, seq));
	expect_charged(sales, 0);
	expect_ok(fixture_erase(research_session, hold));
	expect_charged(research, 1);
	expect_ok(fixture_erase(research_session, again));
	expect_charged(research, 0);
}

/* An ended session's pages are charged until they are free, also in quarantine; those of several sessions add up. */
Test(core_tenants, end_of_a_session)
{
	uint32_t members[2], first = open_session_of(research, &members[0]);
	uint32_t session = open_session_of(research, &members[1]);
	paged_seq_id seq;

	limit_pages(research, 8);
	expect_ok(fixture_reserve(first, fixture_create(first, 0), 20));
	expect_ok(core_session_end(core_fixture.core, first, &core_error));
	cr_assert(core_reap(core_fixture.core, 2));
	expect_charged(research, 5);
	core_reap(core_fixture.core, 0);
	expect_charged(research, 5);
	expect_counts(0, CORE_FIXTURE_N_PAGES - 5, 0, 5);
	seq = fixture_create(session, 0);
	expect_error(fixture_reserve(session, seq, 16), PAGED_ERR_QUOTA,
		     "tenant research, pool llama: 4 pages requested, 5 charged (5 in quarantine, until processes of "
		     "ended sessions end), limit 8: free pages of its sequences, or raise the limit");
	expect_ok(fixture_reserve(session, seq, 12));
	expect_ok(core_session_end(core_fixture.core, session, &core_error));
	core_reap(core_fixture.core, 0);
	expect_charged(research, 8);
	/* The first member of each session leaves. */
	core_member_leave(core_fixture.core, members[0]);
	core_reap(core_fixture.core, 3);
	expect_charged(research, 5);
	core_member_leave(core_fixture.core, members[1]);
	core_reap(core_fixture.core, 0);
	expect_charged(research, 0);
}

/* Gives n sequences; the other session adopts them, which is expected to have this status. */
static void
hand_over(uint32_t giver, uint32_t taker, uint32_t n, const struct paged_seq_item *items, enum paged_status expected)
{
	const struct seq_give give = { .timeout_ms = 1000 };
	uint8_t ticket[PAGED_TICKET_SIZE] = { 1 };
	struct paged_seq_item back[2];
	uint32_t n_back;

	expect_ok(core_seq_give(core_fixture.core, giver, n, items, &give, ticket, &core_error));
	cr_assert_eq(core_seq_adopt(core_fixture.core, taker, 0, 0, ticket, 2, back, &n_back, &core_error), expected);
	expect_accounting();
	if (expected != PAGED_OK)
		expect_ok(core_ticket_cancel(core_fixture.core, giver, ticket, &core_error));
}

Test(core_tenants, adoption)
{
	paged_seq_id seq = sharing_write(research_session, 0, "aaaabbbbcccc", NULL), child;
	struct paged_seq_item items[2];

	child = sharing_fork(research_session, seq, 8);
	expect_ok(fixture_reserve(research_session, child, 16));
	sharing_start(fixture_session, 0, "aaaa", NULL, 0);
	expect_charged(research, 5);
	items[0] = (struct paged_seq_item){ .seq = seq };
	items[1] = (struct paged_seq_item){ .seq = child };
	limit_pages(sales, 4);
	hand_over(research_session, sales_session, 2, items, PAGED_ERR_QUOTA);
	expect_charged(sales, 0);
	expect_charged(research, 5);
	hand_over(research_session, sales_session, 1, items, PAGED_OK);
	expect_charged(sales, 3);
	expect_charged(research, 4);
	limit_pages(sales, 5);
	hand_over(research_session, sales_session, 1, &items[1], PAGED_OK);
	expect_charged(sales, 5);
	expect_charged(research, 0);
	hand_over(sales_session, fixture_session, 2, items, PAGED_OK);
	expect_charged(sales, 0);
}

/* The session erases a sequence of 100 pages, which takes ten steps. */
static void
begin_long_erase(uint32_t session)
{
	paged_seq_id seq = fixture_create(session, SHARING_WIDE);

	core_set_step(core_fixture.core, CORE_NO_STEP);
	expect_ok(fixture_reserve(session, seq, 100));
	core_set_step(core_fixture.core, 10);
	expect_ok(fixture_erase(session, seq));
	cr_assert(core_session_is_busy(core_fixture.core, session));
}

/* A tenant's long request takes twice its time at most, however many sessions another tenant has. */
Test(core_tenants, steps_of_tenants_take_turns)
{
	struct core_progress progress;
	uint32_t n_steps = 0;

	for (int i = 0; i < 3; i++)
		begin_long_erase(open_session(research));
	begin_long_erase(sales_session);
	do {
		core_step(core_fixture.core, &progress);
		n_steps++;
		expect_accounting();
	} while (!progress.finished || progress.session != sales_session);
	cr_assert_leq(n_steps, 20);
	while (core_step(core_fixture.core, &progress))
		;
	expect_counts(SHARING_WIDE, 400, 0, 0);
}

/* Sequences that were given away count until another tenant adopts them, and those of ended sessions until reaped. */
Test(core_tenants, slots)
{
	const struct seq_give give = { .timeout_ms = 1000 };
	struct paged_seq_item item = { 0 }, back[1];
	uint8_t ticket[PAGED_TICKET_SIZE] = { 1 };
	struct seq_spec spec = { .tag = "" };
	paged_seq_id seq, other;
	uint32_t n;

	limit_sequences(research, 2);
	limit_sequences(sales, 1);
	seq = fixture_create(research_session, 0);
	item.seq = fixture_create(research_session, 0);
	expect_error(
		core_seq_create(core_fixture.core, research_session, 1, &spec, &other, &core_error), PAGED_ERR_QUOTA,
		"tenant research, pool llama: 1 sequences requested, 2 in use, and its share is 2 of 5: end some, or "
		"raise share or sequences");
	expect_refused(sharing_try_fork(research_session, seq, 0, &other), PAGED_ERR_QUOTA);
	expect_ok(core_seq_give(core_fixture.core, research_session, 1, &item, &give, ticket, &core_error));
	expect_refused(core_seq_create(core_fixture.core, research_session, 1, &spec, &other, &core_error),
		       PAGED_ERR_QUOTA);
	other = fixture_create(sales_session, 0);
	expect_refused(core_seq_adopt(core_fixture.core, sales_session, 0, 0, ticket, 1, back, &n, &core_error),
		       PAGED_ERR_QUOTA);
	expect_ok(fixture_erase(sales_session, other));
	expect_ok(core_seq_adopt(core_fixture.core, sales_session, 0, 0, ticket, 1, back, &n, &core_error));
	expect_accounting();
	fixture_create(research_session, 0);
	expect_ok(core_session_end(core_fixture.core, research_session, &core_error));
	n = open_session(research);
	expect_refused(core_seq_create(core_fixture.core, n, 1, &spec, &other, &core_error), PAGED_ERR_QUOTA);
	core_reap(core_fixture.core, 0);
	expect_ok(core_seq_create(core_fixture.core, n, 1, &spec, &other, &core_error));
	expect_accounting();
}

/* The limit is the tenant's, not the session's. */
Test(core_tenants, tickets)
{
	struct core_tenant_limits limits = CORE_UNLIMITED;
	const struct seq_give give = { .timeout_ms = 1000 };
	uint32_t second = open_session(research);
	uint8_t ticket[PAGED_TICKET_SIZE] = { 1 };
	struct paged_seq_item item = { 0 };

	limits.n_tickets = 1;
	core_tenant_limit(core_fixture.core, research, &limits);
	item.seq = fixture_create(research_session, 0);
	expect_ok(core_seq_give(core_fixture.core, research_session, 1, &item, &give, ticket, &core_error));
	item.seq = fixture_create(second, 0);
	ticket[0] = 2;
	expect_error(core_seq_give(core_fixture.core, second, 1, &item, &give, ticket, &core_error), PAGED_ERR_QUOTA,
		     "tenant research: 1 open tickets, and its share is 1: have some adopted or cancelled, or raise "
		     "share");
	core_set_now(core_fixture.core, 1000);
	core_tick(core_fixture.core, 100);
	expect_ok(core_seq_give(core_fixture.core, second, 1, &item, &give, ticket, &core_error));
}

/* A user's tenant exists while it has members or sessions; its number is then another's. */
Test(core_tenants, tenants_of_users)
{
	struct core_tenant_limits limits = CORE_UNLIMITED;
	uint32_t tenant, other, session, member, position = 0;
	struct paged_quota_entry entry;
	bool created;

	limits.n_members = 2;
	limits.n_sessions = 1;
	expect_ok(core_tenant_of_user(core_fixture.core, 1000, &tenant, &created, &core_error));
	cr_assert(created && tenant == 3);
	core_tenant_limit(core_fixture.core, tenant, &limits);
	expect_ok(core_tenant_join(core_fixture.core, tenant, true, &core_error));
	expect_ok(core_tenant_of_user(core_fixture.core, 1000, &other, &created, &core_error));
	cr_assert(!created && other == tenant);
	expect_ok(core_tenant_join(core_fixture.core, tenant, true, &core_error));
	expect_error(core_tenant_join(core_fixture.core, tenant, true, &core_error), PAGED_ERR_LIMIT,
		     "tenant uid 1000: 2 members, and its share is 2: end some, or raise user-share or max-members");
	expect_ok(core_tenant_join(core_fixture.core, tenant, false, &core_error));
	expect_ok(core_tenant_check_sessions(core_fixture.core, tenant, &core_error));
	session = open_session_of(tenant, &member);
	expect_error(
		core_tenant_check_sessions(core_fixture.core, tenant, &core_error), PAGED_ERR_LIMIT,
		"tenant uid 1000: 1 sessions, and its share is 1: close some, or raise user-share or max-sessions; "
		"ended ones count until their processes have ended");
	expect_ok(fixture_reserve(session, fixture_create(session, 0), 8));
	expect_charged(tenant, 2);
	for (int i = 0; i < 3; i++)
		core_tenant_leave(core_fixture.core, tenant);
	expect_charged(tenant, 2);
	core_member_leave(core_fixture.core, member);
	core_reap(core_fixture.core, 0);
	while (core_tenant_next(core_fixture.core, &position, &entry))
		cr_assert(strncmp(entry.tenant, "uid", 3) != 0);
	expect_ok(core_tenant_of_user(core_fixture.core, 1001, &other, &created, &core_error));
	cr_assert(created && other == tenant);
}

static bool
tenant_exists(const char *name)
{
	struct paged_quota_entry entry;
	uint32_t position = 0;

	while (core_tenant_next(core_fixture.core, &position, &entry))
		if (strcmp(entry.tenant, name) == 0)
			return true;
	return false;
}

/* Cached pages name the tenant that has published them: its number is no other user's before they are gone. */
Test(core_tenants, pages_that_a_user_left)
{
	uint32_t tenant, other, session, member;
	bool created;

	expect_ok(core_tenant_of_user(core_fixture.core, 1000, &tenant, &created, &core_error));
	session = open_session_of(tenant, &member);
	sharing_write(session, 0, "aaaabbbb", NULL);
	core_member_leave(core_fixture.core, member);
	core_reap(core_fixture.core, 0);
	expect_charged(tenant, 0);
	cr_assert(tenant_exists("uid 1000"));

	expect_ok(core_tenant_of_user(core_fixture.core, 1001, &other, &created, &core_error));
	cr_assert(created && other != tenant);
	expect_ok(core_tenant_of_user(core_fixture.core, 1000, &other, &created, &core_error));
	cr_assert(!created && other == tenant);
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 1), 1);
	cr_assert(tenant_exists("uid 1000"));
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 1), 1);
	cr_assert_not(tenant_exists("uid 1000"));
	expect_ok(core_tenant_of_user(core_fixture.core, 1002, &other, &created, &core_error));
	cr_assert(created && other == tenant);
	expect_accounting();
}

Test(core_tenants, names)
{
	uint32_t tenant;

	expect_error(core_tenant_add(core_fixture.core, "sales", &tenant, &core_error), PAGED_ERR_INVALID,
		     "tenant sales: the name is already in use");
	expect_error(core_tenant_add(core_fixture.core, "", &tenant, &core_error), PAGED_ERR_INVALID,
		     "a tenant's name has 1 to 63 bytes, not 0");
}
