/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core against a naive model: random valid and invalid operations.  After
 * each, page tables, order of the free list, page accounting and errors must
 * agree, and the checks must pass.
 *
 * The model stores the exact pages of each active session's sequences.
 * The core frees the pages of ended sessions ("quarantine") in an order that the
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
} geometries[N_POOLS] = { { 24, 4, 8, 64 }, { 5, 1, 3, 6 }, { 17, 3, 6, 40 } };

struct model_seq {
	bool live; /* its session is active */
	paged_seq_id id;
	uint32_t session;
	uint32_t n_pages;
	uint32_t pages[MAX_PAGES];
};

struct model_pool {
	uint32_t n_free;
	uint32_t free[MAX_PAGES];
	uint32_t quarantine[MAX_PAGES];  /* per page: the ended session that it belonged to, or 0 */
	struct model_seq seqs[MAX_SEQS]; /* by slot */
};

struct model_session {
	uint32_t id; /* 0: none */
	bool active, outlives;
	uint32_t members[MAX_MEMBERS]; /* 0: none; if not outlives, the session ends with the first */
};

static struct {
	struct core_fixture fixture;
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
} model;

#define model_check(condition)                                                                                 \
	do {                                                                                                   \
		if (!(condition))                                                                              \
			cr_assert_fail("operation %" PRIu64 ", line %d: %s (last error: %s)", model.operation, \
				       __LINE__, #condition, model.error.text);                                \
	} while (0)

static uint32_t
random_below(uint32_t n)
{
	uint64_t z = (model.random += 0x9E3779B97F4A7C15ull);

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return (uint32_t)((z ^ (z >> 31)) >> 11) % n;
}

/* A set of statuses as bits: a request with several errors may fail with the status of any of them. */
static uint32_t
status_bit(enum paged_status status)
{
	return 1u << status;
}

static void
model_check_status(enum paged_status status, uint32_t errors)
{
	if (errors == 0) {
		model_check(status == PAGED_OK);
		model.n_done++;
	} else {
		model_check(status != PAGED_OK && (errors & status_bit(status)) != 0);
		model_check(model.error.status == status && model.error.text[0] != '\0');
		model.n_refused++;
	}
}

static struct model_session *
random_session(void)
{
	return &model.sessions[random_below(MAX_SESSIONS)];
}

/* The session that makes a request; rarely one that has ended. */
static struct model_session *
random_requester(void)
{
	struct model_session *session = random_session();

	for (int tries = 0; !session->active && tries < 6; tries++)
		session = random_session();
	return session;
}

static uint32_t
count_members(const struct model_session *session)
{
	uint32_t n = 0;

	for (int i = 0; i < MAX_MEMBERS; i++)
		n += session->members[i] != 0;
	return n;
}

static struct model_session *
model_session_find(uint32_t id)
{
	for (int i = 0; i < MAX_SESSIONS; i++)
		if (model.sessions[i].id == id)
			return &model.sessions[i];
	return NULL;
}

/* Sessions */

static void
random_session_open(void)
{
	struct model_session *session = random_session();
	uint32_t id, member;

	if (session->id != 0)
		return;
	model_check_status(core_session_open(model.fixture.core, &id, &member, &model.error), 0);
	model_check(id == model.last_session + 1);
	model.last_session = id;
	*session = (struct model_session){
		.id = id, .active = true, .outlives = random_below(2) == 0, .members = { member }
	};
	if (session->outlives)
		core_session_outlive(model.fixture.core, id);
}

static void
random_session_join(void)
{
	struct model_session *session = random_session();
	uint32_t member;

	if (session->active && count_members(session) == MAX_MEMBERS)
		return;
	model_check_status(core_session_join(model.fixture.core, session->id, &member, &model.error),
			   session->active ? 0 : status_bit(PAGED_ERR_GONE));
	for (int i = session->outlives ? 0 : 1; session->active && i < MAX_MEMBERS; i++) {
		if (session->members[i] == 0) {
			session->members[i] = member;
			break;
		}
	}
}

/* The session's sequences have no owner, and its pages are in quarantine. */
static void
model_session_end(struct model_session *session)
{
	if (!session->active)
		return;
	session->active = false;
	for (uint32_t p = 0; p < N_POOLS; p++) {
		for (uint32_t s = 0; s < MAX_SEQS; s++) {
			struct model_seq *seq = &model.pools[p].seqs[s];

			if (!seq->live || seq->session != session->id)
				continue;
			seq->live = false;
			for (uint32_t i = 0; i < seq->n_pages; i++)
				model.pools[p].quarantine[seq->pages[i]] = session->id;
		}
	}
}

static void
random_member_leave(void)
{
	struct model_session *session = random_session();
	uint32_t i = random_below(MAX_MEMBERS), member = session->members[i];

	model_check(member == 0 || core_member_session(model.fixture.core, member) == session->id);
	core_member_leave(model.fixture.core, member);
	model_check(core_member_session(model.fixture.core, member) == 0);
	session->members[i] = 0;
	if (member != 0 && (session->outlives ? count_members(session) == 0 : i == 0))
		model_session_end(session);
	model.n_done++;
}

static void
random_session_end(void)
{
	struct model_session *session = random_session();

	if (session->id == 0) {
		model_check_status(core_session_end(model.fixture.core, model.last_session + 1, &model.error),
				   status_bit(PAGED_ERR_NOENT));
	} else if (count_members(session) > 0) {
		model_check_status(core_session_end(model.fixture.core, session->id, &model.error), 0);
		model_session_end(session);
	}
}

/* Pages that became free were in quarantine, of a session without members; the core decides their order. */
static uint32_t
model_adopt_free(struct model_pool *pool, uint32_t p)
{
	uint32_t pages[MAX_PAGES], n_freed;
	struct paged_pool_entry status;

	core_pool_status(model.fixture.core, p, &status);
	core_pool_free_list(model.fixture.core, p, pages);
	model_check(status.n_free >= pool->n_free);
	model_check(memcmp(pages, pool->free, pool->n_free * sizeof(*pages)) == 0);
	n_freed = status.n_free - pool->n_free;
	for (; pool->n_free < status.n_free; pool->n_free++) {
		uint32_t page = pages[pool->n_free];
		const struct model_session *left = model_session_find(pool->quarantine[page]);

		model_check(pool->quarantine[page] != 0 && left != NULL && !left->active && count_members(left) == 0);
		pool->quarantine[page] = 0;
		pool->free[pool->n_free] = page;
	}
	return n_freed;
}

static void
random_reap(void)
{
	uint32_t budget = random_below(3) == 0 ? 0 : 1 + random_below(6), n_freed = 0;
	bool more = core_reap(model.fixture.core, budget);

	for (uint32_t p = 0; p < N_POOLS; p++)
		n_freed += model_adopt_free(&model.pools[p], p);
	model_check(budget == 0 || n_freed <= budget);
	model_check(budget != 0 || !more);
	model.n_done++;
	if (more)
		return;
	/* Nothing is left to reap: sessions without members have no pages, and no longer exist. */
	for (uint32_t i = 0; i < MAX_SESSIONS; i++) {
		struct model_session *session = &model.sessions[i];

		if (session->active || session->id == 0 || count_members(session) > 0)
			continue;
		for (uint32_t p = 0; p < N_POOLS; p++)
			for (uint32_t page = 0; page < geometries[p].n_pages; page++)
				model_check(model.pools[p].quarantine[page] != session->id);
		session->id = 0;
	}
	for (uint32_t p = 0; p < N_POOLS; p++) {
		struct paged_pool_entry status;
		uint32_t n_live = 0, n_quarantined = 0;

		for (uint32_t s = 0; s < MAX_SEQS; s++)
			n_live += model.pools[p].seqs[s].live;
		for (uint32_t page = 0; page < geometries[p].n_pages; page++)
			n_quarantined += model.pools[p].quarantine[page] != 0;
		core_pool_status(model.fixture.core, p, &status);
		model_check(status.n_sequences == n_live);
		model_check(status.n_quarantined == n_quarantined);
	}
}

/* Sequences */

static uint32_t
pages_of_tokens(uint32_t pool, uint32_t tokens)
{
	return (tokens + geometries[pool].page_size - 1) / geometries[pool].page_size;
}

static void
model_pool_take(struct model_pool *pool, struct model_seq *seq, uint32_t want)
{
	pool->n_free -= want - seq->n_pages;
	memcpy(&seq->pages[seq->n_pages], &pool->free[pool->n_free], (want - seq->n_pages) * sizeof(uint32_t));
	seq->n_pages = want;
}

static void
random_create(void)
{
	const struct model_session *session = random_requester();
	uint32_t n = random_below(4), errors = 0, slots[N_POOLS] = { 0 }, needs[N_POOLS] = { 0 };
	struct paged_pool_entry status;
	struct seq_spec specs[3];
	paged_seq_id ids[3];

	if (!session->active)
		errors |= status_bit(PAGED_ERR_GONE);
	if (n == 0)
		errors |= status_bit(PAGED_ERR_INVALID);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t p = random_below(N_POOLS);

		specs[i] = (struct seq_spec){ .pool = p, .tag = random_below(2) == 0 ? "" : "tag" };
		if (random_below(2) == 0)
			specs[i].n_tokens = random_below(geometries[p].max_length / (1 + random_below(6)) + 2);
		if (specs[i].n_tokens > geometries[p].max_length)
			errors |= status_bit(PAGED_ERR_LIMIT);
		slots[p]++;
		needs[p] += pages_of_tokens(p, specs[i].n_tokens);
	}
	for (uint32_t p = 0; p < N_POOLS; p++) {
		core_pool_status(model.fixture.core, p, &status);
		if (slots[p] > status.n_slots - status.n_sequences || needs[p] > model.pools[p].n_free)
			errors |= status_bit(PAGED_ERR_FULL);
	}
	model_check_status(core_seq_create(model.fixture.core, session->id, n, specs, ids, &model.error), errors);
	for (uint32_t i = 0; errors == 0 && i < n; i++) {
		uint32_t p = PAGED_SEQ_POOL(ids[i]);
		struct model_seq *seq = &model.pools[p].seqs[PAGED_SEQ_SLOT(ids[i])];
		struct paged_seq_entry entry;

		model_check(p == specs[i].pool &&
			    core_seq_status(model.fixture.core, ids[i], &entry, &model.error) == PAGED_OK &&
			    strcmp(entry.tag, specs[i].tag) == 0);
		model_check(PAGED_SEQ_SLOT(ids[i]) < geometries[p].n_slots && !seq->live);
		model_check(PAGED_SEQ_GENERATION(ids[i]) > PAGED_SEQ_GENERATION(seq->id));
		*seq = (struct model_seq){ .live = true, .id = ids[i], .session = session->id };
		model_pool_take(&model.pools[p], seq, pages_of_tokens(p, specs[i].n_tokens));
	}
}

