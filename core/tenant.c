/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: limits on the pages of each pool.  A tenant is charged each distinct page that page tables of its sequences
 * name, and those that its ended sessions have in quarantine.  An array for each tenant and pool counts the references
 * by page; the tenant is charged a page if it has any.
 */
#include "core/node.h"
#include "core/page_table.h"
#include "core/request.h"
#include "core/tenant.h"
#include "core/ticket.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>

/* References of pages */

enum paged_status
tenant_make_pool(struct core_pool *pool, uint32_t tenant, struct paged_error *error)
{
	struct tenant_pool *own;

	if (tenant == 0)
		return PAGED_OK;
	own = tenant_pool(pool, tenant);
	if (own->n_refs == NULL)
		own->n_refs = core_map_array(pool->view.n_pages, sizeof(*own->n_refs));
	if (own->n_refs == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no address space to charge tenant %s", pool->name,
				  pool->tenants->items[tenant - 1]->name);
	return PAGED_OK;
}

bool
tenant_is_charged(const struct core_pool *pool, uint32_t tenant, uint32_t page)
{
	return tenant_pool(pool, tenant)->n_refs[page] > 0;
}

void
tenant_charge_new(struct core_pool *pool, uint32_t tenant, const _Atomic uint32_t *entries, uint32_t n)
{
	struct tenant_pool *own = tenant_pool(pool, tenant);

	for (uint32_t i = 0; i < n; i++)
		own->n_refs[load_u32(&entries[i])] = 1;
	own->n_charged += n;
}

void
tenant_charge(struct core_pool *pool, uint32_t tenant, uint32_t page, uint32_t n_refs)
{
	struct tenant_pool *own = tenant_pool(pool, tenant);

	own->n_charged += own->n_refs[page] == 0;
	own->n_refs[page] += n_refs;
}

void
tenant_discharge(struct core_pool *pool, uint32_t tenant, uint32_t page)
{
	struct tenant_pool *own = tenant_pool(pool, tenant);

	assert(own->n_refs[page] > 0);
	own->n_charged -= --own->n_refs[page] == 0;
}

void
tenant_quarantine(struct core_pool *pool, uint32_t tenant)
{
	tenant_pool(pool, tenant)->n_quarantined++;
}

void
tenant_free_quarantined(struct core_pool *pool, uint32_t tenant, uint32_t page)
{
	tenant_pool(pool, tenant)->n_quarantined--;
	tenant_discharge(pool, tenant, page);
}

/* Requests */

void
tenant_count_shared(struct core_pool *pool, uint32_t tenant, uint32_t page)
{
	pool->request.n_newly_charged += tenant != 0 && !tenant_is_charged(pool, tenant, page);
}

uint32_t
tenant_n_left(const struct core_pool *pool, uint32_t tenant)
{
	const struct tenant_pool *own;

	if (tenant == 0)
		return UINT32_MAX;
	own = tenant_pool(pool, tenant);
	if (own->limits.n_pages == CORE_NO_LIMIT)
		return UINT32_MAX;
	return own->limits.n_pages - MIN(own->limits.n_pages, own->n_charged + own->n_promised);
}

bool
tenant_is_over(const struct core_pool *pool, uint32_t tenant)
{
	const struct tenant_pool *own = tenant_pool(pool, tenant);

	return own->limits.n_pages != CORE_NO_LIMIT && (uint64_t)own->n_charged + own->n_promised > own->limits.n_pages;
}

enum paged_status
tenant_fail_pages(const struct core_pool *pool, uint32_t tenant, uint64_t n_pages, struct paged_error *error)
{
	const struct tenant_pool *own = tenant_pool(pool, tenant);
	const char *advice = n_pages > own->limits.n_pages ? "ask for less, or raise the limit"
							   : "free pages of its sequences, or raise the limit";
	char quarantined[80] = "";

	if (own->n_quarantined > 0)
		snprintf(quarantined, sizeof(quarantined), " (%u in quarantine, until processes of ended sessions end)",
			 own->n_quarantined);
	paged_fail(error, PAGED_ERR_QUOTA, "tenant %s, pool %s: %llu pages requested, %u charged%s, limit %u: %s",
		   pool->tenants->items[tenant - 1]->name, pool->name, (unsigned long long)n_pages,
		   own->n_charged + own->n_promised, quarantined, own->limits.n_pages, advice);
	return request_fail_short(pool, n_pages, n_pages - MIN(n_pages, tenant_n_left(pool, tenant)), 0, error);
}

enum paged_status
tenant_check(const struct core_pool *pool, uint32_t tenant, struct paged_error *error)
{
	uint64_t n_pages = pool->request.n_requested + pool->request.n_newly_charged;

	if (n_pages > 0 && n_pages > tenant_n_left(pool, tenant))
		return tenant_fail_pages(pool, tenant, n_pages, error);
	return tenant_check_slots(pool, tenant, pool->request.n_created, error);
}

/* Check */

