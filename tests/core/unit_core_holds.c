/* SPDX-License-Identifier: Apache-2.0 */
/* Holds of published pages: what they keep, what is refused of them, and where their pages go at their end. */
#include "tests/core/sharing_fixture.h"

TestSuite(core_holds, .init = sharing_setup, .fini = core_fixture_teardown);

static paged_seq_id hold;

static enum paged_status
hold_n(uint32_t by_session, uint32_t pool, uint32_t n, const uint32_t *pages)
{
	const struct region_view *view = core_pool_view(core_fixture.core, pool);
	uint64_t serials[SHARING_MAX_PAGES];

	for (uint32_t i = 0; i < n; i++)
		serials[i] = pages[i] < view->n_pages ? atomic_load(&region_node(view, pages[i])->serial) : 1;
	return core_pages_hold(core_fixture.core, by_session, pool, n, pages, serials, &hold, &core_error);
}

static void
cache_prefix(uint32_t pool, const char *text)
{
	expect_ok(fixture_erase(fixture_session, sharing_write(fixture_session, pool, text, NULL)));
}

Test(core_holds, held_pages_are_not_evicted)
{
	paged_seq_id seq = fixture_create(fixture_session, 0);

	cache_prefix(0, "aaaabbbbcccc");
	cache_prefix(0, "ddddeeee");
	expect_ok(hold_n(fixture_session, 0, 3, (uint32_t[]){ 4, 2, 0 }));
	expect_page_table(0, hold, "4 2 0");
	expect_seq(hold, 3, 0);
	expect_cached(0, "1 3");
	expect_error(fixture_reserve(fixture_session, seq, 40), PAGED_ERR_FULL,
		     "pool llama: 10 pages requested, 7 free and 2 cached (0 quarantined, holds keep 3)");
	expect_ok(fixture_reserve(fixture_session, seq, 36));
	expect_cached(0, "");
	/* "bbbb" was evicted, so that "cccc" is found no more, but held. */
	expect_found(0, "aaaabbbbcccc", NULL, "2");
	expect_found(0, "ddddeeee", NULL, "4");
	/* An orphan is freed with its hold, the others are cached. */
	expect_ok(fixture_erase(fixture_session, hold));
	expect_cached(0, "2 4");
	expect_counts(0, 1, 9, 0);
}

/* The deepest pages become the coldest, whatever the order in the hold; cached ancestors follow. */
Test(core_holds, released_pages_keep_the_order_of_prefixes)
{
	cache_prefix(0, "aaaabbbbcccc");
	cache_prefix(0, "dddd");
	expect_cached(0, "0 1 2 3");
	expect_ok(hold_n(fixture_session, 0, 2, (uint32_t[]){ 1, 0 }));
	expect_cached(0, "2 3");
	expect_ok(fixture_erase(fixture_session, hold));
	expect_cached(0, "3 0 1 2");
	expect_ok(hold_n(fixture_session, 0, 2, (uint32_t[]){ 3, 0 }));
	expect_ok(fixture_erase(fixture_session, hold));
	expect_cached(0, "0 1 2 3");
}

/* A page may be in several holds and in sequences, which end in any order. */
Test(core_holds, a_page_in_holds_and_sequences)
{
	paged_seq_id seq = sharing_write(fixture_session, 0, "aaaabbbb", NULL), first;

	expect_ok(hold_n(fixture_session, 0, 1, (uint32_t[]){ 1 }));
	first = hold;
	expect_ok(hold_n(fixture_session, 0, 2, (uint32_t[]){ 0, 1 }));
	cr_assert_eq(sharing_count(0, 1), 3);
	expect_ok(fixture_truncate(fixture_session, seq, 4));
	expect_ok(fixture_erase(fixture_session, seq));
	expect_ok(fixture_erase(fixture_session, first));
	expect_cached(0, "");
	expect_found(0, "aaaabbbb", NULL, "1 0");
	seq = sharing_start(fixture_session, 0, "aaaabbbb", NULL, 12);
	expect_ok(fixture_erase(fixture_session, hold));
	cr_assert_eq(sharing_count(0, 1), 1);
	expect_ok(fixture_erase(fixture_session, seq));
	expect_cached(0, "0 1");
}

