/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/kv_stream.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "events/encode.h"
#include "events/log.h"
#include "events/node_mirror.h"

/* Changes, or nodes of a walk, that become one batch. */
#define BATCH_MAX 256
/* How long the end of the program waits. */
#define WAIT_MS 100

struct kv_stream {
	struct paged_client *client;
	struct paged_pool *pool;
	struct publisher *publisher;
	struct kv_stream_options options;
	struct paged_pool_info info;
	struct paged_watch *watch;
	struct node_mirror *mirror;
	struct event_batch *batch;
	/* The extra of a first page that stands for the pool's model and nothing else. */
	uint8_t plain_extra[PAGED_DIGEST_SIZE];
	pthread_t thread;
	_Atomic bool stops;
	bool failed; /* written by the thread */
};

/* Ends the program; main() asks kv_stream_stop() why. */
static void
stream_fail(struct kv_stream *stream, const char *what)
{
	events_log(EVENTS_LOG_ERROR, "kv", "pool %s: %s", stream->info.name, what);
	stream->failed = true;
	kill(getpid(), SIGTERM);
}

/* Sends the events of the batch.  Returns false after a failure. */
static bool
stream_publish(struct kv_stream *stream)
{
	const void *payload;
	struct timespec now;
	size_t size;

	if (event_batch_is_empty(stream->batch))
		return true;
	clock_gettime(CLOCK_REALTIME, &now);
	if (event_batch_finish(stream->batch, (double)now.tv_sec + (double)now.tv_nsec * 1e-9, &payload, &size) &&
	    publisher_send(stream->publisher, payload, size))
		return true;
	stream_fail(stream, "no memory for a batch of events");
	return false;
}

/*
 * The extra of a block that is an extra key of its hash; NULL: none.
 *
 * Engines put the model into the salt, and so into the extra of a prefix's first page.  A router need not know that: it
 * hashes the prompt alone.
 */
static const uint8_t *
stream_extra(const struct kv_stream *stream, const struct paged_block_key *key)
{
	static const uint8_t zeros[PAGED_DIGEST_SIZE];
	const uint8_t *plain = key->parent_serial == 0 ? stream->plain_extra : zeros;

	return memcmp(key->extra, plain, PAGED_DIGEST_SIZE) != 0 ? key->extra : NULL;
}

static void
stream_announce_removed(void *argument, const struct block_hash *hash)
{
	struct kv_stream *stream = argument;

	event_batch_removed(stream->batch, hash);
}

/* Adds a node to the mirror, and to the batch if its hash is new.  Nothing if it is gone, or below one that is. */
static void
stream_store(struct kv_stream *stream, uint32_t page, uint64_t serial)
{
	struct paged_block_key key = { .struct_size = sizeof(key) };
	const struct block_hash *parent = NULL;
	uint32_t tokens[PAGED_MAX_PAGE_SIZE];
	const uint8_t *extra = NULL;
	struct block_hash hash;

	if (node_mirror_find(stream->mirror, page, serial) != NULL ||
	    paged_watch_read(stream->watch, page, serial, &key, tokens, PAGED_MAX_PAGE_SIZE) != PAGED_OK)
		return;
	/* The page's earlier node is removed by now, whatever became of that change. */
	node_mirror_remove(stream->mirror, page, stream_announce_removed, stream);
	if (key.parent_serial != 0) {
		/* Below a node that is gone: no search finds it. */
		parent = node_mirror_find(stream->mirror, key.parent, key.parent_serial);
		if (parent == NULL)
			return;
	}
	if (!key.keyed) {
		extra = stream_extra(stream, &key);
		block_hash_next(stream->options.hasher, parent, tokens, stream->info.page_size, extra, &hash);
	} else {
		hash.size = PAGED_DIGEST_SIZE;
		memcpy(hash.bytes, key.extra, PAGED_DIGEST_SIZE);
	}
	if (node_mirror_add(stream->mirror, page, serial, parent != NULL ? key.parent : NODE_MIRROR_ROOT, &hash))
		event_batch_stored(stream->batch, parent, &hash, key.has_tokens ? tokens : NULL, extra);
}