/* Counts the references of a tenant by page; returns how many pages there are. */
static uint32_t
tenant_recount(const struct core *core, const struct core_pool *pool, uint32_t tenant, uint32_t *n_refs)
{
	uint32_t n_charged = 0;

	for (uint32_t slot = 0; slot < pool->high_slot; slot++) {
		const _Atomic uint32_t *table = region_page_table(&pool->view, slot);
		uint32_t to = 0, n_moved = adopt_n_moved(core, pool, slot, &to);

		if (page_table_owner(pool, slot) == 0)
			continue;
		for (uint32_t i = page_table_first(pool, slot); i < page_table_n_pages(pool, slot); i++)
			if ((i < n_moved ? to : pool->slots[slot].tenant) == tenant)
				n_charged += n_refs[load_u32(&table[i])]++ == 0;
	}
	for (uint32_t i = 0; i < core->sessions.n; i++) {
		const struct core_session *session = core->sessions.entries[i].session;
		uint32_t page = session->tenant == tenant && pool->index < session->n_pools
					? session->pools[pool->index].first_page
					: NONE;

		for (; page != NONE; page = pool->pages[page].next)
			n_charged += n_refs[page]++ == 0;
	}
	return n_charged;
}

/* Published pages of all pools that name the tenant. */
static uint64_t
tenant_count_nodes(const struct core *core, uint32_t tenant)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < core->n_pools; i++)
		for (uint32_t page = 0; core->pools[i]->nodes != NULL && page < core->pools[i]->high_page; page++)
			n += page_is_published(core->pools[i], page) && core->pools[i]->pages[page].tenant == tenant;
	return n;
}

static enum paged_status
tenant_check_totals(const struct core *core, const struct core_pool *pool, uint32_t tenant, struct paged_error *error)
{
	const struct core_tenant *item = pool->tenants->items[tenant - 1];
	const struct tenant_pool *own = tenant_pool(pool, tenant);
	uint32_t n_sequences = 0, n_quarantined = 0, n_sessions = 0, n_pins = 0, n_pin_pages = 0;
	uint64_t n_nodes = tenant_count_nodes(core, tenant);

	for (uint32_t slot = 0; slot < pool->high_slot; slot++) {
		if (page_table_owner(pool, slot) == 0 || pool->slots[slot].tenant != tenant)
			continue;
		n_sequences++;
		n_pin_pages += page_table_is_hold(pool, slot) ? page_table_n_pages(pool, slot) : 0;
	}
	for (uint32_t i = 0; i < pool->n_pins; i++) {
		if (pool->pins[i].tenant != tenant)
			continue;
		n_pins++;
		n_pin_pages += pool->pins[i].n_nodes;
	}
	for (uint32_t i = 0; i < core->sessions.n; i++) {
		const struct core_session *session = core->sessions.entries[i].session;

		if (session->tenant != tenant)
			continue;
		n_sessions++;
		if (pool->index >= session->n_pools)
			continue;
		for (uint32_t page = session->pools[pool->index].first_page; page != NONE;
		     page = pool->pages[page].next)
			n_quarantined++;
	}
	if (n_sequences != own->n_sequences || n_quarantined != own->n_quarantined || n_sessions != item->n_sessions)
		return paged_fail(error, PAGED_ERR_CORRUPT,
				  "pool %s: tenant %s has %u sequences, %u quarantined pages and %u sessions; "
				  "counted are %u, %u and %u",
				  pool->name, item->name, n_sequences, n_quarantined, n_sessions, own->n_sequences,
				  own->n_quarantined, item->n_sessions);
	if (n_pins != own->n_pins || n_pin_pages != own->n_pin_pages)
		return paged_fail(
			error, PAGED_ERR_CORRUPT,
			"pool %s: tenant %s has %u pins, and %u pages of pins and holds; counted are %u and %u",
			pool->name, item->name, n_pins, n_pin_pages, own->n_pins, own->n_pin_pages);
	if (n_nodes != item->n_nodes)
		return paged_fail(error, PAGED_ERR_CORRUPT, "tenant %s has %llu published pages; counted are %llu",
				  item->name, (unsigned long long)n_nodes, (unsigned long long)item->n_nodes);
	return PAGED_OK;
}

static enum paged_status
tenant_check_pages(const struct core *core, const struct core_pool *pool, uint32_t tenant, uint32_t *n_refs,
		   struct paged_error *error)
{
	const char *name = pool->tenants->items[tenant - 1]->name;
	const struct tenant_pool *own = tenant_pool(pool, tenant);
	uint32_t n_charged = tenant_recount(core, pool, tenant, n_refs);

	for (uint32_t page = 0; page < pool->high_page; page++) {
		uint32_t n_has = own->n_refs != NULL ? own->n_refs[page] : 0;

		if (n_has != n_refs[page])
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "pool %s: tenant %s has %u references of page %u and is charged %u",
					  pool->name, name, n_refs[page], page, n_has);
		n_refs[page] = 0;
	}
	if (n_charged != own->n_charged)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: tenant %s names %u pages and is charged %u",
				  pool->name, name, n_charged, own->n_charged);
	return tenant_check_totals(core, pool, tenant, error);
}

enum paged_status
check_tenants(const struct core *core, const struct core_pool *pool, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	uint32_t *n_refs;

	if (pool->tenants->n == 0)
		return PAGED_OK;
	n_refs = calloc((size_t)pool->high_page + 1, sizeof(*n_refs));
	if (n_refs == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory to check charges", pool->name);
	for (uint32_t tenant = 1; tenant <= pool->tenants->n && status == PAGED_OK; tenant++)
		if (pool->tenants->items[tenant - 1] != NULL)
			status = tenant_check_pages(core, pool, tenant, n_refs, error);
	free(n_refs);
	return status;
}
