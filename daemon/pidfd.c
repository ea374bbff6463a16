/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pidfd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/kernel_feature.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static bool
socket_is_up(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLRDHUP };

	return poll(&poll_fd, 1, 0) == 0;
}

enum paged_status
pidfd_of_peer(int socket_fd, pid_t pid, int *pidfd_p, struct paged_error *error)
{
	socklen_t size = sizeof(int);
	int fd;

	if (kernel_feature_enabled("PAGED_NO_PEERPIDFD")) {
		if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) {
			*pidfd_p = fd;
			return PAGED_OK;
		}
		/* Use the pid only if the kernel lacks SO_PEERPIDFD: the pid may have been reused. */
		if (errno == ESRCH || errno == ENODATA)
			return paged_fail(error, PAGED_ERR_GONE, "process %d has ended", (int)pid);
		if (errno != ENOPROTOOPT)
			return paged_fail(error, PAGED_ERR_SYSTEM, "SO_PEERPIDFD of process %d: %m", (int)pid);
	}
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0 && errno == ESRCH)
		return paged_fail(error, PAGED_ERR_GONE, "process %d has ended", (int)pid);
	if (fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "pidfd_open of process %d: %m", (int)pid);
	if (!socket_is_up(socket_fd)) {
		close(fd);
		return paged_fail(error, PAGED_ERR_GONE, "process %d has ended", (int)pid);
	}
	*pidfd_p = fd;
	return PAGED_OK;
}

int
pidfd_kill(int pidfd, int signal)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}
