/* SPDX-License-Identifier: Apache-2.0 */
/**
 * facility.h - lets tests disable features of newer kernels, to exercise the fallbacks
 */
#ifndef PAGED_DAEMON_FACILITY_H
#define PAGED_DAEMON_FACILITY_H

#include <stdbool.h>
#include <stdlib.h>

/** facility_wanted - false: a test build has this environment variable set, and must use the fallback */
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
