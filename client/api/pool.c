/* SPDX-License-Identifier: Apache-2.0 */
/* A pool's life, its info and its page counts. */
#include "config.h"

#include "client/api/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/api/batch/batch.h"
#include "client/api/compute_backends.h"
#include "client/api/checking.h"
#include "client/api/enter.h"
#include "client/api/mods/block_mask.h"
#include "client/api/mods/mod.h"
#include "client/api/pool_read.h"
#include "client/api/seq/publishing.h"
#include "client/api/watch.h"
#include "client/params.h"
#include "common/clock.h"
#include "common/text.h"
#include <sys/param.h>

/* Interval at which a wait checks that the owner lives. */
#define OWNER_POLL_INTERVAL_MS 100u

enum paged_status
paged_pool_open(struct paged_client *client, const char *name, struct paged_pool **pool_p)
{
	enum paged_status status = client_enter_owner(client);
	struct paged_error error;
	struct paged_pool *pool;

	if (status != PAGED_OK)
		return status;
	if (name == NULL || pool_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "a pool needs a name and a place for its handle");
	if (strnlen(name, PAGED_MAX_NAME + 1) > PAGED_MAX_NAME)
		return client_failf(client, PAGED_ERR_INVALID, "a pool's name has at most %u bytes", PAGED_MAX_NAME);
	/* Checked here, because the daemon closes the connection on an invalid message. */
	if (name[text_bad_byte(name)] != '\0')
		return client_failf(client, PAGED_ERR_INVALID,
				    "a pool's name is UTF-8 without control characters and invisible ones");
	pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return client_failf(client, PAGED_ERR_NOMEM, "no memory for pool %s", name);
	pool->client = client;

	client_lock(client);
	status = client->owner->ops->pool_open(client->owner, name, &pool->mapping, &error);
	if (status == PAGED_OK) {
		if (client->checks)
			status = checking_open(pool, &error);
		if (status == PAGED_OK)
			status = publishing_open(pool, &error);
		if (status != PAGED_OK) {
			checking_close(pool, false);
			client->owner->ops->pool_close(client->owner, &pool->mapping, false);
		}
	}
	if (status == PAGED_OK) {
		/* Without pages, no driver is there to be asked. */
		pool->compute_ops = compute_backends_find(pool->mapping.tables_only ? "host" : pool->mapping.backend);
		assert(pool->compute_ops != NULL); /* the owner has the same back ends */
		pthread_mutex_lock(&client->pools_mutex);
		LIST_INSERT_HEAD(&client->pools, pool, link);
		pthread_mutex_unlock(&client->pools_mutex);
	}
	client_unlock(client);
	if (status != PAGED_OK) {
		free(pool);
		return client_fail(client, &error);
	}
	*pool_p = pool;
	return PAGED_OK;
}

void
pool_free(struct paged_pool *pool, bool in_child)
{
	struct owner *owner = pool->client->owner;

	if (!in_child)
		pthread_mutex_lock(&pool->client->pools_mutex);
	LIST_REMOVE(pool, link);
	if (!in_child)
		pthread_mutex_unlock(&pool->client->pools_mutex);
	while (!LIST_EMPTY(&pool->batches))
		batch_free(LIST_FIRST(&pool->batches), in_child);
	while (!LIST_EMPTY(&pool->block_masks))
		block_mask_free(LIST_FIRST(&pool->block_masks), in_child);
	while (!LIST_EMPTY(&pool->watches))
		watch_free(LIST_FIRST(&pool->watches));
	mask_memory_release(&pool->mask_memory);
	while (pool->mods != NULL)
		client_mod_free(pool->mods);
	publishing_close(pool, in_child);
	checking_close(pool, in_child);
	owner->ops->pool_close(owner, &pool->mapping, in_child);
	free(pool);
}

void
paged_pool_close(struct paged_pool *pool)
{
	struct paged_client *client;
	bool in_child;

	if (pool == NULL)
		return;
	client = pool->client;
	in_child = guard_in_child(&client->guard);
	if (!in_child)
		client_lock(client);
	pool_free(pool, in_child);
	if (!in_child)
		client_unlock(client);
}

static void
pool_plane_info(struct paged_plane_info *info, const struct layout_plane *plane)
{
	*info = (struct paged_plane_info){
		.dtype = plane->dtype,
		.dim = plane->dim,
		.offset = plane->offset,
		.layer_stride = plane->layer_stride,
		.page_stride = plane->page_stride,
		.head_stride = plane->head_stride,
		.token_stride = plane->token_stride,
	};
}

