/* SPDX-License-Identifier: Apache-2.0 */
/**
 * rle.h - a logical block mask, run-length encoded as a sequence of numbers, in parts
 *
 * This is the wire form in which the owner that builds a mask sends it to the member that requested it
 * (common/mask_request.h).  Lists come in order: rows; within a row its heads; within a head its query
 * blocks.  A list is encoded as the number of its runs, then for each run two numbers: the number of
 * KV blocks between the end of the previous run and this one; and twice the number of blocks in the
 * run, plus 1 if they are full.  By construction the blocks of a list ascend and are distinct,
 * whatever the numbers are.
 *
 * In place of the first list of a head or row, RUNS_SAME_HEAD and RUNS_SAME_ROW repeat the lists of
 * the previous head or row.  A part ends after a list, or after a run of a list that continues in the
 * next part.
 *
 * The reader trusts nothing: the mask that it yields fits its shape whatever the numbers were.
 */
#ifndef PAGED_KERNELS_MASK_RLE_H
#define PAGED_KERNELS_MASK_RLE_H

#include "common/mask_request.h"
#include "kernels/mask/builder.h"

#define RUNS_SAME_HEAD UINT32_MAX
#define RUNS_SAME_ROW (UINT32_MAX - 1)

/** A part being written. */
struct runs_writer {
	uint32_t *values;
	uint32_t n, capacity;
	uint32_t list; /* index of the current list's number of runs */
	uint32_t end;  /* the KV block after its last run */
	bool full;     /* the last write did not fit and was dropped */
	bool cut;      /* as in struct mask_part */
};

/** runs_list - begin a list; its blocks before `block` are in an earlier part */
void runs_list(struct runs_writer *writer, uint32_t block);

/** runs_add - append n blocks to the list; does nothing if n is 0 */
void runs_add(struct runs_writer *writer, enum block_mask_kind kind, uint32_t first, uint32_t n);

/** runs_same - write RUNS_SAME_HEAD or RUNS_SAME_ROW */
void runs_same(struct runs_writer *writer, uint32_t value);

/**
 * block_mask_runs - write a part of the block mask that block_mask_create() would make of a rule
 *
 * Ends with the mask or when the part is full; the cost is proportional to the part's contents.
 *
 * @param[in] max_bytes    limit of temporary memory; shape's counts are not 0
 * @param[in] first_list   as in struct mask_request, like first_block
 * @retval PAGED_ERR_LIMIT  memory exceeds max_bytes, or a q_idx or kv_idx exceeds int32
 * @retval PAGED_ERR_AGAIN  cancelled
 */
enum paged_status block_mask_runs(const struct block_mask_shape *shape, const struct mask_rule *rule,
				  uint64_t max_bytes, uint64_t first_list, uint32_t first_block,
				  struct runs_writer *part, struct paged_error *error);

/** A mask being read. */
struct runs_reader {
	const struct block_mask_shape *shape;
	struct build build;       /* has no mask before the first part; n_ended: number of the next list */
	struct build_place place; /* position of the next list */
	uint32_t block;           /* first KV block of its remainder */
	bool done;                /* all lists are complete */
	uint64_t arrays;          /* mask_part.arrays of the first part: it changes if an array is replaced */
};

/**
 * runs_read_begin - like build_begin(), but memory is allocated when the first part arrives; borrows
 * shape until then
 */
void runs_read_begin(struct runs_reader *reader, const struct block_mask_shape *shape, uint64_t max_bytes,
		     struct paged_error *error);

/**
 * runs_read - read the next part, checked
 *
 * @retval PAGED_ERR_PROTOCOL  the numbers are not a part of such a mask, or the part is empty although lists are
 * missing
 * @retval PAGED_ERR_AGAIN     an array was replaced since the first part: read all parts again
 * @retval PAGED_ERR_LIMIT     the mask exceeds max_bytes
 */
enum paged_status runs_read(struct runs_reader *reader, const struct mask_part *part);

/**
 * runs_read_end - yields the mask if it was read completely; else frees everything
 *
 * @param[in] status  result of the last runs_read(), or the error that prevented it
 */
enum paged_status runs_read_end(struct runs_reader *reader, enum paged_status status, struct block_mask **mask_p);

#endif
