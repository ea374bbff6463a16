/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/layout.h"

static enum paged_status
layout_check_params(const struct layout_params *p, struct paged_error *error)
{
	if (p->n_layers == 0 || p->n_kv_heads == 0 || p->page_size == 0 || p->n_pages == 0 || p->k_dim == 0 ||
	    p->v_dim == 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "geometry has a zero: %u layers, %u KV heads, page size %u, %u pages, K dim %u, "
				  "V dim %u",
				  p->n_layers, p->n_kv_heads, p->page_size, p->n_pages, p->k_dim, p->v_dim);
	if (paged_dtype_size(p->dtype) == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "dtype %d is none of f32, f16, bf16, e4m3, e5m2, i8",
				  (int)p->dtype);
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

static struct layout_plane
layout_make_plane(enum paged_dtype dtype, uint32_t dim)
{
	return (struct layout_plane){ .dtype = dtype,
				      .dim = dim,
				      .token_stride = (uint64_t)dim * paged_dtype_size(dtype) };
}

static void
layout_choose_planes(struct layout *layout)
{
	const struct layout_params *p = &layout->params;
	const struct layout_plane none = { .dtype = PAGED_DTYPE_NONE };
	bool scales = p->dtype == PAGED_I8;

	layout->plane[LAYOUT_K] = layout_make_plane(p->dtype, p->k_dim);
	layout->plane[LAYOUT_V] = layout_make_plane(p->dtype, p->v_dim);
	layout->plane[LAYOUT_K_SCALE] = scales ? layout_make_plane(PAGED_F32, 1) : none;
	layout->plane[LAYOUT_V_SCALE] = layout->plane[LAYOUT_K_SCALE];
}

/* V in K: the V planes alias the K planes, with V's own dim. */
static void
layout_alias_planes(struct layout *layout)
{
	layout->plane[LAYOUT_V] = layout->plane[LAYOUT_K];
	layout->plane[LAYOUT_V].dim = layout->params.v_dim;
	layout->plane[LAYOUT_V_SCALE] = layout->plane[LAYOUT_K_SCALE];
}

/*
 * Places the planes one after another.  No overflow in head_stride: at most 256 x 576 x 4 bytes before
 * rounding up.
 */
static bool
layout_place_planes(struct layout *layout, uint64_t *page_stride_p)
{
	const struct layout_params *p = &layout->params;
	uint64_t at = 0;

	for (unsigned int i = 0; i < LAYOUT_N_PLANES; i++) {
		struct layout_plane *plane = &layout->plane[i];
		uint64_t mask = (uint64_t)p->alignment - 1, bytes;

		if (plane->dtype == PAGED_DTYPE_NONE || (p->v_in_k && (i == LAYOUT_V || i == LAYOUT_V_SCALE)))
			continue;
		plane->offset = at;
		plane->head_stride = (plane->token_stride * p->page_size + mask) & ~mask;
		if (__builtin_mul_overflow(plane->head_stride, (uint64_t)p->n_kv_heads, &bytes) ||
		    __builtin_add_overflow(at, bytes, &at))
			return false;
	}
	*page_stride_p = at;
	return true;
}

enum paged_status
layout_init(struct layout *layout, const struct layout_params *params, struct paged_error *error)
{
	enum paged_status status = layout_check_params(params, error);
	uint64_t page_stride, layer_stride, size;

	if (status != PAGED_OK)
		return status;
	layout->params = *params;
	if (layout->params.alignment == 0)
		layout->params.alignment = LAYOUT_ALIGNMENT_HOST;
	params = &layout->params;

	layout_choose_planes(layout);
	if (!layout_place_planes(layout, &page_stride) ||
	    __builtin_mul_overflow(page_stride, (uint64_t)params->n_pages, &layer_stride) ||
	    __builtin_mul_overflow(layer_stride, (uint64_t)params->n_layers, &size) || size > INT64_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT, "%u layers of %u pages of %u heads exceed 2^63 bytes",
				  params->n_layers, params->n_pages, params->n_kv_heads);
	for (unsigned int i = 0; i < LAYOUT_N_PLANES; i++) {
		if (layout->plane[i].dtype == PAGED_DTYPE_NONE)
			continue;
		layout->plane[i].layer_stride = layer_stride;
		layout->plane[i].page_stride = page_stride;
	}
	if (params->v_in_k)
		layout_alias_planes(layout);
	layout->page_bytes = page_stride * params->n_layers;
	layout->size = size;
	return PAGED_OK;
}

void
layout_report(const struct layout *layout, struct paged_pool_entry *entry)
{
	const struct layout_params *params = &layout->params;

	entry->page_bytes = layout->page_bytes;
	entry->size = layout->size;
	entry->n_layers = params->n_layers;
	entry->n_kv_heads = params->n_kv_heads;
	entry->k_dim = params->k_dim;
	entry->v_dim = params->v_dim;
	entry->v_in_k = params->v_in_k;
	entry->dtype = params->dtype;
}
