/* SPDX-License-Identifier: Apache-2.0 */
/**
 * served.h - block masks that the pools' owner builds for members, part by part
 *
 * A request is copied (struct served), so that another thread can answer it later.  Both kinds of
 * owner, the daemon and the owner embedded in a process, use these functions with the same limits.
 * Text, numbers and arrays may come from a hostile peer: served_create()'s limit bounds memory, and
 * the cancel flag bounds time.
 */
#ifndef PAGED_KERNELS_MASK_REMOTE_MASK_H
#define PAGED_KERNELS_MASK_REMOTE_MASK_H

#include <stdatomic.h>

#include "common/mask_request.h"
#include "kernels/mask/rle.h"

/** Most elements (query rows x keys x heads) of a mask. */
#define SERVED_MAX_ELEMENTS (UINT64_C(1) << 36)
/** Limit of a mask's bytes unless the daemon's configuration sets another. */
#define SERVED_BYTES_DEFAULT (UINT64_C(64) << 20)

struct served;

/**
 * served_create - copy a request if it is within the limits
 *
 * @param[in] max_bytes  the owner's limit of a mask's lists, and of memory while a part is built
 * @retval PAGED_ERR_INVALID  a count is 0, or a row's b is above 2^31 - 1
 * @retval PAGED_ERR_LIMIT    too many elements, query blocks or names, or too long a text; the message says which
 * function builds the mask locally instead
 */
enum paged_status served_create(const struct mask_request *request, uint64_t max_bytes, struct served **served_p,
				struct paged_error *error);

/** served_array - set the contents of name i of the request, an array; borrowed until served_destroy() */
void served_array(struct served *served, uint32_t i, const uint32_t *extents, const void *data);

void served_destroy(struct served *served); /* takes NULL */

/**
 * served_build - build the requested part
 *
 * Parses the text first; may take long.
 *
 * @param[in]     cancelled  if another thread sets it, the call soon returns PAGED_ERR_AGAIN; NULL: not cancellable
 * @param[in,out] part       empty, with a capacity
 */
enum paged_status served_build(const struct served *served, const atomic_bool *cancelled, struct runs_writer *part,
			       struct paged_error *error);

#endif