static void
stream_apply(struct kv_stream *stream, const struct paged_change *change)
{
	switch (change->kind) {
	case PAGED_CHANGE_STORED:
		stream_store(stream, change->page, change->serial);
		break;
	case PAGED_CHANGE_REMOVED:
		if (node_mirror_find(stream->mirror, change->page, change->serial) != NULL)
			node_mirror_remove(stream->mirror, change->page, stream_announce_removed, stream);
		break;
	case PAGED_CHANGE_CLEARED:
		node_mirror_clear(stream->mirror);
		event_batch_cleared(stream->batch);
		break;
	}
}

/* The nodes of a walk. */
struct walk {
	struct paged_node_info *nodes;
	size_t n, n_allocated;
	uint32_t *node_of_page; /* [n_pages] 1 + index in nodes; 0: none */
	uint32_t *stack;        /* [n] */
};

static enum paged_status
walk_read(struct kv_stream *stream, struct walk *walk)
{
	uint32_t from = 0;
	size_t n;

	for (;;) {
		enum paged_status status;

		if (walk->n_allocated - walk->n < BATCH_MAX) {
			size_t more = 2 * walk->n_allocated + BATCH_MAX;
			void *nodes = reallocarray(walk->nodes, more, sizeof(*walk->nodes));

			if (nodes == NULL)
				return PAGED_ERR_NOMEM;
			walk->nodes = nodes;
			walk->n_allocated = more;
		}
		status = paged_watch_walk(stream->watch, &from, walk->nodes + walk->n, BATCH_MAX, &n);
		if (status != PAGED_OK || n == 0)
			return status;
		walk->n += n;
	}
}

/* The node before this one, if it is neither in the mirror nor gone; 0: none, else 1 + its index. */
static uint32_t
walk_parent(const struct kv_stream *stream, const struct walk *walk, const struct paged_node_info *node)
{
	uint32_t link;

	if (node->parent_serial == 0 || node->parent >= stream->info.n_pages ||
	    node_mirror_find(stream->mirror, node->parent, node->parent_serial) != NULL)
		return 0;
	link = walk->node_of_page[node->parent];
	return link != 0 && walk->nodes[link - 1].serial == node->parent_serial ? link : 0;
}

/* Stores each node after those before it in its prefix.  Returns false after a failure. */
static bool
walk_store(struct kv_stream *stream, struct walk *walk)
{
	uint32_t n_batch = 0;

	for (size_t i = 0; i < walk->n && !stream->stops; i++) {
		uint32_t depth = 0, link = (uint32_t)i + 1;

		for (; link != 0; link = walk_parent(stream, walk, &walk->nodes[link - 1]))
			walk->stack[depth++] = link - 1;
		while (depth > 0) {
			const struct paged_node_info *node = &walk->nodes[walk->stack[--depth]];

			stream_store(stream, node->page, node->serial);
			if (++n_batch % BATCH_MAX == 0 && !stream_publish(stream))
				return false;
		}
	}
	return stream_publish(stream);
}

/* Publishes AllBlocksCleared and all blocks that can be found.  Returns false if the stream ends. */
static bool
stream_begin(struct kv_stream *stream)
{
	struct walk walk = { 0 };
	enum paged_status status;
	bool goes_on = false;

	node_mirror_clear(stream->mirror);
	event_batch_cleared(stream->batch);
	status = walk_read(stream, &walk);
	if (status == PAGED_OK) {
		walk.node_of_page = calloc(stream->info.n_pages, sizeof(*walk.node_of_page));
		walk.stack = calloc(walk.n + 1, sizeof(*walk.stack));
		if (walk.node_of_page == NULL || walk.stack == NULL)
			status = PAGED_ERR_NOMEM;
	}
	if (status == PAGED_OK) {
		for (size_t i = 0; i < walk.n; i++)
			walk.node_of_page[walk.nodes[i].page] = (uint32_t)i + 1;
		goes_on = walk_store(stream, &walk);
		events_log(EVENTS_LOG_INFO, "kv", "pool %s: %zu pages are published", stream->info.name, walk.n);
	} else if (status == PAGED_ERR_NOMEM) {
		stream_fail(stream, "no memory for a list of all published pages");
	}
	free(walk.nodes);
	free(walk.node_of_page);
	free(walk.stack);
	return goes_on;
}

