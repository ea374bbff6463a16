/* SPDX-License-Identifier: Apache-2.0 */
/**
 * served.h - a physical block mask that somebody asked the pool's owner for
 *
 * What was asked is kept in a copy (struct served), so that another thread
 * can build it later; both owners, the daemon and the one embedded in a
 * process, do so with these functions and the same limits.  Text, numbers
 * and arrays may be a hostile peer's: memory is bounded by served_create()'s
 * limit, and time by whoever sets the flag.
 */
#ifndef PAGED_KERNELS_MASK_SERVED_H
#define PAGED_KERNELS_MASK_SERVED_H

#include <stdatomic.h>

#include "common/region.h"
#include "kernels/mask/image.h"
#include "kernels/mod/mod.h"

/** Most elements (query rows x keys x heads) of a mask. */
#define SERVED_MAX_ELEMENTS (UINT64_C(1) << 36)
/** Bytes of a mask, unless the daemon's configuration says otherwise. */
#define SERVED_BYTES_DEFAULT (UINT64_C(64) << 20)

struct served_request {
	uint32_t n_rows;
	const paged_seq_id *seq;        /* [n_rows], of a physical mask each */
	const uint32_t *q_len, *kv_len; /* [n_rows] */
	const int64_t *q_base;          /* [n_rows]; NULL: kv_len - q_len */
	uint32_t n_heads;               /* 0: one stands for all; the mod may then not depend on h */
	uint32_t q_block, kv_block;     /* tokens */
	uint64_t max_bytes;             /* the asker's own limit; 0: none */
	const char *text;               /* of a mask mod */
	const struct mod_array *names;  /* what it names, bound: parameters are copied, arrays borrowed */
	uint32_t n_names;
};

struct served;

/**
 * served_create - a copy of a request, if it is one that may be built
 *
 * @param[in] max_bytes  the owner's limit of a mask
 * @retval PAGED_ERR_INVALID  a count of 0
 * @retval PAGED_ERR_LIMIT    too many elements, query blocks or names; says who builds it instead
 */
enum paged_status served_create(const struct served_request *request, uint64_t max_bytes, struct served **served_p,
				struct paged_error *error);

/** served_destroy - takes NULL; then the arrays may go */
void served_destroy(struct served *served);

/**
 * served_build - do what was asked
 *
 * Parses the text, reads the rows from the pool's tables, and takes its time.
 *
 * @param[in]  view       of the pool
 * @param[in]  cancelled  set by another thread, it ends the work soon with PAGED_ERR_AGAIN; NULL: nobody will
 * @param[in]  memory     of the masks, outlives them; NULL: malloc()
 * @param[out] image      to be freed with image_free() on PAGED_OK
 */
enum paged_status served_build(const struct served *served, const struct region_view *view,
			       const atomic_bool *cancelled, struct mask_memory *memory, struct image *image,
			       struct paged_error *error);

#endif