/* Usually sequences of the session, each once; sometimes ids of any kind. */
static uint32_t
random_items(const struct model_session *session, struct paged_seq_item *items)
{
	uint32_t n = random_below(16) == 0 ? 0 : 1 + random_below(MAX_ITEMS), n_found = 0;
	bool invalid = random_below(8) == 0;

	for (uint32_t tries = 0; n_found < n && tries < 24; tries++) {
		uint32_t p = random_below(N_POOLS);
		const struct model_seq *seq = &model.pools[p].seqs[random_below(geometries[p].n_slots)];
		bool known = false;

		for (uint32_t i = 0; i < n_found; i++)
			known = known || items[i].seq == seq->id;
		if (invalid || (seq->live && seq->session == session->id && !known))
			items[n_found++] = (struct paged_seq_item){ .seq = seq->id };
	}
	if (invalid && n_found > 0 && random_below(4) == 0)
		items[0].seq |= PAGED_SEQ(1, N_POOLS, 0);
	if (invalid && n_found > 0 && random_below(4) == 0)
		items[0].seq ^= (paged_seq_id)(1 + random_below(3)) << (random_below(2) == 0 ? 32 : 0);
	return n_found;
}

/* The model's sequence of an item; NULL: the id is invalid, or its session has ended. */
static struct model_seq *
model_seq_find(const struct paged_seq_item *item)
{
	struct model_seq *seq;
	uint32_t p = PAGED_SEQ_POOL(item->seq);

	if (p >= N_POOLS || PAGED_SEQ_SLOT(item->seq) >= geometries[p].n_slots)
		return NULL;
	seq = &model.pools[p].seqs[PAGED_SEQ_SLOT(item->seq)];
	return seq->live && seq->id == item->seq ? seq : NULL;
}

