/* SPDX-License-Identifier: Apache-2.0 */
/* What a refused request lacked, and how many of the pool's pages are this session's own. */
#include "config.h"

#include <stdlib.h>

#include "client/api/enter.h"
#include "client/api/error.h"
#include "client/api/pool_read.h"
#include "client/params.h"

/* The pages that page tables of one session name. */
struct own_pages {
	const struct region_view *view;
	uint32_t *entries; /* [view->table_entries] of the page table that is read */
	uint32_t *n_refs;  /* [view->n_pages] of pages that several page tables name, those of the session */
	uint32_t n;        /* pages that no other session's page table names */
};

static void
own_pages_add(struct own_pages *own, uint32_t page)
{
	uint32_t count;

	if (page >= own->view->n_pages)
		return; /* it was given back */
	count = atomic_load_explicit(&region_page(own->view, page)->count, memory_order_relaxed);
	/* With all references of its own, a page is counted at the last of them. */
	if (count == 1 || ++own->n_refs[page] == count)
		own->n++;
}

/* A sequence that is being changed is left out: the numbers are of a moment, and others change them at any time. */
static void
own_pages_add_slot(struct own_pages *own, uint32_t slot, uint32_t session)
{
	const struct region_slot *at = region_slot(own->view, slot);
	struct region_snapshot snapshot;
	paged_seq_id id;
	uint32_t n;

	if (atomic_load_explicit(&at->owner, memory_order_relaxed) != session)
		return;
	id = PAGED_SEQ(atomic_load_explicit(&at->generation, memory_order_relaxed), own->view->pool, slot);
	if (region_snapshot_begin(own->view, id, &snapshot) != REGION_READ || snapshot.owner != session)
		return;
	n = snapshot.capacity / own->view->page_size;
	if (!region_snapshot_copy(own->view, id, &snapshot, n, own->entries))
		return;
	for (uint32_t i = snapshot.first; i < n; i++)
		own_pages_add(own, own->entries[i]);
}

static enum paged_status
own_pages_count(struct paged_pool *pool, uint32_t *n_p, struct paged_error *error)
{
	const struct region_view *view = &pool->mapping.view;
	struct own_pages own = { .view = view };
	enum paged_status status = PAGED_OK;
	uint32_t n_slots = atomic_load_explicit(&view->header->high_slot, memory_order_relaxed);

	own.entries = calloc(view->table_entries, sizeof(*own.entries));
	own.n_refs = calloc(view->n_pages, sizeof(*own.n_refs));
	if (own.entries != NULL && own.n_refs != NULL)
		for (uint32_t slot = 0; slot < n_slots && slot < view->n_slots; slot++)
			own_pages_add_slot(&own, slot, pool->client->owner->session);
	else
		status = paged_fail(error, PAGED_ERR_NOMEM, "no memory to count the pages of pool %s",
				    pool->mapping.name);
	free(own.entries);
	free(own.n_refs);
	*n_p = own.n;
	return status;
}

enum paged_status
paged_client_shortage(struct paged_client *client, struct paged_shortage *shortage)
{
	enum paged_status status = client_enter(client);
	const struct paged_shortage *kept;
	struct paged_shortage ours;
	struct paged_error error;
	struct paged_pool *pool;

	if (status != PAGED_OK)
		return status;
	if (shortage == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "shortage is NULL");
	kept = error_shortage(client->serial);
	if (kept == NULL)
		return PAGED_ERR_NOENT; /* the text of that call stays */
	ours = *kept;
	pthread_mutex_lock(&client->pools_mutex);
	LIST_FOREACH(pool, &client->pools, link)
		if (pool->mapping.index == ours.pool)
			break;
	ours.n_own = 0;
	if (pool != NULL)
		status = own_pages_count(pool, &ours.n_own, &error);
	pthread_mutex_unlock(&client->pools_mutex);
	if (ours.n_own > ours.n_others)
		ours.n_own = ours.n_others;
	ours.n_others -= ours.n_own;
	if (status == PAGED_OK)
		status = client_info_out(shortage, &ours, sizeof(ours), "paged_shortage", &error);
	return client_leave(client, status, &error);
}
