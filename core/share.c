/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests that create sequences on pages of others: start, on published pages, and fork.  Like all requests, each
 * checks all items before it changes anything; after the checks nothing can fail.
 */
#include "core/node.h"
#include "core/page_table.h"
#include "core/pages.h"
#include "core/request.h"
#include "core/session.h"
#include "core/tenant.h"

#include <sys/param.h>

/* Pages that are prefetched while a chain is checked. */
#define CHAIN_AHEAD 16u

static enum paged_status
chain_fail(const struct core_pool *pool, uint32_t i, uint32_t page, const char *what, struct paged_error *error)
{
	return paged_fail(error, PAGED_ERR_STALE, "pool %s: page %u of the prefix is physical page %u, which %s",
			  pool->name, i, page, what);
}

/*
 * The pages must be a chain that begins at `at`.  By induction it is then the prefix that the caller found: a node's
 * block key and parent never change while its serial stands.  A chain has no page twice, because a node has one parent.
 * Adds the chain's cached pages to the request's n_kept, and to n_newly_charged those that it charges to the tenant.
 */
static enum paged_status
chain_check(struct core_pool *pool, const struct core_session *session, const struct seq_start_spec *start,
	    const uint32_t *pages, struct node_ref at, struct paged_error *error)
{
	for (uint32_t i = 0; i < start->n_pages; i++) {
		uint32_t page = pages[i];
		struct node_ref parent;

		if (i + CHAIN_AHEAD < start->n_pages && pages[i + CHAIN_AHEAD] < pool->high_page) {
			uint32_t ahead = pages[i + CHAIN_AHEAD];

			/* What the checks read, and what start_apply() writes. */
			__builtin_prefetch(region_node(&pool->view, ahead), 1);
			__builtin_prefetch(region_page(&pool->view, ahead), 1);
			__builtin_prefetch(&pool->pages[ahead], 1);
		}
		if (page >= pool->view.n_pages)
			return paged_fail(error, PAGED_ERR_RANGE,
					  "pool %s: page %u of the prefix is physical page %u of a pool of %u",
					  pool->name, i, page, pool->view.n_pages);
		if (page >= pool->high_page || !page_is_published(pool, page))
			return chain_fail(pool, i, page, "is not published", error);
		parent = node_parent(pool, page);
		if (parent.serial != at.serial || (at.serial != 0 && parent.page != at.page))
			return chain_fail(pool, i, page, "does not follow the page before it", error);
		at = node_ref(pool, page);
		pool->request.n_kept += page_count(pool, page) == 0;
		tenant_count_shared(pool, session->tenant, page);
	}
	if (start->n_pages == 0 && start->serial != 0)
		return paged_fail(error, PAGED_ERR_STALE, "pool %s: a prefix of no pages cannot end with serial %llu",
				  pool->name, (unsigned long long)start->serial);
	if (start->n_pages > 0 && at.serial != start->serial)
		return chain_fail(pool, start->n_pages - 1, at.page, "has been published again", error);
	return PAGED_OK;
}

static enum paged_status
start_check_continued(struct core *core, const struct core_session *session, const struct core_pool *pool,
		      paged_seq_id seq, struct paged_error *error)
{
	enum paged_status status = request_check_seq(core, session, seq, true, error);
	uint32_t slot = PAGED_SEQ_SLOT(seq), capacity;

	if (status != PAGED_OK)
		return status;
	if (PAGED_SEQ_POOL(seq) != pool->index)
		return request_fail(core, seq, error, PAGED_ERR_INVALID, "is not of pool %u", pool->index);
	capacity = page_table_n_pages(pool, slot) * pool->view.page_size;
	/* Also if its last page was published when the caller searched, and the node was removed since. */
	if (page_table_published(pool, slot) != capacity)
		return request_fail(core, seq, error, PAGED_ERR_STALE,
				    "has %u tokens, of which %u are published: it cannot go on from its end", capacity,
				    page_table_published(pool, slot));
	return PAGED_OK;
}

static enum paged_status
start_check(struct core *core, const struct core_session *session, struct core_pool *pool,
	    const struct seq_start_spec *start, const uint32_t *pages, struct paged_error *error)
{
	enum paged_status status = start->seq == 0 ? request_check_draining(session, error)
						   : start_check_continued(core, session, pool, start->seq, error);
	uint32_t n_before = 0, n_pages, slot = PAGED_SEQ_SLOT(start->seq);
	struct node_ref at = { 0 };

	if (status != PAGED_OK)
		return status;
	if (start->seq != 0) {
		n_before = page_table_n_pages(pool, slot);
		if (pool->slots[slot].tip != NONE)
			at = node_ref(pool, pool->slots[slot].tip);
	}
	if (start->n_tokens > pool->view.max_length || start->n_pages > pool->view.table_entries - n_before)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "pool %s: a sequence may hold %u tokens; %u tokens, and a prefix of %llu requested",
				  pool->name, pool->view.max_length, start->n_tokens,
				  ((unsigned long long)n_before + start->n_pages) * pool->view.page_size);
	n_pages = request_pages(pool, start->n_tokens);
	n_before += start->n_pages;
	request_count(core, pool, n_pages > n_before ? n_pages - n_before : 0, start->seq == 0);
	if (start->seq == 0)
		table_memory_count_new(pool, MAX(n_pages, n_before));
	else
		table_memory_count(pool, slot, MAX(n_pages, n_before), 0);
	return chain_check(pool, session, start, pages, at, error);
}

