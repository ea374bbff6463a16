/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/kernel_check.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/zmq_needs.h"
#include "daemon/memory.h"
#include "daemon/pidfd.h"
#include "daemon/policy.h"

/* memfd, its seals and mode, and a second descriptor of it by /proc. */
static enum paged_status
memory_check(struct paged_error *error)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	enum paged_status status;
	void *map;
	int fd;

	status = memory_region_create("pagedd-check", size, &map, &fd, error);
	if (status != PAGED_OK)
		return status;
	munmap(map, size);
	close(fd);
	return PAGED_OK;
}

/* The daemon as its own peer: credentials, and a descriptor that reports its end to epoll. */
static enum paged_status
peer_check(int epoll_fd, int socket_fd, struct paged_error *error)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct policy_peer peer;
	enum paged_status status = policy_peer_read(socket_fd, &peer, error);
	int pidfd;

	policy_peer_free(&peer);
	if (status == PAGED_OK)
		status = pidfd_of_peer(socket_fd, getpid(), &pidfd, error);
	if (status != PAGED_OK)
		return status;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pidfd, &event) < 0)
		status = paged_fail(error, PAGED_ERR_SYSTEM, "a pidfd in epoll: %m");
	else if (pidfd_kill(pidfd, 0) < 0)
		status = paged_fail(error, PAGED_ERR_SYSTEM, "pidfd_send_signal: %m");
	close(pidfd);
	return status;
}

static enum paged_status
sockets_check(struct paged_error *error)
{
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC), pair[2];
	enum paged_status status;

	if (epoll_fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "epoll_create1: %m");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		close(epoll_fd);
		return paged_fail(error, PAGED_ERR_SYSTEM, "socketpair: %m");
	}
	status = peer_check(epoll_fd, pair[0], error);
	close(pair[0]);
	close(pair[1]);
	close(epoll_fd);
	return status;
}

enum paged_status
kernel_check(struct paged_error *error)
{
	struct paged_error why;
	enum paged_status status = memory_check(&why);

	if (status == PAGED_OK)
		status = sockets_check(&why);
	if (status == PAGED_OK)
		status = zmq_needs_check(&why);
	if (status == PAGED_OK)
		return PAGED_OK;
	return paged_fail(error, status, "pagedd cannot work here: %s", why.text);
}
