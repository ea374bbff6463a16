/* SPDX-License-Identifier: Apache-2.0 */
/**
 * control.h - the client's end of the control socket
 *
 * Attaches, brings descriptors, and is how the client learns of the daemon's
 * death: the socket hangs up.  Notices that come in between are taken in
 * wherever the socket is read, and kept as the owner's state.
 *
 * A question that timed out is remembered: its answer, should it come, is
 * skipped (and its descriptors closed) before the next one's is looked for.
 */
#ifndef PAGED_CLIENT_CONTROL_H
#define PAGED_CLIENT_CONTROL_H

#include "client/owner.h"
#include "proto/wire.h"

struct control {
	struct owner *owner; /* whose state notices change */
	int fd;              /* -1: not connected */
	unsigned int n_late; /* answers that nobody waits for any more */
	struct wire_arena arena;
	uint8_t buffer[WIRE_MAX_MESSAGE];
};

/** control_poll_ms - what is left until a deadline, for poll(2) */
int control_poll_ms(uint64_t deadline_ms);

/**
 * control_open - connect to DIR/control
 *
 * @retval PAGED_ERR_NO_DAEMON  nobody listens there
 * @retval PAGED_ERR_PERM       the socket's mode or directory keeps this process out
 */
enum paged_status control_open(struct control *control, struct owner *owner, const char *dir, uint64_t deadline_ms,
			       struct paged_error *error);

/** control_close - also after a failed open, or on one that never was but is all zero with fd -1 */
void control_close(struct control *control);

/**
 * control_ask - send a request and wait for its answer
 *
 * A refusal becomes its status and sentence.
 * @param[out] reply  lives until the next call
 * @param[out] fds    those of the grant (wire_control_reply_fds()), the caller's to close; -1 where there is none
 * @retval PAGED_ERR_GONE     hung up
 * @retval PAGED_ERR_TIMEOUT  no answer before the deadline
 */
enum paged_status control_ask(struct control *control, const struct wire_control_request *request, uint64_t deadline_ms,
			      struct wire_control_reply *reply, int fds[WIRE_N_POOL_FDS], struct paged_error *error);

/** control_dispatch - take in what waits there; never blocks */
void control_dispatch(struct control *control);

#endif
