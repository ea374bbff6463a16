/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/owner/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"

/* Time until connect() is tried again after the backlog was full. */
#define CONNECT_PAUSE_MS 2

int
client_poll_ms(uint64_t deadline_ms)
{
	uint64_t now = clock_ms();

	if (now >= deadline_ms)
		return 0;
	return deadline_ms - now < INT32_MAX ? (int)(deadline_ms - now) : INT32_MAX;
}

static enum paged_status
client_control_connect_error(const char *dir, struct paged_error *error)
{
	switch (errno) {
	case ENOENT:
	case ENOTDIR:
	case ECONNREFUSED:
		return paged_fail(error, PAGED_ERR_NO_DAEMON, "no daemon at %s: is pagedd running?", dir);
	case EACCES:
	case EPERM:
		return paged_fail(error, PAGED_ERR_PERM, "%s/control: no permission to connect as uid %u", dir,
				  (unsigned int)geteuid());
	case EAGAIN:
		return paged_fail(error, PAGED_ERR_TIMEOUT, "%s/control: the daemon accepts no connection", dir);
	default:
		return paged_fail(error, PAGED_ERR_SYSTEM, "%s/control: %s", dir, strerror(errno));
	}
}

enum paged_status
client_control_open(struct control *control, struct owner *owner, const char *dir, uint64_t deadline_ms,
		    struct paged_error *error)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	enum paged_status status;
	int n;

	control->owner = owner;
	n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", dir);
	if (n < 0 || (size_t)n >= sizeof(address.sun_path))
		return paged_fail(error, PAGED_ERR_INVALID, "%.64s...: a runtime directory has at most %zu bytes", dir,
				  sizeof(address.sun_path) - sizeof("/control"));
	status = wire_arena_create(&control->arena, error);
	if (status != PAGED_OK)
		return status;
	control->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (control->fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "no socket for %s/control: %s", dir, strerror(errno));
	while (connect(control->fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		if ((errno != EAGAIN && errno != EINTR) || client_poll_ms(deadline_ms) == 0)
			return client_control_connect_error(dir, error);
		poll(NULL, 0, CONNECT_PAUSE_MS);
	}
	return PAGED_OK;
}

void
client_control_close(struct control *control)
{
	if (control->fd >= 0)
		close(control->fd);
	control->fd = -1;
	wire_arena_destroy(&control->arena);
}

static void
client_control_close_fds(int fds[WIRE_N_POOL_FDS])
{
	for (unsigned int i = 0; i < WIRE_N_POOL_FDS; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* Room for the descriptors of one message; the kernel closes descriptors that do not fit. */
union control_ancillary {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int) * WIRE_N_POOL_FDS)];
};

static unsigned int
client_control_receive_fds(struct msghdr *message, int fds[WIRE_N_POOL_FDS])
{
	unsigned int n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
		size_t n_here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n_here && n < WIRE_N_POOL_FDS; i++)
			memcpy(&fds[n++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
	return n;
}

static void
client_control_handle_notice(struct control *control, const struct wire_control_reply *reply)
{
	switch (reply->notice.kind) {
	case WIRE_NOTICE_STOPPING:
		owner_advance(control->owner, OWNER_STOPPING);
		owner_log(control->owner, PAGED_LOG_WARNING, "the daemon stops in %u ms", reply->notice.deadline_ms);
		break;
	case WIRE_NOTICE_DRAINED:
		owner_advance(control->owner, OWNER_DRAINING);
		owner_log(control->owner, PAGED_LOG_WARNING, "%s", reply->notice.text);
		break;
	case WIRE_NOTICE_ENDED:
		owner_advance(control->owner, OWNER_ENDED);
		owner_log(control->owner, PAGED_LOG_WARNING, "the session was ended: %s", reply->notice.text);
		break;
	}
}

/*
 * The kernel drops descriptors for which the receiver has no room: in its buffer, which has room for all that a message
 * may have, or in its table of descriptors.
 */
static enum paged_status
client_control_fail_truncated(const struct msghdr *message, unsigned int n_fds, struct paged_error *error)
{
	struct rlimit limit = { 0 };

	if ((message->msg_flags & MSG_TRUNC) || n_fds == WIRE_N_POOL_FDS)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "a message on the control socket was cut off");
	getrlimit(RLIMIT_NOFILE, &limit);
	return paged_fail(error, PAGED_ERR_SYSTEM,
			  "no room for the descriptors that the daemon sends: this process may have %llu open"
			  " (RLIMIT_NOFILE, ulimit -n)",
			  (unsigned long long)limit.rlim_cur);
}

/*
 * Receive one datagram.  PAGED_ERR_AGAIN: there is none; PAGED_ERR_GONE: the
 * peer hung up.  If the peer closed with unread data, one read returns
 * ECONNRESET before the datagrams that it had sent; the next read gets these.
 */
