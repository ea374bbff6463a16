/* SPDX-License-Identifier: Apache-2.0 */
/* core_check(): the core's own lists and counts are consistent; audit.c recounts a pool's pages. */
#include "core/audit.h"
#include "core/page_table.h"
#include "core/pages.h"
#include "core/request.h"
#include "core/tenant.h"
#include "core/ticket.h"

#include <stdlib.h>

/* A page in a quarantine list must have the count REGION_PAGE_QUARANTINED and be in no list twice. */
static enum paged_status
check_quarantined_page(const struct core_pool *pool, bool *seen, uint32_t page, struct paged_error *error)
{
	uint32_t found;

	if (page >= pool->high_page)
		return paged_fail(error, PAGED_ERR_CORRUPT,
				  "pool %s: a quarantine has page %u, but only pages below %u were handed out",
				  pool->name, page, pool->high_page);
	if (seen[page])
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: page %u is in quarantine twice", pool->name,
				  page);
	seen[page] = true;
	found = atomic_load_explicit(&region_page(&pool->view, page)->count, memory_order_relaxed);
	if (found != REGION_PAGE_QUARANTINED)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: page %u is in quarantine, but its count is %u",
				  pool->name, page, found);
	return PAGED_OK;
}

/* The quarantined pages that the audit counted must be the ones in the sessions' lists. */
static enum paged_status
check_quarantines(const struct core *core, const struct core_pool *pool, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	uint32_t n_quarantined = 0;
	bool *seen = calloc((size_t)pool->high_page + 1, sizeof(*seen));

	if (seen == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory to list %u pages", pool->name,
				  pool->high_page);
	for (uint32_t i = 0; i < core->sessions.n; i++) {
		const struct core_session *session = core->sessions.entries[i].session;

		if (pool->index >= session->n_pools)
			continue;
		for (uint32_t page = session->pools[pool->index].first_page; status == PAGED_OK && page != NONE;
		     page = pool->pages[page].next) {
			status = check_quarantined_page(pool, seen, page, error);
			n_quarantined++;
		}
	}
	free(seen);
	if (status != PAGED_OK)
		return status;
	if (n_quarantined != pool->n_quarantined)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: sessions list %u quarantined pages of %u",
				  pool->name, n_quarantined, pool->n_quarantined);
	return PAGED_OK;
}

static enum paged_status
check_slot_lists(const struct core *core, const struct core_pool *pool, struct paged_error *error)
{
	uint32_t n_sequences = 0, n_free = 0;
	enum paged_status status = check_tickets(core, pool, &n_sequences, error);

	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < core->sessions.n; i++) {
		const struct core_session *session = core->sessions.entries[i].session;

		if (pool->index >= session->n_pools)
			continue;
		for (uint32_t slot = session->pools[pool->index].first_slot; slot != NONE;
		     slot = pool->slots[slot].next) {
			if (++n_sequences > pool->n_sequences || page_table_owner(pool, slot) != session->id)
				return paged_fail(error, PAGED_ERR_CORRUPT,
						  "pool %s: session %u lists slot %u, which is session %u's",
						  pool->name, session->id, slot, page_table_owner(pool, slot));
		}
	}
	for (uint32_t slot = pool->first_free_slot; slot != NONE && n_free <= pool->high_slot;
	     slot = pool->slots[slot].next)
		n_free++;
	if (n_sequences != pool->n_sequences || n_sequences + n_free + pool->n_retired != pool->high_slot)
		return paged_fail(error, PAGED_ERR_CORRUPT,
				  "pool %s: %u of %u sequences + %u free + %u retired are not %u slots", pool->name,
				  n_sequences, pool->n_sequences, n_free, pool->n_retired, pool->high_slot);
	return PAGED_OK;
}

enum paged_status
core_check(struct core *core, uint32_t pool_index, struct paged_check_result *result, struct paged_error *error)
{
	const struct core_pool *pool = core->pools[pool_index];
	struct core_audit *audit;
	enum paged_status status;

	status = core_audit_begin(core, pool_index, &audit, error);
	if (status != PAGED_OK)
		return status;
	while (core_audit_step(audit, UINT32_MAX))
		;
	status = core_audit_end(audit, result, error);
	if (status != PAGED_OK)
		return status;
	if (result->n_sequences != pool->n_sequences)
		status = paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: the region has %u sequences, the core %u",
				    pool->name, result->n_sequences, pool->n_sequences);
	if (status == PAGED_OK)
		status = check_quarantines(core, pool, error);
	if (status == PAGED_OK)
		status = check_slot_lists(core, pool, error);
	if (status == PAGED_OK)
		status = check_index(pool, error);
	if (status == PAGED_OK)
		status = check_tenants(core, pool, error);
	if (status == PAGED_OK)
		status = check_promises(core, pool, error);
	if (status == PAGED_OK)
		status = check_table_memory(pool, error);
	if (status == PAGED_OK)
		status = check_cache_shares(pool, error);
	return region_verdict(result, status, error);
}