Test(core_holds, refused_holds)
{
	static const uint64_t no_serial[1];
	static const uint32_t page[1] = { 1 };
	uint32_t seqs = fixture_session, pages[SHARING_MAX_PAGES];
	uint64_t serial;

	cache_prefix(0, "aaaabbbbccccdddd");
	serial = atomic_load(&region_node(core_pool_view(core_fixture.core, 0), 1)->serial);
	expect_error(hold_n(seqs, 0, 0, page), PAGED_ERR_INVALID, "pool llama: a hold of no pages");
	expect_error(core_pages_hold(core_fixture.core, seqs, 77, 1, page, no_serial, &hold, &core_error),
		     PAGED_ERR_NOENT, "there is no pool 77; there are 5, numbered from 0");
	expect_refused(hold_n(99, 0, 0, page), PAGED_ERR_GONE);
	expect_error(hold_n(seqs, 0, 1, (uint32_t[]){ 12 }), PAGED_ERR_RANGE,
		     "pool llama: there is no page 12; there are 12");
	expect_error(hold_n(seqs, 0, 2, (uint32_t[]){ 1, 1 }), PAGED_ERR_INVALID, "pool llama: page 1 is named twice");
	expect_refused(hold_n(seqs, 0, 2, (uint32_t[]){ 1, 9 }), PAGED_ERR_STALE); /* never used */
	expect_refused(core_pages_hold(core_fixture.core, seqs, 0, 1, page, no_serial, &hold, &core_error),
		       PAGED_ERR_STALE);
	serial++;
	expect_refused(core_pages_hold(core_fixture.core, seqs, 0, 1, page, &serial, &hold, &core_error),
		       PAGED_ERR_STALE);
	expect_refused(core_pages_hold(core_fixture.core, seqs, SHARING_CLOSED, 1, (uint32_t[]){ 0 }, &serial, &hold,
				       &core_error),
		       PAGED_ERR_LIMIT); /* a pool that publishes nothing has no pin-limit */
	for (uint32_t i = 0; i < 11; i++)
		pages[i] = i;
	expect_error(hold_n(seqs, 0, 11, pages), PAGED_ERR_LIMIT,
		     "pool llama: a hold may have 10 pages, 11 requested: make several holds");
	expect_cached(0, "0 1 2 3");
	/* Marks of a refused request are gone. */
	expect_ok(hold_n(seqs, 0, 2, (uint32_t[]){ 1, 2 }));
}

Test(core_holds, holds_and_pins_share_a_limit)
{
	struct sharing_found found;
	uint32_t n;

	cache_prefix(0, "aaaabbbb");
	cache_prefix(0, "ccccdddd");
	found = sharing_find(0, "aaaa", NULL);
	expect_ok(sharing_pin(0, &found, 10));
	expect_ok(hold_n(fixture_session, 0, 1, (uint32_t[]){ 3 }));
	expect_error(
		hold_n(fixture_session, 0, 2, (uint32_t[]){ 2, 3 }), PAGED_ERR_LIMIT,
		"pool llama: a hold of 2 pages, with 1 of other holds and 1 of pins, exceeds pin-limit (3): release "
		"holds or pins, or raise pin-limit");
	found = sharing_find(0, "ccccdddd", NULL);
	expect_error(core_prefix_pin(core_fixture.core, &(struct core_pinner){ .session = fixture_session }, 0,
				     found.pages[1], found.serial, 10, &n, &core_error),
		     PAGED_ERR_LIMIT,
		     "pool llama: a pin of 2 pages, with 2 of other pins and of holds, exceeds pin-limit (3)");
	expect_ok(fixture_erase(fixture_session, hold));
	expect_ok(hold_n(fixture_session, 0, 2, (uint32_t[]){ 2, 3 }));
}

/* Nothing but erase, by its session alone, can be done with a hold. */
Test(core_holds, requests_on_a_hold_are_refused)
{
	static const char text[] = "sequence 0.3 of pool llama is a hold, which can only be erased";
	struct paged_seq_item item = { .n_tokens = 4 };
	struct core_publish publish = { 0 };
	struct sharing_start_item start = { .tag = "" };
	uint32_t other, member, n_published;
	paged_seq_id child;

	expect_ok(core_session_open(core_fixture.core, &other, &member, &core_error));
	cache_prefix(0, "aaaabbbb");
	expect_ok(fixture_erase(fixture_session, sharing_start(fixture_session, 0, "aaaabbbb", NULL, 0)));
	expect_ok(hold_n(fixture_session, 0, 2, (uint32_t[]){ 0, 1 }));
	item.seq = publish.seq = start.seq = hold;
	expect_error(fixture_reserve(fixture_session, hold, 12), PAGED_ERR_PERM, text);
	expect_error(fixture_truncate(fixture_session, hold, 4), PAGED_ERR_PERM, text);
	expect_error(core_seq_trim(core_fixture.core, fixture_session, 1, &item, &core_error), PAGED_ERR_PERM, text);
	expect_error(sharing_try_fork(fixture_session, hold, 4, &child), PAGED_ERR_PERM, text);
	expect_error(core_seq_publish(core_fixture.core, fixture_session, 1, &publish, &n_published, fixture_ends,
				      &core_error),
		     PAGED_ERR_PERM, text);
	expect_error(sharing_starts(core_fixture.core, fixture_session, 0, 1, &start, &child, &core_error),
		     PAGED_ERR_PERM, text);
	expect_error(core_seq_give(core_fixture.core, fixture_session, 1, &item, &(struct seq_give){ .timeout_ms = 1 },
				   (const uint8_t *)"0123456789abcdef", &core_error),
		     PAGED_ERR_PERM, text);
	expect_error(fixture_erase(other, hold), PAGED_ERR_PERM, "sequence 0.3 of pool llama belongs to session 1");
	expect_ok(fixture_erase(fixture_session, hold));
	expect_refused(fixture_erase(fixture_session, hold), PAGED_ERR_STALE);
	/* The slot's next sequence is none. */
	expect_ok(fixture_reserve(fixture_session, fixture_create(fixture_session, 0), 4));
}

