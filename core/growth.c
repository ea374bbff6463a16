/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that make page tables longer, in steps: by entries of a parent, then by pages of their own.  New sequences
 * are opened at once, because the reply names them.  Pages and memory of page tables are promised, so that other
 * requests leave them to the steps.
 */
#include <sys/param.h>

#include "core/node.h"
#include "core/page_table.h"
#include "core/pages.h"
#include "core/request.h"
#include "core/tenant.h"

/* Pages of its own that the item does not have yet. */
static uint32_t
growth_n_promised(const struct core_pool *pool, const struct operation_item *item)
{
	return item->n_pages - MAX(item->n_whole, page_table_n_pages(pool, PAGED_SEQ_SLOT(item->seq)));
}

static void
promise_add(struct core_pool *pool, uint32_t slot, int64_t n_pages)
{
	uint32_t tenant = pool->slots[slot].tenant;

	pool->n_promised += (uint32_t)n_pages;
	if (tenant != 0)
		tenant_pool(pool, tenant)->n_promised += (uint32_t)n_pages;
}

/* Another entry of the parent's page table has one reference more. */
static void
growth_share(struct core_pool *pool, struct core_session *session, const struct operation_item *item, uint32_t n_most)
{
	uint32_t slot = PAGED_SEQ_SLOT(item->seq), n = page_table_n_pages(pool, slot);
	uint32_t n_after = n + MIN(item->n_whole - n, n_most), from = MAX(n, page_table_first(pool, item->parent));

	if (from < n_after)
		pages_ref_entries(pool, pool->slots[slot].tenant, region_page_table(&pool->view, item->parent) + from,
				  n_after - from, 1);
	/* Entries without a page are visited, too. */
	pool->n_worked += MIN(from, n_after) - n;
	page_table_share_from(pool, session, slot, item->parent, n_after);
	if (n_after < item->n_whole)
		return;
	published_copy(pool, slot, item->parent);
	published_limit(pool, slot, n_after);
}

static void
growth_take(struct core_pool *pool, struct core_session *session, const struct operation_item *item, uint32_t n_most)
{
	uint32_t slot = PAGED_SEQ_SLOT(item->seq), n = page_table_n_pages(pool, slot);
	uint32_t n_more = MIN(item->n_pages - n, n_most), n_free = core_pool_n_free(pool);

	/* An eviction is as much work as taking the page. */
	if (n_more > n_free && n_more - n_free > n_most - n_more)
		n_more = MAX((n_most + n_free) / 2, 1);
	promise_add(pool, slot, -(int64_t)n_more);
	lru_make_room(pool, n_more);
	page_table_grow(pool, session, slot, n + n_more);
}

static bool
growth_step(struct core *core, struct core_operation *operation, const struct operation_item *item, uint32_t *budget)
{
	struct core_pool *pool = request_pool(core, item->seq);
	uint32_t slot = PAGED_SEQ_SLOT(item->seq), n = page_table_n_pages(pool, slot);
	uint64_t n_worked = pool->n_worked;

	core_pool_change_begin(pool);
	if (n < item->n_whole)
		growth_share(pool, operation->session, item, *budget);
	else if (n < item->n_pages)
		growth_take(pool, operation->session, item, *budget);
	operation_spend(budget, pool->n_worked - n_worked + NODES_AT_ONCE - pool->n_at_once);
	core_pool_change_end(pool);
	if (page_table_n_pages(pool, slot) < item->n_pages) {
		/* An item takes pages once in a step, so they have the order of the free list. */
		if (page_table_n_pages(pool, slot) > item->n_whole)
			*budget = 0;
		return false;
	}
	table_memory_promise(pool, slot, 0);
	return true;
}

