/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of page tables: counted, limited, given back; at random, against what the kernel has populated. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <unistd.h>

#include "tests/core/core_fixture.h"
#include "tests/support/random.h"

#define N_PAGES (1u << 17)
#define N_SLOTS 24u
#define LONGEST (N_PAGES - 100) /* entries: a page table begins and ends inside a system page */

static size_t system_page;
static uint64_t n_released; /* bytes */
static bool refuse;

static bool
count_release(void *memory, size_t size)
{
	if (refuse)
		return false;
	cr_assert((uintptr_t)memory % system_page == 0 && size % system_page == 0 && size > 0);
	n_released += size;
	return region_release(memory, size);
}

static void
open_pool(uint32_t max_length, uint64_t limit)
{
	system_page = (size_t)sysconf(_SC_PAGESIZE);
	core_fixture_open(&core_fixture);
	core_fixture_add(&core_fixture, &(struct core_pool_params){
						.name = "llama",
						.n_pages = N_PAGES,
						.page_size = 1,
						.n_slots = N_SLOTS,
						.max_length = max_length,
						.publish = true,
						.table_memory = limit,
						.release = count_release,
					});
	expect_ok(core_session_open(core_fixture.core, &fixture_session, &fixture_member, &core_error));
}

static void
close_pool(void)
{
	core_fixture_close(&core_fixture);
}

/* Bytes of the page tables that the kernel has populated. */
static uint64_t
populated(void)
{
	const struct region_view *view = core_pool_view(core_fixture.core, 0);
	uint64_t n = 0, size = view->nodes_offset - view->tables_offset;
	unsigned char *resident = calloc(size / system_page + 1, 1);

	cr_assert(mincore((void *)(uintptr_t)(view->base + view->tables_offset), size, resident) == 0);
	for (uint64_t i = 0; i < size / system_page; i++)
		n += resident[i] & 1 ? system_page : 0;
	free(resident);
	return n;
}

static struct paged_pool_entry
status(void)
{
	struct paged_pool_entry entry;

	core_pool_status(core_fixture.core, 0, &entry);
	return entry;
}

/* The counts are right, the kernel has populated at most that much, and the limit holds. */
static void
expect_memory(void)
{
	struct paged_pool_entry entry = status();

	expect_accounting();
	cr_assert_leq(entry.table_used, entry.table_populated);
	cr_assert_leq(entry.table_populated, entry.table_limit);
	cr_assert_leq(populated(), entry.table_populated);
}

static void
tick(void)
{
	while (core_tick(core_fixture.core, 512))
		;
	cr_assert_not(core_tick_needed(core_fixture.core));
}

static enum paged_status
fork_of(paged_seq_id parent, uint32_t n_tokens, paged_seq_id *child)
{
	const struct seq_fork fork = { .parent = parent, .n_tokens = n_tokens };

	return core_seq_fork(core_fixture.core, fixture_session, 1, &fork, child, &core_error);
}

Test(core_table_memory, forks_are_limited_and_given_back, .fini = close_pool)
{
	const uint64_t table = 512 << 10; /* nearly, of one sequence */
	paged_seq_id parent, children[N_SLOTS];
	uint32_t n = 0;

	open_pool(LONGEST, 4 << 20);
	parent = fixture_create(fixture_session, 0);
	expect_ok(fixture_reserve(fixture_session, parent, LONGEST));
	while (fork_of(parent, LONGEST, &children[n]) == PAGED_OK)
		n++;
	expect_error(fork_of(parent, LONGEST, &children[n]), PAGED_ERR_FULL,
		     "pool llama: page tables of 528384 bytes requested, 3694592 of 4194304 used (table-memory): end "
		     "sequences or forks");
	cr_assert_eq(n, 6);
	expect_memory();
	cr_assert_geq(populated(), 7 * table - system_page);
	/* Others go on: short sequences, and pages. */
	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, 0), 50));
	for (uint32_t i = 0; i < n; i++)
		expect_ok(fixture_erase(fixture_session, children[i]));
	cr_assert(core_tick_needed(core_fixture.core));
	tick();
	expect_memory();
	cr_assert_leq(populated(), table + 4 * system_page);
	expect_ok(fork_of(parent, LONGEST, &children[0]));
}

