/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/batch_log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "events/zmtp.h"

struct batch_log {
	char *topic;
	struct batch *end; /* of a replay */
	uint32_t n_max;
	size_t size_max;

	pthread_mutex_t mutex;
	/* Batches [next - n, next); number s is at index s % n_allocated. */
	struct batch **batches;
	uint64_t next;
	uint32_t n, n_allocated;
	size_t size; /* bytes */
};

static void
sequence_store(uint8_t bytes[BATCH_SEQUENCE_SIZE], uint64_t sequence)
{
	for (int i = 0; i < BATCH_SEQUENCE_SIZE; i++)
		bytes[i] = (uint8_t)(sequence >> 8 * (BATCH_SEQUENCE_SIZE - 1 - i));
}

uint64_t
sequence_load(const uint8_t bytes[BATCH_SEQUENCE_SIZE])
{
	uint64_t sequence = 0;

	for (int i = 0; i < BATCH_SEQUENCE_SIZE; i++)
		sequence = sequence << 8 | bytes[i];
	return sequence;
}

static struct batch *
batch_encode(const char *topic, uint64_t sequence, const void *payload, size_t payload_size)
{
	size_t topic_size = strlen(topic), size = zmtp_frame_size(0) + zmtp_frame_size(topic_size) +
						  zmtp_frame_size(BATCH_SEQUENCE_SIZE) + zmtp_frame_size(payload_size);
	struct batch *batch = malloc(sizeof(*batch) + size);
	uint8_t number[BATCH_SEQUENCE_SIZE], *at;

	if (batch == NULL)
		return NULL;
	batch->n_references = 1;
	batch->size = size;
	batch->sequence = sequence;
	sequence_store(number, sequence);
	at = zmtp_frame_write(batch->bytes, NULL, 0, true);
	at = zmtp_frame_write(at, topic, topic_size, true);
	at = zmtp_frame_write(at, number, sizeof(number), true);
	zmtp_frame_write(at, payload, payload_size, false);
	return batch;
}

void
batch_release(struct batch *batch)
{
	if (batch != NULL && atomic_fetch_sub(&batch->n_references, 1) == 1)
		free(batch);
}

static struct batch *
batch_reference(struct batch *batch)
{
	atomic_fetch_add(&batch->n_references, 1);
	return batch;
}

struct batch_log *
batch_log_create(const char *topic, uint32_t n_max, size_t size_max)
{
	struct batch_log *log = calloc(1, sizeof(*log));

	if (log == NULL)
		return NULL;
	log->topic = strdup(topic);
	log->end = batch_encode("", UINT64_MAX, NULL, 0);
	log->n_max = n_max;
	log->size_max = size_max;
	pthread_mutex_init(&log->mutex, NULL);
	if (log->topic != NULL && log->end != NULL)
		return log;
	batch_log_destroy(log);
	return NULL;
}

/* Forgets the oldest batch. */
static void
log_drop(struct batch_log *log)
{
	struct batch *batch = log->batches[(log->next - log->n) % log->n_allocated];

	log->n--;
	log->size -= batch->size;
	batch_release(batch);
}

void
batch_log_destroy(struct batch_log *log)
{
	if (log == NULL)
		return;
	while (log->n > 0)
		log_drop(log);
	batch_release(log->end);
	pthread_mutex_destroy(&log->mutex);
	free(log->batches);
	free(log->topic);
	free(log);
}

/* Makes room for one more batch. */
static bool
log_grow(struct batch_log *log)
{
	uint32_t n_allocated = log->n_allocated > 0 ? 2 * log->n_allocated : 64;
	struct batch **batches;

	if (log->n < log->n_allocated)
		return true;
	batches = calloc(n_allocated, sizeof(struct batch *));
	if (batches == NULL)
		return false;
	for (uint64_t sequence = log->next - log->n; sequence < log->next; sequence++)
		batches[sequence % n_allocated] = log->batches[sequence % log->n_allocated];
	free(log->batches);
	log->batches = batches;
	log->n_allocated = n_allocated;
	return true;
}

bool
batch_log_append(struct batch_log *log, const void *payload, size_t size)
{
	struct batch *batch;

	/* One thread appends, so that `next` changes here alone. */
	batch = batch_encode(log->topic, log->next, payload, size);
	if (batch == NULL)
		return false;
	pthread_mutex_lock(&log->mutex);
	while (log->n > 0 && (log->n >= log->n_max || log->size + batch->size > log->size_max))
		log_drop(log);
	if (!log_grow(log)) {
		pthread_mutex_unlock(&log->mutex);
		batch_release(batch);
		return false;
	}
	log->batches[log->next++ % log->n_allocated] = batch;
	log->n++;
	log->size += batch->size;
	pthread_mutex_unlock(&log->mutex);
	return true;
}

uint64_t
batch_log_first(struct batch_log *log)
{
	uint64_t first;

	pthread_mutex_lock(&log->mutex);
	first = log->next - log->n;
	pthread_mutex_unlock(&log->mutex);
	return first;
}

uint64_t
batch_log_next(struct batch_log *log)
{
	uint64_t next;

	pthread_mutex_lock(&log->mutex);
	next = log->next;
	pthread_mutex_unlock(&log->mutex);
	return next;
}

struct batch *
batch_log_take(struct batch_log *log, uint64_t *sequence_p)
{
	struct batch *batch = NULL;

	pthread_mutex_lock(&log->mutex);
	if (*sequence_p < log->next - log->n)
		*sequence_p = log->next - log->n;
	if (*sequence_p < log->next)
		batch = batch_reference(log->batches[(*sequence_p)++ % log->n_allocated]);
	pthread_mutex_unlock(&log->mutex);
	return batch;
}

void
batch_log_trim(struct batch_log *log, uint64_t sequence)
{
	pthread_mutex_lock(&log->mutex);
	while (log->n > 0 && log->next - log->n < sequence)
		log_drop(log);
	pthread_mutex_unlock(&log->mutex);
}

struct batch *
batch_log_end(struct batch_log *log)
{
	return batch_reference(log->end);
}
