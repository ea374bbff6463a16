/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compile.h - a built-in kernel source with mods in it, by NVRTC
 *
 * What comes out is an image for cuModuleLoadData(): a cubin where the
 * compiler knows the device or an older one of its family, else PTX, which
 * the driver compiles.  Floats keep f32's semantics: neither small numbers nor
 * division are loosened (NVRTC's defaults), and contraction leaves mods alone
 * (mod_device.h).
 *
 * Threads: any number at a time.  Takes a third of a second and more.
 */
#ifndef PAGED_KERNELS_CUDA_COMPILE_H
#define PAGED_KERNELS_CUDA_COMPILE_H

#include <stdint.h>

#include "kernels/cuda/nvrtc.h"

/** What attention.h calls the mods. */
#define CUDA_MOD_STRUCT "attention_mod"

/** "sm_90", "compute_90" */
#define CUDA_ARCH_SIZE 24

/** What an image is made of; with the versions of compiler and sources, all that its bytes depend on. */
struct cuda_compile_params {
	const char *source; /* of the module, as choose.h names it: "attention_mma" */
	const char *kernel; /* the one of its kernels that is wanted */
	const char *mods;   /* by mod_cuda_source(), the struct's name being CUDA_MOD_STRUCT */
	char arch[CUDA_ARCH_SIZE];
};

struct cuda_compiled {
	char *bytes; /* malloc(); PTX ends with a 0 that counts */
	size_t size;
};

/**
 * cuda_compile_arch - what to compile for, for a device
 *
 * @param[in] capability  10 * major + minor
 * @retval PAGED_ERR_UNSUPPORTED  the device is older than all that this NVRTC knows
 */
enum paged_status cuda_compile_arch(const struct cuda_nvrtc *nvrtc, int capability, char arch[CUDA_ARCH_SIZE],
				    struct paged_error *error);

/**
 * cuda_compile - make an image
 *
 * @param[out] compiled_p  written on PAGED_OK only; the caller frees its bytes
 * @retval PAGED_ERR_NOENT    no such source is built in
 * @retval PAGED_ERR_BACKEND  NVRTC refused it; the sentence has its first error
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status cuda_compile(const struct cuda_nvrtc *nvrtc, const struct cuda_compile_params *params,
			       struct cuda_compiled *compiled_p, struct paged_error *error);

#endif
