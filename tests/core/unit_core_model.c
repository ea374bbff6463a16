/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core against a naive model (core_model.h): random valid and invalid
 * operations.  After each, page tables, the order of the free list and of the cached pages,
 * the index of published pages, page accounting and errors must agree, and the checks must pass.
 *
 * The model predicts all but one order: pages of ended sessions become free in steps, in an order that is
 * left to the core.  The model requires that no page is freed too early, no step exceeds its budget, and
 * finally all pages are free.
 *
 * PAGED_SEED and PAGED_OPERATIONS change the run.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "tests/core/core_model.h"

static struct model_session *
random_session(void)
{
	return &model.sessions[random_below(MODEL_SESSIONS)];
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
		.id = id,
		.active = true,
		.outlives = random_below(2) == 0,
		.members = { member },
		.tenant = random_below(1 + MODEL_TENANTS),
	};
	core_session_tenant(model.fixture.core, id, session->tenant);
	if (session->outlives)
		core_session_outlive(model.fixture.core, id);
}

static void
random_session_join(void)
{
	struct model_session *session = random_session();
	uint32_t member;

	if (session->active && count_members(session) == MODEL_MEMBERS)
		return;
	model_check_status(core_session_join(model.fixture.core, session->id, &member, &model.error),
			   session->active ? 0 : status_bit(PAGED_ERR_GONE));
	for (int i = session->outlives ? 0 : 1; session->active && i < MODEL_MEMBERS; i++) {
		if (session->members[i] == 0) {
			session->members[i] = member;
			break;
		}
	}
}

/* From now on core_reap() closes the session's sequences. */
static void
model_session_end(struct model_session *session)
{
	if (!session->active)
		return;
	session->active = false;
	session->pending.kind = PENDING_NONE;
	model_tickets_disown(session->id);
	for (uint32_t p = 0; p < MODEL_POOLS; p++)
		for (uint32_t s = 0; s < MODEL_SEQS; s++)
			if (model.pools[p].seqs[s].state == MODEL_SEQ_LIVE &&
			    model.pools[p].seqs[s].session == session->id)
				model.pools[p].seqs[s].state = MODEL_SEQ_ENDED;
	model_session_queue(session);
}

static void
random_member_leave(void)
{
	struct model_session *session = random_session();
	uint32_t i = random_below(MODEL_MEMBERS), member = session->members[i];

	if (session->active && random_below(4) != 0)
		return;
	model_check(member == 0 || core_member_session(model.fixture.core, member) == session->id);
	core_member_leave(model.fixture.core, member);
	model_check(core_member_session(model.fixture.core, member) == 0);
	session->members[i] = 0;
	if (member != 0 && (session->outlives ? count_members(session) == 0 : i == 0))
		model_session_end(session);
	model_session_queue(session);
	model.n_done++;
}

static void
random_session_end(void)
{
	struct model_session *session = random_session();

	if (session->id == 0) {
		model_check_status(core_session_end(model.fixture.core, model.last_session + 1, &model.error),
				   status_bit(PAGED_ERR_NOENT));
	} else if (count_members(session) > 0 && random_below(4) == 0) {
		model_check_status(core_session_end(model.fixture.core, session->id, &model.error), 0);
		model_session_end(session);
	}
}

/* Cleanup of ended sessions */

/* Is the first sequence reaped before the second?  Sessions in the order of the queue, the youngest sequence first. */
static bool
is_reaped_before(const struct model_seq *seq, const struct model_seq *other)
{
	if (seq->session != other->session)
		return model_session_find(seq->session)->queued < model_session_find(other->session)->queued;
	return seq->born > other->born;
}

/* The sequence of an ended session that is reaped first, among those that the core has shortened; NULL: none. */
static struct model_seq *
next_reaped(struct model_pool *pool, uint32_t p, uint32_t *n_keep_p, bool *closed_p)
{
	const struct region_view *view = core_pool_view(model.fixture.core, p);
	struct model_seq *first = NULL;

	for (uint32_t s = 0; s < MODEL_SEQS; s++) {
		struct model_seq *seq = &pool->seqs[s];

		if (seq->state == MODEL_SEQ_ENDED && (first == NULL || is_reaped_before(seq, first)))
			first = seq;
	}
	if (first == NULL)
		return NULL;
	*closed_p =
		atomic_load_explicit(&region_slot(view, PAGED_SEQ_SLOT(first->id))->owner, memory_order_relaxed) == 0;
	*n_keep_p =
		atomic_load_explicit(&region_slot(view, PAGED_SEQ_SLOT(first->id))->capacity, memory_order_relaxed) /
		view->page_size;
	return *closed_p || *n_keep_p < first->n_pages ? first : NULL;
}

