/* SPDX-License-Identifier: Apache-2.0 */
/**
 * sources.h - source text of the kernels that are compiled at run time, and of every file that they include
 *
 * The text is built into the library, so the run-time compiler gets exactly the
 * sources that this build was tested with.
 */
#ifndef PAGED_KERNELS_CUDA_HOST_SOURCES_H
#define PAGED_KERNELS_CUDA_HOST_SOURCES_H

struct cuda_source {
	const char *name; /* as in #include: "kernels/cuda/simt/simt.h" */
	const char *text;
};

/** All sources; the last element, after cuda_n_sources, has name NULL. */
extern const struct cuda_source cuda_sources[];
extern const unsigned int cuda_n_sources;

/** cuda_source_name - the name of the source KERNELS.cu ("attention_mma"); NULL: it is not built in */
const char *cuda_source_name(const char *kernels);

#endif
