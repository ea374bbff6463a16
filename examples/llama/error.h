/* SPDX-License-Identifier: Apache-2.0 */
/**
 * error.h - a sentence for the person who started the program
 *
 * Functions that can fail return false and leave the sentence in their last
 * argument, which is never NULL.  Whoever first knows the cause writes it;
 * callers pass it on.
 */
#ifndef LLAMA_ERROR_H
#define LLAMA_ERROR_H

#include <stdbool.h>

struct error {
	char text[512];
};

/** error_set - write the sentence (cut at the buffer's end) and return false */
bool error_set(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