/* Drops what the core has dropped, in the core's order; how far it went is left to the core. */
static uint32_t
model_reap_seqs(struct model_pool *pool, uint32_t p)
{
	uint32_t n_keep, n_dropped = 0;
	struct model_seq *seq;
	bool closed;

	while ((seq = next_reaped(pool, p, &n_keep, &closed)) != NULL) {
		model_check(!closed || n_keep == 0);
		n_dropped += seq->n_pages - MAX(n_keep, seq->n_trimmed);
		model_truncate(pool, seq, n_keep, n_keep, seq->session);
		if (closed)
			model_seq_close(pool, seq);
	}
	return n_dropped;
}

/* Pages that became free were in quarantine, of a session without members; the core decides their order. */
static uint32_t
model_adopt_free(struct model_pool *pool, uint32_t p)
{
	uint32_t pages[MODEL_PAGES], n_quarantined = 0;
	struct paged_pool_entry status;

	core_pool_status(model.fixture.core, p, &status);
	core_pool_free_list(model.fixture.core, p, pages);
	model_check(status.n_free >= pool->free.n);
	model_check(memcmp(pages, pool->free.pages, pool->free.n * sizeof(*pages)) == 0);
	for (; pool->free.n < status.n_free; pool->free.n++) {
		uint32_t page = pages[pool->free.n], of = pool->quarantine[page];

		model_check(of != 0);
		if (of != MODEL_RELEASED) {
			const struct model_session *left = model_session_find(of);

			model_check(left != NULL && !left->active && count_members(left) == 0);
			n_quarantined++;
		}
		pool->quarantine[page] = 0;
		pool->free.pages[pool->free.n] = page;
	}
	return n_quarantined;
}

/* Sessions without members have no pages, and no longer exist. */
static void
check_all_reaped(void)
{
	for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
		struct model_session *session = &model.sessions[i];

		if (session->active || session->id == 0)
			continue;
		for (uint32_t p = 0; p < MODEL_POOLS; p++) {
			for (uint32_t s = 0; s < MODEL_SEQS; s++)
				model_check(model.pools[p].seqs[s].state != MODEL_SEQ_ENDED);
			for (uint32_t page = 0; count_members(session) == 0 && page < MODEL_PAGES; page++)
				model_check(model.pools[p].quarantine[page] != session->id);
		}
		if (count_members(session) == 0 && model_count_tickets(session->id) == 0)
			session->id = 0;
	}
}

static void
random_reap(void)
{
	uint32_t budget = random_below(3) == 0 ? 0 : 1 + random_below(6), n_touched = 0;
	bool more = core_reap(model.fixture.core, budget);

	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		n_touched += model_reap_seqs(&model.pools[p], p);
		n_touched += model_adopt_free(&model.pools[p], p);
	}
	for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
		if (!model_session_has_work(&model.sessions[i]))
			model.sessions[i].queued = 0;
	model_check(budget == 0 || n_touched <= budget);
	model_check(budget != 0 || !more);
	model.n_done++;
	if (!more)
		check_all_reaped();
}

