/* SPDX-License-Identifier: Apache-2.0 */
/**
 * support.h - memory, the clock, and how this program fails: with a sentence, at once
 *
 * A function that meets an error which the program cannot go on after ends
 * the process, so its callers need no error path.  Nothing has to be undone:
 * the daemon takes a dead worker's pages back.
 */
#ifndef LLAMA_SUPPORT_H
#define LLAMA_SUPPORT_H

#include <stddef.h>

/** Exit statuses. */
enum { EXIT_ANSWERED = 0, EXIT_FAILED = 1, EXIT_WRONG_OPTIONS = 2, EXIT_DIFFERENT = 3 };

/** How die() ends the process: what stands before the sentence (the program's name, or a worker's), and the status. */
extern const char *die_label;
extern int die_status;

/** die - write the sentence to stderr and end the process */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** allocate - zeroed memory for n elements, to be freed; dies without memory */
void *allocate(size_t n, size_t size);

/** reallocate - old memory, or NULL, with room for n elements; new ones are not zeroed */
void *reallocate(void *old, size_t n, size_t size);

/** now_s - seconds of a clock that only goes forward */
double now_s(void);

#endif
