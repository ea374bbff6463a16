/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_args.h - values and arrays of mods in the device's memory, for compiled mods and the host
 *
 * One struct cuda_mod_args serves a mask mod and a score mod together; a
 * compiled mod gets its address.  New values, arrays or extents are another
 * one of the same code.  It does not change while a kernel runs, and neither
 * does what it points at but the record of a bad index.
 */
#ifndef PAGED_KERNELS_CUDA_MOD_ARGS_H
#define PAGED_KERNELS_CUDA_MOD_ARGS_H

#if !defined(__CUDACC_RTC__)
#include <stdint.h>
#endif

#define CUDA_MOD_INDEXES 4
#define CUDA_MOD_NAMES 16

/** An array, or a parameter. */
struct cuda_mod_name {
	uint64_t address;                  /* of element [0, 0, ...], a multiple of the element's size */
	int64_t strides[CUDA_MOD_INDEXES]; /* bytes, multiples of the element's size */
	uint32_t extents[CUDA_MOD_INDEXES];
	uint32_t value; /* of a parameter: the bits of an int or an f32 */
	uint32_t unused;
};

/** The first index found out of bounds; zeroed by the host, read once the kernels have ended. */
struct cuda_mod_range {
	uint32_t found;
	uint32_t kind;  /* enum mod_kind: whose array */
	uint32_t array; /* number of the name within that mod */
	uint32_t dim;
	int32_t index;
	uint32_t extent;
};

struct cuda_mod_args {
	uint64_t range;                                /* struct cuda_mod_range; 0: not wanted */
	struct cuda_mod_name names[2][CUDA_MOD_NAMES]; /* by enum mod_kind, then as in the mod */
};

#endif
