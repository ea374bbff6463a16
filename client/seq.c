/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/internal.h"

#include <stdlib.h>
#include <string.h>

/* What every request for an array must satisfy before the owner is asked. */
static enum paged_status
request_enter(const struct paged_client *client, size_t n, bool has_arrays)
{
	enum paged_status status = client_enter_owner(client);

	if (status != PAGED_OK)
		return status;
	if (n == 0)
		return client_failf(client, PAGED_ERR_INVALID, "a request names at least one sequence");
	if (n > PAGED_MAX_REQUEST_SEQS)
		return client_failf(client, PAGED_ERR_LIMIT, "%zu sequences in a request, at most %u", n,
				    PAGED_MAX_REQUEST_SEQS);
	if (!has_arrays)
		return client_failf(client, PAGED_ERR_INVALID, "an array of the request is NULL");
	if (client->owner->session == 0)
		return client_failf(client, PAGED_ERR_PERM, "an observer has no sequences");
	return PAGED_OK;
}

enum paged_status
paged_seq_create(struct paged_pool *pool, size_t n, paged_seq_id *ids)
{
	struct paged_client *client = pool->client;
	enum paged_status status = request_enter(client, n, ids != NULL);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	client_lock(client);
	status = client->owner->ops->create(client->owner, pool->at.index, (uint32_t)n, ids, &error);
	client_unlock(client);
	return status == PAGED_OK ? PAGED_OK : client_fail(client, &error);
}

typedef enum paged_status (*items_fn)(struct owner *owner, const struct wire_items *items, struct paged_error *error);

static enum paged_status
request_items(struct paged_client *client, items_fn ask, const struct wire_items *items)
{
	enum paged_status status;
	struct paged_error error;

	client_lock(client);
	status = ask(client->owner, items, &error);
	client_unlock(client);
	return status == PAGED_OK ? PAGED_OK : client_fail(client, &error);
}

/* The caller's arrays of one pool, as they are. */
static struct wire_items
items_of(const struct paged_pool *pool, size_t n, const paged_seq_id *ids, const uint32_t *n_tokens)
{
	return (struct wire_items){
		.n = (uint32_t)n, .seq = ids, .tokens = n_tokens, .pool = &pool->at.index, .n_pools = 1
	};
}

enum paged_status
paged_seq_reserve(struct paged_pool *pool, size_t n, const paged_seq_id *ids, const uint32_t *n_tokens)
{
	struct paged_client *client = pool->client;
	struct wire_items items = items_of(pool, n, ids, n_tokens);
	enum paged_status status = request_enter(client, n, ids != NULL && n_tokens != NULL);

	return status == PAGED_OK ? request_items(client, client->owner->ops->reserve, &items) : status;
}

enum paged_status
paged_seq_truncate(struct paged_pool *pool, size_t n, const paged_seq_id *ids, const uint32_t *n_tokens)
{
	struct paged_client *client = pool->client;
	struct wire_items items = items_of(pool, n, ids, n_tokens);
	enum paged_status status = request_enter(client, n, ids != NULL && n_tokens != NULL);

	return status == PAGED_OK ? request_items(client, client->owner->ops->truncate, &items) : status;
}

enum paged_status
paged_seq_erase(struct paged_pool *pool, size_t n, const paged_seq_id *ids)
{
	struct paged_client *client = pool->client;
	struct wire_items items = items_of(pool, n, ids, NULL);
	enum paged_status status = request_enter(client, n, ids != NULL);

	return status == PAGED_OK ? request_items(client, client->owner->ops->erase, &items) : status;
}

enum paged_status
paged_reserve(struct paged_client *client, size_t n, const struct paged_reserve_item *items)
{
	enum paged_status status = request_enter(client, n, items != NULL);
	struct wire_items request;
	uint32_t *tokens, *pool;
	uint64_t *seq;

	if (status != PAGED_OK)
		return status;
	for (size_t i = 0; i < n; i++)
		if (items[i].pool == NULL || items[i].pool->client != client)
			return client_failf(client, PAGED_ERR_INVALID, "item %zu names no pool of this client", i);
	seq = malloc(n * (sizeof(*seq) + sizeof(*tokens) + sizeof(*pool)));
	if (seq == NULL)
		return client_failf(client, PAGED_ERR_NOMEM, "no memory for a request of %zu sequences", n);
	tokens = (uint32_t *)(seq + n);
	pool = tokens + n;
	for (size_t i = 0; i < n; i++) {
		seq[i] = items[i].seq;
		tokens[i] = items[i].n_tokens;
		pool[i] = items[i].pool->at.index;
	}
	request = (struct wire_items){
		.n = (uint32_t)n, .seq = seq, .tokens = tokens, .pool = pool, .n_pools = (uint32_t)n
	};
	status = request_items(client, client->owner->ops->reserve, &request);
	free(seq);
	return status;
}

static enum paged_status
seq_read(struct paged_pool *pool, paged_seq_id seq, struct region_look *look, uint32_t *pages, size_t n_max,
	 struct paged_error *error)
{
	for (unsigned int attempt = 0; attempt < REGION_ATTEMPTS; attempt++) {
		enum paged_status status = pool_look(pool, seq, look, error);
		uint32_t n;

		if (status != PAGED_OK)
			return status;
		n = look->capacity / pool->at.view.page_size;
		if (region_row_copy(&pool->at.view, seq, look, n < n_max ? n : (uint32_t)n_max, pages))
			return PAGED_OK;
		region_pause(attempt);
	}
	return pool_busy(pool, seq, error);
}

enum paged_status
paged_seq_read(struct paged_pool *pool, paged_seq_id seq, struct paged_seq_info *info, uint32_t *pages, size_t n_max)
{
	struct paged_client *client = pool->client;
	enum paged_status status = client_enter_owner(client);
	struct paged_seq_info ours;
	struct region_look look;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (pages == NULL && n_max > 0)
		return client_failf(client, PAGED_ERR_INVALID, "pages is NULL but n_max is %zu", n_max);
	status = seq_read(pool, seq, &look, pages, n_max, &error);
	if (status == PAGED_OK && info != NULL) {
		ours = (struct paged_seq_info){
			.owner = look.owner,
			.capacity = look.capacity,
			.writable_from = look.writable_from,
			.n_pages = look.capacity / pool->at.view.page_size,
			.version = look.version,
		};
		status = client_info_out(info, &ours, sizeof(ours), "paged_seq_info", &error);
	}
	return status == PAGED_OK ? PAGED_OK : client_fail(client, &error);
}
