/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests on sequences.  Each checks all items before it changes
 * anything; after the checks nothing can fail.
 */
#include <string.h>
#include <sys/param.h>

#include "core/page_table.h"
#include "core/pages.h"
#include "core/request.h"
#include "core/session.h"

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
	request_count(core, pool, request_pages(pool, spec->n_tokens), 1);
	table_memory_count_new(pool, request_pages(pool, spec->n_tokens));
	return core_session_make_pool(core, session, spec->pool, error);
}

enum paged_status
core_seq_create(struct core *core, uint32_t session_id, uint32_t n, const struct seq_spec *specs, paged_seq_id *ids,
		struct paged_error *error)
{
	struct core_operation *operation = NULL;
	struct core_session *session;
	enum paged_status status;

	status = request_begin(core, session_id, n, &session, error);
	if (status == PAGED_OK)
		status = request_check_draining(session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = create_count_pages(core, session, &specs[i], error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = request_check_free(core->pools[specs[i].pool], session, error);
	if (status == PAGED_OK)
		status = growth_create_if_long(core, session, n, &operation, error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n && operation == NULL; i++)
		lru_make_room(core->pools[specs[i].pool], core->pools[specs[i].pool]->request.n_requested);
	for (uint32_t i = 0; i < n; i++) {
		struct core_pool *pool = core->pools[specs[i].pool];

		ids[i] = page_table_open(pool, session, specs[i].tag);
		growth_add(core, session, operation, i, ids[i], request_pages(pool, specs[i].n_tokens));
	}
	growth_begin(core, operation);
	return PAGED_OK;
}

/* Pages of the item's sequence once it has room for n_tokens. */
static uint32_t
reserve_pages(const struct core_pool *pool, const struct paged_seq_item *item)
{
	return MAX(page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq)), request_pages(pool, item->n_tokens));
}

/* Further pages that n_ahead asks for. */
static uint32_t
reserve_pages_ahead(const struct core_pool *pool, const struct paged_seq_item *item)
{
	uint64_t n_tokens = (uint64_t)item->n_tokens + item->n_ahead;
	uint32_t n_wanted = request_pages(pool, (uint32_t)MIN(n_tokens, pool->view.max_length));
	uint32_t n_needs = reserve_pages(pool, item);

	return n_wanted > n_needs ? n_wanted - n_needs : 0;
}

/* Pages that the request takes for the item, once all items are counted. */
static uint32_t
reserve_pages_taken(const struct core *core, const struct paged_seq_item *item)
{
	const struct core_pool *pool = request_pool(core, item->seq);
	uint64_t n_ahead = reserve_pages_ahead(pool, item);

	/* If the spare pages do not suffice, each item gets a share in proportion to its n_ahead. */
	if (pool->request.n_ahead > pool->request.n_spare)
		n_ahead = n_ahead * pool->request.n_spare / pool->request.n_ahead;
	return reserve_pages(pool, item) + (uint32_t)n_ahead - page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq));
}

static enum paged_status
reserve_count_pages(struct core *core, const struct paged_seq_item *item, struct paged_error *error)
{
	struct core_pool *pool = request_pool(core, item->seq);

	if (item->n_tokens > pool->view.max_length)
		return request_fail(core, item->seq, error, PAGED_ERR_LIMIT, "may hold %u tokens, %u requested",
				    pool->view.max_length, item->n_tokens);
	request_count(core, pool, reserve_pages(pool, item) - page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq)), 0);
	pool->request.n_ahead += reserve_pages_ahead(pool, item);
	table_memory_count(pool, PAGED_SEQ_SLOT(item->seq), reserve_pages(pool, item), reserve_pages_ahead(pool, item));
	return PAGED_OK;
}

enum paged_status
core_seq_reserve(struct core *core, uint32_t session_id, uint32_t n, const struct paged_seq_item *items,
		 struct paged_error *error)
{
	struct core_operation *operation = NULL;
	struct core_session *session;
	enum paged_status status;

	status = request_check_items(core, session_id, n, items, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = reserve_count_pages(core, &items[i], error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = request_check_free(request_pool(core, items[i].seq), session, error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n; i++)
		request_pool(core, items[i].seq)->request.n_taken += reserve_pages_taken(core, &items[i]);
	status = growth_create_if_long(core, session, n, &operation, error);
	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n && operation == NULL; i++)
		lru_make_room(request_pool(core, items[i].seq), request_pool(core, items[i].seq)->request.n_taken);
	for (uint32_t i = 0; i < n; i++) {
		const struct core_pool *pool = request_pool(core, items[i].seq);
		uint32_t n_pages = page_table_n_pages(pool, PAGED_SEQ_SLOT(items[i].seq));

		growth_add(core, session, operation, i, items[i].seq, n_pages + reserve_pages_taken(core, &items[i]));
	}
	growth_begin(core, operation);
	return PAGED_OK;
}

static enum paged_status
truncate_check(const struct core *core, const struct paged_seq_item *item, struct paged_error *error)
{
	const struct core_pool *pool = request_pool(core, item->seq);
	uint32_t capacity = page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq)) * pool->view.page_size;

	if (item->n_ahead != 0)
		return request_fail(core, item->seq, error, PAGED_ERR_INVALID, "is truncated, but n_ahead is %u",
				    item->n_ahead);
	if (item->n_tokens > capacity)
		return request_fail(core, item->seq, error, PAGED_ERR_CAPACITY,
				    "has room for %u tokens, cannot keep %u", capacity, item->n_tokens);
	return request_check_trimmed(core, item->seq, item->n_tokens, "it cannot keep", error);
}

