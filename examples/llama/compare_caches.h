/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compare_caches.h - measures the model with the pool and with a private cache
 *
 * The same prompts are answered from the pool and from a private contiguous
 * cache, in turn, by the same threads and the same matrix products: only cache and
 * attention differ.  Answers have max_tokens tokens on both sides, so that
 * both do the same work.
 */
#ifndef LLAMA_COMPARE_CACHES_H
#define LLAMA_COMPARE_CACHES_H

#include "examples/llama/options.h"
#include "examples/llama/pipeline.h"

/**
 * compare_caches - run options->compare_rounds rounds with each cache; print medians and the shares of time on stdout
 */
void compare_caches(struct pipeline *pipeline, const struct options *options);

#endif