static uint32_t
item_errors(const struct model_session *session, uint32_t n, const struct paged_seq_item *items)
{
	uint32_t errors = 0;

	if (!session->active)
		errors |= status_bit(PAGED_ERR_GONE);
	if (n == 0)
		errors |= status_bit(PAGED_ERR_INVALID);
	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = model_seq_find(&items[i]);

		if (PAGED_SEQ_GENERATION(items[i].seq) == 0)
			errors |= status_bit(PAGED_ERR_INVALID);
		else if (PAGED_SEQ_POOL(items[i].seq) >= N_POOLS)
			errors |= status_bit(PAGED_ERR_NOENT);
		else if (seq == NULL) /* a sequence of an ended session may not have been reaped yet */
			errors |= status_bit(PAGED_ERR_STALE) | status_bit(PAGED_ERR_PERM);
		else if (seq->session != session->id)
			errors |= status_bit(PAGED_ERR_PERM);
		for (uint32_t j = 0; j < i; j++)
			if (items[j].seq == items[i].seq)
				errors |= status_bit(PAGED_ERR_INVALID);
	}
	return errors;
}

static void
random_reserve(void)
{
	const struct model_session *session = random_requester();
	struct paged_seq_item items[MAX_ITEMS];
	uint32_t n = random_items(session, items), errors = item_errors(session, n, items);
	uint32_t needs[N_POOLS] = { 0 }, ahead[N_POOLS] = { 0 }, spare[N_POOLS];
	uint32_t want[MAX_ITEMS] = { 0 }, want_ahead[MAX_ITEMS] = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = model_seq_find(&items[i]);
		uint32_t p = PAGED_SEQ_POOL(items[i].seq), has = seq == NULL ? 0 : seq->n_pages, most;

		if (p >= N_POOLS)
			continue;
		items[i].n_tokens = random_below(geometries[p].max_length / (1 + random_below(6)) + 2);
		if (random_below(3) == 0)
			items[i].n_ahead = random_below(2 * geometries[p].max_length);
		if (items[i].n_tokens > geometries[p].max_length)
			errors |= status_bit(PAGED_ERR_LIMIT);
		want[i] = pages_of_tokens(p, items[i].n_tokens) > has ? pages_of_tokens(p, items[i].n_tokens) : has;
		needs[p] += want[i] - has;
		most = items[i].n_tokens + items[i].n_ahead;
		most = pages_of_tokens(p, most < geometries[p].max_length ? most : geometries[p].max_length);
		want_ahead[i] = most > want[i] ? most - want[i] : 0;
		ahead[p] += want_ahead[i];
	}
	for (uint32_t p = 0; p < N_POOLS; p++) {
		uint32_t keep = needs[p] + geometries[p].n_pages / 8;

		spare[p] = model.pools[p].n_free > keep ? model.pools[p].n_free - keep : 0;
	}
	for (uint32_t p = 0; p < N_POOLS; p++)
		if (needs[p] > model.pools[p].n_free)
			errors |= status_bit(PAGED_ERR_FULL);
	model_check_status(core_seq_reserve(model.fixture.core, session->id, n, items, &model.error), errors);
	for (uint32_t i = 0; errors == 0 && i < n; i++) {
		uint32_t p = PAGED_SEQ_POOL(items[i].seq);

		if (ahead[p] > spare[p])
			want_ahead[i] = want_ahead[i] * spare[p] / ahead[p];
		model_pool_take(&model.pools[p], model_seq_find(&items[i]), want[i] + want_ahead[i]);
	}
}

