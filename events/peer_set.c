/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/peer_set.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "events/log.h"

enum {
	/* Connections that are accepted before it is the peers' turn. */
	ACCEPTED_PER_TURN = 16,
	/* A line about refused or closed connections is written as often as this. */
	REFUSED_LOG_MS = 60000,
};

bool
peer_set_open(struct peer_set *set, const char *endpoint, bool bound)
{
	const char *problem, *what = set->service.kind == PEER_SUBSCRIBERS ? "events" : "replay";
	char text[512];

	set->listener = (struct transport_listener){ .fd = -1, .lock = -1 };
	if (!bound)
		set->n_max = 1;
	problem = bound ? transport_listen(endpoint, &set->listener) : transport_check(endpoint);
	if (problem != NULL) {
		events_log(EVENTS_LOG_ERROR, "kv", "pool %s: %s: %s", set->name, endpoint, problem);
		return false;
	}
	set->peers = calloc(set->n_max, sizeof(struct peer *));
	set->entries = calloc(set->n_max, sizeof(*set->entries));
	set->connector = bound ? NULL : connector_create(endpoint, set->name);
	if (set->peers == NULL || set->entries == NULL || (!bound && set->connector == NULL)) {
		events_log(EVENTS_LOG_ERROR, "kv", "pool %s: no memory for %u connections", set->name, set->n_max);
		return false;
	}
	if (bound)
		transport_text(&set->listener, text, sizeof(text));
	events_log(EVENTS_LOG_INFO, "kv", "pool %s: %s %s %s", set->name, what, bound ? "at" : "to",
		   bound ? text : endpoint);
	return true;
}

void
peer_set_close(struct peer_set *set)
{
	while (set->n > 0)
		peer_destroy(set->peers[--set->n]);
	transport_close(&set->listener);
	connector_destroy(set->connector);
	free(set->peers);
	free(set->entries);
}

size_t
peer_set_fill(const struct peer_set *set, struct pollfd *polled)
{
	uint64_t next = batch_log_next(set->service.log);

	/* poll() ignores a negative descriptor. */
	polled[0] = (struct pollfd){ .fd = set->full ? -1 : set->listener.fd, .events = POLLIN };
	for (uint32_t i = 0; i < set->n; i++) {
		const struct peer *peer = set->peers[i];
		int events = (peer_wants_input(peer) ? POLLIN : 0) | (peer_has_output(peer, next) ? POLLOUT : 0);

		polled[1 + i] = (struct pollfd){ .fd = peer->fd, .events = (short)events };
	}
	return 1 + set->n;
}

static void
set_remove(struct peer_set *set, uint32_t i)
{
	peer_destroy(set->peers[i]);
	set->peers[i] = set->peers[--set->n];
}

/* Makes room for a peer of an origin.  Returns false if there is none. */
static bool
set_make_room(struct peer_set *set, const struct origin *origin)
{
	size_t victim;

	if (set->n < set->n_max)
		return true;
	for (uint32_t i = 0; i < set->n; i++)
		set->entries[i] = set->peers[i]->entry;
	victim = admission_victim(set->entries, set->n, origin);
	set->n_refused++;
	if (victim == set->n)
		return false;
	set_remove(set, (uint32_t)victim);
	return true;
}

static void
set_add(struct peer_set *set, int fd, uint64_t now_ms)
{
	struct origin origin = origin_of(fd);
	struct peer *peer;

	if (!set_make_room(set, &origin)) {
		close(fd);
		return;
	}
	peer = peer_create(fd, now_ms);
	if (peer == NULL) {
		close(fd);
		return;
	}
	peer->entry.used = ++set->n_accepted;
	set->peers[set->n++] = peer;
}

static void
set_accept(struct peer_set *set, uint64_t now_ms)
{
	for (int i = 0; i < ACCEPTED_PER_TURN; i++) {
		int fd = transport_accept(&set->listener);

		if (fd >= 0) {
			set_add(set, fd, now_ms);
			continue;
		}
		if (errno == EAGAIN)
			return;
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			events_log(EVENTS_LOG_WARNING, "kv", "pool %s: a connection is not accepted: %m", set->name);
			set->full = true;
			return;
		}
	}
}

