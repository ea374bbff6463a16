/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a page: free, referenced, cached, quarantined.  No other file changes them. */
#include "core/audit.h"
#include "core/node.h"
#include "core/pages.h"
#include "core/tenant.h"

#include <assert.h>
#include <string.h>

#include "common/fault.h"

/* Pages whose counts are prefetched while references are added. */
#define REF_AHEAD 16u

static void
page_count_store(struct core_pool *pool, uint32_t page, uint32_t count)
{
	if (pool->audit != NULL)
		audit_count(pool->audit, page);
	atomic_store_explicit(&region_page(&pool->view, page)->count, count, memory_order_relaxed);
}

static void
page_flags_store(struct core_pool *pool, uint32_t page, uint32_t flags)
{
	if (pool->audit != NULL)
		audit_count(pool->audit, page);
	atomic_store_explicit(&region_page(&pool->view, page)->flags, flags, memory_order_relaxed);
}

void
pages_allocate(struct core_pool *pool, uint32_t tenant, _Atomic uint32_t *entries, uint32_t n)
{
	uint32_t n_old = n < pool->n_stack ? n : pool->n_stack;
	uint32_t n_new = n - n_old;

	assert(n_new <= pool->view.n_pages - pool->high_page);
	if (pool->audit != NULL)
		audit_free_list(pool->audit, pool->n_stack - n_old);
	/* In the free list, pages never used come before the stack, the highest number first. */
	for (uint32_t i = 0; i < n_new; i++)
		atomic_store_explicit(&entries[i], pool->high_page + n_new - 1 - i, memory_order_relaxed);
	for (uint32_t i = 0; i < n_old; i++)
		atomic_store_explicit(&entries[n_new + i], pool->stack[pool->n_stack - n_old + i],
				      memory_order_relaxed);
	pool->high_page += n_new;
	pool->n_stack -= n_old;
	pool->n_referenced += n;
	pool->n_worked += n;
	counter_add(&pool->header->n_taken, n);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t page = atomic_load_explicit(&entries[i], memory_order_relaxed);

		page_count_store(pool, page, 1);
	}
	if (tenant != 0)
		tenant_charge_new(pool, tenant, entries, n);
	if (n > 0 && paged_fault("corrupt-count"))
		page_count_store(pool, atomic_load_explicit(&entries[0], memory_order_relaxed), 2);
}

static void
page_free(struct core_pool *pool, uint32_t page)
{
	page_count_store(pool, page, 0);
	pool->stack[pool->n_stack++] = page;
}

static void
page_quarantine(struct core_pool *pool, struct core_session *session, uint32_t page)
{
	struct session_pool *session_pool = &session->pools[pool->index];

	page_count_store(pool, page, REGION_PAGE_QUARANTINED);
	pool->pages[page].next = NONE;
	if (session_pool->first_page == NONE)
		session_pool->first_page = page;
	else
		pool->pages[session_pool->last_page].next = page;
	session_pool->last_page = page;
	pool->n_quarantined++;
	session->n_quarantined++;
	if (session->tenant != 0)
		tenant_quarantine(pool, session->tenant);
}

void
pages_ref(struct core_pool *pool, uint32_t tenant, uint32_t page, uint32_t n_refs)
{
	uint32_t count = page_count(pool, page);

	pool->n_worked++;
	if (count == 0) {
		assert(page_is_published(pool, page));
		lru_unlist(pool, page);
		pool->n_cached--;
		pool->n_referenced++;
	}
	if (tenant != 0)
		tenant_charge(pool, tenant, page, n_refs);
	page_count_store(pool, page, count + n_refs);
}

void
pages_ref_entries(struct core_pool *pool, uint32_t tenant, const _Atomic uint32_t *entries, uint32_t n, uint32_t n_refs)
{
	for (uint32_t i = 0; i < n; i++) {
		if (i + REF_AHEAD < n) {
			uint32_t ahead = atomic_load_explicit(&entries[i + REF_AHEAD], memory_order_relaxed);

			__builtin_prefetch(region_page(&pool->view, ahead), 1);
		}
		pages_ref(pool, tenant, atomic_load_explicit(&entries[i], memory_order_relaxed), n_refs);
	}
}

bool
pages_unref(struct core_pool *pool, struct core_session *session, uint32_t tenant, const _Atomic uint32_t *entries,
	    uint32_t n, bool quarantine)
{
	bool cached = false;

	pool->n_worked += n;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t page = atomic_load_explicit(&entries[i], memory_order_relaxed);
		uint32_t count = page_count(pool, page);
		bool published = page_is_published(pool, page);

		pool->n_referenced -= count == 1;
		/* The tenant of the session is charged a quarantined page until the page is free. */
		if (count == 1 && !published && quarantine) {
			page_quarantine(pool, session, page);
			continue;
		}
		if (tenant != 0)
			tenant_discharge(pool, tenant, page);
		if (count > 1) {
			page_count_store(pool, page, count - 1);
		} else if (published) {
			/* Its K and V were written before it was published, so nothing can be under way. */
			page_count_store(pool, page, 0);
			pool->n_cached++;
			cached = true;
		} else {
			page_free(pool, page);
		}
	}
	return cached;
}

void
pages_publish(struct core_pool *pool, uint32_t page)
{
	page_flags_store(pool, page, REGION_PAGE_PUBLISHED);
}

void
pages_unpublish(struct core_pool *pool, uint32_t page)
{
	page_flags_store(pool, page, 0);
	if (page_count(pool, page) != 0)
		return;
	pool->n_cached--;
	page_free(pool, page);
}

uint32_t
pages_free_quarantined(struct core_pool *pool, struct core_session *session, uint32_t n)
{
	struct session_pool *session_pool = &session->pools[pool->index];
	uint32_t n_released = 0;

	while (n_released < n && session_pool->first_page != NONE) {
		uint32_t page = session_pool->first_page;

		session_pool->first_page = pool->pages[page].next;
		if (session->tenant != 0)
			tenant_free_quarantined(pool, session->tenant, page);
		page_free(pool, page);
		n_released++;
	}
	pool->n_worked += n_released;
	pool->n_quarantined -= n_released;
	session->n_quarantined -= n_released;
	return n_released;
}

void
core_pool_free_list(const struct core *core, uint32_t pool_index, uint32_t *pages)
{
	const struct core_pool *pool = core->pools[pool_index];
	uint32_t n_new = pool->view.n_pages - pool->high_page;

	for (uint32_t i = 0; i < n_new; i++)
		pages[i] = pool->view.n_pages - 1 - i;
	memcpy(&pages[n_new], pool->stack, pool->n_stack * sizeof(*pages));
}
