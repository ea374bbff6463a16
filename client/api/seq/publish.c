/* SPDX-License-Identifier: Apache-2.0 */
/* paged_seq_publish(), and the messages that it fills. */
#include "config.h"

#include "client/api/seq/publish.h"

#include <assert.h>
#include <string.h>
#include <sys/param.h>

#include "client/api/checking.h"
#include "client/api/enter.h"
#include "client/api/pool_read.h"
#include "client/api/seq/publishing.h"
#include "client/api/seq/seq.h"

#define EXTRA_BYTES (REGION_EXTRA_SIZE + sizeof(uint32_t))

static_assert(WIRE_MAX_LISTS - WIRE_PUBLISH_SIZE > PAGED_MAX_PAGE_SIZE * sizeof(uint32_t) + EXTRA_BYTES,
	      "an empty message has room for a page");
static_assert(WIRE_MAX_PUBLISH_TOKENS >= PAGED_MAX_PAGE_SIZE, "an empty message has room for a page");

/*
 * Pages of which each takes page_bytes and may have an extra, such that they fit the message.  The message's `keys` and
 * `attached_tokens` are not set before its first page.
 */
static uint32_t
publish_message_room(const struct publish_message *message, uint32_t page_size, bool keys, bool tokens, bool extras)
{
	size_t used = message->n * WIRE_PUBLISH_SIZE + message->n_tokens * sizeof(uint32_t) +
		      message->n_extras * (keys ? REGION_EXTRA_SIZE : EXTRA_BYTES) + WIRE_PUBLISH_SIZE;
	size_t page_bytes = (keys ? REGION_EXTRA_SIZE : 0) + (tokens ? page_size * sizeof(uint32_t) : 0) +
			    (extras ? EXTRA_BYTES : 0);
	uint32_t n = WIRE_MAX_PUBLISH_PAGES - message->n_pages;

	if (message->n == WIRE_MAX_PUBLISHES || used > WIRE_MAX_LISTS ||
	    (message->n > 0 && (message->keys != keys || message->attached_tokens != (keys && tokens))))
		return 0;
	if (keys || extras)
		n = MIN(n, WIRE_MAX_EXTRAS - message->n_extras);
	if (tokens)
		n = MIN(n, (WIRE_MAX_PUBLISH_TOKENS - message->n_tokens) / page_size);
	return (uint32_t)MIN(n, (WIRE_MAX_LISTS - used) / page_bytes);
}

bool
publish_message_add(struct publish_message *message, const struct prefix_source *source, struct publish_range *range)
{
	bool keys = source->user.keys != NULL, tokens = source->user.tokens != NULL, extras;
	uint32_t n = range->end - range->from, n_extras, base = message->n_pages, end;

	extras = !keys && prefix_source_n_extras(source, range->from, range->end) > 0;
	n = MIN(n, publish_message_room(message, source->page_size, keys, tokens, extras));
	if (n == 0)
		return false;
	end = range->from + n;
	message->keys = keys;
	message->attached_tokens = keys && tokens;
	message->specs[message->n++] = (struct seq_publish_spec){
		.seq = range->seq, .version = range->version, .from = range->from, .n_pages = n
	};
	message->n_pages += n;
	if (keys) {
		memcpy(message->extra[message->n_extras], source->user.keys + range->from, n * REGION_EXTRA_SIZE);
		message->n_extras += n;
	}
	if (tokens) {
		memcpy(message->tokens + message->n_tokens,
		       source->user.tokens + (size_t)range->from * source->page_size,
		       (size_t)n * source->page_size * sizeof(uint32_t));
		message->n_tokens += n * source->page_size;
	}
	if (!keys) {
		n_extras = prefix_source_extras(source, range->from, end, n, message->extra_page + message->n_extras,
						message->extra + message->n_extras, &end);
		for (uint32_t i = 0; i < n_extras; i++)
			message->extra_page[message->n_extras++] += base;
	}
	range->from += n;
	return range->from == range->end;
}

