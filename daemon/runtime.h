/* SPDX-License-Identifier: Apache-2.0 */
/**
 * runtime.h - the runtime directory: one owner, and names for sockets in it
 *
 *   lock       flock()ed for the daemon's life; holds its pid; never removed
 *   control    the control socket
 *   rpc-<hex>  the RPC socket of one member
 *
 * A daemon that died leaves sockets behind; the next owner removes them.
 *
 * Modes are as narrow as the allow-lists permit: directory 0750 and sockets
 * 0660 for the daemon's user and the one allow-group; when other users or
 * several groups may attach, 0711 and 0666, and credentials alone decide.
 */
#ifndef PAGED_DAEMON_RUNTIME_H
#define PAGED_DAEMON_RUNTIME_H

#include "daemon/config.h"
#include "proto/wire.h"

struct runtime {
	char *dir; /* absolute */
	int lock_fd;
};

/**
 * runtime_open - take the directory, or say who has it
 *
 * Sets the process's umask for the sockets to come.
 *
 * @param[in] dir  created when missing (its parent is not)
 */
enum paged_status runtime_open(struct runtime *runtime, const char *dir, const struct config *config,
			       struct paged_error *error);

/** runtime_check - whether runtime_open() would refuse it for this user, but for another daemon that has it */
enum paged_status runtime_check(const char *dir, const struct config *config, struct paged_error *error);

/** runtime_close - removes the sockets that are left, and lets go */
void runtime_close(struct runtime *runtime);

/** runtime_endpoint - a random name for a member's RPC socket */
void runtime_endpoint(const struct runtime *runtime, const uint8_t random[16], char endpoint[WIRE_MAX_ENDPOINT]);

/** runtime_endpoint_remove - its file, which zmq_unbind() leaves */
void runtime_endpoint_remove(const char *endpoint);

#endif
