/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - random bytes from the kernel, for boot ids, tokens and names of endpoints */
#ifndef PAGED_DAEMON_RANDOM_H
#define PAGED_DAEMON_RANDOM_H

#include <stddef.h>

#include "common/status.h"

/** daemon_random - fill with random bytes from the kernel; size is at most 256 */
enum paged_status daemon_random(void *bytes, size_t size, struct paged_error *error);

#endif
