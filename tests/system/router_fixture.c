/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/router_fixture.h"

#include <fcntl.h>
#include <msgpack.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#define MAX_ARGUMENTS 24

/* paged-events */

void
events_start(struct events_process *events, const struct it_daemon *daemon, const char *const *arguments)
{
	const char *argv[MAX_ARGUMENTS] = { "paged-events", "--endpoint", events->endpoint, "--replay-endpoint",
					    events->replay_endpoint };
	size_t n = 5;

	snprintf(events->log, sizeof(events->log), "%s/events.log", daemon->dir);
	snprintf(events->endpoint, sizeof(events->endpoint), "ipc://%s/events", daemon->dir);
	snprintf(events->replay_endpoint, sizeof(events->replay_endpoint), "ipc://%s/replay", daemon->dir);
	for (; arguments != NULL && *arguments != NULL; arguments++) {
		it_require(n + 1 < MAX_ARGUMENTS);
		argv[n++] = *arguments;
	}
	fflush(stdout);
	events->pid = fork();
	it_require(events->pid >= 0, "%m");
	if (events->pid == 0) {
		int log = open(events->log, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);

		dup2(log, 2);
		execv(it_build_path("events/paged-events"), (char *const *)argv);
		_exit(127);
	}
}

void
events_stop(struct events_process *events)
{
	int status;

	kill(events->pid, SIGTERM);
	it_require(waitpid(events->pid, &status, 0) == events->pid);
	it_require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status %x", (unsigned int)status);
}

struct log_text {
	const char *path, *text;
};

static bool
log_has(void *argument)
{
	const struct log_text *wanted = argument;
	static char log[1 << 16];
	FILE *file = fopen(wanted->path, "r");
	size_t n;

	if (file == NULL)
		return false;
	n = fread(log, 1, sizeof(log) - 1, file);
	fclose(file);
	log[n] = '\0';
	return strstr(log, wanted->text) != NULL;
}

bool
events_logged(const struct events_process *events, const char *text)
{
	struct log_text wanted = { events->log, text };

	return it_wait(log_has, &wanted);
}

/* Batches */

void
router_batch_free(struct router_batch *batch)
{
	free(batch->payload);
	batch->payload = NULL;
}

/* Receives a frame of at most `size` bytes, which is not the last one unless `last`.  Returns its size. */
static size_t
frame_receive(void *socket, void *bytes, size_t size, bool last)
{
	int more, n = zmq_recv(socket, bytes, size, 0);
	size_t option_size = sizeof(more);

	it_require(n >= 0 && (size_t)n <= size, "%d bytes: %s", n, zmq_strerror(zmq_errno()));
	it_require(zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &option_size) == 0 && (more == 0) == last);
	return (size_t)n;
}

static void
batch_receive(void *socket, struct router_batch *batch)
{
	static uint8_t payload[1 << 20];
	uint8_t sequence[8];

	memset(batch, 0, sizeof(*batch));
	frame_receive(socket, batch->topic, sizeof(batch->topic) - 1, false);
	it_require(frame_receive(socket, sequence, sizeof(sequence), false) == sizeof(sequence));
	for (int i = 0; i < 8; i++)
		batch->sequence = batch->sequence << 8 | sequence[i];
	batch->size = frame_receive(socket, payload, sizeof(payload), true);
	if (batch->size == 0)
		return;
	batch->payload = malloc(batch->size);
	memcpy(batch->payload, payload, batch->size);
}

/* Routers */

static void *
router_connect(struct router *router, int type, const char *endpoint)
{
	void *socket = zmq_socket(router->zmq, type);
	const int linger = 0, limit = IT_LIMIT_MS, no_limit = 0;

	it_require(socket != NULL);
	zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_setsockopt(socket, ZMQ_RCVTIMEO, &limit, sizeof(limit));
	zmq_setsockopt(socket, ZMQ_RCVHWM, &no_limit, sizeof(no_limit));
	it_require(zmq_connect(socket, endpoint) == 0, "%s: %s", endpoint, zmq_strerror(zmq_errno()));
	return socket;
}

