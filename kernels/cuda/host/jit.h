/* SPDX-License-Identifier: Apache-2.0 */
/**
 * jit.h - JIT: compile a built-in kernel source with mods in it by NVRTC
 *
 * The result is an image for cuModuleLoadData(): a cubin if the compiler knows
 * the device or an older one of its family, else PTX, which the driver
 * compiles.  Floats keep the semantics of f32: subnormals are not flushed and
 * division is not approximated (NVRTC's defaults), and operations of mods are
 * not contracted to FMA (mod_device.h).
 *
 * Threads: any number at the same time.  A compilation takes a third of a
 * second or more.
 */
#ifndef PAGED_KERNELS_CUDA_HOST_JIT_H
#define PAGED_KERNELS_CUDA_HOST_JIT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/host/nvrtc.h"

/** The name of the mods' struct in attention.h. */
#define CUDA_MOD_STRUCT "attention_mod"

/** Size of an architecture's name: "sm_90", "sm_90a", "compute_90". */
#define CUDA_ARCH_SIZE 24

/** Inputs of a compilation; with the versions of compiler and sources they determine the image's bytes. */
struct cuda_jit_params {
	const char *source; /* of the module, as choose_kernel.h names it: "attention_mma" */
	const char *kernel; /* the only kernel of the source that is compiled */
	const char *mods;   /* from mod_cuda_source(); the struct's name is CUDA_MOD_STRUCT */
	char arch[CUDA_ARCH_SIZE];
};

struct cuda_jit_image {
	char *bytes; /* from malloc(); `size` includes the terminating zero of PTX */
	size_t size;
};

/**
 * cuda_jit_arch - choose the architecture to compile for, for a device
 *
 * @param[in] capability     10 * major + minor
 * @param[in] arch_specific  of struct cuda_choice: the device's own architecture with its suffix "a", whose code runs
 *                           on no other device
 * @retval PAGED_ERR_UNSUPPORTED  the device is older than every architecture of this NVRTC, or NVRTC lacks the
 *                                architecture-specific one
 */
enum paged_status cuda_jit_arch(const struct cuda_nvrtc *nvrtc, int capability, bool arch_specific,
				char arch[CUDA_ARCH_SIZE], struct paged_error *error);

/**
 * cuda_jit_compile - compile an image
 *
 * @param[out] compiled_p  written on PAGED_OK only; the caller frees its bytes
 * @retval PAGED_ERR_NOENT    no such source is built in
 * @retval PAGED_ERR_BACKEND  NVRTC failed; the error text has its first message
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status cuda_jit_compile(const struct cuda_nvrtc *nvrtc, const struct cuda_jit_params *params,
				   struct cuda_jit_image *compiled_p, struct paged_error *error);

#endif
