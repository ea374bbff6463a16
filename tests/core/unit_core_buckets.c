/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Full buckets of the index: keys made to fall into one bucket, as a hostile member makes them.  What a member has
 * published in a bucket is displaced by others only if it has most nodes there.
 */
#include <string.h>

#include "core/node.h"
#include "tests/core/sharing_fixture.h"

TestSuite(core_buckets, .init = sharing_setup, .fini = core_fixture_teardown);

#define BUCKET 5u
#define N_FLOOD 64u

static uint64_t last_key;

/* The next key that falls into the bucket, as a child of a page with this hash. */
static uint64_t
next_key(uint64_t parent_hash, prefix_key key)
{
	const struct region_view *view = core_pool_view(core_fixture.core, SHARING_WIDE);
	struct prefix_block block = { .extra = key };
	uint64_t hash;

	memset(key, 0, sizeof(prefix_key));
	do {
		last_key++;
		memcpy(key, &last_key, sizeof(last_key));
		hash = prefix_hash(&block, view->page_size, parent_hash);
	} while ((hash & (view->n_buckets - 1)) != BUCKET);
	return hash;
}

static uint64_t
root_hash(void)
{
	return core_pool_view(core_fixture.core, SHARING_WIDE)->header->seed;
}

static uint32_t
open_session(uint32_t tenant)
{
	uint32_t session, member;

	expect_ok(core_session_open(core_fixture.core, &session, &member, &core_error));
	core_session_tenant(core_fixture.core, session, tenant);
	return session;
}

/* A sequence of n pages with these keys, published as far as possible. */
static paged_seq_id
write_keys(uint32_t session, uint32_t n, const prefix_key *keys, uint32_t *n_published)
{
	paged_seq_id seq = fixture_create(session, SHARING_WIDE);

	expect_ok(fixture_reserve(session, seq, n));
	*n_published = sharing_publish_keys(seq, 0, n, keys);
	return seq;
}

/* Publishes one page in the bucket, and ends the sequence; the page stays cached. */
static void
flood(uint32_t session)
{
	uint32_t n_published;
	prefix_key key;
	paged_seq_id seq;

	next_key(root_hash(), key);
	seq = write_keys(session, 1, &key, &n_published);
	cr_assert_eq(n_published, 1);
	expect_ok(fixture_erase(session, seq));
	expect_accounting();
}

static uint32_t
find_keys(uint32_t n, const prefix_key *keys)
{
	struct prefix_keys wanted = { .n_pages = n, .n_extras = n, .extra = keys };

	return sharing_find_keys(SHARING_WIDE, &wanted).n;
}

static uint64_t
n_displaced(void)
{
	return atomic_load(&core_pool_view(core_fixture.core, SHARING_WIDE)->header->n_displaced);
}

/* The flood comes before and after what another member publishes, which is published whole, and stays. */
static void
expect_flood_harmless(uint32_t hostile, uint32_t other)
{
	prefix_key keys[3];
	uint32_t n_published;
	uint64_t hash;
	paged_seq_id seq;

	for (uint32_t i = 0; i < N_FLOOD; i++)
		flood(hostile);
	cr_assert_geq(n_displaced(), N_FLOOD - PREFIX_BUCKET_MAX);
	hash = next_key(root_hash(), keys[0]);
	hash = next_key(hash, keys[1]);
	next_key(hash, keys[2]);
	seq = write_keys(other, 3, keys, &n_published);
	cr_assert_eq(n_published, 3);
	for (uint32_t i = 0; i < N_FLOOD; i++)
		flood(hostile);
	cr_assert_eq(find_keys(3, keys), 3);
	expect_seq(seq, 3, 3);
	/* Its end does not change who has most. */
	expect_ok(core_session_end(core_fixture.core, hostile, &core_error));
	while (core_reap(core_fixture.core, 0))
		;
	cr_assert_eq(find_keys(3, keys), 3);
	expect_ok(fixture_erase(other, seq));
	cr_assert_eq(find_keys(3, keys), 3);
}

Test(core_buckets, a_session_floods_a_bucket)
{
	expect_flood_harmless(open_session(0), fixture_session);
}

