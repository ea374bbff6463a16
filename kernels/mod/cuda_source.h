/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cuda_source.h - mods as CUDA C source for JIT compilation, and the arguments that the compiled code reads
 *
 * attention.h includes the source as ATTENTION_MOD.  It is a struct of two static functions that
 * compute a mod's nodes in order, one per line, with the operations of kernels/cuda/device/mod_device.h.
 * Loads keep their guards: an element whose guard is false is not read.
 */
#ifndef PAGED_KERNELS_MOD_CUDA_SOURCE_H
#define PAGED_KERNELS_MOD_CUDA_SOURCE_H

#include "kernels/mod/mod.h"
#include "kernels/mod/mod_args.h"

/**
 * mod_cuda_source - source of a mask and a score mod; equal mods give equal text
 *
 * @param[in]  name   name of the struct, "attention_mod"
 * @param[in]  mask   a mask mod, or NULL: everything is visible
 * @param[in]  score  a score mod, or NULL: scores are unchanged
 * @param[out] text_p  zero-terminated; the caller frees it
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status mod_cuda_source(const char *name, const struct mod *mask, const struct mod *score, char **text_p,
				  struct paged_error *error);

/**
 * mod_cuda_args - a mod's binding as arguments for its compiled code
 *
 * Fills only the names of the binding's mod.  Array data are addresses in the memory of the device
 * that runs the code; they are not dereferenced here.
 *
 * @retval PAGED_ERR_INVALID  an array's address or stride is not a multiple of its element size
 */
enum paged_status mod_cuda_args(const struct mod_binding *binding, struct cuda_mod_args *args,
				struct paged_error *error);

/**
 * mod_cuda_bad_index - convert a recorded index for mod_bad_index_fail(); kind_p: kind of the mod that has the array
 */
struct mod_bad_index mod_cuda_bad_index(const struct cuda_mod_range *range, enum mod_kind *kind_p);

#endif
