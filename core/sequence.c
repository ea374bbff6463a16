/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests on sequences.  Each checks all items before it changes
 * anything; after the checks nothing can fail.
 */
#include <string.h>
#include <sys/param.h>

#include "core/core_internal.h"

static uint32_t
pages_for_tokens(const struct core_pool *pool, uint32_t tokens)
{
	uint32_t page_size = pool->view.page_size;

	return tokens / page_size + (tokens % page_size != 0);
}

static enum paged_status
request_check_pool(const struct core *core, uint32_t pool, struct paged_error *error)
{
	if (pool >= core->n_pools)
		return paged_fail(error, PAGED_ERR_NOENT, "there is no pool %u; there are %u, numbered from 0", pool,
				  core->n_pools);
	return PAGED_OK;
}

static enum paged_status
request_check_n(uint32_t n, struct paged_error *error)
{
	if (n == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "the request names no sequence");
	if (n > PAGED_MAX_REQUEST_SEQS)
		return paged_fail(error, PAGED_ERR_LIMIT, "the request names %u sequences, at most %u are allowed", n,
				  PAGED_MAX_REQUEST_SEQS);
	return PAGED_OK;
}

/* paged_fail() with "sequence 12.1 of pool llama " before the formatted text. */
#define seq_fail(core, id, error, status, format, ...)                                        \
	paged_fail(error, status, "sequence " SEQ_FORMAT " of pool %s " format, SEQ_ARGS(id), \
		   seq_pool(core, id)->name, __VA_ARGS__)

/* The pool that an id names; the caller has checked that it exists. */
static struct core_pool *
seq_pool(const struct core *core, paged_seq_id id)
{
	return core->pools[PAGED_SEQ_POOL(id)];
}

