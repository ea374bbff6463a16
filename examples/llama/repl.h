/* SPDX-License-Identifier: Apache-2.0 */
/**
 * repl.h - a conversation in the terminal
 */
#ifndef LLAMA_REPL_H
#define LLAMA_REPL_H

#include "examples/llama/options.h"

/**
 * repl_run - answer lines of stdin until it ends; all turns use one sequence,
 * so each turn prefills only its new tokens
 */
void repl_run(const struct options *options);

#endif
