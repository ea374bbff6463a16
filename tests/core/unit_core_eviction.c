/* SPDX-License-Identifier: Apache-2.0 */
/* Cached pages: the order of eviction, pins, eviction ahead of need. */
#include <string.h>

#include "core/node.h"
#include "core/pages.h"
#include "tests/core/sharing_fixture.h"

TestSuite(core_eviction, .init = sharing_setup, .fini = core_fixture_teardown);

/* A prefix is published, and its sequence erased. */
static struct sharing_found
cache_prefix(uint32_t pool, const char *text)
{
	struct sharing_found found;

	expect_ok(fixture_erase(fixture_session, sharing_write(fixture_session, pool, text, NULL)));
	found = sharing_find(pool, text, NULL);
	return found;
}

Test(core_eviction, tails_before_heads)
{
	paged_seq_id seq;

	cache_prefix(0, "aaaabbbbcccc");
	cache_prefix(0, "ddddeeee");
	expect_cached(0, "0 1 2 3 4");
	/* Used again, with another tail: what it shares becomes the hottest. */
	seq = sharing_start(fixture_session, 0, "aaaabbbb", NULL, 12);
	expect_cached(0, "0 3 4");
	expect_ok(fixture_erase(fixture_session, seq));
	expect_cached(0, "0 3 4 1 2");
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 2), 2);
	expect_found(0, "aaaabbbbcccc", NULL, "2 1");
	expect_found(0, "ddddeeee", NULL, "4");
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, 0), 3);
	expect_counts(0, 12, 0, 0);
}

/* A reserve takes the free pages and evicts no more than it lacks; it never fails because of cached pages. */
Test(core_eviction, reserve_evicts_what_it_lacks)
{
	paged_seq_id seq = fixture_create(fixture_session, 0), other = fixture_create(fixture_session, 0);

	cache_prefix(0, "aaaabbbbccccddddeeeeffff");
	expect_ok(fixture_reserve(fixture_session, seq, 24));
	expect_cached(0, "0 1 2 3 4 5");
	expect_ok(fixture_reserve(fixture_session, seq, 28));
	expect_page_table(0, seq, "11 10 9 8 7 6 0");
	expect_cached(0, "1 2 3 4 5");
	expect_refused(fixture_reserve(fixture_session, other, 24), PAGED_ERR_FULL);
	expect_ok(fixture_reserve(fixture_session, other, 20));
	expect_page_table(0, other, "1 2 3 4 5");
	expect_counts(0, 0, 12, 0);
}

/* The pages of one item of a request are not evicted for another one. */
Test(core_eviction, start_does_not_evict_what_it_shares)
{
	struct sharing_found first = cache_prefix(0, "aaaabbbb"), second = cache_prefix(0, "ccccdddd");
	struct sharing_start_item starts[2] = {
		{ .n_pages = 2, .pages = first.pages, .serial = first.serial, .n_tokens = 40, .tag = "" },
		{ .n_pages = 2, .pages = second.pages, .serial = second.serial, .n_tokens = 12, .tag = "" },
	};
	paged_seq_id ids[2];

	expect_refused(sharing_starts(core_fixture.core, fixture_session, 0, 2, starts, ids, &core_error),
		       PAGED_ERR_FULL);
	expect_cached(0, "0 1 2 3");
	starts[0].n_tokens = 36;
	starts[1].n_tokens = 11;
	expect_ok(sharing_starts(core_fixture.core, fixture_session, 0, 2, starts, ids, &core_error));
	expect_counts(0, 0, 12, 0);
	expect_page_table(0, ids[0], "1 0 10 9 8 7 6 5 4");
	expect_page_table(0, ids[1], "3 2 11");
}