/* Each session of the tenant has less in the bucket than the other tenant's one. */
Test(core_buckets, a_tenant_floods_a_bucket_from_many_sessions)
{
	uint32_t hostile, other, n_published;
	prefix_key keys[2];

	expect_ok(core_tenant_add(core_fixture.core, "hostile", &hostile, &core_error));
	expect_ok(core_tenant_add(core_fixture.core, "other", &other, &core_error));
	next_key(next_key(root_hash(), keys[0]), keys[1]);
	write_keys(open_session(other), 2, keys, &n_published);
	cr_assert_eq(n_published, 2);
	for (uint32_t i = 0; i < N_FLOOD; i++)
		flood(open_session(hostile));
	cr_assert_eq(find_keys(2, keys), 2);
	expect_flood_harmless(open_session(hostile), open_session(other));
}

/* The coldest of one session's nodes goes: what a start has used is warmer. */
Test(core_buckets, the_coldest_is_displaced)
{
	prefix_key keys[PREFIX_BUCKET_MAX + 1];
	struct prefix_keys wanted = { .n_pages = 1, .n_extras = 1, .extra = keys };
	struct sharing_found found;
	uint32_t n_published;
	paged_seq_id seqs[PREFIX_BUCKET_MAX + 1], started;

	for (uint32_t i = 0; i < PREFIX_BUCKET_MAX; i++) {
		next_key(root_hash(), keys[i]);
		seqs[i] = write_keys(fixture_session, 1, &keys[i], &n_published);
	}
	core_set_now(core_fixture.core, 5000);
	found = sharing_find_keys(SHARING_WIDE, &wanted);
	expect_ok(sharing_try_start(fixture_session, SHARING_WIDE, &found, 0, &started));
	next_key(root_hash(), keys[PREFIX_BUCKET_MAX]);
	write_keys(fixture_session, 1, &keys[PREFIX_BUCKET_MAX], &n_published);
	cr_assert_eq(n_published, 1);
	for (uint32_t i = 0; i <= PREFIX_BUCKET_MAX; i++)
		cr_assert_eq(find_keys(1, &keys[i]), i != 1);
	/* Its page is a private one of its sequence, which can be published again. */
	expect_seq(seqs[1], 1, 0);
	cr_assert_eq(sharing_publish_keys(seqs[1], 0, 1, &keys[1]), 1);
	expect_seq(seqs[2], 1, 0);
	cr_assert_eq(n_displaced(), 2);
	expect_accounting();
}

/* A displaced page takes those after it along: cached ones become free, and their sequences are published less. */
Test(core_buckets, what_stands_on_a_displaced_page)
{
	prefix_key keys[3];
	uint32_t n_published, hostile = open_session(0);
	paged_seq_id whole, part;
	uint64_t hash = next_key(root_hash(), keys[0]);

	hash = next_key(hash, keys[1]);
	next_key(hash, keys[2]);
	whole = write_keys(hostile, 3, keys, &n_published);
	part = write_keys(hostile, 2, keys, &n_published);
	expect_seq(part, 2, 2);
	expect_ok(fixture_erase(hostile, whole));
	expect_counts(SHARING_WIDE, 400 - 5, 2, 0);
	for (uint32_t i = 0; i < PREFIX_BUCKET_MAX - 3 + 1; i++)
		flood(hostile);
	cr_assert_eq(find_keys(3, keys), 0);
	expect_seq(part, 2, 0);
	expect_counts(SHARING_WIDE, 400 - 8, 2, 0);
	cr_assert_eq(sharing_publish_keys(part, 0, 2, keys), 2);
	cr_assert_eq(find_keys(3, keys), 2);
}

/* A member publishes what another one begins with, and fills the bucket: its nodes that no other one uses go first. */
static void
expect_common_page_stays(uint32_t hostile, uint32_t other)
{
	prefix_key keys[3];
	uint32_t n_published;
	paged_seq_id seq;

	next_key(next_key(root_hash(), keys[0]), keys[1]);
	memset(keys[2], 1, sizeof(keys[2]));
	expect_ok(fixture_erase(hostile, write_keys(hostile, 2, keys, &n_published)));
	seq = write_keys(other, 3, keys, &n_published);
	cr_assert_eq(n_published, 3);
	for (uint32_t i = 0; i < N_FLOOD; i++)
		flood(hostile);
	expect_seq(seq, 3, 3);
	cr_assert_eq(find_keys(3, keys), 3);
}

