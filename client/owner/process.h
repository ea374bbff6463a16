/* SPDX-License-Identifier: Apache-2.0 */
/**
 * process.h - identify a process to other processes, and detect its end
 *
 * Threads: any.
 */
#ifndef PAGED_CLIENT_PROCESS_H
#define PAGED_CLIENT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

/** Identifies one process, even after its pid was reused. */
struct process_name {
	uint64_t random;  /* drawn by that process */
	uint64_t started; /* start time in clock ticks since boot; 0: unknown */
	int32_t pid;
	uint32_t zero;
};

/** process_self - identify the calling process; PAGED_ERR_SYSTEM if the system gives no random bytes */
enum paged_status process_self(struct process_name *name, struct paged_error *error);

/**
 * process_watch - open a pidfd, which becomes readable when the process ends
 *
 * @retval PAGED_ERR_GONE  the process has ended, or is not visible from here (another PID namespace)
 */
enum paged_status process_watch(const struct process_name *name, int *pidfd_p, struct paged_error *error);

/** process_ended - has the process of this pidfd ended?  Never blocks */
bool process_ended(int pidfd);

#endif