enum paged_status
publish_message_send(struct paged_client *client, const struct publish_message *message, struct paged_error *error)
{
	struct seq_publish_list publish;

	if (message->n == 0)
		return PAGED_OK;
	publish = (struct seq_publish_list){
		.n = message->n,
		.specs = message->specs,
		.n_tokens = message->n_tokens,
		.keyed = message->keys,
		.tokens = message->keys && !message->attached_tokens ? NULL : message->tokens,
		.n_extras = message->n_extras,
		.extra_page = message->extra_page,
		.extra = (const uint8_t(*)[REGION_EXTRA_SIZE])message->extra,
	};
	return publishing_send(client, &publish, error);
}

static uint32_t
publish_slot_flags(const struct paged_pool *pool, paged_seq_id seq)
{
	const struct region_slot *slot = region_slot(&pool->mapping.view, PAGED_SEQ_SLOT(seq));

	return atomic_load_explicit(&slot->flags, memory_order_relaxed);
}

static bool
publish_message_spec_is_stale(const struct paged_pool *pool, const struct seq_publish_spec *spec)
{
	struct region_snapshot snapshot = { .version = spec->version };

	/* A slot's version never repeats, so the check also covers the id's generation. */
	if (publish_slot_flags(pool, spec->seq) & REGION_SLOT_FROZEN)
		return true;
	return !region_snapshot_valid(&pool->mapping.view, spec->seq, &snapshot);
}

void
publish_message_drop_stale(const struct paged_pool *pool, struct publish_message *message)
{
	const uint32_t page_size = message->keys && !message->attached_tokens ? 0 : pool->mapping.view.page_size;
	const uint32_t n = message->n, n_extras = message->n_extras;
	uint32_t page = 0, extra = 0;

	publish_message_clear(message);
	for (uint32_t i = 0; i < n; i++) {
		const struct seq_publish_spec spec = message->specs[i];
		uint32_t first = page, first_extra = extra, moved = first - message->n_pages;

		page += spec.n_pages;
		if (message->keys)
			extra = page;
		while (!message->keys && extra < n_extras && message->extra_page[extra] < page)
			extra++;
		if (publish_message_spec_is_stale(pool, &spec)) {
			publishing_unqueue(pool, 1, &spec);
			continue;
		}
		memmove(message->tokens + message->n_tokens, message->tokens + (size_t)first * page_size,
			(size_t)spec.n_pages * page_size * sizeof(uint32_t));
		memmove(message->extra[message->n_extras], message->extra[first_extra],
			(extra - first_extra) * sizeof(message->extra[0]));
		for (uint32_t e = first_extra; e < extra && !message->keys; e++)
			message->extra_page[message->n_extras + e - first_extra] = message->extra_page[e] - moved;
		message->n_extras += extra - first_extra;
		message->n_tokens += spec.n_pages * page_size;
		message->n_pages += spec.n_pages;
		message->specs[message->n++] = spec;
	}
}

enum paged_status
publish_enter(const struct paged_pool *pool, size_t n, const struct paged_publish *publishes)
{
	enum paged_status status = seq_request_enter(pool_client(pool), n, publishes != NULL);

	if (status == PAGED_OK && pool->mapping.view.n_buckets == 0)
		return client_failf(pool->client, PAGED_ERR_UNSUPPORTED, "pool %s publishes nothing",
				    pool->mapping.name);
	return status;
}

static enum paged_status
publish_range_check(struct paged_pool *pool, const struct paged_publish *publish, struct prefix_source *source,
		    struct publish_range *range, struct paged_error *error)
{
	enum paged_status status = prefix_source_init(pool, publish->prefix, source, error);
	uint32_t session = pool->client->owner->session;
	struct region_snapshot snapshot;
	unsigned int attempt = 0;

