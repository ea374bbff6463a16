/* SPDX-License-Identifier: Apache-2.0 */
/* The request that gives pages at the beginning of a sequence back, which no query can reach any more. */
#include <sys/param.h>

#include "core/page_table.h"
#include "core/pages.h"
#include "core/request.h"

static enum paged_status
trim_check(const struct core *core, const struct paged_seq_item *item, struct paged_error *error)
{
	const struct core_pool *pool = request_pool(core, item->seq);
	uint32_t capacity = page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq)) * pool->view.page_size;

	if (item->n_ahead != 0)
		return request_fail(core, item->seq, error, PAGED_ERR_INVALID, "is trimmed, but n_ahead is %u",
				    item->n_ahead);
	if (item->n_tokens > capacity)
		return request_fail(core, item->seq, error, PAGED_ERR_CAPACITY,
				    "has room for %u tokens, cannot be trimmed to token %u", capacity, item->n_tokens);
	return PAGED_OK;
}

/* Entries that become REGION_NO_PAGE, and nodes among which lru_release_next() searches. */
static uint64_t
trim_work(const struct core_pool *pool, const struct paged_seq_item *item)
{
	uint32_t n_pages = item->n_tokens / pool->view.page_size, slot = PAGED_SEQ_SLOT(item->seq);
	uint32_t first = page_table_first(pool, slot);

	if (n_pages <= first)
		return 1;
	return n_pages - first +
	       (page_table_published(pool, slot) > first * pool->view.page_size ? MIN(first, LRU_SEARCH) : 0);
}

static bool
trim_step(struct core *core, struct core_operation *operation, const struct operation_item *item, uint32_t *budget)
{
	struct core_pool *pool = request_pool(core, item->seq);
	uint32_t slot = PAGED_SEQ_SLOT(item->seq), first = page_table_first(pool, slot);
	uint32_t n_left = item->n_pages > first ? item->n_pages - first : 0, n = MIN(n_left, *budget);
	uint64_t n_worked = pool->n_worked;

	page_table_trim(pool, operation->session, slot, first + n);
	operation_spend(budget, pool->n_worked - n_worked);
	return n == n_left;
}

static enum paged_status
trim_begin(struct core *core, struct core_session *session, uint32_t n, const struct paged_seq_item *items,
	   struct paged_error *error)
{
	static const struct operation_ops ops = { .step = trim_step };
	struct core_operation *operation;
	enum paged_status status = operation_create(session, &ops, n, &operation, error);

	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++)
		operation->items[i] = (struct operation_item){
			.seq = items[i].seq,
			.n_pages = items[i].n_tokens / request_pool(core, items[i].seq)->view.page_size,
		};
	operation_begin(core, operation);
	return PAGED_OK;
}

enum paged_status
core_seq_trim(struct core *core, uint32_t session_id, uint32_t n, const struct paged_seq_item *items,
	      struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status;
	uint64_t n_work = 0;

	status = request_check_items(core, session_id, n, items, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = trim_check(core, &items[i], error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n; i++)
		n_work += trim_work(request_pool(core, items[i].seq), &items[i]);
	if (n_work > core->step)
		return trim_begin(core, session, n, items, error);
	for (uint32_t i = 0; i < n; i++) {
		struct core_pool *pool = request_pool(core, items[i].seq);

		page_table_trim(pool, session, PAGED_SEQ_SLOT(items[i].seq), items[i].n_tokens / pool->view.page_size);
	}
	return PAGED_OK;
}
