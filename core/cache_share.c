/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares of the cache.  A tenant with a share has a list of the cached pages that it has published, in the order of the
 * pool's list of cached pages.  While it has more than its share, evictions take the coldest of these first, so that
 * what it publishes replaces its own pages and no others.  Pinned pages are in no such list.
 *
 * A page on which another tenant's page depends is not evicted in this way: it leaves the list and is the pool's.
 */
#include "core/node.h"
#include "core/pages.h"
#include "core/tenant.h"

#include <string.h>

/* Ancestors that are searched for the place of a page, and descendants for pages of others. */
#define SHARE_SEARCH 64u

static struct tenant_pool *
share_tenant(const struct core_pool *pool, uint32_t tenant)
{
	struct core_tenant *own = tenant == 0 || tenant > pool->tenants->n ? NULL : pool->tenants->items[tenant - 1];

	return own == NULL || own->pools[pool->index].cache_share == CORE_NO_LIMIT ? NULL : &own->pools[pool->index];
}

/* Puts the tenant into the list of those that have more than their share, or takes it out. */
static void
share_update(struct core_pool *pool, uint32_t tenant)
{
	struct tenant_pool *own = share_tenant(pool, tenant);
	bool over = own->n_cached > own->cache_share;

	if (over == own->over)
		return;
	own->over = over;
	if (over) {
		own->over_previous = 0;
		own->over_next = pool->first_over;
		if (own->over_next != 0)
			share_tenant(pool, own->over_next)->over_previous = tenant;
		pool->first_over = tenant;
		return;
	}
	if (own->over_previous != 0)
		share_tenant(pool, own->over_previous)->over_next = own->over_next;
	else
		pool->first_over = own->over_next;
	if (own->over_next != 0)
		share_tenant(pool, own->over_next)->over_previous = own->over_previous;
}

/* The nearest ancestor in the tenant's list; NONE: none, or none is near. */
static uint32_t
share_ancestor(const struct core_pool *pool, uint32_t page, uint32_t tenant)
{
	struct node_ref ref = node_parent(pool, page);

	for (uint32_t n = 0; ref.serial != 0 && n < SHARE_SEARCH; n++) {
		if (pool->shares[ref.page].tenant == tenant)
			return ref.page;
		ref = node_parent(pool, ref.page);
	}
	return NONE;
}

void
cache_share_insert(struct core_pool *pool, uint32_t page, bool hottest)
{
	uint32_t tenant = pool->pages[page].tenant, hotter;
	struct tenant_pool *own = share_tenant(pool, tenant);
	struct share_page *links = &pool->shares[page];

	if (own == NULL || pool->pages[page].n_pins > 0)
		return;
	hotter = hottest ? NONE : share_ancestor(pool, page, tenant);
	links->tenant = tenant;
	links->next = hotter;
	links->previous = hotter == NONE ? own->cached.hottest : pool->shares[hotter].previous;
	if (links->previous != NONE)
		pool->shares[links->previous].next = page;
	else
		own->cached.coldest = page;
	if (hotter != NONE)
		pool->shares[hotter].previous = page;
	else
		own->cached.hottest = page;
	own->n_cached++;
	share_update(pool, tenant);
}

void
cache_share_remove(struct core_pool *pool, uint32_t page)
{
	struct share_page *links = &pool->shares[page];
	uint32_t tenant = links->tenant;
	struct tenant_pool *own;

	if (tenant == 0)
		return;
	own = share_tenant(pool, tenant);
	if (links->previous != NONE)
		pool->shares[links->previous].next = links->next;
	else
		own->cached.coldest = links->next;
	if (links->next != NONE)
		pool->shares[links->next].previous = links->previous;
	else
		own->cached.hottest = links->previous;
	links->tenant = 0;
	own->n_cached--;
	share_update(pool, tenant);
}

/*
 * The page to evict in place of the coldest of the tenant's list; NONE: a page of others depends on it, or there are
 * many below it.  It is mostly that page itself.  A page below it may also be cached: one that left the list because a
 * page of others depended on it, which has been evicted since.
 */