/* Steps of an audit run between other operations; its result is the accounting when it began. */
static void
random_audit(void)
{
	struct paged_check_result accounting;

	if (model.audit == NULL) {
		model.audited = random_below(MODEL_POOLS);
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

static void
model_start(void)
{
	static const char *const names[MODEL_POOLS] = { "first", "second", "third" };

	memset(&model, 0, sizeof(model));
	model.operation_name = "start";
	core_fixture_open(&model.fixture);
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		const struct model_geometry *geometry = &model_geometries[p];
		struct model_pool *pool = &model.pools[p];

		core_fixture_add(&model.fixture, &(struct core_pool_params){
							 .name = names[p],
							 .n_pages = geometry->n_pages,
							 .page_size = geometry->page_size,
							 .n_slots = geometry->n_slots,
							 .max_length = geometry->max_length,
							 .publish = true,
							 .free_pages = geometry->free_pages,
							 .pin_limit = geometry->pin_limit,
							 .table_memory = 64 * geometry->n_tables,
							 .seed = 0x9ae16a3b2f90404f * (p + 1),
						 });
		for (uint32_t i = 0; i < geometry->n_pages; i++)
			pool->free.pages[i] = geometry->n_pages - 1 - i;
		pool->n_pages = pool->free.n = geometry->n_pages;
		/* The core and all readers take the number of buckets from here: two get full. */
		((struct region_view *)(uintptr_t)core_pool_view(model.fixture.core, p))->n_buckets = 2;
		pool->share = CORE_NO_LIMIT;
		pool->next_serial = atomic_load(&core_pool_view(model.fixture.core, p)->header->next_serial);
	}
	model.step = CORE_NO_STEP;
	model_tenants_start();
}

static uint64_t
number_from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text == NULL ? otherwise : strtoull(text, NULL, 0);
}

#define OPERATION(name, weight)              \
	{                                    \
#name, random_##name, weight \
	}

static const struct model_operation {
	const char *name;
	void (*run)(void);
	uint32_t weight;
} operations[] = {
	OPERATION(session_open, 2), OPERATION(session_join, 1), OPERATION(member_leave, 2), OPERATION(session_end, 1),
	OPERATION(reap, 4),         OPERATION(create, 2),       OPERATION(reserve, 4),      OPERATION(truncate, 2),
	OPERATION(erase, 2),        OPERATION(audit, 4),        OPERATION(publish, 6),      OPERATION(start, 4),
	OPERATION(fork, 3),         OPERATION(pin, 2),          OPERATION(clock, 1),        OPERATION(tick, 2),
	OPERATION(evict, 1),        OPERATION(search, 1),       OPERATION(give, 4),         OPERATION(adopt, 4),
	OPERATION(cancel, 1),       OPERATION(trim, 2),         OPERATION(limit, 1),        OPERATION(hold, 3),
	OPERATION(drain, 1),        OPERATION(step, 12),        OPERATION(step_size, 1),    OPERATION(share, 1),
};
#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static const struct model_operation *
random_operation(void)
{
	uint32_t n_weights = 0, chosen, i = 0;

	for (size_t k = 0; k < N_OPERATIONS; k++)
		n_weights += operations[k].weight;
	chosen = random_below(n_weights);
	for (; chosen >= operations[i].weight; i++)
		chosen -= operations[i].weight;
	return &operations[i];
}

Test(core_model, random_operations)
{
	uint64_t n = number_from_environment("PAGED_OPERATIONS", 1000000), n_displaced = 0, n_conflicts = 0, n_full = 0;

	model_start();
	model.seed = model.random = number_from_environment("PAGED_SEED", (uint64_t)time(NULL));
	for (model.operation = 0; model.operation < n; model.operation++) {
		const struct model_operation *operation = random_operation();

		model.operation_name = operation->name;
		operation->run();
		model_compare();
	}
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		const struct model_totals *totals = &model.pools[p].totals;

		n_displaced += totals->n_displaced;
		n_conflicts += totals->n_stopped_other;
		n_full += totals->n_stopped_bucket;
	}
	/* A run of this length reaches the rare cases; holds are few while pins take the pool's limit for both. */
	if (n >= 1000000)
		model_check(model.n_audits > 100 && model.n_twins > 100 && model.n_lowered > 100 && n_conflicts > 30 &&
			    n_displaced > 100 && n_full > 0 && model.n_adopted > 100 &&
			    model.n_adopted_of_ended > 100 && model.n_found > model.n_searched / 10 &&
			    model.n_trims_cached > 100 && model.n_trims_published > 100 && model.n_holds > 10 &&
			    model.n_divided > 1000 && model.n_share_evictions > 10);
	if (model.audit != NULL)
		core_audit_abandon(model.audit);
	core_fixture_close(&model.fixture);
}
