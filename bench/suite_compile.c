/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVRTC takes for an attention kernel with mods in it, beside the same
 * kernel without.  Processor time of the process: what else the machine does
 * hides less of it than of the time that passes.
 */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/mods.h"
#include "bench/report.h"
#include "kernels/cuda/compile.h"
#include "kernels/mod/source.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_ROUNDS 31u

static const struct mod_array names[] = { { .name = "window", .dtype = MOD_I32 },
					  { .name = "heads", .dtype = MOD_I32 },
					  { .name = "cap", .dtype = MOD_F32 },
					  { .name = "doc", .dtype = MOD_I32, .n_dims = 1 },
					  { .name = "bias", .dtype = MOD_F32, .n_dims = 2 } };

static const struct {
	const char *name, *mask, *score;
} pairs[] = { { "no mod", NULL, NULL },
	      { "window", "kv_idx <= q_idx && q_idx - kv_idx < window", NULL },
	      { "document", "doc[q_idx] == doc[kv_idx] && kv_idx <= q_idx", NULL },
	      { "alibi", NULL, "score + exp2(-8.0 * (h + 1) / heads) * (kv_idx - q_idx)" },
	      { "soft cap", NULL, "cap * tanh(score / cap)" },
	      { "bias", NULL, "score + bias[q_idx][kv_idx]" } };

static const struct {
	const char *source, *kernel;
} kernels[] = { { "attention_simt", "attention_simt_128" },
		{ "attention_mma", "attention_mma_bf16_64" },
		{ "attention_mma", "attention_mma_bf16_128" },
		{ "attention_mma", "attention_mma_bf16_256" } };

static const int capabilities[] = { 80, 90 };

static struct cuda_nvrtc nvrtc;

static struct mod *
parse(enum mod_kind kind, const char *text)
{
	struct paged_error error;
	struct mod *mod = NULL;

	if (text != NULL)
		bench_must(mod_parse(kind, text, strlen(text), names, N(names), &mod, &error), &error);
	return mod;
}

static double
processor_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static double
sample(size_t kernel, size_t pair, int capability)
{
	struct cuda_compile_params params = { kernels[kernel].source, kernels[kernel].kernel, NULL, "" };
	struct mod *mask = parse(MOD_MASK, pairs[pair].mask), *score = parse(MOD_SCORE, pairs[pair].score);
	struct cuda_compiled image;
	struct paged_error error;
	double begin, end;
	char *text;

	bench_must(mod_cuda_source(CUDA_MOD_STRUCT, mask, score, &text, &error), &error);
	bench_must(cuda_compile_arch(&nvrtc, capability, params.arch, &error), &error);
	params.mods = text;
	begin = processor_ms();
	bench_must(cuda_compile(&nvrtc, &params, &image, &error), &error);
	end = processor_ms();
	free(image.bytes);
	free(text);
	mod_destroy(mask);
	mod_destroy(score);
	return end - begin;
}

static void
kernel_report(struct bench_report *report, size_t kernel, int capability)
{
	double samples[N(pairs)][MAX_ROUNDS];
	char none[sizeof(report->results->name)] = "";

	for (size_t s = 0; s < report->n_samples; s++)
		for (size_t i = 0; i < N(pairs); i++)
			samples[i][s] = sample(kernel, i, capability);
	for (size_t i = 0; i < N(pairs); i++) {
		struct bench_result *result;
		char name[sizeof(none)];

		snprintf(name, sizeof(name), "sm_%d %s, %s", capability, strchr(kernels[kernel].kernel, '_') + 1,
			 pairs[i].name);
		result = report_add(report, name, "ms");
		report_summarise(result, samples[i], samples[0], report->n_samples);
		if (i == 0) {
			memcpy(none, name, sizeof(none));
			continue;
		}
		memcpy(result->limit, none, sizeof(none));
		result->target = "<= 1.3";
	}
}

static void
run(const struct bench_options *options, struct bench_report *report)
{
	struct paged_error error;

	if (cuda_nvrtc_open(&nvrtc, &error) != PAGED_OK) {
		snprintf(report_add(report, "all", "ms")->skipped, sizeof(report->results->skipped), "%s", error.text);
		return;
	}
	snprintf(report->machine, sizeof(report->machine), "NVRTC %d.%d", nvrtc.major, nvrtc.minor);
	if (options->quick)
		report->n_samples = 1;
	else if (report->n_samples > MAX_ROUNDS)
		report->n_samples = MAX_ROUNDS;
	for (size_t c = 0; c < N(capabilities); c++)
		for (size_t k = 0; k < N(kernels); k++)
			if (options->only == NULL || strstr(kernels[k].kernel, options->only) != NULL)
				kernel_report(report, k, capabilities[c]);
	cuda_nvrtc_close(&nvrtc);
}

const struct bench_suite bench_suite_compile = {
	.name = "compile",
	.what = "NVRTC for attention kernels with mods, beside the same kernel without; no GPU is needed",
	.run = run,
	.special = true,
};
