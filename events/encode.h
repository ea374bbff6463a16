/* SPDX-License-Identifier: Apache-2.0 */
/**
 * encode.h - KV events in vLLM's format
 *
 * A batch is the msgpack of vLLM's KVEventBatch (vllm/distributed/kv_events.py),
 * as of vLLM 0.33: an array of the time, the events and the data-parallel rank.
 * Each event is a map with its class name as "type", so that decoders of earlier versions
 * pass over fields that they do not know.  Fields that stand for what a pool does not have are omitted, which means
 * nil: the window of a sliding window, the tier's and the session's name, and the token ids after a block that its hash
 * covers ("lookahead_token_ids").
 *
 * Stored blocks of which each follows the one before become one BlockStored,
 * and removed ones become one BlockRemoved, as far as the order of events allows.
 */
#ifndef PAGED_EVENTS_ENCODE_H
#define PAGED_EVENTS_ENCODE_H

#include "events/block_hash.h"

/** What the events of a pool have in common. */
struct event_format {
	bool integers;         /* hashes as integers of 64 bits, else as bytes */
	const char *medium;    /* "GPU", "CPU" */
	const char *spec_kind; /* vLLM's KVCacheSpecKind: "full_attention", "mla_attention" */
	uint32_t block_size;
	uint32_t data_parallel_rank;
};

struct event_batch;

/** event_batch_create - NULL: no memory */
struct event_batch *event_batch_create(const struct event_format *format);
void event_batch_destroy(struct event_batch *batch);

/**
 * event_batch_stored - a block can be found from now on
 *
 * @param[in] parent  the block before it; NULL: none
 * @param[in] tokens  [block_size]; NULL: unknown
 * @param[in] extra   [PAGED_DIGEST_SIZE]; NULL: no extra keys
 */
void event_batch_stored(struct event_batch *batch, const struct block_hash *parent, const struct block_hash *hash,
			const uint32_t *tokens, const uint8_t *extra);

/** event_batch_removed - a block cannot be found any more */
void event_batch_removed(struct event_batch *batch, const struct block_hash *hash);

/** event_batch_cleared - no block can be found any more */
void event_batch_cleared(struct event_batch *batch);

/** event_batch_is_empty - no event was added since the last event_batch_finish() */
bool event_batch_is_empty(const struct event_batch *batch);

/**
 * event_batch_finish - the batch as bytes; the next event begins another batch
 *
 * @param[in]  time_s     seconds since 1970
 * @param[out] payload_p  valid until the next event is added
 * @return false: no memory; the events are lost
 */
bool event_batch_finish(struct event_batch *batch, double time_s, const void **payload_p, size_t *size_p);

#endif
