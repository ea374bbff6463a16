/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/encode.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

/* Blocks of one event. */
#define GROUP_MAX 256u

/* Blocks that become one event. */
struct event_group {
	enum { GROUP_NONE, GROUP_STORED, GROUP_REMOVED } kind;
	uint32_t n;
	struct block_hash hash[GROUP_MAX];
	/* Only of stored blocks: */
	bool has_parent, has_tokens;
	struct block_hash parent; /* of the first */
	bool has_extra[GROUP_MAX];
	uint8_t extra[GROUP_MAX][PAGED_DIGEST_SIZE];
	uint32_t *tokens; /* [GROUP_MAX][block_size] */
};

struct event_batch {
	struct event_format format;
	struct event_group group;
	msgpack_sbuffer events, payload;
	msgpack_packer to_events;
	uint32_t n_events;
	bool no_memory;
};

/* msgpack's callback of a buffer, which remembers that memory ran out: the packer's results need no check then. */
static int
batch_write_events(void *data, const char *bytes, size_t n)
{
	struct event_batch *batch = data;

	if (msgpack_sbuffer_write(&batch->events, bytes, n) != 0)
		batch->no_memory = true;
	return 0;
}

static int
batch_write_payload(void *data, const char *bytes, size_t n)
{
	struct event_batch *batch = data;

	if (msgpack_sbuffer_write(&batch->payload, bytes, n) != 0)
		batch->no_memory = true;
	return 0;
}

struct event_batch *
event_batch_create(const struct event_format *format)
{
	struct event_batch *batch = calloc(1, sizeof(*batch));

	if (batch == NULL)
		return NULL;
	batch->format = *format;
	batch->group.tokens = calloc(GROUP_MAX, format->block_size * sizeof(*batch->group.tokens));
	if (batch->group.tokens == NULL) {
		free(batch);
		return NULL;
	}
	msgpack_sbuffer_init(&batch->events);
	msgpack_sbuffer_init(&batch->payload);
	msgpack_packer_init(&batch->to_events, batch, batch_write_events);
	return batch;
}

void
event_batch_destroy(struct event_batch *batch)
{
	if (batch == NULL)
		return;
	msgpack_sbuffer_destroy(&batch->events);
	msgpack_sbuffer_destroy(&batch->payload);
	free(batch->group.tokens);
	free(batch);
}

static void
pack_text(msgpack_packer *to, const char *text)
{
	msgpack_pack_str(to, strlen(text));
	msgpack_pack_str_body(to, text, strlen(text));
}

static void
pack_text_or_nil(msgpack_packer *to, const char *text)
{
	if (text != NULL)
		pack_text(to, text);
	else
		msgpack_pack_nil(to);
}

/* Begins an event: a map of its class name and n_fields. */
static void
pack_event(struct event_batch *batch, const char *type, size_t n_fields)
{
	msgpack_pack_map(&batch->to_events, n_fields + 1);
	pack_text(&batch->to_events, "type");
	pack_text(&batch->to_events, type);
	batch->n_events++;
}

static void
pack_hash(struct event_batch *batch, const struct block_hash *hash)
{
	if (batch->format.integers) {
		msgpack_pack_uint64(&batch->to_events, block_hash_integer(hash));
		return;
	}
	msgpack_pack_bin(&batch->to_events, hash->size);
	msgpack_pack_bin_body(&batch->to_events, hash->bytes, hash->size);
}

static void
pack_hashes(struct event_batch *batch)
{
	const struct event_group *group = &batch->group;

	pack_text(&batch->to_events, "block_hashes");
	msgpack_pack_array(&batch->to_events, group->n);
	for (uint32_t i = 0; i < group->n; i++)
		pack_hash(batch, &group->hash[i]);
}

static void
pack_tokens(struct event_batch *batch)
{
	const struct event_group *group = &batch->group;
	uint32_t n = group->has_tokens ? group->n * batch->format.block_size : 0;

	pack_text(&batch->to_events, "token_ids");
	msgpack_pack_array(&batch->to_events, n);
	for (uint32_t i = 0; i < n; i++)
		msgpack_pack_uint32(&batch->to_events, group->tokens[i]);
}

/* For each block nil, or a tuple of its keys. */
static void
pack_extra_keys(struct event_batch *batch)
{
	const struct event_group *group = &batch->group;
	char text[BLOCK_HASH_EXTRA_TEXT];

	pack_text(&batch->to_events, "extra_keys");
	msgpack_pack_array(&batch->to_events, group->n);
	for (uint32_t i = 0; i < group->n; i++) {
		if (!group->has_extra[i]) {
			msgpack_pack_nil(&batch->to_events);
			continue;
		}
		block_hash_extra_text(group->extra[i], text);
		msgpack_pack_array(&batch->to_events, 1);
		msgpack_pack_str(&batch->to_events, sizeof(text));
		msgpack_pack_str_body(&batch->to_events, text, sizeof(text));
	}
}

