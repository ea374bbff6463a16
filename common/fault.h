/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fault.h - places where a test build can be made to go wrong
 *
 * Only code compiled with PAGED_FAULTS looks; elsewhere a point costs
 * nothing.  The environment names one point and which hit of it acts
 * (the first, unless told): PAGED_FAULT=row-update:3.
 *
 *   row-update     the process kills itself inside a row's replacement
 *   corrupt-count  a page's count is one too high after a reserve
 *
 * Threads: one caller at a time.
 */
#ifndef PAGED_FAULT_H
#define PAGED_FAULT_H

#include <stdbool.h>

#ifdef PAGED_FAULTS
/** paged_fault - true: the caller shall go wrong now; for "row-update" does not return then */
bool paged_fault(const char *point);
#else
static inline bool
paged_fault(const char *point)
{
	(void)point;
	return false;
}
#endif

#endif
