/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mask.h - block masks: which KV blocks a block of query rows sees
 *
 * For every (row of the plan, head, query block) two lists: KV blocks that
 * are full (every element of them is seen) and partial (some are; the mask mod
 * decides).  Blocks in neither are never visited.  A block that a length cuts
 * is never full, on the query side as on the KV side: so PyTorch counts, and a
 * kernel may take a full block without looking at lengths.
 *
 * Rows are ragged, each has lengths of its own.  PyTorch's BlockMask is the
 * case of equal rows, and block_mask_view() gives its arrays.  One row, or one
 * head, stands for all of them (PyTorch's B or H of 1).
 *
 * Indices count KV blocks of the sequence in a logical mask, and in a physical
 * one blocks of the pool's memory: page * (page size / KV block) + part.  Lists
 * that this library makes ascend (physical: in their logical order); lists
 * that were given keep their order.  Whether all ascend is found out once, when
 * a mask is made, as kernels then find a token's blocks without reading a list.
 *
 * Life: every function that yields a mask allocates a new one, to be freed
 * with block_mask_destroy(); arguments are borrowed during the call.  A mask
 * never changes, so any number of threads may read it.  On an error nothing
 * is yielded, and the sentence names the place and the numbers.
 */
#ifndef PAGED_KERNELS_MASK_MASK_H
#define PAGED_KERNELS_MASK_MASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/mask/memory.h"
#include "kernels/mod/mod.h"

/** Most bytes of a mask for which its maker set no limit. */
#define BLOCK_MASK_MAX_BYTES (UINT64_C(1) << 36)

enum block_mask_kind { BLOCK_MASK_PARTIAL, BLOCK_MASK_FULL, BLOCK_MASK_N_KINDS };

/** One row of the plan: query rows q_base .. q_base + q_len - 1 over keys 0 .. kv_len - 1. */
struct block_mask_row {
	int64_t q_base;
	uint64_t q_len;
	uint64_t kv_len;
};

/** block_mask_row_counts - do its q_idx and kv_idx fit the 32 bits that mods count in? */
static inline bool
block_mask_row_counts(const struct block_mask_row *row)
{
	return row->kv_len <= INT32_MAX && row->q_base >= INT32_MIN && row->q_base <= INT32_MAX &&
	       row->q_len <= (uint64_t)(INT32_MAX - row->q_base);
}

/** mask_count_parts - parts of that many, the last one perhaps shorter, that n have */
static inline uint64_t
mask_count_parts(uint64_t n, uint64_t part)
{
	return n / part + (n % part != 0);
}

static inline uint64_t
mask_smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct block_mask_shape {
	uint32_t n_rows;  /* 1 may stand for all rows of a plan */
	uint32_t n_heads; /* 1 may stand for all heads */
	uint32_t q_block; /* tokens, 1 or more */
	uint32_t kv_block;
	const struct block_mask_row *rows;
	/* Where a mask of this shape, and all that is made of it, has its arrays; NULL: malloc(). */
	struct mask_memory *memory;
};

struct block_mask {
	struct block_mask_shape shape; /* rows are the mask's own */
	/*
	 * Row r's lists begin at first_list[r], of its heads one after another;
	 * first_list[n_rows] is the number of all.  List i of a kind is
	 * indices[kind][start[kind][i]] .. indices[kind][start[kind][i + 1] - 1].
	 */
	uint64_t *first_list;
	uint64_t *start[BLOCK_MASK_N_KINDS];
	uint32_t *indices[BLOCK_MASK_N_KINDS];
	bool ascending; /* every list; false: perhaps not */
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
	return mask_count_parts(mask->shape.rows[r].q_len, mask->shape.q_block);
}

/** KV blocks of row r, seen or not. */
static inline uint64_t
block_mask_kv_blocks(const struct block_mask *mask, uint32_t r)
{
	return mask_count_parts(mask->shape.rows[r].kv_len, mask->shape.kv_block);
}

/** The list of a query block; r, h and q_block in bounds, but any r (h) where one row (head) stands for all. */
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

/** block_mask_judge - find out whether lists that somebody else made ascend; for who fills a mask */
void block_mask_judge(struct block_mask *mask);

/** Lists as somebody else made them; see block_mask_from_lists(). */
struct block_mask_lists {
	/* [list] of a kind, rows outermost, then heads, then query blocks; NULL: all empty */
	const uint32_t *n_blocks[BLOCK_MASK_N_KINDS];
	/* the lists one after another, without gaps */
	const uint32_t *indices[BLOCK_MASK_N_KINDS];
	uint64_t n_indices[BLOCK_MASK_N_KINDS];
};

/**
 * block_mask_from_lists - a mask from given lists, checked
 *
 * A full block that a length cuts becomes partial, the last of its list.
 *
 * @param[in] n_lists    of either kind; must be what the shape has
 * @param[in] max_bytes  limit of the mask's memory; 0: BLOCK_MASK_MAX_BYTES
 * @retval PAGED_ERR_INVALID  a size of 0, counts that do not add up, a block named twice in a query block
 * @retval PAGED_ERR_RANGE    a block at or past the row's KV blocks
 * @retval PAGED_ERR_LIMIT    past max_bytes, or a length past what indices can count
 */
enum paged_status block_mask_from_lists(const struct block_mask_shape *shape, const struct block_mask_lists *lists,
					uint64_t n_lists, uint64_t max_bytes, struct block_mask **mask_p,
					struct paged_error *error);

/**
 * PyTorch's arrays: num_blocks [B][H][R], indices [B][H][R][width[kind]], int32.
 * Entries past a count are undefined on the way in and 0 on the way out.
 */
struct block_mask_arrays {
	/* kv_num_blocks, full_kv_num_blocks; NULL: no lists of the kind, on the way out not wanted */
	int32_t *num_blocks[BLOCK_MASK_N_KINDS];
	int32_t *indices[BLOCK_MASK_N_KINDS]; /* kv_indices, full_kv_indices */
	uint64_t width[BLOCK_MASK_N_KINDS];
};

/** block_mask_from_arrays - as block_mask_from_lists, from PyTorch's arrays over equal rows */
enum paged_status block_mask_from_arrays(const struct block_mask_shape *shape, const struct block_mask_arrays *arrays,
					 uint64_t max_bytes, struct block_mask **mask_p, struct paged_error *error);

/** block_mask_width - the longest list of a kind: the least width of a view */
uint64_t block_mask_width(const struct block_mask *mask, enum block_mask_kind kind);

/**
 * block_mask_view - fill PyTorch's arrays, which the caller allocated
 *
 * For q_num_blocks, q_indices and their full sisters: the same of
 * block_mask_transpose().
 *
 * @retval PAGED_ERR_INVALID  rows have unlike numbers of query blocks, or a width is too small
 * @retval PAGED_ERR_LIMIT    an index past int32
 */
enum paged_status block_mask_view(const struct block_mask *mask, const struct block_mask_arrays *arrays,
				  struct paged_error *error);

/** block_mask_transpose - the q-side lists: query and KV change places, lists ascend */
enum paged_status block_mask_transpose(const struct block_mask *mask, uint64_t max_bytes, struct block_mask **mask_p,
				       struct paged_error *error);

/** A part of a mask: n from first on; n of UINT32_MAX (UINT64_MAX): all that follow. */
struct block_mask_part {
	uint32_t first_row, n_rows;
	uint32_t first_head, n_heads;
	uint64_t first_q, n_q; /* query rows; first_q a multiple of the query block */
};

/**
 * block_mask_select - a sub-range by row of the plan, head and query rows
 *
 * Query rows keep their q_idx (q_base grows by first_q).  Rows shorter than
 * the range of query rows give what they have of it.
 *
 * @retval PAGED_ERR_INVALID  first_q inside a query block
 * @retval PAGED_ERR_RANGE    rows or heads that the mask does not have
 */
enum paged_status block_mask_select(const struct block_mask *mask, const struct block_mask_part *part,
				    struct block_mask **mask_p, struct paged_error *error);

/**
 * block_mask_crop - to shorter lengths, each row's cut to at most these
 *
 * Blocks past the new lengths vanish; full ones that they cut become partial.
 */
enum paged_status block_mask_crop(const struct block_mask *mask, uint64_t q_len, uint64_t kv_len,
				  struct block_mask **mask_p, struct paged_error *error);

/**
 * block_mask_over - the same lists over n_rows rows, each row's keys cut to at most kv_len[row]
 *
 * A mask of one row serves every row; else rows are as many as the mask has.
 *
 * @retval PAGED_ERR_INVALID  they are not
 */
enum paged_status block_mask_over(const struct block_mask *mask, uint32_t n_rows, const uint64_t *kv_len,
				  struct block_mask **mask_p, struct paged_error *error);

/** block_mask_n_blocks - blocks in lists, of both kinds */
uint64_t block_mask_n_blocks(const struct block_mask *mask);

/** block_mask_sparsity - percent of blocks that are in no list; 0 for a mask without blocks */
double block_mask_sparsity(const struct block_mask *mask);

/** block_mask_bytes - memory that it holds */
uint64_t block_mask_bytes(const struct block_mask *mask);

/**
 * block_mask_dense_blocks - 1 for every block in a list, else 0
 *
 * @param[out] dense  [row][head][query block][KV block], rows of unlike size one after another
 */
void block_mask_dense_blocks(const struct block_mask *mask, uint8_t *dense);

/** What create found out about a rectangle of elements: nothing, everything, or some of it is seen. */
enum mask_verdict { MASK_NONE, MASK_ALL, MASK_SOME };

/** Elements (q_idx, kv_idx) of a head in a row of the plan; the ends are not in it. */
struct mask_area {
	uint32_t b, h;
	int64_t q_begin, q_end;
	int64_t kv_begin, kv_end;
};

/** Bit r * MOD_GRID_COLUMNS + c is the box of row r and column c.  In none of them: unknown. */
struct mask_cells {
	uint64_t none, all, some;
};

/**
 * What decides element by element.  mod_rule.h makes one of a mask
 * mod; tests and callers with a mask of their own may bring theirs.
 */
struct mask_rule {
	/*
	 * What is known about many areas at once; NULL: nothing.  With
	 * `blocks` they are single blocks, and knowing of both seen and unseen
	 * elements in one spares asking for the truth.
	 */
	struct mask_cells (*grid)(void *context, const struct mod_grid *grid, bool blocks);
	/* The truth about an area of at most a block; anything once `cancelled` is set. */
	enum mask_verdict (*exactly)(void *context, const struct mask_area *area);
	void *context;
	const int32_t *b; /* [n_rows] as the rule knows the rows; NULL: by their places */
	bool same_rows;   /* the answer does not depend on b */
	bool same_heads;  /* the answer does not depend on h */
	/* Set by another thread, it ends block_mask_create() soon with PAGED_ERR_AGAIN; NULL: nobody will. */
	const atomic_bool *cancelled;
};

/**
 * block_mask_create - the block mask of a rule
 *
 * What `grid` decides about large areas is not asked about again: the cost
 * goes with the blocks on the borders of what is seen, not with elements.
 * `exactly` is asked about single blocks that stay unknown.
 *
 * @retval PAGED_ERR_LIMIT  past max_bytes, or a q_idx or kv_idx past int32
 * @retval PAGED_ERR_AGAIN  cancelled
 */
enum paged_status block_mask_create(const struct block_mask_shape *shape, const struct mask_rule *rule,
				    uint64_t max_bytes, struct block_mask **mask_p, struct paged_error *error);

/**
 * block_mask_from_dense - the block mask of a dense one
 *
 * @param[in] dense  [row][head][q_len][kv_len], 0 or not, rows of unlike size one after another
 */
enum paged_status block_mask_from_dense(const struct block_mask_shape *shape, const uint8_t *dense, uint64_t max_bytes,
					struct block_mask **mask_p, struct paged_error *error);

/** One sequence: a row of a page table, and the tokens in it that count. */
struct block_mask_sequence {
	const uint32_t *pages; /* physical page of each logical page, as many as kv_len needs or more */
	uint64_t n_pages;
	uint64_t kv_len;
};

struct block_mask_table {
	const struct block_mask_sequence *sequences; /* one a row of the plan; any choice, repeats too */
	uint32_t n_sequences;
	uint32_t page_size;
	uint32_t n_pages; /* of the pool */
	/*
	 * Instead of sequences, for block_mask_to_physical(): asked once for
	 * each in turn; its pages are used until it is asked for the next.
	 */
	enum paged_status (*read)(void *context, uint32_t s, struct block_mask_sequence *sequence,
				  struct paged_error *error);
	void *context;
};

/**
 * block_mask_to_physical - name the same blocks by where they lie in the pool
 *
 * The KV block is the page, a divisor of it, or a multiple, which is listed as
 * its pages in order.  Lengths always apply: a full block that holds a
 * sequence's end becomes partial, blocks past it vanish.  A mask of one row
 * serves every sequence.  kv_len of the result is the pool's.
 *
 * @retval PAGED_ERR_INVALID  rows and sequences are not alike in number; page and KV block do not divide
 * @retval PAGED_ERR_CAPACITY a sequence's pages do not reach its kv_len
 * @retval PAGED_ERR_RANGE    a page at or past the pool's end (unmapped entries are such)
 */
enum paged_status block_mask_to_physical(const struct block_mask *logical, const struct block_mask_table *table,
					 uint64_t max_bytes, struct block_mask **mask_p, struct paged_error *error);

/** Characters across and down a picture, and how many (row, head) it shows; 0: PyTorch's 20, 20 and 4. */
struct block_mask_grid {
	uint32_t rows, columns, limit;
};

/**
 * block_mask_picture - PyTorch's BlockMask.to_string(grid, limit)
 *
 * @param[out] text_p  UTF-8, to be freed with free()
 */
enum paged_status block_mask_picture(const struct block_mask *mask, const struct block_mask_grid *grid, char **text_p,
				     struct paged_error *error);

#endif
