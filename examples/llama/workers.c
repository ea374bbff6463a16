/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/llama/compare.h"
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
	struct error error;
	bool ok;

	ok = setup_load(&setup, options, worker == 0, &error) &&
	     setup_attach(&setup, options, label != NULL ? label : "paged-llama", &error) &&
	     answers_run(&setup, options, worker, label, report, &error) &&
	     (options->compare == 0 || compare_run(&setup, options, &error));
	if (!ok)
		fprintf(stderr, "%s: %s\n", label != NULL ? label : "paged-llama", error.text);
	setup_destroy(&setup);
	if (!ok)
		return EXIT_FAILED;
	return report->verdict == VERDICT_DIFFERENT ? EXIT_DIFFERENT : EXIT_ANSWERED;
}

static void
worker_main(const struct options *options, uint32_t number, int to)
{
	struct report report = { 0 };
	char label[32];
	int status;

	snprintf(label, sizeof(label), "worker %u", number);
	status = worker_run(options, number, label, &report);
	if (status != EXIT_FAILED && write(to, &report, sizeof(report)) != (ssize_t)sizeof(report))
		status = EXIT_FAILED;
	fflush(stdout);
	_exit(status);
}

static bool
start(const struct options *options, uint32_t number, struct worker *worker)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		return false;
	worker->from = ends[0];
	worker->pid = fork();
	if (worker->pid == 0)
		worker_main(options, number, ends[1]);
	close(ends[1]);
	if (worker->pid < 0)
		close(ends[0]);
	return worker->pid > 0;
}

static void
finish(struct worker *worker)
{
	ssize_t n;

	/* The report fits a pipe, so the worker never waited for us. */
	do
		n = read(worker->from, &worker->report, sizeof(worker->report));
	while (n < 0 && errno == EINTR);
	worker->reported = n == (ssize_t)sizeof(worker->report);
	close(worker->from);
	while (waitpid(worker->pid, &worker->status, 0) < 0 && errno == EINTR)
		continue;
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
	struct worker *workers = calloc(options->n_workers, sizeof(*workers));
	uint32_t n_started = 0;
	int gravest = EXIT_ANSWERED, status;
	struct error error;

	if (workers == NULL) {
		fprintf(stderr, "paged-llama: no memory for %u workers\n", options->n_workers);
		return EXIT_FAILED;
	}
	fflush(stdout);
	while (n_started < options->n_workers && start(options, n_started, &workers[n_started]))
		n_started++;
	if (n_started < options->n_workers) {
		fprintf(stderr, "paged-llama: worker %u of %u: %s\n", n_started, options->n_workers, strerror(errno));
		gravest = EXIT_FAILED;
	}
	if (options->kill && options->victim < n_started &&
	    !victim_kill(options, options->victim, workers[options->victim].pid, &error)) {
		fprintf(stderr, "paged-llama: --kill %u: %s\n", options->victim, error.text);
		gravest = EXIT_FAILED;
	}
	for (uint32_t i = 0; i < n_started; i++) {
		finish(&workers[i]);
		if (options->kill && i == options->victim)
			continue;
		status = WIFEXITED(workers[i].status) ? WEXITSTATUS(workers[i].status) : EXIT_FAILED;
		if (status != EXIT_ANSWERED && gravest != EXIT_FAILED)
			gravest = status;
	}
	print_summary(workers, n_started);
	free(workers);
	return gravest;
}
