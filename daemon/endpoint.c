/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "common/clock.h"
#include "daemon/random.h"

enum {
	/*
	 * Messages queued per peer, in each direction.  ZeroMQ's pipe reports reads back only after half of its
	 * high-water mark, so twice the number of open requests always leaves room for their replies.
	 */
	HIGH_WATER = 2 * WIRE_MAX_OPEN_REQUESTS,
	HANDSHAKE_MS = 500,
	STEP_NS = 500000,       /* longest step of serving requests, so that deaths and signals are not delayed */
	STEP_ZAP_REQUESTS = 16, /* most ZAP requests in a step */
	TRIM_MS = 100,          /* by then ZeroMQ's thread has freed the buffers of a dropped peer */
};

/*
 * Queues a reply without blocking; false: the queue is full.  It has room as
 * long as the member respects the limit of outstanding requests.
 */
static bool
endpoint_send(struct endpoint *endpoint, zmq_msg_t *route, size_t size)
{
	if (zmq_msg_send(route, endpoint->router, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
		return errno != EAGAIN; /* EHOSTUNREACH: the peer has disconnected meanwhile */
	if (zmq_send(endpoint->router, endpoint->reply, size, ZMQ_DONTWAIT) < 0 &&
	    log_limit_pass(&endpoint->limit, LOG_LEVEL_ERROR, "rpc", clock_ms()))
		log_error("rpc", "zmq_send: %s", zmq_strerror(errno));
	return true;
}

/* ZMQ_FD is edge-triggered, and any call on the socket may clear it: poll the socket again in the next step. */
static void
endpoint_poll_router(struct endpoint *endpoint)
{
	endpoint->router_pending = true;
	loop_wake(endpoint->loop);
}

struct endpoint_route {
	uint64_t received_ns;
	zmq_msg_t frame;
};

struct endpoint_route *
endpoint_route_copy(struct endpoint *endpoint)
{
	struct endpoint_route *route = malloc(sizeof(*route));

	if (route == NULL)
		return NULL;
	route->received_ns = endpoint->received_ns;
	zmq_msg_init(&route->frame);
	zmq_msg_copy(&route->frame, endpoint->route);
	return route;
}

void
endpoint_route_free(struct endpoint_route *route)
{
	zmq_msg_close(&route->frame);
	free(route);
}

uint64_t
endpoint_route_received_ns(const struct endpoint_route *route)
{
	return route->received_ns;
}

bool
endpoint_reply(struct endpoint *endpoint, size_t size)
{
	return endpoint_send(endpoint, endpoint->route, size);
}

bool
endpoint_reply_deferred(struct endpoint *endpoint, struct endpoint_route *route, size_t size)
{
	endpoint_poll_router(endpoint);
	return endpoint_send(endpoint, &route->frame, size);
}

static void
endpoint_drop_message(struct endpoint *endpoint, const char *why)
{
	endpoint->n_dropped++;
	if (log_limit_pass(&endpoint->limit, LOG_LEVEL_WARNING, "rpc", clock_ms()))
		log_warning("rpc", "message dropped (%" PRIu64 " so far): %s", endpoint->n_dropped, why);
}

/* The sender is the User-Id that the ZAP handler set for its connection. */
static void
endpoint_serve_message(struct endpoint *endpoint, zmq_msg_t *route, zmq_msg_t *body)
{
	const char *user = zmq_msg_gets(body, "User-Id");

	endpoint->route = route;
	if (user == NULL || !endpoint->ops->serve(endpoint->serve_context, (uint32_t)strtoul(user, NULL, 10),
						  zmq_msg_data(body), zmq_msg_size(body)))
		endpoint_drop_message(endpoint, "its member is no longer attached");
}

void
endpoint_serve_waiting(struct endpoint *endpoint, struct endpoint_route *route, uint32_t member, const void *message,
		       size_t size)
{
	endpoint_poll_router(endpoint);
	endpoint->route = &route->frame;
	endpoint->received_ns = route->received_ns;
	endpoint->ops->serve(endpoint->serve_context, member, message, size);
}

/* Receives and drops the remaining frames of a message that has too many. */
static void
endpoint_skip_frames(struct endpoint *endpoint)
{
	zmq_msg_t frame;
	bool more = true;

	while (more) {
		zmq_msg_init(&frame);
		more = zmq_msg_recv(&frame, endpoint->router, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&frame);
		zmq_msg_close(&frame);
	}
}

/* Receives and serves one message; false: there was none. */
static bool
endpoint_receive(struct endpoint *endpoint)
{
	zmq_msg_t route, body;
	bool received = false;

	zmq_msg_init(&route);
	zmq_msg_init(&body);
	if (zmq_msg_recv(&route, endpoint->router, ZMQ_DONTWAIT) < 0)
		goto out;
	received = true;
	if (!zmq_msg_more(&route) || zmq_msg_recv(&body, endpoint->router, ZMQ_DONTWAIT) < 0) {
		endpoint_drop_message(endpoint, "it has no body");
	} else if (zmq_msg_more(&body)) {
		endpoint_skip_frames(endpoint);
		endpoint_drop_message(endpoint, "it has more than one body frame");
	} else {
		endpoint_serve_message(endpoint, &route, &body);
	}
out:
	zmq_msg_close(&body);
	zmq_msg_close(&route);
	return received;
}

/*
 * ZMQ_FD is edge-triggered, and any call on the socket may clear it.  Each
 * event and each call therefore sets `pending`, and the step receives until
 * the socket returns EAGAIN.
 */
static bool
endpoint_step(struct loop_work *work)
{
	struct endpoint *endpoint = container_of(work, struct endpoint, work);
	uint64_t end_ns = clock_ns() + STEP_NS;

	for (int i = 0; endpoint->zap_pending && i < STEP_ZAP_REQUESTS; i++)
		endpoint->zap_pending =
			zap_answer(endpoint->zap, endpoint->ops->admit, endpoint->admit_context, &endpoint->limit);
	while (endpoint->router_pending && (endpoint->received_ns = clock_ns()) < end_ns)
		endpoint->router_pending = endpoint_receive(endpoint);
	return endpoint->router_pending || endpoint->zap_pending;
}

static void
endpoint_router_ready(struct loop_source *source, uint32_t events)
{
	(void)events;
	container_of(source, struct endpoint, router_source)->router_pending = true;
}

static void
endpoint_zap_ready(struct loop_source *source, uint32_t events)
{
	(void)events;
	container_of(source, struct endpoint, zap_source)->zap_pending = true;
}

/*
 * A connection's buffers lie between longer-lived objects in the malloc arena
 * of ZeroMQ's thread.  After free() they stay resident until malloc_trim().
 * Without it, each time many connections end at once, the resident size would
 * grow permanently.
 */
static void
endpoint_trim_memory(struct loop_timer *timer)
{
	(void)timer;
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

static enum paged_status
zmq_socket_fail(struct paged_error *error, const char *what)
{
	return paged_fail(error, PAGED_ERR_SYSTEM, "%s: %s", what, zmq_strerror(errno));
}

static enum paged_status
zmq_option_set(void *socket, int option, int value, struct paged_error *error)
{
	if (zmq_setsockopt(socket, option, &value, sizeof(value)) < 0)
		return zmq_socket_fail(error, "zmq_setsockopt");
	return PAGED_OK;
}

static enum paged_status
router_configure(void *router, struct paged_error *error)
{
	static const struct {
		int option, value;
	} options[] = {
		{ ZMQ_LINGER, 0 },
		{ ZMQ_PLAIN_SERVER, 1 },
		{ ZMQ_ROUTER_MANDATORY, 1 }, /* else replies to a missing peer are dropped silently */
		{ ZMQ_ROUTER_HANDOVER, 0 },  /* else a peer with the same routing id would receive another's replies */
		{ ZMQ_SNDHWM, HIGH_WATER },
		{ ZMQ_RCVHWM, HIGH_WATER },
		{ ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS },
	};
	const int64_t max_message = WIRE_MAX_MESSAGE;
	enum paged_status status = PAGED_OK;

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]) && status == PAGED_OK; i++)
		status = zmq_option_set(router, options[i].option, options[i].value, error);
	if (status != PAGED_OK)
		return status;
	if (zmq_setsockopt(router, ZMQ_MAXMSGSIZE, &max_message, sizeof(max_message)) < 0 ||
	    zmq_setsockopt(router, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN)) < 0)
		return zmq_socket_fail(error, "zmq_setsockopt");
	return PAGED_OK;
}

