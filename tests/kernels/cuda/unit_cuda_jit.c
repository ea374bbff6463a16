/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles kernels with mods by the toolkit's NVRTC, for every supported
 * architecture.  Without NVRTC the tests are reported as skipped.  Only the
 * tests named after the fake NVRTC use it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/host/jit.h"
#include "kernels/cuda/host/sources.h"
#include "kernels/mod/cuda_source.h"
#include "tests/support/mod_fixture.h"
#include "tests/support/mod_generator.h"
#include "tests/support/mod_texts.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define N_RANDOM 20u

static const char *const archs[] = { "sm_80", "sm_90", "sm_100" };

static struct cuda_nvrtc nvrtc;

static void
nvrtc_open(void)
{
	struct paged_error error;

	if (cuda_nvrtc_open(&nvrtc, 0, &error) != PAGED_OK)
		cr_skip("%s", error.text);
}

static void
nvrtc_close(void)
{
	cuda_nvrtc_close(&nvrtc);
}

TestSuite(cuda_jit, .init = nvrtc_open, .fini = nvrtc_close, .timeout = 1800);

static struct mod *
parse(enum mod_kind kind, const char *text)
{
	struct paged_error error;
	struct mod *mod;

	for (uint32_t i = 0; mod_builtin(i) != NULL; i++)
		if (strcmp(mod_builtin(i)->name, text) == 0 &&
		    mod_parse(kind, text, strlen(text), mod_texts_scalars, MOD_TEXTS_SCALARS, &mod, &error) == PAGED_OK)
			return mod;
	cr_assert_eq(mod_parse(kind, text, strlen(text), mod_texts_names, MOD_TEXTS_NAMES, &mod, &error), PAGED_OK,
		     "%s", error.text);
	return mod;
}

static double
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static struct cuda_jit_image
compile(const char *source, const char *kernel, const struct mod *mask, const struct mod *score, const char *arch)
{
	struct cuda_jit_params params = { source, kernel, NULL, "" };
	struct cuda_jit_image image = { NULL, 0 };
	struct paged_error error;
	double begin = now_ms();
	char *text;

	cr_assert_eq(mod_cuda_source(CUDA_MOD_STRUCT, mask, score, &text, &error), PAGED_OK);
	params.mods = text;

	snprintf(params.arch, sizeof(params.arch), "%s", arch);
	cr_assert_eq(cuda_jit_compile(&nvrtc, &params, &image, &error), PAGED_OK, "%s", error.text);
	printf("# %s for %s: %.0f ms, %zu bytes\n", mask != NULL ? mod_text(mask) : "no mask", arch, now_ms() - begin,
	       image.size);
	free(text);
	return image;
}

Test(cuda_jit, attention_for_every_architecture)
{
	struct mod *mask = parse(MOD_MASK, "sliding_window"), *score = parse(MOD_SCORE, "soft_cap");

	for (size_t i = 0; i < N(archs); i++) {
		struct cuda_jit_image image = compile("attention_simt", "attention_simt_128", mask, score, archs[i]);

		cr_expect(memcmp(image.bytes, "\177ELF", 4) == 0);
		/* The image contains that kernel and no other. */
		cr_expect_not_null(memmem(image.bytes, image.size, "attention_simt_128", 18));
		cr_expect_null(memmem(image.bytes, image.size, "attention_simt_256", 18));
		free(image.bytes);
	}
	mod_destroy(mask);
	mod_destroy(score);
}

/* Three kernels for each architecture would take too long. */
Test(cuda_jit, attention_on_tensor_cores)
{
	struct mod *mask = parse(MOD_MASK, "sliding_window"), *score = parse(MOD_SCORE, "soft_cap");
	struct cuda_jit_image image = compile("attention_mma", "attention_mma_bf16_64", mask, score, "sm_90");

	cr_expect_not_null(memmem(image.bytes, image.size, "attention_mma_bf16_64", 21));
	free(image.bytes);
	mod_destroy(mask);
	mod_destroy(score);
}

/* With mods and without. */
Test(cuda_jit, attention_over_values_in_keys)
{
	struct mod *mask = parse(MOD_MASK, "sliding_window"), *score = parse(MOD_SCORE, "soft_cap");
	struct cuda_jit_image plain = compile("attention_mla", "attention_mla_bf16", NULL, NULL, "sm_90"),
			      image = compile("attention_mla", "attention_mla_bf16", mask, score, "sm_90");

	cr_expect_not_null(memmem(image.bytes, image.size, "attention_mla_bf16", 18));
	free(image.bytes);
	free(plain.bytes);
	mod_destroy(mask);
	mod_destroy(score);
}