static enum paged_status
seq_check(struct core *core, const struct core_session *session, paged_seq_id id, struct paged_error *error)
{
	struct core_pool *pool;
	enum paged_status status;
	uint32_t slot = PAGED_SEQ_SLOT(id), owner;

	if (PAGED_SEQ_GENERATION(id) == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%llu is not a sequence id", (unsigned long long)id);
	status = request_check_pool(core, PAGED_SEQ_POOL(id), error);
	if (status != PAGED_OK)
		return status;
	pool = seq_pool(core, id);
	if (!page_table_is_live(pool, id))
		return seq_fail(core, id, error, PAGED_ERR_STALE, "%s", "has ended");
	owner = page_table_owner(pool, slot);
	if (owner != session->id)
		return seq_fail(core, id, error, PAGED_ERR_PERM, "belongs to session %u", owner);
	if (pool->slots[slot].stamp == core->stamp)
		return seq_fail(core, id, error, PAGED_ERR_INVALID, "%s", "is named twice");
	pool->slots[slot].stamp = core->stamp;
	return PAGED_OK;
}

/* The checks common to all requests; starts a new stamp. */
static enum paged_status
core_request_begin(struct core *core, uint32_t session_id, uint32_t n, struct core_session **session_p,
		   struct paged_error *error)
{
	enum paged_status status = core_session_find_active(core, session_id, session_p, error);

	if (status != PAGED_OK)
		return status;
	core->stamp++;
	return request_check_n(n, error);
}

static enum paged_status
request_check_items(struct core *core, uint32_t session_id, uint32_t n, const struct paged_seq_item *items,
		    struct core_session **session_p, struct paged_error *error)
{
	enum paged_status status = core_request_begin(core, session_id, n, session_p, error);

	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = seq_check(core, *session_p, items[i].seq, error);
	return status;
}

/* Adds an item to the request's totals for the pool.  4096 items of 32 bits cannot overflow the 64-bit sum. */
static void
request_count(struct core *core, struct core_pool *pool, uint32_t n_pages, uint32_t n_slots)
{
	if (pool->stamp != core->stamp) {
		pool->stamp = core->stamp;
		pool->n_requested = 0;
		pool->n_ahead = 0;
		pool->n_created = 0;
	}
	pool->n_requested += n_pages;
	pool->n_created += n_slots;
}

static enum paged_status
request_check_free(struct core_pool *pool, struct paged_error *error)
{
	if (pool->n_created > core_pool_n_free_slots(pool))
		return paged_fail(error, PAGED_ERR_FULL, "pool %s: %u sequences requested, %u of %u slots free",
				  pool->name, pool->n_created, core_pool_n_free_slots(pool), pool->view.n_slots);
	if (pool->n_requested > core_pool_n_free(pool))
		return paged_fail(error, PAGED_ERR_FULL, "pool %s: %llu pages requested, %u free (%u quarantined)",
				  pool->name, (unsigned long long)pool->n_requested, core_pool_n_free(pool),
				  pool->n_quarantined);
	pool->n_spare = region_spare_pages(pool->view.n_pages, core_pool_n_free(pool) - (uint32_t)pool->n_requested);
	return PAGED_OK;
}

static enum paged_status
create_count_pages(struct core *core, struct core_session *session, const struct seq_spec *spec,
		   struct paged_error *error)
{
	enum paged_status status = request_check_pool(core, spec->pool, error);
	struct core_pool *pool;

	if (status != PAGED_OK)
		return status;
	pool = core->pools[spec->pool];
	if (spec->n_tokens > pool->view.max_length)
		return paged_fail(error, PAGED_ERR_LIMIT, "pool %s: a sequence may hold %u tokens, %u requested",
				  pool->name, pool->view.max_length, spec->n_tokens);
	request_count(core, pool, pages_for_tokens(pool, spec->n_tokens), 1);
	return core_session_make_pool(session, spec->pool, error);
}

enum paged_status
core_seq_create(struct core *core, uint32_t session_id, uint32_t n, const struct seq_spec *specs, paged_seq_id *ids,
		struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status;

	status = core_request_begin(core, session_id, n, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = create_count_pages(core, session, &specs[i], error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = request_check_free(core->pools[specs[i].pool], error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n; i++) {
		struct core_pool *pool = core->pools[specs[i].pool];

		ids[i] = page_table_open(pool, session, specs[i].tag);
		if (specs[i].n_tokens > 0)
			page_table_grow(pool, session, PAGED_SEQ_SLOT(ids[i]),
					pages_for_tokens(pool, specs[i].n_tokens));
	}
	return PAGED_OK;
}

/* Pages of the item's sequence once it has room for n_tokens. */
static uint32_t
reserve_pages(const struct core_pool *pool, const struct paged_seq_item *item)
{
	return MAX(page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq)), pages_for_tokens(pool, item->n_tokens));
}

/* Further pages that n_ahead asks for. */
static uint32_t
reserve_pages_ahead(const struct core_pool *pool, const struct paged_seq_item *item)
{
	uint64_t n_tokens = (uint64_t)item->n_tokens + item->n_ahead;
	uint32_t n_wanted = pages_for_tokens(pool, (uint32_t)MIN(n_tokens, pool->view.max_length));
	uint32_t n_needs = reserve_pages(pool, item);

	return n_wanted > n_needs ? n_wanted - n_needs : 0;
}

static enum paged_status
reserve_count_pages(struct core *core, const struct paged_seq_item *item, struct paged_error *error)
{
	struct core_pool *pool = seq_pool(core, item->seq);

	if (item->n_tokens > pool->view.max_length)
		return seq_fail(core, item->seq, error, PAGED_ERR_LIMIT, "may hold %u tokens, %u requested",
				pool->view.max_length, item->n_tokens);
	request_count(core, pool, reserve_pages(pool, item) - page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq)), 0);
	pool->n_ahead += reserve_pages_ahead(pool, item);
	return PAGED_OK;
}