static void
model_pool_give(struct model_pool *pool, struct model_seq *seq, uint32_t n_keep)
{
	for (uint32_t i = n_keep; i < seq->n_pages; i++)
		pool->free[pool->n_free++] = seq->pages[i];
	if (n_keep < seq->n_pages)
		seq->n_pages = n_keep;
}

static void
random_truncate(void)
{
	const struct model_session *session = random_requester();
	struct paged_seq_item items[MAX_ITEMS];
	uint32_t n = random_items(session, items), errors = item_errors(session, n, items);

	for (uint32_t i = 0; i < n; i++) {
		const struct model_seq *seq = model_seq_find(&items[i]);
		uint32_t capacity = seq == NULL ? 8 : seq->n_pages * geometries[PAGED_SEQ_POOL(items[i].seq)].page_size;

		items[i].n_tokens = random_below(capacity + 1 + (random_below(16) == 0));
		if (items[i].n_tokens > capacity)
			errors |= status_bit(PAGED_ERR_CAPACITY);
	}
	model_check_status(core_seq_truncate(model.fixture.core, session->id, n, items, &model.error), errors);
	for (uint32_t i = 0; errors == 0 && i < n; i++)
		model_pool_give(&model.pools[PAGED_SEQ_POOL(items[i].seq)], model_seq_find(&items[i]),
				pages_of_tokens(PAGED_SEQ_POOL(items[i].seq), items[i].n_tokens));
}

