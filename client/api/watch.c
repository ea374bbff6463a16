/* SPDX-License-Identifier: Apache-2.0 */
/* Watches of the index of published pages: paged_watch.h. */
#include "config.h"

#include "client/api/watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "client/api/enter.h"
#include "client/api/pool_read.h"
#include "client/params.h"
#include "common/clock.h"
#include "common/prefix.h"
#include "common/ring.h"

/* Interval at which a wait checks that the owner lives. */
#define WATCH_POLL_INTERVAL_MS 1000u

static_assert(PAGED_WATCH_CHANGES == REGION_RING_ENTRIES, "paged_watch.h documents the ring's size");
static_assert(PAGED_CHANGE_STORED == (int)REGION_RING_STORED && PAGED_CHANGE_REMOVED == (int)REGION_RING_REMOVED &&
		      PAGED_CHANGE_CLEARED == (int)REGION_RING_CLEARED,
	      "kinds are passed on as they are");

static struct paged_client *
watch_client(const struct paged_watch *watch)
{
	return watch != NULL ? watch->pool->client : NULL;
}

static const struct region_view *
watch_view(const struct paged_watch *watch)
{
	return &watch->pool->mapping.view;
}

enum paged_status
paged_watch_open(struct paged_pool *pool, struct paged_watch **watch_p)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter_shared(client);
	struct paged_watch *watch;

	if (status != PAGED_OK)
		return status;
	if (watch_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "watch_p is NULL");
	if (pool->mapping.view.n_buckets == 0)
		return client_failf(client, PAGED_ERR_UNSUPPORTED, "pool %s publishes nothing", pool->mapping.name);
	watch = calloc(1, sizeof(*watch));
	if (watch == NULL)
		return client_failf(client, PAGED_ERR_NOMEM, "no memory for a watch of pool %s", pool->mapping.name);
	watch->pool = pool;
	watch->position = ring_head(watch_view(watch));
	client_lock(client);
	LIST_INSERT_HEAD(&pool->watches, watch, link);
	client_unlock(client);
	*watch_p = watch;
	return PAGED_OK;
}

void
watch_free(struct paged_watch *watch)
{
	LIST_REMOVE(watch, link);
	free(watch);
}

void
paged_watch_close(struct paged_watch *watch)
{
	struct paged_client *client;
	bool in_child;

	if (watch == NULL)
		return;
	client = watch->pool->client;
	in_child = guard_in_child(&client->guard);
	if (!in_child)
		client_lock(client);
	watch_free(watch);
	if (!in_child)
		client_unlock(client);
}

/* Goes on after the last change of now, because those before it are lost in part. */
static enum paged_status
watch_skip(struct paged_watch *watch, struct paged_error *error)
{
	uint64_t head = ring_head(watch_view(watch)), n_lost = head - watch->position;

	watch->position = head;
	watch->n_lost += n_lost;
	return paged_fail(error, PAGED_ERR_STALE,
			  "pool %s: %" PRIu64 " changes were lost, the ring has %u: walk the nodes again",
			  watch->pool->mapping.name, n_lost, watch_view(watch)->ring_entries);
}

/* Copies changes that have been made.  Those that precede a lost one are valid: the loss is reported by the next call.
 */
static enum paged_status
watch_read(struct paged_watch *watch, struct paged_change *changes, size_t n_max, size_t *n_p,
	   struct paged_error *error)
{
	const struct region_view *view = watch_view(watch);
	enum ring_result result = RING_READ;
	struct ring_change change;
	size_t n = 0;

	for (; n < n_max; n++) {
		result = ring_read(view, watch->position + 1, &change);
		if (result != RING_READ)
			break;
		if (change.page >= view->n_pages)
			return paged_fail(error, PAGED_ERR_PROTOCOL,
					  "pool %s: change %" PRIu64 " is of page %u, the pool has %u pages",
					  watch->pool->mapping.name, change.number, change.page, view->n_pages);
		changes[n] = (struct paged_change){ .number = change.number,
						    .serial = change.serial,
						    .hash = change.hash,
						    .page = change.page,
						    .kind = change.kind };
		watch->position++;
	}
	*n_p = n;
	return n == 0 && result == RING_OVERTAKEN ? watch_skip(watch, error) : PAGED_OK;
}