/* Two items that share a cached page use it up once. */
Test(core_eviction, starts_share_a_cached_page)
{
	struct sharing_found found = cache_prefix(0, "aaaabbbb");
	struct sharing_start_item starts[2] = {
		{ .n_pages = 2, .pages = found.pages, .serial = found.serial, .n_tokens = 28, .tag = "" },
		{ .n_pages = 2, .pages = found.pages, .serial = found.serial, .n_tokens = 28, .tag = "" },
	};
	paged_seq_id ids[2];

	expect_ok(sharing_starts(core_fixture.core, fixture_session, 0, 2, starts, ids, &core_error));
	expect_counts(0, 0, 12, 0);
	cr_assert_eq(sharing_count(0, found.pages[0]), 2);
}

/* Eviction ahead of need, in steps, of pages that are not pinned. */
#define N_CHAIN 40u
#define N_FORKS 600u

/* A sequence of N_CHAIN pages, each of one token, published, and N_FORKS forks of it; ids: that and the forks. */
static void
many_of_one_chain(uint32_t pool, uint32_t n_trimmed, paged_seq_id ids[N_FORKS + 1])
{
	struct paged_seq_item item = { .n_tokens = n_trimmed };
	char text[N_CHAIN + 1] = "";
	paged_seq_id first;

	memset(text, 'a', N_CHAIN);
	first = sharing_write(fixture_session, pool, text, NULL);
	item.seq = ids[0] = sharing_write(fixture_session, pool, text, NULL);
	expect_ok(core_seq_trim(core_fixture.core, fixture_session, 1, &item, &core_error));
	for (uint32_t i = 1; i <= N_FORKS; i++)
		expect_ok(sharing_try_fork(fixture_session, ids[0], N_CHAIN, &ids[i]));
	expect_ok(fixture_erase(fixture_session, first));
	expect_accounting();
}

static uint32_t
count_published(const paged_seq_id ids[N_FORKS + 1])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i <= N_FORKS; i++)
		n += atomic_load(&region_slot(core_pool_view(core_fixture.core, PAGED_SEQ_POOL(ids[i])),
					      PAGED_SEQ_SLOT(ids[i]))
					  ->published) > 0;
	return n;
}

/* Sequences that depend on evicted pages are few at a time, whatever they have given back or have twins of. */
Test(core_eviction, of_pages_that_many_sequences_stand_on)
{
	uint32_t pool = core_fixture_add_pool(&core_fixture, "forks", 2 * N_CHAIN, 1, N_FORKS + 2, N_CHAIN);
	paged_seq_id ids[N_FORKS + 1];
	uint64_t n_worked;

	many_of_one_chain(pool, N_CHAIN, ids);
	cr_assert_eq(count_published(ids), N_FORKS + 1);
	n_worked = core_n_worked(core_fixture.core);
	cr_assert_eq(core_prefix_evict(core_fixture.core, pool, 1), 1);
	cr_assert_eq(count_published(ids), 0);
	cr_assert_geq(core_n_worked(core_fixture.core), n_worked + N_FORKS + 1);
	expect_accounting();
	for (uint32_t i = 0; i <= N_FORKS; i++)
		expect_ok(fixture_erase(fixture_session, ids[i]));
	core_prefix_evict(core_fixture.core, pool, 0);

	many_of_one_chain(pool, 0, ids);
	cr_assert_eq(core_prefix_evict(core_fixture.core, pool, 1), 1);
	cr_assert_eq(count_published(ids), N_FORKS + 1);
	n_worked = core_n_worked(core_fixture.core);
	cr_assert_eq(core_prefix_evict(core_fixture.core, pool, 5), 5);
	cr_assert_eq(count_published(ids), 0);
	cr_assert_leq(core_n_worked(core_fixture.core), n_worked + LOWERED_AT_ONCE + N_FORKS + 1 + 5);
	expect_accounting();
}

