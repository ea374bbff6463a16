/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cached pages by age, and their eviction.  In the list `lru`, a page is colder than its parent, if that is in the
 * list, so prefixes are evicted from their tails.  A page that a sequence drops between pages in use goes next to the
 * ancestor that lru_release_next() finds; if that is too far away, the ancestor may be evicted first, and the page
 * leaves with it.
 */
#include "core/node.h"
#include "core/page_table.h"
#include "core/pages.h"
#include "core/ticket.h"

#include <assert.h>
#include <sys/param.h>

static struct page_list *
lru_list(struct core_pool *pool, uint32_t page)
{
	return pool->pages[page].n_pins > 0 ? &pool->pinned : &pool->lru;
}

void
lru_unlist(struct core_pool *pool, uint32_t page)
{
	struct pool_page *own = &pool->pages[page];
	struct page_list *list = lru_list(pool, page);

	if (!own->listed)
		return;
	if (own->previous != NONE)
		pool->pages[own->previous].next = own->next;
	else
		list->coldest = own->next;
	if (own->next != NONE)
		pool->pages[own->next].previous = own->previous;
	else
		list->hottest = own->previous;
	own->listed = 0;
	if (pool->shares != NULL)
		cache_share_remove(pool, page);
}

/* Puts a page into the list that it belongs to, next to `hotter`, which is in that list; NONE: at the hot end. */
static void
lru_insert(struct core_pool *pool, uint32_t page, uint32_t hotter)
{
	struct page_list *list = lru_list(pool, page);
	struct pool_page *own = &pool->pages[page];

	own->previous = hotter == NONE ? list->hottest : pool->pages[hotter].previous;
	own->next = hotter;
	if (own->previous != NONE)
		pool->pages[own->previous].next = page;
	else
		list->coldest = page;
	if (hotter != NONE)
		pool->pages[hotter].previous = page;
	else
		list->hottest = page;
	own->listed = 1;
	if (pool->shares != NULL)
		cache_share_insert(pool, page, hotter == NONE);
}

void
lru_touch(struct core_pool *pool, uint32_t page)
{
	lru_unlist(pool, page);
	lru_insert(pool, page, NONE);
}

/* Adds a node to a level of the walk, once. */
static void
walk_add(struct core_pool *pool, uint32_t *level, uint32_t *n, uint32_t page)
{
	if (pool->pages[page].marked)
		return;
	pool->pages[page].marked = 1;
	level[(*n)++] = page;
}

/*
 * The walk visits one depth of the tree after the other.  Walking up from the tip alone would not do: the page table
 * may have nodes that another sequence has published, past this one's tip or under another block key.
 */
void
lru_release(struct core_pool *pool, uint32_t slot, uint32_t n_keep, uint32_t n, uint32_t tip, uint32_t n_published)
{
	const _Atomic uint32_t *table = region_page_table(&pool->view, slot);
	uint32_t *below = pool->walk[0], *level = pool->walk[1], n_below = 0;
	uint32_t depth = n > n_published ? n : n_published;

	if (depth > pool->step) {
		lru_release_next(pool, table + n_keep, n - n_keep);
		return;
	}
	pool->n_worked += depth;
	while (depth-- > 0) {
		uint32_t n_level = 0, *other = below;

		if (depth >= n_keep && depth < n) {
			uint32_t page = atomic_load_explicit(&table[depth], memory_order_relaxed);

			if (page_is_published(pool, page))
				walk_add(pool, level, &n_level, page);
		}
		if (tip != NONE && depth + 1 == n_published)
			walk_add(pool, level, &n_level, tip);
		for (uint32_t i = 0; i < n_below; i++) {
			struct node_ref parent = node_parent(pool, below[i]);

			if (node_is_live(pool, &parent))
				walk_add(pool, level, &n_level, parent.page);
		}
		for (uint32_t i = 0; i < n_level; i++) {
			pool->pages[level[i]].marked = 0;
			if (page_count(pool, level[i]) == 0)
				lru_touch(pool, level[i]);
		}
		if (n_level == 0 && depth <= n_keep && depth < n_published)
			return;
		below = level;
		n_below = n_level;
		level = other;
	}
}

/* The nearest ancestor that is in a list; NONE: none of the next *n_search is. */
static uint32_t
lru_listed_ancestor(const struct core_pool *pool, uint32_t page, uint32_t *n_search)
{
	struct node_ref ref = node_parent(pool, page);

	for (; *n_search > 0 && node_is_live(pool, &ref) && !pool->pages[ref.page].listed; --*n_search)
		ref = node_parent(pool, ref.page);
	return node_is_live(pool, &ref) && pool->pages[ref.page].listed ? ref.page : NONE;
}

/*
 * lru_release() moves a page's whole chain, which takes time in proportion to the sequence's length; a window trims a
 * page at a time.  Next to its nearest listed ancestor, a page is colder than all its listed ancestors, and hotter than
 * its listed descendants, because these are colder than that ancestor.  The ancestors of a pinned page are pinned.  An
 * unpinned page whose nearest listed ancestor is pinned has no ancestor in `lru`, so it goes to the hot end.
 */
void
lru_release_next(struct core_pool *pool, const _Atomic uint32_t *entries, uint32_t n)
{
	uint32_t n_search = LRU_SEARCH;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t page = load_u32(&entries[i]), ancestor;

		if (page_count(pool, page) != 0 || !page_is_published(pool, page))
			continue;
		ancestor = lru_listed_ancestor(pool, page, &n_search);
		if (ancestor != NONE && lru_list(pool, ancestor) != lru_list(pool, page))
			ancestor = NONE;
		lru_insert(pool, page, ancestor);
	}
	pool->n_worked += LRU_SEARCH - n_search;
}

