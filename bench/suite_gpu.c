/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention and append on a GPU: medians of a layer of a captured graph, by
 * the device's clock.  Each group of figures is measured in a process of its
 * own: what one does to the device or dies of, the next does not see.  SIGTERM
 * and SIGINT end the run after the group that is being measured, and what there
 * is by then is printed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/gpu_scene.h"

#define MAX_OF_GROUP 4
#define GROUP_LIMIT_S 120
#define FIGURE_US 4e5 /* of sampling */
#define LEAST_SAMPLES 5u
#define WARM_UPS 3
#define READER_TRIES 4

static volatile sig_atomic_t stopped;

static void
stop(int number)
{
	(void)number;
	stopped = 1;
}

/* In the group's process */

struct group {
	const struct gpu_figure *figures;
	size_t n;
	const struct bench_options *options;
	struct gpu gpu;
	struct gpu_pool pools[MAX_OF_GROUP];
	size_t n_pools;
	struct gpu_scene scenes[MAX_OF_GROUP];
	struct gpu_graph graphs[MAX_OF_GROUP];
	double samples[MAX_OF_GROUP][BENCH_MAX_SAMPLES];
};

/* The pool that a figure is measured in; opened by the first of those that share it. */
static const struct gpu_pool *
pool_for(struct group *group, size_t i)
{
	for (size_t p = 0; p < group->n_pools; p++)
		if (gpu_figure_fits(group->pools[p].like, &group->figures[i]))
			return &group->pools[p];
	gpu_pool_open(&group->gpu, &group->pools[group->n_pools], &group->figures[i], group->n - i,
		      group->options->quick);
	return &group->pools[group->n_pools++];
}

/* As many blocks as read fastest. */
static void
reader_tune(struct group *group, size_t i)
{
	struct gpu *gpu = &group->gpu;
	uint32_t blocks = gpu->n_multiprocessors;
	double best = 0;

	for (unsigned int attempt = 0; attempt < READER_TRIES; attempt++, blocks *= 2) {
		struct gpu_graph graph;
		double us = 0;

		gpu->reader_blocks = blocks;
		graph = gpu_graph(gpu, gpu_scene_work, &group->scenes[i], gpu_scene_parts(&group->scenes[i]));
		for (unsigned int j = 0; j < WARM_UPS; j++)
			us = gpu_graph_us(gpu, &graph);
		if (attempt == 0 || us < best) {
			best = us;
			group->graphs[i] = graph;
		}
	}
}

static size_t
samples_for(const struct group *group)
{
	double round_us = 0;
	size_t n;

	if (group->options->quick)
		return 1;
	for (size_t i = 0; i < group->n; i++)
		round_us += gpu_graph_us((struct gpu *)&group->gpu, &group->graphs[i]) * group->graphs[i].n_parts;
	n = (size_t)(FIGURE_US * (double)group->n / round_us);
	n = n < LEAST_SAMPLES ? LEAST_SAMPLES : n;
	return n < group->options->n_samples ? n : group->options->n_samples;
}

static void
group_open(struct group *group)
{
	gpu_open(&group->gpu);
	for (size_t i = 0; i < group->n; i++) {
		struct gpu_scene *scene = &group->scenes[i];

		gpu_scene_open(&group->gpu, scene, pool_for(group, i), &group->figures[i], group->options->quick);
		if (scene->figure->work == GPU_READ && !group->options->quick)
			reader_tune(group, i);
		else
			group->graphs[i] = gpu_graph(&group->gpu, gpu_scene_work, scene, gpu_scene_parts(scene));
		for (unsigned int j = 0; j < WARM_UPS && !group->options->quick; j++)
			gpu_graph_us(&group->gpu, &group->graphs[i]);
		gpu_scene_check(scene);
	}
}

static const double *
limit_of(const struct group *group, size_t i)
{
	for (size_t j = 0; group->figures[i].limit != NULL && j < group->n; j++)
		if (strcmp(group->figures[j].name, group->figures[i].limit) == 0)
			return group->samples[j];
	return group->samples[i];
}

static void
group_measure(struct group *group, struct bench_result *results)
{
	size_t n_samples;

	group_open(group);
	n_samples = samples_for(group);
	for (size_t s = 0; s < n_samples; s++)
		for (size_t i = 0; i < group->n; i++)
			group->samples[i][s] = gpu_graph_us(&group->gpu, &group->graphs[i]);
	for (size_t i = 0; i < group->n; i++) {
		report_summarise(&results[i], group->samples[i], limit_of(group, i), n_samples);
		gpu_scene_amount(&group->scenes[i], &results[i]);
	}
}