enum paged_status
paged_pool_get_info(const struct paged_pool *pool, struct paged_pool_info *info)
{
	enum paged_status status = client_enter(pool_client(pool));
	const struct layout *layout;
	struct paged_pool_info ours;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (info == NULL)
		return client_failf(pool->client, PAGED_ERR_INVALID, "info must not be NULL");
	layout = &pool->mapping.layout;
	ours = (struct paged_pool_info){
		.name = pool->mapping.name,
		.backend = pool->mapping.backend,
		.base = pool->mapping.pages_released && pool->compute_ops->on_device ? NULL : pool->mapping.base,
		.size = layout->size,
		.page_bytes = layout->page_bytes,
		.n_layers = layout->params.n_layers,
		.n_kv_heads = layout->params.n_kv_heads,
		.n_pages = layout->params.n_pages,
		.page_size = layout->params.page_size,
		.max_length = pool->mapping.view.max_length,
		.n_slots = pool->mapping.view.n_slots,
		.v_in_k = layout->params.v_in_k,
		.number = pool->mapping.index,
		.publishes = pool->mapping.view.n_buckets != 0,
		.model = pool->mapping.model,
	};
	pool->compute_ops->describe(pool, &ours);
	pool_plane_info(&ours.k, &layout->plane[LAYOUT_K]);
	pool_plane_info(&ours.v, &layout->plane[LAYOUT_V]);
	pool_plane_info(&ours.k_scale, &layout->plane[LAYOUT_K_SCALE]);
	pool_plane_info(&ours.v_scale, &layout->plane[LAYOUT_V_SCALE]);
	status = client_info_out(info, &ours, sizeof(ours), "paged_pool_info", &error);
	return client_leave(pool->client, status, &error);
}

enum paged_status
paged_pool_get_counts(struct paged_pool *pool, struct paged_pool_counts *counts)
{
	enum paged_status status = client_enter_shared(pool_client(pool));
	struct paged_pool_counts ours;
	struct paged_check_result result;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (counts == NULL)
		return client_failf(pool->client, PAGED_ERR_INVALID, "counts must not be NULL");
	if (!region_accounting_read(&pool->mapping.view, &result)) {
		status = pool_check_owner(pool, &error);
		return status != PAGED_OK
			       ? client_fail(pool->client, &error)
			       : client_failf(pool->client, PAGED_ERR_AGAIN,
					      "pages of pool %s are being changed just now", pool->mapping.name);
	}
	ours = (struct paged_pool_counts){
		.n_pages = result.n_pages,
		.n_free = result.n_free,
		.n_referenced = result.n_referenced,
		.n_quarantined = result.n_quarantined,
		.n_cached = result.n_cached,
		.n_pinned = atomic_load_explicit(&pool->mapping.view.header->n_pinned, memory_order_relaxed),
	};
	status = client_info_out(counts, &ours, sizeof(ours), "paged_pool_counts", &error);
	return client_leave(pool->client, status, &error);
}

enum paged_status
paged_pool_get_totals(struct paged_pool *pool, struct paged_pool_totals *totals)
{
	enum paged_status status = client_enter_shared(pool_client(pool));
	struct paged_pool_totals ours = { 0 };
	const struct region_header *header;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (totals == NULL)
		return client_failf(pool->client, PAGED_ERR_INVALID, "totals must not be NULL");
	header = pool->mapping.view.header;
#define LOAD(total) ours.total = atomic_load_explicit(&header->total, memory_order_relaxed)
	LOAD(n_created);
	LOAD(n_ended);
	LOAD(n_forked);
	LOAD(n_given);
	LOAD(n_adopted);
	LOAD(n_cancelled);
	LOAD(n_expired);
	LOAD(n_starts);
	LOAD(n_tokens_asked);
	LOAD(n_tokens_found);
	LOAD(n_taken);
	LOAD(n_trimmed);
	LOAD(n_published);
	LOAD(n_evicted);
	LOAD(n_orphaned);
	LOAD(n_sequences);
	LOAD(peak_sequences);
	LOAD(peak_referenced);
	LOAD(table_used);
	LOAD(table_populated);
	LOAD(table_limit);
	LOAD(n_displaced);
	LOAD(n_stopped_removed);
	LOAD(n_stopped_trimmed);
	LOAD(n_stopped_other);
	LOAD(n_stopped_bucket);
#undef LOAD
	status = client_info_out(totals, &ours, sizeof(ours), "paged_pool_totals", &error);
	return client_leave(pool->client, status, &error);
}

enum paged_status
paged_pool_wait_free(struct paged_pool *pool, uint32_t n_pages, uint32_t timeout_ms)
{
	enum paged_status status = client_enter_owner(pool_client(pool));
	const struct region_header *header;
	uint64_t deadline_ms = clock_ms() + timeout_ms, now_ms;
	struct paged_error error;
	uint32_t n_free, n_available;

	if (status != PAGED_OK)
		return status;
	if (n_pages > pool->mapping.view.n_pages)
		return client_failf(pool->client, PAGED_ERR_LIMIT, "pool %s has %u pages, %u are waited for",
				    pool->mapping.name, pool->mapping.view.n_pages, n_pages);
	header = pool->mapping.view.header;
	for (;;) {
		status = pool_check_owner(pool, &error);
		if (status != PAGED_OK)
			return client_fail(pool->client, &error);
		n_free = atomic_load_explicit(&header->n_free, memory_order_relaxed);
		n_available = region_available_pages(header);
		if (n_available >= n_pages)
			return PAGED_OK;
		now_ms = clock_ms();
		if (now_ms >= deadline_ms)
			return client_failf(pool->client, PAGED_ERR_TIMEOUT,
					    "pool %s: %u pages are free or cached after %u ms, %u are waited for",
					    pool->mapping.name, n_available, timeout_ms, n_pages);
		region_free_wait(header, n_free, (uint32_t)MIN(deadline_ms - now_ms, OWNER_POLL_INTERVAL_MS));
	}
}