/* Counts the pages that the request shares again: each once, also if several items share it. */
static void
start_recount_shared(struct core_pool *pool, const struct core_session *session, const struct seq_start_list *list)
{
	pool->request.n_kept = 0;
	pool->request.n_newly_charged = 0;
	for (uint32_t i = 0; i < list->n_pages; i++) {
		struct pool_page *page = &pool->pages[list->pages[i]];

		if (page->marked)
			continue;
		page->marked = 1;
		pool->request.n_kept += page_count(pool, list->pages[i]) == 0;
		tenant_count_shared(pool, session->tenant, list->pages[i]);
	}
	for (uint32_t i = 0; i < list->n_pages; i++)
		pool->pages[list->pages[i]].marked = 0;
}

/* In place of a list of no pages, which may be NULL. */
static const uint32_t no_pages[1];

static enum paged_status
start_check_all(struct core *core, struct core_session *session, const struct seq_start_list *list,
		struct paged_error *error)
{
	enum paged_status status = request_check_pool(core, list->pool, error);
	const uint32_t *pages = list->n_pages > 0 ? list->pages : no_pages;
	struct core_pool *pool;

	if (status == PAGED_OK)
		status = core_session_make_pool(core, session, list->pool, error);
	if (status != PAGED_OK)
		return status;
	pool = core->pools[list->pool];
	for (uint32_t i = 0; i < list->n && status == PAGED_OK; pages += list->specs[i++].n_pages)
		status = start_check(core, session, pool, &list->specs[i], pages, error);
	if (status != PAGED_OK)
		return status;
	status = request_check_free(pool, session, error);
	/* Shared pages may have been counted for each of several items: only if that seems too much, count exactly. */
	if (status == PAGED_OK || list->n == 1)
		return status;
	start_recount_shared(pool, session, list);
	return request_check_free(pool, session, error);
}

/* Gives the sequence the shared pages. */
static paged_seq_id
start_apply(struct core_pool *pool, struct core_session *session, const struct seq_start_spec *start,
	    const uint32_t *pages)
{
	paged_seq_id id = start->seq != 0 ? start->seq : page_table_open(pool, session, start->tag);
	uint32_t slot = PAGED_SEQ_SLOT(id);

	if (start->n_pages > 0) {
		page_table_share(pool, session, slot, start->n_pages, pages);
		/* The request may have evicted a twin that the sequence stood on, and with it the nodes of these pages.
		 */
		if (page_is_published(pool, pages[start->n_pages - 1]))
			published_set(pool, slot, pages[start->n_pages - 1]);
	}
	if (start->n_asked > 0) {
		counter_add(&pool->header->n_starts, start->seq == 0);
		counter_add(&pool->header->n_tokens_asked, start->n_asked);
	}
	counter_add(&pool->header->n_tokens_found, (uint64_t)start->n_pages * pool->view.page_size);
	return id;
}

enum paged_status
core_seq_start(struct core *core, uint32_t session_id, const struct seq_start_list *list, paged_seq_id *ids,
	       struct paged_error *error)
{
	struct core_operation *operation = NULL;
	const uint32_t *pages = list->n_pages > 0 ? list->pages : no_pages;
	struct core_session *session;
	enum paged_status status = request_begin(core, session_id, list->n, &session, error);
	struct core_pool *pool;

	if (status == PAGED_OK)
		status = start_check_all(core, session, list, error);
	if (status == PAGED_OK)
		status = growth_create_if_long(core, session, list->n, &operation, error);
	if (status != PAGED_OK)
		return status;

	pool = core->pools[list->pool];
	core_pool_change_begin(pool);
	/* Shared pages are referenced before others are evicted. */
	for (uint32_t i = 0; i < list->n_pages; i++) {
		pages_ref(pool, session->tenant, list->pages[i], 1);
		node_used(core, pool, list->pages[i], session);
	}
	if (operation == NULL)
		lru_make_room(pool, pool->request.n_requested);
	for (uint32_t i = 0; i < list->n; pages += list->specs[i++].n_pages) {
		ids[i] = start_apply(pool, session, &list->specs[i], pages);
		growth_add(core, session, operation, i, ids[i], request_pages(pool, list->specs[i].n_tokens));
	}
	core_pool_change_end(pool);
	growth_begin(core, operation);
	return PAGED_OK;
}

/* Fork */

static enum paged_status
fork_check(struct core *core, const struct core_session *session, const struct seq_fork *fork, uint64_t *n_entries,
	   struct paged_error *error)
{
	enum paged_status status = request_check_seq(core, session, fork->parent, false, error);
	struct core_pool *pool;
	uint32_t capacity;

