/* SPDX-License-Identifier: Apache-2.0 */
/* New keys and values into the pages: a block a token at a time, a thread eight elements of a head. */
#include "kernels/cuda/rows.h"

/* Where a packed row's token lies; false, and a fault told, if nowhere. */
SIMT_FUNCTION bool
append_locate(const cuda_append_params &p, uint32_t packed, uint32_t *page, uint32_t *slot)
{
	uint32_t r = plan_find_query(p.plan, packed);
	const cuda_row &row = plan_row(p.plan, r);
	int64_t position;

	/* Rows with a fault are empty, and leave gaps. */
	if (packed - row.q_start >= row.q_len || row.skip_append)
		return false;
	if (p.positions != 0)
		position = pointer_to<const uint32_t>(p.positions)[packed];
	else
		position = (int64_t)row.kv_len - row.q_len + (packed - row.q_start);
	if (position < 0 || position >= (int64_t)p.plan.table_stride * p.pages.page_size) {
		plan_fault(p.plan, CUDA_FAULT_POSITION, r);
		return false;
	}
	*slot = (uint32_t)position % p.pages.page_size;
	*page = plan_page(p.plan, r, (uint32_t)position / p.pages.page_size, p.pages.n_pages);
	return *page != UINT32_MAX;
}

SIMT_FUNCTION void
append_eight(const cuda_append_params &p, uint32_t plane, const cuda_tensor &from, uint32_t packed, uint32_t page,
	     uint32_t slot, uint32_t at)
{
	const cuda_plane &to = p.pages.plane[plane];
	uint32_t eights = (to.dim + 7) / 8;

	eight_copy(plane_address(to, page, at / eights, slot), to.dtype, tensor_address(from, packed, at / eights),
		   from.dtype, at % eights, to.dim);
}

SIMT_KERNEL(append_tokens, cuda_append_params, CUDA_APPEND_THREADS, 1)
{
	uint32_t total = plan_head(p.plan)->total_q;
	uint32_t n_k = (p.pages.plane[CUDA_K].dim + 7) / 8 * p.pages.n_kv_heads;
	uint32_t n_v = p.pages.v_in_k ? 0 : (p.pages.plane[CUDA_V].dim + 7) / 8 * p.pages.n_kv_heads;
	uint32_t page, slot;

	for (uint32_t packed = simt_block(); packed < total; packed += simt_n_blocks()) {
		if (!append_locate(p, packed, &page, &slot))
			continue;
		for (uint32_t i = simt_thread(); i < n_k + n_v; i += simt_n_threads())
			if (i < n_k)
				append_eight(p, CUDA_K, p.k, packed, page, slot, i);
			else
				append_eight(p, CUDA_V, p.v, packed, page, slot, i - n_k);
	}
}
