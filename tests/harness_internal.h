/* SPDX-License-Identifier: Apache-2.0 */
/* harness_internal.h - what the files of the harness share */
#ifndef TESTS_HARNESS_INTERNAL_H
#define TESTS_HARNESS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

/** The file's beginning, zero-terminated; "" when it cannot be read. */
void harness_read_file(const char *path, char *text, size_t size);

/** *(pid_t *)pid has ended and waits to be reaped; for it_wait(). */
bool harness_has_ended(void *pid);

/** Remove the directory when the test is over. */
void harness_remove_later(const char *dir);

#endif