static void
random_erase(void)
{
	const struct model_session *session = random_requester();
	struct paged_seq_item items[MAX_ITEMS];
	uint32_t n = random_items(session, items), errors = item_errors(session, n, items);
	paged_seq_id ids[MAX_ITEMS];

	for (uint32_t i = 0; i < n; i++)
		ids[i] = items[i].seq;
	model_check_status(core_seq_erase(model.fixture.core, session->id, n, ids, &model.error), errors);
	for (uint32_t i = 0; errors == 0 && i < n; i++) {
		struct model_seq *seq = model_seq_find(&items[i]);

		model_pool_give(&model.pools[PAGED_SEQ_POOL(items[i].seq)], seq, 0);
		seq->live = false;
	}
}

/* Steps of an audit run between other operations; its result is the accounting when it began. */
static void
random_audit(void)
{
	struct paged_check_result accounting;

	if (model.audit == NULL) {
		model.audited = random_below(N_POOLS);
		model_check(region_check(core_pool_view(model.fixture.core, model.audited), &model.accounting,
					 &model.error) == PAGED_OK);
		model_check(core_audit_begin(model.fixture.core, model.audited, &model.audit, &model.error) ==
			    PAGED_OK);
		model_check(core_audit_begin(model.fixture.core, model.audited, &model.audit, &model.error) ==
			    PAGED_ERR_AGAIN);
	} else if (!core_audit_step(model.audit, 1 + random_below(4))) {
		model_check(core_audit_end(model.audit, &accounting, &model.error) == PAGED_OK);
		model_check(memcmp(&accounting, &model.accounting, sizeof(accounting)) == 0);
		model.audit = NULL;
		model.n_audits++;
	}
}

/* Comparing */

static void
model_compare_pool(uint32_t p)
{
	const struct model_pool *pool = &model.pools[p];
	const struct region_view *view = core_pool_view(model.fixture.core, p);
	struct paged_pool_entry status;
	struct paged_check_result accounting;
	uint32_t pages[MAX_PAGES];

	if (model.audit == NULL || p != model.audited)
		model_check(core_check(model.fixture.core, p, &accounting, &model.error) == PAGED_OK);
	model_check(region_check(view, &accounting, &model.error) == PAGED_OK);
	core_pool_status(model.fixture.core, p, &status);
	model_check(status.n_free == pool->n_free && accounting.n_free == pool->n_free);
	model_check(status.n_referenced == accounting.n_referenced && status.n_quarantined == accounting.n_quarantined);
	core_pool_free_list(model.fixture.core, p, pages);
	model_check(memcmp(pages, pool->free, pool->n_free * sizeof(*pages)) == 0);
	for (uint32_t s = 0; s < geometries[p].n_slots; s++) {
		const struct model_seq *seq = &pool->seqs[s];
		struct region_snapshot snapshot;

		if (!seq->live)
			continue;
		model_check(region_snapshot_begin(view, seq->id, &snapshot) == REGION_READ);
		model_check(snapshot.owner == seq->session &&
			    snapshot.capacity == seq->n_pages * geometries[p].page_size);
		model_check(core_fixture_page_table(&model.fixture, p, seq->id, pages) == seq->n_pages);
		model_check(memcmp(pages, seq->pages, seq->n_pages * sizeof(*pages)) == 0);
	}
}

