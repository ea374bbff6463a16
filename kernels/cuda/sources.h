/* SPDX-License-Identifier: Apache-2.0 */
/**
 * sources.h - the text of the kernels that are compiled at run time, and of all that they include
 *
 * Built in, so that what is compiled is what this build was tested with.
 */
#ifndef PAGED_KERNELS_CUDA_SOURCES_H
#define PAGED_KERNELS_CUDA_SOURCES_H

struct cuda_source {
	const char *name; /* as in #include: "kernels/cuda/simt.h" */
	const char *text;
};

/** Ends with a name of NULL. */
extern const struct cuda_source cuda_sources[];

#endif