static enum paged_status
socket_watch(struct endpoint *endpoint, void *socket, struct loop_source *source, struct paged_error *error)
{
	size_t size = sizeof(int);
	int fd;

	if (zmq_getsockopt(socket, ZMQ_FD, &fd, &size) < 0)
		return zmq_socket_fail(error, "ZMQ_FD");
	return loop_add(endpoint->loop, source, fd, error);
}

enum paged_status
endpoint_open(struct endpoint *endpoint, struct paged_error *error)
{
	enum paged_status status;

	endpoint->router_source = (struct loop_source){ .fd = -1, .ready = endpoint_router_ready };
	endpoint->zap_source = (struct loop_source){ .fd = -1, .ready = endpoint_zap_ready };
	endpoint->router_pending = endpoint->zap_pending = true;
	endpoint->trim.fire = endpoint_trim_memory;
	endpoint->context = zmq_ctx_new();
	if (endpoint->context == NULL)
		return zmq_socket_fail(error, "zmq_ctx_new");
	/* The ZAP handler first: without one ZeroMQ admits every peer. */
	endpoint->zap = zmq_socket(endpoint->context, ZMQ_REP);
	if (endpoint->zap == NULL || zmq_bind(endpoint->zap, "inproc://zeromq.zap.01") < 0)
		return zmq_socket_fail(error, "ZAP handler");
	endpoint->router = zmq_socket(endpoint->context, ZMQ_ROUTER);
	if (endpoint->router == NULL)
		return zmq_socket_fail(error, "zmq_socket");
	status = zmq_option_set(endpoint->zap, ZMQ_LINGER, 0, error);
	if (status == PAGED_OK)
		status = router_configure(endpoint->router, error);
	if (status == PAGED_OK)
		status = socket_watch(endpoint, endpoint->zap, &endpoint->zap_source, error);
	if (status == PAGED_OK)
		status = socket_watch(endpoint, endpoint->router, &endpoint->router_source, error);
	if (status != PAGED_OK)
		return status;
	endpoint->work.step = endpoint_step;
	loop_work_add(endpoint->loop, &endpoint->work);
	return PAGED_OK;
}

