/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/layout.h"

static enum paged_status
params_check(const struct layout_params *p, struct paged_error *error)
{
	if (p->n_layers == 0 || p->n_kv_heads == 0 || p->page_size == 0 || p->n_pages == 0 || p->k_dim == 0 ||
	    p->v_dim == 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "geometry has a zero: %u layers, %u KV heads, page size %u, %u pages, K dim %u, "
				  "V dim %u",
				  p->n_layers, p->n_kv_heads, p->page_size, p->n_pages, p->k_dim, p->v_dim);
	if (paged_dtype_size(p->dtype) == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "dtype %d is none of f32, f16, bf16", (int)p->dtype);
	if (p->page_size > PAGED_MAX_PAGE_SIZE)
		return paged_fail(error, PAGED_ERR_LIMIT, "page size %u tokens exceeds %u", p->page_size,
				  PAGED_MAX_PAGE_SIZE);
	if (p->k_dim > PAGED_MAX_DIM || p->v_dim > PAGED_MAX_DIM)
		return paged_fail(error, PAGED_ERR_LIMIT, "K dim %u, V dim %u: the largest is %u", p->k_dim, p->v_dim,
				  PAGED_MAX_DIM);
	if (p->v_in_k && p->v_dim > p->k_dim)
		return paged_fail(error, PAGED_ERR_INVALID, "V dim %u cannot be the first dims of a K dim of %u",
				  p->v_dim, p->k_dim);
	if (p->alignment & (p->alignment - 1))
		return paged_fail(error, PAGED_ERR_INVALID, "alignment %u is no power of two", p->alignment);
	return PAGED_OK;
}

/* One (page, head) of a plane, rounded up to the alignment; at most 256 x 576 x 4 bytes. */
static uint64_t
head_bytes(const struct layout_params *p, uint32_t dim)
{
	uint64_t bytes = (uint64_t)p->page_size * dim * paged_dtype_size(p->dtype);

	return (bytes + p->alignment - 1) & ~((uint64_t)p->alignment - 1);
}

enum paged_status
layout_init(struct layout *layout, const struct layout_params *params, struct paged_error *error)
{
	enum paged_status status = params_check(params, error);
	uint64_t k_head, v_head, k_bytes, page_stride, layer_stride, size;

	if (status != PAGED_OK)
		return status;
	layout->params = *params;
	if (layout->params.alignment == 0)
		layout->params.alignment = LAYOUT_ALIGNMENT_HOST;
	params = &layout->params;

	k_head = head_bytes(params, params->k_dim);
	v_head = params->v_in_k ? 0 : head_bytes(params, params->v_dim);
	if (__builtin_mul_overflow(k_head, (uint64_t)params->n_kv_heads, &k_bytes) ||
	    __builtin_mul_overflow(k_head + v_head, (uint64_t)params->n_kv_heads, &page_stride) ||
	    __builtin_mul_overflow(page_stride, (uint64_t)params->n_pages, &layer_stride) ||
	    __builtin_mul_overflow(layer_stride, (uint64_t)params->n_layers, &size) || size > INT64_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT, "%u layers of %u pages of %u heads exceed 2^63 bytes",
				  params->n_layers, params->n_pages, params->n_kv_heads);

	layout->plane[LAYOUT_K] = (struct layout_plane){
		.dtype = params->dtype,
		.dim = params->k_dim,
		.offset = 0,
		.layer_stride = layer_stride,
		.page_stride = page_stride,
		.head_stride = k_head,
		.token_stride = (uint64_t)params->k_dim * paged_dtype_size(params->dtype),
	};
	layout->plane[LAYOUT_V] = layout->plane[LAYOUT_K];
	layout->plane[LAYOUT_V].dim = params->v_dim;
	if (!params->v_in_k) {
		layout->plane[LAYOUT_V].offset = k_bytes;
		layout->plane[LAYOUT_V].head_stride = v_head;
		layout->plane[LAYOUT_V].token_stride = (uint64_t)params->v_dim * paged_dtype_size(params->dtype);
	}
	layout->page_bytes = page_stride * params->n_layers;
	layout->size = size;
	return PAGED_OK;
}
