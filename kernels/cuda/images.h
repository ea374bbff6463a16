/* SPDX-License-Identifier: Apache-2.0 */
/**
 * images.h - compiled kernels that are built in, for cuModuleLoadData()
 *
 * A cubin for each architecture family that was compiled for, and PTX for the
 * driver to compile where none fits.  A build without --with-cuda has none, and
 * finds the empty cuda_image_none for every source.
 */
#ifndef PAGED_KERNELS_CUDA_IMAGES_H
#define PAGED_KERNELS_CUDA_IMAGES_H

#include <stddef.h>
#include <stdint.h>

struct cuda_image {
	const char *source;  /* "append", "attention_mma", ..., "ready_causal": the .cu file's name */
	const char *arch;    /* "sm_90a", or "ptx" */
	const uint8_t *data; /* PTX ends with a 0, at `end` */
	const uint8_t *end;
};

/**
 * cuda_image_find - the image of a source that a device of this compute capability runs
 *
 * @return NULL: no such source, or a device before 8.0
 */
const struct cuda_image *cuda_image_find(const char *source, int major, int minor);

/** A module of no kernels. */
extern const struct cuda_image cuda_image_none;

/** cuda_image_at - every image, by number; NULL past the last */
const struct cuda_image *cuda_image_at(size_t i);

#endif