Test(core_buckets, a_page_that_others_use_is_displaced_last)
{
	expect_common_page_stays(open_session(0), fixture_session);
}

/* A start of another session of the same tenant on each node does not make the nodes equal to the other tenant's. */
Test(core_buckets, other_tenants_count_more_than_other_sessions)
{
	uint32_t hostile, tenant, helper, n_published;
	prefix_key keys[2], own;
	struct prefix_keys wanted = { .n_pages = 1, .n_extras = 1, .extra = &own };
	struct sharing_found found;
	paged_seq_id seq, started;

	expect_ok(core_tenant_add(core_fixture.core, "hostile", &tenant, &core_error));
	hostile = open_session(tenant);
	helper = open_session(tenant);
	next_key(root_hash(), keys[0]);
	memset(keys[1], 1, sizeof(keys[1]));
	expect_ok(fixture_erase(hostile, write_keys(hostile, 1, keys, &n_published)));
	seq = write_keys(fixture_session, 2, keys, &n_published);
	for (uint32_t i = 0; i < N_FLOOD; i++) {
		next_key(root_hash(), own);
		expect_ok(fixture_erase(hostile, write_keys(hostile, 1, &own, &n_published)));
		found = sharing_find_keys(SHARING_WIDE, &wanted);
		expect_ok(sharing_try_start(helper, SHARING_WIDE, &found, 0, &started));
		expect_ok(fixture_erase(helper, started));
	}
	expect_seq(seq, 2, 2);
	cr_assert_eq(find_keys(2, keys), 2);
}

/* Each of the sessions has published one page, and ended: together they have most. */
Test(core_buckets, ended_sessions_flood_a_bucket)
{
	uint32_t session, member, n_published;
	prefix_key keys[2];
	paged_seq_id seq;

	next_key(next_key(root_hash(), keys[0]), keys[1]);
	seq = write_keys(fixture_session, 2, keys, &n_published);
	for (uint32_t i = 0; i < N_FLOOD; i++) {
		expect_ok(core_session_open(core_fixture.core, &session, &member, &core_error));
		flood(session);
		core_member_leave(core_fixture.core, member);
		core_reap(core_fixture.core, 0);
	}
	expect_seq(seq, 2, 2);
	cr_assert_eq(find_keys(2, keys), 2);
}

/* A prefix whose own pages fill the bucket is published as far as they go, and displaces none of them. */
Test(core_buckets, a_prefix_fills_its_own_bucket)
{
	prefix_key keys[PREFIX_BUCKET_MAX + 1];
	uint64_t hash = root_hash();
	uint32_t n_published;
	paged_seq_id seq;

	for (uint32_t i = 0; i <= PREFIX_BUCKET_MAX; i++)
		hash = next_key(hash, keys[i]);
	seq = write_keys(fixture_session, PREFIX_BUCKET_MAX + 1, keys, &n_published);
	cr_assert_eq(n_published, PREFIX_BUCKET_MAX);
	cr_assert_eq(fixture_ends[0], PAGED_PUBLISH_BUCKET);
	cr_assert_eq(find_keys(PREFIX_BUCKET_MAX + 1, keys), PREFIX_BUCKET_MAX);
	expect_seq(seq, PREFIX_BUCKET_MAX, PREFIX_BUCKET_MAX);
	cr_assert_eq(n_displaced(), 0);
	cr_assert_eq(atomic_load(&core_pool_view(core_fixture.core, SHARING_WIDE)->header->n_stopped_bucket), 1);
}

#define N_CHAIN (3 * NODES_AT_ONCE)

/* A pool for a chain of N_CHAIN pages and as many others; the chain's keys. */
static uint32_t
add_long_pool(uint32_t free_pages, prefix_key keys[N_CHAIN])
{
	for (uint32_t i = 0; i < N_CHAIN; i++)
		memcpy(keys[i], &i, sizeof(i));
	return core_fixture_add(&core_fixture, &(struct core_pool_params){ .name = "long",
									   .n_pages = 2 * N_CHAIN,
									   .page_size = 1,
									   .n_slots = 4,
									   .max_length = N_CHAIN,
									   .publish = true,
									   .free_pages = free_pages });
}

