/* SPDX-License-Identifier: Apache-2.0 */
/**
 * split_demo.h - shows what a split of prefill and decode changes for answers that are being written
 */
#ifndef LLAMA_SPLIT_DEMO_H
#define LLAMA_SPLIT_DEMO_H

#include "examples/llama/options.h"

/**
 * split_demo_run - serve the same stream of prompts in two arrangements of the workers, and compare
 *
 * A prompt arrives every options->split_interval_ms.  First each worker prefills and decodes what it is given, in turn;
 * then worker 0 prefills all prompts and the others decode.  For each prompt the times to the first token and between
 * tokens are printed.  With options->kill_worker, worker 0 is killed when it has given its last sequence, and before
 * that sequence is adopted.
 *
 * @return EXIT_DIFFERENT if a token differs
 */
int split_demo_run(const struct options *options);

#endif
