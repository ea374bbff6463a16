/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merge two attention results over disjoint keys (the public call); each warp merges one (query row, head) at a time.
 * The KV chunks of one result are combined in attention.h.
 */
#include "kernels/cuda/device/softmax.h"

SIMT_FUNCTION float
part_element(const cuda_merge_params &p, uint32_t part, uint32_t token, uint32_t head, float lse, uint32_t d)
{
	if (lse == -infinity())
		return 0;
	return element_load(tensor_address(p.part[part], token, head), p.part[part].dtype, d);
}

SIMT_KERNEL(merge_results, cuda_merge_params, CUDA_MERGE_THREADS, 1)
{
	uint32_t warps = simt_n_threads() / 32;
	uint64_t n = (uint64_t)p.n_tokens * p.n_heads;

	for (uint64_t at = simt_block() * warps + simt_warp(); at < n; at += simt_n_blocks() * warps) {
		uint32_t token = (uint32_t)(at / p.n_heads), head = (uint32_t)(at % p.n_heads);
		float a = pointer_to<const float>(p.part_lse[0])[at], b = pointer_to<const float>(p.part_lse[1])[at];
		/* If a or b is NaN, the sum becomes NaN. */
		float top = softmax_max(a == a ? a : b, b);
		float keep = softmax_weight(a, top), add = softmax_weight(b, top);
		float sum = keep + add, factor = sum == 0 ? 0 : 1 / sum;

		/* `out` may alias a part: a lane reads an element before it writes it; the LSE is written last. */
		for (uint32_t d = simt_lane(); d < p.out.dim; d += 32) {
			float value = simt_fma(part_element(p, 1, token, head, b, d), add,
					       part_element(p, 0, token, head, a, d) * keep);

			element_store(tensor_address(p.out, token, head), p.out.dtype, d, value * factor);
		}
		simt_warp_sync();
		if (p.lse != 0 && simt_lane() == 0)
			pointer_to<float>(p.lse)[at] = softmax_lse(top, sum);
	}
}
