/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core against a naive model: random valid and invalid operations.  After
 * each, page tables, order of the free list, page accounting and errors must
 * agree, and the checks must pass.
 *
 * The model stores the exact pages of each active session's sequences.
 * The core frees the pages of ended sessions ("limbo") in an order that the
 * model does not know; the model requires that no page is freed too early, no
 * step exceeds its budget, and finally all pages are free.
 *
 * PAGED_SEED and PAGED_OPERATIONS change the run.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/core/core_fixture.h"

#define N_POOLS 3
#define MAX_PAGES 24
#define MAX_SEQS 8 /* in a pool, at most */
#define MAX_SESSIONS 5
#define MAX_MEMBERS 3
#define MAX_ITEMS 4

static const struct {
	uint32_t n_pages, page_size, n_slots, max_length;
} shapes[N_POOLS] = { { 24, 4, 8, 64 }, { 5, 1, 3, 6 }, { 17, 3, 6, 40 } };

struct model_seq {
	bool live; /* of an active session */
	paged_seq_id id;
	uint32_t session;
	uint32_t n_pages;
	uint32_t pages[MAX_PAGES];
};

struct model_pool {
	uint32_t n_free;
	uint32_t free[MAX_PAGES];
	uint32_t limbo[MAX_PAGES];       /* per page: the ended session that left it, or 0 */
	struct model_seq seqs[MAX_SEQS]; /* by slot */
};

struct model_session {
	uint32_t id; /* 0: none */
	bool active, outlives;
	uint32_t members[MAX_MEMBERS]; /* 0: none; the first ends it, unless it outlives that */
};

static struct {
	struct fixture f;
	struct model_pool pools[N_POOLS];
	struct model_session sessions[MAX_SESSIONS];
	uint32_t last_session;
	uint64_t random;
	uint64_t operation;
	uint64_t n_done, n_refused;
	struct paged_error error;
	struct core_audit *audit; /* of the state when it began */
	uint32_t audited;
	struct paged_check_result accounting;
	uint64_t n_audits;
} m;

