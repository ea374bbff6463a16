/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: limits on the pages of each pool.  A tenant is charged each distinct page that page tables of its sequences
 * name, and those that its ended sessions have in quarantine.  Of each tenant and pool an array counts the references
 * by page; the tenant is charged a page if it has any.
 */
#include "core/core_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#define TENANTS_MAX (UINT16_MAX - 1u)

static struct tenant_pool *
tenant_pool(const struct core_pool *pool, uint32_t tenant)
{
	return &pool->tenants->items[tenant - 1]->pools[pool->index];
}

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

static bool
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
	pool->n_newly_charged += tenant != 0 && !tenant_is_charged(pool, tenant, page);
}

uint32_t
tenant_n_left(const struct core_pool *pool, uint32_t tenant)
{
	const struct tenant_pool *own;

	if (tenant == 0)
		return UINT32_MAX;
	own = tenant_pool(pool, tenant);
	if (own->limit == CORE_NO_LIMIT)
		return UINT32_MAX;
	return own->limit - MIN(own->limit, own->n_charged);
}

static enum paged_status
tenant_fail(const struct core_pool *pool, uint32_t tenant, uint64_t n_pages, struct paged_error *error)
{
	const struct tenant_pool *own = tenant_pool(pool, tenant);
	const char *advice = n_pages > own->limit ? "ask for less, or raise the limit"
						  : "free pages of its sequences, or raise the limit";
	char quarantined[80] = "";

	if (own->n_quarantined > 0)
		snprintf(quarantined, sizeof(quarantined), " (%u in quarantine, until processes of ended sessions end)",
			 own->n_quarantined);
	return paged_fail(error, PAGED_ERR_QUOTA, "tenant %s, pool %s: %llu pages requested, %u charged%s, limit %u: %s",
			  pool->tenants->items[tenant - 1]->name, pool->name, (unsigned long long)n_pages,
			  own->n_charged, quarantined, own->limit, advice);
}

enum paged_status
tenant_check(const struct core_pool *pool, uint32_t tenant, struct paged_error *error)
{
	uint64_t n_pages = pool->n_requested + pool->n_newly_charged;

	return n_pages > 0 && n_pages > tenant_n_left(pool, tenant) ? tenant_fail(pool, tenant, n_pages, error)
								    : PAGED_OK;
}

/* Adoption */

/* Distinct pages of the sequences that are not charged to the tenant yet. */
static uint64_t
tenant_count_new(struct core_pool *pool, uint32_t tenant, uint32_t n, const struct paged_seq_item *items)
{
	uint64_t n_new = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < n; i++) {
			uint32_t slot = PAGED_SEQ_SLOT(items[i].seq);
			const _Atomic uint32_t *table = region_page_table(&pool->view, slot);

			for (uint32_t k = page_table_first(pool, slot); k < page_table_n_pages(pool, slot); k++) {
				uint32_t page = load_u32(&table[k]);

				n_new += pass == 0 && !pool->pages[page].marked &&
					 !tenant_is_charged(pool, tenant, page);
				pool->pages[page].marked = pass == 0;
			}
		}
	}
	return n_new;
}

static void
tenant_move_page(struct core_pool *pool, uint32_t from, uint32_t to, uint32_t page)
{
	if (to != 0)
		tenant_charge(pool, to, page, 1);
	if (from != 0)
		tenant_discharge(pool, from, page);
}

enum paged_status
tenant_move_sequences(struct core_pool *pool, uint32_t to, uint32_t n, const struct paged_seq_item *items,
		      struct paged_error *error)
{
	uint64_t n_new = to == 0 ? 0 : tenant_count_new(pool, to, n, items);

	if (n_new > 0 && n_new > tenant_n_left(pool, to))
		return tenant_fail(pool, to, n_new, error);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = PAGED_SEQ_SLOT(items[i].seq), from = pool->slots[slot].tenant;
		const _Atomic uint32_t *table = region_page_table(&pool->view, slot);

		for (uint32_t k = page_table_first(pool, slot); from != to && k < page_table_n_pages(pool, slot); k++)
			tenant_move_page(pool, from, to, load_u32(&table[k]));
		pool->slots[slot].tenant = (uint16_t)to;
	}
	return PAGED_OK;
}

