/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: limits, what counts against them, and sequences that change their tenant. */
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

	core_tenant_limit(core_fixture.core, research, 0, 9);
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

	core_tenant_limit(core_fixture.core, research, 0, 3);
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
	core_tenant_limit(core_fixture.core, sales, 0, 2);
	found = sharing_find(0, "aaaabbbbcccc", NULL);
	expect_refused(sharing_try_start(sales_session, 0, &found, 0, &second), PAGED_ERR_QUOTA);
	core_tenant_limit(core_fixture.core, sales, 0, 3);
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
	core_tenant_limit(core_fixture.core, research, 0, 2);
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

	core_tenant_limit(core_fixture.core, research, 0, 8);
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

Test(core_tenants, move_of_sequences)
{
	paged_seq_id seq = sharing_write(research_session, 0, "aaaabbbbcccc", NULL), child;
	struct core_pool *pool = core_fixture.core->pools[0];
	struct paged_seq_item items[2];

	child = sharing_fork(research_session, seq, 8);
	expect_ok(fixture_reserve(research_session, child, 16));
	sharing_start(fixture_session, 0, "aaaa", NULL, 0);
	expect_charged(research, 5);
	items[0] = (struct paged_seq_item){ .seq = seq };
	items[1] = (struct paged_seq_item){ .seq = child };
	expect_ok(tenant_make_pool(pool, sales, &core_error));
	core_tenant_limit(core_fixture.core, sales, 0, 4);
	expect_refused(tenant_move_sequences(pool, sales, 2, items, &core_error), PAGED_ERR_QUOTA);
	expect_ok(tenant_move_sequences(pool, sales, 1, items, &core_error));
	expect_charged(sales, 3);
	expect_charged(research, 4);
	core_tenant_limit(core_fixture.core, sales, 0, 5);
	expect_ok(tenant_move_sequences(pool, sales, 2, items, &core_error));
	expect_charged(sales, 5);
	expect_charged(research, 0);
	expect_ok(tenant_move_sequences(pool, 0, 2, items, &core_error));
	expect_charged(sales, 0);
}

Test(core_tenants, names)
{
	uint32_t tenant;

	expect_error(core_tenant_add(core_fixture.core, "sales", &tenant, &core_error), PAGED_ERR_INVALID,
		     "tenant sales: the name is already in use");
	expect_error(core_tenant_add(core_fixture.core, "", &tenant, &core_error), PAGED_ERR_INVALID,
		     "a tenant's name has 1 to 63 bytes, not 0");
}
