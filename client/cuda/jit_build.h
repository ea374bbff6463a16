/* SPDX-License-Identifier: Apache-2.0 */
/**
 * jit_build.h - find or make the code for a request: built in (aot.h), cached on disk, or compiled
 *
 * The cache is opened at the first request that is not built in.  The compiler
 * is opened at the first request that is not in the cache either: NVRTC is a
 * library of a hundred megabytes and takes longer to load than a whole program
 * takes to start.
 *
 * Threads: one at a time, but jit_builder_refuse() may be called from any.
 */
#ifndef PAGED_CLIENT_JIT_BUILD_H
#define PAGED_CLIENT_JIT_BUILD_H

#include <stdatomic.h>

#include "client/cuda/jit_cache.h"
#include "client/cuda/jit_store.h"

struct jit_builder {
	struct jit_store_params params;

	/* Private; zero at first. */
	bool compiler_open, cache_asked, sources_known;
	atomic_bool aot_refused;              /* the driver is too old for the built-in images */
	char version[JIT_COMPILER_NAME_SIZE]; /* of the compiler */
	struct jit_key sources;               /* SHA-256 of the built-in kernel sources */
	struct jit_cache *cache;              /* NULL: none */
};

enum jit_origin { JIT_COMPILED, JIT_CACHED, JIT_AOT };

/** Compiled code and its origin. */
struct jit_built {
	struct cuda_jit_image image;
	struct jit_key key;
	enum jit_origin origin;
	char kernel[64]; /* the kernel's name in the image */
};

/** jit_build - get the code for a request; an error is that of the compiler's open() or compile() */
enum paged_status jit_build(struct jit_builder *builder, const struct jit_request *request, struct jit_built *made_p,
			    struct paged_error *error);

/**
 * jit_builder_refuse - discard code that the driver refused, so that jit_build() makes it from the next origin
 *
 * AOT: no built-in image is used again.  Cached: only this entry is removed from the cache.
 *
 * @return false: the code was compiled here, so there is no other origin
 */
bool jit_builder_refuse(struct jit_builder *builder, const struct jit_built *made);

void jit_builder_close(struct jit_builder *builder);

#endif
