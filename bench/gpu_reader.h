/* SPDX-License-Identifier: Apache-2.0 */
/**
 * gpu_reader.h - the limit of attention on a GPU: its pages read in the order of its table, and nothing computed
 *
 * Shared by gpu_reader.cu and who launches it.  Any number of blocks; with
 * n_pieces of 0 it is the kernel that does nothing.
 */
#ifndef PAGED_BENCH_GPU_READER_H
#define PAGED_BENCH_GPU_READER_H

#include <stdint.h>

#define GPU_READER_THREADS 256
/** What a warp reads at once, bytes. */
#define GPU_READER_PIECE 512u
/** Pieces that each warp has on their way. */
#define GPU_READER_DEPTH 8u

struct gpu_reader_params {
	uint64_t address; /* of the layer's page 0 */
	uint64_t page_stride;
	uint64_t table; /* uint32_t physical pages */
	uint64_t out;   /* uint32_t, written only if all that was read is 0 but for a bit: so nothing is left out */
	uint32_t pieces_of_page;
	uint32_t n_pieces;
};

#endif
