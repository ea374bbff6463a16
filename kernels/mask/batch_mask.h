/* SPDX-License-Identifier: Apache-2.0 */
/**
 * batch_mask.h - the block mask of a batch: from a mask mod and rows of page tables
 *
 * Rows are read from the pool's table region (common/region.h), as any reader
 * does, with the versions that were seen.
 */
#ifndef PAGED_KERNELS_MASK_BATCH_MASK_H
#define PAGED_KERNELS_MASK_BATCH_MASK_H

#include "common/region.h"
#include "kernels/mask/mask.h"
#include "kernels/mod/mod.h"

/** One row: a sequence (seq), an explicit table (pages), or in a logical mask neither. */
struct batch_mask_row {
	paged_seq_id seq;
	const uint32_t *pages;
	uint32_t n_pages;
	uint32_t q_len;
	uint32_t kv_len;
	int64_t q_base;
	int32_t b; /* what the mod sees */
};

struct batch_mask_order {
	const struct batch_mask_row *rows;
	uint32_t n_rows;
	uint32_t n_heads; /* 0: one stands for all; the mod may then not depend on h */
	uint32_t q_block;
	uint32_t kv_block;
	uint64_t max_bytes;             /* of each mask; 0: BLOCK_MASK_MAX_BYTES */
	const struct region_view *view; /* of the pool */
	struct mask_memory *memory; /* of the masks; NULL: malloc() */
};

/** batch_mask_shape - the shape that an order describes; its rows are to be freed */
enum paged_status batch_mask_shape(const struct batch_mask_order *order, struct block_mask_shape *shape,
				   struct paged_error *error);

/**
 * batch_mask_create - logical blocks of a mask mod
 *
 * @param[in] binding  borrowed, and indexed here if it was not
 * @retval PAGED_ERR_INVALID  a score mod; no rows; the mod depends on h and n_heads is 0
 * @retval PAGED_ERR_LIMIT    past max_bytes, or a q_idx or kv_idx past 2^31 - 1
 * @retval PAGED_ERR_RANGE    an index out of bounds, with array, index and bounds
 */
enum paged_status batch_mask_create(const struct batch_mask_order *order, struct mod_binding *binding,
				    enum kernel_isa isa, struct block_mask **logical_p, struct paged_error *error);

/**
 * batch_mask_place - name a logical mask's blocks by where they lie in the pool
 *
 * Each row's table is read as it is at one moment, with a bounded number of
 * attempts; rows' q_len and q_base are the mask's.
 *
 * @param[in]  logical  has one row or the order's
 * @param[out] version  [n_rows] of each sequence's entries, as read; 0: an explicit table
 * @retval PAGED_ERR_INVALID   numbers of rows that do not match; a row with both a sequence and
 *                             pages or neither; page and KV block do not divide
 * @retval PAGED_ERR_CAPACITY  kv_len exceeds a row's capacity
 * @retval PAGED_ERR_STALE     an id names no live sequence
 * @retval PAGED_ERR_RANGE     a page is outside the pool
 * @retval PAGED_ERR_LIMIT     past max_bytes
 * @retval PAGED_ERR_AGAIN     a row stayed busy
 */
enum paged_status batch_mask_place(const struct batch_mask_order *order, const struct block_mask *logical,
				   struct block_mask **physical_p, uint64_t *version, struct paged_error *error);

#endif
