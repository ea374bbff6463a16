/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that the core divides into steps (core_set_step()).  The reply is packed when the request is accepted, and
 * sent after the last step.  Until then further requests of the session wait here, in the order of their arrival;
 * those that need no session, and those of other sessions, go on.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/clock.h"
#include "daemon/log/log.h"
#include "daemon/rpc.h"

enum {
	WAITING_MAX = 1024,           /* most messages that wait for a session's request */
	WAITING_MAX_BYTES = 1u << 20, /* of them */
	TENANT_MAX_BYTES = 16u << 20, /* of all that wait for requests of a tenant */
	TOTAL_MAX_BYTES = 64u << 20,  /* of all; a part of SERVICE_BYTES in main.c */
	SERVE_NS = 500000,            /* longest time to serve messages that have waited, in a step */
};

/** A message that waits. */
struct rpc_waiting {
	STAILQ_ENTRY(rpc_waiting) link;
	uint32_t member;
	struct endpoint_route *route;
	size_t size;
	uint8_t message[];
};

/** The unfinished request of a session, or messages that have waited for it. */
struct rpc_unfinished {
	TAILQ_ENTRY(rpc_unfinished) link;
	uint32_t session;
	uint32_t tenant;
	uint32_t member;
	enum wire_request_kind kind;
	uint64_t request;
	bool finished; /* with `error`; its reply was not sent yet */
	struct paged_error error;
	struct endpoint_route *route; /* NULL: it was replied to */
	uint8_t *reply;
	size_t reply_size;
	STAILQ_HEAD(, rpc_waiting) waiting;
	uint32_t n_waiting;
	size_t n_waiting_bytes;
};

static struct rpc_unfinished *
unfinished_find(const struct rpc *rpc, uint32_t session)
{
	struct rpc_unfinished *unfinished;

	TAILQ_FOREACH(unfinished, &rpc->unfinished, link)
		if (unfinished->session == session)
			return unfinished;
	return NULL;
}

static void
unfinished_free_reply(struct rpc_unfinished *unfinished)
{
	if (unfinished->route != NULL)
		endpoint_route_free(unfinished->route);
	free(unfinished->reply);
	unfinished->route = NULL;
	unfinished->reply = NULL;
}

static void
unfinished_free(struct rpc *rpc, struct rpc_unfinished *unfinished)
{
	struct rpc_waiting *waiting;

	while ((waiting = STAILQ_FIRST(&unfinished->waiting)) != NULL) {
		STAILQ_REMOVE_HEAD(&unfinished->waiting, link);
		endpoint_route_free(waiting->route);
		free(waiting);
	}
	unfinished_free_reply(unfinished);
	TAILQ_REMOVE(&rpc->unfinished, unfinished, link);
	free(unfinished);
}

/* Does a step, and notes the end of the request that it was for; true: there is more to do. */
static bool
unfinished_step_core(struct rpc *rpc, struct core_progress *progress)
{
	bool more = core_step(rpc->core, progress);
	struct rpc_unfinished *unfinished = unfinished_find(rpc, progress->session);

	if (unfinished == NULL)
		return more;
	metrics_worked(rpc->metrics, unfinished->kind, progress->n_worked);
	if (progress->finished) {
		unfinished->finished = true;
		unfinished->error = progress->error;
	}
	return more;
}

/* Without memory for a reply that waits, the request is finished at once. */
static void
unfinished_finish_now(struct rpc *rpc, uint32_t session)
{
	struct core_progress progress;

	while (core_session_is_busy(rpc->core, session))
		unfinished_step_core(rpc, &progress);
}

/* True: so many bytes more may wait for the session's request. */
static bool
unfinished_has_room(const struct rpc *rpc, const struct rpc_unfinished *unfinished, size_t size)
{
	size_t n_total = size, n_tenant = size;
	const struct rpc_unfinished *other;

	if (unfinished->n_waiting == WAITING_MAX || unfinished->n_waiting_bytes + size > WAITING_MAX_BYTES)
		return false;
	TAILQ_FOREACH(other, &rpc->unfinished, link) {
		n_total += other->n_waiting_bytes;
		n_tenant += other->tenant == unfinished->tenant ? other->n_waiting_bytes : 0;
	}
	return n_total <= TOTAL_MAX_BYTES && n_tenant <= TENANT_MAX_BYTES;
}

void
rpc_unfinished_begin(struct rpc *rpc, struct member *member, enum wire_request_kind kind,
		     const struct wire_reply *reply)
{
	struct rpc_unfinished *unfinished = unfinished_find(rpc, member->session->id);

	if (unfinished == NULL) {
		unfinished = calloc(1, sizeof(*unfinished));
		if (unfinished == NULL) {
			unfinished_finish_now(rpc, member->session->id);
			return;
		}
		unfinished->session = member->session->id;
		unfinished->tenant = member->tenant;
		STAILQ_INIT(&unfinished->waiting);
		TAILQ_INSERT_TAIL(&rpc->unfinished, unfinished, link);
	}
	unfinished->member = member->id;
	unfinished->kind = kind;
	unfinished->request = reply->id;
	unfinished->finished = false;
	unfinished->route = endpoint_route_copy(rpc->endpoint);
	unfinished->reply = rpc_pack(rpc, reply, &unfinished->reply_size);
	if (unfinished->route == NULL || unfinished->reply == NULL) {
		unfinished_free_reply(unfinished);
		unfinished_finish_now(rpc, member->session->id);
	} else {
		rpc->deferred = true;
	}
	loop_wake(rpc->loop);
}

