/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_internal.h"

#include <assert.h>
#include <stdio.h>

#include "common/fault.h"

static uint32_t
load(const _Atomic uint32_t *field)
{
	return atomic_load_explicit(field, memory_order_relaxed);
}

static void
store(_Atomic uint32_t *field, uint32_t value)
{
	atomic_store_explicit(field, value, memory_order_relaxed);
}

/* Seqlock, writer's side: a reader that sees a store made after this call also sees an odd or a newer version. */
static void
replace_begin(struct region_slot *slot)
{
	uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);

	assert(version % 2 == 0);
	atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

static void
replace_end(struct region_slot *slot)
{
	uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);

	paged_fault("row-update");
	atomic_store_explicit(&slot->version, version + 1, memory_order_release);
}

bool
row_is_live(const struct pool *pool, paged_seq_id id)
{
	const struct region_slot *slot;

	if (PAGED_SEQ_SLOT(id) >= pool->high_slot)
		return false;
	slot = region_slot(&pool->view, PAGED_SEQ_SLOT(id));
	return load(&slot->owner) != 0 && load(&slot->generation) == PAGED_SEQ_GENERATION(id);
}

uint32_t
row_owner(const struct pool *pool, uint32_t slot)
{
	return load(&region_slot(&pool->view, slot)->owner);
}

uint32_t
row_n_pages(const struct pool *pool, uint32_t slot)
{
	return load(&region_slot(&pool->view, slot)->capacity) / pool->view.page_size;
}

/* Takes a free slot.  Used slots come first, because the memory of their rows is already populated. */
static uint32_t
slot_take(struct pool *pool)
{
	uint32_t slot = pool->first_free_slot;

	if (slot != NONE)
		pool->first_free_slot = pool->slots[slot].next;
	else
		slot = pool->high_slot++;
	pool->n_sequences++;
	return slot;
}

/* Frees a slot.  A slot whose generations are used up is retired: its next ids would equal old ones. */
static void
slot_give(struct pool *pool, uint32_t slot)
{
	pool->n_sequences--;
	if (load(&region_slot(&pool->view, slot)->generation) == UINT32_MAX) {
		pool->n_retired++;
		return;
	}
	pool->slots[slot].next = pool->first_free_slot;
	pool->first_free_slot = slot;
}

static void
session_link(struct pool *pool, struct session *session, uint32_t slot)
{
	struct holding *holding = &session->holdings[pool->index];
	struct pool_slot *own = &pool->slots[slot];

	own->previous = NONE;
	own->next = holding->first_slot;
	if (own->next != NONE)
		pool->slots[own->next].previous = slot;
	holding->first_slot = slot;
	session->n_sequences++;
}

static void
session_unlink(struct pool *pool, struct session *session, uint32_t slot)
{
	struct holding *holding = &session->holdings[pool->index];
	const struct pool_slot *own = &pool->slots[slot];

	if (own->previous != NONE)
		pool->slots[own->previous].next = own->next;
	else
		holding->first_slot = own->next;
	if (own->next != NONE)
		pool->slots[own->next].previous = own->previous;
	session->n_sequences--;
}

paged_seq_id
row_open(struct pool *pool, struct session *session, const char *tag)
{
	uint32_t index = slot_take(pool);
	struct region_slot *slot = region_slot(&pool->view, index);
	uint32_t generation = load(&slot->generation) + 1;

	if (pool->audit != NULL)
		audit_row(pool->audit, index, 0);
	pool_change_begin(pool);
	replace_begin(slot);
	store(&slot->capacity, 0);
	store(&slot->writable_from, 0);
	store(&slot->length, 0);
	store(&slot->generation, generation);
	store(&slot->owner, session->id);
	replace_end(slot);
	pool_change_end(pool);
	session_link(pool, session, index);
	/* Writes only where a tag is or was: untouched memory of tags stays unpopulated. */
	if (tag[0] != '\0' || pool->tags[index][0] != '\0')
		snprintf(pool->tags[index], sizeof(pool->tags[index]), "%s", tag);
	return PAGED_SEQ(generation, pool->index, index);
}

void
row_grow(struct pool *pool, struct session *session, uint32_t slot_index, uint32_t n_pages)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);
	uint32_t n_before = row_n_pages(pool, slot_index);

	if (pool->audit != NULL)
		audit_row(pool->audit, slot_index, n_before);
	pool_change_begin(pool);
	pages_take(pool, region_row(&pool->view, slot_index) + n_before, n_pages - n_before);
	atomic_store_explicit(&slot->capacity, n_pages * pool->view.page_size, memory_order_release);
	pool_change_end(pool);
	session->n_pages += n_pages - n_before;
}

/* Shortens the row to n_pages; with close, also ends the sequence. */
static void
row_replace(struct pool *pool, struct session *session, uint32_t slot_index, uint32_t n_pages, bool close,
	    bool quarantine)
{
	struct region_slot *slot = region_slot(&pool->view, slot_index);
	uint32_t n_before = row_n_pages(pool, slot_index);
	uint32_t capacity = n_pages * pool->view.page_size;

	if (pool->audit != NULL)
		audit_row(pool->audit, slot_index, n_pages);
	pool_change_begin(pool);
	replace_begin(slot);
	store(&slot->capacity, capacity);
	if (load(&slot->length) > capacity)
		store(&slot->length, capacity);
	if (close)
		store(&slot->owner, 0);
	replace_end(slot);
	/* The dropped entries are still in the row; other readers ignore entries past the capacity. */
	pages_drop(pool, session, region_row(&pool->view, slot_index) + n_pages, n_before - n_pages, quarantine);
	pool_change_end(pool);
	session->n_pages -= n_before - n_pages;
}

void
row_cut(struct pool *pool, struct session *session, uint32_t slot, uint32_t n_pages, bool quarantine)
{
	row_replace(pool, session, slot, n_pages, false, quarantine);
}

void
row_close(struct pool *pool, struct session *session, uint32_t slot, bool quarantine)
{
	row_replace(pool, session, slot, 0, true, quarantine);
	session_unlink(pool, session, slot);
	slot_give(pool, slot);
}
