/* SPDX-License-Identifier: Apache-2.0 */
/**
 * batch_mask.h - the block mask of a batch: from a mask mod, and from the page tables of its rows
 *
 * Page tables are read from the pool's table region (common/region.h) under its seqlock, as any reader
 * does; the versions that were read are reported.
 */
#ifndef PAGED_KERNELS_MASK_BATCH_MASK_H
#define PAGED_KERNELS_MASK_BATCH_MASK_H

#include "common/region.h"
#include "kernels/mask/mask.h"
#include "kernels/mod/mod.h"

/** One row: a sequence (seq) or an explicit page table (pages); a logical mask needs neither. */
struct batch_mask_row {
	paged_seq_id seq;
	const uint32_t *pages;
	uint32_t n_pages;
	uint32_t q_len;
	uint32_t kv_len;
	uint32_t kv_first; /* at most kv_len */
	int64_t q_base;
	int32_t b; /* the row's b, as the mod sees it */
};

struct batch_mask_request {
	const struct batch_mask_row *rows;
	uint32_t n_rows;
	uint32_t n_heads; /* 0: one head stands for all; then the mod must not depend on h */
	uint32_t q_block;
	uint32_t kv_block;
	uint64_t max_bytes;             /* limit of each mask; 0: BLOCK_MASK_MAX_BYTES */
	const struct region_view *view; /* of the pool */
	struct mask_memory *memory;     /* allocator of the masks; NULL: malloc() */
};

/** batch_mask_shape - the shape that a request describes; the caller frees shape->rows */
enum paged_status batch_mask_shape(const struct batch_mask_request *request, struct block_mask_shape *shape,
				   struct paged_error *error);

/**
 * batch_mask_create - the logical block mask of a mask mod
 *
 * @param[in] binding  borrowed; mod_binding_add_range_trees() is called on it if it was not before
 * @retval PAGED_ERR_INVALID  a score mod; no rows; the mod depends on h and n_heads is 0
 * @retval PAGED_ERR_LIMIT    the mask exceeds max_bytes, or a q_idx or kv_idx exceeds 2^31 - 1
 * @retval PAGED_ERR_RANGE    an array index is out of bounds; the error names array, index and bounds
 */
enum paged_status batch_mask_create(const struct batch_mask_request *request, struct mod_binding *binding,
				    enum kernel_isa isa, struct block_mask **logical_p, struct paged_error *error);

/**
 * batch_mask_to_physical - translate a logical mask's blocks to their places in the pool
 *
 * Each row's page table is read as a consistent snapshot, with a bounded number of attempts. q_len and
 * q_base of the rows are the mask's.
 *
 * Blocks before a row's kv_first, and those of pages that a trim gave back, are dropped.
 *
 * @param[in]  logical  has one row, or as many as the request
 * @param[out] version  [n_rows] version of each sequence's entries as read; 0 for an explicit table
 * @retval PAGED_ERR_INVALID   numbers of rows do not match; a row has both a sequence and
 *                             pages, or neither; page and KV block do not divide
 * @retval PAGED_ERR_CAPACITY  kv_len exceeds a row's capacity
 * @retval PAGED_ERR_STALE     an id names no live sequence
 * @retval PAGED_ERR_RANGE     a page is outside the pool
 * @retval PAGED_ERR_LIMIT     the mask exceeds max_bytes
 * @retval PAGED_ERR_AGAIN     a row was being written during every attempt
 */
enum paged_status batch_mask_to_physical(const struct batch_mask_request *request, const struct block_mask *logical,
					 struct block_mask **physical_p, uint64_t *version, struct paged_error *error);

#endif
