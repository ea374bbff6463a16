/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/gpu_reader.h"
#include "kernels/cuda/simt/simt.h"
/* paged-bench also measures copy_pages alone, which the library does not export.  The fake driver has it already. */
#ifdef __CUDACC__
#include "kernels/cuda/pages.cu"
#endif

SIMT_FUNCTION simt_vec4
chunk_load(const gpu_reader_params &p, uint32_t chunk)
{
	const uint32_t *table = reinterpret_cast<const uint32_t *>(p.table);
	uint64_t page = table[chunk / p.chunks_per_page];
	uint64_t at = p.address + page * p.page_stride + chunk % p.chunks_per_page * GPU_READER_CHUNK_BYTES;

	return reinterpret_cast<const simt_vec4 *>(at)[simt_lane()];
}

SIMT_KERNEL(gpu_reader, gpu_reader_params, GPU_READER_THREADS, 1)
{
	uint32_t n_warps = simt_n_blocks() * (GPU_READER_THREADS / 32);
	uint32_t warp = simt_block() * (GPU_READER_THREADS / 32) + simt_warp();
	simt_vec4 sum = { 0, 0, 0, 0 };

	for (uint64_t first = (uint64_t)warp * GPU_READER_DEPTH; first < p.n_chunks;
	     first += (uint64_t)n_warps * GPU_READER_DEPTH) {
		simt_vec4 words[GPU_READER_DEPTH];

		for (uint32_t i = 0; i < GPU_READER_DEPTH; i++) {
			uint64_t chunk = first + i;

			words[i] = chunk_load(p, chunk < p.n_chunks ? (uint32_t)chunk : p.n_chunks - 1);
		}
		for (uint32_t i = 0; i < GPU_READER_DEPTH; i++) {
			sum.x ^= words[i].x;
			sum.y ^= words[i].y;
			sum.z ^= words[i].z;
			sum.w ^= words[i].w;
		}
	}
	if ((sum.x | sum.y | sum.z | sum.w) == 1u)
		*reinterpret_cast<uint32_t *>(p.out) = 1;
}
