/* SPDX-License-Identifier: Apache-2.0 */
/** stand_in_image.h - an image for cuModuleLoadData() that stands for the kernels built into the fake driver */
#ifndef TESTS_CUDA_STAND_IN_STAND_IN_IMAGE_H
#define TESTS_CUDA_STAND_IN_STAND_IN_IMAGE_H

#define STAND_IN_BUILT_IN "paged cuda-stand-in: built in"

#endif
