/* SPDX-License-Identifier: Apache-2.0 */
/**
 * layout.h - where (layer, page, plane, head, token) lies in a pool's memory
 *
 * Order: [layer][page][K, V, K scales, V scales][head][token][dim].  One (page, head) of a plane is
 * contiguous and starts at a multiple of `alignment` bytes; the planes of a page are adjacent.  Only
 * i8 pools have scale planes: one f32 per token and head.  Code addresses memory through the planes'
 * strides; of this order it assumes only that one (page, head) is contiguous.
 */
#ifndef PAGED_KERNELS_LAYOUT_H
#define PAGED_KERNELS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/layout_params.h"
#include "common/paged_reports.h"
#include "common/status.h"

enum { LAYOUT_K, LAYOUT_V, LAYOUT_K_SCALE, LAYOUT_V_SCALE, LAYOUT_N_PLANES };

#define LAYOUT_ALIGNMENT_HOST 64u
#define LAYOUT_ALIGNMENT_CUDA 128u

/** One array in a page; dtype PAGED_DTYPE_NONE: absent.  Offset and strides are bytes from the pool's base. */
struct layout_plane {
	enum paged_dtype dtype;
	uint32_t dim;
	uint64_t offset;
	uint64_t layer_stride;
	uint64_t page_stride;
	uint64_t head_stride;
	uint64_t token_stride;
};

struct layout {
	struct layout_params params; /* alignment is filled in */
	struct layout_plane plane[LAYOUT_N_PLANES];
	uint64_t page_bytes; /* of one page, all layers and planes */
	uint64_t size;       /* bytes of the whole pool */
};

/**
 * layout_init - check the geometry and place the planes
 *
 * @retval PAGED_ERR_INVALID  a count is 0, V is wider than the K that it lies in, the dtype is unknown, or the
 *                            alignment is not a power of two
 * @retval PAGED_ERR_LIMIT    page size or dim beyond the library's limit, or the pool exceeds 2^63 bytes
 */
enum paged_status layout_init(struct layout *layout, const struct layout_params *params, struct paged_error *error);

/** layout_report - copy the geometry into a pool's report */
void layout_report(const struct layout *layout, struct paged_pool_entry *entry);

/** Byte offset of (layer, page, head, token) in a plane; every index must be in bounds. */
static inline uint64_t
layout_offset(const struct layout *layout, unsigned int plane, uint32_t layer, uint32_t page, uint32_t head,
	      uint32_t token)
{
	const struct layout_plane *p = &layout->plane[plane];

	return p->offset + layer * p->layer_stride + page * p->page_stride + head * p->head_stride +
	       token * p->token_stride;
}

#endif
