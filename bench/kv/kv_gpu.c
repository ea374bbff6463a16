/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases on a GPU: medians of one call of a captured graph, by the device's
 * clock.  Each group is measured in a process of its own, so that a device
 * error does not affect the next group; with --in-process, the one selected group
 * is measured in this process.  SIGTERM and SIGINT end the run after the
 * group that is being measured, and the results so far are printed.
 */
#include "bench/kv/kv_gpu.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/base.h"
#include "bench/gpu/gpu.h"
#include "bench/kv/kv.h"
#include "bench/processes.h"
#include "bench/rounds.h"
#include "bench/suite.h"
#include "kernels/cuda/kernels.h"

#define CASE_S 0.4 /* seconds of sampling */
#define WARM_UPS 3
#define READER_TRIES 4

static volatile sig_atomic_t stopped;

static void
kv_gpu_stop(int number)
{
	(void)number;
	stopped = 1;
}

/* Work */

static cuda_address
kv_gpu_layer_address(const struct kv_fixture *fixture, uint32_t call)
{
	const struct paged_pool_info *info = &fixture->pool->info;

	return (uintptr_t)info->base + info->k.offset + call % info->n_layers * info->k.layer_stride;
}

static uint64_t
kv_gpu_layer_page_bytes(const struct kv_fixture *fixture)
{
	return fixture->pool->info.page_bytes / fixture->pool->info.n_layers;
}

static void
kv_gpu_read_pages(const struct kv_fixture *fixture, uint32_t call, uint32_t n_pages)
{
	uint32_t chunks = (uint32_t)(kv_gpu_layer_page_bytes(fixture) / GPU_READER_CHUNK_BYTES);
	struct gpu_reader_params params = { .address = kv_gpu_layer_address(fixture, call),
					    .page_stride = fixture->pool->info.k.page_stride,
					    .table = fixture->table,
					    .out = bench_gpu.out,
					    .chunks_per_page = chunks,
					    .n_chunks = n_pages * chunks };

	bench_gpu_must(bench_gpu.cuda.driver.launch(bench_gpu.reader, bench_gpu.reader_blocks, 1, 1, GPU_READER_THREADS,
						    1, 1, 0, bench_gpu.stream, (void *[]){ &params }, NULL));
}

static void
kv_gpu_copy_behind(cuda_address from, uint64_t size)
{
	bench_gpu_must(bench_gpu.cuda.driver.copy(from + size, from, size, bench_gpu.stream));
}

static void
kv_gpu_copy_pages(const struct kv_fixture *fixture)
{
	const struct paged_pool_info *info = &fixture->pool->info;
	const struct paged_plane_info *const planes[] = { &info->k, &info->v };
	struct cuda_copy_params params = { .n_planes = 2,
					   .n_copies = fixture->n_pages,
					   .n_layers = info->n_layers,
					   .n_heads = info->n_kv_heads,
					   .page_size = info->page_size };

	for (unsigned int i = 0; i < 2; i++) {
		params.from.address[i] = (uintptr_t)info->base + planes[i]->offset;
		params.from.layer_stride[i] = planes[i]->layer_stride;
		params.from.page_stride[i] = planes[i]->page_stride;
		params.from.head_stride[i] = planes[i]->head_stride;
		params.token_stride[i] = (uint32_t)planes[i]->token_stride;
	}
	params.from.n_pages = info->n_pages;
	params.to = params.from;
	params.from.pages = fixture->table;
	params.to.pages = fixture->table + (uint64_t)fixture->n_pages * sizeof(uint32_t);
	bench_gpu_must(bench_gpu.cuda.driver.launch(bench_gpu.copy_pages, bench_gpu.reader_blocks, 1, 1,
						    CUDA_COPY_THREADS, 1, 1, 0, bench_gpu.stream, (void *[]){ &params },
						    NULL));
}

