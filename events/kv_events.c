/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/kv_events.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/kv_stream.h"
#include "events/log.h"

/* A pool that was served in this life of the daemon, or an earlier one. */
struct kv_pool {
	char name[PAGED_MAX_NAME + 1];
	struct publisher *publisher;
	struct kv_stream *stream; /* NULL: the daemon has no such pool now */
};

struct kv_events {
	const struct events_options *options;
	uint32_t n_pools;
	struct kv_pool pools[PAGED_MAX_POOLS];
};

struct kv_events *
kv_events_open(const struct events_options *options)
{
	struct kv_events *kv = calloc(1, sizeof(*kv));

	if (kv != NULL)
		kv->options = options;
	if (kv == NULL || sodium_init() < 0) {
		events_log(EVENTS_LOG_ERROR, "kv", "no memory");
		free(kv);
		return NULL;
	}
	return kv;
}

/*
 * The endpoint of the index-th pool, as vLLM's for a data-parallel rank: the port grows by the index, another kind of
 * endpoint gets the index as a suffix.  NULL: no memory.
 */
static char *
endpoint_of(const char *endpoint, uint32_t index)
{
	const char *port = strrchr(endpoint, ':');
	unsigned long number = port != NULL ? strtoul(port + 1, NULL, 10) : 0;
	char *text;

	/* A port that is too large is refused as it is. */
	if (index == 0 || (strncmp(endpoint, "tcp://", 6) == 0 && (number == 0 || number > UINT16_MAX)))
		return strdup(endpoint);
	if (strncmp(endpoint, "tcp://", 6) != 0)
		return asprintf(&text, "%s_%u", endpoint, index) >= 0 ? text : NULL;
	return asprintf(&text, "%.*s:%lu", (int)(port - endpoint), endpoint, number + index) >= 0 ? text : NULL;
}

static struct publisher *
kv_open_publisher(struct kv_events *kv, const char *name, uint32_t index)
{
	struct publisher_options options = kv->options->kv.publisher;
	char *endpoint = endpoint_of(options.endpoint, index), *replay = NULL;
	struct publisher *publisher = NULL;

	if (options.replay_endpoint != NULL)
		replay = endpoint_of(options.replay_endpoint, index);
	if (endpoint != NULL && (replay != NULL || options.replay_endpoint == NULL)) {
		options.endpoint = endpoint;
		options.replay_endpoint = replay;
		publisher = publisher_open(name, &options);
	} else {
		events_log(EVENTS_LOG_ERROR, "kv", "pool %s: no memory", name);
	}
	free(endpoint);
	free(replay);
	return publisher;
}

/* The pool of this name, with its publisher; its endpoints are those of the index.  NULL: the reason was logged. */
static struct kv_pool *
kv_find_pool(struct kv_events *kv, const char *name, uint32_t index)
{
	struct kv_pool *pool;

	for (uint32_t i = 0; i < kv->n_pools; i++)
		if (strcmp(kv->pools[i].name, name) == 0)
			return &kv->pools[i];
	if (kv->n_pools == PAGED_MAX_POOLS) {
		events_log(EVENTS_LOG_ERROR, "kv", "pool %s: %u pools had other names in earlier lives of the daemon",
			   name, PAGED_MAX_POOLS);
		return NULL;
	}
	pool = &kv->pools[kv->n_pools];
	snprintf(pool->name, sizeof(pool->name), "%s", name);
	pool->publisher = kv_open_publisher(kv, pool->name, index);
	if (pool->publisher == NULL)
		return NULL;
	kv->n_pools++;
	return pool;
}

/* Starts the stream of an opened pool, which closes it. */
static bool
kv_attach_pool(struct kv_events *kv, struct paged_client *client, struct paged_pool *opened, const char *name,
	       uint32_t index)
{
	struct kv_pool *pool = kv_find_pool(kv, name, index);
	const struct kv_stream_options options = { .hasher = &kv->options->kv.hasher,
						   .integers = kv->options->kv.integers,
						   .data_parallel_rank = kv->options->kv.data_parallel_rank };

	if (pool == NULL) {
		paged_pool_close(opened);
		return false;
	}
	pool->stream = kv_stream_start(client, opened, pool->publisher, &options);
	return pool->stream != NULL;
}

/* All pools that publish.  One that this user may not use is passed over. */
static bool
kv_attach_all(struct kv_events *kv, struct paged_client *client, const struct paged_pool_entry *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		enum paged_status status;
		struct paged_pool *opened;

		if (!list[i].publishes)
			continue;
		status = paged_pool_open(client, list[i].name, &opened);
		if (status != PAGED_OK)
			events_log(status == PAGED_ERR_PERM ? EVENTS_LOG_WARNING : EVENTS_LOG_ERROR, "kv", "%s",
				   paged_client_error(client));
		if (status == PAGED_ERR_PERM)
			continue;
		if (status != PAGED_OK || !kv_attach_pool(kv, client, opened, list[i].name, list[i].number))
			return false;
	}
	return true;
}

bool
kv_events_attach(struct kv_events *kv, struct paged_client *client)
{
	const struct events_options *options = kv->options;
	struct paged_pool_entry *list;
	struct paged_pool *opened;
	bool ok;
	size_t n;

	if (options->kv.publisher.endpoint == NULL)
		return true;
	for (uint32_t i = 0; i < options->n_pools; i++) {
		if (paged_pool_open(client, options->pools[i], &opened) != PAGED_OK) {
			events_log(EVENTS_LOG_ERROR, "kv", "%s", paged_client_error(client));
			return false;
		}
		if (!kv_attach_pool(kv, client, opened, options->pools[i], i))
			return false;
	}
	if (options->n_pools > 0)
		return true;
	if (paged_admin_pools(client, sizeof(*list), &list, &n) != PAGED_OK) {
		events_log(EVENTS_LOG_ERROR, "kv", "%s", paged_client_error(client));
		return false;
	}
	ok = kv_attach_all(kv, client, list, n);
	paged_free(list);
	return ok;
}

bool
kv_events_detach(struct kv_events *kv, bool daemon_ended)
{
	bool ok = true;

	for (uint32_t i = 0; i < kv->n_pools; i++) {
		if (kv->pools[i].stream != NULL && !kv_stream_stop(kv->pools[i].stream, daemon_ended))
			ok = false;
		kv->pools[i].stream = NULL;
	}
	return ok;
}

void
kv_events_close(struct kv_events *kv)
{
	if (kv == NULL)
		return;
	/* They linger at the same time. */
	for (uint32_t i = 0; i < kv->n_pools; i++)
		publisher_stop(kv->pools[i].publisher);
	for (uint32_t i = 0; i < kv->n_pools; i++)
		publisher_close(kv->pools[i].publisher);
	free(kv);
}