static enum paged_status
client_control_receive(struct control *control, struct wire_control_reply *reply, int fds[WIRE_N_POOL_FDS],
		       struct paged_error *error)
{
	union control_ancillary ancillary;
	struct iovec body = { control->buffer, sizeof(control->buffer) };
	struct msghdr message = { .msg_iov = &body,
				  .msg_iovlen = 1,
				  .msg_control = ancillary.bytes,
				  .msg_controllen = sizeof(ancillary.bytes) };
	enum paged_status status;
	unsigned int n_fds;
	ssize_t size;

	fds[WIRE_FD_REGION] = fds[WIRE_FD_MEMORY] = -1;
	do
		size = recvmsg(control->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (size < 0 && (errno == EINTR || errno == ECONNRESET));
	if (size < 0 && errno == EAGAIN)
		return PAGED_ERR_AGAIN;
	if (size <= 0) {
		owner_advance(control->owner, OWNER_GONE);
		return paged_fail(error, PAGED_ERR_GONE, "the daemon hung up");
	}
	n_fds = client_control_receive_fds(&message, fds);
	wire_arena_reset(&control->arena);
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		status = client_control_fail_truncated(&message, n_fds, error);
	else
		status = wire_control_reply_parse(control->buffer, (size_t)size, &control->arena, reply, error);
	if (status == PAGED_OK && n_fds != wire_control_reply_fds(reply))
		status = paged_fail(error, PAGED_ERR_PROTOCOL,
				    "a message on the control socket came with %u descriptors", n_fds);
	if (status != PAGED_OK)
		client_control_close_fds(fds);
	return status;
}

/* client_control_receive() that handles notices and discards late replies. */
static enum paged_status
client_control_receive_reply(struct control *control, struct wire_control_reply *reply, int fds[WIRE_N_POOL_FDS],
			     struct paged_error *error)
{
	for (;;) {
		enum paged_status status = client_control_receive(control, reply, fds, error);

		if (status != PAGED_OK)
			return status;
		if (reply->kind == WIRE_NOTICE) {
			client_control_handle_notice(control, reply);
		} else if (control->n_late > 0) {
			control->n_late--;
			client_control_close_fds(fds);
		} else {
			return PAGED_OK;
		}
	}
}

static enum paged_status
client_control_send(struct control *control, const struct wire_control_request *request, uint64_t deadline_ms,
		    struct paged_error *error)
{
	size_t size = wire_control_request_pack(request, control->buffer, sizeof(control->buffer));

	if (size == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "a request does not fit a message");
	while (send(control->fd, control->buffer, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		struct pollfd writable = { .fd = control->fd, .events = POLLOUT };

		/* The daemon may have sent the reason before it hung up; the read that follows gets it. */
		if (errno == EPIPE || errno == ECONNRESET)
			return PAGED_OK;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return paged_fail(error, PAGED_ERR_SYSTEM, "control socket: %s", strerror(errno));
		if (poll(&writable, 1, client_poll_ms(deadline_ms)) == 0)
			return paged_fail(error, PAGED_ERR_TIMEOUT, "the daemon reads nothing from the control socket");
	}
	return PAGED_OK;
}

enum paged_status
client_control_call(struct control *control, const struct wire_control_request *request, uint64_t deadline_ms,
		    struct wire_control_reply *reply, int fds[WIRE_N_POOL_FDS], struct paged_error *error)
{
	enum paged_status status = client_control_send(control, request, deadline_ms, error);
	struct pollfd readable = { .fd = control->fd, .events = POLLIN };

	fds[WIRE_FD_REGION] = fds[WIRE_FD_MEMORY] = -1;
	if (status != PAGED_OK)
		return status;
	for (;;) {
		status = client_control_receive_reply(control, reply, fds, error);
		if (status != PAGED_ERR_AGAIN)
			break;
		if (poll(&readable, 1, client_poll_ms(deadline_ms)) == 0) {
			control->n_late++;
			return paged_fail(error, PAGED_ERR_TIMEOUT, "no answer on the control socket in time");
		}
	}
	if (status != PAGED_OK || reply->kind != WIRE_REFUSAL)
		return status;
	return paged_fail(error, reply->refusal.status != PAGED_OK ? reply->refusal.status : PAGED_ERR_PROTOCOL, "%s",
			  reply->refusal.text);
}

bool
client_control_hung_up(const struct control *control)
{
	struct pollfd hang_up = { .fd = control->fd };

	return poll(&hang_up, 1, 0) == 1;
}

void
client_control_dispatch(struct control *control)
{
	int fds[WIRE_N_POOL_FDS];
	struct wire_control_reply reply;
	struct paged_error error;
	enum paged_status status = PAGED_OK;

	/* Replies without a request are discarded; after an invalid message, go on with the next. */
	while (owner_state(control->owner) != OWNER_GONE && status != PAGED_ERR_AGAIN) {
		status = client_control_receive_reply(control, &reply, fds, &error);
		if (status == PAGED_OK)
			client_control_close_fds(fds);
	}
}