/* For an architecture that NVRTC does not know, the image is PTX, which the driver compiles. */
Test(cuda_jit, ptx_for_a_newer_device)
{
	struct paged_error error;
	char arch[CUDA_ARCH_SIZE];
	struct cuda_jit_image image;

	cr_assert_eq(cuda_jit_arch(&nvrtc, 90, false, arch, &error), PAGED_OK);
	cr_expect_str_eq(arch, "sm_90");
	cr_assert_eq(cuda_jit_arch(&nvrtc, 999, false, arch, &error), PAGED_OK);
	cr_expect(strncmp(arch, "compute_", 8) == 0, "%s", arch);
	image = compile("attention_simt", "attention_simt_128", NULL, NULL, arch);
	cr_expect_not_null(strstr(image.bytes, ".target sm_"));
	cr_expect_eq(image.bytes[image.size - 1], 0);
	free(image.bytes);
	cr_expect_eq(cuda_jit_arch(&nvrtc, 20, false, arch, &error), PAGED_ERR_UNSUPPORTED);
	cr_expect_not_null(strstr(error.text, "does not compile for compute capability 2.0"), "%s", error.text);
}

/* Kernels by wgmma are in code for sm_90a, and in no other. */
Test(cuda_jit, architecture_specific_kernels)
{
	struct mod *mask = parse(MOD_MASK, "sliding_window"), *score = parse(MOD_SCORE, "soft_cap");
	struct cuda_nvrtc old = nvrtc;
	struct cuda_jit_image image;
	struct paged_error error;
	char arch[CUDA_ARCH_SIZE];

	cr_assert_eq(cuda_jit_arch(&nvrtc, 90, true, arch, &error), PAGED_OK, "%s", error.text);
	cr_assert_str_eq(arch, "sm_90a");
	image = compile("attention_wgmma", "attention_wgmma_bf16_128", mask, score, arch);
	cr_expect_not_null(memmem(image.bytes, image.size, "attention_wgmma_bf16_128", 24));
	free(image.bytes);
	image = compile("attention_mla_wgmma", "attention_mla_wgmma_bf16", mask, score, arch);
	cr_expect_not_null(memmem(image.bytes, image.size, "attention_mla_wgmma_bf16", 24));
	free(image.bytes);
	image = compile("attention_mla_cluster", "attention_mla_cluster_bf16", mask, score, arch);
	cr_expect_not_null(memmem(image.bytes, image.size, "attention_mla_cluster_bf16", 26));
	free(image.bytes);
	image = compile("attention_wgmma", "attention_wgmma_bf16_128", mask, score, "sm_90");
	cr_expect_null(memmem(image.bytes, image.size, "attention_wgmma_bf16_128", 24));
	free(image.bytes);
	cr_expect_eq(cuda_jit_arch(&nvrtc, 91, true, arch, &error), PAGED_ERR_UNSUPPORTED);
	old.major = 11;
	old.minor = 8;
	cr_expect_eq(cuda_jit_arch(&old, 90, true, arch, &error), PAGED_ERR_UNSUPPORTED);
	cr_expect_str_eq(error.text, "NVRTC 11.8 does not compile for sm_90a: install NVRTC of CUDA 12.0 or later");
	mod_destroy(mask);
	mod_destroy(score);
}

Test(cuda_jit, equal_mods_give_equal_images)
{
	struct mod *mask = parse(MOD_MASK, "causal"), *same = parse(MOD_MASK, "kv_idx <= q_idx");
	struct cuda_jit_image a = compile("attention_simt", "attention_simt_128", mask, NULL, "sm_90"),
			      b = compile("attention_simt", "attention_simt_128", same, NULL, "sm_90");

	cr_expect(a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0);
	free(a.bytes);
	free(b.bytes);
	mod_destroy(mask);
	mod_destroy(same);
}

Test(cuda_jit, reports_compile_errors)
{
	struct cuda_jit_params params = { "none", "none", "", "sm_90" };
	struct cuda_jit_image image;
	struct paged_error error;

	cr_expect_eq(cuda_jit_compile(&nvrtc, &params, &image, &error), PAGED_ERR_NOENT);
	cr_expect_str_eq(error.text, "no kernel source none.cu is built in");
	params = (struct cuda_jit_params){ "attention_simt", "attention_simt_128", "", "sm_1" };
	cr_expect_eq(cuda_jit_compile(&nvrtc, &params, &image, &error), PAGED_ERR_BACKEND);
	cr_expect_not_null(strstr(error.text, "refuses attention_simt_128 for sm_1: "), "%s", error.text);
}

