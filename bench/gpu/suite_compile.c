/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVRTC's time to compile an attention kernel with mods, compared with the same kernel
 * without.  Measures the process's processor time, because other processes
 * disturb it less than elapsed time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/base.h"
#include "bench/rounds.h"
#include "bench/suite.h"
#include "kernels/mod/cuda_source.h"
#include "kernels/cuda/host/jit.h"

static const struct mod_array names[] = { { .name = "window", .dtype = MOD_I32 },
					  { .name = "heads", .dtype = MOD_I32 },
					  { .name = "cap", .dtype = MOD_F32 },
					  { .name = "doc", .dtype = MOD_I32, .n_dims = 1 },
					  { .name = "bias", .dtype = MOD_F32, .n_dims = 2 } };

static const struct pair {
	const char *name, *mask, *score;
} pairs[] = { { "no mod", NULL, NULL },
	      { "window", "kv_idx <= q_idx && q_idx - kv_idx < window", NULL },
	      { "document", "doc[q_idx] == doc[kv_idx] && kv_idx <= q_idx", NULL },
	      { "alibi", NULL, "score + exp2(-8.0 * (h + 1) / heads) * (kv_idx - q_idx)" },
	      { "soft cap", NULL, "cap * tanh(score / cap)" },
	      { "bias", NULL, "score + bias[q_idx][kv_idx]" } };

static const struct kernel {
	const char *source, *kernel;
	bool arch_specific; /* of compute capability 9.0 alone */
} kernels[] = { { "attention_simt", "attention_simt_128", false },
		{ "attention_mma", "attention_mma_bf16_64", false },
		{ "attention_mma", "attention_mma_bf16_128", false },
		{ "attention_mma", "attention_mma_bf16_256", false },
		{ "attention_prefill", "attention_prefill_bf16_64", false },
		{ "attention_prefill", "attention_prefill_bf16_128", false },
		{ "attention_wgmma", "attention_wgmma_bf16_64", true },
		{ "attention_wgmma", "attention_wgmma_bf16_128", true },
		{ "attention_mla", "attention_mla_bf16", false },
		{ "attention_mla_wgmma", "attention_mla_wgmma_bf16", true },
		{ "attention_mla_cluster", "attention_mla_cluster_bf16", true } };

static const int capabilities[] = { 80, 90 };

static struct cuda_nvrtc nvrtc;

struct fixture {
	const struct kernel *kernel;
	const struct pair *pair;
	int capability;
	char name[56];
};

static struct mod *
suite_compile_parse(enum mod_kind kind, const char *text)
{
	struct paged_error error;
	struct mod *mod = NULL;

	if (text != NULL)
		bench_must(mod_parse(kind, text, strlen(text), names, BENCH_N(names), &mod, &error), &error);
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
suite_compile_sample(const void *context)
{
	const struct fixture *fixture = context;
	struct cuda_jit_params params = { fixture->kernel->source, fixture->kernel->kernel, NULL, "" };
	struct mod *mask = suite_compile_parse(MOD_MASK, fixture->pair->mask),
		   *score = suite_compile_parse(MOD_SCORE, fixture->pair->score);
	struct cuda_jit_image image;
	struct paged_error error;
	double begin, end;
	char *text;

	bench_must(mod_cuda_source(CUDA_MOD_STRUCT, mask, score, &text, &error), &error);
	bench_must(cuda_jit_arch(&nvrtc, fixture->capability, fixture->kernel->arch_specific, params.arch, &error),
		   &error);
	params.mods = text;
	begin = processor_ms();
	bench_must(cuda_jit_compile(&nvrtc, &params, &image, &error), &error);
	end = processor_ms();
	free(image.bytes);
	free(text);
	mod_destroy(mask);
	mod_destroy(score);
	return end - begin;
}

static void
suite_compile_measure(struct bench_report *report, const struct kernel *kernel, int capability)
{
	struct fixture *fixtures = bench_alloc(BENCH_N(pairs), sizeof(*fixtures));
	struct bench_case cases[BENCH_N(pairs)];

	for (size_t i = 0; i < BENCH_N(pairs); i++) {
		fixtures[i] = (struct fixture){ kernel, &pairs[i], capability, "" };
		snprintf(fixtures[i].name, sizeof(fixtures[i].name), "sm_%d%s %s, %s", capability,
			 kernel->arch_specific ? "a" : "", strchr(kernel->kernel, '_') + 1, pairs[i].name);
		cases[i] = (struct bench_case){
			.name = fixtures[i].name, .unit = "ms", .sample = suite_compile_sample, .context = &fixtures[i]
		};
		if (i > 0) {
			cases[i].limit = fixtures[0].name;
			cases[i].target = "<= 1.3";
		}
	}
	bench_rounds(report, cases, BENCH_N(pairs), INFINITY);
}

static void
suite_compile_run(struct bench_report *report)
{
	static struct paged_error error;
	const char *only = report->options->only;

	if (cuda_nvrtc_open(&nvrtc, 0, &error) != PAGED_OK) {
		bench_skip(report, "all", "ms", error.text);
		return;
	}
	snprintf(report->machine, sizeof(report->machine), "NVRTC %d.%d", nvrtc.major, nvrtc.minor);
	for (size_t c = 0; c < BENCH_N(capabilities); c++)
		for (size_t k = 0; k < BENCH_N(kernels); k++)
			if ((only == NULL || strstr(kernels[k].kernel, only) != NULL) &&
			    (!kernels[k].arch_specific || capabilities[c] == 90))
				suite_compile_measure(report, &kernels[k], capabilities[c]);
	cuda_nvrtc_close(&nvrtc);
}

const struct bench_suite bench_suite_compile = {
	.name = "compile",
	.description = "NVRTC for attention kernels with mods, compared with the same kernel without; no GPU is needed",
	.run = suite_compile_run,
	.special = true,
};
