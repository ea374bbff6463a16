/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_args.h - layout of mods' parameters and arrays in device memory, for compiled mods and the host
 *
 * One struct cuda_mod_args has the arguments of a mask mod and of a score mod;
 * a compiled mod gets its address.  Other values, arrays or extents need
 * another struct, not other code.  While a kernel runs, nothing changes the
 * struct or the memory that it points to, except the record of a bad index.
 */
#ifndef PAGED_KERNELS_MOD_MOD_ARGS_H
#define PAGED_KERNELS_MOD_MOD_ARGS_H

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
	uint32_t value; /* a parameter's value: the bits of an int or an f32 */
	uint32_t unused;
};

/** The first index that was out of bounds; the host zeroes the record, and reads it after the kernels have ended. */
struct cuda_mod_range {
	uint32_t found;
	uint32_t kind;  /* enum mod_kind of the mod that has the array */
	uint32_t array; /* index of the array's name in that mod */
	uint32_t dim;
	int32_t index;
	uint32_t extent;
};

struct cuda_mod_args {
	uint64_t range;                                /* address of a struct cuda_mod_range; 0: record nothing */
	struct cuda_mod_name names[2][CUDA_MOD_NAMES]; /* by enum mod_kind, then in the mod's order */
};

#endif
