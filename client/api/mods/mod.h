/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod.h - mods of a pool, and the arrays that the caller gives them
 */
#ifndef PAGED_CLIENT_MOD_H
#define PAGED_CLIENT_MOD_H

#include "client/api/mods/array.h"
#include "client/api/objects.h"
#include "kernels/mod/mod.h"

/** Maximum number of names that may be declared to a mod's text. */
#define CLIENT_MOD_MAX_NAMES 255u
/** Maximum number of arrays that a mask mod and a score mod use together. */
#define CLIENT_MAX_ARRAYS (2 * MOD_MAX_NAMES)

/** client_mod_free - remove a mod from its pool and free it; the client's mutex is held, or the process is a child */
void client_mod_free(struct paged_mod *mod);

/** The caller's arrays in the form that mod_bind() takes. */
struct client_arrays {
	uint32_t n;
	bool on_device; /* array data is in device memory: the host must not read it */
	struct mod_array at[CLIENT_MAX_ARRAYS];
	int32_t values[CLIENT_MAX_ARRAYS]; /* PAGED_I64 parameters as 32 bits */
	struct array_values *narrowed;     /* PAGED_I64 arrays as 32 bits */
};

/**
 * client_arrays_in - convert those of the caller's arrays that mod a or b (NULL: none) uses; strides become bytes
 *
 * Refuses what mod_bind() does not check: an array without a name, strides past
 * 2^63 bytes, a name given twice, and PAGED_I64 values outside 32 bits.
 *
 * @param[in,out] to  empty; the caller frees to->narrowed, also after an error
 */
enum paged_status client_arrays_in(struct client_arrays *to, const struct mod *a, const struct mod *b, size_t n_from,
				   const struct paged_array *from, struct paged_error *error);

/** client_array_dtype - the dtype that mods use for a caller's array: PAGED_I64 becomes MOD_I32 */
static inline enum mod_dtype
client_array_dtype(uint32_t dtype)
{
	return dtype == PAGED_I64 ? MOD_I32 : (enum mod_dtype)dtype;
}

#endif
