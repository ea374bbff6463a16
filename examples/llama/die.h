/* SPDX-License-Identifier: Apache-2.0 */
/**
 * die.h - errors end the program at once with a message
 *
 * A function that fails beyond recovery ends the process, so its callers need no
 * error path.  No cleanup is needed: the daemon frees a dead worker's pages.
 */
#ifndef LLAMA_DIE_H
#define LLAMA_DIE_H

/** Exit statuses. */
enum { EXIT_ANSWERED = 0, EXIT_FAILED = 1, EXIT_WRONG_OPTIONS = 2, EXIT_DIFFERENT = 3 };

/** How die() ends the process: the prefix of the message (name of the program or worker), and the exit status. */
extern const char *die_label;
extern int die_status;

/** die - write the message to stderr and end the process */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
