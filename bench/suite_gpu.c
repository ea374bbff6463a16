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
#define FIGURE_S 0.4 /* of sampling */
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

static struct group {
	const struct gpu_figure *figures;
	size_t n;
	struct gpu gpu;
	struct gpu_pool pools[MAX_OF_GROUP];
	size_t n_pools;
	struct gpu_scene scenes[MAX_OF_GROUP];
	struct gpu_graph graphs[MAX_OF_GROUP];
} group;

/* The pool that a figure is measured in; opened by the first of those that share it. */
static const struct gpu_pool *
pool_for(size_t i, bool quick)
{
	for (size_t p = 0; p < group.n_pools; p++)
		if (gpu_figure_fits(group.pools[p].like, &group.figures[i]))
			return &group.pools[p];
	gpu_pool_open(&group.gpu, &group.pools[group.n_pools], &group.figures[i], group.n - i, quick);
	return &group.pools[group.n_pools++];
}

/* As many blocks as read fastest. */
static void
reader_tune(size_t i)
{
	struct gpu *gpu = &group.gpu;
	uint32_t blocks = gpu->n_multiprocessors;
	double best = 0;

	for (unsigned int attempt = 0; attempt < READER_TRIES; attempt++, blocks *= 2) {
		struct gpu_graph graph;
		double us = 0;

		gpu->reader_blocks = blocks;
		graph = gpu_graph(gpu, gpu_scene_work, &group.scenes[i], gpu_scene_parts(&group.scenes[i]));
		for (unsigned int j = 0; j < WARM_UPS; j++)
			us = gpu_graph_us(gpu, &graph);
		if (attempt == 0 || us < best) {
			best = us;
			group.graphs[i] = graph;
		}
	}
}

static void
group_open(const struct bench_options *options)
{
	gpu_open(&group.gpu);
	for (size_t i = 0; i < group.n; i++) {
		struct gpu_scene *scene = &group.scenes[i];

		gpu_scene_open(&group.gpu, scene, pool_for(i, options->quick), &group.figures[i], options->quick);
		if (scene->figure->work == GPU_READ && !options->quick)
			reader_tune(i);
		else
			group.graphs[i] = gpu_graph(&group.gpu, gpu_scene_work, scene, gpu_scene_parts(scene));
		for (unsigned int j = 0; j < WARM_UPS && !options->quick; j++)
			gpu_graph_us(&group.gpu, &group.graphs[i]);
		gpu_scene_check(scene);
	}
}

static double
sample(const void *context)
{
	return gpu_graph_us(&group.gpu, context);
}

/* In a process of its own. */
static void
group_run(struct bench_report *report)
{
	struct bench_case cases[MAX_OF_GROUP] = { 0 };

	group_open(report->options);
	for (size_t i = 0; i < group.n; i++) {
		const struct gpu_figure *figure = &group.figures[i];

		cases[i] = (struct bench_case){ .name = figure->name,
						.unit = "us",
						.limit = figure->limit,
						.target = figure->target,
						.sample = sample,
						.context = &group.graphs[i] };
		gpu_scene_amount(&group.scenes[i], &cases[i]);
	}
	bench_rounds(report, cases, group.n, FIGURE_S * (double)group.n);
	for (size_t p = 0; p < group.n_pools; p++)
		if (group.pools[p].like->export != NULL)
			bench_daemon_stop();
}

static void
device_describe(struct bench_report *report)
{
	struct gpu gpu;

	gpu_open(&gpu);
	gpu_describe(&gpu, report->machine, sizeof(report->machine));
}

/* Runs it in a child process; NULL, or why it failed: the last line that it wrote. */
static const char *
in_child(void (*work)(struct bench_report *report), struct bench_report *report)
{
	char said[4096], *line, *why = NULL;
	size_t n = 0;
	ssize_t more;
	int fds[2], status;
	pid_t pid;

	if (pipe(fds) != 0)
		bench_die("pipe: %m");
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGINT, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		alarm(GROUP_LIMIT_S);
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		work(report);
		_exit(0);
	}
	close(fds[1]);
	while (n < sizeof(said) - 1 &&
	       ((more = read(fds[0], said + n, sizeof(said) - 1 - n)) > 0 || (more < 0 && errno == EINTR)))
		n += more > 0 ? (size_t)more : 0;
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return NULL;
	while (n > 0 && said[n - 1] == '\n')
		n--;
	said[n] = 0;
	line = strrchr(said, '\n') != NULL ? strrchr(said, '\n') + 1 : said;
	if (strncmp(line, "paged-bench: ", 13) == 0)
		line += 13;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		asprintf(&why, "not done within %d s", GROUP_LIMIT_S);
	else if (WIFSIGNALED(status))
		asprintf(&why, "ended by signal %d (%.180s)", WTERMSIG(status), line);
	else
		asprintf(&why, "%.250s", line[0] != 0 ? line : "ended without a word");
	return why;
}

static void
run(struct bench_report *report)
{
	const struct sigaction action = { .sa_handler = stop };
	const char *why = in_child(device_describe, report), *only = report->options->only;

	if (why != NULL) {
		bench_skip(report, "all", "us", why);
		return;
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	for (size_t i = 0; i < gpu_n_figures && !stopped; i += group.n) {
		size_t before = report->n_results;

		group.figures = &gpu_figures[i];
		for (group.n = 1;
		     i + group.n < gpu_n_figures && strcmp(gpu_figures[i + group.n].group, gpu_figures[i].group) == 0;)
			group.n++;
		if (only != NULL && strstr(gpu_figures[i].group, only) == NULL)
			continue;
		bench_progress(report, gpu_figures[i].name, i, gpu_n_figures);
		why = in_child(group_run, report);
		if (why == NULL)
			continue;
		report->n_results = before;
		for (size_t j = 0; j < group.n; j++)
			bench_skip(report, group.figures[j].name, "us", why);
	}
	bench_progress(report, NULL, 0, 0);
}

const struct bench_suite bench_suite_gpu = {
	.name = "gpu",
	.what = "a layer of decode, prefill and append on a GPU, beside reading the same pages",
	.run = run,
	.special = true,
};
