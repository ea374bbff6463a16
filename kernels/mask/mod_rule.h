/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_rule.h - a mask mod as the rule of a block mask
 *
 * Large areas are decided by intervals, single blocks that stay unknown by
 * the tile VM, element by element: what block_mask_create() makes of the rule
 * is what evaluating every element as attention does would give.
 */
#ifndef PAGED_KERNELS_MASK_MOD_RULE_H
#define PAGED_KERNELS_MASK_MOD_RULE_H

#include "kernels/mask/mask.h"
#include "kernels/mod/mod.h"

#define MOD_RULE_CORNERS 4

/* Of areas, and of their corners of one kind: each keeps what depends on query rows for areas of the same rows. */
enum { MOD_RULE_AREAS = MOD_RULE_CORNERS, MOD_RULE_N_INTERVALS };

struct mod_rule {
	struct mask_rule rule; /* for block_mask_create(), by one thread at a time */
	const struct mod_binding *binding;
	struct mod_interval *intervals[MOD_RULE_N_INTERVALS]; /* by kind of corner, then of areas */
	struct mod_vm *vm;
};

/**
 * mod_rule_open - a rule of a bound mask mod
 *
 * @param[in]  binding   borrowed; mod_binding_index() on it beforehand spares
 *                       scans of arrays.  b is the row in the shape
 * @param[out] mod_rule  not to be moved until mod_rule_close()
 * @retval PAGED_ERR_INVALID      a score mod
 * @retval PAGED_ERR_UNSUPPORTED  this CPU or build lacks the instruction set
 */
enum paged_status mod_rule_open(struct mod_rule *mod_rule, const struct mod_binding *binding, enum kernel_isa isa,
				struct paged_error *error);

/** mod_rule_close - also of a struct of zeros */
void mod_rule_close(struct mod_rule *mod_rule);

/** mod_rule_range - an index out of bounds in a block evaluated so far, read as 0: PAGED_ERR_RANGE with its place */
enum paged_status mod_rule_range(const struct mod_rule *mod_rule, struct paged_error *error);

#endif
