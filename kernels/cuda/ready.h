/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ready.h - mods that are compiled with the library, and need no NVRTC
 *
 * A row is a mask mod, a score mod or both, as in ready_list.h.  The kernels
 * of attention_mma in cuda_ready_kernels have images with each of them:
 * cuda_image_find() knows them as "ready_" and the row's name, and their
 * kernels have "_" and that name after their own.  A build without the CUDA
 * toolkit has the same table and no images.
 *
 * Threads: any.
 */
#ifndef PAGED_KERNELS_CUDA_READY_H
#define PAGED_KERNELS_CUDA_READY_H

#include <stddef.h>

#include "common/status.h"

struct cuda_ready {
	const char *name;
	const char *image; /* for cuda_image_find() */
	const char *mask;  /* a text; NULL: none */
	const char *score;
};

/** The source of the kernels that there are images of, and their names; ends with NULL. */
#define CUDA_READY_SOURCE "attention_mma"
extern const char *const cuda_ready_kernels[];

/** cuda_ready_at - every row, by number; NULL past the last */
const struct cuda_ready *cuda_ready_at(size_t i);

/**
 * cuda_ready_source - a row's mods as mod_cuda_source() writes them
 *
 * @param[out] text_p  the caller frees it
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status cuda_ready_source(const struct cuda_ready *ready, char **text_p, struct paged_error *error);

/**
 * cuda_ready_find - the row of these mods, if this kernel has an image with them
 *
 * What is compared is the source, by which the code cache knows mods as well:
 * texts that mean the same are the same, whatever the values of their
 * parameters.  A number in a text is no parameter: sliding_window(4096) is
 * another mod than sliding_window.
 *
 * @param[in] source, kernel  as in struct cuda_choice
 * @param[in] mods            by mod_cuda_source()
 * @return NULL: it has none
 */
const struct cuda_ready *cuda_ready_find(const char *source, const char *kernel, const char *mods);

#endif
