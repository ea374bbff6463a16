/* SPDX-License-Identifier: Apache-2.0 */
/**
 * gpu_reader.h - the limit of attention on a GPU: read its pages in page table order and compute nothing
 *
 * Shared by gpu_reader.cu and its launcher.  The grid is any number of blocks;
 * with n_pieces of 0 it is the empty kernel.
 */
#ifndef PAGED_BENCH_GPU_READER_H
#define PAGED_BENCH_GPU_READER_H

#include <stdint.h>

#define GPU_READER_THREADS 256
/** Bytes that a warp reads at a time. */
#define GPU_READER_PIECE 512u
/** Loads of pieces that each warp has in flight. */
#define GPU_READER_DEPTH 8u

struct gpu_reader_params {
	uint64_t address; /* of the layer's page 0 */
	uint64_t page_stride;
	uint64_t table; /* uint32_t physical pages */
	uint64_t out;   /* uint32_t, almost never written; keeps the compiler from removing the loads */
	uint32_t pieces_of_page;
	uint32_t n_pieces;
};

#endif
