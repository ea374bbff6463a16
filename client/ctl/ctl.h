/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ctl.h - pagedctl's commands and how they print
 *
 * A command asks the daemon through pagedclient.h alone and prints either a
 * table for people or one JSON document for programs.
 */
#ifndef PAGED_CTL_H
#define PAGED_CTL_H

#include <stdbool.h>
#include <stddef.h>

#include "client/pagedclient.h"

/** Exit codes; documented in pagedctl(8). */
enum ctl_exit { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2, CTL_NO_DAEMON = 3, CTL_CHECK_FAILED = 4 };

struct ctl {
	struct paged_client *client; /* an observer */
	const char *pool;            /* --pool, or NULL */
	const char *operand;         /* the command's own, or NULL */
	bool json;                   /* --json */
	bool kill;                   /* --kill */
};

/** ctl_fail - print the client's sentence, return the exit code for a status */
enum ctl_exit ctl_fail(const struct ctl *ctl, enum paged_status status);

/** ctl_usage - print a complaint about the command line */
enum ctl_exit ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum ctl_exit ctl_status(struct ctl *ctl);
enum ctl_exit ctl_pools(struct ctl *ctl);
enum ctl_exit ctl_sessions(struct ctl *ctl);
enum ctl_exit ctl_sequences(struct ctl *ctl);
enum ctl_exit ctl_table(struct ctl *ctl);
enum ctl_exit ctl_check(struct ctl *ctl);
enum ctl_exit ctl_kick(struct ctl *ctl);

#endif
