/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/connection.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"

void
connection_close(struct connection *connection)
{
	int fd = connection->source.fd;

	loop_remove(connection->loop, &connection->source);
	close(fd);
	policy_peer_free(&connection->peer);
	connection->closed(connection);
}

bool
connection_send(struct connection *connection, const struct wire_control_reply *reply, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * WIRE_N_POOL_FDS)];
	} ancillary = { 0 };
	uint8_t buffer[1024];
	struct iovec part = { .iov_base = buffer };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	part.iov_len = wire_control_reply_pack(reply, buffer, sizeof(buffer));
	if (part.iov_len == 0) {
		if (log_limit_pass(connection->limit, LOG_LEVEL_ERROR, "control", clock_ms()))
			log_error("control", "a reply of kind %d does not fit", (int)reply->kind);
		return false;
	}
	if (n_fds > 0) {
		message.msg_control = &ancillary;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		ancillary.header.cmsg_level = SOL_SOCKET;
		ancillary.header.cmsg_type = SCM_RIGHTS;
		ancillary.header.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(&ancillary.header), fds, sizeof(int) * n_fds);
	}
	return sendmsg(connection->source.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

bool
connection_notify(struct connection *connection, const struct wire_control_reply *notice)
{
	if (connection_send(connection, notice, NULL, 0))
		return true;
	if (log_limit_pass(connection->limit, LOG_LEVEL_WARNING, "control", clock_ms()))
		log_write(LOG_LEVEL_WARNING, "control", (struct log_ids){ .pid = (uint32_t)connection->peer.pid },
			  "process %d disconnected: a message cannot be sent to it: %m", (int)connection->peer.pid);
	connection_close(connection);
	return false;
}

void
connection_detach(struct connection *connection)
{
	connection->member = NULL;
	if (!connection->leaving)
		connection_close(connection);
}
