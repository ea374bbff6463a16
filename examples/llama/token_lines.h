/* SPDX-License-Identifier: Apache-2.0 */
/**
 * token_lines.h - answers lines of token ids, for a program at the other end of two pipes
 *
 * stdin has a prompt in each line: the maximum number of tokens of its answer, and
 * its token ids, in decimal, with a space between them.  stdout gets a line of JSON
 * when the model is loaded, for each token of an answer at once, and at its end:
 *
 *     {"ready": true}
 *     {"token": 504}
 *     {"prompt": 43, "found": 32, "tokens": 64}
 *
 * These are the tokens of the prompt, those of them that the prefix cache had, and
 * those of the answer.  Prompts are answered one after another.
 */
#ifndef LLAMA_TOKEN_LINES_H
#define LLAMA_TOKEN_LINES_H

#include "examples/llama/options.h"

/** token_lines_run - answer until stdin ends */
void token_lines_run(const struct options *options);

#endif
