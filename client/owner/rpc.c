/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/owner/rpc.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <zmq.h>

#include "common/clock.h"
#include "common/zmq_needs.h"

/* High-water mark: room for all outstanding requests. */
#define RPC_HWM ((int)WIRE_MAX_OPEN_REQUESTS * 2)

/* Time until a connection that was lost is begun again. */
#define CONNECT_PAUSE_MS 10

/* Most outstanding posts of each kind. */
static const unsigned int max_posts[RPC_N_POSTS] = { [RPC_RESERVE_AHEAD] = 1, [RPC_PUBLISH] = OWNER_MAX_PUBLISHES };

static enum paged_status
client_rpc_zmq_error(const char *what, struct paged_error *error)
{
	return paged_fail(error, PAGED_ERR_SYSTEM, "%s: %s", what, zmq_strerror(zmq_errno()));
}

static bool
client_rpc_set_option(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

static enum paged_status
client_rpc_configure_socket(struct rpc *rpc, uint32_t member, const char *token_hex, struct paged_error *error)
{
	int64_t max_message = WIRE_MAX_MESSAGE;
	size_t fd_size = sizeof(rpc->fd);
	char user[16];

	snprintf(user, sizeof(user), "%" PRIu32, member);
	/* No reconnection and no lingering: a request to one daemon must not reach the daemon that replaces it. */
	if (!client_rpc_set_option(rpc->socket, ZMQ_LINGER, 0) ||
	    !client_rpc_set_option(rpc->socket, ZMQ_RECONNECT_IVL, -1) ||
	    !client_rpc_set_option(rpc->socket, ZMQ_SNDHWM, RPC_HWM) ||
	    !client_rpc_set_option(rpc->socket, ZMQ_RCVHWM, RPC_HWM) ||
	    !client_rpc_set_option(rpc->socket, ZMQ_HANDSHAKE_IVL, (int)rpc->timeout_ms) ||
	    zmq_setsockopt(rpc->socket, ZMQ_MAXMSGSIZE, &max_message, sizeof(max_message)) != 0 ||
	    zmq_setsockopt(rpc->socket, ZMQ_PLAIN_USERNAME, user, strlen(user)) != 0 ||
	    zmq_setsockopt(rpc->socket, ZMQ_PLAIN_PASSWORD, token_hex, strlen(token_hex)) != 0 ||
	    zmq_getsockopt(rpc->socket, ZMQ_FD, &rpc->fd, &fd_size) != 0)
		return client_rpc_zmq_error("RPC socket", error);
	return PAGED_OK;
}

/* Starts to connect a new socket, in place of the one that there may be. */
static enum paged_status
client_rpc_connect(struct rpc *rpc, const struct rpc_params *params, struct paged_error *error)
{
	enum paged_status status;

	if (rpc->socket != NULL)
		zmq_close(rpc->socket);
	rpc->socket = zmq_socket(rpc->context, ZMQ_DEALER);
	if (rpc->socket == NULL)
		return client_rpc_zmq_error("RPC socket", error);
	status = client_rpc_configure_socket(rpc, params->member, params->token_hex, error);
	if (status != PAGED_OK)
		return status;
	while (zmq_connect(rpc->socket, params->endpoint) != 0)
		if (zmq_errno() != EINTR)
			return client_rpc_zmq_error("RPC connect", error); /* the endpoint's name is a secret */
	return PAGED_OK;
}

/*
 * Has the socket a connection, or one that is being made?  One that is lost is not made again, and then no message can
 * be queued.
 */
static bool
client_rpc_is_connected(const struct rpc *rpc)
{
	int events = 0;
	size_t size = sizeof(events);

	return zmq_getsockopt(rpc->socket, ZMQ_EVENTS, &events, &size) == 0 && (events & ZMQ_POLLOUT) != 0;
}

void
client_rpc_close(struct rpc *rpc, bool in_child)
{
	if (!in_child && rpc->socket != NULL)
		zmq_close(rpc->socket);
	if (!in_child && rpc->context != NULL)
		while (zmq_ctx_term(rpc->context) != 0 && zmq_errno() == EINTR) /* else the context's threads leak */
			;
	wire_arena_destroy(&rpc->arena);
	wire_arena_destroy(&rpc->send_arena);
}

/* Does the reply to the request name new sequences only?  A start that goes on with a sequence names that too. */
static bool
client_rpc_creates(const struct wire_request *request)
{
	bool creates = request->kind == WIRE_CREATE || request->kind == WIRE_FORK || request->kind == WIRE_START ||
		       request->kind == WIRE_HOLD;

	for (uint32_t i = 0; request->kind == WIRE_START && i < request->start.n; i++)
		creates &= request->start.specs[i].seq == 0;
	return creates;
}

/* PAGED_ERR_AGAIN: the socket's queue is full. */
static enum paged_status
client_rpc_send(struct rpc *rpc, struct wire_request *request, bool waited, enum rpc_post post, uint64_t number,
		struct paged_error *error)
{
	size_t size;

	if (rpc->n_pending >= rpc->max_open)
		return paged_fail(error, PAGED_ERR_TIMEOUT, "%u earlier requests have no answer yet", rpc->n_pending);
	request->id = rpc->last_id + 1;
	wire_arena_reset(&rpc->send_arena);
	size = wire_request_pack(request, &rpc->send_arena, rpc->buffer, sizeof(rpc->buffer));
	if (size == 0)
		return paged_fail(error, PAGED_ERR_LIMIT, "a request does not fit a message of %u bytes",
				  WIRE_MAX_MESSAGE);
	while (zmq_send(rpc->socket, rpc->buffer, size, ZMQ_DONTWAIT) < 0) {
		if (zmq_errno() == EAGAIN)
			return PAGED_ERR_AGAIN;
		if (zmq_errno() != EINTR)
			return client_rpc_zmq_error("RPC send", error);
	}
	rpc->last_id = request->id;
	rpc->pending[rpc->n_pending++] = (struct rpc_pending){
		.id = request->id,
		.post = post,
		.number = number,
		.creates = client_rpc_creates(request),
		.waited = waited,
	};
	rpc->posts[post].n_open++;
	return PAGED_OK;
}

/* Erase the sequences of a create, start, fork or hold whose caller timed out. */
static void
client_rpc_undo_create(struct rpc *rpc, const struct wire_reply *reply)
{
	struct wire_request erase = { .kind = WIRE_ERASE, .erase = { .n = reply->ids.n, .ids = reply->ids.seq } };
	struct paged_error error;
	bool sent;

	if (reply->ids.n == 0)
		return;
	sent = client_rpc_send(rpc, &erase, false, RPC_NO_POST, 0, &error) == PAGED_OK;
	owner_log(rpc->control->owner, sent ? PAGED_LOG_INFO : PAGED_LOG_WARNING, "a late creation of %u sequences %s",
		  reply->ids.n, sent ? "is undone" : "stays until the session ends");
}

/* Handle a reply that no caller waits for. */
static void
client_rpc_settle_late_reply(struct rpc *rpc, const struct rpc_pending *pending, const struct wire_reply *reply)
{
	if (pending->post != RPC_NO_POST && reply->status != PAGED_OK)
		paged_fail(&rpc->posts[pending->post].refusal, reply->status, "%s", reply->text);
	if (pending->creates && reply->status == PAGED_OK && reply->kind == WIRE_REPLY_IDS)
		client_rpc_undo_create(rpc, reply);
}

/* Remove from the pending list the request that a reply answers; returns false if there is none. */
static bool
client_rpc_remove_pending(struct rpc *rpc, uint64_t id, struct rpc_pending *pending)
{
	for (unsigned int i = 0; i < rpc->n_pending; i++) {
		if (rpc->pending[i].id != id)
			continue;
		*pending = rpc->pending[i];
		rpc->posts[pending->post].n_open--;
		rpc->n_pending--;
		memmove(&rpc->pending[i], &rpc->pending[i + 1], (rpc->n_pending - i) * sizeof(*pending));
		return true;
	}
	return false;
}

/* Receive a message of one frame to the buffer; PAGED_ERR_AGAIN: no message is there. */
static enum paged_status
client_rpc_receive_frame(struct rpc *rpc, size_t *size_p, struct paged_error *error)
{
	int size, more;
	size_t more_size = sizeof(more);
	unsigned int n_frames = 0;

	do {
		size = zmq_recv(rpc->socket, rpc->buffer, sizeof(rpc->buffer), ZMQ_DONTWAIT);
		if (size < 0 && zmq_errno() == EINTR) {
			more = 1;
			continue;
		}
		if (size < 0 && zmq_errno() == EAGAIN)
			return PAGED_ERR_AGAIN;
		if (size < 0 || zmq_getsockopt(rpc->socket, ZMQ_RCVMORE, &more, &more_size) != 0)
			return client_rpc_zmq_error("RPC receive", error);
		n_frames++;
	} while (more);
	if (n_frames != 1 || (size_t)size > sizeof(rpc->buffer))
		return paged_fail(error, PAGED_ERR_PROTOCOL, "a reply of %u frames, the last of %d bytes", n_frames,
				  size);
	*size_p = (size_t)size;
	return PAGED_OK;
}

/* Handle replies until the one that the caller waits for (PAGED_OK, in *reply), or none is left (PAGED_ERR_AGAIN). */
static enum paged_status
client_rpc_receive(struct rpc *rpc, struct wire_reply *reply, struct paged_error *error)
{
	for (;;) {
		struct rpc_pending pending;
		enum paged_status status;
		size_t size = 0;

		status = client_rpc_receive_frame(rpc, &size, error);
		if (status != PAGED_OK)
			return status;
		wire_arena_reset(&rpc->arena);
		status = wire_reply_parse(rpc->buffer, size, &rpc->arena, reply, error);
		if (status != PAGED_OK)
			return status;
		if (!client_rpc_remove_pending(rpc, reply->id, &pending))
			return paged_fail(error, PAGED_ERR_PROTOCOL,
					  "a reply to request %" PRIu64 ", which was not made", reply->id);
		if (pending.waited)
			return PAGED_OK;
		client_rpc_settle_late_reply(rpc, &pending, reply);
	}
}

void
client_rpc_dispatch(struct rpc *rpc)
{
	struct wire_reply reply;
	struct paged_error error;
	enum paged_status status = PAGED_OK;

	while (rpc->n_pending > 0 && status != PAGED_ERR_AGAIN && status != PAGED_ERR_SYSTEM)
		status = client_rpc_receive(rpc, &reply, &error);
}

/* Sleep until a channel is readable, or for 1 ms if `events` is POLLOUT; returns false if the deadline has passed. */
static bool
client_rpc_wait(struct rpc *rpc, short events, uint64_t deadline_ms)
{
	struct pollfd polled[2] = { { .fd = rpc->fd, .events = POLLIN }, { .fd = rpc->control->fd, .events = POLLIN } };
	int left_ms = client_poll_ms(deadline_ms);

	if (left_ms == 0)
		return false;
	/* ZMQ_FD does not reliably become readable when there is room to send, so poll every millisecond. */
	if (events == POLLOUT && left_ms > 1)
		left_ms = 1;
	poll(polled, 2, left_ms);
	if (polled[1].revents != 0)
		client_control_dispatch(rpc->control);
	return true;
}

static enum paged_status
client_rpc_timeout(struct rpc *rpc, struct paged_error *error)
{
	for (unsigned int i = 0; i < rpc->n_pending; i++)
		rpc->pending[i].waited = false;
	owner_log(rpc->control->owner, PAGED_LOG_WARNING, "request %" PRIu64 ": no answer in %u ms", rpc->last_id,
		  rpc->timeout_ms);
	return paged_fail(error, PAGED_ERR_TIMEOUT, "no answer from the daemon in %u ms: the outcome is unknown",
			  rpc->timeout_ms);
}

/* Fail because the daemon has died; no request is outstanding any more. */
static enum paged_status
client_rpc_gone(struct rpc *rpc, struct paged_error *error)
{
	rpc->n_pending = 0;
	return paged_fail(error, PAGED_ERR_GONE, "the daemon ended while it was asked");
}

/* PAGED_ERR_AGAIN: the connection was lost before the first reply, while the client opens. */
static enum paged_status
client_rpc_exchange(struct rpc *rpc, struct wire_request *request, uint64_t deadline_ms, struct wire_reply *reply,
		    struct paged_error *error)
{
	enum paged_status status;
	bool was_gone;

	client_rpc_dispatch(rpc);
	while ((status = client_rpc_send(rpc, request, true, RPC_NO_POST, 0, error)) == PAGED_ERR_AGAIN) {
		if (owner_state(rpc->control->owner) == OWNER_GONE)
			return client_rpc_gone(rpc, error);
		if (rpc->opening && !client_rpc_is_connected(rpc))
			return PAGED_ERR_AGAIN;
		if (!client_rpc_wait(rpc, POLLOUT, deadline_ms))
			return paged_fail(error, PAGED_ERR_TIMEOUT, "the daemon took no request in %u ms",
					  rpc->timeout_ms);
	}
	if (status != PAGED_OK)
		return status;
	for (;;) {
		/* Read the state before the socket, so that a reply that the daemon sent before its end is returned. */
		was_gone = owner_state(rpc->control->owner) == OWNER_GONE;
		status = client_rpc_receive(rpc, reply, error);
		if (status == PAGED_OK || status == PAGED_ERR_SYSTEM)
			return status;
		if (status == PAGED_ERR_PROTOCOL) {
			owner_log(rpc->control->owner, PAGED_LOG_ERROR, "%s", error->text);
			continue;
		}
		if (was_gone)
			return client_rpc_gone(rpc, error);
		if (rpc->opening && !client_rpc_is_connected(rpc))
			return PAGED_ERR_AGAIN;
		if (!client_rpc_wait(rpc, POLLIN, deadline_ms))
			return client_rpc_timeout(rpc, error);
	}
}

enum paged_status
client_rpc_call(struct rpc *rpc, struct wire_request *request, enum wire_reply_kind kind, struct wire_reply *reply,
		struct paged_error *error)
{
	enum paged_status status = client_rpc_exchange(rpc, request, clock_ms() + rpc->timeout_ms, reply, error);

	if (status != PAGED_OK)
		return status;
	if (reply->status != PAGED_OK) {
		paged_fail(error, reply->status, "%s", reply->text);
		if (reply->kind == WIRE_REPLY_SHORTAGE)
			error->shortage = reply->shortage;
		return reply->status;
	}
	if (reply->kind != kind)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "the daemon's reply is of kind %d, not %d",
				  (int)reply->kind, (int)kind);
	return PAGED_OK;
}

