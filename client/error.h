/* SPDX-License-Identifier: Apache-2.0 */
/**
 * error.h - the last sentence of each thread on each client
 *
 * Kept in the thread that failed, under the client's serial number, so that
 * no lock is needed, two threads never see each other's sentence, and a
 * sentence of a closed client is never taken for a newer one's.  A thread
 * keeps the sentences of the ERROR_SLOTS clients that failed last in it.
 */
#ifndef PAGED_CLIENT_ERROR_H
#define PAGED_CLIENT_ERROR_H

#include <stdint.h>

#include "common/status.h"

#define ERROR_SLOTS 8

/** error_serial - a number that no other client of this process has */
uint64_t error_serial(void);

void error_keep(uint64_t serial, const struct paged_error *error);

/** error_text - "" when nothing failed */
const char *error_text(uint64_t serial);

#endif
