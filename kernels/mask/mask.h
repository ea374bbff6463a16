/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mask.h - block masks: which KV blocks a block of query rows sees
 *
 * For every (row of the plan, head, query block) a mask has two lists: KV blocks that are full (every
 * element is visible) and KV blocks that are partial (some elements are; the mask mod decides).
 * Blocks in neither list are never visited.  A block that a length or kv_first divides, on the query side or
 * on the KV side, is never full.  PyTorch counts in the same way, and a kernel may process a full block
 * without checking lengths.
 *
 * Rows are ragged: each has its own lengths.  PyTorch's BlockMask is the case of equal rows, and
 * block_mask_to_arrays() fills its arrays.  One row, or one head, may stand for all of them (PyTorch's B or
 * H of 1).
 *
 * In a logical mask, indices count KV blocks of the sequence.  In a physical mask they count blocks of
 * the pool's memory: page * (page size / KV block) + part of the page.  Lists that this library makes
 * ascend (physical lists: in their logical order); lists that the caller passed keep their order.
 * Whether all lists ascend is determined once, when a mask is made: kernels then find a token's blocks
 * by binary search.
 *
 * Life: every function that yields a mask allocates a new one, to be freed with block_mask_destroy();
 * arguments are borrowed during the call.  A mask never changes, so any number of threads may read it.
 * On an error no mask is yielded, and the error message names the place and the numbers.
 */
#ifndef PAGED_KERNELS_MASK_MASK_H
#define PAGED_KERNELS_MASK_MASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/mask/spare_arrays.h"
#include "kernels/mod/mod.h"

/** Limit of a mask's bytes if the caller sets none. */
#define BLOCK_MASK_MAX_BYTES (UINT64_C(1) << 36)

enum block_mask_kind { BLOCK_MASK_PARTIAL, BLOCK_MASK_FULL, BLOCK_MASK_N_KINDS };

/**
 * One row of the plan: query rows q_base .. q_base + q_len - 1 over keys kv_first .. kv_len - 1.  Block 0 begins at
 * key 0; blocks wholly before kv_first are in no list.
 */
struct block_mask_row {
	int64_t q_base;
	uint64_t q_len;
	uint64_t kv_len;
	uint64_t kv_first; /* at most kv_len */
};

/** block_mask_row_fits_int32 - true if the row's q_idx and kv_idx fit the int32 of mods */
static inline bool
block_mask_row_fits_int32(const struct block_mask_row *row)
{
	return row->kv_len <= INT32_MAX && row->q_base >= INT32_MIN && row->q_base <= INT32_MAX &&
	       row->q_len <= (uint64_t)(INT32_MAX - row->q_base);
}

/** mask_ceil_div - number of parts of size `part` in n, rounded up */
static inline uint64_t
mask_ceil_div(uint64_t n, uint64_t part)
{
	return n / part + (n % part != 0);
}

static inline uint64_t
mask_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t
mask_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/** block_mask_row_first_block - the first KV block that has a key of the row; past the last one if it has none */
static inline uint64_t
block_mask_row_first_block(const struct block_mask_row *row, uint32_t kv_block)
{
	return row->kv_first < row->kv_len ? row->kv_first / kv_block : mask_ceil_div(row->kv_len, kv_block);
}

struct block_mask_shape {
	uint32_t n_rows;  /* 1 may stand for all rows of a plan */
	uint32_t n_heads; /* 1 may stand for all heads */
	uint32_t q_block; /* tokens, 1 or more */
	uint32_t kv_block;
	const struct block_mask_row *rows;
	/* Allocator for the arrays of a mask of this shape and of all masks derived from it; NULL: malloc(). */
	struct mask_memory *memory;
};

struct block_mask {
	struct block_mask_shape shape; /* rows is the mask's own copy */
	/*
	 * The lists of row r begin at first_list[r], head after head; first_list[n_rows] is the number
	 * of lists.  List i of a kind is indices[kind][start[kind][i]] .. indices[kind][start[kind][i +
	 * 1] - 1].
	 */
	uint64_t *first_list;
	uint64_t *start[BLOCK_MASK_N_KINDS];
	uint32_t *indices[BLOCK_MASK_N_KINDS];
	bool ascending; /* every list ascends; false: perhaps not */
};