static void
model_compare_sessions(void)
{
	struct paged_session_entry status = { .session = 0 };

	while (core_session_next(model.fixture.core, status.session, &status)) {
		const struct model_session *session = model_session_find(status.session);
		uint32_t n_sequences = 0, n_pages = 0;

		model_check(session != NULL && session->active == !status.ended);
		for (uint32_t i = 0; i < MAX_MEMBERS; i++)
			model_check(session->members[i] == 0 ||
				    core_member_session(model.fixture.core, session->members[i]) == session->id);
		for (uint32_t p = 0; p < N_POOLS; p++) {
			for (uint32_t s = 0; s < MAX_SEQS; s++) {
				const struct model_seq *seq = &model.pools[p].seqs[s];

				if (seq->live && seq->session == session->id) {
					n_sequences++;
					n_pages += seq->n_pages;
				}
			}
			for (uint32_t page = 0; page < geometries[p].n_pages; page++)
				n_pages += model.pools[p].quarantine[page] == session->id;
		}
		model_check(status.n_pages + status.n_quarantined == n_pages);
		model_check(!session->active || (status.n_sequences == n_sequences && status.n_quarantined == 0));
	}
}

static void
model_start(void)
{
	static const char *const names[N_POOLS] = { "first", "second", "third" };

	memset(&model, 0, sizeof(model));
	core_fixture_open(&model.fixture);
	for (uint32_t p = 0; p < N_POOLS; p++) {
		core_fixture_add_pool(&model.fixture, names[p], geometries[p].n_pages, geometries[p].page_size,
				      geometries[p].n_slots, geometries[p].max_length);
		for (uint32_t i = 0; i < geometries[p].n_pages; i++)
			model.pools[p].free[i] = geometries[p].n_pages - 1 - i;
		model.pools[p].n_free = geometries[p].n_pages;
	}
}

static uint64_t
number_from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text == NULL ? otherwise : strtoull(text, NULL, 0);
}

Test(core_model, random_operations)
{
	static void (*const operations[])(void) = {
		random_session_open, random_session_open, random_session_join, random_member_leave, random_session_end,
		random_reap,         random_reap,         random_reap,         random_reap,         random_create,
		random_create,       random_create,       random_reserve,      random_reserve,      random_reserve,
		random_reserve,      random_reserve,      random_reserve,      random_truncate,     random_truncate,
		random_erase,        random_erase,        random_audit,        random_audit,        random_audit,
		random_audit,
	};
	uint64_t seed = number_from_environment("PAGED_SEED", (uint64_t)time(NULL));
	uint64_t n = number_from_environment("PAGED_OPERATIONS", 1000000);

	printf("# PAGED_SEED=%" PRIu64 "\n", seed);
	fflush(stdout);
	model_start();
	model.random = seed;
	for (model.operation = 0; model.operation < n; model.operation++) {
		operations[random_below(sizeof(operations) / sizeof(operations[0]))]();
		for (uint32_t p = 0; p < N_POOLS; p++)
			model_compare_pool(p);
		model_compare_sessions();
	}
	printf("# %" PRIu64 " done, %" PRIu64 " refused, %" PRIu64 " audits\n", model.n_done, model.n_refused,
	       model.n_audits);
	if (model.audit != NULL)
		core_audit_abandon(model.audit);
	core_fixture_close(&model.fixture);
}
