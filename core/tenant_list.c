/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of tenants, and their shares: of slots, sessions, members, tickets and pins.  A tenant of the configuration
 * stays; one of a user exists while it has members, sessions, pins or published pages.
 */
#include "core/request.h"
#include "core/session.h"
#include "core/tenant.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENANTS_MAX (UINT16_MAX - 1u)

static struct core_tenant *
tenant_item(const struct core *core, uint32_t tenant)
{
	return core->tenants.items[tenant - 1];
}

/* The list */

/* The number of the tenant with this name; 0: none. */
static uint32_t
tenants_find(const struct tenants *tenants, const char *name)
{
	for (uint32_t i = 0; i < tenants->n; i++)
		if (tenants->items[i] != NULL && strcmp(tenants->items[i]->name, name) == 0)
			return i + 1;
	return 0;
}

/* A number for a new tenant, of one that was removed if there is one; 0: no memory, or all are in use. */
static uint32_t
tenants_make_room(struct tenants *tenants)
{
	struct core_tenant **items;
	uint32_t i = 0;

	while (i < tenants->n && tenants->items[i] != NULL)
		i++;
	if (i < tenants->n)
		return i + 1;
	if (tenants->n == TENANTS_MAX)
		return 0;
	items = reallocarray(tenants->items, tenants->n + 1, sizeof(struct core_tenant *));
	if (items == NULL)
		return 0;
	tenants->items = items;
	items[tenants->n] = NULL;
	return ++tenants->n;
}

static enum paged_status
tenant_create(struct core *core, const char *name, uint32_t *tenant_p, struct paged_error *error)
{
	struct core_tenant *tenant = calloc(1, sizeof(*tenant));

	*tenant_p = tenant == NULL ? 0 : tenants_make_room(&core->tenants);
	if (*tenant_p == 0) {
		free(tenant);
		return paged_fail(error, PAGED_ERR_NOMEM, "tenant %s: no memory, or %u tenants, which are all", name,
				  core->tenants.n);
	}
	core->tenants.items[*tenant_p - 1] = tenant;
	strcpy(tenant->name, name);
	tenant->limits = CORE_UNLIMITED;
	for (uint32_t i = 0; i < PAGED_MAX_POOLS; i++) {
		tenant->pools[i].limits = CORE_POOL_UNLIMITED;
		tenant->pools[i].cache_share = CORE_NO_LIMIT;
	}
	return PAGED_OK;
}

enum paged_status
core_tenant_add(struct core *core, const char *name, uint32_t *tenant_p, struct paged_error *error)
{
	size_t length = strlen(name);

	if (length == 0 || length > PAGED_MAX_NAME)
		return paged_fail(error, PAGED_ERR_INVALID, "a tenant's name has 1 to %u bytes, not %zu",
				  PAGED_MAX_NAME, length);
	if (tenants_find(&core->tenants, name) != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "tenant %s: the name is already in use", name);
	return tenant_create(core, name, tenant_p, error);
}

enum paged_status
core_tenant_of_user(struct core *core, uint32_t uid, uint32_t *tenant_p, bool *created_p, struct paged_error *error)
{
	enum paged_status status;
	char name[32];

	snprintf(name, sizeof(name), "uid %u", uid);
	*tenant_p = tenants_find(&core->tenants, name);
	*created_p = *tenant_p == 0;
	if (!*created_p)
		return PAGED_OK;
	status = tenant_create(core, name, tenant_p, error);
	if (status == PAGED_OK)
		tenant_item(core, *tenant_p)->of_user = true;
	return status;
}

static void
tenant_free(struct core *core, struct core_tenant *tenant)
{
	for (uint32_t i = 0; i < core->n_pools; i++)
		core_unmap_array(tenant->pools[i].n_refs, core->pools[i]->view.n_pages,
				 sizeof(*tenant->pools[i].n_refs));
	free(tenant);
}

/* Without sessions and moves, no pool has an array of it. */
static void
tenant_remove_unused(struct tenants *tenants, uint32_t tenant)
{
	struct core_tenant *own = tenants->items[tenant - 1];

	if (!own->of_user || own->n_members > 0 || own->n_sessions > 0 || own->n_pins > 0 || own->n_nodes > 0 ||
	    own->n_moves > 0)
		return;
	tenants->items[tenant - 1] = NULL;
	free(own);
}

void
tenants_free(struct core *core)
{
	for (uint32_t i = 0; i < core->tenants.n; i++)
		if (core->tenants.items[i] != NULL)
			tenant_free(core, core->tenants.items[i]);
	free(core->tenants.items);
}

/* Limits */

void
core_tenant_limit(struct core *core, uint32_t tenant, const struct core_tenant_limits *limits)
{
	tenant_item(core, tenant)->limits = *limits;
}

void
core_tenant_limit_pool(struct core *core, uint32_t tenant, uint32_t pool, const struct core_tenant_pool_limits *limits)
{
	tenant_item(core, tenant)->pools[pool].limits = *limits;
}