/*
 * Each entry adds the part of its chain that entries before it have not added; read from the last part to the first,
 * the list has every node before its ancestors.
 */
void
lru_release_hold(struct core_pool *pool, const _Atomic uint32_t *entries, uint32_t n)
{
	uint32_t *nodes = pool->walk[0], *ends = pool->walk[1], n_nodes = 0, n_parts = 0, end;

	for (uint32_t i = 0; i < n && n_nodes <= pool->step; i++) {
		uint32_t page = load_u32(&entries[i]);
		struct node_ref ref;

		if (!page_is_published(pool, page) || pool->pages[page].marked)
			continue;
		for (ref = node_ref(pool, page); node_is_live(pool, &ref); ref = node_parent(pool, ref.page)) {
			if (pool->pages[ref.page].marked || n_nodes > pool->step)
				break;
			walk_add(pool, nodes, &n_nodes, ref.page);
		}
		ends[n_parts++] = n_nodes;
	}
	pool->n_worked += n_nodes;
	if (n_nodes > pool->step) {
		while (n_nodes > 0)
			pool->pages[nodes[--n_nodes]].marked = 0;
		lru_release_next(pool, entries, n);
		return;
	}
	for (; n_parts > 0; n_parts--) {
		end = ends[n_parts - 1];
		for (uint32_t i = n_parts > 1 ? ends[n_parts - 2] : 0; i < end; i++) {
			pool->pages[nodes[i]].marked = 0;
			if (page_count(pool, nodes[i]) == 0)
				lru_touch(pool, nodes[i]);
		}
	}
}

uint32_t
lru_evict(struct core_pool *pool, uint32_t n, bool pinned)
{
	uint32_t n_evicted = 0;

	for (; n_evicted < n; n_evicted++) {
		uint32_t page = cache_share_coldest(pool);

		if (page == NONE)
			page = pool->lru.coldest;
		if (page == NONE && pinned)
			page = pool->pinned.coldest;
		if (page == NONE)
			break;
		/* The next eviction misses the cache in the same places. */
		if (pool->pages[page].next != NONE) {
			__builtin_prefetch(region_node(&pool->view, pool->pages[page].next));
			__builtin_prefetch(&pool->pages[pool->pages[page].next]);
			__builtin_prefetch(&pool->nodes[pool->pages[page].next]);
		}
		node_remove(pool, page);
	}
	pool->n_worked += n_evicted;
	counter_add(&pool->header->n_evicted, n_evicted);
	return n_evicted;
}

void
lru_make_room(struct core_pool *pool, uint64_t n_pages)
{
	uint32_t n_free;

	if (n_pages <= core_pool_n_free(pool))
		return;
	core_pool_change_begin(pool);
	/* An eviction may free further pages: those below a node that lru_release_next() did not find. */
	while ((n_free = core_pool_n_free(pool)) < n_pages && lru_evict(pool, (uint32_t)(n_pages - n_free), true) > 0)
		;
	core_pool_change_end(pool);
	assert(n_free >= n_pages);
}

uint32_t
core_prefix_evict(struct core *core, uint32_t pool_index, uint32_t n)
{
	struct core_pool *pool = core->pools[pool_index];
	uint32_t n_evicted;

	core_pool_change_begin(pool);
	n_evicted = lru_evict(pool, n == 0 || n > CORE_MAX_EVICT ? CORE_MAX_EVICT : n, true);
	core_pool_change_end(pool);
	return n_evicted;
}

bool
core_tick(struct core *core, uint32_t budget)
{
	uint32_t n_expired = tickets_expire(core, budget);
	bool more = tickets_have_expired(core);

	budget -= n_expired < budget ? n_expired : budget;
	for (uint32_t i = 0; i < core->n_pools; i++) {
		struct core_pool *pool = core->pools[i];
		uint64_t n_worked = pool->n_worked;
		uint32_t n_free, n_lacking;

		n_expired = pins_expire(core, pool, budget);
		budget -= n_expired < budget ? n_expired : budget;
		more = more || pins_have_expired(core, pool);
		core_pool_change_begin(pool);
		nodes_remove_lost(pool, budget);
		core_pool_change_end(pool);
		budget -= MIN(budget, pool->n_worked - n_worked);
		more = more || pool->lost != NONE;
		budget -= MIN(budget, table_memory_tick(pool, budget));
		more = more || !table_memory_is_idle(pool);
		/* The lost nodes' pages are free now. */
		n_free = core_pool_n_free(pool);
		if (n_free >= pool->free_pages || pool->lru.coldest == NONE)
			continue;
		n_lacking = pool->free_pages - n_free;
		n_worked = pool->n_worked;
		core_pool_change_begin(pool);
		lru_evict(pool, MIN(n_lacking, budget), false);
		core_pool_change_end(pool);
		budget -= MIN(budget, pool->n_worked - n_worked);
		more = more || (core_pool_n_free(pool) < pool->free_pages && pool->lru.coldest != NONE);
	}
	return more;
}

bool
core_tick_needed(const struct core *core)
{
	bool needed = tickets_have_expired(core);

	for (uint32_t i = 0; i < core->n_pools && !needed; i++) {
		const struct core_pool *pool = core->pools[i];

		needed = pool->lost != NONE || pins_have_expired(core, pool) || !table_memory_is_idle(pool) ||
			 (core_pool_n_free(pool) < pool->free_pages && pool->lru.coldest != NONE);
	}
	return needed;
}

uint32_t
core_pool_lru(const struct core *core, uint32_t pool_index, bool pinned, uint32_t *pages)
{
	const struct core_pool *pool = core->pools[pool_index];
	uint32_t n = 0;

	for (uint32_t page = pinned ? pool->pinned.coldest : pool->lru.coldest; page != NONE;
	     page = pool->pages[page].next)
		pages[n++] = page;
	return n;
}
