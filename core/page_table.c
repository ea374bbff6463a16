/* SPDX-License-Identifier: Apache-2.0 */
/* The page table of a sequence: opened, grown, shrunk, closed, its pages replaced, as a seqlock's writer. */
#include "core/audit.h"
#include "core/node.h"
#include "core/page_table.h"
#include "core/pages.h"
#include "core/request.h"
#include "core/tenant.h"

#include <assert.h>
#include <stdio.h>
#include <sys/param.h>

#include "common/fault.h"

/* Seqlock, writer's side: a reader that sees a store made after this call also sees an odd or a newer version. */
static void
slot_change_begin(struct region_slot *slot)
{
	uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);

	assert(version % 2 == 0);
	atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

static void
slot_change_end(struct region_slot *slot)
{
	uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);

	paged_fault("page-table-update");
	atomic_store_explicit(&slot->version, version + 1, memory_order_release);
}

bool
page_table_is_live(const struct core_pool *pool, paged_seq_id id)
{
	const struct region_slot *slot;

	if (PAGED_SEQ_SLOT(id) >= pool->high_slot)
		return false;
	slot = region_slot(&pool->view, PAGED_SEQ_SLOT(id));
	return load_u32(&slot->owner) != 0 && load_u32(&slot->generation) == PAGED_SEQ_GENERATION(id);
}

/* Takes a free slot.  Used slots come first, because the memory of their page tables is already populated. */
static uint32_t
slot_allocate(struct core_pool *pool)
{
	uint32_t slot = pool->first_free_slot;

	if (slot != NONE)
		pool->first_free_slot = pool->slots[slot].next;
	else
		slot = pool->high_slot++;
	pool->n_sequences++;
	store_u32(&pool->header->n_sequences, pool->n_sequences);
	peak_raise(&pool->header->peak_sequences, pool->n_sequences);
	counter_add(&pool->header->n_created, 1);
	return slot;
}

/* Frees a slot.  A slot whose generations are used up is retired: its next ids would equal old ones. */
static void
slot_recycle(struct core_pool *pool, uint32_t slot)
{
	pool->n_sequences--;
	store_u32(&pool->header->n_sequences, pool->n_sequences);
	counter_add(&pool->header->n_ended, 1);
	if (load_u32(&region_slot(&pool->view, slot)->generation) == UINT32_MAX) {
		pool->n_retired++;
		return;
	}
	pool->slots[slot].next = pool->first_free_slot;
	pool->first_free_slot = slot;
}

static void
page_table_link(struct core_pool *pool, struct core_session *session, uint32_t slot)
{
	struct session_pool *session_pool = &session->pools[pool->index];
	struct pool_slot *own = &pool->slots[slot];

	own->previous = NONE;
	own->next = session_pool->first_slot;
	if (own->next != NONE)
		pool->slots[own->next].previous = slot;
	session_pool->first_slot = slot;
	session->n_sequences++;
}

static void
page_table_unlink(struct core_pool *pool, struct core_session *session, uint32_t slot)
{
	struct session_pool *session_pool = &session->pools[pool->index];
	const struct pool_slot *own = &pool->slots[slot];

	if (own->previous != NONE)
		pool->slots[own->previous].next = own->next;
	else
		session_pool->first_slot = own->next;
	if (own->next != NONE)
		pool->slots[own->next].previous = own->previous;
	session->n_sequences--;
}

paged_seq_id
page_table_open(struct core_pool *pool, struct core_session *session, const char *tag)
{
	uint32_t index = slot_allocate(pool);
	struct region_slot *slot = region_slot(&pool->view, index);
	uint32_t generation = load_u32(&slot->generation) + 1;

	if (pool->audit != NULL)
		audit_page_table(pool->audit, index, 0);
	core_pool_change_begin(pool);
	slot_change_begin(slot);
	store_u32(&slot->capacity, 0);
	store_u32(&slot->writable_from, 0);
	store_u32(&slot->published, 0);
	store_u32(&slot->first, 0);
	store_u32(&slot->flags, 0);
	store_u32(&slot->publish_end, PAGED_PUBLISH_DONE);
	store_u32(&slot->generation, generation);
	store_u32(&slot->owner, session->id);
	slot_change_end(slot);
	pool->slots[index].tenant = session->tenant;
	table_memory_update(pool, index);
	core_pool_change_end(pool);
	page_table_link(pool, session, index);
	published_open(pool, index);
	tenant_count_slots(pool, session->tenant, 1);
	/* Writes only where a tag is or was: untouched memory of tags stays unpopulated. */
	if (tag[0] != '\0' || pool->tags[index][0] != '\0')
		snprintf(pool->tags[index], sizeof(pool->tags[index]), "%s", tag);
	return PAGED_SEQ(generation, pool->index, index);
}