/* The end of a session releases its holds at once, also while a process of it lives. */
Test(core_holds, holds_end_with_their_session)
{
	uint32_t holder, member, rank;

	cache_prefix(0, "aaaabbbbcccc");
	expect_ok(core_session_open(core_fixture.core, &holder, &member, &core_error));
	expect_ok(core_session_join(core_fixture.core, holder, &rank, &core_error));
	expect_ok(hold_n(holder, 0, 3, (uint32_t[]){ 1, 0, 2 }));
	core_member_leave(core_fixture.core, member);
	expect_cached(0, "");
	cr_assert(core_reap(core_fixture.core, 1)); /* in steps */
	expect_cached(0, "2");
	cr_assert(!core_reap(core_fixture.core, 0));
	expect_cached(0, "0 1 2");
	expect_counts(0, 9, 0, 0);
	/* Nothing of it counts against the limit any more. */
	expect_ok(hold_n(fixture_session, 0, 3, (uint32_t[]){ 0, 1, 2 }));
}

Test(core_holds, a_drained_session_holds_nothing_new)
{
	cache_prefix(0, "aaaa");
	expect_ok(core_session_drain(core_fixture.core, fixture_session, &core_error));
	expect_refused(hold_n(fixture_session, 0, 1, (uint32_t[]){ 0 }), PAGED_ERR_STOPPING);
}

/* The flag is stored inside a change of the version, so that no reader takes the pages for a sequence's. */
Test(core_holds, readers_see_a_hold)
{
	struct region_snapshot snapshot;

	cache_prefix(0, "aaaa");
	expect_ok(hold_n(fixture_session, 0, 1, (uint32_t[]){ 0 }));
	cr_assert_eq(region_snapshot_begin(core_pool_view(core_fixture.core, 0), hold, &snapshot), REGION_READ);
	cr_assert(snapshot.flags == REGION_SLOT_HOLD && snapshot.writable_from == UINT32_MAX);
	cr_assert_eq(snapshot.capacity, 4);
}

/* No pin takes long. */
Test(core_holds, pin_of_a_long_prefix)
{
	enum { N = CORE_MAX_PIN_PAGES + 1 };
	uint32_t pool = core_fixture_add_pool(&core_fixture, "long", 4 * N, 1, 2, N), n_published = 0, n_pages;
	struct core_pinner by = { .session = fixture_session };
	paged_seq_id seq = fixture_create(fixture_session, pool);
	static uint32_t tokens[N], pages[N];
	struct prefix_position at = prefix_root(core_pool_view(core_fixture.core, pool));
	struct core_publish publish = { .seq = seq, .keys = { .n_pages = N, .tokens = tokens } };
	uint32_t end;

	for (uint32_t i = 0; i < N; i++)
		tokens[i] = i;
	expect_ok(fixture_reserve(fixture_session, seq, N));
	publish.version = sharing_version(seq);
	expect_ok(core_seq_publish(core_fixture.core, fixture_session, 1, &publish, &n_published, &end, &core_error));
	cr_assert_eq(prefix_find(core_pool_view(core_fixture.core, pool), &publish.keys, &at, pages), N);
	expect_error(core_prefix_pin(core_fixture.core, &by, pool, at.page, at.serial, 60, &n_pages, &core_error),
		     PAGED_ERR_LIMIT,
		     "pool long: a pin of 8193 pages, and the most are 8192: pin the beginning of the prefix");
	publish.keys.n_pages = N - 1;
	at = prefix_root(core_pool_view(core_fixture.core, pool));
	cr_assert_eq(prefix_find(core_pool_view(core_fixture.core, pool), &publish.keys, &at, pages), N - 1);
	expect_ok(core_prefix_pin(core_fixture.core, &by, pool, at.page, at.serial, 60, &n_pages, &core_error));
	cr_assert_eq(n_pages, N - 1);
	expect_accounting();
}