void
router_open(struct router *router, const struct events_process *events, const char *topic)
{
	memset(router, 0, sizeof(*router));
	router->medium = "CPU";
	router->blocks = calloc(ROUTER_MAX_BLOCKS, sizeof(*router->blocks));
	router->zmq = zmq_ctx_new();
	router->subscriber = router_connect(router, ZMQ_SUB, events->endpoint);
	zmq_setsockopt(router->subscriber, ZMQ_SUBSCRIBE, topic, strlen(topic));
	router->requester = router_connect(router, ZMQ_DEALER, events->replay_endpoint);
}

void
router_close(struct router *router)
{
	zmq_close(router->subscriber);
	zmq_close(router->requester);
	zmq_ctx_term(router->zmq);
	free(router->blocks);
}

bool
router_receive(struct router *router, struct router_batch *batch, int limit_ms)
{
	zmq_pollitem_t item = { .socket = router->subscriber, .events = ZMQ_POLLIN };

	if (zmq_poll(&item, 1, limit_ms) <= 0)
		return false;
	batch_receive(router->subscriber, batch);
	return true;
}

void
router_request(struct router *router, uint64_t from)
{
	uint8_t sequence[8];

	for (int i = 0; i < 8; i++)
		sequence[i] = (uint8_t)(from >> 8 * (7 - i));
	it_require(zmq_send(router->requester, "", 0, ZMQ_SNDMORE) == 0);
	it_require(zmq_send(router->requester, sequence, sizeof(sequence), 0) == sizeof(sequence));
}

bool
router_replayed(struct router *router, struct router_batch *batch)
{
	char empty[1];

	it_require(frame_receive(router->requester, empty, sizeof(empty), false) == 0);
	batch_receive(router->requester, batch);
	if (batch->payload != NULL)
		return true;
	it_require(batch->sequence == UINT64_MAX && batch->topic[0] == '\0');
	return false;
}

/* The value of a map's key, which must be there. */
static const msgpack_object *
map_get(const msgpack_object *map, const char *key)
{
	it_require(map->type == MSGPACK_OBJECT_MAP);
	for (uint32_t i = 0; i < map->via.map.size; i++) {
		const msgpack_object *name = &map->via.map.ptr[i].key;

		it_require(name->type == MSGPACK_OBJECT_STR);
		if (name->via.str.size == strlen(key) && memcmp(name->via.str.ptr, key, strlen(key)) == 0)
			return &map->via.map.ptr[i].val;
	}
	it_fail(__FILE__, __LINE__, "the event has a field", "%s", key);
}

static bool
text_is(const msgpack_object *object, const char *text)
{
	return object->type == MSGPACK_OBJECT_STR && object->via.str.size == strlen(text) &&
	       memcmp(object->via.str.ptr, text, strlen(text)) == 0;
}

static uint64_t
number_of(const msgpack_object *object)
{
	it_require(object->type == MSGPACK_OBJECT_POSITIVE_INTEGER);
	return object->via.u64;
}

static const msgpack_object_array *
array_of(const msgpack_object *object)
{
	it_require(object->type == MSGPACK_OBJECT_ARRAY);
	return &object->via.array;
}

/* In either form. */
static uint64_t
hash_of(const msgpack_object *object)
{
	struct block_hash hash = { .size = 32 };

	if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
		return object->via.u64;
	it_require(object->type == MSGPACK_OBJECT_BIN);
	it_require(object->via.bin.size == 32 || object->via.bin.size == 16);
	hash.size = (uint8_t)object->via.bin.size;
	memcpy(hash.bytes, object->via.bin.ptr, hash.size);
	return block_hash_integer(&hash);
}

static struct router_block *
router_find(struct router *router, uint64_t hash)
{
	for (size_t i = router->n_blocks; i-- > 0;)
		if (router->blocks[i].hash == hash)
			return &router->blocks[i];
	return NULL;
}

