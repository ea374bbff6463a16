/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far each sequence is published.  A slot's tip is the node of its last published page; each node lists the slots
 * whose tip it is.  So when nodes are removed, the slots that depend on them are found without a search, and what a
 * slot says is published can always be found.
 *
 * A slot whose first page with a page table entry is past its tip can publish nothing more, so it has no tip: sequences
 * that hold no page would else cost time at each eviction of the nodes that they stood on.
 */
#include "core/node.h"
#include "core/page_table.h"

static void
tip_unlink(struct core_pool *pool, uint32_t slot)
{
	const struct pool_slot *own = &pool->slots[slot];

	if (own->tip == NONE)
		return;
	if (own->tip_previous != NONE)
		pool->slots[own->tip_previous].tip_next = own->tip_next;
	else
		pool->nodes[own->tip].first_slot = own->tip_next;
	if (own->tip_next != NONE)
		pool->slots[own->tip_next].tip_previous = own->tip_previous;
}

/* The slot is in no list, and becomes published up to the node; NONE: up to none. */
static void
tip_link(struct core_pool *pool, uint32_t slot, uint32_t page)
{
	struct pool_slot *own = &pool->slots[slot];
	uint32_t n_pages = page == NONE ? 0 : pool->nodes[page].depth + 1;

	own->tip = page;
	if (page != NONE) {
		own->tip_previous = NONE;
		own->tip_next = pool->nodes[page].first_slot;
		if (own->tip_next != NONE)
			pool->slots[own->tip_next].tip_previous = slot;
		pool->nodes[page].first_slot = slot;
	}
	if (own->twins_end > n_pages)
		own->twins_end = n_pages;
	if (own->twins_begin > own->twins_end)
		own->twins_begin = own->twins_end;
	store_u32(&region_slot(&pool->view, slot)->published, n_pages * pool->view.page_size);
}

void
published_open(struct core_pool *pool, uint32_t slot)
{
	struct pool_slot *own = &pool->slots[slot];

	own->tip = NONE;
	own->twins_begin = own->twins_end = 0;
}

void
published_set(struct core_pool *pool, uint32_t slot, uint32_t page)
{
	tip_unlink(pool, slot);
	tip_link(pool, slot, page);
}

void
published_add_twin(struct core_pool *pool, uint32_t slot, uint32_t page)
{
	struct pool_slot *own = &pool->slots[slot];
	uint32_t depth = pool->nodes[page].depth;

	if (own->twins_begin == own->twins_end)
		own->twins_begin = depth;
	own->twins_end = depth + 1;
	node_note_user(pool, page, own->tenant, page_table_owner(pool, slot));
}

/* True: the node of the slot's chain at this depth is that of the page table's entry. */
static bool
published_is_own(const struct core_pool *pool, uint32_t slot, uint32_t depth)
{
	const struct pool_slot *own = &pool->slots[slot];

	return depth >= page_table_first(pool, slot) && (depth < own->twins_begin || depth >= own->twins_end);
}

void
published_limit(struct core_pool *pool, uint32_t slot, uint32_t n_pages)
{
	uint32_t page = NONE;

	if (n_pages >= page_table_published(pool, slot) / pool->view.page_size)
		return;
	if (n_pages > 0 && published_is_own(pool, slot, n_pages - 1))
		page = load_u32(&region_page_table(&pool->view, slot)[n_pages - 1]);
	published_set(pool, slot, page);
}

void
published_copy(struct core_pool *pool, uint32_t slot, uint32_t from)
{
	const struct pool_slot *parent = &pool->slots[from];
	struct pool_slot *own = &pool->slots[slot];

	own->twins_begin = parent->twins_begin;
	own->twins_end = parent->twins_end;
	published_set(pool, slot, parent->tip);
}

void
published_trim(struct core_pool *pool, uint32_t slot)
{
	if (page_table_published(pool, slot) / pool->view.page_size < page_table_first(pool, slot))
		published_set(pool, slot, NONE);
}

void
published_lower(struct core_pool *pool, uint32_t page, uint32_t to)
{
	uint32_t slot = pool->nodes[page].first_slot, next;
	uint32_t n_pages = to == NONE ? 0 : pool->nodes[to].depth + 1;

	for (; slot != NONE; slot = next) {
		bool keeps = n_pages > 0 && n_pages >= page_table_first(pool, slot) && pool->n_lowered_at_once > 0;

		next = pool->slots[slot].tip_next;
		pool->n_lowered_at_once -= keeps;
		pool->n_worked++;
		tip_link(pool, slot, keeps ? to : NONE);
	}
	pool->nodes[page].first_slot = NONE;
}
