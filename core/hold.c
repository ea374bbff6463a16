/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds: page tables whose pages are any published ones, in any order.  A hold only keeps them from eviction, for a
 * session that copies them elsewhere.
 */
#include "core/node.h"
#include "core/page_table.h"
#include "core/pages.h"
#include "core/request.h"
#include "core/session.h"
#include "core/tenant.h"

static enum paged_status
hold_check_page(struct core_pool *pool, const struct core_session *session, uint32_t page, uint64_t serial,
		struct paged_error *error)
{
	const struct node_ref ref = { .page = page, .serial = serial };

	if (page >= pool->view.n_pages)
		return paged_fail(error, PAGED_ERR_RANGE, "pool %s: there is no page %u; there are %u", pool->name,
				  page, pool->view.n_pages);
	if (page >= pool->high_page || !node_is_live(pool, &ref))
		return paged_fail(error, PAGED_ERR_STALE, "pool %s: page %u is not the node of serial %llu", pool->name,
				  page, (unsigned long long)serial);
	if (pool->pages[page].marked)
		return paged_fail(error, PAGED_ERR_INVALID, "pool %s: page %u is named twice", pool->name, page);
	pool->pages[page].marked = 1;
	pool->request.n_kept += page_count(pool, page) == 0;
	tenant_count_shared(pool, session->tenant, page);
	return PAGED_OK;
}

static enum paged_status
hold_check_pages(struct core_pool *pool, const struct core_session *session, uint32_t n, const uint32_t *pages,
		 const uint64_t *serials, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	uint32_t n_marked = 0;

	for (; n_marked < n; n_marked++) {
		status = hold_check_page(pool, session, pages[n_marked], serials[n_marked], error);
		if (status != PAGED_OK)
			break;
	}
	for (uint32_t i = 0; i < n_marked; i++)
		pool->pages[pages[i]].marked = 0;
	return status;
}

static enum paged_status
hold_check_limits(const struct core_pool *pool, uint32_t tenant, uint32_t n, struct paged_error *error)
{
	enum paged_status status;

	if (n > pool->view.table_entries)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "pool %s: a hold may have %u pages, %u requested: make several holds", pool->name,
				  pool->view.table_entries, n);
	status = tenant_check_pin(pool, tenant, 0, n, error);
	if (status != PAGED_OK)
		return status;
	if (n > pool->pin_limit - pool->n_pin_nodes - pool->n_held)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "pool %s: a hold of %u pages, with %u of other holds and %u of pins, exceeds "
				  "pin-limit (%u): release holds or pins, or raise pin-limit",
				  pool->name, n, pool->n_held, pool->n_pin_nodes, pool->pin_limit);
	return PAGED_OK;
}

enum paged_status
core_pages_hold(struct core *core, uint32_t session_id, uint32_t pool_index, uint32_t n, const uint32_t *pages,
		const uint64_t *serials, paged_seq_id *id_p, struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status = request_session(core, session_id, &session, error);
	struct core_pool *pool;

	if (status == PAGED_OK)
		status = request_check_draining(session, error);
	if (status == PAGED_OK)
		status = request_check_pool(core, pool_index, error);
	if (status == PAGED_OK)
		status = core_session_make_pool(core, session, pool_index, error);
	if (status != PAGED_OK)
		return status;
	pool = core->pools[pool_index];
	if (n == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "pool %s: a hold of no pages", pool->name);
	core->stamp++;
	request_count(core, pool, 0, 1);
	table_memory_count_new(pool, n);
	status = hold_check_limits(pool, session->tenant, n, error);
	if (status != PAGED_OK && n <= pool->view.table_entries) {
		pins_shorten(pool);
		status = hold_check_limits(pool, session->tenant, n, error);
	}
	if (status == PAGED_OK)
		status = hold_check_pages(pool, session, n, pages, serials, error);
	if (status == PAGED_OK)
		status = request_check_free(pool, session, error);
	if (status != PAGED_OK)
		return status;

	core_pool_change_begin(pool);
	*id_p = page_table_open(pool, session, "");
	for (uint32_t i = 0; i < n; i++)
		pages_ref(pool, session->tenant, pages[i], 1);
	page_table_hold(pool, session, PAGED_SEQ_SLOT(*id_p), n, pages);
	core_pool_change_end(pool);
	return PAGED_OK;
}