#define check(condition)                                                                                             \
	do {                                                                                                         \
		if (!(condition))                                                                                    \
			cr_assert_fail("operation %" PRIu64 ", line %d: %s (last error: %s)", m.operation, __LINE__, \
				       #condition, m.error.text);                                                    \
	} while (0)

static uint32_t
random_below(uint32_t n)
{
	uint64_t z = (m.random += 0x9E3779B97F4A7C15ull);

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return (uint32_t)((z ^ (z >> 31)) >> 11) % n;
}

/* Statuses that a wrong request may be answered with, as bits: which is found first is the core's affair. */
static uint32_t
bit(enum paged_status status)
{
	return 1u << status;
}

static void
check_status(enum paged_status status, uint32_t wrongs)
{
	if (wrongs == 0) {
		check(status == PAGED_OK);
		m.n_done++;
	} else {
		check(status != PAGED_OK && (wrongs & bit(status)) != 0);
		check(m.error.status == status && m.error.text[0] != '\0');
		m.n_refused++;
	}
}

static struct model_session *
random_session(void)
{
	return &m.sessions[random_below(MAX_SESSIONS)];
}

/* Who asks for sequences: seldom one that may not. */
static struct model_session *
random_asker(void)
{
	struct model_session *session = random_session();

	for (int tries = 0; !session->active && tries < 6; tries++)
		session = random_session();
	return session;
}

static uint32_t
n_members(const struct model_session *session)
{
	uint32_t n = 0;

	for (int i = 0; i < MAX_MEMBERS; i++)
		n += session->members[i] != 0;
	return n;
}

static struct model_session *
session_by_id(uint32_t id)
{
	for (int i = 0; i < MAX_SESSIONS; i++)
		if (m.sessions[i].id == id)
			return &m.sessions[i];
	return NULL;
}

/* Sessions */

static void
open_session(void)
{
	struct model_session *session = random_session();
	uint32_t id, member;

	if (session->id != 0)
		return;
	check_status(core_session_open(m.f.core, &id, &member, &m.error), 0);
	check(id == m.last_session + 1);
	m.last_session = id;
	*session = (struct model_session){
		.id = id, .active = true, .outlives = random_below(2) == 0, .members = { member }
	};
	if (session->outlives)
		core_session_outlive(m.f.core, id);
}

static void
join_session(void)
{
	struct model_session *session = random_session();
	uint32_t member;

	if (session->active && n_members(session) == MAX_MEMBERS)
		return;
	check_status(core_session_join(m.f.core, session->id, &member, &m.error),
		     session->active ? 0 : bit(PAGED_ERR_GONE));
	for (int i = session->outlives ? 0 : 1; session->active && i < MAX_MEMBERS; i++) {
		if (session->members[i] == 0) {
			session->members[i] = member;
			break;
		}
	}
}

/* Its sequences are nobody's now, its pages in limbo. */
static void
model_end(struct model_session *session)
{
	if (!session->active)
		return;
	session->active = false;
	for (uint32_t p = 0; p < N_POOLS; p++) {
		for (uint32_t s = 0; s < MAX_SEQS; s++) {
			struct model_seq *seq = &m.pools[p].seqs[s];

			if (!seq->live || seq->session != session->id)
				continue;
			seq->live = false;
			for (uint32_t i = 0; i < seq->n_pages; i++)
				m.pools[p].limbo[seq->pages[i]] = session->id;
		}
	}
}

static void
leave_session(void)
{
	struct model_session *session = random_session();
	uint32_t i = random_below(MAX_MEMBERS), member = session->members[i];

	check(member == 0 || core_member_session(m.f.core, member) == session->id);
	core_member_leave(m.f.core, member);
	check(core_member_session(m.f.core, member) == 0);
	session->members[i] = 0;
	if (member != 0 && (session->outlives ? n_members(session) == 0 : i == 0))
		model_end(session);
	m.n_done++;
}

static void
kick_session(void)
{
	struct model_session *session = random_session();

	if (session->id == 0) {
		check_status(core_session_end(m.f.core, m.last_session + 1, &m.error), bit(PAGED_ERR_NOENT));
	} else if (n_members(session) > 0) {
		check_status(core_session_end(m.f.core, session->id, &m.error), 0);
		model_end(session);
	}
}

/* Whatever became free was in the limbo of a session without members; it is free in the core's order. */
static uint32_t
adopt_free(struct model_pool *pool, uint32_t p)
{
	uint32_t pages[MAX_PAGES], n_freed;
	struct paged_pool_entry status;

	core_pool_status(m.f.core, p, &status);
	core_pool_free_list(m.f.core, p, pages);
	check(status.n_free >= pool->n_free);
	check(memcmp(pages, pool->free, pool->n_free * sizeof(*pages)) == 0);
	n_freed = status.n_free - pool->n_free;
	for (; pool->n_free < status.n_free; pool->n_free++) {
		uint32_t page = pages[pool->n_free];
		const struct model_session *left = session_by_id(pool->limbo[page]);

		check(pool->limbo[page] != 0 && left != NULL && !left->active && n_members(left) == 0);
		pool->limbo[page] = 0;
		pool->free[pool->n_free] = page;
	}
	return n_freed;
}

static void
reap(void)
{
	uint32_t budget = random_below(3) == 0 ? 0 : 1 + random_below(6), n_freed = 0;
	bool more = core_reap(m.f.core, budget);

	for (uint32_t p = 0; p < N_POOLS; p++)
		n_freed += adopt_free(&m.pools[p], p);
	check(budget == 0 || n_freed <= budget);
	check(budget != 0 || !more);
	m.n_done++;
	if (more)
		return;
	/* All is done that can be: what has no members has nothing left and is no more. */
	for (uint32_t i = 0; i < MAX_SESSIONS; i++) {
		struct model_session *session = &m.sessions[i];

		if (session->active || session->id == 0 || n_members(session) > 0)
			continue;
		for (uint32_t p = 0; p < N_POOLS; p++)
			for (uint32_t page = 0; page < shapes[p].n_pages; page++)
				check(m.pools[p].limbo[page] != session->id);
		session->id = 0;
	}
	for (uint32_t p = 0; p < N_POOLS; p++) {
		struct paged_pool_entry status;
		uint32_t n_live = 0, n_limbo = 0;

		for (uint32_t s = 0; s < MAX_SEQS; s++)
			n_live += m.pools[p].seqs[s].live;
		for (uint32_t page = 0; page < shapes[p].n_pages; page++)
			n_limbo += m.pools[p].limbo[page] != 0;
		core_pool_status(m.f.core, p, &status);
		check(status.n_sequences == n_live);
		check(status.n_quarantined == n_limbo);
	}
}

/* Sequences */

static uint32_t
pages_for(uint32_t pool, uint32_t tokens)
{
	return (tokens + shapes[pool].page_size - 1) / shapes[pool].page_size;
}

static void
model_take(struct model_pool *pool, struct model_seq *seq, uint32_t want)
{
	pool->n_free -= want - seq->n_pages;
	memcpy(&seq->pages[seq->n_pages], &pool->free[pool->n_free], (want - seq->n_pages) * sizeof(uint32_t));
	seq->n_pages = want;
}

static void
create(void)
{
	const struct model_session *session = random_asker();
	uint32_t n = random_below(4), wrongs = 0, slots[N_POOLS] = { 0 }, needs[N_POOLS] = { 0 };
	struct paged_pool_entry status;
	struct seq_spec specs[3];
	paged_seq_id ids[3];

	if (!session->active)
		wrongs |= bit(PAGED_ERR_GONE);
	if (n == 0)
		wrongs |= bit(PAGED_ERR_INVALID);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t p = random_below(N_POOLS);

		specs[i] = (struct seq_spec){ .pool = p, .tag = random_below(2) == 0 ? "" : "tag" };
		if (random_below(2) == 0)
			specs[i].n_tokens = random_below(shapes[p].max_length / (1 + random_below(6)) + 2);
		if (specs[i].n_tokens > shapes[p].max_length)
			wrongs |= bit(PAGED_ERR_LIMIT);
		slots[p]++;
		needs[p] += pages_for(p, specs[i].n_tokens);
	}
	for (uint32_t p = 0; p < N_POOLS; p++) {
		core_pool_status(m.f.core, p, &status);
		if (slots[p] > status.n_slots - status.n_sequences || needs[p] > m.pools[p].n_free)
			wrongs |= bit(PAGED_ERR_FULL);
	}
	check_status(core_seq_create(m.f.core, session->id, n, specs, ids, &m.error), wrongs);
	for (uint32_t i = 0; wrongs == 0 && i < n; i++) {
		uint32_t p = PAGED_SEQ_POOL(ids[i]);
		struct model_seq *seq = &m.pools[p].seqs[PAGED_SEQ_SLOT(ids[i])];
		struct paged_seq_entry entry;

		check(p == specs[i].pool && core_seq_status(m.f.core, ids[i], &entry, &m.error) == PAGED_OK &&
		      strcmp(entry.tag, specs[i].tag) == 0);
		check(PAGED_SEQ_SLOT(ids[i]) < shapes[p].n_slots && !seq->live);
		check(PAGED_SEQ_GENERATION(ids[i]) > PAGED_SEQ_GENERATION(seq->id));
		*seq = (struct model_seq){ .live = true, .id = ids[i], .session = session->id };
		model_take(&m.pools[p], seq, pages_for(p, specs[i].n_tokens));
	}
}