bool
rpc_unfinished_wait(struct rpc *rpc, const struct member *member, const void *message, size_t size,
		    enum paged_status *status_p, struct paged_error *error)
{
	struct rpc_unfinished *unfinished = unfinished_find(rpc, member->session->id);
	struct rpc_waiting *waiting;

	if (unfinished == NULL || rpc->resumed)
		return false;
	if (!unfinished_has_room(rpc, unfinished, size)) {
		*status_p = paged_fail(error, PAGED_ERR_AGAIN,
				       "session %u has an unfinished request, and %u others with %zu bytes wait for it",
				       unfinished->session, unfinished->n_waiting, unfinished->n_waiting_bytes);
		return false;
	}
	waiting = malloc(sizeof(*waiting) + size);
	if (waiting != NULL)
		waiting->route = endpoint_route_copy(rpc->endpoint);
	if (waiting == NULL || waiting->route == NULL) {
		free(waiting);
		*status_p = paged_fail(error, PAGED_ERR_NOMEM, "session %u: no memory for a request that waits",
				       unfinished->session);
		return false;
	}
	waiting->member = member->id;
	waiting->size = size;
	memcpy(waiting->message, message, size);
	STAILQ_INSERT_TAIL(&unfinished->waiting, waiting, link);
	unfinished->n_waiting++;
	unfinished->n_waiting_bytes += size;
	return true;
}

/* Replies to a request that is finished, or whose session has ended before. */
static void
unfinished_reply(struct rpc *rpc, struct rpc_unfinished *unfinished, const struct paged_error *error)
{
	struct wire_reply refusal = { .id = unfinished->request };

	if (error->status == PAGED_OK) {
		rpc_reply_packed(rpc, unfinished->kind, unfinished->member, unfinished->route, unfinished->reply,
				 unfinished->reply_size);
	} else {
		rpc_refuse(&refusal, error);
		rpc_reply_deferred(rpc, unfinished->kind, unfinished->member, unfinished->route, &refusal);
	}
	unfinished_free_reply(unfinished);
}

/* Serves messages that have waited, until one of them is unfinished itself. */
static void
unfinished_resume(struct rpc *rpc, struct rpc_unfinished *unfinished, uint64_t end_ns)
{
	struct rpc_waiting *waiting;

	while (unfinished->route == NULL && (waiting = STAILQ_FIRST(&unfinished->waiting)) != NULL &&
	       clock_ns() < end_ns) {
		STAILQ_REMOVE_HEAD(&unfinished->waiting, link);
		unfinished->n_waiting--;
		unfinished->n_waiting_bytes -= waiting->size;
		rpc->resumed = true;
		endpoint_serve_waiting(rpc->endpoint, waiting->route, waiting->member, waiting->message, waiting->size);
		rpc->resumed = false;
		endpoint_route_free(waiting->route);
		free(waiting);
	}
}

static void
unfinished_continue(struct rpc *rpc, struct rpc_unfinished *unfinished, uint64_t end_ns)
{
	struct paged_error gone;

	if (unfinished->route == NULL) {
		unfinished_resume(rpc, unfinished, end_ns);
	} else if (unfinished->finished) {
		unfinished_reply(rpc, unfinished, &unfinished->error);
	} else if (!core_session_is_busy(rpc->core, unfinished->session)) {
		paged_fail(&gone, PAGED_ERR_GONE, "session %u has ended", unfinished->session);
		unfinished_reply(rpc, unfinished, &gone);
	}
	if (unfinished->route == NULL && STAILQ_EMPTY(&unfinished->waiting))
		unfinished_free(rpc, unfinished);
}

static bool
unfinished_step(struct loop_work *work)
{
	struct rpc *rpc = container_of(work, struct rpc, unfinished_work);
	struct rpc_unfinished *first = TAILQ_FIRST(&rpc->unfinished), *unfinished, *next;
	uint64_t end_ns;
	struct core_progress progress;
	bool more = unfinished_step_core(rpc, &progress);

	/* An operation of a session that has ended may have to be undone. */
	if (first == NULL && !more && progress.n_worked == 0)
		return false;
	core_wake(rpc->core);
	if (core_tick_needed(rpc->core))
		cache_cleanup_schedule(rpc->cache_cleanup);
	end_ns = clock_ns() + SERVE_NS;
	for (unfinished = first; unfinished != NULL; unfinished = next) {
		next = TAILQ_NEXT(unfinished, link);
		unfinished_continue(rpc, unfinished, end_ns);
	}
	/* The first one had the most of the time. */
	if (first != NULL && first == TAILQ_FIRST(&rpc->unfinished)) {
		TAILQ_REMOVE(&rpc->unfinished, first, link);
		TAILQ_INSERT_TAIL(&rpc->unfinished, first, link);
	}
	return more || !TAILQ_EMPTY(&rpc->unfinished);
}

void
rpc_unfinished_open(struct rpc *rpc)
{
	TAILQ_INIT(&rpc->unfinished);
	rpc->unfinished_work.step = unfinished_step;
	loop_work_add(rpc->loop, &rpc->unfinished_work);
}

void
rpc_unfinished_close(struct rpc *rpc)
{
	while (!TAILQ_EMPTY(&rpc->unfinished))
		unfinished_free(rpc, TAILQ_FIRST(&rpc->unfinished));
}
