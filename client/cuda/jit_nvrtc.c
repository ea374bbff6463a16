/* SPDX-License-Identifier: Apache-2.0 */
/* The compiler NVRTC, for the JIT store. */
#include "config.h"

#include <stdio.h>

#include "client/cuda/jit_store.h"

static enum paged_status
jit_nvrtc_open(void *argument, char *version, size_t size, struct paged_error *error)
{
	struct jit_nvrtc *compiler = argument;
	struct paged_error cause;
	enum paged_status status = cuda_nvrtc_open(&compiler->nvrtc, compiler->driver_version, &cause);

	if (status != PAGED_OK)
		return paged_fail(error, status, "these mods must be compiled: %s", cause.text);
	snprintf(version, size, "nvrtc %d.%d", compiler->nvrtc.major, compiler->nvrtc.minor);
	return PAGED_OK;
}

static enum paged_status
jit_nvrtc_compile(void *argument, const struct jit_request *request, struct cuda_jit_image *compiled_p,
		  struct paged_error *error)
{
	const struct jit_nvrtc *compiler = argument;
	struct cuda_jit_params params = { request->source, request->kernel, request->mods, "" };
	enum paged_status status =
		cuda_jit_arch(&compiler->nvrtc, request->capability, request->arch_specific, params.arch, error);

	return status == PAGED_OK ? cuda_jit_compile(&compiler->nvrtc, &params, compiled_p, error) : status;
}

static void
jit_nvrtc_close(void *argument)
{
	struct jit_nvrtc *compiler = argument;

	cuda_nvrtc_close(&compiler->nvrtc);
}

const struct jit_compiler jit_compiler_nvrtc = { jit_nvrtc_open, jit_nvrtc_compile, jit_nvrtc_close };
