/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kernel_check.h - tries at start what the daemon needs of the kernel later
 *
 * A kernel that is too old, or a seccomp filter that refuses a call, must be an error of the start and of
 * --check-config, not of every attach.
 */
#ifndef PAGED_DAEMON_KERNEL_CHECK_H
#define PAGED_DAEMON_KERNEL_CHECK_H

#include "common/status.h"

/**
 * kernel_check - make a memory file as those of tables, learn who is at the other end of a socket and when it ends,
 * and create threads
 */
enum paged_status kernel_check(struct paged_error *error);

#endif