Test(core_eviction, tick)
{
	struct sharing_found found = cache_prefix(SHARING_WIDE, "abcdefghijklmnopqrst");
	struct paged_pool_entry status;

	found.n = 4;
	found.serial =
		atomic_load(&region_node(core_pool_view(core_fixture.core, SHARING_WIDE), found.pages[3])->serial);
	expect_ok(sharing_pin(SHARING_WIDE, &found, 10));
	cr_assert(core_tick(core_fixture.core, 4));
	core_pool_status(core_fixture.core, SHARING_WIDE, &status);
	cr_assert(status.n_free == 384 && status.n_cached == 16 && status.n_evicted == 4);
	cr_assert(!core_tick(core_fixture.core, 100));
	core_pool_status(core_fixture.core, SHARING_WIDE, &status);
	cr_assert(status.n_free == 390 && status.n_cached == 10 && status.n_pinned == 4);
	cache_prefix(SHARING_WIDE, "0123456789");
	cr_assert(!core_tick(core_fixture.core, 100));
	expect_pinned(SHARING_WIDE,
		      fixture_numbers_text(
			      (uint32_t[]){ found.pages[3], found.pages[2], found.pages[1], found.pages[0] }, 4));
	expect_accounting();
}

/* Pinned pages are evicted, but after all others: a pool full of them is not full. */
Test(core_eviction, pins_are_evicted_last)
{
	struct sharing_found pinned = cache_prefix(0, "aaaabbbbcccc");
	paged_seq_id seq = fixture_create(fixture_session, 0), other = fixture_create(fixture_session, 0);

	expect_ok(sharing_pin(0, &pinned, 10));
	expect_pinned(0, "0 1 2");
	cache_prefix(0, "ddddeeee");
	expect_cached(0, "3 4");
	expect_ok(fixture_reserve(fixture_session, seq, 32));
	expect_cached(0, "4");
	expect_ok(fixture_reserve(fixture_session, other, 8));
	expect_cached(0, "");
	expect_pinned(0, "1 2");
	expect_found(0, "aaaabbbbcccc", NULL, "2 1");
	expect_ok(fixture_reserve(fixture_session, seq, 40));
	expect_counts(0, 0, 12, 0);
}

/* Pins at the cold end: when they expire, their pages become the hottest. */
Test(core_eviction, pins_expire)
{
	struct sharing_found found;

	core_set_now(core_fixture.core, 1000);
	found = cache_prefix(0, "aaaabbbb");
	expect_ok(sharing_pin(0, &found, 5));
	cr_assert_eq(core_next_deadline(core_fixture.core), 6000);
	cache_prefix(0, "cccc");
	core_set_now(core_fixture.core, 5999);
	core_tick(core_fixture.core, 100);
	expect_pinned(0, "0 1");
	core_set_now(core_fixture.core, 6000);
	core_tick(core_fixture.core, 100);
	expect_pinned(0, "");
	expect_cached(0, "2 0 1");
	cr_assert_eq(core_next_deadline(core_fixture.core), CORE_NO_DEADLINE);
	expect_accounting();
}

/* A page is pinned as long as one pin covers it. */
Test(core_eviction, pins_overlap)
{
	struct sharing_found tail = cache_prefix(SHARING_WIDE, "abcd"), head = sharing_find(SHARING_WIDE, "ab", NULL);
	struct paged_pool_entry status;

	expect_ok(sharing_pin(SHARING_WIDE, &tail, 10));
	expect_ok(sharing_pin(SHARING_WIDE, &head, 20));
	core_pool_status(core_fixture.core, SHARING_WIDE, &status);
	cr_assert_eq(status.n_pinned, 4);
	expect_ok(sharing_pin(SHARING_WIDE, &tail, 0));
	expect_cached(SHARING_WIDE, "0 1");
	expect_pinned(SHARING_WIDE, "2 3");
	cr_assert_eq(core_next_deadline(core_fixture.core), 20000);
	expect_ok(sharing_pin(SHARING_WIDE, &head, 5)); /* replaces the first */
	cr_assert_eq(core_next_deadline(core_fixture.core), 5000);
	expect_ok(sharing_pin(SHARING_WIDE, &head, 0));
	expect_cached(SHARING_WIDE, "0 1 2 3");
	expect_ok(sharing_pin(SHARING_WIDE, &head, 0)); /* nothing to end */
	expect_accounting();
}

