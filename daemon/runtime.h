/* SPDX-License-Identifier: Apache-2.0 */
/**
 * runtime.h - the runtime directory, which has one owner and contains the sockets
 *
 *   lock       held with flock() by the daemon; contains its pid; never removed.  A daemon whose lock file is
 *              no longer the one in the directory does not own the directory, and removes nothing there
 *   control    the control socket
 *   rpc-<hex>-<pid>  the RPC socket of one member, and its process: a daemon that was killed leaves them to the next
 *
 * A killed daemon leaves its sockets behind; the next owner removes them.
 *
 * Modes are as restrictive as the allow-lists permit.  Directory 0750 and
 * sockets 0660 admit the daemon's user and the one allow-group.  If there is
 * an allow-user or more than one allow-group, the modes are 0711 and 0666,
 * and policy.h alone decides.  With exactly one allow-group the directory
 * belongs to that group and has its set-group-ID bit set.
 */
#ifndef PAGED_DAEMON_RUNTIME_H
#define PAGED_DAEMON_RUNTIME_H

#include <sys/types.h>

#include "daemon/config/config.h"
#include "proto/wire.h"

struct runtime {
	char *dir;  /* absolute */
	int dir_fd; /* files are removed through it: by its path there may be another daemon's directory meanwhile */
	int lock_fd;
	pid_t *stale; /* processes of the sockets that a killed daemon left: its members had not left */
	uint32_t n_stale;
	bool claimed; /* the sockets are this daemon's */
};

/**
 * runtime_open - create, check and lock the directory
 *
 * Sets the process's umask to the mode of the sockets.
 *
 * @param[in] dir  created if missing; its parent must exist
 * @retval PAGED_ERR_AGAIN  another pagedd has locked it; error has its pid
 * @retval PAGED_ERR_PERM   it belongs to another user or is writable by others
 * @retval PAGED_ERR_LIMIT  its path is too long for the socket names
 */
enum paged_status runtime_open(struct runtime *runtime, const char *dir, const struct config *config,
			       struct paged_error *error);

/**
 * runtime_claim - remove the sockets of a killed daemon
 *
 * Call it when the daemon has all that it needs: a start that fails before leaves them to the next.
 */
void runtime_claim(struct runtime *runtime);

/** runtime_check - fail as runtime_open() would for this user, except for the lock of another daemon */
enum paged_status runtime_check(const char *dir, const struct config *config, struct paged_error *error);

/** runtime_close - remove the remaining sockets, if the directory is still its own, and release the lock */
void runtime_close(struct runtime *runtime);

/** Random bytes of the name of a member's RPC socket. */
enum { RUNTIME_RANDOM_SIZE = 12 };

/** runtime_endpoint - make the ZeroMQ address of a member's RPC socket */
void runtime_endpoint(const struct runtime *runtime, const uint8_t random[RUNTIME_RANDOM_SIZE], pid_t pid,
		      char endpoint[WIRE_MAX_ENDPOINT]);

/** runtime_endpoint_remove - remove the socket's file, which zmq_unbind() leaves behind */
void runtime_endpoint_remove(const struct runtime *runtime, const char *endpoint);

#endif
