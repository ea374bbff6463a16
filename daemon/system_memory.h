/* SPDX-License-Identifier: Apache-2.0 */
/**
 * system_memory.h - memory of the machine, and the limits of this process's control groups
 */
#ifndef PAGED_DAEMON_SYSTEM_MEMORY_H
#define PAGED_DAEMON_SYSTEM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct system_memory {
	uint64_t total, available; /* bytes, of ordinary pages */
	uint64_t huge_size;        /* bytes of a huge page (hugetlbfs); 0: the kernel has none */
	uint64_t huge_available;   /* bytes of huge pages that are free and not reserved */
};

enum paged_status system_memory_read(struct system_memory *memory, struct paged_error *error);

/**
 * system_memory_cgroup_limit - the tightest memory limit of the control groups above this process, of version 1 or 2
 *
 * @param[in] root  "": the system's root; for tests, a directory with other proc and sys
 * @return false: no control group above this process has a limit
 */
bool system_memory_cgroup_limit(const char *root, uint64_t *limit_p, uint64_t *available_p);

/**
 * system_memory_transparent_huge_pages - true: shmem_enabled lets shared memory
 * use transparent huge pages after MADV_HUGEPAGE
 */
bool system_memory_transparent_huge_pages(void);

#endif