static void *
stream_run(void *argument)
{
	struct kv_stream *stream = argument;
	struct paged_change changes[BATCH_MAX];
	bool goes_on = stream_begin(stream);
	size_t n;

	while (goes_on && !stream->stops) {
		enum paged_status status;

		status = paged_watch_next(stream->watch, changes, BATCH_MAX, WAIT_MS, &n);
		if (status == PAGED_OK) {
			for (size_t i = 0; i < n; i++)
				stream_apply(stream, &changes[i]);
			goes_on = stream_publish(stream);
		} else if (status == PAGED_ERR_STALE) {
			events_log(EVENTS_LOG_WARNING, "kv", "%s", paged_client_error(stream->client));
			goes_on = stream_begin(stream);
		} else if (status != PAGED_ERR_TIMEOUT) {
			/* The daemon has ended, which main() notices. */
			events_log(EVENTS_LOG_DEBUG, "kv", "%s", paged_client_error(stream->client));
			goes_on = false;
		}
	}
	return NULL;
}

static void
stream_free(struct kv_stream *stream)
{
	paged_watch_close(stream->watch);
	paged_pool_close(stream->pool);
	node_mirror_destroy(stream->mirror);
	event_batch_destroy(stream->batch);
	free(stream);
}

/* What the library computes from the salt of the model alone. */
static void
stream_plain_extra(struct kv_stream *stream)
{
	const char *const parts[] = { stream->info.model, "", "" };
	uint8_t salt[PAGED_DIGEST_SIZE];

	static_assert(PAGED_DIGEST_SIZE == crypto_hash_sha256_BYTES, "SHA-256");
	if (stream->info.model == NULL || stream->info.model[0] == '\0')
		return;
	paged_salt(salt, 3, parts);
	crypto_hash_sha256(stream->plain_extra, salt, sizeof(salt));
}

static bool
stream_open(struct kv_stream *stream)
{
	stream->info.struct_size = sizeof(stream->info);
	if (paged_pool_get_info(stream->pool, &stream->info) != PAGED_OK ||
	    paged_watch_open(stream->pool, &stream->watch) != PAGED_OK) {
		events_log(EVENTS_LOG_ERROR, "kv", "%s", paged_client_error(stream->client));
		return false;
	}
	stream_plain_extra(stream);
	stream->mirror = node_mirror_create(stream->info.n_pages);
	stream->batch = event_batch_create(&(struct event_format){
		.integers = stream->options.integers,
		.medium = strcmp(stream->info.backend, "cuda") == 0 ? "GPU" : "CPU",
		/* A block is found by its whole prefix, whatever window some layers of the model have. */
		.spec_kind = stream->info.v_in_k ? "mla_attention" : "full_attention",
		.block_size = stream->info.page_size,
		.data_parallel_rank = stream->options.data_parallel_rank,
	});
	if (stream->mirror != NULL && stream->batch != NULL &&
	    pthread_create(&stream->thread, NULL, stream_run, stream) == 0)
		return true;
	events_log(EVENTS_LOG_ERROR, "kv", "pool %s: no memory for %u pages, or for a thread", stream->info.name,
		   stream->info.n_pages);
	return false;
}

struct kv_stream *
kv_stream_start(struct paged_client *client, struct paged_pool *pool, struct publisher *publisher,
		const struct kv_stream_options *options)
{
	struct kv_stream *stream = calloc(1, sizeof(*stream));

	if (stream == NULL) {
		events_log(EVENTS_LOG_ERROR, "kv", "no memory");
		paged_pool_close(pool);
		return NULL;
	}
	stream->client = client;
	stream->pool = pool;
	stream->publisher = publisher;
	stream->options = *options;
	if (stream_open(stream))
		return stream;
	stream_free(stream);
	return NULL;
}

bool
kv_stream_stop(struct kv_stream *stream, bool daemon_ended)
{
	bool failed;

	stream->stops = true;
	pthread_join(stream->thread, NULL);
	if (daemon_ended && !stream->failed) {
		event_batch_cleared(stream->batch);
		stream_publish(stream);
	}
	failed = stream->failed;
	stream_free(stream);
	return !failed;
}