/** A list borrowed from a mask. */
struct block_mask_list {
	const uint32_t *blocks;
	uint64_t n;
};

/** Query blocks of row r. */
static inline uint64_t
block_mask_q_blocks(const struct block_mask *mask, uint32_t r)
{
	return mask_ceil_div(mask->shape.rows[r].q_len, mask->shape.q_block);
}

/** KV blocks of row r, visible or not, from key 0 on. */
static inline uint64_t
block_mask_kv_blocks(const struct block_mask *mask, uint32_t r)
{
	return mask_ceil_div(mask->shape.rows[r].kv_len, mask->shape.kv_block);
}

/**
 * The list of a query block.  Arguments must be in bounds, but if one row (head) stands for all, r (h)
 * may be anything.
 */
static inline struct block_mask_list
block_mask_list(const struct block_mask *mask, enum block_mask_kind kind, uint32_t r, uint32_t h, uint64_t q_block)
{
	uint32_t row = mask->shape.n_rows == 1 ? 0 : r;
	uint32_t head = mask->shape.n_heads == 1 ? 0 : h;
	uint64_t list = mask->first_list[row] + head * block_mask_q_blocks(mask, row) + q_block;
	uint64_t start = mask->start[kind][list];

	return (struct block_mask_list){ mask->indices[kind] + start, mask->start[kind][list + 1] - start };
}

void block_mask_destroy(struct block_mask *mask); /* takes NULL */

/** block_mask_list_ascends - true if each block is greater than the one before it */
bool block_mask_list_ascends(const uint32_t *blocks, uint64_t n);

/**
 * block_mask_set_ascending - set mask->ascending by checking all lists, for
 * code that fills a mask with a caller's lists
 */
void block_mask_set_ascending(struct block_mask *mask);

/** Lists from outside this library; see block_mask_from_lists(). */
struct block_mask_lists {
	/* [list] lengths of a kind: rows outermost, then heads, then query blocks; NULL: all empty */
	const uint32_t *n_blocks[BLOCK_MASK_N_KINDS];
	/* the lists, concatenated without gaps */
	const uint32_t *indices[BLOCK_MASK_N_KINDS];
	uint64_t n_indices[BLOCK_MASK_N_KINDS];
};

/**
 * block_mask_from_lists - make a mask from given lists, and check them
 *
 * A full block that a length or kv_first divides moves to the partial list; one that kv_len divides becomes its
 * last entry.  Blocks wholly before kv_first are dropped.
 *
 * @param[in] n_lists    number of lists of either kind; must match the shape
 * @param[in] max_bytes  limit of the mask's memory; 0: BLOCK_MASK_MAX_BYTES
 * @retval PAGED_ERR_INVALID  a size is 0, the counts do not add up, or a query block lists a block twice
 * @retval PAGED_ERR_RANGE    a block is at or past the row's KV blocks
 * @retval PAGED_ERR_LIMIT    the mask exceeds max_bytes, or a length exceeds what indices can count
 */
enum paged_status block_mask_from_lists(const struct block_mask_shape *shape, const struct block_mask_lists *lists,
					uint64_t n_lists, uint64_t max_bytes, struct block_mask **mask_p,
					struct paged_error *error);

/**
 * PyTorch's arrays: num_blocks [B][H][R], indices [B][H][R][width[kind]], int32.  Entries past a count
 * are ignored on input and 0 on output.
 */
struct block_mask_arrays {
	/* kv_num_blocks, full_kv_num_blocks; NULL: no lists of this kind (input) or not wanted (output) */
	int32_t *num_blocks[BLOCK_MASK_N_KINDS];
	int32_t *indices[BLOCK_MASK_N_KINDS]; /* kv_indices, full_kv_indices */
	uint64_t width[BLOCK_MASK_N_KINDS];
};

/** block_mask_from_arrays - block_mask_from_lists() with PyTorch's arrays, over equal rows */
enum paged_status block_mask_from_arrays(const struct block_mask_shape *shape, const struct block_mask_arrays *arrays,
					 uint64_t max_bytes, struct block_mask **mask_p, struct paged_error *error);

/** block_mask_width - length of the longest list of a kind: the smallest `width` for block_mask_to_arrays() */
uint64_t block_mask_width(const struct block_mask *mask, enum block_mask_kind kind);

