/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/host/jit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/sources.h"

/* Name of the in-memory header with the mods' source; attention.h includes ATTENTION_MOD. */
#define MOD_FILE "attention_mod.h"
#define MAX_ARCHS 64
#define FIRST_ARCH_SPECIFIC 12 /* CUDA version that brought architecture-specific targets, as sm_90a */

static enum paged_status
jit_fail(const struct cuda_nvrtc *nvrtc, int result, const char *what, struct paged_error *error)
{
	return paged_fail(error, result == CUDA_NVRTC_ERROR_OUT_OF_MEMORY ? PAGED_ERR_NOMEM : PAGED_ERR_BACKEND,
			  "NVRTC %d.%d: %s: %s", nvrtc->major, nvrtc->minor, what, nvrtc->error_string(result));
}

/* The newest architecture of this NVRTC that a device runs; 0: none. */
static enum paged_status
jit_newest_arch(const struct cuda_nvrtc *nvrtc, int capability, int *arch_p, struct paged_error *error)
{
	int archs[MAX_ARCHS], n = 0, result = nvrtc->n_archs(&n);

	if (result == CUDA_NVRTC_SUCCESS && n <= MAX_ARCHS)
		result = nvrtc->archs(archs);
	if (result != CUDA_NVRTC_SUCCESS || n > MAX_ARCHS)
		return jit_fail(nvrtc, result, "architectures", error);
	*arch_p = 0;
	for (int i = 0; i < n; i++)
		if (archs[i] <= capability && archs[i] > *arch_p)
			*arch_p = archs[i];
	return PAGED_OK;
}

enum paged_status
cuda_jit_arch(const struct cuda_nvrtc *nvrtc, int capability, bool arch_specific, char arch[CUDA_ARCH_SIZE],
	      struct paged_error *error)
{
	int best;
	enum paged_status status = jit_newest_arch(nvrtc, capability, &best, error);

	if (status != PAGED_OK)
		return status;
	if (arch_specific) {
		snprintf(arch, CUDA_ARCH_SIZE, "sm_%da", capability);
		if (best == capability && nvrtc->major >= FIRST_ARCH_SPECIFIC)
			return PAGED_OK;
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "NVRTC %d.%d does not compile for %s: install NVRTC of CUDA %d.0 or later",
				  nvrtc->major, nvrtc->minor, arch, FIRST_ARCH_SPECIFIC);
	}
	if (best == 0)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "NVRTC %d.%d does not compile for compute capability %d.%d", nvrtc->major,
				  nvrtc->minor, capability / 10, capability % 10);
	/* A cubin runs only on later devices of its family. */
	snprintf(arch, CUDA_ARCH_SIZE, "%s_%d", best / 10 == capability / 10 ? "sm" : "compute", best);
	return PAGED_OK;
}

const char *
cuda_source_name(const char *kernels)
{
	for (const struct cuda_source *source = cuda_sources; source->name != NULL; source++) {
		const char *file = strrchr(source->name, '/') + 1;
		size_t len = strlen(kernels);

		if (strncmp(file, kernels, len) == 0 && strcmp(file + len, ".cu") == 0)
			return source->name;
	}
	return NULL;
}

/* The sources of a program: the main file and the headers that it includes. */
struct jit_files {
	char *main;
	const char **names, **texts;
	int n;
};

static void
jit_files_close(struct jit_files *jit_files)
{
	free(jit_files->main);
	free(jit_files->names);
	free(jit_files->texts);
}