/* Returns false if the connection is to be closed. */
static bool
set_serve_peer(struct peer_set *set, struct peer *peer, short events)
{
	/* The end of a peer that nothing is read from now. */
	if ((events & (POLLERR | POLLHUP | POLLNVAL)) != 0 && !peer_wants_input(peer))
		return false;
	if ((events & ~POLLOUT) != 0 && !peer_read(peer, &set->service))
		return false;
	/* What peer_read() has made of the input is sent in the next turn. */
	return (events & POLLOUT) == 0 || peer_write(peer, &set->service);
}

void
peer_set_serve(struct peer_set *set, const struct pollfd *polled, uint64_t now_ms)
{
	/* From the last one on, so that removals move only peers that had their turn. */
	for (uint32_t i = set->n; i-- > 0;)
		if (!set_serve_peer(set, set->peers[i], polled[1 + i].revents))
			set_remove(set, i);
	if (polled[0].revents != 0)
		set_accept(set, now_ms);
}

static void
set_log_stalled(struct peer_set *set, uint64_t now_ms)
{
	if (set->n_stalled == 0 || (set->stalled_logged_ms != 0 && now_ms - set->stalled_logged_ms < REFUSED_LOG_MS))
		return;
	events_log(EVENTS_LOG_WARNING, "kv",
		   "pool %s: %s: %" PRIu64 " connections were closed, whose peers did not read, to free memory",
		   set->name, set->service.kind == PEER_SUBSCRIBERS ? "events" : "replay", set->n_stalled);
	set->n_stalled = 0;
	set->stalled_logged_ms = now_ms;
}

void
peer_set_renew(struct peer_set *set, uint64_t now_ms)
{
	for (uint32_t i = set->n; i-- > 0;)
		if (!peer_renew(set->peers[i], now_ms))
			set_remove(set, i);
	if (set->connector != NULL && set->n == 0) {
		int fd = connector_step(set->connector, now_ms);

		if (fd >= 0)
			set_add(set, fd, now_ms);
	}
	set->full = false;
	set_log_stalled(set, now_ms);
	if (set->n_refused > 0 && (set->logged_ms == 0 || now_ms - set->logged_ms >= REFUSED_LOG_MS)) {
		events_log(EVENTS_LOG_WARNING, "kv",
			   "pool %s: %s: %u connections are open, which is the limit: %" PRIu64
			   " were refused or displaced another",
			   set->name, set->service.kind == PEER_SUBSCRIBERS ? "events" : "replay", set->n_max,
			   set->n_refused);
		set->n_refused = 0;
		set->logged_ms = now_ms;
	}
}

uint64_t
peer_set_needs(const struct peer_set *set)
{
	uint64_t next = batch_log_next(set->service.log), first = UINT64_MAX;

	for (uint32_t i = 0; i < set->n; i++)
		if (set->peers[i]->subscribed)
			first = MIN(first, set->peers[i]->next);
	return next > set->service.hwm ? MAX(first, next - set->service.hwm) : first;
}

bool
peer_set_has_output(const struct peer_set *set)
{
	uint64_t next = batch_log_next(set->service.log);

	for (uint32_t i = 0; i < set->n; i++)
		if (peer_has_output(set->peers[i], next))
			return true;
	return false;
}

void
peer_set_hold(struct peer_set *set, uint64_t first, struct peer_set_held *held)
{
	for (uint32_t i = 0; i < set->n; i++) {
		const struct peer *peer = set->peers[i];

		if (peer->batch == NULL || peer->batch->sequence >= first)
			continue;
		/* All references are peers'. */
		held->size += peer->batch->size / peer->batch->n_references;
		if (held->set == NULL || peer->batch_since < held->set->peers[held->peer]->batch_since) {
			held->set = set;
			held->peer = i;
		}
	}
}

void
peer_set_close_holder(const struct peer_set_held *held)
{
	held->set->n_stalled++;
	set_remove(held->set, held->peer);
}
