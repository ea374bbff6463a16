/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/worker_process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

static void
worker_process_start(const struct options *options, worker_serve_fn serve, struct worker_process *workers,
		     uint32_t number)
{
	char label[32];
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		die("worker %u of %u: %s", number, options->n_workers, strerror(errno));
	workers[number].pid = fork();
	if (workers[number].pid < 0)
		die("worker %u of %u: %s", number, options->n_workers, strerror(errno));
	if (workers[number].pid > 0) {
		close(sockets[1]);
		workers[number].socket = sockets[0];
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Only the parent holds its ends, so that a worker reads end of file when the parent closes them. */
	for (uint32_t i = 0; i < number; i++)
		close(workers[i].socket);
	close(sockets[0]);
	snprintf(label, sizeof(label), "worker %u", number);
	die_label = label;
	serve(options, number, sockets[1]);
	_exit(EXIT_ANSWERED);
}

struct worker_process *
worker_processes_start(const struct options *options, worker_serve_fn serve)
{
	struct worker_process *workers = xcalloc(options->n_workers, sizeof(*workers));

	fflush(stdout);
	for (uint32_t i = 0; i < options->n_workers; i++)
		worker_process_start(options, serve, workers, i);
	return workers;
}

void
worker_process_kill(struct worker_process *worker)
{
	kill(worker->pid, SIGKILL);
	waitpid(worker->pid, NULL, 0);
	close(worker->socket);
	worker->pid = 0;
	worker->socket = -1;
}

bool
worker_processes_end(struct worker_process *workers, uint32_t n)
{
	bool succeeded = true;
	int status;

	for (uint32_t i = 0; i < n; i++)
		if (workers[i].pid != 0)
			close(workers[i].socket);
	for (uint32_t i = 0; i < n; i++)
		if (workers[i].pid != 0)
			succeeded &= waitpid(workers[i].pid, &status, 0) > 0 && status == 0;
	free(workers);
	return succeeded;
}
