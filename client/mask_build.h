/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mask_build.h - block masks that the embedded owner builds, as the daemon does
 */
#ifndef PAGED_CLIENT_MASK_BUILD_H
#define PAGED_CLIENT_MASK_BUILD_H

#include "client/owner.h"
#include "daemon/core/core.h"

/** mask_build - here and now; as owner_ops.mask */
enum paged_status mask_build(struct core *core, uint32_t session, const struct wire_mask_order *order,
			     struct mask_memory *memory, struct image *image, struct paged_error *error);

/** mask_build_put - a part of an array; as owner_ops.array_put */
enum paged_status mask_build_put(struct core *core, uint32_t session, uint32_t member,
				 const struct wire_array_part *part, struct paged_error *error);

#endif
