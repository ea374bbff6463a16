/* SPDX-License-Identifier: Apache-2.0 */
/**
 * seats.h - how many members there may be: in all, of a user, of a process
 *
 * A member keeps its seat until it said goodbye or its process ended, so a
 * process that hangs up again and again without a goodbye uses up its own
 * seats and nobody else's.  Administrators have some that max-members does
 * not count: a full house must not keep them from looking and kicking.
 */
#ifndef PAGED_DAEMON_SEATS_H
#define PAGED_DAEMON_SEATS_H

#include <stdbool.h>
#include <sys/queue.h>

#include "daemon/config.h"
#include "daemon/policy.h"

enum {
	SEATS_PER_PROCESS = 64,
	SEATS_OF_ADMINS = 8, /* beyond max-members */
	SEATS_BUCKETS = 256,
};

struct seats_count;

struct seats {
	uint32_t n;
	LIST_HEAD(, seats_count) counts[SEATS_BUCKETS]; /* of users and processes that have any */
};

void seats_open(struct seats *seats);
void seats_close(struct seats *seats);

/** seats_take - PAGED_ERR_LIMIT says which limit stands in the way */
enum paged_status seats_take(struct seats *seats, const struct config *config, uid_t uid, pid_t pid, bool admin,
			     struct paged_error *error);
void seats_give(struct seats *seats, uid_t uid, pid_t pid);

#endif
