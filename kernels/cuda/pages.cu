/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_pages: each block copies one (page, layer, plane, head) at a time, which
 * is contiguous on both sides.  gather_tokens: each block copies one token at a
 * time.
 */
#include "kernels/cuda/device/plan_lookup.h"

SIMT_FUNCTION uint64_t
cuda_copy_side_page(const cuda_copy_side &side, uint32_t copy)
{
	return side.pages == 0 ? copy : pointer_to<const uint32_t>(side.pages)[copy];
}

SIMT_FUNCTION uint64_t
cuda_copy_side_address(const cuda_copy_side &side, uint32_t plane, uint32_t layer, uint64_t page, uint32_t head)
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
	uint32_t n_parts = p.n_layers * p.n_planes * p.n_heads;
	uint64_t n = (uint64_t)p.n_copies * n_parts;

	for (uint64_t i = simt_block(); i < n; i += simt_n_blocks()) {
		uint32_t copy = (uint32_t)(i / n_parts), part = (uint32_t)(i % n_parts);
		uint32_t head = part % p.n_heads, plane = part / p.n_heads % p.n_planes;
		uint32_t layer = part / p.n_heads / p.n_planes;
		uint32_t tokens = p.n_tokens == 0 ? p.page_size : pointer_to<const uint32_t>(p.n_tokens)[copy];
		uint64_t from = cuda_copy_side_page(p.from, copy), to = cuda_copy_side_page(p.to, copy);

		if (from >= p.from.n_pages || to >= p.to.n_pages || tokens > p.page_size) {
			if (p.faults != 0 && simt_thread() == 0)
				simt_atomic_or(pointer_to<uint32_t>(p.faults), CUDA_FAULT_PAGE);
			continue;
		}
		bytes_copy(cuda_copy_side_address(p.to, plane, layer, to, head),
			   cuda_copy_side_address(p.from, plane, layer, from, head), tokens * p.token_stride[plane]);
	}
}

/* A token to gather: its page and slot, and its index in the packed tensors. */
struct gather_token {
	uint32_t page, slot;
	uint64_t packed;
};

/* Copy eight elements of a head, multiplied by their scale if they are bytes. */
SIMT_FUNCTION void
vec8_gather_scaled(const cuda_plane &from, uint64_t from_head, uint64_t to_head, uint32_t to_dtype, uint32_t vec8,
		   float scale, uint32_t dim)
{
	uint32_t begin = vec8 * 8;
	float v[8];

	if (dtype_size(from.dtype) > 1) {
		vec8_copy(to_head, to_dtype, from_head, from.dtype, vec8, dim);
		return;
	}
	vec8_load_first(v, from_head + begin, from.dtype, dim - begin);
	SIMT_UNROLL
	for (uint32_t i = 0; i < 8; i++)
		v[i] = simt_mul(v[i], scale);
	vec8_store_first(to_head + begin * dtype_size(to_dtype), to_dtype, v, dim - begin);
}

SIMT_FUNCTION void
plane_gather(const cuda_gather_params &p, uint32_t plane, const cuda_tensor &to, const gather_token &token)
{
	const cuda_plane &from = p.pages.plane[plane];
	uint64_t heads = plane == CUDA_K || p.pages.v_in_k != 0 ? p.k_scale : p.v_scale;
	uint32_t vec8s = (to.dim + 7) / 8;

	if (to.address == 0)
		return;
	for (uint32_t i = simt_thread(); i < vec8s * p.pages.n_kv_heads; i += simt_n_threads()) {
		uint32_t head = i / vec8s;

		vec8_gather_scaled(from, plane_address(from, token.page, head, token.slot),
				   tensor_address(to, (uint32_t)token.packed, head), to.dtype, i % vec8s,
				   pages_scale(p.pages, plane, heads, token.page, head, token.slot), to.dim);
	}
}

/* The token range of a row.  Returns false if it is not in [kv_first, kv_len]; the first warp records that as a fault. */
SIMT_FUNCTION bool
gather_bounds(const cuda_gather_params &p, uint32_t r, uint32_t *begin, uint32_t *end)
{
	uint32_t kv_first = plan_row_at(p.plan, r).kv_first, kv_len = plan_row_at(p.plan, r).kv_len;

	*begin = p.begin == 0 ? kv_first : pointer_to<const uint32_t>(p.begin)[r];
	*end = p.end == 0 ? kv_len : pointer_to<const uint32_t>(p.end)[r];
	if (*begin <= *end && *end <= kv_len && (*begin >= kv_first || *begin == *end))
		return true;
	if (simt_warp() == 0)
		plan_fault(p.plan, CUDA_FAULT_BOUNDS, r);
	return false;
}

/*
 * Gather tokens from `begin` on to packed indices from `first` on: those of n whose index modulo the number of blocks
 * is this block.
 */
SIMT_FUNCTION void
row_gather(const cuda_gather_params &p, uint32_t r, uint32_t begin, uint32_t n, uint64_t first)
{
	uint64_t n_blocks = simt_n_blocks();

	for (uint64_t at = (simt_block() + n_blocks - first % n_blocks) % n_blocks; at < n; at += n_blocks) {
		uint32_t position = begin + (uint32_t)at;
		gather_token token = { plan_page(p.plan, r, position / p.pages.page_size, p.pages.n_pages),
				       position % p.pages.page_size, first + at };

		if (token.page == UINT32_MAX)
			continue;
		plane_gather(p, CUDA_K, p.k, token);
		plane_gather(p, CUDA_V, p.v, token);
	}
}

/*
 * A row with invalid bounds gathers no tokens.  Each warp loads the bounds of 32 rows at once, a row a lane: those of
 * one row after another would take a round trip to memory each.
 */
SIMT_KERNEL(gather_tokens, cuda_gather_params, CUDA_COPY_THREADS, 1)
{
	uint64_t first = 0;

	for (uint32_t base = 0; base < p.plan.n_rows; base += 32) {
		uint32_t r = base + simt_lane(), left = p.plan.n_rows - base, begin = 0, end = 0;

		if (r < p.plan.n_rows && !gather_bounds(p, r, &begin, &end))
			begin = end = 0;
		for (uint32_t i = 0; i < 32 && i < left; i++) {
			uint32_t from = simt_shuffle(begin, (int)i), n = simt_shuffle(end, (int)i) - from;

			row_gather(p, base + i, from, n, first);
			first += n;
		}
	}
}
