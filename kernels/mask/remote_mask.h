/* SPDX-License-Identifier: Apache-2.0 */
/**
 * remote_mask.h - block masks that the pools' owner builds for members, part by part
 *
 * A request is copied (struct remote_mask), so that another thread can answer it later.  Both kinds of
 * owner, the daemon and the owner embedded in a process, use these functions with the same limits.
 * Text, numbers and arrays may come from a hostile peer: remote_mask_create()'s limit bounds memory, and
 * the cancel flag bounds time.
 */
#ifndef PAGED_KERNELS_MASK_REMOTE_MASK_H
#define PAGED_KERNELS_MASK_REMOTE_MASK_H

#include <stdatomic.h>

#include "common/mask_request.h"
#include "kernels/mask/rle.h"

/** Most elements (query rows x keys x heads) of a mask. */
#define REMOTE_MASK_MAX_ELEMENTS (UINT64_C(1) << 36)
/** Limit of a mask's bytes unless the daemon's configuration sets another. */
#define REMOTE_MASK_DEFAULT_BYTES (UINT64_C(64) << 20)

struct remote_mask;

/**
 * remote_mask_create - copy a request if it is within the limits
 *
 * @param[in] max_bytes  the owner's limit of a mask's lists, and of memory while a part is built
 * @retval PAGED_ERR_INVALID  a count is 0, a row's b is above 2^31 - 1, or a kv_first exceeds its kv_len
 * @retval PAGED_ERR_LIMIT    too many elements, query blocks or names, or too long a text; the message says which
 * function builds the mask locally instead
 */
enum paged_status remote_mask_create(const struct mask_request *request, uint64_t max_bytes,
				     struct remote_mask **remote_mask_p, struct paged_error *error);

/** remote_mask_set_array - set the contents of name i of the request, an array; borrowed until remote_mask_destroy() */
void remote_mask_set_array(struct remote_mask *remote_mask, uint32_t i, const uint32_t *extents, const void *data);

void remote_mask_destroy(struct remote_mask *remote_mask); /* takes NULL */

/**
 * remote_mask_build - build the requested part
 *
 * Parses the text first; may take long.
 *
 * @param[in]     cancelled  if another thread sets it, the call soon returns PAGED_ERR_AGAIN; NULL: not cancellable
 * @param[in,out] part       empty, with a capacity
 */
enum paged_status remote_mask_build(const struct remote_mask *remote_mask, const atomic_bool *cancelled,
				    struct rle_writer *part, struct paged_error *error);

#endif
