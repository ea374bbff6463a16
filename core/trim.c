/* SPDX-License-Identifier: Apache-2.0 */
/* The request that gives pages at the beginning of a sequence back, which no query can reach any more. */
#include "core/core_internal.h"

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

enum paged_status
core_seq_trim(struct core *core, uint32_t session_id, uint32_t n, const struct paged_seq_item *items,
	      struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status;

	status = request_check_items(core, session_id, n, items, &session, error);
	for (uint32_t i = 0; status == PAGED_OK && i < n; i++)
		status = trim_check(core, &items[i], error);
	if (status != PAGED_OK)
		return status;

	for (uint32_t i = 0; i < n; i++) {
		struct core_pool *pool = request_pool(core, items[i].seq);

		page_table_trim(pool, session, PAGED_SEQ_SLOT(items[i].seq), items[i].n_tokens / pool->view.page_size);
	}
	return PAGED_OK;
}