static void
router_store(struct router *router, const struct router_block *block)
{
	it_require(router_find(router, block->hash) == NULL, "block %llx is stored twice",
		   (unsigned long long)block->hash);
	it_require(block->parent == 0 || router_find(router, block->parent) != NULL, "block %llx has no parent",
		   (unsigned long long)block->hash);
	it_require(router->n_blocks < ROUTER_MAX_BLOCKS);
	router->blocks[router->n_blocks++] = *block;
}

static void
block_set_extra(struct router_block *block, const msgpack_object *keys)
{
	const msgpack_object *text;

	if (keys->type == MSGPACK_OBJECT_NIL)
		return;
	it_require(array_of(keys)->size == 1);
	text = &array_of(keys)->ptr[0];
	it_require(text->type == MSGPACK_OBJECT_STR && text->via.str.size == BLOCK_HASH_EXTRA_TEXT);
	memcpy(block->extra, text->via.str.ptr, BLOCK_HASH_EXTRA_TEXT);
}

static void
router_apply_stored(struct router *router, const msgpack_object *event)
{
	const msgpack_object_array *hashes = array_of(map_get(event, "block_hashes"));
	const msgpack_object_array *tokens = array_of(map_get(event, "token_ids"));
	const msgpack_object_array *extras = array_of(map_get(event, "extra_keys"));
	const msgpack_object *parent = map_get(event, "parent_block_hash");
	uint64_t above = parent->type != MSGPACK_OBJECT_NIL ? hash_of(parent) : 0;

	it_require(number_of(map_get(event, "block_size")) == CHAIN_PAGE_SIZE);
	it_require(hashes->size > 0 && extras->size == hashes->size);
	it_require(tokens->size == 0 || tokens->size == hashes->size * CHAIN_PAGE_SIZE);
	it_require(map_get(event, "lora_id")->type == MSGPACK_OBJECT_NIL &&
		   map_get(event, "lora_name")->type == MSGPACK_OBJECT_NIL);
	for (uint32_t i = 0; i < hashes->size; i++) {
		struct router_block block = { .hash = hash_of(&hashes->ptr[i]), .parent = above };

		block.n_tokens = tokens->size > 0 ? CHAIN_PAGE_SIZE : 0;
		for (uint32_t k = 0; k < block.n_tokens; k++)
			block.tokens[k] = (uint32_t)number_of(&tokens->ptr[i * CHAIN_PAGE_SIZE + k]);
		block_set_extra(&block, &extras->ptr[i]);
		router_store(router, &block);
		above = block.hash;
	}
}

static void
router_apply_removed(struct router *router, const msgpack_object *event)
{
	const msgpack_object_array *hashes = array_of(map_get(event, "block_hashes"));

	for (uint32_t i = 0; i < hashes->size; i++) {
		struct router_block *block = router_find(router, hash_of(&hashes->ptr[i]));

		it_require(block != NULL, "a block is removed that is not there");
		*block = router->blocks[--router->n_blocks];
	}
}

/* The fields of vLLM 0.33, in its order; those of its end that have its defaults are omitted. */
static void
event_check_fields(const msgpack_object *event, const char *const *names)
{
	uint32_t n = 0;

	for (; names[n] != NULL; n++)
		it_require(n < event->via.map.size && text_is(&event->via.map.ptr[n].key, names[n]),
			   "field %u is not %s", n, names[n]);
	it_require(n == event->via.map.size, "an event has %u fields", event->via.map.size);
}

static void
router_apply_event(struct router *router, const msgpack_object *event)
{
	static const char *const stored[] = { "type",      "block_hashes",       "parent_block_hash",
					      "token_ids", "block_size",         "lora_id",
					      "medium",    "lora_name",          "extra_keys",
					      "group_idx", "kv_cache_spec_kind", "locality",
					      NULL };
	static const char *const removed[] = { "type", "block_hashes", "medium", "group_idx", "locality", NULL };
	const msgpack_object *type = map_get(event, "type");

	if (text_is(type, "AllBlocksCleared")) {
		router->n_blocks = 0;
		router->n_cleared++;
		return;
	}
	it_require(text_is(map_get(event, "medium"), router->medium) && number_of(map_get(event, "group_idx")) == 0);
	it_require(text_is(map_get(event, "locality"), "LOCAL"));
	if (text_is(type, "BlockStored")) {
		event_check_fields(event, stored);
		it_require(text_is(map_get(event, "kv_cache_spec_kind"), "full_attention"));
		router_apply_stored(router, event);
		return;
	}
	it_require(text_is(type, "BlockRemoved"));
	event_check_fields(event, removed);
	router_apply_removed(router, event);
}