/* A sequence of N_CHAIN published pages, of whose nodes NODES_AT_ONCE + 1 are removed, and the rest is lost. */
static paged_seq_id
lose_nodes(uint32_t pool, const prefix_key keys[N_CHAIN])
{
	paged_seq_id first = fixture_create(fixture_session, pool), seq = fixture_create(fixture_session, pool);

	expect_ok(fixture_reserve(fixture_session, first, 1));
	cr_assert_eq(sharing_publish_keys(first, 0, 1, keys), 1);
	expect_ok(fixture_reserve(fixture_session, seq, N_CHAIN));
	cr_assert_eq(sharing_publish_keys(seq, 0, N_CHAIN, keys), N_CHAIN);
	expect_ok(fixture_erase(fixture_session, first));
	cr_assert_eq(core_prefix_evict(core_fixture.core, pool, 1), 1);
	expect_accounting();
	return seq;
}

/* A page with very many below it: these are found no more at once, and leave the index in steps. */
Test(core_buckets, more_below_than_is_removed_at_once)
{
	static prefix_key keys[N_CHAIN];
	struct prefix_keys wanted = { .n_pages = N_CHAIN, .n_extras = N_CHAIN, .extra = keys };
	uint32_t pool = add_long_pool(0, keys);
	const struct region_header *header = core_pool_view(core_fixture.core, pool)->header;
	struct prefix_position at = prefix_root(core_pool_view(core_fixture.core, pool));
	paged_seq_id seq = lose_nodes(pool, keys);
	uint64_t n_orphaned;

	cr_assert_eq(prefix_find(core_pool_view(core_fixture.core, pool), &wanted, &at, NULL), 0);
	cr_assert_eq(atomic_load(&header->n_orphaned), NODES_AT_ONCE);
	cr_assert(core_tick_needed(core_fixture.core));
	/* Meanwhile the sequence goes on as before. */
	cr_assert_eq(sharing_publish_keys(seq, 0, N_CHAIN, keys), N_CHAIN);
	for (n_orphaned = NODES_AT_ONCE; core_tick(core_fixture.core, 500); n_orphaned += 500) {
		cr_assert_leq(atomic_load(&header->n_orphaned), n_orphaned + 500);
		expect_accounting();
	}
	cr_assert_eq(atomic_load(&header->n_orphaned), N_CHAIN - 1);
	cr_assert(!core_tick_needed(core_fixture.core));
	expect_seq(seq, N_CHAIN, 0);
	cr_assert_eq(sharing_publish_keys(seq, 0, N_CHAIN, keys), N_CHAIN);
	at = prefix_root(core_pool_view(core_fixture.core, pool));
	cr_assert_eq(prefix_find(core_pool_view(core_fixture.core, pool), &wanted, &at, NULL), N_CHAIN);
	expect_accounting();
}

/* The pages of lost nodes become free: a tick evicts only what is lacking then. */
Test(core_buckets, a_tick_frees_lost_pages_before_it_evicts)
{
	static prefix_key keys[N_CHAIN], others[8];
	uint32_t pool = add_long_pool(2 * N_CHAIN - 8, keys);
	const struct region_header *header = core_pool_view(core_fixture.core, pool)->header;
	paged_seq_id seq = fixture_create(fixture_session, pool);
	uint64_t n_evicted;

	memset(others, 'a', sizeof(others));
	expect_ok(fixture_reserve(fixture_session, seq, 8));
	cr_assert_eq(sharing_publish_keys(seq, 0, 8, others), 8);
	expect_ok(fixture_erase(fixture_session, lose_nodes(pool, keys)));
	expect_ok(fixture_erase(fixture_session, seq));
	n_evicted = atomic_load(&header->n_evicted);
	cr_assert_lt(core_pool_n_free(core_fixture.core->pools[pool]), 2 * N_CHAIN - 8);
	while (core_tick(core_fixture.core, 4 * N_CHAIN))
		;
	cr_assert_eq(atomic_load(&header->n_evicted), n_evicted);
	expect_counts(pool, 2 * N_CHAIN - 8, 0, 0);
	expect_accounting();
}