enum paged_status
core_seq_reserve(struct core *core, uint32_t session_id, uint32_t n, const struct paged_seq_item *items,
		 struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status;

	status = request_check_items(core, session_id, n, items, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = reserve_count_pages(core, &items[i], error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = request_check_free(seq_pool(core, items[i].seq), error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n; i++) {
		struct core_pool *pool = seq_pool(core, items[i].seq);
		uint32_t slot = PAGED_SEQ_SLOT(items[i].seq), n_pages = reserve_pages(pool, &items[i]);
		uint64_t n_ahead = reserve_pages_ahead(pool, &items[i]);

		/* If the spare pages do not suffice, each item gets a share in proportion to its n_ahead. */
		if (pool->n_ahead > pool->n_spare)
			n_ahead = n_ahead * pool->n_spare / pool->n_ahead;
		if (n_pages + n_ahead > page_table_n_pages(pool, slot))
			page_table_grow(pool, session, slot, n_pages + (uint32_t)n_ahead);
	}
	return PAGED_OK;
}

static enum paged_status
truncate_check(const struct core *core, const struct paged_seq_item *item, struct paged_error *error)
{
	const struct core_pool *pool = seq_pool(core, item->seq);
	uint32_t capacity = page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq)) * pool->view.page_size;

	if (item->n_ahead != 0)
		return seq_fail(core, item->seq, error, PAGED_ERR_INVALID, "is truncated, but n_ahead is %u",
				item->n_ahead);
	if (item->n_tokens > capacity)
		return seq_fail(core, item->seq, error, PAGED_ERR_CAPACITY, "has room for %u tokens, cannot keep %u",
				capacity, item->n_tokens);
	return PAGED_OK;
}

enum paged_status
core_seq_truncate(struct core *core, uint32_t session_id, uint32_t n, const struct paged_seq_item *items,
		  struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status;

	status = request_check_items(core, session_id, n, items, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = truncate_check(core, &items[i], error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n; i++) {
		struct core_pool *pool = seq_pool(core, items[i].seq);
		uint32_t slot = PAGED_SEQ_SLOT(items[i].seq), n_pages = pages_for_tokens(pool, items[i].n_tokens);

		if (n_pages < page_table_n_pages(pool, slot))
			page_table_shrink(pool, session, slot, n_pages, false);
	}
	return PAGED_OK;
}

enum paged_status
core_seq_erase(struct core *core, uint32_t session_id, uint32_t n, const paged_seq_id *ids, struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status;

	status = core_request_begin(core, session_id, n, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = seq_check(core, session, ids[i], error);
	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++)
		page_table_close(seq_pool(core, ids[i]), session, PAGED_SEQ_SLOT(ids[i]), false);
	return PAGED_OK;
}

enum paged_status
core_seq_status(const struct core *core, paged_seq_id id, struct paged_seq_entry *entry, struct paged_error *error)
{
	enum paged_status status = request_check_pool(core, PAGED_SEQ_POOL(id), error);
	const struct core_pool *pool;
	struct region_snapshot snapshot;

	if (status != PAGED_OK)
		return status;
	pool = seq_pool(core, id);
	/* Never REGION_BUSY: no page table is being replaced between two requests. */
	if (region_snapshot_begin(&pool->view, id, &snapshot) != REGION_READ)
		return paged_fail(error, PAGED_ERR_STALE, "pool %s: no live sequence " SEQ_FORMAT, pool->name,
				  SEQ_ARGS(id));
	*entry = (struct paged_seq_entry){
		.seq = id,
		.session = snapshot.owner,
		.length = snapshot.length,
		.capacity = snapshot.capacity,
		.n_pages = snapshot.capacity / pool->view.page_size,
	};
	memcpy(entry->tag, pool->tags[PAGED_SEQ_SLOT(id)], sizeof(entry->tag));
	return PAGED_OK;
}

uint32_t
core_seq_pages(const struct core *core, paged_seq_id id, uint32_t from, uint32_t *pages, uint32_t most)
{
	const struct core_pool *pool = seq_pool(core, id);
	const _Atomic uint32_t *table = region_page_table(&pool->view, PAGED_SEQ_SLOT(id));
	uint32_t n = page_table_n_pages(pool, PAGED_SEQ_SLOT(id));

	n = n <= from ? 0 : n - from < most ? n - from : most;
	for (uint32_t i = 0; i < n; i++)
		pages[i] = atomic_load_explicit(&table[from + i], memory_order_relaxed);
	return n;
}

bool
core_seq_next(const struct core *core, uint32_t pool_index, uint32_t slot, uint32_t end, paged_seq_id *id_p)
{
	const struct core_pool *pool = core->pools[pool_index];

	if (end > pool->high_slot)
		end = pool->high_slot;
	for (; slot < end; slot++) {
		if (page_table_owner(pool, slot) != 0) {
			uint32_t generation =
				atomic_load_explicit(&region_slot(&pool->view, slot)->generation, memory_order_relaxed);

			*id_p = PAGED_SEQ(generation, pool_index, slot);
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
