/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mask_fetch.h - block masks that the daemon builds, and arrays for them
 */
#ifndef PAGED_CLIENT_MASK_FETCH_H
#define PAGED_CLIENT_MASK_FETCH_H

#include "client/rpc.h"

/** mask_fetch - ask for one and bring it here, from the reply or a memfd; as owner_ops.mask */
enum paged_status mask_fetch(struct rpc *rpc, const struct wire_mask_order *order, struct mask_memory *memory,
			     struct image *image, struct paged_error *error);

/** mask_fetch_put, mask_fetch_drop - as owner_ops.array_put and .array_drop */
enum paged_status mask_fetch_put(struct rpc *rpc, const struct wire_array_part *part, struct paged_error *error);
enum paged_status mask_fetch_drop(struct rpc *rpc, const char *name, struct paged_error *error);

#endif