	if (status == PAGED_OK)
		status = pool_check_seq(pool, publish->seq, error);
	if (status == PAGED_OK)
		status = pool_snapshot(pool, publish->seq, &attempt, &snapshot, error);
	if (status != PAGED_OK)
		return status;
	if (snapshot.owner != session)
		return paged_fail(error, PAGED_ERR_PERM,
				  "sequence " SEQ_FORMAT " belongs to session %u, this is session %u",
				  SEQ_ARGS(publish->seq), snapshot.owner, session);
	if (snapshot.flags & REGION_SLOT_FROZEN)
		return paged_fail(error, PAGED_ERR_PERM, "sequence " SEQ_FORMAT " was given away",
				  SEQ_ARGS(publish->seq));
	if (snapshot.flags & REGION_SLOT_HOLD)
		return paged_fail(error, PAGED_ERR_PERM,
				  "sequence " SEQ_FORMAT " is a hold, whose pages are published already",
				  SEQ_ARGS(publish->seq));
	if (source->user.n_tokens > snapshot.capacity)
		return paged_fail(error, PAGED_ERR_CAPACITY,
				  "a prefix of %zu tokens exceeds the %u that sequence " SEQ_FORMAT " has reserved",
				  source->user.n_tokens, snapshot.capacity, SEQ_ARGS(publish->seq));
	*range = (struct publish_range){
		.seq = publish->seq,
		.version = snapshot.version,
		.from = MIN(snapshot.published / source->page_size, source->n_pages),
		.end = source->n_pages,
	};
	/* What comes next was given back, so the sequence can publish nothing more. */
	if (snapshot.published / source->page_size < snapshot.first)
		range->from = range->end;
	if (pool->checking != NULL && range->from < range->end)
		status = checking_publish(pool, publish->seq, range->from * source->page_size,
					  range->end * source->page_size, error);
	return status == PAGED_OK ? prefix_source_check_tokens(source, range->from, error) : status;
}

enum paged_status
publish_range_init(struct paged_pool *pool, size_t i, const struct paged_publish *publish, struct prefix_source *source,
		   struct publish_range *range, struct paged_error *error)
{
	struct paged_error why;
	enum paged_status status = publish_range_check(pool, publish, source, range, &why);

	return status == PAGED_OK ? PAGED_OK : paged_fail(error, status, "publishes[%zu]: %s", i, why.text);
}

/* Adds a range to the client's message and sends it whenever it is full; the client's mutex is held. */
static enum paged_status
publish_range_send(struct paged_client *client, const struct prefix_source *source, struct publish_range *range,
		   struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	while (status == PAGED_OK && !publish_message_add(client->publish, source, range)) {
		status = publish_message_send(client, client->publish, error);
		publish_message_clear(client->publish);
	}
	return status;
}

static enum paged_status
publish_send_all(struct paged_pool *pool, size_t n, const struct paged_publish *publishes, struct paged_error *error)
{
	struct paged_client *client = pool->client;
	struct prefix_source source;
	struct publish_range range;
	enum paged_status status = PAGED_OK;

	publish_message_clear(client->publish);
	for (size_t i = 0; i < n && status == PAGED_OK; i++) {
		/* It was checked, so it fails only if the sequence is changed just now: a later call publishes it. */
		if (publish_range_init(pool, i, &publishes[i], &source, &range, error) == PAGED_OK &&
		    range.from < range.end)
			status = publish_range_send(client, &source, &range, error);
	}
	if (status == PAGED_OK)
		status = publish_message_send(client, client->publish, error);
	/* There are as many requests without a reply as there may be: the next call sends the rest. */
	return status == PAGED_ERR_AGAIN || status == PAGED_ERR_TIMEOUT ? PAGED_OK : status;
}

enum paged_status
publish_check_all(struct paged_pool *pool, size_t n, const struct paged_publish *publishes, bool *any_p,
		  struct paged_error *error)
{
	struct prefix_source source;
	struct publish_range range;
	enum paged_status status = PAGED_OK;

	*any_p = false;
	for (size_t i = 0; i < n && status == PAGED_OK; i++) {
		status = publish_range_init(pool, i, &publishes[i], &source, &range, error);
		*any_p |= status == PAGED_OK && range.from < range.end;
	}
	return status;
}

enum paged_status
publish_now(struct paged_pool *pool, size_t n, const struct paged_publish *publishes, struct paged_error *error)
{
	bool any;
	enum paged_status status = publish_check_all(pool, n, publishes, &any, error);

	/* If another thread uses the owner, the next call sends it. */
	if (status != PAGED_OK || !any || pthread_mutex_trylock(&pool->client->mutex) != 0)
		return status;
	status = publish_send_all(pool, n, publishes, error);
	client_unlock(pool->client);
	return status;
}

enum paged_status
paged_seq_publish(struct paged_pool *pool, size_t n, const struct paged_publish *publishes)
{
	enum paged_status status = publish_enter(pool, n, publishes);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = publish_now(pool, n, publishes, &error);
	return client_leave(pool->client, status, &error);
}