static void
kv_gpu_call(struct kv_fixture *fixture, uint32_t call)
{
	const struct paged_pool_info *info = &fixture->pool->info;
	struct paged_client *client = fixture->group->client;
	uint64_t layer_bytes = kv_gpu_layer_page_bytes(fixture);
	uint32_t layer = call % info->n_layers;

	switch (fixture->kv_case.work) {
	case KV_ATTENTION:
		bench_client_must(client, paged_attention(fixture->batch, layer, &fixture->q, &fixture->out,
							  &fixture->attention));
		return;
	case KV_APPEND:
		bench_client_must(client, paged_append(fixture->batch, layer, &fixture->k,
						       info->v_in_k ? NULL : &fixture->v, NULL));
		return;
	case KV_PLAN:
		bench_client_must(client, paged_batch_plan_device(fixture->batch, &fixture->plan));
		return;
	case KV_COPY_PAGES:
		kv_gpu_copy_pages(fixture);
		return;
	case KV_READ:
		kv_gpu_read_pages(fixture, call, fixture->n_pages);
		return;
	case KV_EMPTY:
		kv_gpu_read_pages(fixture, call, 0);
		return;
	case KV_COPY:
		kv_gpu_copy_behind(kv_gpu_layer_address(fixture, call),
				   layer_bytes / info->page_size * fixture->total_q);
		return;
	case KV_COPY_HALF:
		kv_gpu_copy_behind(kv_gpu_layer_address(fixture, call), layer_bytes * fixture->n_pages / 2);
		return;
	case KV_COPY_ALL:
		kv_gpu_copy_behind(kv_gpu_layer_address(fixture, 0), info->page_bytes * fixture->n_pages);
		return;
	default:
		bench_die("%s: not on a GPU", fixture->kv_case.name);
	}
}

/* All calls of a graph. */
static void
kv_gpu_calls(void *argument)
{
	struct kv_fixture *fixture = argument;

	if (kv_has_batch(fixture) && fixture->kv_case.work != KV_PLAN)
		bench_client_must(fixture->group->client, paged_batch_plan_device(fixture->batch, &fixture->plan));
	for (uint32_t call = 0; call < fixture->n_calls; call++)
		kv_gpu_call(fixture, call);
}

/* Fixtures */

static void
kv_gpu_plan_open(struct kv_fixture *fixture)
{
	uint32_t n = fixture->n_rows;
	int32_t *q_indptr = bench_alloc(n + 1, sizeof(*q_indptr)), *kv_len = bench_alloc(n, sizeof(*kv_len));

	for (uint32_t r = 0; r < n; r++) {
		q_indptr[r + 1] = q_indptr[r] + (int32_t)fixture->rows[r].q_len;
		kv_len[r] = (int32_t)fixture->rows[r].kv_len;
	}
	fixture->plan = (struct paged_plan_device_params){
		.struct_size = sizeof(fixture->plan),
		.n_rows = n,
		.rows = fixture->rows,
		.q_indptr = (const int32_t *)(uintptr_t)bench_gpu_put(q_indptr, (n + 1) * sizeof(*q_indptr)),
		.kv_len = (const int32_t *)(uintptr_t)bench_gpu_put(kv_len, n * sizeof(*kv_len))
	};
	free(q_indptr);
	free(kv_len);
}

/* After the work: check that the batch succeeded and that the result is finite. */
static void
kv_gpu_check(const struct kv_fixture *fixture)
{
	uint16_t first[64];

	if (!kv_has_batch(fixture))
		return;
	bench_client_must(fixture->group->client, paged_batch_validate(fixture->batch));
	if (fixture->kv_case.work != KV_ATTENTION)
		return;
	bench_gpu_must(
		bench_gpu.cuda.driver.copy_out(first, (uintptr_t)fixture->out.data, sizeof(first), bench_gpu.stream));
	bench_gpu_must(bench_gpu.cuda.driver.stream_synchronize(bench_gpu.stream));
	for (size_t i = 0; i < BENCH_N(first); i++)
		if ((first[i] & 0x7f80) == 0x7f80)
			bench_die("%s: element %zu of the result is not finite", fixture->kv_case.name, i);
}

/* Find the number of blocks that reads fastest. */
static void
kv_gpu_reader_tune(struct kv_fixture *fixture)
{
	uint32_t blocks = bench_gpu.n_multiprocessors;
	double best = 0;

	for (unsigned int attempt = 0; attempt < READER_TRIES; attempt++, blocks *= 2) {
		struct bench_gpu_graph graph;
		double us = 0;

		bench_gpu.reader_blocks = blocks;
		graph = bench_gpu_graph(kv_gpu_calls, fixture, fixture->n_calls);
		for (unsigned int j = 0; j < WARM_UPS; j++)
			us = bench_gpu_graph_us(&graph);
		if (attempt == 0 || us < best) {
			best = us;
			fixture->graph = graph;
		}
	}
}

