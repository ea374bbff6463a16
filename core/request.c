/* SPDX-License-Identifier: Apache-2.0 */
/* The checks and the totals that requests have in common. */
#include "core/page_table.h"
#include "core/request.h"
#include "core/session.h"
#include "core/tenant.h"

#include <stdio.h>
#include <sys/param.h>

uint32_t
request_pages(const struct core_pool *pool, uint32_t tokens)
{
	uint32_t page_size = pool->view.page_size;

	return tokens / page_size + (tokens % page_size != 0);
}

enum paged_status
request_check_pool(const struct core *core, uint32_t pool, struct paged_error *error)
{
	if (pool >= core->n_pools)
		return paged_fail(error, PAGED_ERR_NOENT, "there is no pool %u; there are %u, numbered from 0", pool,
				  core->n_pools);
	return PAGED_OK;
}

enum paged_status
request_session(const struct core *core, uint32_t session_id, struct core_session **session_p,
		struct paged_error *error)
{
	enum paged_status status = core_session_find_active(core, session_id, session_p, error);

	if (status == PAGED_OK && (*session_p)->operation != NULL)
		return paged_fail(error, PAGED_ERR_AGAIN, "session %u has an unfinished request", session_id);
	return status;
}

enum paged_status
request_begin(struct core *core, uint32_t session_id, uint32_t n, struct core_session **session_p,
	      struct paged_error *error)
{
	enum paged_status status = request_session(core, session_id, session_p, error);

	if (status != PAGED_OK)
		return status;
	core->stamp++;
	if (n == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "the request names no sequence");
	if (n > PAGED_MAX_REQUEST_SEQS)
		return paged_fail(error, PAGED_ERR_LIMIT, "the request names %u sequences, at most %u are allowed", n,
				  PAGED_MAX_REQUEST_SEQS);
	return PAGED_OK;
}

enum paged_status
request_check_owned(struct core *core, const struct core_session *session, paged_seq_id id, bool once,
		    struct paged_error *error)
{
	struct core_pool *pool;
	enum paged_status status;
	uint32_t slot = PAGED_SEQ_SLOT(id), owner;

	if (PAGED_SEQ_GENERATION(id) == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%llu is not a sequence id", (unsigned long long)id);
	status = request_check_pool(core, PAGED_SEQ_POOL(id), error);
	if (status != PAGED_OK)
		return status;
	pool = request_pool(core, id);
	if (!page_table_is_live(pool, id))
		return request_fail(core, id, error, PAGED_ERR_STALE, "%s", "has ended");
	if (page_table_is_frozen(pool, slot))
		return request_fail(core, id, error, PAGED_ERR_PERM, "%s", "was given away");
	owner = page_table_owner(pool, slot);
	if (owner != session->id)
		return request_fail(core, id, error, PAGED_ERR_PERM, "belongs to session %u", owner);
	if (once && pool->slots[slot].stamp == core->stamp)
		return request_fail(core, id, error, PAGED_ERR_INVALID, "%s", "is named twice");
	pool->slots[slot].stamp = core->stamp;
	return PAGED_OK;
}

enum paged_status
request_check_seq(struct core *core, const struct core_session *session, paged_seq_id id, bool once,
		  struct paged_error *error)
{
	enum paged_status status = request_check_owned(core, session, id, once, error);

	if (status == PAGED_OK && page_table_is_hold(request_pool(core, id), PAGED_SEQ_SLOT(id)))
		return request_fail(core, id, error, PAGED_ERR_PERM, "%s", "is a hold, which can only be erased");
	return status;
}

enum paged_status
request_check_items(struct core *core, uint32_t session_id, uint32_t n, const struct paged_seq_item *items,
		    struct core_session **session_p, struct paged_error *error)
{
	enum paged_status status = request_begin(core, session_id, n, session_p, error);

	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = request_check_seq(core, *session_p, items[i].seq, true, error);
	return status;
}

enum paged_status
request_check_draining(const struct core_session *session, struct paged_error *error)
{
	if (session->draining)
		return paged_fail(
			error, PAGED_ERR_STOPPING,
			"session %u is drained and gets no new sequences: finish or give away those it has, then close",
			session->id);
	return PAGED_OK;
}

enum paged_status
request_check_trimmed(const struct core *core, paged_seq_id id, uint32_t n_tokens, const char *what,
		      struct paged_error *error)
{
	const struct core_pool *pool = request_pool(core, id);
	uint32_t n_trimmed = page_table_first(pool, PAGED_SEQ_SLOT(id)) * pool->view.page_size;