/* watch_read(), but waits for the first change. */
static enum paged_status
watch_read_waiting(struct paged_watch *watch, struct paged_change *changes, size_t n_max, uint32_t timeout_ms,
		   size_t *n_p, struct paged_error *error)
{
	const struct region_header *header = watch_view(watch)->header;
	uint64_t deadline_ms = 0, now_ms;
	enum paged_status status;
	bool waits = false;

	for (;; waits = true) {
		/* Read before the ring, so that a later change ends the sleep. */
		uint32_t seen = (uint32_t)ring_head(watch_view(watch));

		status = watch_read(watch, changes, n_max, n_p, error);
		if (status != PAGED_OK || *n_p > 0)
			return status;
		status = pool_check_owner(watch->pool, error);
		if (status != PAGED_OK)
			return status;
		now_ms = clock_ms();
		if (!waits)
			deadline_ms = now_ms + timeout_ms;
		if (now_ms >= deadline_ms)
			return paged_fail(error, PAGED_ERR_TIMEOUT, "pool %s: no change within %u ms",
					  watch->pool->mapping.name, timeout_ms);
		region_ring_wait(header, seen, (uint32_t)MIN(deadline_ms - now_ms, WATCH_POLL_INTERVAL_MS));
	}
}

enum paged_status
paged_watch_next(struct paged_watch *watch, struct paged_change *changes, size_t n_max, uint32_t timeout_ms,
		 size_t *n_p)
{
	struct paged_client *client = watch_client(watch);
	enum paged_status status = client_enter_shared(client);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (changes == NULL || n_max == 0 || n_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID,
				    "changes and n_p must not be NULL, and n_max must not be 0");
	*n_p = 0;
	status = watch_read_waiting(watch, changes, n_max, timeout_ms, n_p, &error);
	return client_leave(client, status, &error);
}

enum paged_status
paged_watch_walk(struct paged_watch *watch, uint32_t *from, struct paged_node_info *nodes, size_t n_max, size_t *n_p)
{
	struct paged_client *client = watch_client(watch);
	enum paged_status status = client_enter_shared(client);
	const struct region_view *view;
	uint32_t page, end;
	size_t n = 0;

	if (status != PAGED_OK)
		return status;
	if (from == NULL || nodes == NULL || n_max == 0 || n_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID,
				    "from, nodes and n_p must not be NULL, and n_max must not be 0");
	view = watch_view(watch);
	/* Stored at the end of the request that takes a page for the first time; another one publishes the page. */
	end = MIN(atomic_load_explicit(&view->header->high_page, memory_order_relaxed), view->n_pages);
	for (page = *from; page < end && n < n_max; page++) {
		struct prefix_node node;

		/* A node that changes while it is read was removed after the position. */
		if (!prefix_node_read(view, page, 0, &node, NULL))
			continue;
		nodes[n++] = (struct paged_node_info){ .serial = node.serial,
						       .parent_serial = node.parent_serial,
						       .hash = node.hash,
						       .page = page,
						       .parent = node.parent,
						       .hits = node.hits };
	}
	*from = MAX(page, *from);
	*n_p = n;
	return PAGED_OK;
}

enum paged_status
paged_watch_read(struct paged_watch *watch, uint32_t page, uint64_t serial, struct paged_block_key *key,
		 uint32_t *tokens, size_t n_max)
{
	struct paged_client *client = watch_client(watch);
	enum paged_status status = client_enter_shared(client);
	uint32_t copy[PAGED_MAX_PAGE_SIZE];
	const struct region_view *view;
	struct paged_block_key ours;
	struct prefix_node node;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	view = watch_view(watch);
	if (key == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "key must not be NULL");
	if (page >= view->n_pages)
		return client_failf(client, PAGED_ERR_RANGE, "pool %s has %u pages, and no page %u",
				    watch->pool->mapping.name, view->n_pages, page);
	if (tokens != NULL && n_max < view->page_size)
		return client_failf(client, PAGED_ERR_RANGE, "room for %zu tokens; a page of pool %s has %u", n_max,
				    watch->pool->mapping.name, view->page_size);
	if (serial == 0 || !prefix_node_read(view, page, serial, &node, tokens != NULL ? copy : NULL))
		return client_failf(client, PAGED_ERR_STALE, "page %u of pool %s is not published with serial %" PRIu64,
				    page, watch->pool->mapping.name, serial);
	ours = (struct paged_block_key){ .parent_serial = node.parent_serial,
					 .parent = node.parent,
					 .has_tokens = node.has_tokens,
					 .keyed = node.keyed };
	memcpy(ours.extra, node.extra, sizeof(ours.extra));
	status = client_info_out(key, &ours, sizeof(ours), "paged_block_key", &error);
	if (status == PAGED_OK && tokens != NULL && node.has_tokens)
		memcpy(tokens, copy, view->page_size * sizeof(*tokens));
	return client_leave(client, status, &error);
}

enum paged_status
paged_watch_get_info(const struct paged_watch *watch, struct paged_watch_info *info)
{
	struct paged_client *client = watch_client(watch);
	enum paged_status status = client_enter(client);
	struct paged_watch_info ours;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (info == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "info must not be NULL");
	ours = (struct paged_watch_info){ .position = watch->position,
					  .n_behind = ring_head(watch_view(watch)) - watch->position,
					  .n_lost = watch->n_lost };
	status = client_info_out(info, &ours, sizeof(ours), "paged_watch_info", &error);
	return client_leave(client, status, &error);
}
