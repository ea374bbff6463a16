/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/core/core_internal.h"

#include <stdlib.h>

/* A page of the free list or of a quarantine: it has the count that it should have there, and was not met before. */
static enum paged_status
check_page(const struct pool *pool, bool *met, uint32_t page, uint32_t count, const char *where,
	   struct paged_error *error)
{
	uint32_t found;

	if (page >= pool->high_page)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: %s has page %u, handed out were %u", pool->name,
				  where, page, pool->high_page);
	if (met[page])
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: page %u is listed twice, the second time in %s",
				  pool->name, page, where);
	met[page] = true;
	found = atomic_load_explicit(&region_page(&pool->view, page)->count, memory_order_relaxed);
	if (found != count)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: page %u is in %s, but its count is %u",
				  pool->name, page, where, found);
	return PAGED_OK;
}

/* The region has counted the pages; each must lie in the one list where it belongs. */
static enum paged_status
check_pages(const struct core *core, const struct pool *pool, bool *met, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	uint32_t n_quarantined = 0;

	for (uint32_t i = 0; status == PAGED_OK && i < pool->n_stack; i++)
		status = check_page(pool, met, pool->stack[i], 0, "the free list", error);
	for (uint32_t i = 0; i < core->sessions.n; i++) {
		const struct session *session = core->sessions.entries[i].session;

		if (pool->index >= session->n_holdings)
			continue;
		for (uint32_t page = session->holdings[pool->index].first_page; status == PAGED_OK && page != NONE;
		     page = pool->links[page]) {
			status = check_page(pool, met, page, REGION_PAGE_QUARANTINED, "a quarantine", error);
			n_quarantined++;
		}
	}
	if (status != PAGED_OK)
		return status;
	if (n_quarantined != pool->n_quarantined)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: sessions list %u quarantined pages of %u",
				  pool->name, n_quarantined, pool->n_quarantined);
	return PAGED_OK;
}

static enum paged_status
check_sequences(const struct core *core, const struct pool *pool, struct paged_error *error)
{
	uint32_t n_sequences = 0, n_free = 0;

	for (uint32_t i = 0; i < core->sessions.n; i++) {
		const struct session *session = core->sessions.entries[i].session;

		if (pool->index >= session->n_holdings)
			continue;
		for (uint32_t slot = session->holdings[pool->index].first_slot; slot != NONE;
		     slot = pool->slots[slot].next) {
			if (++n_sequences > pool->n_sequences || row_owner(pool, slot) != session->id)
				return paged_fail(error, PAGED_ERR_CORRUPT,
						  "pool %s: session %u lists slot %u, which is session %u's",
						  pool->name, session->id, slot, row_owner(pool, slot));
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
core_check(const struct core *core, uint32_t pool_index, struct region_books *books, struct paged_error *error)
{
	const struct pool *pool = core->pools[pool_index];
	struct paged_error found;
	enum paged_status status;
	bool *met;

	status = region_check(&pool->view, books, &found);
	if (status != PAGED_OK)
		return paged_fail(error, status, "pool %s: %s", pool->name, found.text);
	if (books->n_free != pool_n_free(pool) || books->n_sequences != pool->n_sequences)
		return paged_fail(error, PAGED_ERR_CORRUPT,
				  "pool %s: the region has %u free pages and %u sequences, the core %u and %u",
				  pool->name, books->n_free, books->n_sequences, pool_n_free(pool), pool->n_sequences);
	met = calloc((size_t)pool->high_page + 1, sizeof(*met));
	if (met == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory to list %u pages", pool->name,
				  pool->high_page);
	status = check_pages(core, pool, met, error);
	free(met);
	return status != PAGED_OK ? status : check_sequences(core, pool, error);
}