static void
kv_gpu_fixture_open(struct kv_fixture *fixture)
{
	bool quick = fixture->group->report->options->quick;
	enum kv_work work = fixture->kv_case.work;

	fixture->n_calls = work == KV_COPY_PAGES || work == KV_COPY_ALL ? 1 : quick ? 2 : KV_GPU_LAYERS;
	fixture->table = bench_gpu_put(fixture->pages, fixture->pool->n_pages * sizeof(*fixture->pages));
	if (kv_has_batch(fixture))
		kv_gpu_plan_open(fixture);
	if (work == KV_READ && !quick)
		kv_gpu_reader_tune(fixture);
	else
		fixture->graph = bench_gpu_graph(kv_gpu_calls, fixture, fixture->n_calls);
	for (unsigned int j = 0; j < WARM_UPS && !quick; j++)
		bench_gpu_graph_us(&fixture->graph);
	kv_gpu_check(fixture);
}

/* Groups, each in a process of its own */

static double
kv_gpu_sample(const void *graph)
{
	return bench_gpu_graph_us(graph);
}

/* The device is open. */
static void
kv_gpu_group_measure(struct kv_group *group)
{
	kv_group_open(group);
	for (size_t i = 0; i < group->n; i++) {
		kv_gpu_fixture_open(&group->fixtures[i]);
		group->cases[i].sample = kv_gpu_sample;
		group->cases[i].context = &group->fixtures[i].graph;
	}
	bench_rounds(group->report, group->cases, group->n, CASE_S * (double)group->n);
	if (group->fixtures[0].kv_case.export != NULL)
		bench_daemon_stop();
}

/* The device stays open. */
static void
kv_gpu_describe(struct bench_report *report)
{
	bench_gpu_open();
	bench_gpu_describe(report->machine, sizeof(report->machine));
}

/* NULL: describe the device. */
static void
kv_gpu_child_main(struct kv_group *group, struct bench_report *report, int output)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	alarm(report->options->group_limit_s);
	dup2(output, STDERR_FILENO);
	if (group != NULL) {
		bench_gpu_open();
		kv_gpu_group_measure(group);
	} else {
		kv_gpu_describe(report);
	}
	_exit(0);
}

/* Reasons why children failed; the report, which is shared memory, points to their texts until the process ends. */
static struct reason {
	struct reason *next;
	char text[256];
} * reasons;

/* The last line of a failed child's output. */
static const char *
kv_gpu_child_failure(int status, FILE *output, unsigned int limit_s)
{
	char text[200] = "ended without a message", *line = text;
	struct reason *reason = bench_alloc(1, sizeof(*reason));

	rewind(output);
	while (fgets(text, sizeof(text), output) != NULL)
		;
	text[strcspn(text, "\n")] = 0;
	if (strncmp(line, "paged-bench: ", 13) == 0)
		line += 13;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(reason->text, sizeof(reason->text), "not done within %u s", limit_s);
	else if (WIFSIGNALED(status))
		snprintf(reason->text, sizeof(reason->text), "ended by signal %d (%s)", WTERMSIG(status), line);
	else
		snprintf(reason->text, sizeof(reason->text), "%s", line);
	reason->next = reasons;
	reasons = reason;
	return reason->text;
}

/* Run a child, which adds its results to the shared report; returns NULL, or the reason of its failure. */
static const char *
kv_gpu_child(struct kv_group *group, struct bench_report *report)
{
	FILE *output = tmpfile();
	const char *reason = NULL;
	int status;
	pid_t pid;

	if (output == NULL)
		bench_die("tmpfile: %m");
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		bench_die("fork: %m");
	if (pid == 0)
		kv_gpu_child_main(group, report, fileno(output));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		reason = kv_gpu_child_failure(status, output, report->options->group_limit_s);
	fclose(output);
	return reason;
}

static void
kv_gpu_group_run(struct kv_group *group)
{
	struct bench_report *report = group->report;
	size_t n_results = report->n_results;
	const char *reason = stopped ? NULL : kv_gpu_child(group, report);

	if (reason == NULL)
		return;
	report->n_results = n_results;
	for (size_t i = 0; i < group->n; i++)
		bench_skip(report, group->fixtures[i].kv_case.name, "us", reason);
}

void
kv_gpu_run(struct bench_report *report)
{
	const struct sigaction action = { .sa_handler = kv_gpu_stop };
	const char *reason;

	if (report->options->in_process) {
		kv_gpu_describe(report);
		kv_groups_run(report, true, kv_gpu_group_measure);
		return;
	}
	reason = kv_gpu_child(NULL, report);
	if (reason != NULL) {
		bench_skip(report, "all", "us", reason);
		return;
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	kv_groups_run(report, true, kv_gpu_group_run);
}