void
page_table_grow(struct core_pool *pool, struct core_session *session, uint32_t slot_index, uint32_t n_pages)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);
	uint32_t n_before = page_table_n_pages(pool, slot_index);

	if (pool->audit != NULL)
		audit_page_table(pool->audit, slot_index, n_before);
	core_pool_change_begin(pool);
	pages_allocate(pool, pool->slots[slot_index].tenant, region_page_table(&pool->view, slot_index) + n_before,
		       n_pages - n_before);
	atomic_store_explicit(&slot->capacity, n_pages * pool->view.page_size, memory_order_release);
	table_memory_update(pool, slot_index);
	core_pool_change_end(pool);
	session->n_pages += n_pages - n_before;
}

void
page_table_protect(struct core_pool *pool, uint32_t slot_index, uint32_t tokens)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);

	if (load_u32(&slot->writable_from) < tokens)
		store_u32(&slot->writable_from, tokens);
}

void
page_table_share(struct core_pool *pool, struct core_session *session, uint32_t slot_index, uint32_t n,
		 const uint32_t *pages)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);
	uint32_t n_before = page_table_n_pages(pool, slot_index);
	_Atomic uint32_t *table = region_page_table(&pool->view, slot_index) + n_before;

	if (pool->audit != NULL)
		audit_page_table(pool->audit, slot_index, n_before);
	for (uint32_t i = 0; i < n; i++)
		store_u32(&table[i], pages[i]);
	page_table_protect(pool, slot_index, (n_before + n) * pool->view.page_size);
	atomic_store_explicit(&slot->capacity, (n_before + n) * pool->view.page_size, memory_order_release);
	table_memory_update(pool, slot_index);
	session->n_pages += n;
}

void
page_table_hold(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n, const uint32_t *pages)
{
	struct region_slot *own = region_slot(&pool->view, slot);

	/* No reader sees the pages without the flag. */
	slot_change_begin(own);
	store_u32(&own->flags, REGION_SLOT_HOLD);
	slot_change_end(own);
	page_table_share(pool, session, slot, n, pages);
	pool->n_held += n;
	tenant_count_held(pool, session->tenant, n);
}

void
page_table_share_from(struct core_pool *pool, struct core_session *session, uint32_t slot_index, uint32_t parent,
		      uint32_t n)
{
	const _Atomic uint32_t *from = region_page_table(&pool->view, parent);
	_Atomic uint32_t *table = region_page_table(&pool->view, slot_index);
	struct region_slot *slot = region_slot(&pool->view, slot_index);
	uint32_t n_before = page_table_n_pages(pool, slot_index), n_named = page_table_n_named(pool, slot_index);
	uint32_t first = MIN(page_table_first(pool, parent), n);

	if (pool->audit != NULL)
		audit_page_table(pool->audit, slot_index, n_before);
	for (uint32_t i = n_before; i < n; i++)
		store_u32(&table[i], load_u32(&from[i]));
	slot_change_begin(slot);
	store_u32(&slot->first, first);
	page_table_protect(pool, slot_index, n * pool->view.page_size);
	atomic_store_explicit(&slot->capacity, n * pool->view.page_size, memory_order_release);
	slot_change_end(slot);
	table_memory_update(pool, slot_index);
	session->n_pages += n - first - n_named;
}

void
page_table_trim(struct core_pool *pool, struct core_session *session, uint32_t slot_index, uint32_t first)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);
	_Atomic uint32_t *table = region_page_table(&pool->view, slot_index);
	uint32_t before = page_table_first(pool, slot_index);
	bool cached;

	if (first <= before)
		return;
	if (pool->audit != NULL)
		audit_trim(pool->audit, slot_index, first);
	core_pool_change_begin(pool);
	slot_change_begin(slot);
	store_u32(&slot->first, first);
	page_table_protect(pool, slot_index, first * pool->view.page_size);
	published_trim(pool, slot_index);
	cached = pages_unref(pool, session, pool->slots[slot_index].tenant, table + before, first - before, false);
	if (cached)
		lru_release_next(pool, table + before, first - before);
	for (uint32_t i = before; i < first; i++)
		store_u32(&table[i], REGION_NO_PAGE);
	slot_change_end(slot);
	counter_add(&pool->header->n_trimmed, first - before);
	core_pool_change_end(pool);
	session->n_pages -= first - before;
}

/*
 * Shortens the page table to n_pages, n_whole of them whole; with close, also ends the sequence.  The version also
 * changes if only the last page's content is cut: a publish of that page that is under way must be refused, because its
 * tokens will be written again.
 */
