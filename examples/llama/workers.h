/* SPDX-License-Identifier: Apache-2.0 */
/**
 * workers.h - several processes on one pool
 */
#ifndef LLAMA_WORKERS_H
#define LLAMA_WORKERS_H

#include "examples/llama/replies.h"

/**
 * workers_run - start the processes, wait for them, print their results
 *
 * A process that dies does not disturb the others.
 * @return the exit status: the most severe one of the processes
 */
int workers_run(const struct options *options);

/** worker_run - load, attach, answer; returns the exit status */
int worker_run(const struct options *options, uint32_t worker, const char *label, struct report *report);

#endif
