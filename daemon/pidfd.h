/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pidfd.h - process descriptors, which become readable when the process has ended
 */
#ifndef PAGED_DAEMON_PIDFD_H
#define PAGED_DAEMON_PIDFD_H

#include <sys/types.h>

#include "common/status.h"

/**
 * pidfd_of_peer - open the pidfd of the process that connected a socket
 *
 * Uses SO_PEERPIDFD (Linux 6.5), else pidfd_open() on the pid.  In that case
 * it checks afterwards that the socket is still connected, because the pid
 * may have been reused meanwhile.
 *
 * @retval PAGED_ERR_GONE  the process has ended
 */
enum paged_status pidfd_of_peer(int socket_fd, pid_t pid, int *pidfd_p, struct paged_error *error);

/** pidfd_kill - send a signal; -1 and errno on failure */
int pidfd_kill(int pidfd, int signal);

#endif
