/* SPDX-License-Identifier: Apache-2.0 */
/**
 * share_demo.h - shows what a prompt's common beginning costs without and with the prefix cache
 */
#ifndef LLAMA_SHARE_DEMO_H
#define LLAMA_SHARE_DEMO_H

#include "examples/llama/options.h"

/**
 * share_demo_run - start a process for each prompt; each answers twice, and both answers are compared
 *
 * First every worker computes its whole prompt into pages of its own.  Then it
 * starts on what the workers before it have published.  Workers answer one
 * after another, so that times are those of one worker on an idle machine, and keep their
 * sequences until all have answered, so that the pages of all are counted.
 * Unless options->salt says otherwise, the run finds no prefix of another run.
 *
 * @return EXIT_DIFFERENT if a token differs
 */
int share_demo_run(const struct options *options);

#endif
