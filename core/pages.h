/* SPDX-License-Identifier: Apache-2.0 */
/* pages.h - pages and the lists of cached ones: their states, eviction, shares of the cache, pins */
#ifndef PAGED_CORE_PAGES_H
#define PAGED_CORE_PAGES_H

#include "core/core_internal.h"

/* pages.c; call between core_pool_change_begin() and core_pool_change_end() */

/**
 * pages_allocate - take the last n pages of the free list, in list order, with count 1; at least n must be free
 *
 * Here and below, `tenant` is that of the sequence which has the references.
 */
void pages_allocate(struct core_pool *pool, uint32_t tenant, _Atomic uint32_t *entries, uint32_t n);

/** pages_ref - add references to a referenced or cached page */
void pages_ref(struct core_pool *pool, uint32_t tenant, uint32_t page, uint32_t n_refs);

/** pages_ref_entries - pages_ref() of the pages of n entries */
void pages_ref_entries(struct core_pool *pool, uint32_t tenant, const _Atomic uint32_t *entries, uint32_t n,
		       uint32_t n_refs);

/**
 * pages_unref - drop one reference of each page
 *
 * A page without references is cached if a node stands for it.  Else it is freed; if `quarantine` says so, it is
 * quarantined, and stays charged to the tenant.  Cached pages are in no list yet: call lru_release().
 *
 * @return true: a page is now cached
 */
bool pages_unref(struct core_pool *pool, struct core_session *session, uint32_t tenant, const _Atomic uint32_t *entries,
		 uint32_t n, bool quarantine);

/** pages_publish - a node stands for the page from now on */
void pages_publish(struct core_pool *pool, uint32_t page);

/** pages_unpublish - no node stands for the page any more; a cached page becomes free */
void pages_unpublish(struct core_pool *pool, uint32_t page);

/** pages_free_quarantined - free up to n pages of the session's quarantine, oldest first; returns how many */
uint32_t pages_free_quarantined(struct core_pool *pool, struct core_session *session, uint32_t n);

/* lru.c; call between core_pool_change_begin() and core_pool_change_end() */

/** lru_unlist - take a page out of its list, if it is in one */
void lru_unlist(struct core_pool *pool, uint32_t page);

/** lru_touch - move a cached page to the hot end of the list that it belongs to */
void lru_touch(struct core_pool *pool, uint32_t page);

/**
 * lru_release - put the cached pages of a page table that dropped entries [n_keep, n) into the list
 *
 * If the chain is longer than the pool's step, as lru_release_next() does.  Else they and their cached ancestors move
 * to the hot end, the deepest first, so that a page is always colder than its parent: tails are evicted before heads.
 *
 * @param[in] tip  of the sequence before the drop, which stood for page n_published - 1, or NONE
 */
void lru_release(struct core_pool *pool, uint32_t slot, uint32_t n_keep, uint32_t n, uint32_t tip,
		 uint32_t n_published);

/**
 * lru_release_next - put the cached pages of n entries that a page table dropped, in their order, into the list
 *
 * Each becomes as old as its nearest cached ancestor, and is evicted before it.  A page without one goes to the hot
 * end.  So does a page whose nearest cached ancestor is further away than LRU_SEARCH nodes in all: then that ancestor
 * may be evicted first, and the page leaves the index with it.
 */
#define LRU_SEARCH 2048u
void lru_release_next(struct core_pool *pool, const _Atomic uint32_t *entries, uint32_t n);

/**
 * lru_release_hold - put the cached pages of n entries that a hold dropped into the list
 *
 * From the last entry to the first, each page moves to the hot end, followed by its cached ancestors from the deepest
 * to the root, except those that an earlier entry is or has as an ancestor: these follow that entry.  If the chains
 * have more nodes than the pool's step, as lru_release_next().
 */
void lru_release_hold(struct core_pool *pool, const _Atomic uint32_t *entries, uint32_t n);

/** lru_evict - free the n coldest cached pages; fewer if there are fewer; pinned pages last, or with pinned false not
 * at all */
uint32_t lru_evict(struct core_pool *pool, uint32_t n, bool pinned);

/** lru_make_room - evict until n_pages are free; that many are free or cached */
void lru_make_room(struct core_pool *pool, uint64_t n_pages);

/* cache_share.c */

/**
 * cache_share_insert - put a page that has been put into `lru` into the list of the tenant that published it
 *
 * At the hot end, or else colder than its ancestors in that list.  The pool has shares; so for the next two.
 */
void cache_share_insert(struct core_pool *pool, uint32_t page, bool hottest);
void cache_share_remove(struct core_pool *pool, uint32_t page);

/** cache_share_coldest - the page to evict before all others; NONE: no tenant has more than its share */
uint32_t cache_share_coldest(struct core_pool *pool);

/** check_cache_shares - verify the lists of cached pages by tenant */
enum paged_status check_cache_shares(const struct core_pool *pool, struct paged_error *error);

/* pin.c */

/**
 * pins_shorten - leave out of the pins' counts the nodes that were removed; ends pins of which none is left
 *
 * What is left of a chain ends with another node, which names the pin from then on.  Nothing calls this when a node is
 * removed: evictions have no time to search the pins.
 */
void pins_shorten(struct core_pool *pool);

/** pins_have_expired - true: the deadline of a pin has passed */
bool pins_have_expired(const struct core *core, const struct core_pool *pool);

/** pins_expire - end such pins, until they named `budget` nodes; returns how many nodes they named */
uint32_t pins_expire(struct core *core, struct core_pool *pool, uint32_t budget);
void pins_free(struct core_pool *pool);

#endif
