/* SPDX-License-Identifier: Apache-2.0 */
/**
 * nvrtc.h - the run-time compiler of the CUDA toolkit, loaded at run time
 *
 * As in driver.h, the declarations follow NVIDIA's documentation and the
 * library is never linked.  Where a toolkit is installed,
 * tests/fake-cuda/unit_cuda_abi.c compares the declarations with its nvrtc.h.
 *
 * Life: a struct cuda_nvrtc is filled by cuda_nvrtc_open() and valid until
 * cuda_nvrtc_close(); a program belongs to one thread at a time.
 * Threads: different programs may be compiled at the same time.
 */
#ifndef PAGED_KERNELS_CUDA_HOST_NVRTC_H
#define PAGED_KERNELS_CUDA_HOST_NVRTC_H

#include <stddef.h>

#include "common/status.h"

typedef struct _nvrtcProgram *cuda_program;

enum cuda_nvrtc_result {
	CUDA_NVRTC_SUCCESS = 0,
	CUDA_NVRTC_ERROR_OUT_OF_MEMORY = 1,
	CUDA_NVRTC_ERROR_INVALID_INPUT = 3,
	CUDA_NVRTC_ERROR_INVALID_PROGRAM = 4,
	CUDA_NVRTC_ERROR_INVALID_OPTION = 5,
	CUDA_NVRTC_ERROR_COMPILATION = 6,
	CUDA_NVRTC_ERROR_INTERNAL_ERROR = 11,
};

/**
 * The oldest version that compiles the kernels, as 1000 * major + 10 * minor: the sources use __grid_constant__, which
 * CUDA 11.7 introduced.  Architecture-specific kernels need a newer version, which cuda_jit_arch() checks.
 */
#define CUDA_NVRTC_OLDEST 11070

/* All but error_string return enum cuda_nvrtc_result as an int.  Sizes of PTX and log include the terminating zero. */
#define CUDA_NVRTC_FUNCTIONS(F)                                                                                     \
	F(int, nvrtcVersion, version, (int *major, int *minor))                                                     \
	F(const char *, nvrtcGetErrorString, error_string, (int result))                                            \
	F(int, nvrtcGetNumSupportedArchs, n_archs, (int *n))                                                        \
	F(int, nvrtcGetSupportedArchs, archs, (int *archs))                                                         \
	F(int, nvrtcCreateProgram, create,                                                                          \
	  (cuda_program * program, const char *source, const char *name, int n_headers, const char *const *headers, \
	   const char *const *header_names))                                                                        \
	F(int, nvrtcDestroyProgram, destroy, (cuda_program * program))                                              \
	F(int, nvrtcCompileProgram, compile, (cuda_program program, int n_options, const char *const *options))     \
	F(int, nvrtcGetCUBINSize, cubin_size, (cuda_program program, size_t * size))                                \
	F(int, nvrtcGetCUBIN, cubin, (cuda_program program, char *cubin))                                           \
	F(int, nvrtcGetPTXSize, ptx_size, (cuda_program program, size_t * size))                                    \
	F(int, nvrtcGetPTX, ptx, (cuda_program program, char *ptx))                                                 \
	F(int, nvrtcGetProgramLogSize, log_size, (cuda_program program, size_t * size))                             \
	F(int, nvrtcGetProgramLog, log, (cuda_program program, char *log))

struct cuda_nvrtc {
	void *library;
	int major, minor; /* version of its toolkit */
#define CUDA_NVRTC_FIELD(type, symbol, field, parameters) type(*field) parameters;
	CUDA_NVRTC_FUNCTIONS(CUDA_NVRTC_FIELD)
#undef CUDA_NVRTC_FIELD
};

/**
 * cuda_nvrtc_open - load libnvrtc
 *
 * Loads $PAGED_NVRTC if that is set (it is ignored in set-user-ID programs).
 * Else it tries the library's names for CUDA 11 to 13: that of the driver's
 * major version, then older ones, then newer ones.  A library of the name that
 * the process has loaded already is used.
 *
 * @param[in] driver_version  of the driver that is to load the code, as in struct cuda_driver; 0: any, the newest first
 * @retval PAGED_ERR_UNSUPPORTED  there is no such library, or it is older than
 *                                CUDA_NVRTC_OLDEST, or it lacks a function; the error text lists the
 *                                names tried, or has the version and the one needed
 */
enum paged_status cuda_nvrtc_open(struct cuda_nvrtc *nvrtc, int driver_version, struct paged_error *error);

/** cuda_nvrtc_close - also valid for a struct of zeros */
void cuda_nvrtc_close(struct cuda_nvrtc *nvrtc);

#endif
