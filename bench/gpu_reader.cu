/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu_reader.h"
#include "kernels/cuda/simt.h"

SIMT_FUNCTION simt_vec4
piece_load(const gpu_reader_params &p, uint32_t piece)
{
	const uint32_t *table = reinterpret_cast<const uint32_t *>(p.table);
	uint64_t page = table[piece / p.pieces_of_page];
	uint64_t at = p.address + page * p.page_stride + piece % p.pieces_of_page * GPU_READER_PIECE;

	return reinterpret_cast<const simt_vec4 *>(at)[simt_lane()];
}

SIMT_KERNEL(gpu_reader, gpu_reader_params, GPU_READER_THREADS, 1)
{
	uint32_t n_warps = simt_n_blocks() * (GPU_READER_THREADS / 32);
	uint32_t warp = simt_block() * (GPU_READER_THREADS / 32) + simt_warp();
	simt_vec4 sum = { 0, 0, 0, 0 };

	for (uint64_t first = (uint64_t)warp * GPU_READER_DEPTH; first < p.n_pieces;
	     first += (uint64_t)n_warps * GPU_READER_DEPTH) {
		simt_vec4 words[GPU_READER_DEPTH];

		for (uint32_t i = 0; i < GPU_READER_DEPTH; i++) {
			uint64_t piece = first + i;

			words[i] = piece_load(p, piece < p.n_pieces ? (uint32_t)piece : p.n_pieces - 1);
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