/**
 * block_mask_to_arrays - fill PyTorch's arrays, which the caller allocated
 *
 * For q_num_blocks, q_indices and their full_ counterparts, view the result of block_mask_transpose().
 *
 * @retval PAGED_ERR_INVALID  rows differ in number of query blocks, or a width is too small
 * @retval PAGED_ERR_LIMIT    an index exceeds int32
 */
enum paged_status block_mask_to_arrays(const struct block_mask *mask, const struct block_mask_arrays *arrays,
				       struct paged_error *error);

/**
 * block_mask_transpose - the query-side lists: query blocks and KV blocks swap roles; lists ascend
 *
 * kv_first of the result is 0: the blocks before that of the mask have empty lists.
 */
enum paged_status block_mask_transpose(const struct block_mask *mask, uint64_t max_bytes, struct block_mask **mask_p,
				       struct paged_error *error);

/** A part of a mask: n_rows rows from first_row on, and so on; UINT32_MAX (n_q: UINT64_MAX): all that follow. */
struct block_mask_selection {
	uint32_t first_row, n_rows;
	uint32_t first_head, n_heads;
	uint64_t first_q, n_q; /* query rows; first_q a multiple of the query block */
};

/**
 * block_mask_select - a sub-range of rows of the plan, heads and query rows
 *
 * Query rows keep their q_idx (q_base grows by first_q).  A row shorter than the query range gives the
 * part that it has.
 *
 * @retval PAGED_ERR_INVALID  first_q is inside a query block
 * @retval PAGED_ERR_RANGE    the mask does not have these rows or heads
 */
enum paged_status block_mask_select(const struct block_mask *mask, const struct block_mask_selection *part,
				    struct block_mask **mask_p, struct paged_error *error);

/**
 * block_mask_crop - limit each row's lengths to q_len and kv_len
 *
 * Blocks past a new length are dropped; full blocks that extend past it become partial.
 */
enum paged_status block_mask_crop(const struct block_mask *mask, uint64_t q_len, uint64_t kv_len,
				  struct block_mask **mask_p, struct paged_error *error);

/**
 * block_mask_over_rows - the same lists over n_rows rows, with each row's keys limited to kv_first[row] up to
 * kv_len[row]
 *
 * A mask of one row serves every row; else n_rows must be the mask's number of rows.
 *
 * @retval PAGED_ERR_INVALID  n_rows differs
 */
enum paged_status block_mask_over_rows(const struct block_mask *mask, uint32_t n_rows, const uint64_t *kv_first,
				       const uint64_t *kv_len, struct block_mask **mask_p, struct paged_error *error);

/** block_mask_n_blocks - number of blocks in the lists of both kinds */
uint64_t block_mask_n_blocks(const struct block_mask *mask);

/** block_mask_sparsity - percentage of blocks that are in no list; 0 for a mask without blocks */
double block_mask_sparsity(const struct block_mask *mask);

/** block_mask_bytes - bytes of memory that the mask holds */
uint64_t block_mask_bytes(const struct block_mask *mask);

/**
 * block_mask_dense_blocks - write 1 for every block in a list, else 0
 *
 * @param[out] dense  [row][head][query block][KV block]; rows may differ in size and are concatenated
 */
void block_mask_dense_blocks(const struct block_mask *mask, uint8_t *dense);

/** Which elements of a rectangle are visible: none (the block is empty), all (full), or some (partial). */
enum mask_coverage { MASK_EMPTY, MASK_FULL, MASK_PARTIAL };

/** Elements (q_idx, kv_idx) of one head in one row of the plan; the ends are exclusive. */
struct mask_area {
	uint32_t b, h;
	int64_t q_begin, q_end;
	int64_t kv_begin, kv_end;
};

/** Bit r * MOD_GRID_COLUMNS + c is the box of row r and column c.  A box in none of the three is unknown. */
struct mask_cells {
	uint64_t empty, full, partial;
};

/**
 * A function that decides visibility element by element. mod_evaluator.h makes one from a mask mod; tests
 * and callers with their own masks may supply others.
 */
