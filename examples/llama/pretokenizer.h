/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pretokenizer.h - cuts text into the pieces that byte pairs never cross
 *
 * One rule is known, `smollm`: every digit (any Unicode number) alone, then
 * what lies between them by GPT-2's rule.
 */
#ifndef LLAMA_PRETOKENIZER_H
#define LLAMA_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "examples/llama/error.h"

struct pretokenizer;

/** Takes one piece; false stops. */
typedef bool (*pretokenizer_fn)(void *argument, const char *piece, size_t size, struct error *error);

bool pretokenizer_create(struct pretokenizer **pretokenizer_p, struct error *error);

/** pretokenizer_destroy - takes NULL */
void pretokenizer_destroy(struct pretokenizer *pretokenizer);

/** pretokenizer_run - hand every piece of the text, in order; text that is not UTF-8 is refused */
bool pretokenizer_run(const struct pretokenizer *pretokenizer, const char *text, size_t size, pretokenizer_fn take,
		      void *argument, struct error *error);

#endif
