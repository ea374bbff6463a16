/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the core with the model after an operation, and checks the invariants of both. */
#include <string.h>
#include <sys/param.h>

#include "tests/core/core_model.h"

static uint32_t
load_u32(const _Atomic uint32_t *field)
{
	return atomic_load_explicit(field, memory_order_relaxed);
}

static uint64_t
load_u64(const _Atomic uint64_t *field)
{
	return atomic_load_explicit(field, memory_order_relaxed);
}

/* The page tables, `published` and the rest of each slot; versions move only if entries or tokens were dropped. */
static void
compare_seqs(uint32_t p)
{
	const struct region_view *view = core_pool_view(model.fixture.core, p);
	uint32_t page_size = model_geometries[p].page_size;

	for (uint32_t s = 0; s < model_geometries[p].n_slots; s++) {
		struct model_seq *seq = &model.pools[p].seqs[s];
		const struct region_slot *slot = region_slot(view, s);
		uint64_t version = load_u64(&slot->version);

		model_check(load_u32(&slot->owner) == (seq->state == MODEL_SEQ_NONE ? 0 : seq->session));
		if (seq->state == MODEL_SEQ_NONE)
			continue;
		model_check(load_u32(&slot->generation) == PAGED_SEQ_GENERATION(seq->id));
		model_check(load_u32(&slot->capacity) == seq->n_pages * page_size);
		model_check(load_u32(&slot->writable_from) == seq->n_writable_from * page_size);
		model_check(load_u32(&slot->flags) ==
			    ((seq->is_hold ? REGION_SLOT_HOLD : 0) | (seq->frozen ? REGION_SLOT_FROZEN : 0)));
		model_check(load_u32(&slot->published) == seq->n_published * page_size);
		model_check(load_u32(&slot->first) == seq->n_trimmed);
		model_check(load_u32(&slot->publish_end) == seq->end);
		for (uint32_t i = 0; i < seq->n_pages; i++)
			model_check(load_u32(&region_page_table(view, s)[i]) == seq->pages[i]);
		if (seq->version_moves)
			model_check(version % 2 == 0 && version > seq->version);
		else
			model_check(version == seq->version);
		seq->version = version;
		seq->version_moves = false;
	}
}

static void
compare_node(const struct region_view *view, const struct model_pool *pool, uint32_t page)
{
	const struct region_node *node = region_node(view, page);
	const struct model_node *expected = &pool->nodes[page];

	model_check(load_u64(&node->serial) == expected->serial);
	if (expected->serial == 0)
		return;
	model_check(load_u32(&node->parent) == expected->parent.page);
	model_check(load_u64(&node->parent_serial) == expected->parent.serial);
	model_check(load_u64(&node->hash) == expected->hash);
	model_check(load_u32(&node->hits) == expected->hits);
	model_check(load_u32(&node->used) == expected->used);
}

static void
compare_pages(uint32_t p)
{
	const struct model_pool *pool = &model.pools[p];
	const struct region_view *view = core_pool_view(model.fixture.core, p);

	for (uint32_t page = 0; page < pool->n_pages; page++) {
		uint32_t count = model_count(pool, page);

		if (pool->quarantine[page] != 0)
			count = REGION_PAGE_QUARANTINED;
		model_check(load_u32(&region_page(view, page)->count) == count);
		model_check(load_u32(&region_page(view, page)->flags) ==
			    (pool->nodes[page].serial != 0 ? REGION_PAGE_PUBLISHED : 0));
		compare_node(view, pool, page);
	}
}

static void
compare_lists(uint32_t p)
{
	const struct model_pool *pool = &model.pools[p];
	uint32_t pages[MODEL_PAGES];

	core_pool_free_list(model.fixture.core, p, pages);
	model_check(memcmp(pages, pool->free.pages, pool->free.n * sizeof(*pages)) == 0);
	model_check(core_pool_lru(model.fixture.core, p, false, pages) == pool->lru.n);
	model_check(memcmp(pages, pool->lru.pages, pool->lru.n * sizeof(*pages)) == 0);
	model_check(core_pool_lru(model.fixture.core, p, true, pages) == pool->pinned.n);
	model_check(memcmp(pages, pool->pinned.pages, pool->pinned.n * sizeof(*pages)) == 0);
}

