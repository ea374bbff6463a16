/* SPDX-License-Identifier: Apache-2.0 */
/* tenant.h - what tenants are charged, and their shares */
#ifndef PAGED_CORE_TENANT_H
#define PAGED_CORE_TENANT_H

#include "core/core_internal.h"

/* tenant.c */

static inline struct tenant_pool *
tenant_pool(const struct core_pool *pool, uint32_t tenant)
{
	return &pool->tenants->items[tenant - 1]->pools[pool->index];
}

/** tenant_make_pool - before a session's first use of a pool: make its tenant ready to be charged; PAGED_ERR_NOMEM */
enum paged_status tenant_make_pool(struct core_pool *pool, uint32_t tenant, struct paged_error *error);

/* The `tenant` of these five is not 0. */

/** tenant_charge_new - charge pages that were free until now */
void tenant_charge_new(struct core_pool *pool, uint32_t tenant, const _Atomic uint32_t *entries, uint32_t n);

/** tenant_charge - count further references of a page */
void tenant_charge(struct core_pool *pool, uint32_t tenant, uint32_t page, uint32_t n_refs);

/** tenant_discharge - count one reference of a page less */
void tenant_discharge(struct core_pool *pool, uint32_t tenant, uint32_t page);

/** tenant_quarantine - the last reference of a page is dropped, and the page is quarantined: it stays charged */
void tenant_quarantine(struct core_pool *pool, uint32_t tenant);

/** tenant_free_quarantined - a quarantined page is free */
void tenant_free_quarantined(struct core_pool *pool, uint32_t tenant, uint32_t page);

/** tenant_count_shared - add to the request's n_newly_charged if sharing the page charges it to the tenant */
void tenant_count_shared(struct core_pool *pool, uint32_t tenant, uint32_t page);

/** tenant_n_left - pages that the tenant may still be charged, without promised ones; UINT32_MAX: no limit */
uint32_t tenant_n_left(const struct core_pool *pool, uint32_t tenant);

/** tenant_check - PAGED_ERR_QUOTA if the request's pages or slots exceed the limits */
enum paged_status tenant_check(const struct core_pool *pool, uint32_t tenant, struct paged_error *error);

/** tenant_is_over - true: the tenant, which is not 0, is charged more pages than its limit */
bool tenant_is_over(const struct core_pool *pool, uint32_t tenant);

/** tenant_fail_pages - PAGED_ERR_QUOTA: the tenant may not be charged n_pages more */
enum paged_status tenant_fail_pages(const struct core_pool *pool, uint32_t tenant, uint64_t n_pages,
				    struct paged_error *error);

/** tenant_is_charged - true: sequences of the tenant name the page, or it left the page in quarantine */
bool tenant_is_charged(const struct core_pool *pool, uint32_t tenant, uint32_t page);

/** check_tenants - verify all charges of a pool from its page tables and quarantines */
enum paged_status check_tenants(const struct core *core, const struct core_pool *pool, struct paged_error *error);

/* tenant_list.c; tenant 0 is none, and has no limit */

void tenants_free(struct core *core);

/** tenant_session_freed - count a session of the tenant less; may remove the tenant */
void tenant_session_freed(struct core *core, uint32_t tenant);

/** tenant_count_slots - add n to the slots that sequences of the tenant have */
void tenant_count_slots(struct core_pool *pool, uint32_t tenant, int n);

/** tenant_count_moves - add n to the unfinished adopts that charge pages to the tenant, which may remove it */
void tenant_count_moves(struct core *core, uint32_t tenant, int n);

/** tenant_setting - the setting that raises the tenant's share */
const char *tenant_setting(const struct core_tenant *tenant);

/** tenant_check_slots - PAGED_ERR_QUOTA unless the tenant may have n more */
enum paged_status tenant_check_slots(const struct core_pool *pool, uint32_t tenant, uint32_t n,
				     struct paged_error *error);

/** tenant_check_pin - PAGED_ERR_QUOTA unless the tenant may have n_pins more pins, and n_pages of them or of a hold */
enum paged_status tenant_check_pin(const struct core_pool *pool, uint32_t tenant, uint32_t n_pins, uint32_t n_pages,
				   struct paged_error *error);

/** tenant_count_pin - count a pin of n pages; with `add` false the pin has ended, which may remove the tenant */
void tenant_count_pin(struct core_pool *pool, uint32_t tenant, uint32_t n_pages, bool add);

/** tenant_count_node - count a node that was published by the tenant; with `add` false: removed, as above */
void tenant_count_node(struct core_pool *pool, uint32_t tenant, bool add);

/** tenant_count_held - add n to the pages that holds of the tenant have */
void tenant_count_held(struct core_pool *pool, uint32_t tenant, int64_t n);

/** tenant_count_tickets - add n to the tenant's open tickets */
void tenant_count_tickets(struct core *core, uint32_t tenant, int n);

/** tenant_check_tickets - PAGED_ERR_QUOTA unless the tenant may have one more */
enum paged_status tenant_check_tickets(const struct core *core, uint32_t tenant, struct paged_error *error);

#endif
