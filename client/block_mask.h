/* SPDX-License-Identifier: Apache-2.0 */
/**
 * block_mask.h - a block mask and the pool that it belongs to
 *
 * A physical mask keeps the logical one that it was made of, over the same
 * rows and cut to their lengths, and for each row the sequence with the
 * version of its entries as they were read: staleness is judged by these.
 *
 * Life: in its pool's list from block_mask_enlist() on, which the client's
 * mutex guards; freed by itself or with the pool.  Nothing in it changes.
 */
#ifndef PAGED_CLIENT_BLOCK_MASK_H
#define PAGED_CLIENT_BLOCK_MASK_H

#include "client/internal.h"
#include "kernels/mask/mask.h"

struct paged_block_mask {
	struct paged_pool *pool;
	struct paged_block_mask *next;
	struct paged_block_mask **link; /* what points to this one */
	struct block_mask *logical;
	struct block_mask *physical; /* NULL: a logical mask */
	/* Of a physical mask, [n_rows] each; of a logical one 0 and NULL. */
	uint32_t n_rows;
	paged_seq_id *seq; /* 0: an explicit table */
	uint64_t *version;
};

/** block_mask_named - the lists that the mask's user sees */
static inline const struct block_mask *
block_mask_named(const struct paged_block_mask *mask)
{
	return mask->physical != NULL ? mask->physical : mask->logical;
}

/**
 * block_mask_enlist - make a handle of its parts, which it then owns, and put it into the pool's list
 *
 * @param[in] physical, seq, version  NULL for a logical mask; else [physical->shape.n_rows]
 * @return NULL: no memory; the parts are still the caller's
 */
struct paged_block_mask *block_mask_enlist(struct paged_pool *pool, struct block_mask *logical,
					   struct block_mask *physical, paged_seq_id *seq, uint64_t *version);

/** block_mask_free - out of its list and gone; the client's mutex is held, or the process is a child */
void block_mask_free(struct paged_block_mask *mask);

#endif
