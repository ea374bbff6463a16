/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/kill_demo.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/llama/clock.h"
#include "examples/llama/die.h"

#define POLL_INTERVAL_US 200
#define GROWTH_LIMIT_S 120.0
#define RETURN_LIMIT_S 10.0

/* The session that has the process as a member; zeroed if there is none. */
static struct paged_session_entry
find_session(struct paged_client *client, pid_t pid)
{
	struct paged_session_entry *list, found = { 0 };
	size_t n;

	if (paged_admin_sessions(client, sizeof(*list), &list, &n) != PAGED_OK)
		die("--kill: %s", paged_client_error(client));
	for (size_t i = 0; i < n; i++)
		if (list[i].pid == (uint32_t)pid)
			found = list[i];
	paged_free(list);
	return found;
}

/*
 * Wait until the session reserves more pages for the same sequences, which began with those for their prompts.
 * Returns its number of pages.
 */
static uint32_t
wait_for_answer(struct paged_client *client, pid_t pid)
{
	double end = clock_now_s() + GROWTH_LIMIT_S;
	struct paged_session_entry before = { 0 }, now = { 0 };
	siginfo_t ended = { 0 };

	while (before.n_pages == 0 || now.n_pages <= before.n_pages) {
		if (clock_now_s() > end || waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
		    ended.si_pid != 0)
			die("--kill: process %d ended or took no more pages before it could be killed", (int)pid);
		now = find_session(client, pid);
		if (now.n_sequences != before.n_sequences)
			before = now;
		usleep(POLL_INTERVAL_US);
	}
	return now.n_pages;
}

void
kill_demo_run(const struct options *options, pid_t pid)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .name = "paged-llama", .observer = 1 };
	struct paged_client *client;
	struct paged_session_entry entry;
	uint32_t n_pages;
	double worker_start;

	if (paged_client_open(options->runtime_dir, &params, &client) != PAGED_OK)
		die("--kill: %s", paged_client_error(client));
	n_pages = wait_for_answer(client, pid);
	worker_start = clock_now_s();
	kill(pid, SIGKILL);
	while (entry = find_session(client, pid), entry.session != 0)
		if (clock_now_s() - worker_start > RETURN_LIMIT_S)
			die("--kill: session %u still has %u pages %.0f s after its process was killed", entry.session,
			    entry.n_pages + entry.n_quarantined, RETURN_LIMIT_S);
	printf("kill -9 worker %u in mid-answer: its %u pages were free or cached again after %.1f ms\n",
	       options->kill_worker, n_pages, (clock_now_s() - worker_start) * 1e3);
	fflush(stdout);
	paged_client_close(client);
}
