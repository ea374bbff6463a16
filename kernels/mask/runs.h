/* SPDX-License-Identifier: Apache-2.0 */
/**
 * runs.h - a logical block mask as a sequence of numbers, in parts
 *
 * How a mask travels from the owner that builds it to the member that asked (common/mask_request.h).  Lists come in
 * order: rows, in a row its heads, in a head its query blocks.  A list is the number of its runs, then for each run
 * the KV blocks between the end of the run before it and this one, and twice its number of blocks, plus 1 if they are
 * full.  So the blocks of a list ascend and are named once, whatever the numbers are.
 *
 * In place of the first list of a head or row, RUNS_SAME_HEAD and RUNS_SAME_ROW repeat the lists of the one before.
 * A part ends behind a list, or behind a run of a list that goes on in the next part.
 *
 * The reader believes nothing: the mask that it yields fits its shape whatever the numbers were.
 */
#ifndef PAGED_KERNELS_MASK_RUNS_H
#define PAGED_KERNELS_MASK_RUNS_H

#include "common/mask_request.h"
#include "kernels/mask/build.h"

#define RUNS_SAME_HEAD UINT32_MAX
#define RUNS_SAME_ROW (UINT32_MAX - 1)

/** A part that is being written. */
struct runs_writer {
	uint32_t *values;
	uint32_t n, capacity;
	uint32_t list; /* place of the present list's number of runs */
	uint32_t end;  /* the KV block behind its last run */
	bool full;     /* what was written last did not fit and is not there */
	bool cut;      /* as in struct mask_part */
};

/** runs_list - begin a list, of which the blocks before `block` are in an earlier part */
void runs_list(struct runs_writer *writer, uint32_t block);

/** runs_add - n more blocks of the list; nothing for n of 0 */
void runs_add(struct runs_writer *writer, enum block_mask_kind kind, uint32_t first, uint32_t n);

/** runs_same - RUNS_SAME_HEAD or RUNS_SAME_ROW */
void runs_same(struct runs_writer *writer, uint32_t value);

/**
 * block_mask_runs - a part of the block mask of a rule, as block_mask_create() would make it
 *
 * Ends with the mask or when the part is full, at a cost that goes with what it holds.
 *
 * @param[in] max_bytes    of the memory that it takes meanwhile; shape's counts are not 0
 * @param[in] first_list   as in struct mask_request, and first_block
 * @retval PAGED_ERR_LIMIT  past max_bytes, or a q_idx or kv_idx past int32
 * @retval PAGED_ERR_AGAIN  cancelled
 */
enum paged_status block_mask_runs(const struct block_mask_shape *shape, const struct mask_rule *rule,
				  uint64_t max_bytes, uint64_t first_list, uint32_t first_block,
				  struct runs_writer *part, struct paged_error *error);

/** A mask that is being read. */
struct runs_reader {
	const struct block_mask_shape *shape;
	struct build build;       /* of no mask before the first part; n_ended: the list that comes next */
	struct build_place place; /* of that list */
	uint32_t block;           /* at which it goes on */
	bool done;                /* no list is left */
	uint64_t arrays;          /* of the parts */
};

/** runs_read_begin - as build_begin(), but memory is taken when the first part is there; shape is borrowed till then */
void runs_read_begin(struct runs_reader *reader, const struct block_mask_shape *shape, uint64_t max_bytes,
		     struct paged_error *error);

/**
 * runs_read - the next part, checked
 *
 * @retval PAGED_ERR_PROTOCOL  numbers that are no part of such a mask, or none although lists are left
 * @retval PAGED_ERR_AGAIN     an array was replaced since the first part: read all parts again
 * @retval PAGED_ERR_LIMIT     past max_bytes
 */
enum paged_status runs_read(struct runs_reader *reader, const struct mask_part *part);

/**
 * runs_read_end - the mask, if all of it was read; else everything is freed
 *
 * @param[in] status  of the last runs_read(), or why there was none
 */
enum paged_status runs_read_end(struct runs_reader *reader, enum paged_status status, struct block_mask **mask_p);

#endif
