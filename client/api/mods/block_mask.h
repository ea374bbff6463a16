/* SPDX-License-Identifier: Apache-2.0 */
/**
 * block_mask.h - how block masks are made
 */
#ifndef PAGED_CLIENT_BLOCK_MASK_H
#define PAGED_CLIENT_BLOCK_MASK_H

#include "client/api/objects.h"
#include "kernels/mask/batch_mask.h"

/** block_mask_shown - the lists that the API shows: the physical ones if there are any, else the logical ones */
static inline const struct block_mask *
block_mask_shown(const struct paged_block_mask *mask)
{
	return mask->physical != NULL ? mask->physical : mask->logical;
}

/** block_mask_enter - first step of each public call that makes a mask from a mask */
enum paged_status block_mask_enter(const struct paged_block_mask *mask, struct paged_block_mask **mask_p);

/**
 * block_mask_publish - last step of each public call that makes a mask
 *
 * @param[in] made    the pool, blocks and sequences of the mask; copied
 * @param[in] status  the result of making them; on a failure, `error` has the
 *                    reason, and blocks and sequences are freed
 */
enum paged_status block_mask_publish(const struct paged_block_mask *made, enum paged_status status,
				     struct paged_block_mask **mask_p, struct paged_error *error);

/** block_mask_free - remove a mask from its pool and free it; the client's mutex is held, or the process is a child */
void block_mask_free(struct paged_block_mask *mask, bool in_child);

/** A request for a mask: the caller's params, complete and checked. */
struct block_mask_request {
	struct batch_mask_request batch; /* owns its rows */
	bool is_physical;
};

/**
 * block_mask_request_open - first step of each public call that makes a mask from params
 *
 * On an error the client's error text is set, and block_mask_request_close() must not be called.
 */
enum paged_status block_mask_request_open(struct block_mask_request *request, struct paged_pool *pool,
					  const struct paged_block_mask_params *params,
					  struct paged_block_mask **mask_p);

void block_mask_request_close(struct block_mask_request *request);

/** block_mask_rows_in - convert the caller's rows; the caller frees *rows_p */
enum paged_status block_mask_rows_in(struct paged_pool *pool, const struct paged_batch_row *rows, size_t n_rows,
				     struct batch_mask_row **rows_p, struct paged_error *error);

/** block_mask_arrays_in - check the caller's input or output arrays, which are borrowed; none may be missing */
enum paged_status block_mask_arrays_in(const struct paged_block_arrays *arrays, struct block_mask_arrays *to,
				       struct paged_error *error);

/**
 * block_mask_make_physical - set made->physical and the sequences from a logical mask
 *
 * @param[in] logical  has one row, or as many rows as the request
 */
enum paged_status block_mask_make_physical(struct paged_block_mask *made, const struct batch_mask_request *request,
					   const struct block_mask *logical, struct paged_error *error);

/** Builds the logical blocks of a mask mod. */
typedef enum paged_status (*block_mask_build_fn)(struct paged_pool *pool, const struct batch_mask_request *request,
						 const struct paged_mod *mod, size_t n_arrays,
						 const struct paged_array *arrays, struct block_mask **logical_p,
						 struct paged_error *error);

/** block_mask_make - make a mask from a mod; params decide whether it is logical or physical */
enum paged_status block_mask_make(block_mask_build_fn build, struct paged_pool *pool,
				  const struct paged_block_mask_params *params, const struct paged_mod *mod,
				  size_t n_arrays, const struct paged_array *arrays, struct paged_block_mask **mask_p);

#endif
