/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compare.h - how fast the model is with the pool, and without
 *
 * The same prompts are answered from the pool and from a private contiguous
 * cache, in turn, by the same threads and the same products: cache and attention
 * are all that differs.  Answers have max_tokens tokens on either side, so that
 * both do the same work.
 */
#ifndef LLAMA_COMPARE_H
#define LLAMA_COMPARE_H

#include "examples/llama/options.h"
#include "examples/llama/setup.h"

/** compare_run - options->compare rounds of each; medians, and where the time went, on stdout */
void compare_run(struct setup *setup, const struct options *options);

#endif
