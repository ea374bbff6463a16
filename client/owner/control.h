/* SPDX-License-Identifier: Apache-2.0 */
/**
 * control.h - the client's end of the control socket
 *
 * The client attaches and receives descriptors over this socket.  A hang-up of
 * the socket means that the daemon has died.  The daemon may send notices at
 * any time; every read of the socket handles them and updates the owner's
 * state.
 *
 * After a request timed out, its reply may still arrive.  A late reply is
 * discarded and its descriptors are closed before the next reply is read.
 */
#ifndef PAGED_CLIENT_CONTROL_H
#define PAGED_CLIENT_CONTROL_H

#include "client/owner/owner.h"
#include "proto/wire.h"

struct control {
	struct owner *owner; /* whose state notices change */
	int fd;              /* -1: not connected */
	unsigned int n_late; /* outstanding replies to requests that timed out */
	struct wire_arena arena;
	uint8_t buffer[WIRE_MAX_MESSAGE];
};

/** client_poll_ms - time left until a deadline, as a timeout of poll(2) */
int client_poll_ms(uint64_t deadline_ms);

/**
 * client_control_open - connect to DIR/control
 *
 * @retval PAGED_ERR_NO_DAEMON  no process listens on the socket
 * @retval PAGED_ERR_PERM       the socket's mode or directory keeps this process out
 */
enum paged_status client_control_open(struct control *control, struct owner *owner, const char *dir,
				      uint64_t deadline_ms, struct paged_error *error);

/** client_control_close - also valid after a failed open, and for a struct of zeros with fd -1 */
void client_control_close(struct control *control);

/**
 * client_control_call - send a request and wait for its reply
 *
 * If the daemon refuses the request, its status and error text are returned.
 *
 * @param[out] reply  valid until the next call
 * @param[out] fds    descriptors of a grant (wire_control_reply_fds()); the caller closes them; -1: none
 * @retval PAGED_ERR_GONE     the daemon hung up
 * @retval PAGED_ERR_TIMEOUT  no reply before the deadline
 */
enum paged_status client_control_call(struct control *control, const struct wire_control_request *request,
				      uint64_t deadline_ms, struct wire_control_reply *reply, int fds[WIRE_N_POOL_FDS],
				      struct paged_error *error);

/** client_control_hung_up - the daemon has closed its end; reads nothing, so any thread may ask; one system call */
bool client_control_hung_up(const struct control *control);

/** client_control_dispatch - handle the notices that have arrived; never blocks */
void client_control_dispatch(struct control *control);

#endif
