/* SPDX-License-Identifier: Apache-2.0 */
/* paged_batch_publish(): messages that wait for events on the batch's stream. */
#include "config.h"

#include <sys/param.h>

#include "client/api/batch/batch.h"
#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/seq/publish.h"
#include "client/api/seq/publishing.h"

/* Skips pages that are in the queue already. */
static void
publish_queue_skip(const struct publish_queue *queue, struct publish_range *range)
{
	const struct publish_queued *queued = &queue->queued[PAGED_SEQ_SLOT(range->seq)];

	/*
	 * What has left the queue was sent, or was dropped.  If the sequence's slot does not say that it is published,
	 * it is queued again, so that no page is left out for ever; the owner passes over pages that it has.
	 */
	if (queued->number - queue->first_number < queue->n && queued->version == range->version &&
	    queued->end > range->from)
		range->from = MIN(queued->end, range->end);
}

static void
publish_queue_note(struct publish_queue *queue, const struct publish_range *range)
{
	queue->queued[PAGED_SEQ_SLOT(range->seq)] = (struct publish_queued){ .version = range->version,
									     .end = range->from,
									     .number = queue->first_number + queue->n };
}

/* The message at the end of the queue, which is being filled; NULL: the queue is full. */
static struct publish_message *
publish_queue_last(struct publish_queue *queue)
{
	return queue->n < PUBLISH_QUEUE ? &queue->messages[(queue->first + queue->n) % PUBLISH_QUEUE] : NULL;
}

/* Records the event of the message that was filled, and starts another one; *message_p is NULL if the queue is full. */
static enum paged_status
publish_queue_push(struct paged_batch *batch, struct publish_message **message_p, struct paged_error *error)
{
	struct publish_queue *queue = &batch->publish_queue;
	enum paged_status status = PAGED_OK;

	if ((*message_p)->n > 0) {
		status =
			batch->pool->compute_ops->event_record(batch, (queue->first + queue->n) % PUBLISH_QUEUE, error);
		if (status == PAGED_OK) {
			publishing_queue(batch->pool, *message_p);
			queue->n++;
		}
	}
	*message_p = publish_queue_last(queue);
	if (*message_p != NULL)
		publish_message_clear(*message_p);
	return status;
}

static enum paged_status
publish_queue_add(struct paged_batch *batch, size_t n, const struct paged_publish *publishes, struct paged_error *error)
{
	struct publish_queue *queue = &batch->publish_queue;
	struct publish_message *message = publish_queue_last(queue);
	enum paged_status status = PAGED_OK;
	struct prefix_source source;
	struct publish_range range;

	if (message != NULL)
		publish_message_clear(message);
	for (size_t i = 0; i < n && status == PAGED_OK; i++) {
		bool all = false;

		/* It was checked, so it fails only if the sequence is changed just now: a later call publishes it. */
		if (publish_range_init(batch->pool, i, &publishes[i], &source, &range, error) != PAGED_OK)
			continue;
		publish_queue_skip(queue, &range);
		if (range.from == range.end)
			continue;
		while (status == PAGED_OK && message != NULL && !all) {
			all = publish_message_add(message, &source, &range);
			if (!all)
				status = publish_queue_push(batch, &message, error);
		}
		publish_queue_note(queue, &range);
	}
	return status == PAGED_OK && message != NULL ? publish_queue_push(batch, &message, error) : status;
}

/*
 * Takes back what a call that fails has put behind the first n_before messages.  Nothing of its sequences counts as
 * queued then: what is in the queue twice, the owner passes over.
 */
static void
publish_queue_take_back(struct paged_batch *batch, uint32_t n_before, size_t n, const struct paged_publish *publishes)
{
	struct publish_queue *queue = &batch->publish_queue;

	while (queue->n > n_before) {
		const struct publish_message *message = &queue->messages[(queue->first + --queue->n) % PUBLISH_QUEUE];

		publishing_unqueue(batch->pool, message->n, message->specs);
	}
	for (size_t i = 0; i < n; i++)
		queue->queued[PAGED_SEQ_SLOT(publishes[i].seq)].end = 0;
}

/* Puts all into the queue, or nothing: replays of graphs must not write what is published. */
static enum paged_status
publish_queue_put(struct paged_batch *batch, size_t n, const struct paged_publish *publishes, struct paged_error *error)
{
	uint32_t n_before = batch->publish_queue.n;
	enum paged_status status = publish_queue_add(batch, n, publishes, error);

	if (status == PAGED_OK)
		status = batch_protect_graphs(batch, error);
	if (status != PAGED_OK)
		publish_queue_take_back(batch, n_before, n, publishes);
	return status;
}

/* Sends the oldest message; false: it has to wait. */
static bool
publish_queue_send(struct paged_batch *batch, struct publish_message *message)
{
	struct paged_client *client = batch->pool->client;
	enum paged_status status;
	struct paged_error error;

	publish_message_drop_stale(batch->pool, message);
	if (pthread_mutex_trylock(&client->mutex) != 0)
		return false;
	status = publish_message_send(client, message, &error);
	client_unlock(client);
	if (status != PAGED_OK && status != PAGED_ERR_AGAIN && status != PAGED_ERR_TIMEOUT)
		owner_log(client->owner, PAGED_LOG_WARNING, "publishing: %s", error.text);
	return status != PAGED_ERR_AGAIN && status != PAGED_ERR_TIMEOUT;
}

static void
publish_queue_pop(struct paged_batch *batch)
{
	struct publish_queue *queue = &batch->publish_queue;
	const struct publish_message *message = &queue->messages[queue->first];

	publishing_unqueue(batch->pool, message->n, message->specs);
	queue->first = (queue->first + 1) % PUBLISH_QUEUE;
	queue->first_number++;
	queue->n--;
}

void
batch_publish_dispatch(struct paged_batch *batch)
{
	struct publish_queue *queue = &batch->publish_queue;

	while (queue->n > 0 && batch->pool->compute_ops->event_reached(batch, queue->first) &&
	       publish_queue_send(batch, &queue->messages[queue->first]))
		publish_queue_pop(batch);
}

void
batch_publish_drop(struct paged_batch *batch)
{
	while (batch->publish_queue.n > 0)
		publish_queue_pop(batch);
}

enum paged_status
paged_batch_publish(struct paged_batch *batch, size_t n, const struct paged_publish *publishes)
{
	enum paged_status status = publish_enter(batch != NULL ? batch->pool : NULL, n, publishes);
	struct paged_error error;
	bool any;

	if (status != PAGED_OK)
		return status;
	if (!batch->pool->compute_ops->on_device) {
		status = publish_now(batch->pool, n, publishes, &error);
		return client_leave(batch->pool->client, status, &error);
	}
	status = batch->pool->compute_ops->refuse_capture(batch, ": publish after each replay", &error);
	if (status == PAGED_OK)
		status = publish_check_all(batch->pool, n, publishes, &any, &error);
	if (status == PAGED_OK) {
		batch_publish_dispatch(batch);
		status = publish_queue_put(batch, n, publishes, &error);
	}
	return client_leave(batch->pool->client, status, &error);
}
