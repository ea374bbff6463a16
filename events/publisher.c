/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/publisher.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "events/batch_log.h"
#include "events/log.h"
#include "events/peer_set.h"

#define RENEW_MS 1000
#define HELD_PART 4

struct publisher {
	const char *name;
	char *topic;
	struct batch_log *log;
	uint32_t buffer_steps; /* 0: no replay */
	size_t held_max;       /* bytes of batches that the log has dropped and that are being sent */
	struct peer_set subscribers, replays;
	struct pollfd *polled;
	int wake; /* an eventfd: a batch was added, or the thread must end */
	_Atomic bool stops;
	uint32_t linger_ms;
	bool started;
	pthread_t thread;
};

static uint64_t
publisher_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Forgets batches that neither a subscriber nor a replay needs. */
static void
publisher_trim(struct publisher *publisher)
{
	uint64_t next = batch_log_next(publisher->log);
	uint64_t kept = next > publisher->buffer_steps ? next - publisher->buffer_steps : 0;

	batch_log_trim(publisher->log, MIN(kept, peer_set_needs(&publisher->subscribers)));
}

/* Peers that do not read keep the batches that are being sent to them: together not more than a part of the log. */
static void
publisher_limit_held(struct publisher *publisher)
{
	for (;;) {
		uint64_t first = batch_log_first(publisher->log);
		struct peer_set_held held = { 0 };

		peer_set_hold(&publisher->subscribers, first, &held);
		peer_set_hold(&publisher->replays, first, &held);
		if (held.set == NULL || held.size <= publisher->held_max)
			return;
		peer_set_close_holder(&held);
	}
}

/*
 * How long to wait for peers; -1: the thread ends.  What waits for subscribers when the program ends is sent first,
 * for a limited time: the last batch says that no block can be found any more.
 */
static int
publisher_wait_ms(struct publisher *publisher, uint64_t now_ms, uint64_t *end_ms)
{
	if (!publisher->stops)
		return RENEW_MS;
	if (*end_ms == 0)
		*end_ms = now_ms + publisher->linger_ms;
	if (now_ms >= *end_ms || !peer_set_has_output(&publisher->subscribers))
		return -1;
	return (int)MIN(*end_ms - now_ms, RENEW_MS);
}

static void *
publisher_run(void *argument)
{
	struct publisher *publisher = argument;
	struct pollfd *polled = publisher->polled;
	uint64_t renewed_ms = 0, end_ms = 0, now_ms = publisher_now_ms();
	int wait_ms;

	for (; (wait_ms = publisher_wait_ms(publisher, now_ms, &end_ms)) >= 0; now_ms = publisher_now_ms()) {
		size_t n_subscribers, n_replays;

		if (now_ms - renewed_ms >= RENEW_MS) {
			peer_set_renew(&publisher->subscribers, now_ms);
			peer_set_renew(&publisher->replays, now_ms);
			renewed_ms = now_ms;
		}
		polled[0] = (struct pollfd){ .fd = publisher->wake, .events = POLLIN };
		n_subscribers = peer_set_fill(&publisher->subscribers, polled + 1);
		n_replays = peer_set_fill(&publisher->replays, polled + 1 + n_subscribers);
		if (poll(polled, 1 + n_subscribers + n_replays, wait_ms) < 0)
			continue;
		if (polled[0].revents != 0)
			eventfd_read(publisher->wake, &(eventfd_t){ 0 });
		peer_set_serve(&publisher->subscribers, polled + 1, now_ms);
		peer_set_serve(&publisher->replays, polled + 1 + n_subscribers, now_ms);
		publisher_trim(publisher);
		publisher_limit_held(publisher);
	}
	return NULL;
}

/* Memory, and what a peer set must know. */
static bool
publisher_prepare(struct publisher *publisher, const struct publisher_options *options)
{
	uint32_t n_max = MAX(options->buffer_steps, options->hwm);

	publisher->topic = strdup(options->topic);
	publisher->log = batch_log_create(options->topic, n_max, options->buffer_size);
	publisher->polled = calloc(3 + 2 * (size_t)options->max_connections, sizeof(*publisher->polled));
	publisher->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (publisher->topic == NULL || publisher->log == NULL || publisher->polled == NULL || publisher->wake < 0)
		return false;
	publisher->linger_ms = options->linger_ms;
	publisher->held_max = options->buffer_size / HELD_PART;
	publisher->buffer_steps = options->replay_endpoint != NULL ? options->buffer_steps : 0;
	publisher->subscribers.service = (struct peer_service){ .kind = PEER_SUBSCRIBERS,
								.log = publisher->log,
								.topic = publisher->topic,
								.hwm = options->hwm,
								.buffer_steps = publisher->buffer_steps };
	publisher->replays.service = publisher->subscribers.service;
	publisher->replays.service.kind = PEER_REPLAYS;
	publisher->subscribers.name = publisher->replays.name = publisher->name;
	publisher->subscribers.n_max = publisher->replays.n_max = options->max_connections;
	return true;
}

struct publisher *
publisher_open(const char *name, const struct publisher_options *options)
{
	struct publisher *publisher = calloc(1, sizeof(*publisher));
	bool bound = options->bind || transport_is_bound(options->endpoint);

	if (publisher == NULL) {
		events_log(EVENTS_LOG_ERROR, "kv", "pool %s: no memory", name);
		return NULL;
	}
	publisher->name = name;
	publisher->wake = -1;
	publisher->subscribers.listener = publisher->replays.listener =
		(struct transport_listener){ .fd = -1, .lock = -1 };
	if (!publisher_prepare(publisher, options)) {
		events_log(EVENTS_LOG_ERROR, "kv", "pool %s: no memory, or no descriptor, for a publisher", name);
	} else if (peer_set_open(&publisher->subscribers, options->endpoint, bound) &&
		   (options->replay_endpoint == NULL ||
		    peer_set_open(&publisher->replays, options->replay_endpoint, true))) {
		publisher->started = pthread_create(&publisher->thread, NULL, publisher_run, publisher) == 0;
		if (publisher->started)
			return publisher;
		events_log(EVENTS_LOG_ERROR, "kv", "pool %s: no thread", name);
	}
	publisher_close(publisher);
	return NULL;
}

void
publisher_stop(struct publisher *publisher)
{
	publisher->stops = true;
	eventfd_write(publisher->wake, 1);
}

void
publisher_close(struct publisher *publisher)
{
	if (publisher == NULL)
		return;
	if (publisher->started) {
		publisher_stop(publisher);
		pthread_join(publisher->thread, NULL);
	}
	peer_set_close(&publisher->subscribers);
	peer_set_close(&publisher->replays);
	if (publisher->wake >= 0)
		close(publisher->wake);
	batch_log_destroy(publisher->log);
	free(publisher->polled);
	free(publisher->topic);
	free(publisher);
}

bool
publisher_send(struct publisher *publisher, const void *payload, size_t size)
{
	if (!batch_log_append(publisher->log, payload, size))
		return false;
	eventfd_write(publisher->wake, 1);
	return true;
}
