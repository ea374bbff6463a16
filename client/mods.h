/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mods.h - mods of a pool, and what a batch runs them with
 *
 * A struct paged_mod is a parsed text in its pool's list, which the client's
 * mutex guards.  A struct paged_mods has a binding for each of its mods and
 * the kernels' memory for its batch's threads; it is in the batch's list,
 * which only the batch's thread walks.  Bindings exist from the start, to
 * nothing, so that binding is rebinding in place.
 */
#ifndef PAGED_CLIENT_MODS_H
#define PAGED_CLIENT_MODS_H

#include "client/array.h"
#include "client/batch.h"
#include "kernels/mod/mod.h"

/** Most names that a text may be told of. */
#define MODS_MAX_NAMES 255u
/** Most arrays that a mask and a score mod together use. */
#define MODS_MAX_ARRAYS (2 * MOD_MAX_NAMES)

struct paged_mod {
	struct paged_pool *pool;
	struct paged_mod *next;
	struct mod *mod;
};

struct paged_mods {
	struct paged_batch *batch;
	struct paged_mods *next;
	struct mod_binding *mask; /* NULL: none */
	struct mod_binding *score;
	struct kernel_mods *kernel;
	struct cuda_mods *device;      /* of a pool in a GPU's memory, with mods */
	bool bound;                    /* to all that the mods name */
	struct array_values *narrowed; /* arrays of the binding that the program has as PAGED_I64 */
	const struct paged_block_mask *blocks;
	/* For this plan and so many query heads the block mask was found to do; 0: not yet. */
	uint64_t fits_plan;
	uint32_t fits_heads;
};

/** mods_free_mod - out of its pool's list and gone; the client's mutex is held, or the process is a child */
void mods_free_mod(struct paged_mod *mod);

/** mods_free - out of its batch's list and gone; in a child memory alone is freed */
void mods_free(struct paged_mods *mods, bool in_child);

/** The caller's arrays, as mods are bound to them. */
struct mods_arrays {
	uint32_t n;
	bool on_device; /* the data of arrays are not the host's to read */
	struct mod_array at[MODS_MAX_ARRAYS];
	int32_t values[MODS_MAX_ARRAYS]; /* of parameters that the caller has as PAGED_I64 */
	struct array_values *narrowed;   /* of arrays, likewise */
};

/**
 * mods_arrays_in - those of the caller's arrays that a or b (NULL: none) uses, with strides in bytes
 *
 * Refuses what mod_bind() does not look at: no name, strides past 2^63 bytes,
 * a name twice, and values of PAGED_I64 outside 32 bits.
 *
 * @param[in,out] to  empty; its `narrowed` is to be freed, on an error too
 */
enum paged_status mods_arrays_in(struct mods_arrays *to, const struct mod *a, const struct mod *b, size_t n_from,
				 const struct paged_array *from, struct paged_error *error);

/** mods_dtype - the dtype by which mods know a caller's array */
static inline enum mod_dtype
mods_dtype(uint32_t dtype)
{
	return dtype == PAGED_I64 ? MOD_I32 : (enum mod_dtype)dtype;
}

/** mods_check - may attention over the batch's plan with so many query heads use them? */
enum paged_status mods_check(struct paged_mods *mods, const struct paged_batch *batch, uint32_t n_heads,
			     struct paged_error *error);

/** mods_forget_range - of all mods of the batch: a new plan begins */
void mods_forget_range(struct paged_batch *batch);

/** mods_check_range - was an index out of bounds since then?  PAGED_ERR_RANGE */
enum paged_status mods_check_range(const struct paged_batch *batch, struct paged_error *error);

#endif