/* Mostly the session's own sequences, each once; now and then anything. */
static uint32_t
random_items(const struct model_session *session, struct paged_seq_item *items)
{
	uint32_t n = random_below(16) == 0 ? 0 : 1 + random_below(MAX_ITEMS), n_found = 0;
	bool wild = random_below(8) == 0;

	for (uint32_t tries = 0; n_found < n && tries < 24; tries++) {
		uint32_t p = random_below(N_POOLS);
		const struct model_seq *seq = &m.pools[p].seqs[random_below(shapes[p].n_slots)];
		bool known = false;

		for (uint32_t i = 0; i < n_found; i++)
			known = known || items[i].seq == seq->id;
		if (wild || (seq->live && seq->session == session->id && !known))
			items[n_found++] = (struct paged_seq_item){ .seq = seq->id };
	}
	if (wild && n_found > 0 && random_below(4) == 0)
		items[0].seq |= PAGED_SEQ(1, N_POOLS, 0);
	if (wild && n_found > 0 && random_below(4) == 0)
		items[0].seq ^= (paged_seq_id)(1 + random_below(3)) << (random_below(2) == 0 ? 32 : 0);
	return n_found;
}

/* The model's sequence of an item; NULL when it is none, or an ended session's. */
static struct model_seq *
seq_of(const struct paged_seq_item *item)
{
	struct model_seq *seq;
	uint32_t p = PAGED_SEQ_POOL(item->seq);

	if (p >= N_POOLS || PAGED_SEQ_SLOT(item->seq) >= shapes[p].n_slots)
		return NULL;
	seq = &m.pools[p].seqs[PAGED_SEQ_SLOT(item->seq)];
	return seq->live && seq->id == item->seq ? seq : NULL;
}