/* All mods in one program: one program for each would take a minute. */
struct table {
	FILE *source;
	char *text;
	size_t length;
	uint32_t n;
};

static void
table_add(struct table *table, const struct mod *mod)
{
	bool is_mask = mod_kind(mod) == MOD_MASK;
	struct paged_error error;
	char name[32], *text;

	snprintf(name, sizeof(name), "mod_%u", table->n);
	cr_assert_eq(mod_cuda_source(name, is_mask ? mod : NULL, is_mask ? NULL : mod, &text, &error), PAGED_OK);
	fprintf(table->source,
		"%s"
		"extern \"C\" __global__ void\nrun_%u(float *to, int b, int h, int q_idx, int kv_idx, const void "
		"*args)\n"
		"{\n\t*to = %s::%s(%sb, h, q_idx, kv_idx, args);\n}\n",
		text, table->n, name, is_mask ? "mask" : "score", is_mask ? "" : "*to, ");
	free(text);
	table->n++;
}

static void
table_fill(struct table *table)
{
	for (uint32_t list = 0; list < 2; list++) {
		const char *const *texts = list == 0 ? mod_texts_masks : mod_texts_scores;

		for (uint32_t i = 0; texts[i] != NULL; i++) {
			struct mod *mod = parse(list == 0 ? MOD_MASK : MOD_SCORE, texts[i]);

			table_add(table, mod);
			mod_destroy(mod);
		}
	}
	for (uint32_t i = 0; mod_builtin(i) != NULL; i++) {
		bool is_score = strstr(mod_builtin(i)->text, "score") != NULL;
		struct mod *mod = parse(is_score ? MOD_SCORE : MOD_MASK, mod_builtin(i)->name);

		table_add(table, mod);
		mod_destroy(mod);
	}
	for (uint32_t i = 0; i < N_RANDOM; i++) {
		struct generator_text text;
		struct mod_fixture fixture;

		generator_seed(i);
		fixture = generator_mod(i % 2 ? MOD_MASK : MOD_SCORE, generator_expression, &text);
		table_add(table, fixture.mod);
		mod_fixture_close(&fixture);
	}
}

static void
table_compile(const struct table *table, const char *arch)
{
	const char **names = calloc(cuda_n_sources, sizeof(*names)), **texts = calloc(cuda_n_sources, sizeof(*texts));
	char option[64], log[4096] = "";
	const char *const options[] = { "-std=c++17", option };
	double begin = now_ms();
	cuda_program program;
	size_t size;
	int n = 0, result;

	for (const struct cuda_source *source = cuda_sources; source->name != NULL; source++) {
		names[n] = source->name;
		texts[n++] = source->text;
	}
	snprintf(option, sizeof(option), "--gpu-architecture=%s", arch);
	cr_assert_eq(nvrtc.create(&program, table->text, "table.cu", n, texts, names), CUDA_NVRTC_SUCCESS);
	result = nvrtc.compile(program, 2, options);
	if (nvrtc.log_size(program, &size) == CUDA_NVRTC_SUCCESS && size <= sizeof(log))
		nvrtc.log(program, log);
	cr_assert_eq(result, CUDA_NVRTC_SUCCESS, "%s: %s", arch, log);
	cr_assert_eq(nvrtc.cubin_size(program, &size), CUDA_NVRTC_SUCCESS);
	nvrtc.destroy(&program);
	free(names);
	free(texts);
	printf("# %u mods for %s: %.0f ms, %zu bytes%s%s\n", table->n, arch, now_ms() - begin, size,
	       log[0] != '\0' ? "\n" : "", log);
}

Test(cuda_jit, every_mod_compiles)
{
	struct table table = { .n = 0 };

	table.source = open_memstream(&table.text, &table.length);
	fprintf(table.source, "#include \"kernels/cuda/simt/simt.h\"\n"
			      "#define ATTENTION_MOD_FUNCTION static SIMT_FUNCTION\n");
	table_fill(&table);
	cr_assert_eq(fclose(table.source), 0);
	for (size_t i = 0; i < N(archs); i++)
		table_compile(&table, archs[i]);
	free(table.text);
}
