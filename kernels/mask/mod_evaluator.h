/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_evaluator.h - proves blocks of a mask full or empty by interval analysis, or evaluates their elements
 *
 * For block_mask_create().  Interval analysis (kernels/mod/interval.c) decides large areas; the tile VM decides single
 * blocks that remain unknown, element by element.  Therefore block_mask_create() gives the same mask as evaluating
 * every element in the way attention does.
 */
#ifndef PAGED_KERNELS_MASK_MOD_EVALUATOR_H
#define PAGED_KERNELS_MASK_MOD_EVALUATOR_H

#include "kernels/mask/mask.h"
#include "kernels/mod/mod.h"

#define MOD_EVALUATOR_CORNERS 4

/* Interval evaluators: one per kind of corner sample, one for areas.  Each caches what depends only on query rows. */
enum { MOD_EVALUATOR_AREAS = MOD_EVALUATOR_CORNERS, MOD_EVALUATOR_N_INTERVALS };

struct mod_evaluator {
	struct mask_evaluator base; /* for block_mask_create(), one thread at a time */
	const struct mod_binding *binding;
	struct mod_interval *intervals[MOD_EVALUATOR_N_INTERVALS]; /* by kind of corner, then one for areas */
	struct mod_vm *vm;
};

/**
 * mod_evaluator_open - make the evaluator of a bound mask mod
 *
 * @param[in]  binding   borrowed; mod_binding_add_range_trees() on it beforehand avoids
 *                       scans of arrays. b is the row's index in the shape
 * @param[out] mod_evaluator  must not be moved until mod_evaluator_close()
 * @retval PAGED_ERR_INVALID      a score mod
 * @retval PAGED_ERR_UNSUPPORTED  this CPU or build lacks the instruction set
 */
enum paged_status mod_evaluator_open(struct mod_evaluator *mod_evaluator, const struct mod_binding *binding,
				     enum kernel_isa isa, struct paged_error *error);

/** mod_evaluator_close - also takes a struct of zeros */
void mod_evaluator_close(struct mod_evaluator *mod_evaluator);

/**
 * mod_evaluator_bad_index - PAGED_ERR_RANGE with its place if an index in an evaluated block was out of bounds
 * (it read as 0)
 */
enum paged_status mod_evaluator_bad_index(const struct mod_evaluator *mod_evaluator, struct paged_error *error);

#endif
