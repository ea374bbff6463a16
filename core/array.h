/* SPDX-License-Identifier: Apache-2.0 */
/**
 * array.h - arrays that a session keeps with the owner, to build block masks from
 *
 * An array comes in parts, in order; the one at offset 0 begins it.  Once
 * complete it never changes: another of its name takes its place and lets it
 * go, and whoever took it meanwhile goes on reading the old one.  A session
 * has bounded bytes of arrays, each counted with the larger of what is there
 * and what is coming (so never more than twice as much lies in memory, beside
 * what was taken); at its end they go.
 *
 * Threads: as the core, but core_array_release() and reading what was taken
 * may be done by any thread.
 */
#ifndef PAGED_CORE_ARRAY_H
#define PAGED_CORE_ARRAY_H

#include <stdatomic.h>

#include "common/mask_request.h"
#include "core/core.h"

/** Arrays of one session. */
#define CORE_MAX_ARRAYS 64u
#define CORE_ARRAY_MAX_NAME MASK_MAX_NAME
#define CORE_ARRAY_MAX_DIMS 4u
/** Bytes of arrays of a session, unless core_array_limit() said otherwise. */
#define CORE_ARRAY_BYTES_DEFAULT (UINT64_C(16) << 20)

/** What an array is; row-major and dense. */
struct core_array_shape {
	enum paged_dtype dtype;
	uint32_t n_dims;                       /* 1 to CORE_ARRAY_MAX_DIMS */
	uint32_t extents[CORE_ARRAY_MAX_DIMS]; /* 0 past n_dims */
};

/** An array that was taken. */
struct core_array {
	struct core_array_shape shape;
	uint64_t size;   /* bytes */
	uint64_t number; /* of all that became complete */
	atomic_uint n_users;
	_Alignas(16) uint8_t data[];
};

struct core_array_part {
	const char *name;
	struct core_array_shape shape; /* of the whole, the same in every part */
	uint64_t offset;               /* bytes */
	const void *data;
	uint32_t size; /* bytes */
};

/** core_array_limit - bytes of arrays that each session may have; those that have more keep them */
void core_array_limit(struct core *core, uint64_t max_bytes);

/**
 * core_array_put - the next part of an array
 *
 * @param[in] member  whose array it is to become: parts of two members are not mixed
 * @retval PAGED_ERR_LIMIT    the session would have more bytes or arrays than it may
 * @retval PAGED_ERR_INVALID  no name, dtype or extents of an array; a part that is not the next
 * @retval PAGED_ERR_AGAIN    another member began an array of this name meanwhile: begin again
 * @retval PAGED_ERR_GONE     no active session
 */
enum paged_status core_array_put(struct core *core, uint32_t session, uint32_t member,
				 const struct core_array_part *part, struct paged_error *error);

/** core_array_drop - forget it, complete or not; PAGED_ERR_NOENT for none */
enum paged_status core_array_drop(struct core *core, uint32_t session, const char *name, struct paged_error *error);

/**
 * core_array_take - a complete array, which stays until core_array_release()
 *
 * @param[in] n_dims  and dtype: what it must be
 * @retval PAGED_ERR_NOENT    the session has none of this name
 * @retval PAGED_ERR_INVALID  it is of another dtype or rank
 */
enum paged_status core_array_take(struct core *core, uint32_t session, const char *name, enum paged_dtype dtype,
				  uint32_t n_dims, struct core_array **array_p, struct paged_error *error);

void core_array_release(struct core_array *array);

/** The arrays that a request for a block mask names. */
struct core_arrays {
	struct core_array *array[MASK_MAX_NAMES]; /* as its names; NULL: a parameter */
	uint64_t number;                          /* another one: one of them is another array */
};

/** core_arrays_take - as core_array_take(), of each; until core_arrays_release(), on an error none */
enum paged_status core_arrays_take(struct core *core, uint32_t session, const struct mask_request *request,
				   struct core_arrays *arrays, struct paged_error *error);

/** core_arrays_release - by any thread; also of a struct of zeros */
void core_arrays_release(struct core_arrays *arrays);

#endif
