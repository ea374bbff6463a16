/* SPDX-License-Identifier: Apache-2.0 */
/**
 * process.h - what the program needs of its process before anything else
 */
#ifndef PAGED_EVENTS_PROCESS_H
#define PAGED_EVENTS_PROCESS_H

#include <stdbool.h>

/**
 * process_prepare - open /dev/null for closed standard descriptors, and try to create threads
 *
 * Else the next file would become standard error, and libzmq would abort the process where it gets no thread.
 * @return false: the program cannot work; the reason was logged
 */
bool process_prepare(void);

#endif
