/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs.  Each looks at every item first and touches nothing until all
 * are found good; what follows cannot fail.
 */
#include "daemon/core/core_internal.h"

static uint32_t
pages_for(const struct pool *pool, uint32_t tokens)
{
	uint32_t page_size = pool->view.page_size;

	return tokens / page_size + (tokens % page_size != 0);
}

static enum paged_status
request_check_pool(const struct core *core, uint32_t pool, struct paged_error *error)
{
	if (pool >= core->n_pools)
		return paged_fail(error, PAGED_ERR_NOENT, "there is no pool %u, but %u from 0 on", pool, core->n_pools);
	return PAGED_OK;
}

static enum paged_status
request_check_n(uint32_t n, struct paged_error *error)
{
	if (n == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "the request names no sequence");
	if (n > PAGED_MAX_REQUEST_SEQS)
		return paged_fail(error, PAGED_ERR_LIMIT, "the request names %u sequences, %u are the most", n,
				  PAGED_MAX_REQUEST_SEQS);
	return PAGED_OK;
}

/* Fails with "sequence 12.1 of pool llama" and the rest. */
#define item_fail(core, item, error, status, format, ...)                                           \
	paged_fail(error, status, "sequence %u.%u of pool %s " format, PAGED_SEQ_SLOT((item)->seq), \
		   PAGED_SEQ_GENERATION((item)->seq), (core)->pools[(item)->pool]->name, __VA_ARGS__)

static enum paged_status
item_check(struct core *core, const struct session *session, const struct core_item *item, struct paged_error *error)
{
	struct pool *pool;
	enum paged_status status;
	uint32_t slot = PAGED_SEQ_SLOT(item->seq), owner;

	status = request_check_pool(core, item->pool, error);
	if (status != PAGED_OK)
		return status;
	pool = core->pools[item->pool];
	if (!row_is_live(pool, item->seq))
		return item_fail(core, item, error, PAGED_ERR_STALE, "%s", "has ended");
	owner = row_owner(pool, slot);
	if (owner != session->id)
		return item_fail(core, item, error, PAGED_ERR_PERM, "belongs to session %u", owner);
	if (pool->slots[slot].stamp == core->stamp)
		return item_fail(core, item, error, PAGED_ERR_INVALID, "%s", "is named twice");
	pool->slots[slot].stamp = core->stamp;
	return PAGED_OK;
}

/* Everything that the verbs on sequences have in common. */
static enum paged_status
request_check(struct core *core, uint32_t session_id, uint32_t n, const struct core_item *items,
	      struct session **session_p, struct paged_error *error)
{
	enum paged_status status;

	status = session_find_active(core, session_id, session_p, error);
	if (status != PAGED_OK)
		return status;
	status = request_check_n(n, error);
	if (status != PAGED_OK)
		return status;
	core->stamp++;
	for (uint32_t i = 0; i < n; i++) {
		status = item_check(core, *session_p, &items[i], error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}

enum paged_status
core_seq_create(struct core *core, uint32_t session_id, uint32_t pool_index, uint32_t n, paged_seq_id *ids,
		struct paged_error *error)
{
	struct session *session;
	struct pool *pool;
	enum paged_status status;

	status = session_find_active(core, session_id, &session, error);
	if (status != PAGED_OK)
		return status;
	status = request_check_n(n, error);
	if (status != PAGED_OK)
		return status;
	status = request_check_pool(core, pool_index, error);
	if (status != PAGED_OK)
		return status;
	pool = core->pools[pool_index];
	if (n > pool_n_free_slots(pool))
		return paged_fail(error, PAGED_ERR_FULL, "pool %s: %u sequences requested, %u of %u slots free",
				  pool->name, n, pool_n_free_slots(pool), pool->view.n_slots);
	status = session_make_holding(session, pool_index, error);
	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++)
		ids[i] = row_open(pool, session);
	return PAGED_OK;
}

/* Adds the pages that an item lacks to its pool's sum; 4096 items of 32 bits cannot overflow it. */
static enum paged_status
reserve_count(struct core *core, const struct core_item *item, struct paged_error *error)
{
	struct pool *pool = core->pools[item->pool];
	uint32_t n_has = row_n_pages(pool, PAGED_SEQ_SLOT(item->seq));
	uint32_t n_needs = pages_for(pool, item->tokens);

	if (item->tokens > pool->view.max_length)
		return item_fail(core, item, error, PAGED_ERR_LIMIT, "may hold %u tokens, %u requested",
				 pool->view.max_length, item->tokens);
	if (pool->stamp != core->stamp) {
		pool->stamp = core->stamp;
		pool->n_requested = 0;
	}
	if (n_needs > n_has)
		pool->n_requested += n_needs - n_has;
	return PAGED_OK;
}

static enum paged_status
reserve_check_free(const struct pool *pool, struct paged_error *error)
{
	if (pool->n_requested > pool_n_free(pool))
		return paged_fail(error, PAGED_ERR_FULL, "pool %s: %llu pages requested, %u free (%u quarantined)",
				  pool->name, (unsigned long long)pool->n_requested, pool_n_free(pool),
				  pool->n_quarantined);
	return PAGED_OK;
}

enum paged_status
core_seq_reserve(struct core *core, uint32_t session_id, uint32_t n, const struct core_item *items,
		 struct paged_error *error)
{
	struct session *session;
	enum paged_status status;