/* Interface */

enum paged_status
core_tenant_add(struct core *core, const char *name, uint32_t *tenant_p, struct paged_error *error)
{
	struct tenants *tenants = &core->tenants;
	struct core_tenant **items, *tenant;
	size_t length = strlen(name);

	if (length == 0 || length > PAGED_MAX_NAME)
		return paged_fail(error, PAGED_ERR_INVALID, "a tenant's name has 1 to %u bytes, not %zu",
				  PAGED_MAX_NAME, length);
	for (uint32_t i = 0; i < tenants->n; i++)
		if (strcmp(tenants->items[i]->name, name) == 0)
			return paged_fail(error, PAGED_ERR_INVALID, "tenant %s: the name is already in use", name);
	if (tenants->n == TENANTS_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT, "tenant %s: at most %u tenants", name, TENANTS_MAX);
	items = reallocarray(tenants->items, tenants->n + 1, sizeof(struct core_tenant *));
	if (items == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "tenant %s: no memory", name);
	tenants->items = items;
	tenant = calloc(1, sizeof(*tenant));
	if (tenant == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "tenant %s: no memory", name);
	strcpy(tenant->name, name);
	for (uint32_t i = 0; i < PAGED_MAX_POOLS; i++)
		tenant->pools[i].limit = CORE_NO_LIMIT;
	items[tenants->n++] = tenant;
	*tenant_p = tenants->n;
	return PAGED_OK;
}

void
core_tenant_limit(struct core *core, uint32_t tenant, uint32_t pool, uint32_t n_pages)
{
	core->tenants.items[tenant - 1]->pools[pool].limit = n_pages;
}

void
core_session_tenant(struct core *core, uint32_t session, uint32_t tenant)
{
	struct core_session *found = idmap_find(&core->sessions, session);

	assert(tenant <= core->tenants.n && found->n_sequences == 0);
	found->tenant = (uint16_t)tenant;
}

bool
core_tenant_next(const struct core *core, uint32_t *position, struct paged_quota_entry *entry)
{
	const struct core_tenant *tenant;
	uint32_t pool;

	if (core->n_pools == 0 || *position >= (uint64_t)core->tenants.n * core->n_pools)
		return false;
	tenant = core->tenants.items[*position / core->n_pools];
	pool = (*position)++ % core->n_pools;
	*entry = (struct paged_quota_entry){
		.pool = pool,
		.limited = tenant->pools[pool].limit != CORE_NO_LIMIT,
		.limit = tenant->pools[pool].limit,
		.n_charged = tenant->pools[pool].n_charged,
	};
	if (!entry->limited)
		entry->limit = 0;
	memcpy(entry->tenant, tenant->name, sizeof(entry->tenant));
	return true;
}

void
tenants_free(struct core *core)
{
	for (uint32_t i = 0; i < core->tenants.n; i++) {
		for (uint32_t p = 0; p < core->n_pools; p++)
			core_unmap_array(core->tenants.items[i]->pools[p].n_refs, core->pools[p]->view.n_pages,
					 sizeof(*core->tenants.items[i]->pools[p].n_refs));
		free(core->tenants.items[i]);
	}
	free(core->tenants.items);
}

/* Check */

/* Counts the references of a tenant by page; returns how many pages there are. */
static uint32_t
tenant_recount(const struct core *core, const struct core_pool *pool, uint32_t tenant, uint32_t *n_refs)
{
	uint32_t n_charged = 0;

	for (uint32_t slot = 0; slot < pool->high_slot; slot++) {
		const _Atomic uint32_t *table = region_page_table(&pool->view, slot);

		if (page_table_owner(pool, slot) == 0 || pool->slots[slot].tenant != tenant)
			continue;
		for (uint32_t i = page_table_first(pool, slot); i < page_table_n_pages(pool, slot); i++)
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
	return PAGED_OK;
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
		status = tenant_check_pages(core, pool, tenant, n_refs, error);
	free(n_refs);
	return status;
}
