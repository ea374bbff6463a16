/* SPDX-License-Identifier: Apache-2.0 */
/**
 * images.h - built-in compiled kernels, for cuModuleLoadData()
 *
 * There is a cubin for each architecture family that the build compiles for,
 * and PTX, which the driver compiles for other devices.  A build without
 * --with-cuda has no images and finds the empty cuda_image_none for each source.
 */
#ifndef PAGED_KERNELS_CUDA_HOST_IMAGES_H
#define PAGED_KERNELS_CUDA_HOST_IMAGES_H

#include <stddef.h>
#include <stdint.h>

struct cuda_image {
	const char *source;  /* the .cu file's name: "append", "attention_mma", ..., "aot_alibi" */
	const char *arch;    /* "sm_90a", or "ptx" */
	const uint8_t *data; /* PTX has a terminating zero byte at `end` */
	const uint8_t *end;
};

/**
 * cuda_image_find - find the image of a source that runs on a device of this compute capability
 *
 * @return NULL: no such source, or a capability below 8.0
 */
const struct cuda_image *cuda_image_find(const char *source, int major, int minor);

/** cuda_images_version - the CUDA that compiled the images: 1000 * major + 10 * minor; 0: there are none */
int cuda_images_version(void);

/** A module without kernels. */
extern const struct cuda_image cuda_image_none;

/** cuda_image_at - image number i, to list all images; NULL past the last */
const struct cuda_image *cuda_image_at(size_t i);

#endif
