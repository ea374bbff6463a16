/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: limits on the pages of each pool.  A tenant is charged each distinct page that page tables of its sequences
 * name.  A page's references are mostly of one tenant: then page_tenants[] has its number, and all references are
 * counted by the page's own count.  Of a page of several tenants, the hash `charges` has the number of each tenant's
 * references, except those without a tenant.
 */
#include "core/core_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

/* In page_tenants[]: sequences of several tenants name the page. */
#define SEVERAL UINT16_MAX
#define TENANTS_MAX (UINT16_MAX - 1u)

static struct tenant_pool *
tenant_pool(const struct core_pool *pool, uint32_t tenant)
{
	return &pool->tenants->items[tenant - 1]->pools[pool->index];
}

/* The hash of charges: open addressing, with the entries of a chain next to each other. */

static uint32_t
charge_home(const struct core_pool *pool, uint32_t page, uint32_t tenant)
{
	uint64_t key = (uint64_t)page << 16 | tenant;

	return (uint32_t)((key * 0x9E3779B97F4A7C15ull) >> 32) & (pool->n_charge_room - 1);
}

/* The entry of (page, tenant), or the free one where it belongs; there is always a free one. */
static uint32_t
charge_find(const struct core_pool *pool, uint32_t page, uint32_t tenant)
{
	uint32_t i = charge_home(pool, page, tenant);

	while (pool->charges[i].n_refs != 0 && (pool->charges[i].page != page || pool->charges[i].tenant != tenant))
		i = (i + 1) & (pool->n_charge_room - 1);
	return i;
}

static uint32_t
charge_n_refs(const struct core_pool *pool, uint32_t page, uint32_t tenant)
{
	return pool->n_charge_room == 0 ? 0 : pool->charges[charge_find(pool, page, tenant)].n_refs;
}

static void
charge_add(struct core_pool *pool, uint32_t page, uint32_t tenant, uint32_t n_refs)
{
	struct page_charge *charge = &pool->charges[charge_find(pool, page, tenant)];

	if (charge->n_refs == 0) {
		assert(2 * pool->n_charges < pool->n_charge_room);
		*charge = (struct page_charge){ .page = page, .tenant = tenant };
		pool->n_charges++;
	}
	charge->n_refs += n_refs;
}

/* Frees an entry, and moves later ones of its chain so that no search stops before them. */
static void
charge_remove(struct core_pool *pool, uint32_t hole)
{
	uint32_t mask = pool->n_charge_room - 1;

	pool->n_charges--;
	for (uint32_t i = (hole + 1) & mask; pool->charges[i].n_refs != 0; i = (i + 1) & mask) {
		uint32_t home = charge_home(pool, pool->charges[i].page, pool->charges[i].tenant);

		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		pool->charges[hole] = pool->charges[i];
		hole = i;
	}
	pool->charges[hole].n_refs = 0;
}

static enum paged_status
charges_make_room(struct core_pool *pool, uint64_t n_more, struct paged_error *error)
{
	struct page_charge *old = pool->charges, *grown;
	uint32_t n_old = pool->n_charge_room;
	uint64_t n_room = MAX(n_old, 64);

	while (n_room / 2 < pool->n_charges + n_more)
		n_room *= 2;
	if (n_room == n_old)
		return PAGED_OK;
	grown = n_room > UINT32_MAX ? NULL : calloc(n_room, sizeof(*grown));
	if (grown == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory to charge pages to several tenants",
				  pool->name);
	pool->charges = grown;
	pool->n_charge_room = (uint32_t)n_room;
	for (uint32_t i = 0; i < n_old; i++)
		if (old[i].n_refs != 0)
			grown[charge_find(pool, old[i].page, old[i].tenant)] = old[i];
	free(old);
	return PAGED_OK;
}

/* References of pages */

static bool
tenant_is_charged(const struct core_pool *pool, uint32_t tenant, uint32_t page)
{
	uint32_t of = pool->page_tenants[page];

	return of == SEVERAL ? charge_n_refs(pool, page, tenant) > 0 : of == tenant;
}

