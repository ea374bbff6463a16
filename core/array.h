/* SPDX-License-Identifier: Apache-2.0 */
/**
 * array.h - arrays that a session keeps with the owner, to build block masks from
 *
 * A member uploads an array in chunks, in order; the chunk at offset 0 begins
 * it.  A complete array never changes.  A new array of the same name replaces
 * it; holders of a reference (core_array_acquire()) continue to read the old one.
 *
 * Quota: the bytes of a session's arrays are bounded.  Each name counts with
 * the larger of its complete array and the one being uploaded.  Memory use
 * is therefore at most twice the quota, not counting replaced arrays that are
 * still referenced.  What a tenant's sessions have, and what all sessions have,
 * is bounded as well; there both arrays of a name count.  All arrays are
 * dropped when the session ends.
 *
 * Threads: one caller at a time, as for the core.  Any thread may call
 * core_array_release() and read an array that it holds.
 */
#ifndef PAGED_CORE_ARRAY_H
#define PAGED_CORE_ARRAY_H

#include <stdatomic.h>

#include "common/mask_request.h"
#include "core/core.h"

/** Most arrays of one session. */
#define CORE_MAX_ARRAYS 64u
#define CORE_ARRAY_MAX_NAME MASK_MAX_NAME
#define CORE_ARRAY_MAX_DIMS 4u
/** Most bytes of arrays of a session, unless core_array_set_quota() sets another limit. */
#define CORE_ARRAY_BYTES_DEFAULT (UINT64_C(16) << 20)

/** An array's type and extents; the array is row-major and dense. */
struct core_array_shape {
	enum paged_dtype dtype;
	uint32_t n_dims;                       /* 1 to CORE_ARRAY_MAX_DIMS */
	uint32_t extents[CORE_ARRAY_MAX_DIMS]; /* 0 past n_dims */
};

/** A reference-counted array; immutable once complete. */
struct core_array {
	struct core_array_shape shape;
	uint64_t size;       /* bytes */
	uint64_t number;     /* serial number among all completed arrays */
	atomic_uint n_users; /* reference count */
	_Alignas(16) uint8_t data[];
};

struct core_array_chunk {
	const char *name;
	struct core_array_shape shape; /* of the whole array, the same in every chunk */
	uint64_t offset;               /* bytes, in the whole array */
	const void *data;
	uint32_t size; /* bytes */
};

/** All sessions together may have as many bytes of arrays as so many sessions with full quotas. */
#define CORE_ARRAY_QUOTAS 32u

/** core_array_set_quota - set the quota of bytes of each session; a session that already has more keeps its arrays */
void core_array_set_quota(struct core *core, uint64_t max_bytes);

/**
 * core_array_put - store the next chunk of an array
 *
 * @param[in] member  the uploading member; chunks of two members are never mixed
 * @retval PAGED_ERR_LIMIT    the session would exceed its quota of bytes or of arrays, or the size overflows
 * @retval PAGED_ERR_INVALID  not a valid name, dtype or shape; a chunk that is not the next
 * @retval PAGED_ERR_AGAIN    this member has no upload of this name under way, for example because another member
 *                            began one meanwhile: begin again at offset 0
 * @retval PAGED_ERR_GONE     no active session
 * @retval PAGED_ERR_NOMEM    no memory for the array
 */
enum paged_status core_array_put(struct core *core, uint32_t session, uint32_t member,
				 const struct core_array_chunk *chunk, struct paged_error *error);

/** core_array_drop - drop an array, complete or not; PAGED_ERR_NOENT: no such array */
enum paged_status core_array_drop(struct core *core, uint32_t session, const char *name, struct paged_error *error);

/**
 * core_array_acquire - take a reference to a complete array, until core_array_release()
 *
 * @param[in] dtype, n_dims  the type and rank that the array must have
 * @retval PAGED_ERR_NOENT    the session has no complete array of this name
 * @retval PAGED_ERR_INVALID  the array has another dtype or rank
 */
enum paged_status core_array_acquire(struct core *core, uint32_t session, const char *name, enum paged_dtype dtype,
				     uint32_t n_dims, struct core_array **array_p, struct paged_error *error);

void core_array_release(struct core_array *array);

/** The arrays that a request for a block mask names. */
struct core_arrays {
	struct core_array *array[MASK_MAX_NAMES]; /* in the order of the request's names; NULL: a parameter */
	uint64_t number;                          /* changes whenever one of the arrays is replaced */
};

/** core_arrays_acquire - core_array_acquire() of every array, until core_arrays_release(); on an error, of none */
enum paged_status core_arrays_acquire(struct core *core, uint32_t session, const struct mask_request *request,
				      struct core_arrays *arrays, struct paged_error *error);

/** core_arrays_release - release every array; any thread may call it; accepts a zeroed struct */
void core_arrays_release(struct core_arrays *arrays);

#endif
