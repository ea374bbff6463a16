/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control.h"

#include <config.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/member.h"
#include "daemon/pidfd.h"
#include "daemon/pools.h"

enum {
	HELLO_MS = 5000,
	MAX_UNIDENTIFIED = 64, /* connections without a hello */
	ACCEPT_BATCH = 16,
	BACKLOG = 128,
};

/* Counts a connection that receives a Welcome or, as it is no member's, a Refusal. */
static void
connection_count(const struct connection *connection, enum paged_status status)
{
	metrics_replied(connection->control->metrics, METRICS_ATTACH, status, clock_ns() - connection->accepted_ns);
}

static void
connection_identified(struct connection *connection)
{
	if (!connection->unidentified)
		return;
	connection->unidentified = false;
	TAILQ_REMOVE(&connection->control->unidentified, connection, unidentified_link);
	connection->control->n_unidentified--;
}

/* Frees a connection whose socket is closed. */
static void
control_connection_closed(struct connection *connection)
{
	struct control *control = connection->control;
	struct member *member = connection->member;

	connection_identified(connection);
	if (connection->leaving)
		control->n_leaving--;
	loop_timer_stop(&connection->hello_timer);
	LIST_REMOVE(connection, link);
	free(connection);
	if (member != NULL)
		member_disconnected(member);
}

static void
connection_send_refusal(struct connection *connection, const struct paged_error *error)
{
	struct wire_control_reply reply = { .kind = WIRE_REFUSAL, .refusal.status = error->status };

	snprintf(reply.refusal.text, sizeof(reply.refusal.text), "%s", error->text);
	connection_send(connection, &reply, NULL, 0); /* the result does not matter: the connection is closed anyway */
}

/* Sends a Refusal and closes the connection. */
static void
connection_refuse(struct connection *connection, const struct paged_error *error)
{
	if (log_limit_pass(&connection->control->limit, LOG_LEVEL_WARNING, "control", clock_ms()))
		log_write(LOG_LEVEL_WARNING, "control", (struct log_ids){ .pid = (uint32_t)connection->peer.pid },
			  "process %d, uid %u refused: %s", (int)connection->peer.pid, (unsigned)connection->peer.uid,
			  error->text);
	connection_send_refusal(connection, error);
	if (connection->unidentified)
		connection_count(connection, error->status);
	connection_close(connection);
}

static void
connection_send_welcome(struct connection *connection, const struct member *member)
{
	struct wire_control_reply reply = {
		.kind = WIRE_WELCOME,
		.welcome = {
			.version_major = WIRE_VERSION_MAJOR,
			.version_minor = WIRE_VERSION_MINOR,
			.session = member->session ? member->session->id : 0,
			.member = member->id,
			.daemon_version = PACKAGE_VERSION,
			.max_open_requests = WIRE_MAX_OPEN_REQUESTS,
		},
	};

	memcpy(reply.welcome.boot_id, connection->control->boot_id, sizeof(reply.welcome.boot_id));
	memcpy(reply.welcome.token, member->token, sizeof(reply.welcome.token));
	if (member->first)
		memcpy(reply.welcome.join_token, member->session->join_token, sizeof(reply.welcome.join_token));
	memcpy(reply.welcome.endpoint, member->endpoint, sizeof(reply.welcome.endpoint));
	connection_notify(connection, &reply);
}

static enum paged_status
control_check_hello(struct connection *connection, const struct wire_control_request *hello, struct paged_error *error)
{
	const struct control *control = connection->control;

	if (connection->member != NULL)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "a second Hello");
	if (hello->hello.version_major != WIRE_VERSION_MAJOR)
		return paged_fail(error, PAGED_ERR_VERSION,
				  "pagedd speaks version %u.%u of the protocol, the client %u.%u", WIRE_VERSION_MAJOR,
				  WIRE_VERSION_MINOR, hello->hello.version_major, hello->hello.version_minor);
	if (control->stopping)
		return paged_fail(error, PAGED_ERR_STOPPING, "pagedd is stopping");
	return policy_attach(control->config, &connection->peer, error);
}

