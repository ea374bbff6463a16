/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pidfd.h - a process, held by descriptor: readable when it has ended
 */
#ifndef PAGED_DAEMON_PIDFD_H
#define PAGED_DAEMON_PIDFD_H

#include <sys/types.h>

#include "common/status.h"

/**
 * pidfd_of_peer - of the process that connected a socket
 *
 * By SO_PEERPIDFD (Linux 6.5), else from its pid; then the socket must be up
 * still, for a pid may have been given to another process meanwhile.
 *
 * @retval PAGED_ERR_GONE  the process has ended
 */
enum paged_status pidfd_of_peer(int socket_fd, pid_t pid, int *pidfd_p, struct paged_error *error);

/** pidfd_kill - send a signal; -1 and errno on failure */
int pidfd_kill(int pidfd, int signal);

#endif