static bool
truncate_step(struct core *core, struct core_operation *operation, const struct operation_item *item, uint32_t *budget)
{
	return page_table_truncate_step(request_pool(core, item->seq), operation->session, PAGED_SEQ_SLOT(item->seq),
					item->n_pages, item->n_whole, budget);
}

static enum paged_status
truncate_begin(struct core *core, struct core_session *session, uint32_t n, const struct paged_seq_item *items,
	       struct paged_error *error)
{
	static const struct operation_ops ops = { .step = truncate_step };
	struct core_operation *operation;
	enum paged_status status = operation_create(session, &ops, n, &operation, error);

	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++) {
		const struct core_pool *pool = request_pool(core, items[i].seq);

		operation->items[i] = (struct operation_item){
			.seq = items[i].seq,
			.n_pages = request_pages(pool, items[i].n_tokens),
			.n_whole = items[i].n_tokens / pool->view.page_size,
		};
	}
	operation_begin(core, operation);
	return PAGED_OK;
}

enum paged_status
core_seq_truncate(struct core *core, uint32_t session_id, uint32_t n, const struct paged_seq_item *items,
		  struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status;
	uint64_t n_work = 0;

	status = request_check_items(core, session_id, n, items, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = truncate_check(core, &items[i], error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n; i++)
		n_work += page_table_drop_work(request_pool(core, items[i].seq), PAGED_SEQ_SLOT(items[i].seq),
					       request_pages(request_pool(core, items[i].seq), items[i].n_tokens));
	if (n_work > core->step)
		return truncate_begin(core, session, n, items, error);
	for (uint32_t i = 0; i < n; i++) {
		page_table_truncate(request_pool(core, items[i].seq), session, PAGED_SEQ_SLOT(items[i].seq),
				    items[i].n_tokens);
	}
	return PAGED_OK;
}

static bool
erase_step(struct core *core, struct core_operation *operation, const struct operation_item *item, uint32_t *budget)
{
	return page_table_close_step(request_pool(core, item->seq), operation->session, PAGED_SEQ_SLOT(item->seq),
				     false, budget);
}

static enum paged_status
erase_begin(struct core *core, struct core_session *session, uint32_t n, const paged_seq_id *ids,
	    struct paged_error *error)
{
	static const struct operation_ops ops = { .step = erase_step };
	struct core_operation *operation;
	enum paged_status status = operation_create(session, &ops, n, &operation, error);

	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++)
		operation->items[i].seq = ids[i];
	operation_begin(core, operation);
	return PAGED_OK;
}

enum paged_status
core_seq_erase(struct core *core, uint32_t session_id, uint32_t n, const paged_seq_id *ids, struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status;
	uint64_t n_work = 0;

	status = request_begin(core, session_id, n, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = request_check_owned(core, session, ids[i], true, error);
	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++)
		n_work += page_table_drop_work(request_pool(core, ids[i]), PAGED_SEQ_SLOT(ids[i]), 0);
	if (n_work > core->step)
		return erase_begin(core, session, n, ids, error);
	for (uint32_t i = 0; i < n; i++)
		page_table_close(request_pool(core, ids[i]), session, PAGED_SEQ_SLOT(ids[i]), false);
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
	pool = request_pool(core, id);
	/* Never REGION_BUSY: no page table is being replaced between two requests. */
	if (region_snapshot_begin(&pool->view, id, &snapshot) != REGION_READ)
		return paged_fail(error, PAGED_ERR_STALE, "pool %s: no live sequence " SEQ_FORMAT, pool->name,
				  SEQ_ARGS(id));
	*entry = (struct paged_seq_entry){
		.seq = id,
		.session = snapshot.owner,
		.capacity = snapshot.capacity,
		.n_pages = snapshot.capacity / pool->view.page_size,
		.n_trimmed = snapshot.first,
		.state = snapshot.flags,
	};
	memcpy(entry->tag, pool->tags[PAGED_SEQ_SLOT(id)], sizeof(entry->tag));
	return PAGED_OK;
}

uint32_t
core_seq_pages(const struct core *core, paged_seq_id id, uint32_t from, uint32_t *pages, uint32_t most)
{
	const struct core_pool *pool = request_pool(core, id);
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
