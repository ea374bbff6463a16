/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fault.h - fault injection for test builds
 *
 * Fault points are active only in code compiled with PAGED_FAULTS; elsewhere
 * they cost nothing.  The environment variable PAGED_FAULT names one point
 * and, after a colon, which hit of it fails (default: the first), as in
 * PAGED_FAULT=page-table-update:3.
 *
 *   page-table-update  the process kills itself while it replaces a page table
 *   corrupt-count      the count of the first page taken is one too high
 *
 * Threads: one caller at a time.
 */
#ifndef PAGED_FAULT_H
#define PAGED_FAULT_H

#include <stdbool.h>

#ifdef PAGED_FAULTS
/** paged_fault - true: the caller must inject its fault now; "page-table-update" kills the process instead */
bool paged_fault(const char *point);
#else
static inline bool
paged_no_fault(void)
{
	return false;
}
#define paged_fault(point) paged_no_fault()
#endif

#endif
