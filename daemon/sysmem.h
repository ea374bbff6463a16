/* SPDX-License-Identifier: Apache-2.0 */
/**
 * sysmem.h - how much memory this machine, or this process's part of it, has
 */
#ifndef PAGED_DAEMON_SYSMEM_H
#define PAGED_DAEMON_SYSMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct sysmem {
	uint64_t total, available; /* bytes, of ordinary pages */
	uint64_t huge_size;        /* bytes of a reserved huge page; 0: there is no such thing */
	uint64_t huge_available;   /* bytes in free ones that nobody has reserved */
};

enum paged_status sysmem_read(struct sysmem *memory, struct paged_error *error);

/**
 * sysmem_cgroup - the tightest memory limit of the control groups above this process, of version 1 or 2
 *
 * @param[in] root  "": the system's; else a directory with another proc and sys
 * @return false: it is in no control group that has a limit
 */
bool sysmem_cgroup(const char *root, uint64_t *limit_p, uint64_t *available_p);

/** sysmem_transparent - does the administrator let shared memory have transparent huge pages when it asks for them? */
bool sysmem_transparent(void);

#endif
