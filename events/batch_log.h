/* SPDX-License-Identifier: Apache-2.0 */
/**
 * batch_log.h - the last batches of a publisher, in their wire format
 *
 * All queues of a publisher are positions in this one log: those of subscribers, and those of replays.  So what waits
 * for peers costs its memory once, and not more than the log may have.  A batch that the log has dropped stays as
 * long as it is being sent to a peer: the publisher limits these.
 *
 * A batch is the bytes of its frames: an empty one, topic, sequence number, payload.  A replay sends all of it, a
 * subscription all after the empty frame.
 *
 * Threads: one appends; any uses the other functions.
 */
#ifndef PAGED_EVENTS_BATCH_LOG_H
#define PAGED_EVENTS_BATCH_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Size of a sequence number on the wire, big-endian. */
#define BATCH_SEQUENCE_SIZE 8
/** Bytes of the empty frame that a batch begins with. */
#define BATCH_EMPTY_FRAME 2

struct batch {
	_Atomic uint32_t n_references;
	uint64_t sequence; /* UINT64_MAX: the end of a replay */
	size_t size;
	uint8_t bytes[];
};

struct batch_log;

/**
 * batch_log_create - a log that keeps at most n_max batches, and size_max bytes of them
 *
 * The newest batch is kept however large it is.
 *
 * @return NULL: no memory
 */
struct batch_log *batch_log_create(const char *topic, uint32_t n_max, size_t size_max);
void batch_log_destroy(struct batch_log *log);

/** batch_log_append - add a batch with the next sequence number; false: no memory */
bool batch_log_append(struct batch_log *log, const void *payload, size_t size);

/** batch_log_first - the sequence number of the oldest batch that is kept */
uint64_t batch_log_first(struct batch_log *log);

/** batch_log_next - the sequence number of the next batch */
uint64_t batch_log_next(struct batch_log *log);

/**
 * batch_log_take - the first batch from *sequence_p on that is kept
 *
 * @param[in,out] sequence_p  then the number after the batch, or of the next one
 * @return a reference, which the caller releases; NULL: there is none yet
 */
struct batch *batch_log_take(struct batch_log *log, uint64_t *sequence_p);
void batch_release(struct batch *batch);

/** batch_log_trim - forget the batches before a sequence number */
void batch_log_trim(struct batch_log *log, uint64_t sequence);

/** batch_log_end - the end of a replay: an empty topic and payload, and the number of 8 bytes 0xff */
struct batch *batch_log_end(struct batch_log *log);

/** sequence_load - a sequence number from the wire */
uint64_t sequence_load(const uint8_t bytes[BATCH_SEQUENCE_SIZE]);

#endif
