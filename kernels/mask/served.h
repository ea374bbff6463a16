/* SPDX-License-Identifier: Apache-2.0 */
/**
 * served.h - block masks that the pools' owner builds for members, part by part
 *
 * A request is kept in a copy (struct served), so that another thread can answer it later; both owners, the daemon and
 * the one embedded in a process, do so with these functions and the same limits.  Text, numbers and arrays may be a
 * hostile peer's: memory is bounded by served_create()'s limit, and time by the flag.
 */
#ifndef PAGED_KERNELS_MASK_SERVED_H
#define PAGED_KERNELS_MASK_SERVED_H

#include <stdatomic.h>

#include "common/mask_request.h"
#include "kernels/mask/runs.h"

/** Most elements (query rows x keys x heads) of a mask. */
#define SERVED_MAX_ELEMENTS (UINT64_C(1) << 36)
/** Bytes of a mask, unless the daemon's configuration says otherwise. */
#define SERVED_BYTES_DEFAULT (UINT64_C(64) << 20)

struct served;

/**
 * served_create - a copy of a request, if it is one that may be answered
 *
 * @param[in] max_bytes  the owner's limit of a mask's lists, and of memory while a part is built
 * @retval PAGED_ERR_INVALID  a count of 0
 * @retval PAGED_ERR_LIMIT    too many elements, query blocks or names; says who builds it instead
 */
enum paged_status served_create(const struct mask_request *request, uint64_t max_bytes, struct served **served_p,
				struct paged_error *error);

/** served_array - what name i of the request, an array, stands for; borrowed until served_destroy() */
void served_array(struct served *served, uint32_t i, const uint32_t *extents, const void *data);

void served_destroy(struct served *served); /* takes NULL */

/**
 * served_build - the part that was asked for
 *
 * Parses the text, and takes its time.
 *
 * @param[in]     cancelled  set by another thread, it ends the work soon with PAGED_ERR_AGAIN; NULL: never
 * @param[in,out] part       empty, with a capacity
 */
enum paged_status served_build(const struct served *served, const atomic_bool *cancelled, struct runs_writer *part,
			       struct paged_error *error);

#endif