Test(core_table_memory, what_is_spare_makes_room_before_a_request_is_refused, .fini = close_pool)
{
	paged_seq_id parent, child;

	open_pool(LONGEST, 2 << 20);
	parent = fixture_create(fixture_session, 0);
	expect_ok(fixture_reserve(fixture_session, parent, LONGEST));
	/* Never a tick: what ended sequences leave is released when others need it. */
	for (uint32_t i = 0; i < 50; i++) {
		paged_seq_id small[2];

		expect_ok(fork_of(parent, LONGEST - 64 * i, &child));
		expect_ok(fixture_create_n(fixture_session, 0, 2, small));
		expect_ok(fixture_reserve(fixture_session, small[0], 1));
		expect_ok(fixture_erase(fixture_session, child));
		expect_ok(fixture_erase(fixture_session, small[1]));
		expect_ok(fork_of(parent, 8192, &child));
		expect_ok(fixture_erase(fixture_session, child));
		expect_ok(fixture_erase(fixture_session, small[0]));
		expect_memory();
	}
}

Test(core_table_memory, small_remainders_are_kept, .fini = close_pool)
{
	paged_seq_id seq;
	uint64_t before;

	open_pool(LONGEST, 0);
	seq = fixture_create(fixture_session, 0);
	expect_ok(fixture_reserve(fixture_session, seq, 16000));
	expect_ok(fixture_truncate(fixture_session, seq, 10));
	cr_assert_not(core_tick_needed(core_fixture.core));
	expect_ok(fixture_reserve(fixture_session, seq, 40000));
	before = n_released;
	expect_ok(fixture_truncate(fixture_session, seq, 10000));
	tick();
	cr_assert_gt(n_released, before);
	expect_memory();
	expect_ok(fixture_reserve(fixture_session, seq, 40000));
	expect_memory();
}

Test(core_table_memory, what_cannot_be_released_stays_counted, .fini = close_pool)
{
	paged_seq_id seq;

	open_pool(LONGEST, 0);
	seq = fixture_create(fixture_session, 0);
	expect_ok(fixture_reserve(fixture_session, seq, LONGEST));
	expect_ok(fixture_erase(fixture_session, seq));
	refuse = true;
	tick();
	refuse = false;
	expect_memory();
	cr_assert_eq(status().table_used, 0);
	cr_assert_geq(status().table_populated, (uint64_t)LONGEST * 4);
}

Test(core_table_memory, page_tables_of_a_line_cost_a_line, .fini = close_pool)
{
	paged_seq_id ids[N_SLOTS];

	open_pool(16, 64 * 10);
	expect_ok(fixture_create_n(fixture_session, 0, 10, ids));
	cr_assert_eq(status().table_used, 640);
	expect_error(fixture_create_n(fixture_session, 0, 1, &ids[10]), PAGED_ERR_FULL,
		     "pool llama: page tables of 64 bytes requested, 640 of 640 used (table-memory): end sequences or "
		     "forks");
	expect_ok(fixture_erase(fixture_session, ids[3]));
	expect_ok(fixture_create_n(fixture_session, 0, 1, &ids[3]));
}

Test(core_table_memory, the_default_limit_is_the_worst_case_or_more_than_enough)
{
	struct core_pool_params params = {
		.name = "a", .n_pages = 1000, .page_size = 16, .n_slots = 100, .max_length = 16000
	};
	struct core_memory memory;

	core_pool_memory(&params, &memory);
	cr_assert_eq(memory.tables_default, memory.tables_most);
	cr_assert_geq(memory.tables_most, 100 * 4000);
	cr_assert(memory.tenant == 4000 && memory.cache_shares == 0);
	params.n_slots = 1u << 20;
	core_pool_memory(&params, &memory);
	cr_assert_eq(memory.tables_default, 64 << 20);
	params.n_pages = 1u << 20;
	core_pool_memory(&params, &memory);
	cr_assert_eq(memory.tables_default, 256ull << 20);
	params.max_length = UINT32_MAX / 2;
	core_pool_memory(&params, &memory);
	cr_assert_eq(memory.tables_default, memory.tables_longest);
}

