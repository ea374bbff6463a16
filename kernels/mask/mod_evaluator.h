/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_evaluator.h - a mask mod as the rule of a block mask
 *
 * Interval analysis decides large areas; the tile VM decides single blocks that remain unknown,
 * element by element.  So block_mask_create() gives the same mask as evaluating every element in the
 * way attention does.
 */
#ifndef PAGED_KERNELS_MASK_MOD_EVALUATOR_H
#define PAGED_KERNELS_MASK_MOD_EVALUATOR_H

#include "kernels/mask/mask.h"
#include "kernels/mod/mod.h"

#define MOD_RULE_CORNERS 4

/* Interval evaluators: one per kind of corner sample, one for areas.  Each caches what depends only on query rows. */
enum { MOD_RULE_AREAS = MOD_RULE_CORNERS, MOD_RULE_N_INTERVALS };

struct mod_rule {
	struct mask_rule rule; /* for block_mask_create(), one thread at a time */
	const struct mod_binding *binding;
	struct mod_interval *intervals[MOD_RULE_N_INTERVALS]; /* by kind of corner, then one for areas */
	struct mod_vm *vm;
};

/**
 * mod_rule_open - make the rule of a bound mask mod
 *
 * @param[in]  binding   borrowed; mod_binding_index() on it beforehand avoids
 *                       scans of arrays. b is the row's index in the shape
 * @param[out] mod_rule  must not be moved until mod_rule_close()
 * @retval PAGED_ERR_INVALID      a score mod
 * @retval PAGED_ERR_UNSUPPORTED  this CPU or build lacks the instruction set
 */
enum paged_status mod_rule_open(struct mod_rule *mod_rule, const struct mod_binding *binding, enum kernel_isa isa,
				struct paged_error *error);

/** mod_rule_close - also takes a struct of zeros */
void mod_rule_close(struct mod_rule *mod_rule);

/**
 * mod_rule_range - PAGED_ERR_RANGE with its place if an index in an evaluated block was out of bounds
 * (it read as 0)
 */
enum paged_status mod_rule_range(const struct mod_rule *mod_rule, struct paged_error *error);

#endif