	if (n_tokens < n_trimmed)
		return request_fail(core, id, error, PAGED_ERR_INVALID,
				    "has given back the pages of its first %u tokens, %s %u", n_trimmed, what,
				    n_tokens);
	return PAGED_OK;
}

/* 4096 items of 32 bits cannot overflow the 64-bit sums. */
void
request_count(struct core *core, struct core_pool *pool, uint32_t n_pages, uint32_t n_slots)
{
	if (pool->request.stamp != core->stamp)
		pool->request = (struct request_totals){ .stamp = core->stamp };
	pool->request.n_requested += n_pages;
	pool->request.n_created += n_slots;
}

enum paged_status
request_fail_short(const struct core_pool *pool, uint64_t n_pages, uint64_t pages_missing, uint64_t slots_missing,
		   struct paged_error *error)
{
	error->shortage = (struct paged_shortage){
		.pool = pool->index,
		.pages_missing = (uint32_t)MIN(pages_missing, UINT32_MAX),
		.slots_missing = (uint32_t)MIN(slots_missing, UINT32_MAX),
		.n_requested = (uint32_t)MIN(n_pages, UINT32_MAX),
		.n_free = core_pool_n_free(pool),
		.n_cached = pool->n_cached - MIN(pool->request.n_kept, pool->n_cached),
		.n_others = pool->n_referenced, /* the library subtracts the session's own */
		.n_quarantined = pool->n_quarantined,
		.n_promised = pool->n_promised,
	};
	return error->status;
}

static void
request_fail_pages(const struct core_pool *pool, struct paged_error *error)
{
	uint32_t n_cached = pool->n_cached - MIN(pool->request.n_kept, pool->n_cached);
	char cached[32] = "", promised[64] = "", held[48] = "";

	if (n_cached > 0)
		snprintf(cached, sizeof(cached), " and %u cached", n_cached);
	if (pool->n_promised > 0)
		snprintf(promised, sizeof(promised), ", unfinished requests take %u", pool->n_promised);
	if (pool->n_held > 0)
		snprintf(held, sizeof(held), ", holds keep %u", pool->n_held);
	paged_fail(error, PAGED_ERR_FULL, "pool %s: %llu pages requested, %u free%s (%u quarantined%s%s)", pool->name,
		   (unsigned long long)pool->request.n_requested, core_pool_n_free(pool), cached, pool->n_quarantined,
		   promised, held);
}

enum paged_status
request_check_free(struct core_pool *pool, const struct core_session *session, struct paged_error *error)
{
	uint32_t n_left, n_available = core_pool_n_available(pool), n_slots = core_pool_n_free_slots(pool);
	uint64_t n_wanted = pool->request.n_requested + pool->request.n_kept;
	uint64_t pages_missing = n_wanted > n_available ? n_wanted - n_available : 0;
	enum paged_status status;

	/* Before what is free: to wait until more is does not help a tenant at its limit. */
	status = tenant_check(pool, session->tenant, error);
	if (status != PAGED_OK)
		return status;
	if (pool->request.n_created > n_slots) {
		paged_fail(error, PAGED_ERR_FULL, "pool %s: %u sequences requested, %u of %u slots free", pool->name,
			   pool->request.n_created, n_slots, pool->view.n_slots);
		return request_fail_short(pool, pool->request.n_requested, pages_missing,
					  pool->request.n_created - n_slots, error);
	}
	status = table_memory_check(pool, session->tenant, error);
	if (status != PAGED_OK)
		return status;
	if (pages_missing > 0) {
		request_fail_pages(pool, error);
		return request_fail_short(pool, pool->request.n_requested, pages_missing, 0, error);
	}
	n_left = tenant_n_left(pool, session->tenant);
	pool->request.n_spare = region_spare_pages(pool->view.n_pages, n_available - (uint32_t)n_wanted);
	if (n_left != UINT32_MAX)
		pool->request.n_spare =
			MIN(pool->request.n_spare, n_left - MIN(n_left, (uint32_t)pool->request.n_requested));
	if (!table_memory_has_ahead(pool, session->tenant))
		pool->request.n_spare = 0;
	return PAGED_OK;
}
