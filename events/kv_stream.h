/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_stream.h - the KV events of one pool, during one life of the daemon
 *
 * A stream is a thread that watches a pool's index (paged_watch.h) and
 * publishes what changes.  It begins with AllBlocksCleared and a BlockStored for each
 * block that can be found, and begins again like this when changes were lost.
 *
 * Only what is true is published.  A node that is gone before its block key was
 * read is not announced, and neither are the nodes below it, which no search finds.
 */
#ifndef PAGED_EVENTS_KV_STREAM_H
#define PAGED_EVENTS_KV_STREAM_H

#include <pagedclient.h>
#include <stdbool.h>

#include "events/block_hash.h"
#include "events/publisher.h"

struct kv_stream_options {
	const struct block_hasher *hasher;
	bool integers; /* hashes are published as integers */
	uint32_t data_parallel_rank;
};

struct kv_stream;

/**
 * kv_stream_start - start the thread; it owns the publisher until kv_stream_stop()
 *
 * @param[in] pool  the stream closes it
 * @return NULL: the reason was logged, and the pool was closed
 */
struct kv_stream *kv_stream_start(struct paged_client *client, struct paged_pool *pool, struct publisher *publisher,
				  const struct kv_stream_options *options);

/**
 * kv_stream_stop - end the thread, and free the stream
 *
 * @param[in] daemon_ended  what the pool held is gone: publish AllBlocksCleared
 * @return false: the stream had failed
 */
bool kv_stream_stop(struct kv_stream *stream, bool daemon_ended);

#endif
