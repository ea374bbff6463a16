/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kill_demo.h - shows that a killed worker's pages become free, or cached if it had published them
 */
#ifndef LLAMA_KILL_DEMO_H
#define LLAMA_KILL_DEMO_H

#include <sys/types.h>

#include "examples/llama/options.h"

/**
 * kill_demo_run - SIGKILL a worker during its answer, wait until its pages are free, and print the time
 *
 * This process polls the daemon as an observer to see when the worker's session
 * takes pages for its answer, and when the session is gone.
 *
 * @param[in] pid  process of worker options->kill_worker; it is not reaped
 */
void kill_demo_run(const struct options *options, pid_t pid);

#endif
