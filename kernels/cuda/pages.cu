/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of pages: a block one (page, layer, plane, head) at a time, which is contiguous on both sides. */
#include "kernels/cuda/elements.h"

SIMT_FUNCTION uint64_t
side_page(const cuda_copy_side &side, uint32_t copy)
{
	return side.pages == 0 ? copy : pointer_to<const uint32_t>(side.pages)[copy];
}

SIMT_FUNCTION uint64_t
side_address(const cuda_copy_side &side, uint32_t plane, uint32_t layer, uint64_t page, uint32_t head)
{
	return side.address[plane] + layer * side.layer_stride[plane] + page * side.page_stride[plane] +
	       head * side.head_stride[plane];
}

SIMT_FUNCTION void
bytes_copy(uint64_t to, uint64_t from, uint32_t size)
{
	for (uint32_t i = simt_thread(); i < size / 16; i += simt_n_threads())
		pointer_to<simt_vec4>(to)[i] = pointer_to<const simt_vec4>(from)[i];
	if (simt_thread() < size % 16) {
		uint32_t i = size / 16 * 16 + simt_thread();

		pointer_to<uint8_t>(to)[i] = pointer_to<const uint8_t>(from)[i];
	}
}

SIMT_KERNEL(copy_pages, cuda_copy_params, CUDA_COPY_THREADS, 1)
{
	uint32_t pieces = p.n_layers * p.n_planes * p.n_heads;
	uint64_t n = (uint64_t)p.n_copies * pieces;

	for (uint64_t i = simt_block(); i < n; i += simt_n_blocks()) {
		uint32_t copy = (uint32_t)(i / pieces), piece = (uint32_t)(i % pieces);
		uint32_t head = piece % p.n_heads, plane = piece / p.n_heads % p.n_planes;
		uint32_t layer = piece / p.n_heads / p.n_planes;
		uint32_t tokens = p.n_tokens == 0 ? p.page_size : pointer_to<const uint32_t>(p.n_tokens)[copy];
		uint64_t from = side_page(p.from, copy), to = side_page(p.to, copy);

		if (from >= p.from.n_pages || to >= p.to.n_pages || tokens > p.page_size) {
			if (p.faults != 0 && simt_thread() == 0)
				simt_atomic_or(pointer_to<uint32_t>(p.faults), CUDA_FAULT_PAGE);
			continue;
		}
		bytes_copy(side_address(p.to, plane, layer, to, head), side_address(p.from, plane, layer, from, head),
			   tokens * p.token_stride[plane]);
	}
}