static uint32_t
share_victim(const struct core_pool *pool, uint32_t page, uint32_t tenant)
{
	uint32_t at = page, victim = page;

	/* In this order, nothing below the last cached page is cached. */
	for (uint32_t n = 0; n < SHARE_SEARCH; n++) {
		if (pool->nodes[at].first_child != NONE) {
			at = pool->nodes[at].first_child;
		} else {
			while (at != page && pool->nodes[at].next_sibling == NONE)
				at = node_parent(pool, at).page;
			if (at == page)
				return victim;
			at = pool->nodes[at].next_sibling;
		}
		if (pool->pages[at].tenant != tenant)
			return NONE;
		if (page_count(pool, at) == 0)
			victim = at;
	}
	return NONE;
}

uint32_t
cache_share_coldest(struct core_pool *pool)
{
	while (pool->first_over != 0) {
		uint32_t page = share_tenant(pool, pool->first_over)->cached.coldest;
		uint32_t victim = share_victim(pool, page, pool->first_over);

		if (victim != NONE)
			return victim;
		cache_share_remove(pool, page);
	}
	return NONE;
}

/* Takes all pages out of the tenant's list. */
static void
share_clear(struct core_pool *pool, struct tenant_pool *own)
{
	while (own->cached.coldest != NONE)
		cache_share_remove(pool, own->cached.coldest);
}

enum paged_status
core_tenant_share_cache(struct core *core, uint32_t tenant, uint32_t pool_index, uint32_t n_pages,
			struct paged_error *error)
{
	struct core_pool *pool = core->pools[pool_index];
	struct tenant_pool *own = &core->tenants.items[tenant - 1]->pools[pool_index];

	if (pool->nodes == NULL || n_pages == own->cache_share)
		return PAGED_OK;
	if (pool->shares == NULL)
		pool->shares = core_map_array(pool->view.n_pages, sizeof(*pool->shares));
	if (pool->shares == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no address space for shares of the cache",
				  pool->name);
	if (own->cache_share == CORE_NO_LIMIT) {
		own->cached = (struct page_list){ .coldest = NONE, .hottest = NONE };
		own->cache_share = n_pages;
		for (uint32_t page = pool->lru.coldest; page != NONE; page = pool->pages[page].next)
			if (pool->pages[page].tenant == tenant)
				cache_share_insert(pool, page, true);
	} else if (n_pages == CORE_NO_LIMIT) {
		share_clear(pool, own);
		own->cache_share = n_pages;
	} else {
		own->cache_share = n_pages;
		share_update(pool, tenant);
	}
	return PAGED_OK;
}

/* Check */

static enum paged_status
check_share(const struct core_pool *pool, uint32_t tenant, const struct tenant_pool *own, struct paged_error *error)
{
	uint32_t n = 0, previous = NONE, page;

	for (page = own->cached.coldest; page != NONE && n <= own->n_cached; page = pool->shares[page].next, n++) {
		if (pool->shares[page].tenant != tenant || pool->shares[page].previous != previous ||
		    pool->pages[page].tenant != tenant || !pool->pages[page].listed || pool->pages[page].n_pins > 0)
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "pool %s: page %u is wrongly in tenant %u's list of cached pages", pool->name,
					  page, tenant);
		previous = page;
	}
	if (n != own->n_cached || previous != own->cached.hottest || own->over != (own->n_cached > own->cache_share))
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: tenant %u lists %u cached pages of %u",
				  pool->name, tenant, n, own->n_cached);
	return PAGED_OK;
}

enum paged_status
check_cache_shares(const struct core_pool *pool, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	uint32_t n_listed = 0, n_owned = 0;

	if (pool->shares == NULL)
		return PAGED_OK;
	for (uint32_t tenant = 1; tenant <= pool->tenants->n && status == PAGED_OK; tenant++) {
		const struct tenant_pool *own = share_tenant(pool, tenant);

		if (own == NULL)
			continue;
		status = check_share(pool, tenant, own, error);
		n_listed += own->n_cached;
	}
	for (uint32_t page = 0; page < pool->high_page; page++)
		n_owned += pool->shares[page].tenant != 0;
	if (status == PAGED_OK && n_listed != n_owned)
		status = paged_fail(error, PAGED_ERR_CORRUPT,
				    "pool %s: tenants list %u cached pages, and %u have a tenant", pool->name, n_listed,
				    n_owned);
	return status;
}
