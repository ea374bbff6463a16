/* SPDX-License-Identifier: Apache-2.0 */
/**
 * process.h - name a process to others, and learn of its end
 *
 * Threads: any.
 */
#ifndef PAGED_CLIENT_PROCESS_H
#define PAGED_CLIENT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

/** Of one process alone, also when its number is another's later. */
struct process_name {
	uint64_t random;  /* drawn by it */
	uint64_t started; /* clock ticks after the machine's start; 0: it could not tell */
	int32_t pid;
	uint32_t zero;
};

/** process_self - PAGED_ERR_SYSTEM without randomness */
enum paged_status process_self(struct process_name *name, struct paged_error *error);

/**
 * process_watch - a descriptor that is readable once the process has ended
 *
 * @retval PAGED_ERR_GONE  it has, or this process cannot see it: another PID namespace
 */
enum paged_status process_watch(const struct process_name *name, int *pidfd_p, struct paged_error *error);

/** process_ended - never blocks */
bool process_ended(int pidfd);

#endif
