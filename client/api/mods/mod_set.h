/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_set.h - mod sets of a batch: a mask mod and a score mod, bound to values and arrays
 *
 * A set has its bindings from its creation, empty at first, and a bind changes them
 * in place, because a step allocates nothing.  Both bindings are checked
 * (mod_rebind_prepare()) before either changes.  Whether a block mask fits is
 * checked once for each plan and bind.
 */
#ifndef PAGED_CLIENT_MOD_SET_H
#define PAGED_CLIENT_MOD_SET_H

#include "client/api/objects.h"

/** mod_set_free - remove a mod set from its batch and free it; in a forked child, free memory only */
void mod_set_free(struct paged_mod_set *set, bool in_child);

/** mod_set_check - can attention with n_heads query heads over the batch's plan use this mod set? */
enum paged_status mod_set_check(struct paged_mod_set *set, const struct paged_batch *batch, uint32_t n_heads,
				struct paged_error *error);

/** mod_set_clear_range - clear the recorded out-of-bounds index of all mod sets of the batch; a new plan calls this */
void mod_set_clear_range(struct paged_batch *batch);

/** mod_set_check_range - PAGED_ERR_RANGE if an array index was out of bounds since mod_set_clear_range() */
enum paged_status mod_set_check_range(const struct paged_batch *batch, struct paged_error *error);

#endif
