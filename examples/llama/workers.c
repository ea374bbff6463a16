/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/workers.h"

#include <errno.h>
#include <pagedclient.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/llama/compare_caches.h"
#include "examples/llama/support.h"

/* For the demonstration of a worker's death. */
#define POLL_INTERVAL_US 200
#define GROWTH_LIMIT_S 120.0
#define RETURN_LIMIT_S 10.0

/* In memory that the processes share: each worker writes its report here. */
struct worker {
	pid_t pid;
	int status;
	bool reported;
	struct report report;
};

int
worker_run(const struct options *options, uint32_t worker, const char *label, struct report *report)
{
	struct pipeline pipeline = { 0 };

	if (label != NULL)
		die_label = label;
	pipeline_load(&pipeline, options, worker == 0);
	pipeline_attach(&pipeline, options, die_label);
	replies_run(&pipeline, options, worker, label, report);
	if (options->compare_rounds > 0)
		compare_caches(&pipeline, options);
	pipeline_destroy(&pipeline);
	return report->verdict == VERDICT_DIFFERENT ? EXIT_DIFFERENT : EXIT_ANSWERED;
}

static void
worker_start(const struct options *options, uint32_t number, struct worker *worker)
{
	char label[32];
	int status;
	pid_t pid = fork();

	if (pid < 0)
		die("worker %u of %u: %s", number, options->n_workers, strerror(errno));
	if (pid > 0) {
		worker->pid = pid;
		return;
	}
	/* A worker ends with its parent process. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(label, sizeof(label), "worker %u", number);
	status = worker_run(options, number, label, &worker->report);
	worker->reported = true;
	fflush(stdout);
	_exit(status);
}

static void
print_worker(uint32_t number, const struct worker *worker)
{
	static const char *const verdicts[] = { "not compared", "yes", "no" };
	const struct report *report = &worker->report;

	if (worker->reported)
		printf("worker %-3u  %7u  %6llu  %8.1f  %5u  %s\n", number, report->n_prompts,
		       (unsigned long long)report->n_tokens, (double)report->n_tokens / report->seconds,
		       report->peak_pages, verdicts[report->verdict]);
	else if (WIFSIGNALED(worker->status))
		printf("worker %-3u  killed by signal %d (%s)\n", number, WTERMSIG(worker->status),
		       strsignal(WTERMSIG(worker->status)));
	else
		printf("worker %-3u  failed\n", number);
}

static void
print_summary(const struct worker *workers, uint32_t n)
{
	uint64_t n_tokens = 0;
	uint32_t n_prompts = 0, n_pages = 0;
	double seconds = 0;

	printf("%10s  %7s  %6s  %8s  %5s  %s\n", "", "prompts", "tokens", "tokens/s", "pages",
	       "equal to a private cache");
	for (uint32_t i = 0; i < n; i++) {
		print_worker(i, &workers[i]);
		if (!workers[i].reported)
			continue;
		n_prompts += workers[i].report.n_prompts;
		n_tokens += workers[i].report.n_tokens;
		n_pages += workers[i].report.peak_pages;
		seconds = workers[i].report.seconds > seconds ? workers[i].report.seconds : seconds;
	}
	if (seconds > 0)
		printf("%-10s  %7u  %6llu  %8.1f  %5u\n", "all", n_prompts, (unsigned long long)n_tokens,
		       (double)n_tokens / seconds, n_pages);
}

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

/* Wait until the session has reserved pages a second time, after those for the prompt.  Returns its number of pages. */
static uint32_t
wait_for_answer(struct paged_client *client, pid_t pid)
{
	double end = clock_now_s() + GROWTH_LIMIT_S;
	uint32_t n_pages = 0, n_prompt_pages = 0;
	siginfo_t ended = { 0 };

	while (n_prompt_pages == 0 || n_pages <= n_prompt_pages) {
		if (clock_now_s() > end || waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
		    ended.si_pid != 0)
			die("--kill: process %d ended or took no more pages before it could be killed", (int)pid);
		n_pages = find_session(client, pid).n_pages;
		if (n_prompt_pages == 0)
			n_prompt_pages = n_pages;
		usleep(POLL_INTERVAL_US);
	}
	return n_pages;
}

/*
 * SIGKILL a worker during its answer and wait until its pages are free.  This
 * process polls the daemon as an observer to see when the worker's session takes
 * pages for its answer, and when it is gone.  The process is not reaped.
 */
static void
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
	printf("kill -9 worker %u in mid-answer: its %u pages were free again after %.1f ms\n", options->kill_worker,
	       n_pages, (clock_now_s() - worker_start) * 1e3);
	fflush(stdout);
	paged_client_close(client);
}

int
workers_run(const struct options *options)
{
	size_t size = options->n_workers * sizeof(struct worker);
	struct worker *workers = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int worst = EXIT_ANSWERED, status;

	if (workers == MAP_FAILED)
		die("no memory for %u workers", options->n_workers);
	fflush(stdout);
	for (uint32_t i = 0; i < options->n_workers; i++)
		worker_start(options, i, &workers[i]);
	if (options->kill_worker != OPTIONS_KILL_NONE)
		kill_demo_run(options, workers[options->kill_worker].pid);
	for (uint32_t i = 0; i < options->n_workers; i++) {
		waitpid(workers[i].pid, &workers[i].status, 0);
		if (i == options->kill_worker)
			continue;
		status = WIFEXITED(workers[i].status) ? WEXITSTATUS(workers[i].status) : EXIT_FAILED;
		if (status != EXIT_ANSWERED && worst != EXIT_FAILED)
			worst = status;
	}
	print_summary(workers, options->n_workers);
	munmap(workers, size);
	return worst;
}
