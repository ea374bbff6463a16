/* SPDX-License-Identifier: Apache-2.0 */
/** image.h - an image for cuModuleLoadData() that stands for the kernels built into the fake driver */
#ifndef TESTS_FAKE_CUDA_IMAGE_H
#define TESTS_FAKE_CUDA_IMAGE_H

#define FAKE_CUDA_BUILT_IN "paged fake-cuda: built in"

#endif
