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
 * In place of the first list of a head or row, RLE_REPEAT_HEAD and RLE_REPEAT_ROW repeat the lists of
 * the previous head or row.  A part ends after a list, or after a run of a list that continues in the
 * next part.
 *
 * The reader trusts nothing: the mask that it yields fits its shape whatever the numbers were.
 */
#ifndef PAGED_KERNELS_MASK_RLE_H
#define PAGED_KERNELS_MASK_RLE_H

#include "common/mask_request.h"
#include "kernels/mask/builder.h"

#define RLE_REPEAT_HEAD UINT32_MAX
#define RLE_REPEAT_ROW (UINT32_MAX - 1)

/** A part being written. */
struct rle_writer {
	uint32_t *values;
	uint32_t n, capacity;
	uint32_t list;       /* index of the current list's number of runs */
	uint32_t end;        /* the KV block after its last run */
	bool full;           /* the last write did not fit and was dropped */
	bool list_continues; /* as in struct mask_part */
};

/** rle_write_list - begin a list; its blocks before `block` are in an earlier part */
void rle_write_list(struct rle_writer *writer, uint32_t block);

/** rle_write_run - append n blocks to the list; does nothing if n is 0 */
void rle_write_run(struct rle_writer *writer, enum block_mask_kind kind, uint32_t first, uint32_t n);

/** rle_write_repeat - write RLE_REPEAT_HEAD or RLE_REPEAT_ROW */
void rle_write_repeat(struct rle_writer *writer, uint32_t value);

/**
 * block_mask_encode_part - write a part of the block mask that block_mask_create() would make of an evaluator
 *
 * Ends with the mask or when the part is full; the cost is proportional to the part's contents.
 *
 * @param[in] shape                    its counts are not 0
 * @param[in] max_bytes                limit of temporary memory
 * @param[in] first_list, first_block  as in struct mask_request
 * @retval PAGED_ERR_LIMIT  memory exceeds max_bytes, or a q_idx or kv_idx exceeds int32
 * @retval PAGED_ERR_AGAIN  cancelled
 */
enum paged_status block_mask_encode_part(const struct block_mask_shape *shape, const struct mask_evaluator *evaluator,
					 uint64_t max_bytes, uint64_t first_list, uint32_t first_block,
					 struct rle_writer *part, struct paged_error *error);

/** A mask being read. */
struct rle_reader {
	const struct block_mask_shape *shape;
	struct mask_builder builder;   /* has no mask before the first part; n_ended: number of the next list */
	struct mask_position position; /* position of the next list */
	uint32_t block;                /* first KV block of its remainder */
	bool done;                     /* all lists are complete */
	uint64_t arrays;               /* mask_part.arrays of the first part: it changes if an array is replaced */
};

/**
 * rle_read_begin - like mask_builder_begin(), but memory is allocated when the first part arrives; borrows
 * shape until then
 */
void rle_read_begin(struct rle_reader *reader, const struct block_mask_shape *shape, uint64_t max_bytes,
		    struct paged_error *error);

/**
 * rle_read_part - read the next part, checked
 *
 * @retval PAGED_ERR_PROTOCOL  the numbers are not a part of such a mask, or the part is empty although lists are
 * missing
 * @retval PAGED_ERR_AGAIN     an array was replaced since the first part: read all parts again
 * @retval PAGED_ERR_LIMIT     the mask exceeds max_bytes
 */
enum paged_status rle_read_part(struct rle_reader *reader, const struct mask_part *part);

/**
 * rle_read_end - yields the mask if it was read completely; else frees everything
 *
 * @param[in] status  result of the last rle_read_part(), or the error that prevented it
 */
enum paged_status rle_read_end(struct rle_reader *reader, enum paged_status status, struct block_mask **mask_p);

#endif