static uint32_t
wrongs_of_items(const struct model_session *session, uint32_t n, const struct paged_seq_item *items)
{
	uint32_t wrongs = 0;

	if (!session->active)
		wrongs |= bit(PAGED_ERR_GONE);
	if (n == 0)
		wrongs |= bit(PAGED_ERR_INVALID);
	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = seq_of(&items[i]);

		if (PAGED_SEQ_GENERATION(items[i].seq) == 0)
			wrongs |= bit(PAGED_ERR_INVALID);
		else if (PAGED_SEQ_POOL(items[i].seq) >= N_POOLS)
			wrongs |= bit(PAGED_ERR_NOENT);
		else if (seq == NULL) /* an ended session's may not be reaped yet */
			wrongs |= bit(PAGED_ERR_STALE) | bit(PAGED_ERR_PERM);
		else if (seq->session != session->id)
			wrongs |= bit(PAGED_ERR_PERM);
		for (uint32_t j = 0; j < i; j++)
			if (items[j].seq == items[i].seq)
				wrongs |= bit(PAGED_ERR_INVALID);
	}
	return wrongs;
}

static void
reserve(void)
{
	const struct model_session *session = random_asker();
	struct paged_seq_item items[MAX_ITEMS];
	uint32_t n = random_items(session, items), wrongs = wrongs_of_items(session, n, items);
	uint32_t needs[N_POOLS] = { 0 }, ahead[N_POOLS] = { 0 }, spare[N_POOLS];
	uint32_t want[MAX_ITEMS] = { 0 }, want_ahead[MAX_ITEMS] = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = seq_of(&items[i]);
		uint32_t p = PAGED_SEQ_POOL(items[i].seq), has = seq == NULL ? 0 : seq->n_pages, most;

		if (p >= N_POOLS)
			continue;
		items[i].n_tokens = random_below(shapes[p].max_length / (1 + random_below(6)) + 2);
		if (random_below(3) == 0)
			items[i].n_ahead = random_below(2 * shapes[p].max_length);
		if (items[i].n_tokens > shapes[p].max_length)
			wrongs |= bit(PAGED_ERR_LIMIT);
		want[i] = pages_for(p, items[i].n_tokens) > has ? pages_for(p, items[i].n_tokens) : has;
		needs[p] += want[i] - has;
		most = items[i].n_tokens + items[i].n_ahead;
		most = pages_for(p, most < shapes[p].max_length ? most : shapes[p].max_length);
		want_ahead[i] = most > want[i] ? most - want[i] : 0;
		ahead[p] += want_ahead[i];
	}
	for (uint32_t p = 0; p < N_POOLS; p++) {
		uint32_t keep = needs[p] + shapes[p].n_pages / 8;

		spare[p] = m.pools[p].n_free > keep ? m.pools[p].n_free - keep : 0;
	}
	for (uint32_t p = 0; p < N_POOLS; p++)
		if (needs[p] > m.pools[p].n_free)
			wrongs |= bit(PAGED_ERR_FULL);
	check_status(core_seq_reserve(m.f.core, session->id, n, items, &m.error), wrongs);
	for (uint32_t i = 0; wrongs == 0 && i < n; i++) {
		uint32_t p = PAGED_SEQ_POOL(items[i].seq);

		if (ahead[p] > spare[p])
			want_ahead[i] = want_ahead[i] * spare[p] / ahead[p];
		model_take(&m.pools[p], seq_of(&items[i]), want[i] + want_ahead[i]);
	}
}