static void
control_serve_hello(struct connection *connection, const struct wire_control_request *hello)
{
	struct control *control = connection->control;
	struct paged_error error;
	struct member *member;
	int pidfd;

	if (control_check_hello(connection, hello, &error) != PAGED_OK ||
	    pidfd_of_peer(connection->source.fd, connection->peer.pid, &pidfd, &error) != PAGED_OK) {
		connection_refuse(connection, &error);
		return;
	}
	if (member_attach(control->members, connection, hello, &connection->peer, pidfd, &member, &error) != PAGED_OK) {
		close(pidfd);
		connection_refuse(connection, &error);
		return;
	}
	connection->member = member;
	connection_identified(connection);
	loop_timer_stop(&connection->hello_timer);
	policy_peer_free(&connection->peer);
	member_log(member, "%u (process %d, uid %u) attached: %s %u", member->id, (int)member->pid,
		   (unsigned)member->uid,
		   member->session == NULL ? "observer"
		   : member->first         ? "session"
					   : "join",
		   member->session ? member->session->id : 0);
	connection_count(connection, PAGED_OK);
	connection_send_welcome(connection, member);
	if (member->session != NULL && member->session->draining)
		member_notify_draining(member);
}

static enum paged_status
control_make_grant(struct connection *connection, const struct wire_control_request *open,
		   struct wire_control_reply *reply, int *fds, struct paged_error *error)
{
	const struct control *control = connection->control;
	const char *name = open->open_pool.name;
	const struct region_header *header;
	const struct pool *pool;
	enum paged_status status;
	uint32_t index;

	if (control->stopping)
		return paged_fail(error, PAGED_ERR_STOPPING, "pagedd is stopping");
	status = core_pool_find(control->core, name, &index, error);
	if (status == PAGED_OK)
		status = member_check_pool(connection->member, index, error);
	if (status != PAGED_OK)
		return status;
	if (open->open_pool.shard != 0)
		return paged_fail(error, PAGED_ERR_NOENT, "pool %s: no shard number %u; there is one", name,
				  open->open_pool.shard);
	pool = &control->pools->pool[index];
	header = core_pool_view(control->core, index)->header;
	*reply = (struct wire_control_reply){
		.kind = WIRE_POOL_GRANT,
		.pool_grant = { .pool = index,
				.memory_size = pool->memory.size,
				.region_size = pool->region_size,
				.memory = pool->memory.grant,
				.n_shards = header->n_shards,
				.n_layer_groups = header->n_layer_groups,
				.publishes = pool->config->publish,
				.geometry = pool->config->layout.params },
	};
	snprintf(reply->pool_grant.name, sizeof(reply->pool_grant.name), "%s", pool->config->name);
	snprintf(reply->pool_grant.backend, sizeof(reply->pool_grant.backend), "%s", pool->memory.ops->name);
	snprintf(reply->pool_grant.model, sizeof(reply->pool_grant.model), "%s",
		 pool->config->model != NULL ? pool->config->model : "");
	memcpy(reply->pool_grant.memory_id, header->memory_id, sizeof(reply->pool_grant.memory_id));
	fds[WIRE_FD_REGION] = pool->region_fd;
	fds[WIRE_FD_MEMORY] = pool->memory.fd;
	return PAGED_OK;
}

/* Sends a Refusal to a member; the connection stays open. */
static void
connection_notify_refusal(struct connection *connection, const struct paged_error *error)
{
	struct wire_control_reply reply = { .kind = WIRE_REFUSAL, .refusal.status = error->status };

	log_write(LOG_LEVEL_DEBUG, "control", member_ids(connection->member), "member %u: %s", connection->member->id,
		  error->text);
	snprintf(reply.refusal.text, sizeof(reply.refusal.text), "%s", error->text);
	connection_notify(connection, &reply);
}

