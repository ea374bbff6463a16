/* SPDX-License-Identifier: Apache-2.0 */
/* page_table.h - slots, their page tables, and the memory of these */
#ifndef PAGED_CORE_PAGE_TABLE_H
#define PAGED_CORE_PAGE_TABLE_H

#include "core/core_internal.h"

/* page_table.c */

/** page_table_published - tokens of the sequence that a search finds; while nodes are lost, maybe not all of them */
static inline uint32_t
page_table_published(const struct core_pool *pool, uint32_t slot)
{
	return atomic_load_explicit(&region_slot(&pool->view, slot)->published, memory_order_relaxed);
}

/** page_table_protect - no token before `tokens` may be written from now on */
void page_table_protect(struct core_pool *pool, uint32_t slot, uint32_t tokens);

/** page_table_share - append pages, to which the caller has added references; none of the tokens may be written */
void page_table_share(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n,
		      const uint32_t *pages);

/** page_table_is_hold - true: the sequence is a hold */
static inline bool
page_table_is_hold(const struct core_pool *pool, uint32_t slot)
{
	return (load_u32(&region_slot(&pool->view, slot)->flags) & REGION_SLOT_HOLD) != 0;
}

/** page_table_hold - make an empty page table a hold of pages, to which the caller has added references */
void page_table_hold(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n,
		     const uint32_t *pages);

/** page_table_is_live - true: the id names a live sequence */
bool page_table_is_live(const struct core_pool *pool, paged_seq_id id);

/** page_table_open - start an empty sequence in a free slot; one must be free */
paged_seq_id page_table_open(struct core_pool *pool, struct core_session *session, const char *tag);

/** page_table_grow - extend the page table to n_pages; n_pages exceeds its size, and the difference must be free */
void page_table_grow(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n_pages);

/**
 * page_table_share_from - extend a page table, which has only entries of another one, to the first n of these, to whose
 * pages the caller has added references
 */
void page_table_share_from(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t parent,
			   uint32_t n);

/** page_table_truncate - keep the pages of the first `tokens` tokens, and free the others */
void page_table_truncate(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t tokens);

/** page_table_trim - give the pages before entry `first` back, which is not before the present first page */
void page_table_trim(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t first);

/**
 * page_table_truncate_step - shorten the page table from its end to n_pages, of which n_whole are whole, by about
 * *budget entries, by which *budget is lowered; true: done
 */
bool page_table_truncate_step(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n_pages,
			      uint32_t n_whole, uint32_t *budget);

/** page_table_drop_work - most entries and nodes that page_table_truncate() and page_table_close() visit to keep
 * n_pages */
uint32_t page_table_drop_work(const struct core_pool *pool, uint32_t slot, uint32_t n_pages);

/** page_table_shrink - shorten the page table to n_pages; the dropped pages are quarantined on request, else freed */
void page_table_shrink(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n_pages,
		       bool quarantine);

/** page_table_close - end the sequence and drop its pages as page_table_shrink() does */
void page_table_close(struct core_pool *pool, struct core_session *session, uint32_t slot, bool quarantine);

/** page_table_close_step - page_table_close() by about *budget entries from the end; true: the sequence has ended */
bool page_table_close_step(struct core_pool *pool, struct core_session *session, uint32_t slot, bool quarantine,
			   uint32_t *budget);

/** page_table_is_frozen - true: the sequence was given away */
static inline bool
page_table_is_frozen(const struct core_pool *pool, uint32_t slot)
{
	return (load_u32(&region_slot(&pool->view, slot)->flags) & REGION_SLOT_FROZEN) != 0;
}

/** page_table_freeze - take the sequence out of the session's list; writers refuse it from now on */
void page_table_freeze(struct core_pool *pool, struct core_session *session, uint32_t slot);

/** page_table_disown - the session that gave the frozen sequence has ended */
void page_table_disown(struct core_pool *pool, uint32_t slot);

/** page_table_return - put a frozen sequence back into its giver's list; what was planned of it stays valid */
void page_table_return(struct core_pool *pool, struct core_session *session, uint32_t slot);

/** page_table_adopt - make the session the owner of a frozen sequence; what was planned of it is stale */
void page_table_adopt(struct core_pool *pool, struct core_session *session, uint32_t slot);

/* table_memory.c */

/** table_memory_init - the region's header and view are in place; limit in bytes */
void table_memory_init(struct core_pool *pool, uint64_t limit);

/** table_memory_bounds - fill the fields for page tables */
void table_memory_bounds(const struct region_header *layout, const struct core_pool_params *params,
			 struct core_memory *bounds);

/** table_memory_update - count the slot's page table again; call it after its capacity or owner has changed */
void table_memory_update(struct core_pool *pool, uint32_t slot);

/** table_memory_promise - count the slot's page table as if it had n_entries, if it has fewer */
void table_memory_promise(struct core_pool *pool, uint32_t slot, uint32_t n_entries);

/** table_memory_tick - give back about `budget` units that page tables do not need; returns how much was done */
uint32_t table_memory_tick(struct core_pool *pool, uint32_t budget);

/** table_memory_is_idle - true: table_memory_tick() has nothing to do */
static inline bool
table_memory_is_idle(const struct core_pool *pool)
{
	return pool->table_memory.lists[TABLE_MEMORY_LARGE].first == NONE;
}

/** table_memory_count_new - add a new page table to the request's totals */
void table_memory_count_new(struct core_pool *pool, uint32_t n_entries);

/** table_memory_count - add what a page table lacks for n_entries, and then for n_ahead further ones */
void table_memory_count(struct core_pool *pool, uint32_t slot, uint32_t n_entries, uint32_t n_ahead);

/**
 * table_memory_check - PAGED_ERR_FULL unless the limit allows the request's page tables, PAGED_ERR_QUOTA unless the
 * tenant's does; releases spare memory
 */
enum paged_status table_memory_check(struct core_pool *pool, uint32_t tenant, struct paged_error *error);

/** table_memory_has_ahead - true: the limits also allow the entries ahead of need */
bool table_memory_has_ahead(struct core_pool *pool, uint32_t tenant);

/** table_memory_check_move - PAGED_ERR_QUOTA unless the tenant may have the page tables of n sequences of others */
enum paged_status table_memory_check_move(const struct core_pool *pool, uint32_t tenant, uint32_t n,
					  const struct paged_seq_item *items, struct paged_error *error);

/** table_memory_move - count the slot's page table for another tenant; call it before slots[].tenant changes */
void table_memory_move(struct core_pool *pool, uint32_t slot, uint32_t tenant);

/** check_table_memory - verify all counts and lists of the memory of page tables */
enum paged_status check_table_memory(const struct core_pool *pool, struct paged_error *error);

#endif
