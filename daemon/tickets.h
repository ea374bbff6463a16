/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tickets.h - block masks that were too large for a reply and wait to be fetched
 *
 * A member's oldest one makes way when it has more than a few, and all go
 * when it leaves or does not come for them.  Number and bytes of all are
 * bounded: the oldest make way, whosever they are, for whoever wants a mask
 * comes for it at once.
 */
#ifndef PAGED_DAEMON_TICKETS_H
#define PAGED_DAEMON_TICKETS_H

#include "daemon/loop.h"

enum {
	TICKETS_MAX = 64,   /* in all: each holds a descriptor */
	TICKETS_MEMBER = 2, /* of one member */
	TICKETS_MS = 10000, /* then nobody will come */
};

struct ticket {
	uint64_t id; /* 0: free */
	uint32_t member;
	int fd;
	uint64_t size; /* bytes */
	uint64_t due_ms;
};

struct tickets {
	struct loop *loop;
	uint64_t max_bytes, n_bytes;
	uint64_t last_id;
	struct loop_timer timer;
	struct ticket ticket[TICKETS_MAX];
};

void tickets_open(struct tickets *tickets, struct loop *loop, uint64_t max_bytes);
void tickets_close(struct tickets *tickets);

/**
 * tickets_put - keep a descriptor for a member, which then owns it
 *
 * @retval PAGED_ERR_LIMIT  larger than all that may wait; fd is still the caller's
 */
enum paged_status tickets_put(struct tickets *tickets, uint32_t member, int fd, uint64_t size, uint64_t *id_p,
			      struct paged_error *error);

/**
 * tickets_take - the descriptor, which is the caller's to close
 *
 * @retval PAGED_ERR_NOENT  the member has none of this number (any more)
 */
enum paged_status tickets_take(struct tickets *tickets, uint32_t member, uint64_t id, int *fd_p, uint64_t *size_p,
			       struct paged_error *error);

/** tickets_drop - all of a member */
void tickets_drop(struct tickets *tickets, uint32_t member);

#endif
