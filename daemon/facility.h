/* SPDX-License-Identifier: Apache-2.0 */
/**
 * facility.h - use of what newer kernels have, and how tests go without
 */
#ifndef PAGED_DAEMON_FACILITY_H
#define PAGED_DAEMON_FACILITY_H

#include <stdbool.h>
#include <stdlib.h>

/** facility_wanted - false: a test build was told by this variable to take the path of older kernels */
static inline bool
facility_wanted(const char *variable)
{
#ifdef PAGED_FAULTS
	return getenv(variable) == NULL;
#else
	(void)variable;
	return true;
#endif
}

#endif
