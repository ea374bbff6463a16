/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/victim.h"

#include <pagedclient.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_INTERVAL_US 200
#define GROWTH_LIMIT_MS 120000.0
#define RETURN_LIMIT_MS 10000.0

static double
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* The session whose member is that process; zeroed when there is none. */
static bool
look(struct paged_client *client, pid_t pid, struct paged_session_entry *entry, struct error *error)
{
	struct paged_session_entry *list;
	size_t n;

	memset(entry, 0, sizeof(*entry));
	if (paged_admin_sessions(client, &list, &n) != PAGED_OK)
		return error_set(error, "%s", paged_client_error(client));
	for (size_t i = 0; i < n; i++)
		if (list[i].pid == (uint32_t)pid)
			*entry = list[i];
	paged_free(list);
	return true;
}

static bool
has_ended(pid_t pid)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* Until the session has taken pages a second time: the first time was for the prompt. */
static bool
wait_for_answer(struct paged_client *client, pid_t pid, struct paged_session_entry *entry, struct error *error)
{
	double end = now_ms() + GROWTH_LIMIT_MS;
	uint32_t n_prompt_pages = 0;

	while (!has_ended(pid) && now_ms() < end) {
		if (!look(client, pid, entry, error))
			return false;
		if (n_prompt_pages == 0)
			n_prompt_pages = entry->n_pages;
		if (entry->n_pages > n_prompt_pages)
			return true;
		usleep(LOOK_INTERVAL_US);
	}
	return error_set(error, "process %d ended or took no more pages before it could be killed", (int)pid);
}

static bool
wait_for_pages(struct paged_client *client, pid_t pid, struct error *error)
{
	double end = now_ms() + RETURN_LIMIT_MS;
	struct paged_session_entry entry;

	do {
		if (!look(client, pid, &entry, error))
			return false;
		if (entry.session == 0)
			return true;
	} while (now_ms() < end);
	return error_set(error, "session %u still has %u pages %.0f s after its process was killed", entry.session,
			 entry.n_pages + entry.n_quarantined, RETURN_LIMIT_MS / 1e3);
}

bool
victim_kill(const struct options *options, uint32_t worker, pid_t pid, struct error *error)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .name = "paged-llama", .observer = 1 };
	struct paged_session_entry entry;
	struct paged_client *client;
	double start;
	bool ok;

	if (paged_client_open(options->runtime_dir, &params, &client) != PAGED_OK) {
		error_set(error, "%s", paged_client_error(client));
		paged_client_close(client);
		return false;
	}
	ok = wait_for_answer(client, pid, &entry, error);
	if (ok) {
		start = now_ms();
		kill(pid, SIGKILL);
		ok = wait_for_pages(client, pid, error);
	}
	if (ok) {
		printf("kill -9 worker %u in mid-answer: its %u pages were free again after %.1f ms\n", worker,
		       entry.n_pages, now_ms() - start);
		fflush(stdout);
	}
	paged_client_close(client);
	return ok;
}
