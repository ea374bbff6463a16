/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of figures of attention and append: who takes part, in which memory, for how long. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/kv_scene.h"
#include "bench/machine.h"
#include "bench/threads.h"

/* Of what is free, for one group. */
#define MEMORY_SHARE 0.6
#define MOST_DIVISOR 64
/* Seconds of rounds. */
#define GROUP_LIMIT_S 8.0

struct group {
	const struct kv_case *figures[BENCH_MAX_CASES];
	size_t n;
	struct kv_world world;
	struct kv_scene scenes[BENCH_MAX_CASES];
};

static bool
related(const struct kv_case *figure, enum bench_against against, const char *to)
{
	for (size_t i = 0; i < BENCH_MAX_RELATIONS && figure->relations[i].to != NULL; i++)
		if (figure->relations[i].against == against && (to == NULL || strcmp(figure->relations[i].to, to) == 0))
			return true;
	return false;
}

/* Those with a ratio of the kind asked for, and those that they are compared with. */
static void
group_choose(struct group *group, const struct kv_case *figures, size_t n, enum bench_against against)
{
	group->n = 0;
	for (size_t i = 0; i < n; i++) {
		bool wanted = related(&figures[i], against, NULL);

		for (size_t j = 0; j < n && !wanted; j++)
			wanted = related(&figures[j], against, figures[i].name);
		if (!wanted)
			continue;
		if (group->n == BENCH_MAX_CASES)
			bench_die("%s: more than %d figures", figures[i].group, BENCH_MAX_CASES);
		group->figures[group->n++] = &figures[i];
	}
}

/* Generously: tensors, and every figure as if it had a pool of its own. */
static double
group_bytes(const struct group *group, const struct kv_scale *scale)
{
	double most = 0;

	for (size_t i = 0; i < group->n; i++) {
		struct kv_shape shape = kv_figure_shape(group->figures[i], scale->quick);
		double tokens = 0;

		for (size_t kind = 0; kind < KV_ROW_KINDS; kind++) {
			struct kv_rows rows = kv_figure_rows(group->figures[i], kind, scale);

			tokens += (double)rows.n * rows.kv_len;
		}
		tokens *= (double)shape.kv_heads * (shape.k_dim + shape.v_dim) * 2;
		most = tokens > most ? tokens : most;
	}
	return most * KV_MAX_POOLS;
}

static struct kv_scale
group_scale(const struct group *group, const struct bench_options *options, struct bench_report *report)
{
	struct kv_scale scale = { .quick = options->quick, .divisor = 1, .n_threads = threads_number() };
	double free_bytes = MEMORY_SHARE * machine_memory_bytes();
	size_t n = strlen(report->machine);

	while (free_bytes > 0 && group_bytes(group, &scale) > free_bytes && scale.divisor < MOST_DIVISOR)
		scale.divisor *= 2;
	if (scale.divisor > 1)
		snprintf(report->machine + n, sizeof(report->machine) - n, "; %s: lengths divided by %u",
			 group->figures[0]->group, scale.divisor);
	return scale;
}

static void
group_measure(struct group *group, const struct bench_options *options, struct bench_report *report)
{
	struct bench_case cases[BENCH_MAX_CASES];
	struct kv_scale scale = group_scale(group, options, report);

	kv_world_open(&group->world, group->figures, group->n, &scale);
	for (size_t i = 0; i < group->n; i++) {
		const struct kv_case *figure = group->figures[i];
		struct kv_scene *scene = &group->scenes[i];

		kv_scene_open(scene, &group->world, figure);
		cases[i] = (struct bench_case){ .name = figure->name,
						.unit = figure->by_block ? "ns" : "us",
						.sample = kv_scene_sample,
						.context = scene,
						.skipped = scene->skipped != NULL ? strdup(scene->skipped) : NULL,
						.how = figure->work == KV_TORCH ? strdup(scene->torch.how) : NULL,
						.bytes = scene->bytes,
						.flops = scene->flops };
		memcpy(cases[i].relations, figure->relations, sizeof(cases[i].relations));
	}
	bench_rounds(report, cases, group->n, GROUP_LIMIT_S);
	for (size_t i = 0; i < group->n; i++)
		kv_scene_close(&group->scenes[i]);
	kv_world_close(&group->world);
}

/* "avx512", or what --isa or the environment says. */
static void
describe(struct bench_report *report)
{
	struct paged_pool_params params = { .struct_size = sizeof(params),
					    .name = "isa",
					    .n_layers = 1,
					    .n_kv_heads = 1,
					    .k_dim = 64,
					    .dtype = PAGED_BF16,
					    .n_pages = 1 };
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_client *client;
	struct paged_pool *pool;

	if (paged_client_open_embedded(&params, 1, NULL, &client) != PAGED_OK ||
	    paged_pool_open(client, "isa", &pool) != PAGED_OK || paged_pool_get_info(pool, &info) != PAGED_OK)
		bench_die("%s", paged_client_error(client));
	snprintf(report->machine, sizeof(report->machine),
		 "%u pinned threads, kernels by %s, streams by %s, peak of %s", threads_number(), info.isa,
		 limit_isa_name(), limit_unit_name(limit_peak_unit()));
	paged_client_close(client);
	if (report->options->against == BENCH_AGAINST_TORCH) {
		size_t at = strlen(report->machine);

		torch_start();
		snprintf(report->machine + at, sizeof(report->machine) - at, "; %s", torch_version());
	}
}

/* A name, or a part of it, asks for what is long, too. */
static bool
chosen(const struct kv_case *figure, const struct bench_options *options)
{
	if (options->only != NULL)
		return strstr(figure->group, options->only) != NULL;
	return !figure->more || options->more;
}

void
kv_suite_run(struct bench_report *report)
{
	const struct bench_options *options = report->options;
	const struct kv_case *figures = report->suite->kv_cases;
	size_t n = report->suite->n_kv_cases;
	static struct group group;

	threads_start(options->n_threads);
	describe(report);
	for (size_t i = 0, of_group; i < n; i += of_group) {
		for (of_group = 1; i + of_group < n && strcmp(figures[i + of_group].group, figures[i].group) == 0;)
			of_group++;
		if (!chosen(&figures[i], options))
			continue;
		group_choose(&group, &figures[i], of_group, options->against);
		if (group.n == 0)
			continue;
		bench_progress(report, figures[i].group, i, n);
		group_measure(&group, options, report);
	}
	bench_progress(report, NULL, 0, 0);
	torch_stop();
	threads_release();
	if (report->n_results == 0)
		bench_die("%s: no figure with \"%s\" in its name has ratios to %s", report->suite->name,
			  options->only != NULL ? options->only : "", bench_against_name(options->against));
}

void
kv_suite_list(const struct bench_suite *suite)
{
	for (size_t i = 0; i < suite->n_kv_cases; i++) {
		const struct kv_case *figure = &suite->kv_cases[i];
		const struct bench_relation *relations = figure->relations;

		if (relations[0].to == NULL)
			continue;
		printf("    %-36s", figure->name);
		for (size_t r = 0; r < BENCH_MAX_RELATIONS && relations[r].to != NULL; r++)
			printf(" %s%s%s", bench_against_name(relations[r].against),
			       relations[r].target != NULL ? " " : "",
			       relations[r].target != NULL ? relations[r].target : "");
		puts(figure->more ? " (--long)" : "");
	}
}
