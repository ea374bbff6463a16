/* SPDX-License-Identifier: Apache-2.0 */
/**
 * block_mask.h - a block mask and the pool that it belongs to
 *
 * A physical mask keeps the logical one that it was made of, over the same
 * rows and cut to their lengths, and for each row the sequence with the
 * version of its entries as they were read: staleness is judged by these.
 *
 * Life: in its pool's list, which the client's mutex guards; freed by itself
 * or with the pool.  Nothing in it changes, but that a GPU gets its copy when
 * the mask is bound first.
 */
#ifndef PAGED_CLIENT_BLOCK_MASK_H
#define PAGED_CLIENT_BLOCK_MASK_H

#include "client/internal.h"
#include "kernels/mask/batch_mask.h"

struct paged_block_mask {
	struct paged_pool *pool;
	LIST_ENTRY(paged_block_mask) link;
	struct block_mask *logical;
	struct block_mask *physical; /* NULL: a logical mask */
	/* Of a physical mask, [n_rows] each; of a logical one 0 and NULL. */
	uint32_t n_rows;
	paged_seq_id *seq; /* 0: an explicit table */
	uint64_t *version;
	struct cuda_blocks *device; /* a copy in a GPU's memory; NULL: none yet */
};

/** block_mask_pool - NULL for a mask that is NULL: client_enter() refuses both */
static inline struct paged_pool *
block_mask_pool(const struct paged_block_mask *mask)
{
	return mask != NULL ? mask->pool : NULL;
}

/** block_mask_named - the lists that the mask's user sees */
static inline const struct block_mask *
block_mask_named(const struct paged_block_mask *mask)
{
	return mask->physical != NULL ? mask->physical : mask->logical;
}

/** block_mask_enter - the beginning of every call that makes a mask of a mask */
enum paged_status block_mask_enter(const struct paged_block_mask *mask, struct paged_block_mask **mask_p);

/**
 * block_mask_deliver - the end of every call that makes a mask
 *
 * @param[in] made    its pool, blocks and sequences; copied
 * @param[in] status  how making them went; if it failed, error says why,
 *                    and they are freed
 */
enum paged_status block_mask_deliver(const struct paged_block_mask *made, enum paged_status status,
				     struct paged_block_mask **mask_p, struct paged_error *error);

/** block_mask_free - out of its list and gone; the client's mutex is held, or the process is a child */
void block_mask_free(struct paged_block_mask *mask, bool in_child);

/** A maker's params, complete and checked. */
struct block_mask_order {
	struct batch_mask_order order; /* its rows are the order's own */
	bool is_physical;
};

/**
 * block_mask_order_open - the beginning of every call that makes a mask of params
 *
 * On an error the sentence is kept and nothing is to be closed.
 */
enum paged_status block_mask_order_open(struct block_mask_order *order, struct paged_pool *pool,
					const struct paged_block_mask_params *params, struct paged_block_mask **mask_p);

void block_mask_order_close(struct block_mask_order *order);

/** block_mask_rows_in - the caller's rows, to be freed */
enum paged_status block_mask_rows_in(struct paged_pool *pool, const struct paged_batch_row *rows, size_t n_rows,
				     struct batch_mask_row **rows_p, struct paged_error *error);

/** block_mask_arrays_in - the caller's arrays, borrowed; either way they go, places for blocks must be there */
enum paged_status block_mask_arrays_in(const struct paged_block_arrays *arrays, struct block_mask_arrays *to,
				       struct paged_error *error);

/** block_mask_place - the physical blocks and the sequences for a logical mask, which has one row or the order's */
enum paged_status block_mask_place(struct paged_block_mask *made, const struct batch_mask_order *order,
				   const struct block_mask *logical, struct paged_error *error);

/** Builds the logical blocks of a mask mod. */
typedef enum paged_status (*block_mask_build_fn)(struct paged_pool *pool, const struct batch_mask_order *order,
						 const struct paged_mod *mod, size_t n_arrays,
						 const struct paged_array *arrays, struct block_mask **logical_p,
						 struct paged_error *error);

/** block_mask_make - a mask of a mod, logical or physical as the params say */
enum paged_status block_mask_make(block_mask_build_fn build, struct paged_pool *pool,
				  const struct paged_block_mask_params *params, const struct paged_mod *mod,
				  size_t n_arrays, const struct paged_array *arrays, struct paged_block_mask **mask_p);

#endif