void
endpoint_close(struct endpoint *endpoint)
{
	if (endpoint->context == NULL)
		return;
	loop_timer_stop(&endpoint->trim);
	if (endpoint->router != NULL) {
		loop_remove(endpoint->loop, &endpoint->router_source);
		zmq_close(endpoint->router);
	}
	if (endpoint->zap != NULL) {
		loop_remove(endpoint->loop, &endpoint->zap_source);
		zmq_close(endpoint->zap);
	}
	while (zmq_ctx_term(endpoint->context) < 0 && errno == EINTR)
		;
	endpoint->context = NULL;
}

enum paged_status
endpoint_bind(struct endpoint *endpoint, pid_t pid, char name[WIRE_MAX_ENDPOINT], struct paged_error *error)
{
	uint8_t random[RUNTIME_RANDOM_SIZE];
	enum paged_status status = daemon_random(random, sizeof(random), error);

	if (status != PAGED_OK)
		return status;
	runtime_endpoint(endpoint->runtime, random, pid, name);
	endpoint_poll_router(endpoint);
	if (zmq_bind(endpoint->router, name) < 0) {
		name[0] = '\0';
		return zmq_socket_fail(error, "RPC endpoint");
	}
	return PAGED_OK;
}

void
endpoint_unbind(struct endpoint *endpoint, char name[WIRE_MAX_ENDPOINT])
{
	if (name[0] == '\0')
		return;
	endpoint_poll_router(endpoint);
	if (zmq_unbind(endpoint->router, name) < 0 &&
	    log_limit_pass(&endpoint->limit, LOG_LEVEL_WARNING, "rpc", clock_ms()))
		log_warning("rpc", "zmq_unbind: %s", zmq_strerror(errno));
	runtime_endpoint_remove(endpoint->runtime, name);
	name[0] = '\0';
	if (!endpoint->trim.armed)
		loop_timer_start(endpoint->loop, &endpoint->trim, TRIM_MS);
}