/*
 * Connects and sends a ping.  The daemon drops a connection whose ZeroMQ handshake takes more than half a second, so
 * that half-open connections are bounded; if one of the two processes was stopped or had no CPU meanwhile, the
 * handshake is begun again.
 */
static enum paged_status
client_rpc_greet(struct rpc *rpc, const struct rpc_params *params, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_PING };
	struct wire_reply reply = { .status = PAGED_OK };
	enum paged_status status;

	for (;;) {
		status = client_rpc_connect(rpc, params, error);
		if (status != PAGED_OK)
			return status;
		rpc->n_pending = rpc->posts[RPC_NO_POST].n_open = 0;
		status = client_rpc_exchange(rpc, &request, params->deadline_ms, &reply, error);
		if (status != PAGED_ERR_AGAIN)
			break;
		if (client_poll_ms(params->deadline_ms) == 0)
			return client_rpc_timeout(rpc, error);
		poll(NULL, 0, CONNECT_PAUSE_MS);
	}
	if (status == PAGED_OK && reply.status != PAGED_OK)
		return paged_fail(error, reply.status, "%s", reply.text);
	return status;
}

enum paged_status
client_rpc_open(struct rpc *rpc, struct control *control, const struct rpc_params *params, struct paged_error *error)
{
	enum paged_status status = wire_arena_create(&rpc->arena, error);

	if (status == PAGED_OK)
		status = wire_arena_create(&rpc->send_arena, error);
	if (status == PAGED_OK)
		status = zmq_needs_check(error);
	if (status != PAGED_OK)
		return status;
	rpc->control = control;
	rpc->max_open = params->max_open == 0 ? WIRE_MAX_OPEN_REQUESTS : MIN(params->max_open, WIRE_MAX_OPEN_REQUESTS);
	rpc->timeout_ms = MIN(params->timeout_ms, (uint32_t)INT32_MAX);
	rpc->context = zmq_ctx_new();
	if (rpc->context == NULL)
		return client_rpc_zmq_error("RPC context", error);
	rpc->opening = true;
	status = client_rpc_greet(rpc, params, error);
	rpc->opening = false;
	return status;
}

enum paged_status
client_rpc_post(struct rpc *rpc, enum rpc_post post, uint64_t number, struct wire_request *request,
		struct paged_error *error)
{
	client_rpc_dispatch(rpc);
	if (rpc->posts[post].n_open >= max_posts[post])
		return PAGED_ERR_AGAIN;
	return client_rpc_send(rpc, request, false, post, number, error);
}

uint64_t
client_rpc_oldest_post(const struct rpc *rpc, enum rpc_post post)
{
	for (unsigned int i = 0; i < rpc->n_pending; i++)
		if (rpc->pending[i].post == post)
			return rpc->pending[i].number;
	return 0;
}

enum paged_status
client_rpc_post_refusal(struct rpc *rpc, enum rpc_post post, struct paged_error *error)
{
	struct paged_error *refusal = &rpc->posts[post].refusal;

	if (refusal->status == PAGED_OK)
		return PAGED_OK;
	*error = *refusal;
	refusal->status = PAGED_OK;
	return error->status;
}