static void
compare_totals(uint32_t p, uint32_t n_referenced, const struct paged_pool_entry *status)
{
	const struct region_header *header = core_pool_view(model.fixture.core, p)->header;
	struct model_totals *totals = &model.pools[p].totals;
	uint32_t n_sequences = 0, n_frozen = 0;

	for (uint32_t s = 0; s < MODEL_SEQS; s++) {
		const struct model_seq *seq = &model.pools[p].seqs[s];

		n_sequences += seq->state != MODEL_SEQ_NONE;
		n_frozen += seq->state != MODEL_SEQ_NONE && seq->frozen;
	}
	totals->peak_sequences = MAX(totals->peak_sequences, n_sequences);
	totals->peak_referenced = MAX(totals->peak_referenced, n_referenced);
	model_check(load_u32(&header->n_sequences) == n_sequences && status->n_sequences == n_sequences);
	model_check(load_u32(&header->peak_sequences) == totals->peak_sequences);
	model_check(load_u32(&header->peak_referenced) == totals->peak_referenced);
	model_check(status->table_used == 64 * n_sequences && status->table_limit == 64 * model_geometries[p].n_tables);
	model_check(status->peak_sequences == totals->peak_sequences);
	model_check(status->peak_referenced == totals->peak_referenced);
#define COMPARE_TOTAL(total) model_check(load_u64(&header->total) == totals->total && status->total == totals->total)
	COMPARE_TOTAL(n_starts);
	COMPARE_TOTAL(n_tokens_asked);
	COMPARE_TOTAL(n_tokens_found);
	COMPARE_TOTAL(n_published);
	COMPARE_TOTAL(n_evicted);
	COMPARE_TOTAL(n_orphaned);
	COMPARE_TOTAL(n_displaced);
	COMPARE_TOTAL(n_stopped_removed);
	COMPARE_TOTAL(n_stopped_trimmed);
	COMPARE_TOTAL(n_stopped_other);
	COMPARE_TOTAL(n_stopped_bucket);
	COMPARE_TOTAL(n_created);
	COMPARE_TOTAL(n_ended);
	COMPARE_TOTAL(n_forked);
	COMPARE_TOTAL(n_given);
	COMPARE_TOTAL(n_adopted);
	COMPARE_TOTAL(n_cancelled);
	COMPARE_TOTAL(n_expired);
	COMPARE_TOTAL(n_taken);
	COMPARE_TOTAL(n_trimmed);
	/* What the header's totals say about each other. */
	model_check(totals->n_created - totals->n_ended == n_sequences);
	model_check(totals->n_given == totals->n_adopted + totals->n_cancelled + totals->n_expired + n_frozen);
}

static void
compare_accounting(uint32_t p)
{
	const struct model_pool *pool = &model.pools[p];
	const struct region_view *view = core_pool_view(model.fixture.core, p);
	uint32_t n_referenced = 0, n_quarantined = 0, n_pinned = 0;
	struct paged_pool_entry status;
	struct paged_check_result accounting;

	for (uint32_t page = 0; page < pool->n_pages; page++) {
		n_referenced += model_count(pool, page) > 0;
		n_quarantined += pool->quarantine[page] != 0;
		n_pinned += model_is_pinned(pool, page);
	}
	if (model.audit == NULL || p != model.audited)
		model_check(core_check(model.fixture.core, p, &accounting, &model.error) == PAGED_OK);
	model_check(region_check(view, &accounting, &model.error) == PAGED_OK);
	core_pool_status(model.fixture.core, p, &status);
	model_check(status.n_free == pool->free.n && accounting.n_free == pool->free.n);
	model_check(status.n_referenced == n_referenced && accounting.n_referenced == n_referenced);
	model_check(status.n_quarantined == n_quarantined && accounting.n_quarantined == n_quarantined);
	model_check(status.n_cached == pool->lru.n + pool->pinned.n && accounting.n_cached == status.n_cached);
	model_check(status.n_free + n_referenced + status.n_cached + n_quarantined == pool->n_pages);
	model_check(status.n_pinned == n_pinned);
	compare_totals(p, n_referenced, &status);
}

