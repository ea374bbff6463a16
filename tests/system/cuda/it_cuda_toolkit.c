/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the CUDA toolkit is: cubins hold the kernels that the fake driver runs,
 * with the same parameters, and the real NVRTC takes the same source.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake-cuda/fixture.h"
#include "kernels/cuda/host/nvrtc.h"
#include "tests/fake-cuda/simt_run.h"

#define MAX_FILE ((size_t)8 << 20)

/* Configured with a toolkit, or the test is skipped. */
static const char *
toolkit_dir(void)
{
	const char *dir = getenv("CUDA_DIR");

	if (dir == NULL || strcmp(dir, "no") == 0)
		it_skip("no CUDA toolkit: configure found no nvcc");
	return dir;
}

static char *
read_file(const char *path)
{
	char *bytes = calloc(1, MAX_FILE);
	FILE *file = fopen(path, "re");

	it_require(bytes != NULL && file != NULL, "%s: %m", path);
	it_require(fread(bytes, 1, MAX_FILE - 1, file) > 0);
	fclose(file);
	return bytes;
}

static char *
read_source(const char *name)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s/%s", getenv("PAGED_SRCDIR"), name);
	return read_file(path);
}

/* How many kernels of the fake driver are in the cubin of this source; they agree. */
static unsigned int
cubin_compare(const char *dir, const char *source)
{
	struct simt_kernel *(*first)(void);
	char command[2048], path[64], *image;
	cuda_function function;
	cuda_module module;
	unsigned int n = 0;

	snprintf(path, sizeof(path), "/tmp/paged-cubin.%d", (int)getpid());
	snprintf(command, sizeof(command), "%s/bin/nvcc -std=c++17 -arch=sm_90a -cubin -I%s -o %s %s/%s", dir,
		 getenv("PAGED_SRCDIR"), path, getenv("PAGED_SRCDIR"), source);
	it_require(system(command) == 0, "%s", command);
	image = read_file(path);
	unlink(path);
	*(void **)&first = dlsym(cuda.library, "simt_first");
	it_require(first != NULL);
	ok(cuda.module_load(&module, image));
	for (const struct simt_kernel *kernel = first(); kernel != NULL; kernel = kernel->next) {
		int result = cuda.module_function(&function, module, kernel->name);

		it_require(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND, "%s: %d", kernel->name, result);
		n += result == CUDA_SUCCESS;
	}
	ok(cuda.module_unload(module));
	free(image);
	return n;
}

IT_TEST(cubins_match_the_fake_kernels)
{
	const char *dir = toolkit_dir(), *sources = getenv("CUDA_FILES");
	char list[4096], *rest = list;

	it_require(sources != NULL);
	snprintf(list, sizeof(list), "%s", sources);
	fake_cuda_start(0);
	for (char *source = strtok_r(list, " ", &rest); source != NULL; source = strtok_r(NULL, " ", &rest)) {
		unsigned int n = cubin_compare(dir, source);

		it_note("%s: %u kernels", source, n);
		it_require(n > 0, "%s: none of its kernels is built into the fake driver", source);
	}
	fake_cuda_finish();
}

static void
compile_for(const struct cuda_nvrtc *nvrtc, const char *source, const char *const *headers, const char *const *names,
	    int n_headers, const char *arch)
{
	const char *const options[] = { "-std=c++17", arch };
	cuda_program program;
	char log[8192] = "";
	size_t size;
	int result;

	ok(nvrtc->create(&program, source, "source.cu", n_headers, headers, names));
	result = nvrtc->compile(program, 2, options);
	ok(nvrtc->log_size(program, &size));
	if (result != CUDA_NVRTC_SUCCESS && size < sizeof(log))
		ok(nvrtc->log(program, log));
	it_require(result == CUDA_NVRTC_SUCCESS, "%s: %s", arch, log);
	ok(nvrtc->cubin_size(program, &size));
	it_require(size > 0);
	ok(nvrtc->destroy(&program));
}

/* The real one; the fake driver's is in no path. */
IT_TEST(real_nvrtc_compiles_the_kernels)
{
	static const char *const names[] = {
		"kernels/cuda/device/bytes.h",
		"kernels/cuda/simt/simt_fp8.h",
		"kernels/cuda/kernels.h",
		"kernels/cuda/simt/simt.h",
		"kernels/cuda/simt/simt_barrier.h",
		"kernels/cuda/simt/simt_device.h",
		"kernels/cuda/simt/simt_wgmma.h",
		"tests/fake-cuda/kernels/bulk_case.h",
		"tests/fake-cuda/kernels/cluster_case.h",
		"tests/fake-cuda/kernels/simt_cases.h",
		"tests/fake-cuda/kernels/wgmma_case.h",
	};
	const int n = sizeof(names) / sizeof(names[0]);
	static const char *const archs[] = { "-arch=sm_80", "-arch=sm_90a", "-arch=sm_100" };
	char *headers[sizeof(names) / sizeof(names[0])], *source, path[1024];
	struct cuda_nvrtc nvrtc;
	struct paged_error error;

	snprintf(path, sizeof(path), "%s/lib64/libnvrtc.so.13", toolkit_dir());
	if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL)
		it_skip("no NVRTC: %s", dlerror());
	it_require(cuda_nvrtc_open(&nvrtc, 0, &error) == PAGED_OK, "%s", error.text);
	source = read_source("tests/fake-cuda/kernels/simt_cases.cu");
	for (int i = 0; i < n; i++)
		headers[i] = read_source(names[i]);
	for (int i = 0; i < 3; i++)
		compile_for(&nvrtc, source, (const char *const *)headers, names, n, archs[i]);
	for (int i = 0; i < n; i++)
		free(headers[i]);
	free(source);
	cuda_nvrtc_close(&nvrtc);
}

IT_MAIN