/* A pinned page that sequences use is in no list; when they end, it goes to that of the pinned ones. */
Test(core_eviction, pinned_while_in_use)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL);
	struct sharing_found found = sharing_find(0, "aaaa", NULL);

	expect_ok(sharing_pin(0, &found, 10));
	expect_pinned(0, "");
	expect_ok(fixture_erase(fixture_session, seq));
	expect_pinned(0, "1");
	expect_cached(0, "0");
	seq = sharing_start(fixture_session, 0, "aaaa", NULL, 0);
	expect_pinned(0, "");
	expect_ok(sharing_pin(0, &found, 0));
	expect_ok(fixture_erase(fixture_session, seq));
	expect_cached(0, "0 1");
}

/* A tick ends as many pins as its budget allows, one at least; the others end in the next. */
Test(core_eviction, pins_expire_in_steps)
{
	struct sharing_found first, second;

	core_set_now(core_fixture.core, 1000);
	first = cache_prefix(0, "aaaa");
	second = cache_prefix(0, "bbbb");
	expect_ok(sharing_pin(0, &first, 5));
	expect_ok(sharing_pin(0, &second, 6));
	core_set_now(core_fixture.core, 9000);
	cr_assert(core_tick(core_fixture.core, 1));
	expect_pinned(0, "1");
	cr_assert(!core_tick(core_fixture.core, 1));
	expect_pinned(0, "");
	expect_cached(0, "0 1");
}

/* What is gone of a pin does not count, and what is left can be unpinned; a pin of which nothing is left is none. */
Test(core_eviction, the_end_of_a_pinned_prefix_is_evicted)
{
	struct sharing_found first = cache_prefix(SHARING_WIDE, "abcdef"), second = cache_prefix(SHARING_WIDE, "wxyz");
	struct core_pinner by = { .session = fixture_session };
	struct paged_pin_entry entry;
	uint32_t n_pages;

	/* 10 pages can be pinned. */
	expect_ok(sharing_pin(SHARING_WIDE, &first, 10));
	expect_ok(sharing_pin(SHARING_WIDE, &second, 20));
	cr_assert_eq(core_prefix_evict(core_fixture.core, SHARING_WIDE, 6 + 3), 9);
	cr_assert_eq(core_next_deadline(core_fixture.core), 10000);
	expect_accounting();
	first = cache_prefix(SHARING_WIDE, "ABCDEFGHI");
	expect_ok(sharing_pin(SHARING_WIDE, &first, 30));
	cr_assert_eq(core_next_deadline(core_fixture.core), 20000);
	cr_assert(core_pin_next(core_fixture.core, SHARING_WIDE, 0, &entry));
	second = sharing_find(SHARING_WIDE, "w", NULL);
	cr_assert(entry.n_pages == 1 && entry.serial == second.serial && second.n == 1);
	expect_ok(core_prefix_pin(core_fixture.core, &by, SHARING_WIDE, entry.page, entry.serial, 0, &n_pages,
				  &core_error));
	cr_assert(core_pin_next(core_fixture.core, SHARING_WIDE, 0, &entry) && entry.n_pages == 9);
	cr_assert_not(core_pin_next(core_fixture.core, SHARING_WIDE, entry.number, &entry));
	cr_assert_eq(core_next_deadline(core_fixture.core), 30000);
	expect_accounting();
}

