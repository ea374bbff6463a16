/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_set.h - mods and block mask of a plan, with evaluators for each thread of a team
 *
 * scores.h applies score mods, tile_mask.h mask mods.
 */
#ifndef PAGED_KERNELS_CPU_MOD_SET_H
#define PAGED_KERNELS_CPU_MOD_SET_H

#include "kernels/kernels.h"
#include "kernels/mask/mask.h"
#include "kernels/mod/mod.h"

struct kernel_mod_set {
	struct kernel_mod_set_params params;
	uint32_t n_threads;
	struct mod_vm **mask; /* [n_threads]; NULL without a mask mod */
	struct mod_vm **score;
	struct mod_interval **intervals; /* [n_threads] for the mask mod; NULL without it */
	struct mod_vm *vms[];
};

#endif
