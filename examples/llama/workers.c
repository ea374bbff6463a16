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
#include "examples/llama/die.h"
#include "examples/llama/kill_demo.h"

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
		printf("worker %-3u  %7u  %6llu  %8.1f  %6.2f s  %5llu  %5u  %s\n", number, report->n_prompts,
		       (unsigned long long)report->n_tokens, (double)report->n_tokens / report->seconds,
		       report->first_token_s, (unsigned long long)report->n_found_tokens, report->peak_pages,
		       verdicts[report->verdict]);
	else if (WIFSIGNALED(worker->status))
		printf("worker %-3u  killed by signal %d (%s)\n", number, WTERMSIG(worker->status),
		       strsignal(WTERMSIG(worker->status)));
	else
		printf("worker %-3u  failed\n", number);
}

static void
print_summary(const struct worker *workers, uint32_t n)
{
	uint64_t n_tokens = 0, n_found = 0;
	uint32_t n_prompts = 0, n_pages = 0;
	double seconds = 0;

	printf("%10s  %7s  %6s  %8s  %8s  %5s  %5s  %s\n", "", "prompts", "tokens", "tokens/s", "first", "found",
	       "pages", "equal to a private cache");
	for (uint32_t i = 0; i < n; i++) {
		print_worker(i, &workers[i]);
		if (!workers[i].reported)
			continue;
		n_prompts += workers[i].report.n_prompts;
		n_tokens += workers[i].report.n_tokens;
		n_found += workers[i].report.n_found_tokens;
		n_pages += workers[i].report.peak_pages;
		seconds = workers[i].report.seconds > seconds ? workers[i].report.seconds : seconds;
	}
	if (seconds > 0)
		printf("%-10s  %7u  %6llu  %8.1f  %8s  %5llu  %5u\n", "all", n_prompts, (unsigned long long)n_tokens,
		       (double)n_tokens / seconds, "", (unsigned long long)n_found, n_pages);
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