void
router_apply(struct router *router, const struct router_batch *batch)
{
	const msgpack_object_array *fields;
	msgpack_unpacked unpacked;
	size_t at = 0;

	it_require(batch->sequence == router->next, "batch %llu, %llu expected", (unsigned long long)batch->sequence,
		   (unsigned long long)router->next);
	router->next++;
	router->n_batches++;
	msgpack_unpacked_init(&unpacked);
	it_require(msgpack_unpack_next(&unpacked, (const char *)batch->payload, batch->size, &at) ==
			   MSGPACK_UNPACK_SUCCESS &&
		   at == batch->size);
	fields = array_of(&unpacked.data);
	it_require(fields->size == 3 && fields->ptr[0].type == MSGPACK_OBJECT_FLOAT64);
	it_require(number_of(&fields->ptr[2]) == 0);
	it_require(array_of(&fields->ptr[1])->size > 0);
	for (uint32_t i = 0; i < array_of(&fields->ptr[1])->size; i++)
		router_apply_event(router, &array_of(&fields->ptr[1])->ptr[i]);
	msgpack_unpacked_destroy(&unpacked);
}

/* Gets the batches that were missed. */
static void
router_catch_up(struct router *router)
{
	struct router_batch batch;

	router->n_replays++;
	router_request(router, router->next);
	while (router_replayed(router, &batch)) {
		router_apply(router, &batch);
		router_batch_free(&batch);
	}
}

static bool
router_has(struct router *router, const struct router_block *blocks, size_t n)
{
	if (router->n_blocks != n)
		return false;
	for (size_t i = 0; i < n; i++) {
		const struct router_block *found = router_find(router, blocks[i].hash);

		if (found == NULL || memcmp(found, &blocks[i], sizeof(*found)) != 0)
			return false;
	}
	return true;
}

void
router_follow(struct router *router, const struct router_block *blocks, size_t n)
{
	uint64_t deadline_ms = it_now_ms() + IT_LIMIT_MS;
	struct router_batch batch;

	do {
		if (!router_receive(router, &batch, 200)) {
			router_catch_up(router);
			continue;
		}
		if (batch.sequence > router->next)
			router_catch_up(router);
		/* A replay may have brought it. */
		if (batch.sequence == router->next)
			router_apply(router, &batch);
		router_batch_free(&batch);
	} while (!router_has(router, blocks, n) && it_now_ms() < deadline_ms);
	it_require(router_has(router, blocks, n), "the table has %zu blocks, %zu are expected", router->n_blocks, n);
}

size_t
router_expect_chain(struct router_block *blocks, size_t n, const struct block_hasher *hasher, uint32_t chain,
		    uint32_t n_pages, const uint8_t *extra)
{
	struct block_hash hash, parent;

	for (uint32_t page = 0; page < n_pages; page++) {
		struct router_block *block = &blocks[n++];

		memset(block, 0, sizeof(*block));
		block->n_tokens = CHAIN_PAGE_SIZE;
		for (uint32_t i = 0; i < CHAIN_PAGE_SIZE; i++)
			block->tokens[i] = chain_token(chain, page * CHAIN_PAGE_SIZE + i);
		block_hash_next(hasher, page > 0 ? &parent : NULL, block->tokens, CHAIN_PAGE_SIZE,
				page == 0 ? extra : NULL, &hash);
		if (page == 0 && extra != NULL)
			block_hash_extra_text(extra, block->extra);
		block->parent = page > 0 ? block_hash_integer(&parent) : 0;
		block->hash = block_hash_integer(&hash);
		parent = hash;
	}
	return n;
}