	status = request_check(core, session_id, n, items, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = reserve_count(core, &items[i], error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = reserve_check_free(core->pools[items[i].pool], error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n; i++) {
		struct pool *pool = core->pools[items[i].pool];
		uint32_t slot = PAGED_SEQ_SLOT(items[i].seq), n_pages = pages_for(pool, items[i].tokens);

		if (n_pages > row_n_pages(pool, slot))
			row_grow(pool, session, slot, n_pages);
	}
	return PAGED_OK;
}

static enum paged_status
truncate_check(const struct core *core, const struct core_item *item, struct paged_error *error)
{
	const struct pool *pool = core->pools[item->pool];
	uint32_t capacity = row_n_pages(pool, PAGED_SEQ_SLOT(item->seq)) * pool->view.page_size;

	if (item->tokens > capacity)
		return item_fail(core, item, error, PAGED_ERR_CAPACITY, "has room for %u tokens, cannot keep %u",
				 capacity, item->tokens);
	return PAGED_OK;
}

enum paged_status
core_seq_truncate(struct core *core, uint32_t session_id, uint32_t n, const struct core_item *items,
		  struct paged_error *error)
{
	struct session *session;
	enum paged_status status;

	status = request_check(core, session_id, n, items, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = truncate_check(core, &items[i], error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n; i++) {
		struct pool *pool = core->pools[items[i].pool];
		uint32_t slot = PAGED_SEQ_SLOT(items[i].seq), n_pages = pages_for(pool, items[i].tokens);

		if (n_pages < row_n_pages(pool, slot))
			row_cut(pool, session, slot, n_pages, false);
	}
	return PAGED_OK;
}

enum paged_status
core_seq_erase(struct core *core, uint32_t session_id, uint32_t n, const struct core_item *items,
	       struct paged_error *error)
{
	struct session *session;
	enum paged_status status;

	status = request_check(core, session_id, n, items, &session, error);
	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++)
		row_close(core->pools[items[i].pool], session, PAGED_SEQ_SLOT(items[i].seq), false);
	return PAGED_OK;
}

bool
core_seq_next(const struct core *core, uint32_t pool_index, uint32_t slot, uint32_t end, paged_seq_id *id_p)
{
	const struct pool *pool = core->pools[pool_index];

	if (end > pool->high_slot)
		end = pool->high_slot;
	for (; slot < end; slot++) {
		if (row_owner(pool, slot) != 0) {
			uint32_t generation =
				atomic_load_explicit(&region_slot(&pool->view, slot)->generation, memory_order_relaxed);

			*id_p = (paged_seq_id)generation << 32 | slot;
			return true;
		}
	}
	return false;
}

uint32_t
core_high_slot(const struct core *core, uint32_t pool)
{
	return core->pools[pool]->high_slot;
}