static void
model_give_back(struct model_pool *pool, struct model_seq *seq, uint32_t n_keep)
{
	for (uint32_t i = n_keep; i < seq->n_pages; i++)
		pool->free[pool->n_free++] = seq->pages[i];
	if (n_keep < seq->n_pages)
		seq->n_pages = n_keep;
}

static void
truncate_some(void)
{
	const struct model_session *session = random_asker();
	struct paged_seq_item items[MAX_ITEMS];
	uint32_t n = random_items(session, items), wrongs = wrongs_of_items(session, n, items);

	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = seq_of(&items[i]);
		uint32_t capacity = seq == NULL ? 8 : seq->n_pages * shapes[PAGED_SEQ_POOL(items[i].seq)].page_size;

		items[i].n_tokens = random_below(capacity + 1 + (random_below(16) == 0));
		if (items[i].n_tokens > capacity)
			wrongs |= bit(PAGED_ERR_CAPACITY);
	}
	check_status(core_seq_truncate(m.f.core, session->id, n, items, &m.error), wrongs);
	for (uint32_t i = 0; wrongs == 0 && i < n; i++)
		model_give_back(&m.pools[PAGED_SEQ_POOL(items[i].seq)], seq_of(&items[i]),
				pages_for(PAGED_SEQ_POOL(items[i].seq), items[i].n_tokens));
}

static void
erase(void)
{
	const struct model_session *session = random_asker();
	struct paged_seq_item items[MAX_ITEMS];
	uint32_t n = random_items(session, items), wrongs = wrongs_of_items(session, n, items);
	paged_seq_id ids[MAX_ITEMS];

	for (uint32_t i = 0; i < n; i++)
		ids[i] = items[i].seq;
	check_status(core_seq_erase(m.f.core, session->id, n, ids, &m.error), wrongs);
	for (uint32_t i = 0; wrongs == 0 && i < n; i++) {
		struct model_seq *seq = seq_of(&items[i]);

		model_give_back(&m.pools[PAGED_SEQ_POOL(items[i].seq)], seq, 0);
		seq->live = false;
	}
}

/* An audit takes any number of steps, among all the rest, and reports the accounting as of its beginning. */
static void
audit(void)
{
	struct paged_check_result accounting;

	if (m.audit == NULL) {
		m.audited = random_below(N_POOLS);
		check(region_check(core_pool_view(m.f.core, m.audited), &m.accounting, &m.error) == PAGED_OK);
		check(core_audit_begin(m.f.core, m.audited, &m.audit, &m.error) == PAGED_OK);
		check(core_audit_begin(m.f.core, m.audited, &m.audit, &m.error) == PAGED_ERR_AGAIN);
	} else if (!core_audit_step(m.audit, 1 + random_below(4))) {
		check(core_audit_end(m.audit, &accounting, &m.error) == PAGED_OK);
		check(memcmp(&accounting, &m.accounting, sizeof(accounting)) == 0);
		m.audit = NULL;
		m.n_audits++;
	}
}

/* Comparing */

