/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/llama/compare.h"
#include "examples/llama/support.h"
#include "examples/llama/victim.h"

struct worker {
	pid_t pid;
	int from; /* its report comes here */
	int status;
	bool reported;
	struct report report;
};

int
worker_run(const struct options *options, uint32_t worker, const char *label, struct report *report)
{
	struct setup setup = { 0 };

	if (label != NULL)
		die_label = label;
	setup_load(&setup, options, worker == 0);
	setup_attach(&setup, options, die_label);
	answers_run(&setup, options, worker, label, report);
	if (options->compare > 0)
		compare_run(&setup, options);
	setup_destroy(&setup);
	return report->verdict == VERDICT_DIFFERENT ? EXIT_DIFFERENT : EXIT_ANSWERED;
}

static void
start(const struct options *options, uint32_t number, struct worker *worker)
{
	struct report report = { 0 };
	char label[32];
	int ends[2], status;

	if (pipe2(ends, O_CLOEXEC) != 0 || (worker->pid = fork()) < 0)
		die("worker %u of %u: %s", number, options->n_workers, strerror(errno));
	worker->from = ends[0];
	if (worker->pid == 0) {
		/* None works on without the process that waits for it. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(label, sizeof(label), "worker %u", number);
		status = worker_run(options, number, label, &report);
		if (write(ends[1], &report, sizeof(report)) != (ssize_t)sizeof(report))
			die("%s", strerror(errno));
		fflush(stdout);
		_exit(status);
	}
	close(ends[1]);
}

static void
finish(struct worker *worker)
{
	/* The report fits a pipe, so the worker never waited for us. */
	ssize_t n = read(worker->from, &worker->report, sizeof(worker->report));

	worker->reported = n == (ssize_t)sizeof(worker->report);
	close(worker->from);
	waitpid(worker->pid, &worker->status, 0);
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

int
workers_run(const struct options *options)
{
	struct worker *workers = allocate(options->n_workers, sizeof(*workers));
	int gravest = EXIT_ANSWERED, status;

	fflush(stdout);
	for (uint32_t i = 0; i < options->n_workers; i++)
		start(options, i, &workers[i]);
	if (options->victim != OPTIONS_NO_VICTIM)
		victim_kill(options, workers[options->victim].pid);
	for (uint32_t i = 0; i < options->n_workers; i++) {
		finish(&workers[i]);
		if (i == options->victim)
			continue;
		status = WIFEXITED(workers[i].status) ? WEXITSTATUS(workers[i].status) : EXIT_FAILED;
		if (status != EXIT_ANSWERED && gravest != EXIT_FAILED)
			gravest = status;
	}
	print_summary(workers, options->n_workers);
	free(workers);
	return gravest;
}
