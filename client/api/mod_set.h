/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_set.h - mods of a pool, and their bindings to a batch
 *
 * A struct paged_mod is a parsed expression.  It is in its pool's list, which
 * the client's mutex guards.
 *
 * A struct paged_mods is a mask mod and a score mod bound for one batch.  It
 * has a binding for each mod and scratch memory for the batch's threads.  It is
 * in the batch's list, which only the batch's thread walks.  The bindings are
 * allocated with it, empty at first, so a bind changes them in place and
 * allocates nothing.
 */
#ifndef PAGED_CLIENT_MODS_H
#define PAGED_CLIENT_MODS_H

#include "client/api/array.h"
#include "client/api/batch.h"
#include "kernels/mod/mod.h"

/** Maximum number of names that may be declared to a mod's text. */
#define MODS_MAX_NAMES 255u
/** Maximum number of arrays that a mask mod and a score mod use together. */
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
	struct cuda_mods *device;      /* state on the device; NULL on the host */
	bool bound;                    /* every name of the mods is bound */
	struct array_values *narrowed; /* 32-bit copies of the bound PAGED_I64 arrays */
	const struct paged_block_mask *blocks;
	/* Plan number and query heads that the block mask was last checked against; fits_plan 0: none yet. */
	uint64_t fits_plan;
	uint32_t fits_heads;
};

/** mods_free_mod - remove a mod from its pool and free it; the client's mutex is held, or the process is a child */
void mods_free_mod(struct paged_mod *mod);

/** mods_free - remove mods from their batch and free them; in a forked child, free memory only */
void mods_free(struct paged_mods *mods, bool in_child);

/** The caller's arrays in the form that mod_bind() takes. */
struct mods_arrays {
	uint32_t n;
	bool on_device; /* array data is in device memory: the host must not read it */
	struct mod_array at[MODS_MAX_ARRAYS];
	int32_t values[MODS_MAX_ARRAYS]; /* PAGED_I64 parameters as 32 bits */
	struct array_values *narrowed;   /* PAGED_I64 arrays as 32 bits */
};

/**
 * mods_arrays_in - convert those of the caller's arrays that mod a or b (NULL: none) uses; strides become bytes
 *
 * Refuses what mod_bind() does not check: an array without a name, strides past
 * 2^63 bytes, a name given twice, and PAGED_I64 values outside 32 bits.
 *
 * @param[in,out] to  empty; the caller frees to->narrowed, also after an error
 */
enum paged_status mods_arrays_in(struct mods_arrays *to, const struct mod *a, const struct mod *b, size_t n_from,
				 const struct paged_array *from, struct paged_error *error);

/** mods_dtype - the dtype that mods use for a caller's array: PAGED_I64 becomes MOD_I32 */
static inline enum mod_dtype
mods_dtype(uint32_t dtype)
{
	return dtype == PAGED_I64 ? MOD_I32 : (enum mod_dtype)dtype;
}

/** mods_check - can attention with n_heads query heads over the batch's plan use these mods? */
enum paged_status mods_check(struct paged_mods *mods, const struct paged_batch *batch, uint32_t n_heads,
			     struct paged_error *error);

/** mods_forget_range - clear the recorded out-of-bounds index of all mods of the batch; a new plan calls this */
void mods_forget_range(struct paged_batch *batch);

/** mods_check_range - PAGED_ERR_RANGE if an array index was out of bounds since mods_forget_range() */
enum paged_status mods_check_range(const struct paged_batch *batch, struct paged_error *error);

#endif