static void
control_serve_open_pool(struct connection *connection, const struct wire_control_request *open)
{
	struct wire_control_reply reply;
	struct paged_error error;
	int fds[WIRE_N_POOL_FDS];

	if (control_make_grant(connection, open, &reply, fds, &error) != PAGED_OK) {
		connection_notify_refusal(connection, &error);
		return;
	}
	connection->member->opened_mask |= 1ull << reply.pool_grant.pool;
	if (!connection_send(connection, &reply, fds, wire_control_reply_fds(&reply)))
		connection_close(connection);
}

static void
control_serve_bye(struct connection *connection)
{
	struct member *member = connection->member;

	member_log(member, "%u (process %d) left (Bye)", member->id, (int)member->pid);
	connection->leaving = true;
	connection->control->n_leaving++;
	member_leave(member);
	session_cleanup_schedule(
		connection->control->session_cleanup); /* the Farewell follows when the cleanup is complete */
}

static void
control_serve_message(struct connection *connection, const uint8_t *message, size_t size)
{
	struct control *control = connection->control;
	struct wire_control_request request;
	struct paged_error error;

	wire_arena_reset(&control->arena);
	if (wire_control_request_parse(message, size, &control->arena, &request, &error) != PAGED_OK) {
		connection_refuse(connection, &error);
		return;
	}
	if (request.kind == WIRE_HELLO) {
		control_serve_hello(connection, &request);
		return;
	}
	if (connection->member == NULL) {
		paged_fail(&error, PAGED_ERR_PROTOCOL, "the first message is not a Hello");
		connection_refuse(connection, &error);
		return;
	}
	if (request.kind == WIRE_OPEN_POOL)
		control_serve_open_pool(connection, &request);
	else
		control_serve_bye(connection);
}

static void
connection_ready(struct loop_source *source, uint32_t events)
{
	struct connection *connection = container_of(source, struct connection, source);
	struct control *control = connection->control;
	struct iovec part = { .iov_base = control->buffer, .iov_len = sizeof(control->buffer) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 }; /* no control buffer: descriptors are dropped */
	ssize_t n = recvmsg(source->fd, &message, MSG_DONTWAIT);
	struct paged_error error;

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || connection->leaving) {
		connection_close(connection);
		return;
	}
	if (message.msg_flags & MSG_CTRUNC) {
		paged_fail(&error, PAGED_ERR_PROTOCOL, "the message carries descriptors");
		connection_refuse(connection, &error);
	} else if (message.msg_flags & MSG_TRUNC) {
		paged_fail(&error, PAGED_ERR_PROTOCOL, "the message is longer than %u bytes", WIRE_MAX_MESSAGE);
		connection_refuse(connection, &error);
	} else {
		control_serve_message(connection, control->buffer, (size_t)n);
	}
}

static void
hello_timed_out(struct loop_timer *timer)
{
	struct connection *connection = container_of(timer, struct connection, hello_timer);
	struct paged_error error;

	paged_fail(&error, PAGED_ERR_PROTOCOL, "no Hello within %d s", HELLO_MS / 1000);
	connection_refuse(connection, &error);
}

/* Takes ownership of fd, also on failure. */
static enum paged_status
connection_create(struct control *control, int fd, struct paged_error *error)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	enum paged_status status;

	if (connection == NULL) {
		close(fd);
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a connection");
	}
	connection->control = control;
	connection->loop = control->loop;
	connection->accepted_ns = clock_ns();
	connection->limit = &control->limit;
	connection->closed = control_connection_closed;
	connection->source.ready = connection_ready;
	connection->hello_timer.fire = hello_timed_out;
	status = policy_peer_read(fd, &connection->peer, error);
	if (status == PAGED_OK)
		status = loop_add(control->loop, &connection->source, fd, error);
	if (status != PAGED_OK) {
		policy_peer_free(&connection->peer);
		free(connection);
		close(fd);
		return status;
	}
	LIST_INSERT_HEAD(&control->connections, connection, link);
	connection->unidentified = true;
	TAILQ_INSERT_TAIL(&control->unidentified, connection, unidentified_link);
	control->n_unidentified++;
	loop_timer_start(control->loop, &connection->hello_timer, HELLO_MS);
	return PAGED_OK;
}