/* Pinned pages are evicted from their tails too, whichever was pinned first. */
Test(core_eviction, pinned_tails_go_first)
{
	struct sharing_found all = cache_prefix(SHARING_WIDE, "abc"), head = sharing_find(SHARING_WIDE, "ab", NULL);

	expect_ok(sharing_pin(SHARING_WIDE, &head, 10));
	expect_ok(sharing_pin(SHARING_WIDE, &all, 10));
	cr_assert_eq(core_prefix_evict(core_fixture.core, SHARING_WIDE, 1), 1);
	cr_assert_eq(sharing_find(SHARING_WIDE, "abc", NULL).n, 2);
}

Test(core_eviction, pins_are_limited)
{
	const struct core_pool_params params = {
		.name = "pins",
		.n_pages = CORE_MAX_PINS + 1,
		.page_size = 2,
		.n_slots = 1,
		.max_length = 2,
		.publish = true,
		.pin_limit = 2 * CORE_MAX_PINS,
	};
	uint32_t pool = core_fixture_add(&core_fixture, &params);

	for (uint32_t i = 0; i <= CORE_MAX_PINS; i++) {
		const char text[] = { (char)('A' + i % 32), (char)('A' + i / 32), '\0' };
		struct sharing_found found = cache_prefix(pool, text);

		cr_assert_eq(sharing_pin(pool, &found, 10), i < CORE_MAX_PINS ? PAGED_OK : PAGED_ERR_LIMIT, "%u", i);
	}
}

Test(core_eviction, pin_limit)
{
	const struct core_pinner by = { .session = fixture_session };
	struct sharing_found found = cache_prefix(0, "aaaabbbb"), other = cache_prefix(0, "ccccdddd");
	struct sharing_found stale = found;
	uint32_t n_pages;

	expect_ok(sharing_pin(0, &found, 10));
	expect_refused(sharing_pin(0, &other, 10), PAGED_ERR_LIMIT); /* 4 of at most 3 */
	expect_ok(sharing_pin(0, &found, 20));                       /* the same pin, longer */
	other = sharing_find(0, "cccc", NULL);
	expect_ok(sharing_pin(0, &other, 10));
	expect_refused(sharing_pin(0, &other, 2u * 366 * 24 * 3600), PAGED_ERR_LIMIT);
	stale.serial += 100;
	expect_refused(sharing_pin(0, &stale, 10), PAGED_ERR_STALE);
	stale.serial = 0;
	expect_refused(sharing_pin(0, &stale, 10), PAGED_ERR_STALE);
	expect_refused(core_prefix_pin(core_fixture.core, &by, 0, 12, found.serial, 1, &n_pages, &core_error),
		       PAGED_ERR_RANGE);
	expect_refused(core_prefix_pin(core_fixture.core, &by, 77, 0, found.serial, 1, &n_pages, &core_error),
		       PAGED_ERR_NOENT);
	expect_refused(core_prefix_pin(core_fixture.core, &by, SHARING_CLOSED, 0, 1, 1, &n_pages, &core_error),
		       PAGED_ERR_STALE);
	expect_pinned(0, "0 1 3");
}

/* The ring names each change of the index, in order. */
Test(core_eviction, ring)
{
	const struct region_view *view = core_pool_view(core_fixture.core, 0);
	uint64_t head = atomic_load(&view->header->ring_head), serial = atomic_load(&view->header->next_serial);
	static const struct {
		uint32_t kind, page, serial;
	} expected[] = {
		{ REGION_RING_STORED, 1, 0 },
		{ REGION_RING_STORED, 0, 1 },
		{ REGION_RING_REMOVED, 0, 1 },
		{ REGION_RING_REMOVED, 1, 0 },
	};

	cache_prefix(0, "aaaabbbb");
	core_prefix_evict(core_fixture.core, 0, 0);
	cr_assert_eq(atomic_load(&view->header->ring_head), head + 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct region_ring_entry *entry = region_ring_entry(view, head + 1 + i);

		cr_assert_eq(atomic_load(&entry->number), head + 1 + i);
		cr_assert_eq(atomic_load(&entry->kind), expected[i].kind);
		cr_assert_eq(atomic_load(&entry->page), expected[i].page);
		cr_assert_eq(atomic_load(&entry->serial), serial + expected[i].serial);
	}
}

