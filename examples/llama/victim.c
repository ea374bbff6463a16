/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/victim.h"

#include <pagedclient.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/llama/support.h"

#define LOOK_INTERVAL_US 200
#define GROWTH_LIMIT_S 120.0
#define RETURN_LIMIT_S 10.0

/* The session whose member is that process; zeroed when there is none. */
static struct paged_session_entry
look(struct paged_client *client, pid_t pid)
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

/* Until the session has taken pages a second time: the first time was for the prompt.  Returns how many it has. */
static uint32_t
wait_for_answer(struct paged_client *client, pid_t pid)
{
	double end = now_s() + GROWTH_LIMIT_S;
	uint32_t n_pages = 0, n_prompt_pages = 0;
	siginfo_t ended = { 0 };

	while (n_prompt_pages == 0 || n_pages <= n_prompt_pages) {
		if (now_s() > end || waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
		    ended.si_pid != 0)
			die("--kill: process %d ended or took no more pages before it could be killed", (int)pid);
		n_pages = look(client, pid).n_pages;
		if (n_prompt_pages == 0)
			n_prompt_pages = n_pages;
		usleep(LOOK_INTERVAL_US);
	}
	return n_pages;
}

void
victim_kill(const struct options *options, pid_t pid)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .name = "paged-llama", .observer = 1 };
	struct paged_client *client;
	struct paged_session_entry entry;
	uint32_t n_pages;
	double start;

	if (paged_client_open(options->runtime_dir, &params, &client) != PAGED_OK)
		die("--kill: %s", paged_client_error(client));
	n_pages = wait_for_answer(client, pid);
	start = now_s();
	kill(pid, SIGKILL);
	while (entry = look(client, pid), entry.session != 0)
		if (now_s() - start > RETURN_LIMIT_S)
			die("--kill: session %u still has %u pages %.0f s after its process was killed", entry.session,
			    entry.n_pages + entry.n_quarantined, RETURN_LIMIT_S);
	printf("kill -9 worker %u in mid-answer: its %u pages were free again after %.1f ms\n", options->victim,
	       n_pages, (now_s() - start) * 1e3);
	fflush(stdout);
	paged_client_close(client);
}
