/* SPDX-License-Identifier: Apache-2.0 */
/**
 * victim.h - the demonstration of a worker's death
 */
#ifndef LLAMA_VICTIM_H
#define LLAMA_VICTIM_H

#include <sys/types.h>

#include "examples/llama/options.h"

/**
 * victim_kill - SIGKILL a worker in mid-answer, and watch its pages come back
 *
 * Watches the daemon as an observer: waits until the worker's session takes
 * pages for its answer (its prompt's pages do not count), kills, and prints
 * how many pages were free again after how long.  The process is not reaped.
 */
void victim_kill(const struct options *options, pid_t pid);

#endif
