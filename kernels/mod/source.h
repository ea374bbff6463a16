/* SPDX-License-Identifier: Apache-2.0 */
/**
 * source.h - mods for a compiler: CUDA C of a mask and a score mod, and the arguments that it reads
 *
 * The source is what attention.h includes as ATTENTION_MOD: a struct of two
 * static functions that compute a mod's nodes in order, one a line, by the
 * operations of kernels/cuda/mod_device.h.  Loads keep their guards: an
 * element that no guard reaches is not touched.
 */
#ifndef PAGED_KERNELS_MOD_SOURCE_H
#define PAGED_KERNELS_MOD_SOURCE_H

#include "kernels/cuda/mod_args.h"
#include "kernels/mod/mod.h"

/**
 * mod_cuda_source - equal mods give equal text
 *
 * @param[in]  name   of the struct, "attention_mod"
 * @param[in]  mask   a mask mod, or NULL: everything is seen
 * @param[in]  score  a score mod, or NULL: scores stay
 * @param[out] text_p  zero-terminated, the caller frees it
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status mod_cuda_source(const char *name, const struct mod *mask, const struct mod *score, char **text_p,
				  struct paged_error *error);

/**
 * mod_cuda_args - what a mod's binding says, for its compiled code
 *
 * Fills the names of the binding's mod and no others.  Arrays' data are
 * addresses of the memory of whatever runs the code, and not followed here.
 *
 * @retval PAGED_ERR_INVALID  an array's address or stride is no multiple of its elements' size
 */
enum paged_status mod_cuda_args(const struct mod_binding *binding, struct cuda_mod_args *args,
				struct paged_error *error);

/** mod_cuda_range - a recorded index as mod_range_fail() takes it, with the mod whose array it is */
struct mod_range mod_cuda_range(const struct cuda_mod_range *range, enum mod_kind *kind_p);

#endif