static void
group_run(const struct gpu_figure *figures, size_t n, const struct bench_options *options, int to)
{
	static struct group group;
	struct bench_result results[MAX_OF_GROUP] = { 0 };

	group.figures = figures;
	group.n = n;
	group.options = options;
	group_measure(&group, results);
	for (size_t p = 0; p < group.n_pools; p++)
		if (group.pools[p].like->export != NULL)
			bench_daemon_stop();
	if (write(to, results, n * sizeof(*results)) != (ssize_t)(n * sizeof(*results)))
		bench_die("write: %m");
}

/* In the suite's */

struct child {
	pid_t pid;
	int result, said; /* what it found, its last words */
};

/* NULL: describe the device. */
static struct child
child_start(const struct gpu_figure *figures, size_t n, const struct bench_options *options)
{
	struct child child;
	int result[2], said[2];

	if (pipe(result) != 0 || pipe(said) != 0)
		bench_die("pipe: %m");
	fflush(NULL);
	child = (struct child){ .pid = fork(), .result = result[0], .said = said[0] };
	if (child.pid != 0) {
		close(result[1]);
		close(said[1]);
		return child;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	alarm(GROUP_LIMIT_S);
	dup2(said[1], STDERR_FILENO);
	if (figures != NULL) {
		group_run(figures, n, options, result[1]);
	} else {
		char text[512] = "";
		struct gpu gpu;

		gpu_open(&gpu);
		gpu_describe(&gpu, text, sizeof(text));
		if (write(result[1], text, sizeof(text)) != sizeof(text))
			_exit(1);
	}
	_exit(0);
}

static size_t
read_all(int from, void *data, size_t size)
{
	size_t at = 0;
	ssize_t n;

	while (at < size && ((n = read(from, (char *)data + at, size - at)) > 0 || (n < 0 && errno == EINTR)))
		at += n > 0 ? (size_t)n : 0;
	close(from);
	return at;
}

/* True with all of `result`; else why, in one line. */
static bool
child_end(const struct child *child, void *result, size_t size, char *why, size_t why_size)
{
	bool complete = read_all(child->result, result, size) == size;
	char said[4096], *line;
	size_t n;
	int status;

	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	n = read_all(child->said, said, sizeof(said) - 1);
	said[n] = 0;
	if (complete)
		return true;
	while (n > 0 && said[n - 1] == '\n')
		said[--n] = 0;
	line = strrchr(said, '\n') != NULL ? strrchr(said, '\n') + 1 : said;
	if (strncmp(line, "paged-bench: ", 13) == 0)
		line += 13;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(why, why_size, "not done within %d s", GROUP_LIMIT_S);
	else if (WIFSIGNALED(status))
		snprintf(why, why_size, "ended by signal %d (%.180s)", WTERMSIG(status), line);
	else
		snprintf(why, why_size, "%.250s", line[0] != 0 ? line : "ended without a word");
	return false;
}

static void
group_report(struct bench_report *report, const struct gpu_figure *figures, size_t n,
	     const struct bench_options *options)
{
	struct child child = child_start(figures, n, options);
	struct bench_result results[MAX_OF_GROUP];
	char why[sizeof(results[0].skipped)];
	bool done = child_end(&child, results, n * sizeof(results[0]), why, sizeof(why));

	for (size_t i = 0; i < n; i++) {
		struct bench_result *result = report_add(report, figures[i].name, "us");

		if (!done) {
			snprintf(result->skipped, sizeof(result->skipped), "%s", why);
			continue;
		}
		results[i].unit = result->unit;
		memcpy(results[i].name, result->name, sizeof(result->name));
		*result = results[i];
		result->target = figures[i].target;
		if (figures[i].limit != NULL)
			snprintf(result->limit, sizeof(result->limit), "%s", figures[i].limit);
	}
}

static void
run(const struct bench_options *options, struct bench_report *report)
{
	const struct sigaction action = { .sa_handler = stop };
	struct child child = child_start(NULL, 0, options);
	char why[256];

	if (!child_end(&child, report->machine, sizeof(report->machine), why, sizeof(why))) {
		snprintf(report_add(report, "all", "us")->skipped, sizeof(why), "%s", why);
		return;
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	for (size_t i = 0, n; i < gpu_n_figures && !stopped; i += n) {
		for (n = 1; i + n < gpu_n_figures && strcmp(gpu_figures[i + n].group, gpu_figures[i].group) == 0;)
			n++;
		if (options->only != NULL && strstr(gpu_figures[i].group, options->only) == NULL)
			continue;
		if (isatty(STDERR_FILENO))
			fprintf(stderr, "\rgpu: %zu of %zu %-40s", i, gpu_n_figures, gpu_figures[i].name);
		group_report(report, &gpu_figures[i], n, options);
	}
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%*s\r", 70, "");
}

const struct bench_suite bench_suite_gpu = {
	.name = "gpu",
	.what = "a layer of decode, prefill and append on a GPU, beside reading the same pages",
	.run = run,
	.special = true,
};
