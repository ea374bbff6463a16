/* SPDX-License-Identifier: Apache-2.0 */
/**
 * aot.h - mods that are compiled ahead of time (AOT) into the library and need no NVRTC
 *
 * An entry is a mask mod, a score mod or both, as in aot_list.h.  Each entry
 * has an image that contains the kernels that cuda_aot_kernels lists; only the
 * image of sm_90a has those of attention_wgmma, and that of sm_80 lacks those
 * of attention_bulk.
 * cuda_image_find() finds the image by "aot_" and the entry's name; the
 * kernels' names end with "_" and the entry's name.  A build without the CUDA
 * toolkit has the same table and no images.
 *
 * Threads: any.
 */
#ifndef PAGED_KERNELS_CUDA_HOST_AOT_H
#define PAGED_KERNELS_CUDA_HOST_AOT_H

#include <stddef.h>

#include "common/status.h"

struct cuda_aot {
	const char *name;
	const char *image; /* name for cuda_image_find() */
	const char *mask;  /* text of the mod; NULL: none */
	const char *score;
};

/** A kernel that has AOT images, as struct cuda_choice names it. */
struct cuda_aot_kernel {
	const char *source;
	const char *kernel;
};

/** All of them, those of a source one after the other; the last element has NULL. */
extern const struct cuda_aot_kernel cuda_aot_kernels[];

/** cuda_aot_at - entry number i; NULL past the last */
const struct cuda_aot *cuda_aot_at(size_t i);

/**
 * cuda_aot_source - the CUDA C of an entry's mods, as mod_cuda_source() writes it
 *
 * @param[out] text_p  the caller frees it
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status cuda_aot_source(const struct cuda_aot *aot, char **text_p, struct paged_error *error);

/**
 * cuda_aot_find - find the entry of these mods, if this kernel has an AOT image with them
 *
 * Mods are compared by their generated source, which is also part of the code
 * cache's key: texts with the same meaning are equal, for any values of their
 * parameters.  A number in a text is not a parameter: sliding_window(4096) and
 * sliding_window are different mods.
 *
 * @param[in] source, kernel  as in struct cuda_choice
 * @param[in] mods            from mod_cuda_source()
 * @return NULL: there is no such entry, or the kernel has no AOT image
 */
const struct cuda_aot *cuda_aot_find(const char *source, const char *kernel, const char *mods);

#endif
