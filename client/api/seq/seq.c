/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on sequences: one request for each array, and the reading of page tables. */
#include "config.h"

#include "client/api/seq/seq.h"

#include <stdlib.h>
#include <string.h>

#include "client/api/checking.h"
#include "client/api/enter.h"
#include "client/api/pool_read.h"
#include "client/params.h"
#include "common/text.h"

enum paged_status
seq_request_enter(struct paged_client *client, size_t n, bool has_arrays)
{
	enum paged_status status = client_enter_shared(client);

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
seq_tag_check(const char *array, size_t i, const char *tag, size_t *tags_p, struct paged_error *error)
{
	size_t length;

	if (tag == NULL)
		return PAGED_OK;
	length = strnlen(tag, PAGED_MAX_TAG + 1);
	if (length > PAGED_MAX_TAG)
		return paged_fail(error, PAGED_ERR_LIMIT, "%s[%zu].tag has more than %u bytes", array, i,
				  PAGED_MAX_TAG);
	if (tag[text_bad_byte(tag)] != '\0')
		return paged_fail(error, PAGED_ERR_INVALID,
				  "%s[%zu].tag is not UTF-8 without control characters and invisible ones", array, i);
	*tags_p += length;
	if (*tags_p > PAGED_MAX_REQUEST_TAGS)
		return paged_fail(error, PAGED_ERR_LIMIT, "the tags of a request have at most %u bytes together",
				  PAGED_MAX_REQUEST_TAGS);
	return PAGED_OK;
}

static enum paged_status
seq_spec_in(const struct paged_client *client, size_t i, const struct paged_seq_params *params, struct seq_spec *spec,
	    size_t *tags_p, struct paged_error *error)
{
	const char *tag = params->tag != NULL ? params->tag : "";

	if (params->pool == NULL || params->pool->client != client)
		return paged_fail(error, PAGED_ERR_INVALID, "params[%zu].pool is no pool of this client", i);
	if (!client_is_zero(params->reserved, sizeof(params->reserved)))
		return paged_fail(error, PAGED_ERR_INVALID, "params[%zu].reserved is not zero", i);
	if (seq_tag_check("params", i, tag, tags_p, error) != PAGED_OK)
		return error->status;
	*spec = (struct seq_spec){ .pool = params->pool->mapping.index, .n_tokens = params->n_tokens, .tag = tag };
	return PAGED_OK;
}

enum paged_status
paged_seq_create(struct paged_client *client, size_t n, const struct paged_seq_params *params, paged_seq_id *ids)
{
	enum paged_status status = seq_request_enter(client, n, params != NULL && ids != NULL);
	struct paged_error error;
	struct seq_spec *specs;
	size_t tags = 0;

	if (status != PAGED_OK)
		return status;
	specs = calloc(n, sizeof(*specs));
	if (specs == NULL)
		return client_failf(client, PAGED_ERR_NOMEM, "no memory for a request of %zu sequences", n);
	for (size_t i = 0; i < n && status == PAGED_OK; i++)
		status = seq_spec_in(client, i, &params[i], &specs[i], &tags, &error);
	if (status == PAGED_OK) {
		client_lock(client);
		status = client->owner->ops->create(client->owner, (uint32_t)n, specs, ids, &error);
		client_unlock(client);
	}
	for (size_t i = 0; i < n && status == PAGED_OK; i++)
		if (params[i].pool->checking != NULL)
			checking_begin(params[i].pool, ids[i], 0);
	free(specs);
	return client_leave(client, status, &error);
}

typedef enum paged_status (*seq_change_fn)(struct owner *owner, uint32_t n, const struct paged_seq_item *items,
					   struct paged_error *error);

static enum paged_status
seq_request_change(struct paged_client *client, seq_change_fn change, size_t n, const struct paged_seq_item *items)
{
	enum paged_status status;
	struct paged_error error;

	for (size_t i = 0; i < n; i++)
		if (!client_is_zero(items[i].reserved, sizeof(items[i].reserved)))
			return client_failf(client, PAGED_ERR_INVALID, "items[%zu].reserved is not zero", i);
	client_lock(client);
	status = change(client->owner, (uint32_t)n, items, &error);
	client_unlock(client);
	return client_leave(client, status, &error);
}

enum paged_status
paged_seq_reserve(struct paged_client *client, size_t n, const struct paged_seq_item *items)
{
	enum paged_status status = seq_request_enter(client, n, items != NULL);

	return status != PAGED_OK ? status : seq_request_change(client, client->owner->ops->reserve, n, items);
}

/* What was truncated counts as not appended; pools are few. */
static void
seq_check_truncated(struct paged_client *client, size_t n, const struct paged_seq_item *items)
{
	struct paged_pool *pool;

	pthread_mutex_lock(&client->pools_mutex);
	LIST_FOREACH(pool, &client->pools, link)
		for (size_t i = 0; i < n && pool->checking != NULL; i++)
			if (PAGED_SEQ_POOL(items[i].seq) == pool->mapping.index)
				checking_truncate(pool, items[i].seq, items[i].n_tokens);
	pthread_mutex_unlock(&client->pools_mutex);
}

enum paged_status
paged_seq_truncate(struct paged_client *client, size_t n, const struct paged_seq_item *items)
{
	enum paged_status status = seq_request_enter(client, n, items != NULL);

	if (status == PAGED_OK)
		status = seq_request_change(client, client->owner->ops->truncate, n, items);
	if (status == PAGED_OK && client->checks)
		seq_check_truncated(client, n, items);
	return status;
}

enum paged_status
paged_seq_trim(struct paged_client *client, size_t n, const struct paged_seq_item *items)
{
	enum paged_status status = seq_request_enter(client, n, items != NULL);

	return status != PAGED_OK ? status : seq_request_change(client, client->owner->ops->trim, n, items);
}

enum paged_status
paged_seq_erase(struct paged_client *client, size_t n, const paged_seq_id *ids)
{
	enum paged_status status = seq_request_enter(client, n, ids != NULL);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	client_lock(client);
	status = client->owner->ops->erase(client->owner, (uint32_t)n, ids, &error);
	client_unlock(client);
	return client_leave(client, status, &error);
}

static enum paged_status
seq_read(struct paged_pool *pool, paged_seq_id seq, struct region_snapshot *snapshot, uint32_t *pages, size_t n_max,
	 struct paged_error *error)
{
	unsigned int attempt = 0;
	enum paged_status status;
	uint32_t n;

	do {
		status = pool_snapshot(pool, seq, &attempt, snapshot, error);
		if (status != PAGED_OK)
			return status;
		n = snapshot->capacity / pool->mapping.view.page_size;
	} while (!region_snapshot_copy(&pool->mapping.view, seq, snapshot, n < n_max ? n : (uint32_t)n_max, pages));
	return PAGED_OK;
}

/* What was trimmed is not sent to the owner, so that its slot does not tell. */
static enum paged_publish_end
seq_publish_end(const struct paged_pool *pool, paged_seq_id seq, const struct region_snapshot *snapshot)
{
	const struct region_slot *slot = region_slot(&pool->mapping.view, PAGED_SEQ_SLOT(seq));

	if (snapshot->published / pool->mapping.view.page_size < snapshot->first)
		return PAGED_PUBLISH_TRIMMED;
	return atomic_load_explicit(&slot->publish_end, memory_order_relaxed);
}

enum paged_status
paged_seq_read(struct paged_pool *pool, paged_seq_id seq, struct paged_seq_info *info, uint32_t *pages, size_t n_max)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = client_enter_shared(client);
	struct paged_seq_info ours;
	struct region_snapshot snapshot;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (pages == NULL && n_max > 0)
		return client_failf(client, PAGED_ERR_INVALID, "pages is NULL but n_max is %zu", n_max);
	status = pool_check_seq(pool, seq, &error);
	if (status == PAGED_OK)
		status = seq_read(pool, seq, &snapshot, pages, n_max, &error);
	if (status == PAGED_OK && info != NULL) {
		ours = (struct paged_seq_info){
			.owner = snapshot.owner,
			.capacity = snapshot.capacity,
			.writable_from = snapshot.writable_from,
			.n_pages = snapshot.capacity / pool->mapping.view.page_size,
			.version = snapshot.version,
			.published = snapshot.published,
			.n_trimmed = snapshot.first,
			.frozen = (snapshot.flags & REGION_SLOT_FROZEN) != 0,
			.hold = (snapshot.flags & REGION_SLOT_HOLD) != 0,
			.publish_end = seq_publish_end(pool, seq, &snapshot),
		};
		status = client_info_out(info, &ours, sizeof(ours), "paged_seq_info", &error);
	}
	return client_leave(client, status, &error);
}
