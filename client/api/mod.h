/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod.h - mods of a pool, and the arrays that the caller gives them
 */
#ifndef PAGED_CLIENT_MOD_H
#define PAGED_CLIENT_MOD_H

#include "client/api/array.h"
#include "client/api/objects.h"
#include "kernels/mod/mod.h"

/** Maximum number of names that may be declared to a mod's text. */
#define MODS_MAX_NAMES 255u
/** Maximum number of arrays that a mask mod and a score mod use together. */
#define MODS_MAX_ARRAYS (2 * MOD_MAX_NAMES)

/** mods_free_mod - remove a mod from its pool and free it; the client's mutex is held, or the process is a child */
void mods_free_mod(struct paged_mod *mod);

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

#endif