void
core_tenant_limit_pages(struct core *core, uint32_t tenant, uint32_t pool, uint32_t n_pages)
{
	tenant_item(core, tenant)->pools[pool].limits.n_pages = n_pages;
}

const char *
tenant_setting(const struct core_tenant *tenant)
{
	return tenant->of_user ? "user-share" : "share";
}

enum paged_status
core_tenant_join(struct core *core, uint32_t tenant, bool check, struct paged_error *error)
{
	struct core_tenant *own = tenant == 0 ? NULL : tenant_item(core, tenant);

	if (own == NULL)
		return PAGED_OK;
	if (check && own->n_members >= own->limits.n_members)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "tenant %s: %u members, and its share is %u: end some, or raise %s or max-members",
				  own->name, own->n_members, own->limits.n_members, tenant_setting(own));
	own->n_members++;
	return PAGED_OK;
}

void
core_tenant_leave(struct core *core, uint32_t tenant)
{
	if (tenant == 0)
		return;
	tenant_item(core, tenant)->n_members--;
	tenant_remove_unused(&core->tenants, tenant);
}

enum paged_status
core_tenant_check_sessions(const struct core *core, uint32_t tenant, struct paged_error *error)
{
	const struct core_tenant *own = tenant == 0 ? NULL : tenant_item(core, tenant);

	if (own == NULL || own->n_sessions < own->limits.n_sessions)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_LIMIT,
			  "tenant %s: %u sessions, and its share is %u: close some, or raise %s or max-sessions; ended "
			  "ones count until their processes have ended",
			  own->name, own->n_sessions, own->limits.n_sessions, tenant_setting(own));
}

void
core_session_tenant(struct core *core, uint32_t session, uint32_t tenant)
{
	struct core_session *found = idmap_find(&core->sessions, session);

	assert(tenant <= core->tenants.n && found->n_sequences == 0 && found->tenant == 0);
	found->tenant = (uint16_t)tenant;
	if (tenant != 0)
		tenant_item(core, tenant)->n_sessions++;
}

/* Without sessions and moves, nothing is charged: the counts by page are all 0. */
static void
tenant_free_refs(struct core *core, struct core_tenant *own)
{
	if (own->n_sessions > 0 || own->n_moves > 0)
		return;
	for (uint32_t i = 0; i < core->n_pools; i++) {
		assert(own->pools[i].n_charged == 0 && own->pools[i].n_sequences == 0);
		core_unmap_array(own->pools[i].n_refs, core->pools[i]->view.n_pages, sizeof(*own->pools[i].n_refs));
		own->pools[i].n_refs = NULL;
	}
}

void
tenant_session_freed(struct core *core, uint32_t tenant)
{
	struct core_tenant *own = tenant == 0 ? NULL : tenant_item(core, tenant);

	if (own == NULL)
		return;
	own->n_sessions--;
	tenant_free_refs(core, own);
	tenant_remove_unused(&core->tenants, tenant);
}

void
tenant_count_moves(struct core *core, uint32_t tenant, int n)
{
	if (tenant == 0)
		return;
	tenant_item(core, tenant)->n_moves += (uint32_t)n;
	tenant_free_refs(core, tenant_item(core, tenant));
	tenant_remove_unused(&core->tenants, tenant);
}

void
tenant_count_slots(struct core_pool *pool, uint32_t tenant, int n)
{
	if (tenant != 0)
		tenant_pool(pool, tenant)->n_sequences += (uint32_t)n;
}

enum paged_status
tenant_check_slots(const struct core_pool *pool, uint32_t tenant, uint32_t n, struct paged_error *error)
{
	const struct core_tenant *own = tenant == 0 ? NULL : pool->tenants->items[tenant - 1];
	const struct tenant_pool *own_pool = own == NULL ? NULL : &own->pools[pool->index];

	if (own == NULL || n == 0 || (uint64_t)own_pool->n_sequences + n <= own_pool->limits.n_sequences)
		return PAGED_OK;
	paged_fail(error, PAGED_ERR_QUOTA,
		   "tenant %s, pool %s: %u sequences requested, %u in use, and its share is %u of %u: end some, "
		   "or raise %s or sequences",
		   own->name, pool->name, n, own_pool->n_sequences, own_pool->limits.n_sequences, pool->view.n_slots,
		   tenant_setting(own));
	return request_fail_short(pool, pool->request.n_requested, 0,
				  (uint64_t)own_pool->n_sequences + n - own_pool->limits.n_sequences, error);
}

void
tenant_count_tickets(struct core *core, uint32_t tenant, int n)
{
	if (tenant != 0)
		tenant_item(core, tenant)->n_tickets += (uint32_t)n;
}

