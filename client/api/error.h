/* SPDX-License-Identifier: Apache-2.0 */
/**
 * error.h - the last error of each thread for each client: its text, and what was missing
 *
 * The error is thread-local and is keyed by the client's serial number.  No
 * lock is needed, no thread sees another thread's text, and a new client never
 * returns the text of a closed one.  A thread keeps the texts of the
 * ERROR_SLOTS clients that failed in it most recently.
 */
#ifndef PAGED_CLIENT_ERROR_H
#define PAGED_CLIENT_ERROR_H

#include <stdint.h>

#include "common/status.h"

#define ERROR_SLOTS 8

/** error_serial - a new number, unique among the clients of this process */
uint64_t error_serial(void);

void error_keep(uint64_t serial, const struct paged_error *error);

/** error_shortage - of the calling thread's last error of this client; NULL: it lacked neither pages nor slots */
const struct paged_shortage *error_shortage(uint64_t serial);

/** error_text - the calling thread's last error text for this client; "" if there is none */
const char *error_text(uint64_t serial);

#endif