void
tenant_charge_new(struct core_pool *pool, uint32_t tenant, const _Atomic uint32_t *entries, uint32_t n)
{
	if (tenant == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		pool->page_tenants[load_u32(&entries[i])] = (uint16_t)tenant;
	tenant_pool(pool, tenant)->n_charged += n;
}

void
tenant_charge(struct core_pool *pool, uint32_t tenant, uint32_t page, uint32_t n_before, uint32_t n_refs)
{
	uint32_t of = pool->page_tenants[page];

	if (tenant != 0 && (n_before == 0 || !tenant_is_charged(pool, tenant, page)))
		tenant_pool(pool, tenant)->n_charged++;
	if (n_before == 0) {
		pool->page_tenants[page] = (uint16_t)tenant;
		return;
	}
	if (of == tenant)
		return;
	if (of != SEVERAL && of != 0)
		charge_add(pool, page, of, n_before);
	pool->page_tenants[page] = SEVERAL;
	if (tenant != 0)
		charge_add(pool, page, tenant, n_refs);
}

void
tenant_discharge(struct core_pool *pool, uint32_t tenant, uint32_t page, uint32_t n_before)
{
	uint32_t i;

	if (pool->page_tenants[page] != SEVERAL) {
		if (n_before == 1 && tenant != 0)
			tenant_pool(pool, tenant)->n_charged--;
	} else if (tenant != 0) {
		i = charge_find(pool, page, tenant);
		if (--pool->charges[i].n_refs == 0) {
			charge_remove(pool, i);
			tenant_pool(pool, tenant)->n_charged--;
		}
	}
	if (n_before == 1)
		pool->page_tenants[page] = 0;
}

/* Requests */

void
tenant_count_shared(struct core_pool *pool, uint32_t tenant, uint32_t page)
{
	if (tenants_exist(pool) && !tenant_is_charged(pool, tenant, page))
		pool->n_newly_charged++;
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

	return paged_fail(error, PAGED_ERR_QUOTA, "tenant %s, pool %s: %llu pages requested, %u charged, limit %u: %s",
			  pool->tenants->items[tenant - 1]->name, pool->name, (unsigned long long)n_pages,
			  own->n_charged, own->limit, advice);
}

enum paged_status
tenant_check(struct core_pool *pool, uint32_t tenant, struct paged_error *error)
{
	uint64_t n_pages = pool->n_requested + pool->n_newly_charged;

	if (!tenants_exist(pool))
		return PAGED_OK;
	if (n_pages > 0 && n_pages > tenant_n_left(pool, tenant))
		return tenant_fail(pool, tenant, n_pages, error);
	/* A shared page may need an entry for this tenant, and one for the tenant that it was of alone. */
	return pool->n_newly_charged == 0 ? PAGED_OK
					  : charges_make_room(pool, 2 * (uint64_t)pool->n_newly_charged, error);
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
	uint32_t count = page_count(pool, page);

	/* A page of one reference has one tenant, so it goes from one to the other without the hash. */
	if (count == 1) {
		tenant_discharge(pool, from, page, 1);
		tenant_charge(pool, to, page, 0, 1);
		return;
	}
	tenant_charge(pool, to, page, count, 1);
	tenant_discharge(pool, from, page, count + 1);
}

enum paged_status
tenant_move_sequences(struct core_pool *pool, uint32_t to, uint32_t n, const struct paged_seq_item *items,
		      struct paged_error *error)
{
	enum paged_status status;
	uint64_t n_new, n_entries = 0;

	if (!tenants_exist(pool))
		return PAGED_OK;
	n_new = to == 0 ? 0 : tenant_count_new(pool, to, n, items);
	if (n_new > 0 && n_new > tenant_n_left(pool, to))
		return tenant_fail(pool, to, n_new, error);
	for (uint32_t i = 0; i < n; i++)
		n_entries += page_table_n_named(pool, PAGED_SEQ_SLOT(items[i].seq));
	status = charges_make_room(pool, 2 * n_entries, error);
	if (status != PAGED_OK)
		return status;
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
	for (uint32_t i = 0; i < core->tenants.n; i++)
		free(core->tenants.items[i]);
	free(core->tenants.items);
}

/* Check */

/* Counts the references of a tenant by page, and compares them with what the page is charged. */
static enum paged_status
tenant_check_pages(const struct core_pool *pool, uint32_t tenant, uint32_t *n_refs, struct paged_error *error)
{
	const char *name = pool->tenants->items[tenant - 1]->name;
	uint32_t n_charged = 0;

	for (uint32_t slot = 0; slot < pool->high_slot; slot++) {
		const _Atomic uint32_t *table = region_page_table(&pool->view, slot);

		if (page_table_owner(pool, slot) == 0 || pool->slots[slot].tenant != tenant)
			continue;
		for (uint32_t i = page_table_first(pool, slot); i < page_table_n_pages(pool, slot); i++)
			n_charged += n_refs[load_u32(&table[i])]++ == 0;
	}
	for (uint32_t page = 0; page < pool->high_page; page++) {
		bool several = pool->page_tenants[page] == SEVERAL;
		uint32_t n_has = several                              ? charge_n_refs(pool, page, tenant)
				 : pool->page_tenants[page] == tenant ? page_count(pool, page)
								      : 0;

		if (n_has != n_refs[page])
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "pool %s: tenant %s has %u references of page %u and is charged %u",
					  pool->name, name, n_refs[page], page, n_has);
		n_refs[page] = 0;
	}
	if (n_charged != tenant_pool(pool, tenant)->n_charged)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: tenant %s names %u pages and is charged %u",
				  pool->name, name, n_charged, tenant_pool(pool, tenant)->n_charged);
	return PAGED_OK;
}

enum paged_status
check_tenants(const struct core_pool *pool, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	uint32_t *n_refs;

	if (!tenants_exist(pool))
		return PAGED_OK;
	n_refs = calloc((size_t)pool->high_page + 1, sizeof(*n_refs));
	if (n_refs == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory to check charges", pool->name);
	for (uint32_t tenant = 1; tenant <= pool->tenants->n && status == PAGED_OK; tenant++)
		status = tenant_check_pages(pool, tenant, n_refs, error);
	free(n_refs);
	return status;
}