enum paged_status
tenant_check_tickets(const struct core *core, uint32_t tenant, struct paged_error *error)
{
	const struct core_tenant *own = tenant == 0 ? NULL : tenant_item(core, tenant);

	if (own == NULL || own->n_tickets < own->limits.n_tickets)
		return PAGED_OK;
	return paged_fail(
		error, PAGED_ERR_QUOTA,
		"tenant %s: %u open tickets, and its share is %u: have some adopted or cancelled, or raise %s",
		own->name, own->n_tickets, own->limits.n_tickets, tenant_setting(own));
}

enum paged_status
tenant_check_pin(const struct core_pool *pool, uint32_t tenant, uint32_t n_pins, uint32_t n_pages,
		 struct paged_error *error)
{
	const struct core_tenant *own = tenant == 0 ? NULL : pool->tenants->items[tenant - 1];
	const struct tenant_pool *has = own == NULL ? NULL : &own->pools[pool->index];

	if (own == NULL)
		return PAGED_OK;
	if (n_pins > 0 && has->n_pins >= has->limits.n_pins)
		return paged_fail(error, PAGED_ERR_QUOTA,
				  "tenant %s, pool %s: %u pins, and its share is %u: unpin some, or raise %s",
				  own->name, pool->name, has->n_pins, has->limits.n_pins, tenant_setting(own));
	if ((uint64_t)has->n_pin_pages + n_pages > has->limits.n_pin_pages)
		return paged_fail(error, PAGED_ERR_QUOTA,
				  "tenant %s, pool %s: a %s of %u pages, with %u of its other pins and holds, exceeds "
				  "its share of pin-limit (%u): end some, or raise %s or pin-limit",
				  own->name, pool->name, n_pins > 0 ? "pin" : "hold", n_pages, has->n_pin_pages,
				  has->limits.n_pin_pages, tenant_setting(own));
	return PAGED_OK;
}

void
tenant_count_pin(struct core_pool *pool, uint32_t tenant, uint32_t n_pages, bool add)
{
	struct tenant_pool *own;

	if (tenant == 0)
		return;
	own = tenant_pool(pool, tenant);
	own->n_pins += add ? 1 : -1u;
	own->n_pin_pages += add ? n_pages : -n_pages;
	pool->tenants->items[tenant - 1]->n_pins += add ? 1 : -1u;
	tenant_remove_unused(pool->tenants, tenant);
}

void
tenant_count_node(struct core_pool *pool, uint32_t tenant, bool add)
{
	if (tenant == 0)
		return;
	pool->tenants->items[tenant - 1]->n_nodes += add ? 1 : -UINT64_C(1);
	tenant_remove_unused(pool->tenants, tenant);
}

void
tenant_count_held(struct core_pool *pool, uint32_t tenant, int64_t n)
{
	if (tenant != 0)
		tenant_pool(pool, tenant)->n_pin_pages += (uint32_t)n;
}

/* Reports */

static uint32_t
limit_report(uint32_t limit)
{
	return limit == CORE_NO_LIMIT ? 0 : limit;
}

bool
core_tenant_next(const struct core *core, uint32_t *position, struct paged_quota_entry *entry)
{
	const uint64_t end = (uint64_t)core->tenants.n * core->n_pools;
	const struct core_tenant *tenant;
	const struct tenant_pool *own;
	uint32_t pool, unit_size;

	/* Past the numbers of tenants that were removed. */
	while (*position < end && core->tenants.items[*position / core->n_pools] == NULL)
		*position += core->n_pools - *position % core->n_pools;
	if (*position >= end)
		return false;
	tenant = core->tenants.items[*position / core->n_pools];
	pool = (*position)++ % core->n_pools;
	own = &tenant->pools[pool];
	unit_size = core->pools[pool]->table_memory.unit_size;
	*entry = (struct paged_quota_entry){
		.pool = pool,
		.limited = own->limits.n_pages != CORE_NO_LIMIT,
		.limit = limit_report(own->limits.n_pages),
		.n_charged = own->n_charged,
		.n_quarantined = own->n_quarantined,
		.n_sequences = own->n_sequences,
		.max_sequences = limit_report(own->limits.n_sequences),
		.n_pins = own->n_pins,
		.max_pins = limit_report(own->limits.n_pins),
		.n_pin_pages = own->n_pin_pages,
		.max_pin_pages = limit_report(own->limits.n_pin_pages),
		.n_cached = own->n_cached,
		.shared = own->cache_share != CORE_NO_LIMIT,
		.cache_share = limit_report(own->cache_share),
		.table_used = own->n_table_units * unit_size,
		.table_limit = own->limits.table_bytes != UINT64_MAX ? own->limits.table_bytes : 0,
		.n_sessions = tenant->n_sessions,
		.max_sessions = limit_report(tenant->limits.n_sessions),
		.n_members = tenant->n_members,
		.max_members = limit_report(tenant->limits.n_members),
		.n_tickets = tenant->n_tickets,
		.max_tickets = limit_report(tenant->limits.n_tickets),
	};
	memcpy(entry->tenant, tenant->name, sizeof(entry->tenant));
	return true;
}
