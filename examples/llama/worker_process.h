/* SPDX-License-Identifier: Apache-2.0 */
/**
 * worker_process.h - worker processes that take commands from a socket
 */
#ifndef LLAMA_WORKER_PROCESS_H
#define LLAMA_WORKER_PROCESS_H

#include <sys/types.h>

#include "examples/llama/options.h"

struct worker_process {
	pid_t pid;  /* 0: it was waited for */
	int socket; /* SOCK_SEQPACKET; -1: closed */
};

/** The whole work of a process; it returns when the socket reports end of file. */
typedef void (*worker_serve_fn)(const struct options *options, uint32_t number, int socket);

/** worker_processes_start - options->n_workers processes, which end with this one; returns an array of them */
struct worker_process *worker_processes_start(const struct options *options, worker_serve_fn serve);

/** worker_process_kill - SIGKILL, and wait until the process has ended */
void worker_process_kill(struct worker_process *worker);

/** worker_processes_end - close the sockets, wait, free the array; returns whether all that still ran have succeeded */
bool worker_processes_end(struct worker_process *workers, uint32_t n);

#endif