Test(core_table_memory, tenants_have_a_part, .fini = close_pool)
{
	struct core_tenant_pool_limits limits = CORE_POOL_UNLIMITED;
	uint32_t tenant, session, member;
	paged_seq_id parent, child, other;

	open_pool(LONGEST, 4 << 20);
	expect_ok(core_tenant_add(core_fixture.core, "research", &tenant, &core_error));
	limits.table_bytes = 1200 << 10;
	core_tenant_limit_pool(core_fixture.core, tenant, 0, &limits);
	expect_ok(core_session_open(core_fixture.core, &session, &member, &core_error));
	core_session_tenant(core_fixture.core, session, tenant);
	parent = fixture_create(session, 0);
	expect_ok(fixture_reserve(session, parent, LONGEST));
	expect_ok(core_seq_fork(core_fixture.core, session, 1,
				&(struct seq_fork){ .parent = parent, .n_tokens = LONGEST }, &child, &core_error));
	expect_error(
		core_seq_fork(core_fixture.core, session, 1,
			      &(struct seq_fork){ .parent = parent, .n_tokens = LONGEST }, &other, &core_error),
		PAGED_ERR_QUOTA,
		"tenant research, pool llama: page tables of 528384 bytes requested, 1052672 in use, and its share "
		"is 1228800 of 4194304: end sequences or forks, or raise share or table-memory");
	/* Others go on. */
	other = fixture_create(fixture_session, 0);
	expect_ok(fixture_reserve(fixture_session, other, 100));
	expect_ok(fixture_erase(session, child));
	expect_ok(core_seq_fork(core_fixture.core, session, 1,
				&(struct seq_fork){ .parent = parent, .n_tokens = LONGEST }, &other, &core_error));
	expect_memory();
}

Test(core_table_memory, an_adopted_page_table_counts_for_its_new_tenant, .fini = close_pool)
{
	static const uint8_t ticket[PAGED_TICKET_SIZE] = "a ticket";
	struct core_tenant_pool_limits limits = CORE_POOL_UNLIMITED;
	const struct seq_give give = { .timeout_ms = 1000 };
	uint32_t tenant, session, member, n;
	struct paged_seq_item item = { 0 };

	open_pool(LONGEST, 4 << 20);
	expect_ok(core_tenant_add(core_fixture.core, "research", &tenant, &core_error));
	expect_ok(core_session_open(core_fixture.core, &session, &member, &core_error));
	core_session_tenant(core_fixture.core, session, tenant);
	item.seq = fixture_create(fixture_session, 0);
	expect_ok(fixture_reserve(fixture_session, item.seq, LONGEST));
	expect_ok(core_seq_give(core_fixture.core, fixture_session, 1, &item, &give, ticket, &core_error));
	limits.table_bytes = 500 << 10;
	core_tenant_limit_pool(core_fixture.core, tenant, 0, &limits);
	cr_assert_eq(core_seq_adopt(core_fixture.core, session, 0, 0, ticket, 1, &item, &n, &core_error),
		     PAGED_ERR_QUOTA);
	limits.table_bytes = 600 << 10;
	core_tenant_limit_pool(core_fixture.core, tenant, 0, &limits);
	expect_ok(core_seq_adopt(core_fixture.core, session, 0, 0, ticket, 1, &item, &n, &core_error));
	expect_memory();
	expect_ok(fixture_erase(session, item.seq));
	expect_memory();
}

Test(core_table_memory, random, .fini = close_pool)
{
	paged_seq_id ids[N_SLOTS];
	uint32_t n = 0, n_refused = 0;
	uint64_t random = test_seed();

	open_pool(LONGEST, 800 << 10);
	for (uint32_t operation = 0; operation < 3000; operation++) {
		uint32_t at = n == 0 ? 0 : (uint32_t)random_below(&random, n),
			 tokens = (uint32_t)random_below(&random, 40000);
		enum paged_status result = PAGED_OK;

		if (random_below(&random, 4) == 0)
			tokens = (uint32_t)random_below(&random, LONGEST);
		switch (n == 0 ? 0 : random_below(&random, 6)) {
		case 0:
			if (n < N_SLOTS && (result = fixture_create_n(fixture_session, 0, 1, &ids[n])) == PAGED_OK)
				n++;
			break;
		case 1:
			result = fixture_reserve(fixture_session, ids[at], tokens);
			break;
		case 2:
			result = fixture_truncate(fixture_session, ids[at], tokens / 4);
			break;
		case 3:
			if (n < N_SLOTS && (result = fork_of(ids[at], tokens, &ids[n])) == PAGED_OK)
				n++;
			break;
		case 4:
			if (random_below(&random, 2) == 0)
				break;
			expect_ok(fixture_erase(fixture_session, ids[at]));
			ids[at] = ids[--n];
			break;
		default:
			core_tick(core_fixture.core, 1 + (uint32_t)random_below(&random, 600));
		}
		n_refused += result == PAGED_ERR_FULL && strstr(core_error.text, "table-memory") != NULL;
		cr_assert(result == PAGED_OK || result == PAGED_ERR_FULL || result == PAGED_ERR_CAPACITY,
			  "PAGED_TEST_SEED=%llu: %s", (unsigned long long)test_seed(), core_error.text);
		if (operation % 16 == 0)
			expect_memory();
	}
	cr_assert_gt(n_refused, 20);
	cr_assert_gt(n_released, 0);
}
