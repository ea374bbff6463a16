/* SPDX-License-Identifier: Apache-2.0 */
/**
 * gpu_reader.h - a kernel that reads pages in the order of a page table and computes nothing: the limit of attention
 *
 * Shared by gpu_reader.cu and the host code that launches it.  Any number of
 * blocks; with n_chunks of 0 the kernel does nothing.
 */
#ifndef PAGED_BENCH_GPU_GPU_READER_H
#define PAGED_BENCH_GPU_GPU_READER_H

#include <stdint.h>

#define GPU_READER_THREADS 256
/** Bytes that a warp reads with one load. */
#define GPU_READER_CHUNK_BYTES 512u
/** Chunks that each warp has in flight. */
#define GPU_READER_DEPTH 8u

struct gpu_reader_params {
	uint64_t address; /* of the layer's page 0 */
	uint64_t page_stride;
	uint64_t table; /* uint32_t physical pages */
	uint64_t out;   /* uint32_t, written if the XOR of a thread's words is 1; keeps the loads from being optimised
			   away */
	uint32_t chunks_per_page;
	uint32_t n_chunks;
};

#endif