static enum paged_status
jit_files_open(struct jit_files *jit_files, const struct cuda_jit_params *params, struct paged_error *error)
{
	const size_t n = cuda_n_sources + 1; /* MOD_FILE */
	const char *main = cuda_source_name(params->source);

	*jit_files = (struct jit_files){ .n = 0 };
	if (main == NULL)
		return paged_fail(error, PAGED_ERR_NOENT, "no kernel source %s.cu is built in", params->source);
	jit_files->names = calloc(n, sizeof(jit_files->names[0]));
	jit_files->texts = calloc(n, sizeof(jit_files->texts[0]));
	/* NVRTC has no stdint.h; simt.h defines the integer types, so it is included first. */
	if (asprintf(&jit_files->main, "#include \"kernels/cuda/simt/simt.h\"\n#include \"%s\"\n", main) < 0)
		jit_files->main = NULL;
	if (jit_files->names == NULL || jit_files->texts == NULL || jit_files->main == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory to compile %s", main);
	for (const struct cuda_source *source = cuda_sources; source->name != NULL; source++) {
		jit_files->names[jit_files->n] = source->name;
		jit_files->texts[jit_files->n++] = source->text;
	}
	jit_files->names[jit_files->n] = MOD_FILE;
	jit_files->texts[jit_files->n++] = params->mods;
	return PAGED_OK;
}

/* Fail with the first error in the compiler's log, or with its first line. */
static enum paged_status
jit_log_fail(const struct cuda_nvrtc *nvrtc, cuda_program program, int result, const struct cuda_jit_params *params,
	     struct paged_error *error)
{
	char *log = NULL;
	const char *line;
	size_t size = 0;

	if (nvrtc->log_size(program, &size) == CUDA_NVRTC_SUCCESS && size > 0)
		log = calloc(1, size + 1);
	if (log == NULL || nvrtc->log(program, log) != CUDA_NVRTC_SUCCESS || log[0] == '\0') {
		free(log);
		return jit_fail(nvrtc, result, params->kernel, error);
	}
	line = strstr(log, "error");
	while (line != NULL && line > log && line[-1] != '\n')
		line--;
	if (line == NULL)
		line = log;
	paged_fail(error, PAGED_ERR_BACKEND, "NVRTC %d.%d refuses %s for %s: %.*s", nvrtc->major, nvrtc->minor,
		   params->kernel, params->arch, (int)strcspn(line, "\n"), line);
	free(log);
	return PAGED_ERR_BACKEND;
}

static enum paged_status
jit_image_copy(const struct cuda_nvrtc *nvrtc, cuda_program program, const struct cuda_jit_params *params,
	       struct cuda_jit_image *compiled_p, struct paged_error *error)
{
	bool is_ptx = strncmp(params->arch, "compute_", 8) == 0;
	struct cuda_jit_image image = { .bytes = NULL };
	int result = is_ptx ? nvrtc->ptx_size(program, &image.size) : nvrtc->cubin_size(program, &image.size);

	if (result == CUDA_NVRTC_SUCCESS) {
		image.bytes = malloc(image.size);
		if (image.bytes == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "no memory for %zu bytes of compiled kernels",
					  image.size);
		result = is_ptx ? nvrtc->ptx(program, image.bytes) : nvrtc->cubin(program, image.bytes);
	}
	if (result != CUDA_NVRTC_SUCCESS || image.size == 0) {
		free(image.bytes);
		return jit_fail(nvrtc, result, params->kernel, error);
	}
	*compiled_p = image;
	return PAGED_OK;
}

static enum paged_status
jit_program_compile(const struct cuda_nvrtc *nvrtc, const struct jit_files *jit_files,
		    const struct cuda_jit_params *params, struct cuda_jit_image *compiled_p, struct paged_error *error)
{
	char arch[CUDA_ARCH_SIZE + 32], only[128];
	const char *const options[] = { "-std=c++17", "-DATTENTION_MOD=\"" MOD_FILE "\"", "-DATTENTION_ONE", only,
					arch };
	enum paged_status status;
	cuda_program program;
	int result =
		nvrtc->create(&program, jit_files->main, "main.cu", jit_files->n, jit_files->texts, jit_files->names);

	if (result != CUDA_NVRTC_SUCCESS)
		return jit_fail(nvrtc, result, params->kernel, error);
	snprintf(arch, sizeof(arch), "--gpu-architecture=%s", params->arch);
	snprintf(only, sizeof(only), "-DATTENTION_ONLY_%s=1", params->kernel);
	result = nvrtc->compile(program, sizeof(options) / sizeof(options[0]), options);
	if (result != CUDA_NVRTC_SUCCESS)
		status = jit_log_fail(nvrtc, program, result, params, error);
	else
		status = jit_image_copy(nvrtc, program, params, compiled_p, error);
	nvrtc->destroy(&program);
	return status;
}

enum paged_status
cuda_jit_compile(const struct cuda_nvrtc *nvrtc, const struct cuda_jit_params *params,
		 struct cuda_jit_image *compiled_p, struct paged_error *error)
{
	struct jit_files jit_files;
	enum paged_status status = jit_files_open(&jit_files, params, error);

	if (status == PAGED_OK)
		status = jit_program_compile(nvrtc, &jit_files, params, compiled_p, error);
	jit_files_close(&jit_files);
	return status;
}