static void
pack_field(struct event_batch *batch, const char *name, const char *text)
{
	pack_text(&batch->to_events, name);
	pack_text_or_nil(&batch->to_events, text);
}

static void
pack_group(struct event_batch *batch)
{
	pack_text(&batch->to_events, "group_idx");
	msgpack_pack_uint32(&batch->to_events, 0);
}

/* Fields in vLLM's order; those at the end that have vLLM's default are omitted, as vLLM omits them. */
static void
pack_stored(struct event_batch *batch)
{
	const struct event_group *group = &batch->group;

	pack_event(batch, "BlockStored", 11);
	pack_hashes(batch);
	pack_text(&batch->to_events, "parent_block_hash");
	if (group->has_parent)
		pack_hash(batch, &group->parent);
	else
		msgpack_pack_nil(&batch->to_events);
	pack_tokens(batch);
	pack_text(&batch->to_events, "block_size");
	msgpack_pack_uint32(&batch->to_events, batch->format.block_size);
	pack_field(batch, "lora_id", NULL);
	pack_field(batch, "medium", batch->format.medium);
	pack_field(batch, "lora_name", NULL);
	pack_extra_keys(batch);
	pack_group(batch);
	pack_field(batch, "kv_cache_spec_kind", batch->format.spec_kind);
	pack_field(batch, "locality", "LOCAL");
}

static void
pack_removed(struct event_batch *batch)
{
	pack_event(batch, "BlockRemoved", 4);
	pack_hashes(batch);
	pack_field(batch, "medium", batch->format.medium);
	pack_group(batch);
	pack_field(batch, "locality", "LOCAL");
}

static void
batch_flush_group(struct event_batch *batch)
{
	if (batch->group.kind == GROUP_STORED)
		pack_stored(batch);
	else if (batch->group.kind == GROUP_REMOVED)
		pack_removed(batch);
	batch->group.kind = GROUP_NONE;
	batch->group.n = 0;
}

/* Does a stored block follow the last one of the group? */
static bool
group_is_followed_by(const struct event_group *group, const struct block_hash *parent, bool has_tokens)
{
	return group->kind == GROUP_STORED && group->n < GROUP_MAX && group->has_tokens == has_tokens &&
	       parent != NULL && block_hash_equal(&group->hash[group->n - 1], parent);
}

void
event_batch_stored(struct event_batch *batch, const struct block_hash *parent, const struct block_hash *hash,
		   const uint32_t *tokens, const uint8_t *extra)
{
	struct event_group *group = &batch->group;
	uint32_t block_size = batch->format.block_size;

	if (!group_is_followed_by(group, parent, tokens != NULL)) {
		batch_flush_group(batch);
		group->kind = GROUP_STORED;
		group->has_parent = parent != NULL;
		group->has_tokens = tokens != NULL;
		if (parent != NULL)
			group->parent = *parent;
	}
	group->hash[group->n] = *hash;
	group->has_extra[group->n] = extra != NULL;
	if (extra != NULL)
		memcpy(group->extra[group->n], extra, PAGED_DIGEST_SIZE);
	if (tokens != NULL)
		memcpy(group->tokens + (size_t)group->n * block_size, tokens, block_size * sizeof(*tokens));
	group->n++;
}

void
event_batch_removed(struct event_batch *batch, const struct block_hash *hash)
{
	struct event_group *group = &batch->group;

	if (group->kind != GROUP_REMOVED || group->n == GROUP_MAX) {
		batch_flush_group(batch);
		group->kind = GROUP_REMOVED;
	}
	group->hash[group->n++] = *hash;
}

void
event_batch_cleared(struct event_batch *batch)
{
	batch_flush_group(batch);
	pack_event(batch, "AllBlocksCleared", 0);
}

bool
event_batch_is_empty(const struct event_batch *batch)
{
	return batch->n_events == 0 && batch->group.kind == GROUP_NONE;
}

bool
event_batch_finish(struct event_batch *batch, double time_s, const void **payload_p, size_t *size_p)
{
	msgpack_packer to;
	bool ok;

	batch_flush_group(batch);
	msgpack_sbuffer_clear(&batch->payload);
	msgpack_packer_init(&to, batch, batch_write_payload);
	msgpack_pack_array(&to, 3);
	msgpack_pack_double(&to, time_s);
	msgpack_pack_array(&to, batch->n_events);
	batch_write_payload(batch, batch->events.data, batch->events.size);
	msgpack_pack_uint32(&to, batch->format.data_parallel_rank);
	ok = !batch->no_memory;
	msgpack_sbuffer_clear(&batch->events);
	batch->n_events = 0;
	batch->no_memory = false;
	*payload_p = batch->payload.data;
	*size_p = batch->payload.size;
	return ok;
}