static void
page_table_replace(struct core_pool *pool, struct core_session *session, uint32_t slot_index, uint32_t n_pages,
		   uint32_t n_whole, bool close, bool quarantine)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);
	const _Atomic uint32_t *table = region_page_table(&pool->view, slot_index);
	uint32_t n_before = page_table_n_pages(pool, slot_index);
	uint32_t first = page_table_first(pool, slot_index), n_keep = MAX(n_pages, first);
	uint32_t n_published = page_table_published(pool, slot_index) / pool->view.page_size;
	uint32_t capacity = n_pages * pool->view.page_size;
	uint32_t tip = pool->slots[slot_index].tip;
	bool hold = page_table_is_hold(pool, slot_index);

	if (pool->audit != NULL)
		audit_page_table(pool->audit, slot_index, n_pages);
	core_pool_change_begin(pool);
	if (n_pages < n_before || n_whole < n_pages || close) {
		slot_change_begin(slot);
		store_u32(&slot->capacity, capacity);
		published_limit(pool, slot_index, n_whole);
		if (load_u32(&slot->writable_from) > capacity)
			store_u32(&slot->writable_from, capacity);
		if (first > n_pages)
			store_u32(&slot->first, n_pages);
		if (close)
			store_u32(&slot->owner, 0);
		slot_change_end(slot);
	}
	/* The dropped entries are still in the page table; other readers ignore entries past the capacity. */
	if (pages_unref(pool, session, pool->slots[slot_index].tenant, table + n_keep, n_before - n_keep, quarantine)) {
		if (hold)
			lru_release_hold(pool, table + n_keep, n_before - n_keep);
		else
			lru_release(pool, slot_index, n_keep, n_before, tip, n_published);
	}
	if (hold) {
		pool->n_held -= n_before - n_keep;
		tenant_count_held(pool, session->tenant, -(int64_t)(n_before - n_keep));
	}
	table_memory_update(pool, slot_index);
	core_pool_change_end(pool);
	session->n_pages -= n_before - n_keep;
}

void
page_table_truncate(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t tokens)
{
	uint32_t page_size = pool->view.page_size, n_whole = tokens / page_size;

	page_table_replace(pool, session, slot, n_whole + (tokens % page_size != 0), n_whole, false, false);
}

uint32_t
page_table_drop_work(const struct core_pool *pool, uint32_t slot, uint32_t n_pages)
{
	uint32_t n = page_table_n_pages(pool, slot), n_keep = MAX(n_pages, page_table_first(pool, slot));
	uint32_t n_published = page_table_published(pool, slot) / pool->view.page_size;

	if (n <= n_keep)
		return 1;
	/* lru_release() walks up the chain. */
	return n - n_keep + (n_published > n_keep ? MIN(MAX(n, n_published), MIN(pool->step, LRU_SEARCH)) : 0);
}

bool
page_table_truncate_step(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n_pages,
			 uint32_t n_whole, uint32_t *budget)
{
	uint32_t n = page_table_n_pages(pool, slot), n_most = *budget;
	bool done = n <= n_pages || n - n_pages <= n_most;
	uint64_t n_worked = pool->n_worked;

	/* What is published is lowered to n_whole at once: the page at which a step ends may have no node. */
	page_table_replace(pool, session, slot, done ? n_pages : n - n_most, n_whole, false, false);
	operation_spend(budget, pool->n_worked - n_worked);
	return done;
}

void
page_table_shrink(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n_pages,
		  bool quarantine)
{
	page_table_replace(pool, session, slot, n_pages, n_pages, false, quarantine);
}

void
page_table_close(struct core_pool *pool, struct core_session *session, uint32_t slot, bool quarantine)
{
	page_table_replace(pool, session, slot, 0, 0, true, quarantine);
	page_table_unlink(pool, session, slot);
	tenant_count_slots(pool, pool->slots[slot].tenant, -1);
	slot_recycle(pool, slot);
}

bool
page_table_close_step(struct core_pool *pool, struct core_session *session, uint32_t slot, bool quarantine,
		      uint32_t *budget)
{
	uint32_t n = page_table_n_pages(pool, slot), n_most = *budget;
	bool done = page_table_n_named(pool, slot) <= n_most;
	uint64_t n_worked = pool->n_worked;

	if (done)
		page_table_close(pool, session, slot, quarantine);
	else
		page_table_shrink(pool, session, slot, n - n_most, quarantine);
	operation_spend(budget, pool->n_worked - n_worked);
	return done;
}

void
page_table_freeze(struct core_pool *pool, struct core_session *session, uint32_t slot_index)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);

	page_table_unlink(pool, session, slot_index);
	session->n_pages -= page_table_n_named(pool, slot_index);
	store_u32(&slot->flags, load_u32(&slot->flags) | REGION_SLOT_FROZEN);
}

void
page_table_disown(struct core_pool *pool, uint32_t slot)
{
	store_u32(&region_slot(&pool->view, slot)->owner, REGION_OWNER_TICKET);
}

void
page_table_return(struct core_pool *pool, struct core_session *session, uint32_t slot_index)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);

	store_u32(&slot->owner, session->id);
	store_u32(&slot->flags, load_u32(&slot->flags) & ~REGION_SLOT_FROZEN);
	page_table_link(pool, session, slot_index);
	session->n_pages += page_table_n_named(pool, slot_index);
}

void
page_table_adopt(struct core_pool *pool, struct core_session *session, uint32_t slot_index)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);

	core_pool_change_begin(pool);
	slot_change_begin(slot);
	page_table_return(pool, session, slot_index);
	slot_change_end(slot);
	core_pool_change_end(pool);
}