/* Out of descriptors: accepts the peer with the spare one and closes it; the listener would stay readable otherwise. */
static void
control_accept_and_close(struct control *control)
{
	int fd;

	close(control->spare_fd);
	fd = accept4(control->listener.fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	control->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	metrics_replied(control->metrics, METRICS_ATTACH, PAGED_ERR_SYSTEM, 0);
	if (log_limit_pass(&control->limit, LOG_LEVEL_ERROR, "control", clock_ms()))
		log_error("control", "a connection was closed at once: no file descriptors left");
}

static void
control_accept(struct loop_source *source, uint32_t events)
{
	struct control *control = container_of(source, struct control, listener);
	struct paged_error error;

	(void)events;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE))
			control_accept_and_close(control);
		if (fd < 0)
			return;
		if (connection_create(control, fd, &error) != PAGED_OK) {
			if (log_limit_pass(&control->limit, LOG_LEVEL_ERROR, "control", clock_ms()))
				log_error("control", "%s", error.text);
		} else if (control->n_unidentified > MAX_UNIDENTIFIED) {
			paged_fail(&error, PAGED_ERR_LIMIT,
				   "more than %d connections have not sent a Hello yet, and this one is the oldest",
				   MAX_UNIDENTIFIED);
			connection_refuse(TAILQ_FIRST(&control->unidentified), &error);
		}
	}
}

enum paged_status
daemon_control_open(struct control *control, struct paged_error *error)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	enum paged_status status;
	int fd;

	control->listener = (struct loop_source){ .fd = -1, .ready = control_accept };
	LIST_INIT(&control->connections);
	TAILQ_INIT(&control->unidentified);
	control->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (control->spare_fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "/dev/null: %m");
	status = wire_arena_create(&control->arena, error);
	if (status != PAGED_OK)
		return status;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "socket: %m");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", control->runtime->dir);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, BACKLOG) < 0)
		status = paged_fail(error, PAGED_ERR_SYSTEM, "%s: %m", address.sun_path);
	else
		status = loop_add(control->loop, &control->listener, fd, error);
	if (status != PAGED_OK)
		close(fd);
	return status;
}

static void
control_close_listener(struct control *control)
{
	int fd = control->listener.fd;

	if (fd < 0)
		return;
	loop_remove(control->loop, &control->listener);
	close(fd);
}

void
daemon_control_stop(struct control *control, uint32_t deadline_ms)
{
	struct wire_control_reply notice = {
		.kind = WIRE_NOTICE,
		.notice = { .kind = WIRE_NOTICE_STOPPING, .deadline_ms = deadline_ms, .text = "pagedd is stopping" },
	};
	struct connection *connection;

	control->stopping = true;
	control_close_listener(control);
again: /* closing a connection may close others, so restart the iteration */
	LIST_FOREACH(connection, &control->connections, link) {
		if (connection->member == NULL || connection->stopping_sent)
			continue;
		connection->stopping_sent = true;
		if (!connection_notify(connection, &notice))
			goto again;
	}
}

void
daemon_control_send_farewells(struct control *control)
{
	const struct wire_control_reply farewell = { .kind = WIRE_FAREWELL };
	struct connection *connection, *next;

	if (control->n_leaving == 0)
		return;
	for (connection = LIST_FIRST(&control->connections); connection != NULL; connection = next) {
		next = LIST_NEXT(connection, link);
		if (!connection->leaving)
			continue;
		connection_send(connection, &farewell, NULL, 0);
		connection_close(connection);
	}
}

void
daemon_control_close(struct control *control)
{
	struct connection *connection;

	if (control->loop == NULL)
		return;
	control_close_listener(control);
	daemon_control_send_farewells(control);
	while ((connection = LIST_FIRST(&control->connections)) != NULL) {
		connection->member = NULL; /* members_close() frees it */
		connection_close(connection);
	}
	wire_arena_destroy(&control->arena);
	if (control->spare_fd >= 0)
		close(control->spare_fd);
}