static void
growth_stop(struct core *core, const struct core_operation *operation)
{
	for (uint32_t i = operation->next_item; i < operation->n; i++) {
		const struct operation_item *item = &operation->items[i];
		struct core_pool *pool = request_pool(core, item->seq);

		promise_add(pool, PAGED_SEQ_SLOT(item->seq), -(int64_t)growth_n_promised(pool, item));
		table_memory_promise(pool, PAGED_SEQ_SLOT(item->seq), 0);
		/* No page becomes free, but others may take what was promised: core_wake() wakes them. */
		pool->n_free_woken = 0;
	}
}

bool
growth_is_long(const struct core *core, uint64_t n_shared)
{
	uint64_t n = n_shared;

	for (uint32_t i = 0; i < core->n_pools; i++) {
		const struct core_pool *pool = core->pools[i];
		uint64_t n_taken = MAX(pool->request.n_taken, pool->request.n_requested),
			 n_free = core_pool_n_free(pool);

		if (pool->request.stamp == core->stamp)
			n += n_taken + (n_taken > n_free ? n_taken - n_free : 0);
	}
	return n > core->step;
}

static const struct operation_ops growth_ops = { .step = growth_step, .stop = growth_stop };

enum paged_status
check_promises(const struct core *core, const struct core_pool *pool, struct paged_error *error)
{
	uint64_t n_of_tenants = 0, n_charged = 0;
	uint32_t n = 0;

	for (const struct core_operation *operation = core->operation_first; operation != NULL;
	     operation = operation->next) {
		for (uint32_t i = operation->next_item; operation->ops == &growth_ops && i < operation->n; i++) {
			const struct operation_item *item = &operation->items[i];

			if (PAGED_SEQ_POOL(item->seq) != pool->index)
				continue;
			n += growth_n_promised(pool, item);
			if (pool->slots[PAGED_SEQ_SLOT(item->seq)].tenant != 0)
				n_of_tenants += growth_n_promised(pool, item);
		}
	}
	for (uint32_t tenant = 1; tenant <= core->tenants.n; tenant++)
		if (core->tenants.items[tenant - 1] != NULL)
			n_charged += tenant_pool(pool, tenant)->n_promised;
	if (n != pool->n_promised || n_of_tenants != n_charged)
		return paged_fail(error, PAGED_ERR_CORRUPT,
				  "pool %s: unfinished requests take %u pages, %llu of them for tenants; %u and %llu "
				  "are promised",
				  pool->name, n, (unsigned long long)n_of_tenants, pool->n_promised,
				  (unsigned long long)n_charged);
	return PAGED_OK;
}

enum paged_status
growth_create(struct core_session *session, uint32_t n, struct core_operation **operation_p, struct paged_error *error)
{
	return operation_create(session, &growth_ops, n, operation_p, error);
}

void
growth_promise(struct core *core, struct core_operation *operation, uint32_t i, struct operation_item item)
{
	struct core_pool *pool = request_pool(core, item.seq);

	operation->items[i] = item;
	promise_add(pool, PAGED_SEQ_SLOT(item.seq), growth_n_promised(pool, &item));
	table_memory_promise(pool, PAGED_SEQ_SLOT(item.seq), item.n_pages);
}

enum paged_status
growth_create_if_long(const struct core *core, struct core_session *session, uint32_t n,
		      struct core_operation **operation_p, struct paged_error *error)
{
	*operation_p = NULL;
	return growth_is_long(core, 0) ? growth_create(session, n, operation_p, error) : PAGED_OK;
}

void
growth_add(struct core *core, struct core_session *session, struct core_operation *operation, uint32_t i,
	   paged_seq_id seq, uint32_t n_pages)
{
	struct core_pool *pool = request_pool(core, seq);
	uint32_t slot = PAGED_SEQ_SLOT(seq), n = page_table_n_pages(pool, slot);

	n_pages = MAX(n_pages, n);
	if (operation != NULL)
		growth_promise(core, operation, i, (struct operation_item){ .seq = seq, .n_pages = n_pages });
	else if (n_pages > n)
		page_table_grow(pool, session, slot, n_pages);
}

void
growth_begin(struct core *core, struct core_operation *operation)
{
	if (operation != NULL)
		operation_begin(core, operation);
}
