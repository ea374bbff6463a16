/* SPDX-License-Identifier: Apache-2.0 */
/* harness_internal.h - functions that the harness's files share */
#ifndef TESTS_HARNESS_INTERNAL_H
#define TESTS_HARNESS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

/** Read the beginning of a file, zero-terminated; "" if it cannot be read. */
void harness_read_file(const char *path, char *text, size_t size);

/** Whether process *(pid_t *)pid has exited and can be reaped; a condition for it_wait(). */
bool harness_process_ended(void *pid);

/** Remove the directory when the test has ended. */
void harness_remove_later(const char *dir);

#endif
