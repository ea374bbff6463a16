/* SPDX-License-Identifier: Apache-2.0 */
/**
 * converse.h - a conversation in the terminal
 *
 * One sequence for all of it: each turn reads only what is new.
 */
#ifndef LLAMA_CONVERSE_H
#define LLAMA_CONVERSE_H

#include "examples/llama/options.h"

/** converse - read lines from stdin and answer them, until its end */
void converse(const struct options *options);

#endif
