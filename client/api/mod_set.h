/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_set.h - the mods that are bound to a batch
 */
#ifndef PAGED_CLIENT_MOD_SET_H
#define PAGED_CLIENT_MOD_SET_H

#include "client/api/objects.h"

/** mods_free - remove mods from their batch and free them; in a forked child, free memory only */
void mods_free(struct paged_mod_set *mods, bool in_child);

/** mods_check - can attention with n_heads query heads over the batch's plan use these mods? */
enum paged_status mods_check(struct paged_mod_set *mods, const struct paged_batch *batch, uint32_t n_heads,
			     struct paged_error *error);

/** mods_forget_range - clear the recorded out-of-bounds index of all mods of the batch; a new plan calls this */
void mods_forget_range(struct paged_batch *batch);

/** mods_check_range - PAGED_ERR_RANGE if an array index was out of bounds since mods_forget_range() */
enum paged_status mods_check_range(const struct paged_batch *batch, struct paged_error *error);

#endif
