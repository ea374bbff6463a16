/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tensor_map.h - what the fake driver writes into a CUtensorMap, and the model of tensor copies reads from it
 *
 * Only what kernels here use: four dimensions of 2-byte elements, and boxes
 * whose rows have 128 bytes (CU_TENSOR_MAP_SWIZZLE_128B).
 */
#ifndef TESTS_FAKE_CUDA_TENSOR_MAP_H
#define TESTS_FAKE_CUDA_TENSOR_MAP_H

#include <stdint.h>

#define TENSOR_MAP_MAGIC UINT64_C(0x7061676564746d61)
#define TENSOR_MAP_RANK 4
#define TENSOR_MAP_ELEMENT 2u    /* bytes */
#define TENSOR_MAP_ROW_SIZE 128u /* bytes of a box's row */

struct tensor_map {
	uint64_t magic;
	uint64_t address;
	uint64_t stride[TENSOR_MAP_RANK]; /* bytes; of dimension 0: TENSOR_MAP_ELEMENT */
	uint32_t dim[TENSOR_MAP_RANK];    /* elements */
	uint32_t box[TENSOR_MAP_RANK];    /* elements */
};

_Static_assert(sizeof(struct tensor_map) <= 128, "a CUtensorMap has 128 bytes");

#endif
