/* SPDX-License-Identifier: Apache-2.0 */
/* Searches of the index of published pages, pins and holds: paged_prefix_match() and its neighbours. */
#include "config.h"

#include <sys/param.h>

#include "client/api/enter.h"
#include "client/api/pool_read.h"
#include "client/api/seq/prefix.h"
#include "common/clock.h"

/* Interval at which a wait checks that the owner lives. */
#define WAIT_POLL_INTERVAL_MS 1000u
/* Searches for a prefix that is evicted again and again. */
#define PIN_SEARCHES 3

enum paged_status
paged_prefix_match(struct paged_pool *pool, const struct paged_prefix *prefix, uint32_t *n_tokens)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter_shared(client);
	struct prefix_request request;
	struct prefix_position at;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (n_tokens == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "n_tokens is NULL");
	status = prefix_request_init(pool, prefix, &request, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	at = prefix_root(&pool->mapping.view);
	*n_tokens = prefix_find(&pool->mapping.view, &request.keys, &at, NULL) * pool->mapping.view.page_size;
	prefix_request_destroy(&request);
	return PAGED_OK;
}

/* Sleeps until the first n_pages of the prefix are found. */
static enum paged_status
prefix_wait(struct paged_pool *pool, const struct prefix_keys *keys, uint32_t timeout_ms, struct paged_error *error)
{
	const struct region_view *view = &pool->mapping.view;
	uint64_t deadline_ms = clock_ms() + timeout_ms;

	for (;;) {
		/* Read before the search, so that a change after the search ends the sleep. */
		uint32_t seen = (uint32_t)atomic_load_explicit(&view->header->ring_head, memory_order_acquire);
		struct prefix_position at = prefix_root(view);
		uint32_t n_found = prefix_find(view, keys, &at, NULL);
		enum paged_status status;
		uint64_t now_ms;

		if (n_found == keys->n_pages)
			return PAGED_OK;
		status = pool_check_owner(pool, error);
		if (status != PAGED_OK)
			return status;
		now_ms = clock_ms();
		if (now_ms >= deadline_ms)
			return paged_fail(error, PAGED_ERR_TIMEOUT,
					  "pool %s: %u of %u tokens of the prefix are published after %u ms",
					  pool->mapping.name, n_found * view->page_size,
					  keys->n_pages * view->page_size, timeout_ms);
		region_ring_wait(view->header, seen, (uint32_t)MIN(deadline_ms - now_ms, WAIT_POLL_INTERVAL_MS));
	}
}

static enum paged_status
prefix_wait_check(const struct paged_pool *pool, const struct prefix_keys *keys, uint32_t n_tokens,
		  struct paged_error *error)
{
	if (pool->mapping.view.n_buckets == 0)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s publishes nothing", pool->mapping.name);
	if (n_tokens / pool->mapping.view.page_size > keys->n_pages)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "%u tokens are waited for, the prefix has whole pages of %u tokens up to the pool's"
				  " max_length",
				  n_tokens, keys->n_pages * pool->mapping.view.page_size);
	return PAGED_OK;
}

enum paged_status
paged_prefix_wait(struct paged_pool *pool, const struct paged_prefix *prefix, uint32_t n_tokens, uint32_t timeout_ms)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter_shared(client);
	struct prefix_request request;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = prefix_request_init(pool, prefix, &request, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	status = prefix_wait_check(pool, &request.keys, n_tokens, &error);
	if (status == PAGED_OK) {
		request.keys.n_pages = n_tokens / pool->mapping.view.page_size;
		status = prefix_wait(pool, &request.keys, timeout_ms, &error);
	}
	prefix_request_destroy(&request);
	return client_leave(client, status, &error);
}

/* Pins what matches of the prefix; *n_found_p is the number of pages. */
static enum paged_status
prefix_pin(struct paged_pool *pool, const struct prefix_keys *keys, uint32_t seconds, uint32_t *n_found_p,
	   struct paged_error *error)
{
	struct paged_client *client = pool->client;
	enum paged_status status = PAGED_ERR_STALE;

	for (int search = 0; search < PIN_SEARCHES && status == PAGED_ERR_STALE; search++) {
		struct prefix_position at = prefix_root(&pool->mapping.view);

		*n_found_p = prefix_find(&pool->mapping.view, keys, &at, NULL);
		if (*n_found_p == 0)
			return PAGED_OK;
		client_lock(client);
		status = client->owner->ops->pin(client->owner, pool->mapping.index, at.page, at.serial, seconds,
						 n_found_p, error);
		client_unlock(client);
	}
	return status;
}

enum paged_status
paged_prefix_pin(struct paged_pool *pool, const struct paged_prefix *prefix, uint32_t seconds, uint32_t *n_tokens)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter_shared(client);
	struct prefix_request request;
	struct paged_error error;
	uint32_t n_found;

	if (status != PAGED_OK)
		return status;
	status = prefix_request_init(pool, prefix, &request, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	status = prefix_pin(pool, &request.keys, seconds, &n_found, &error);
	prefix_request_destroy(&request);
	if (status == PAGED_OK && n_tokens != NULL)
		*n_tokens = n_found * pool->mapping.view.page_size;
	return client_leave(client, status, &error);
}

enum paged_status
paged_prefix_pages(struct paged_pool *pool, const struct paged_prefix *prefix, size_t n_max, uint32_t *pages,
		   uint64_t *serials, size_t *n_p)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter_shared(client);
	struct prefix_request request;
	struct prefix_position at;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (n_p == NULL || (n_max > 0 && (pages == NULL || serials == NULL)))
		return client_failf(client, PAGED_ERR_INVALID, "%s is NULL",
				    n_p == NULL     ? "n_p"
				    : pages == NULL ? "pages"
						    : "serials");
	status = prefix_request_init(pool, prefix, &request, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	request.keys.n_pages = (uint32_t)MIN(request.keys.n_pages, n_max);
	at = prefix_root(&pool->mapping.view);
	*n_p = prefix_find_nodes(&pool->mapping.view, &request.keys, &at, pages, serials);
	prefix_request_destroy(&request);
	return PAGED_OK;
}

enum paged_status
paged_pages_hold(struct paged_pool *pool, size_t n, const uint32_t *pages, const uint64_t *serials,
		 paged_seq_id *hold_p)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter_shared(client);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (n == 0)
		return client_failf(client, PAGED_ERR_INVALID, "a hold has at least one page");
	if (pages == NULL || serials == NULL || hold_p == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "an argument of the hold is NULL");
	if (n > PAGED_MAX_HOLD_PAGES)
		return client_failf(client, PAGED_ERR_LIMIT, "%zu pages in a hold, at most %u: make several holds", n,
				    PAGED_MAX_HOLD_PAGES);
	if (client->owner->session == 0)
		return client_failf(client, PAGED_ERR_PERM, "an observer has no sequences, and holds no pages");
	client_lock(client);
	status = client->owner->ops->hold(client->owner, pool->mapping.index, (uint32_t)n, pages, serials, hold_p,
					  &error);
	client_unlock(client);
	return client_leave(client, status, &error);
}