/* The ring's new entries are the changes of the operation, in order. */
static void
compare_ring(uint32_t p)
{
	struct model_pool *pool = &model.pools[p];
	const struct region_view *view = core_pool_view(model.fixture.core, p);

	model_check(load_u64(&view->header->ring_head) == pool->ring_head + pool->n_changes);
	for (uint32_t i = 0; i < pool->n_changes; i++) {
		const struct region_ring_entry *entry = region_ring_entry(view, pool->ring_head + 1 + i);

		model_check(load_u64(&entry->number) == pool->ring_head + 1 + i);
		model_check(load_u32(&entry->kind) == pool->changes[i].kind);
		model_check(load_u32(&entry->page) == pool->changes[i].page);
		model_check(load_u64(&entry->serial) == pool->changes[i].serial);
		model_check(load_u64(&entry->hash) == pool->changes[i].hash);
	}
	pool->ring_head += pool->n_changes;
	pool->n_changes = 0;
}

/* I2: no page twice in a page table.  I3: pages that may be written are in one page table, and not published. */
static void
check_writable(const struct model_pool *pool, const struct model_seq *seq)
{
	model_check(seq->n_trimmed <= seq->n_writable_from && seq->n_trimmed <= seq->n_pages);
	for (uint32_t i = seq->n_trimmed; i < seq->n_pages; i++) {
		for (uint32_t k = seq->n_trimmed; k < i; k++)
			model_check(seq->pages[i] != seq->pages[k]);
		if (i >= seq->n_writable_from)
			model_check(model_count(pool, seq->pages[i]) == 1 && pool->nodes[seq->pages[i]].serial == 0);
	}
	model_check(seq->n_published <= seq->n_writable_from);
}

/* I7: a cached page is colder than each of its cached ancestors; else evictions would cut off tails. */
static void
check_lru_order(const struct model_pool *pool)
{
	for (uint32_t i = 0; i < pool->lru.n; i++)
		for (uint32_t k = 0; k < i; k++)
			model_check(!model_is_in_chain(pool, pool->lru.pages[i], pool->lru.pages[k]));
}

static void
compare_pool(uint32_t p)
{
	const struct model_pool *pool = &model.pools[p];

	for (uint32_t page = 0; page < pool->n_pages; page++)
		model_check(pool->quarantine[page] != MODEL_RELEASED);
	compare_lists(p);
	compare_pages(p);
	compare_seqs(p);
	compare_accounting(p);
	compare_ring(p);
	for (uint32_t s = 0; s < model_geometries[p].n_slots; s++)
		if (pool->seqs[s].state != MODEL_SEQ_NONE) {
			check_writable(pool, &pool->seqs[s]);
			model_check_published(p, &pool->seqs[s]);
		}
	check_lru_order(pool);
	model_find_paths(p, 2);
}

static void
compare_session(const struct paged_session_entry *status)
{
	const struct model_session *session = model_session_find(status->session);
	uint32_t n_sequences = 0, n_pages = 0, n_quarantined = 0;

	model_check(session != NULL && session->active == !status->ended && session->draining == status->draining);
	for (uint32_t i = 0; i < MODEL_MEMBERS; i++)
		model_check(session->members[i] == 0 ||
			    core_member_session(model.fixture.core, session->members[i]) == session->id);
	for (uint32_t p = 0; p < MODEL_POOLS; p++) {
		for (uint32_t s = 0; s < MODEL_SEQS; s++) {
			const struct model_seq *seq = &model.pools[p].seqs[s];

			if (seq->state != MODEL_SEQ_NONE && !seq->frozen && seq->session == session->id) {
				n_sequences++;
				n_pages += seq->n_pages - seq->n_trimmed;
			}
		}
		for (uint32_t page = 0; page < model_geometries[p].n_pages; page++)
			n_quarantined += model.pools[p].quarantine[page] == session->id;
	}
	model_check(status->n_pages == n_pages && status->n_sequences == n_sequences);
	model_check(status->n_quarantined == n_quarantined);
}

void
model_compare(void)
{
	struct paged_session_entry status = { .session = 0 };
	uint64_t deadline = CORE_NO_DEADLINE;

	for (uint32_t p = 0; p < MODEL_POOLS; p++)
		compare_pool(p);
	model_compare_tickets();
	compare_tenants();
	while (core_session_next(model.fixture.core, status.session, &status))
		compare_session(&status);
	for (uint32_t i = 0; i < model.n_tickets; i++)
		deadline = MIN(deadline, model.tickets[i].deadline);
	for (uint32_t p = 0; p < MODEL_POOLS; p++)
		for (uint32_t i = 0; i < model.pools[p].n_pins; i++)
			deadline = MIN(deadline, model.pools[p].pins[i].deadline);
	model_check(core_next_deadline(model.fixture.core) == deadline);
}