struct mask_evaluator {
	/*
	 * Decides many areas at once; NULL: decides nothing.  With `blocks`, the areas are single
	 * blocks; reporting mask_cells.partial for a block (it has both visible and hidden elements) saves the call
	 * of evaluate_area().
	 */
	struct mask_cells (*evaluate_grid)(void *context, const struct mod_grid *grid, bool blocks);
	/* Decides an area of at most a block by its elements; returns any coverage once `cancelled` is set. */
	enum mask_coverage (*evaluate_area)(void *context, const struct mask_area *area);
	void *context;
	const int32_t *b; /* [n_rows] the b of each row; NULL: its index */
	bool same_rows;   /* the answer does not depend on b */
	bool same_heads;  /* the answer does not depend on h */
	/* If another thread sets it, block_mask_create() soon returns PAGED_ERR_AGAIN; NULL: not cancellable. */
	const atomic_bool *cancelled;
};

/**
 * block_mask_create - the block mask of an evaluator
 *
 * Areas that evaluate_grid() decides are not subdivided further: the cost is proportional to the number of
 * blocks on the borders of the visible region, not to the number of elements.  evaluate_area() is called for
 * single blocks that remain undecided.
 *
 * @retval PAGED_ERR_LIMIT  the mask exceeds max_bytes, or a q_idx or kv_idx exceeds int32
 * @retval PAGED_ERR_AGAIN  cancelled
 */
enum paged_status block_mask_create(const struct block_mask_shape *shape, const struct mask_evaluator *evaluator,
				    uint64_t max_bytes, struct block_mask **mask_p, struct paged_error *error);

/**
 * block_mask_from_dense - the block mask of a dense mask
 *
 * @param[in] dense  [row][head][q_len][kv_len], nonzero: visible; rows may differ in size and are concatenated
 */
enum paged_status block_mask_from_dense(const struct block_mask_shape *shape, const uint8_t *dense, uint64_t max_bytes,
					struct block_mask **mask_p, struct paged_error *error);

/** One sequence: its page table and its valid tokens. */
struct block_mask_sequence {
	/* physical page of each logical page; covers at least kv_len.  Those wholly before kv_first may be any number
	 */
	const uint32_t *pages;
	uint64_t n_pages;
	uint64_t kv_len;
	uint64_t kv_first; /* blocks wholly before it are dropped, as those before the row's own */
};

struct block_mask_table {
	const struct block_mask_sequence *sequences; /* [n_sequences] one per row of the plan; may repeat */
	uint32_t n_sequences;
	uint32_t page_size;
	uint32_t n_pages; /* of the pool */
	/*
	 * Instead of `sequences`, for block_mask_to_physical(): called once per sequence, in order.  The
	 * pages that it returns must stay valid until the next call.
	 */
	enum paged_status (*read)(void *context, uint32_t s, struct block_mask_sequence *sequence,
				  struct paged_error *error);
	void *context;
};

/**
 * block_mask_to_physical - translate a logical mask's blocks to their places in the pool
 *
 * The KV block must be the page, a divisor of it, or a multiple; a multiple is listed as its pages in
 * order.  Lengths always apply: a full block that contains a sequence's end becomes partial, and
 * blocks past the end are dropped.  A mask of one row serves every sequence. kv_len of the result is
 * the pool's.
 *
 * @retval PAGED_ERR_INVALID  rows and sequences differ in number; page and KV block do not divide
 * @retval PAGED_ERR_CAPACITY a sequence's pages do not cover its kv_len
 * @retval PAGED_ERR_RANGE    a page is at or past the pool's end (so are unmapped entries)
 */
enum paged_status block_mask_to_physical(const struct block_mask *logical, const struct block_mask_table *table,
					 uint64_t max_bytes, struct block_mask **mask_p, struct paged_error *error);

/** Size in characters of each (row, head), and how many are shown; 0: PyTorch's 20, 20 and 4. */
struct block_mask_string_format {
	uint32_t rows, columns, limit;
};

/**
 * block_mask_to_string - PyTorch's BlockMask.to_string(grid, limit)
 *
 * @param[out] text_p  UTF-8; the caller frees it with free()
 */
enum paged_status block_mask_to_string(const struct block_mask *mask, const struct block_mask_string_format *grid,
				       char **text_p, struct paged_error *error);

#endif
