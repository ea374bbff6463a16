/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kernel_feature.h - lets tests disable features of newer kernels, to exercise the fallbacks
 */
#ifndef PAGED_DAEMON_KERNEL_FEATURE_H
#define PAGED_DAEMON_KERNEL_FEATURE_H

#include <stdbool.h>
#include <stdlib.h>

/** kernel_feature_enabled - false: a test build has this environment variable set, and must use the fallback */
static inline bool
kernel_feature_enabled(const char *variable)
{
#ifdef PAGED_FAULTS
	return getenv(variable) == NULL;
#else
	(void)variable;
	return true;
#endif
}

#endif