static void
compare_pool(uint32_t p)
{
	const struct model_pool *pool = &m.pools[p];
	const struct region_view *view = core_pool_view(m.f.core, p);
	struct paged_pool_entry status;
	struct paged_check_result accounting;
	uint32_t pages[MAX_PAGES];

	if (m.audit == NULL || p != m.audited)
		check(core_check(m.f.core, p, &accounting, &m.error) == PAGED_OK);
	check(region_check(view, &accounting, &m.error) == PAGED_OK);
	core_pool_status(m.f.core, p, &status);
	check(status.n_free == pool->n_free && accounting.n_free == pool->n_free);
	check(status.n_referenced == accounting.n_referenced && status.n_quarantined == accounting.n_quarantined);
	core_pool_free_list(m.f.core, p, pages);
	check(memcmp(pages, pool->free, pool->n_free * sizeof(*pages)) == 0);
	for (uint32_t s = 0; s < shapes[p].n_slots; s++) {
		const struct model_seq *seq = &pool->seqs[s];
		struct region_snapshot snapshot;

		if (!seq->live)
			continue;
		check(region_snapshot_begin(view, seq->id, &snapshot) == REGION_READ);
		check(snapshot.owner == seq->session && snapshot.capacity == seq->n_pages * shapes[p].page_size);
		check(fixture_row(&m.f, p, seq->id, pages) == seq->n_pages);
		check(memcmp(pages, seq->pages, seq->n_pages * sizeof(*pages)) == 0);
	}
}

static void
compare_sessions(void)
{
	struct paged_session_entry status = { .session = 0 };

	while (core_session_next(m.f.core, status.session, &status)) {
		const struct model_session *session = session_by_id(status.session);
		uint32_t n_sequences = 0, n_pages = 0;

		check(session != NULL && session->active == !status.ended);
		for (uint32_t i = 0; i < MAX_MEMBERS; i++)
			check(session->members[i] == 0 ||
			      core_member_session(m.f.core, session->members[i]) == session->id);
		for (uint32_t p = 0; p < N_POOLS; p++) {
			for (uint32_t s = 0; s < MAX_SEQS; s++) {
				const struct model_seq *seq = &m.pools[p].seqs[s];

				if (seq->live && seq->session == session->id) {
					n_sequences++;
					n_pages += seq->n_pages;
				}
			}
			for (uint32_t page = 0; page < shapes[p].n_pages; page++)
				n_pages += m.pools[p].limbo[page] == session->id;
		}
		check(status.n_pages + status.n_quarantined == n_pages);
		check(!session->active || (status.n_sequences == n_sequences && status.n_quarantined == 0));
	}
}

static void
start(void)
{
	static const char *const names[N_POOLS] = { "first", "second", "third" };

	memset(&m, 0, sizeof(m));
	fixture_open(&m.f);
	for (uint32_t p = 0; p < N_POOLS; p++) {
		fixture_add_pool(&m.f, names[p], shapes[p].n_pages, shapes[p].page_size, shapes[p].n_slots,
				 shapes[p].max_length);
		for (uint32_t i = 0; i < shapes[p].n_pages; i++)
			m.pools[p].free[i] = shapes[p].n_pages - 1 - i;
		m.pools[p].n_free = shapes[p].n_pages;
	}
}

static uint64_t
number_of_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text == NULL ? otherwise : strtoull(text, NULL, 0);
}

Test(core_model, random_operations)
{
	static void (*const operations[])(void) = {
		open_session, open_session, join_session, leave_session, kick_session,  reap,          reap,
		reap,         reap,         create,       create,        create,        reserve,       reserve,
		reserve,      reserve,      reserve,      reserve,       truncate_some, truncate_some, erase,
		erase,        audit,        audit,        audit,         audit,
	};
	uint64_t seed = number_of_environment("PAGED_SEED", (uint64_t)time(NULL));
	uint64_t n = number_of_environment("PAGED_OPERATIONS", 1000000);

	printf("# PAGED_SEED=%" PRIu64 "\n", seed);
	fflush(stdout);
	start();
	m.random = seed;
	for (m.operation = 0; m.operation < n; m.operation++) {
		operations[random_below(sizeof(operations) / sizeof(operations[0]))]();
		for (uint32_t p = 0; p < N_POOLS; p++)
			compare_pool(p);
		compare_sessions();
	}
	printf("# %" PRIu64 " done, %" PRIu64 " refused, %" PRIu64 " audits\n", m.n_done, m.n_refused, m.n_audits);
	if (m.audit != NULL)
		core_audit_abandon(m.audit);
	fixture_close(&m.f);
}