/* Tenants' shares of the cache */

static uint32_t sharer_session, other_session;

/* The session of a tenant without a share, and that of one with a share of n cached pages. */
static void
share_cache(uint32_t n)
{
	uint32_t member, sharer, other;

	expect_ok(core_tenant_add(core_fixture.core, "sharer", &sharer, &core_error));
	expect_ok(core_tenant_add(core_fixture.core, "other", &other, &core_error));
	expect_ok(core_tenant_share_cache(core_fixture.core, sharer, 0, n, &core_error));
	expect_ok(core_session_open(core_fixture.core, &sharer_session, &member, &core_error));
	core_session_tenant(core_fixture.core, sharer_session, sharer);
	expect_ok(core_session_open(core_fixture.core, &other_session, &member, &core_error));
	core_session_tenant(core_fixture.core, other_session, other);
}

static void
publish_and_erase(uint32_t by_session, const char *text)
{
	expect_ok(fixture_erase(by_session, sharing_write(by_session, 0, text, NULL)));
	expect_accounting();
}

static void
evict(uint32_t n)
{
	cr_assert_eq(core_prefix_evict(core_fixture.core, 0, n), n);
	expect_accounting();
}

Test(core_eviction, more_than_a_share_is_evicted_first)
{
	share_cache(2);
	publish_and_erase(other_session, "aaaabbbb");
	publish_and_erase(sharer_session, "ccccdddd");
	publish_and_erase(sharer_session, "eeeeffff");
	expect_cached(0, "0 1 2 3 4 5");
	evict(2); /* its coldest, tails first */
	expect_cached(0, "0 1 4 5");
	evict(1); /* within its share: the coldest of all */
	expect_cached(0, "1 4 5");
}

/* However much one tenant publishes and gives back, pages of others stay. */
Test(core_eviction, a_tenant_beyond_its_share_turns_its_own_pages_over)
{
	char text[] = "xxxxyyyyzzzz";

	share_cache(3);
	publish_and_erase(other_session, "aaaabbbbccccdddd");
	for (uint32_t i = 0; i < 80; i++) {
		text[0] = (char)('0' + i);
		publish_and_erase(sharer_session, text);
	}
	expect_found(0, "aaaabbbbccccdddd", NULL, "3 2 1 0");
}

/* A page on which others depend is no longer the tenant's: it goes as all pages go. */
Test(core_eviction, what_others_depend_on_stays)
{
	paged_seq_id seq;

	share_cache(1);
	publish_and_erase(sharer_session, "aaaabbbb");
	seq = sharing_start(other_session, 0, "aaaabbbb", NULL, 12);
	sharing_publish(seq, 2, "aaaabbbbcccc", NULL);
	expect_ok(fixture_erase(other_session, seq));
	publish_and_erase(sharer_session, "dddd");
	publish_and_erase(sharer_session, "eeee");
	expect_cached(0, "2 0 1 3 4");
	evict(1);
	expect_cached(0, "2 0 1 4");
	evict(1);
	expect_cached(0, "0 1 4");
}

Test(core_eviction, pinned_pages_do_not_count_for_a_share)
{
	struct sharing_found found;

	share_cache(1);
	publish_and_erase(sharer_session, "aaaa");
	found = sharing_find(0, "aaaa", NULL);
	expect_ok(sharing_pin(0, &found, 10));
	publish_and_erase(other_session, "bbbb");
	publish_and_erase(sharer_session, "cccc");
	evict(1);
	expect_found(0, "cccc", NULL, "2");
	expect_ok(sharing_pin(0, &found, 0));
	expect_found(0, "aaaa", NULL, "0");
	evict(1);
	expect_found(0, "aaaa", NULL, "0");
}