	if (status != PAGED_OK)
		return status;
	pool = request_pool(core, fork->parent);
	capacity = page_table_n_pages(pool, PAGED_SEQ_SLOT(fork->parent)) * pool->view.page_size;
	if (fork->n_tokens > capacity)
		return request_fail(core, fork->parent, error, PAGED_ERR_CAPACITY,
				    "has room for %u tokens, a fork cannot begin with %u", capacity, fork->n_tokens);
	status = request_check_trimmed(core, fork->parent, fork->n_tokens, "a fork cannot begin with", error);
	if (status != PAGED_OK)
		return status;
	*n_entries += fork->n_tokens / pool->view.page_size;
	request_count(core, pool, fork->n_tokens % pool->view.page_size != 0, 1);
	table_memory_count_new(pool, request_pages(pool, fork->n_tokens));
	return PAGED_OK;
}

/*
 * Protects the shared pages of the first fork, and of those after it that are equal, and adds their references. Returns
 * how many forks these are.
 */
static uint32_t
fork_ref(const struct core *core, uint32_t n, const struct seq_fork *forks)
{
	struct core_pool *pool = request_pool(core, forks[0].parent);
	uint32_t slot = PAGED_SEQ_SLOT(forks[0].parent), n_shared = forks[0].n_tokens / pool->view.page_size;
	uint32_t first = page_table_first(pool, slot), n_equal = 1;

	while (n_equal < n && forks[n_equal].parent == forks[0].parent && forks[n_equal].n_tokens == forks[0].n_tokens)
		n_equal++;
	page_table_protect(pool, slot, n_shared * pool->view.page_size);
	pages_ref_entries(pool, pool->slots[slot].tenant, region_page_table(&pool->view, slot) + first,
			  n_shared - first, n_equal);
	return n_equal;
}

static paged_seq_id
fork_apply(struct core *core, struct core_session *session, const struct seq_fork *fork)
{
	struct core_pool *pool = request_pool(core, fork->parent);
	uint32_t from = PAGED_SEQ_SLOT(fork->parent), n_shared = fork->n_tokens / pool->view.page_size;
	paged_seq_id id = page_table_open(pool, session, pool->tags[from]);
	uint32_t to = PAGED_SEQ_SLOT(id);

	page_table_share_from(pool, session, to, from, n_shared);
	published_copy(pool, to, from);
	published_limit(pool, to, n_shared);
	if (fork->n_tokens % pool->view.page_size != 0)
		page_table_grow(pool, session, to, n_shared + 1);
	counter_add(&pool->header->n_forked, 1);
	return id;
}

/* Opens the children, which get their pages in steps. */
static enum paged_status
fork_begin(struct core *core, struct core_session *session, uint32_t n, const struct seq_fork *forks,
	   paged_seq_id *children, struct paged_error *error)
{
	struct core_operation *operation;
	enum paged_status status = growth_create(session, n, &operation, error);

	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++) {
		struct core_pool *pool = request_pool(core, forks[i].parent);
		uint32_t parent = PAGED_SEQ_SLOT(forks[i].parent), n_shared = forks[i].n_tokens / pool->view.page_size;

		page_table_protect(pool, parent, n_shared * pool->view.page_size);
		children[i] = page_table_open(pool, session, pool->tags[parent]);
		counter_add(&pool->header->n_forked, 1);
		growth_promise(core, operation, i,
			       (struct operation_item){
				       .seq = children[i],
				       .n_pages = request_pages(pool, forks[i].n_tokens),
				       .n_whole = n_shared,
				       .parent = parent,
			       });
	}
	operation_begin(core, operation);
	return PAGED_OK;
}

enum paged_status
core_seq_fork(struct core *core, uint32_t session_id, uint32_t n, const struct seq_fork *forks, paged_seq_id *children,
	      struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status = request_begin(core, session_id, n, &session, error);
	uint64_t n_entries = 0;

	if (status == PAGED_OK)
		status = request_check_draining(session, error);
	for (uint32_t i = 0; i < n && status == PAGED_OK; i++)
		status = fork_check(core, session, &forks[i], &n_entries, error);
	for (uint32_t i = 0; i < n && status == PAGED_OK; i++)
		status = request_check_free(request_pool(core, forks[i].parent), session, error);
	if (status != PAGED_OK)
		return status;
	if (growth_is_long(core, n_entries))
		return fork_begin(core, session, n, forks, children, error);

	for (uint32_t i = 0; i < n; i++)
		core_pool_change_begin(request_pool(core, forks[i].parent));
	for (uint32_t i = 0; i < n; i++)
		lru_make_room(request_pool(core, forks[i].parent),
			      request_pool(core, forks[i].parent)->request.n_requested);
	for (uint32_t i = 0; i < n;) {
		uint32_t n_equal = fork_ref(core, n - i, &forks[i]);

		for (; n_equal > 0; n_equal--, i++)
			children[i] = fork_apply(core, session, &forks[i]);
	}
	for (uint32_t i = 0; i < n; i++)
		core_pool_change_end(request_pool(core, forks[i].parent));
	return PAGED_OK;
}
