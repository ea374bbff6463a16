/* SPDX-License-Identifier: Apache-2.0 */
/**
 * jit_build.h - find or make the code for a request: built in (aot.h), cached on disk, or compiled
 *
 * The cache is opened at the first request.  The compiler is opened at the
 * first request that neither the library nor the cache can answer, because
 * NVRTC is a library of a hundred megabytes and takes longer to load than a
 * whole program takes to start.
 *
 * Threads: one at a time, but code_maker_refuse() may be called from any.
 */
#ifndef PAGED_CLIENT_JIT_BUILD_H
#define PAGED_CLIENT_JIT_BUILD_H

#include <stdatomic.h>

#include "client/cuda/jit_store.h"
#include "client/cuda/jit_cache.h"

struct code_maker {
	struct code_store_params params;

	/* Private; zero at first. */
	bool compiler_open, cache_asked, sources_known;
	atomic_bool ready_refused;     /* the driver is too old for the built-in images */
	char version[CODE_MAKER_SIZE]; /* of the compiler */
	struct code_key sources;       /* SHA-256 of the built-in kernel sources */
	struct code_cache *cache;      /* NULL: none */
};

enum code_origin { CODE_COMPILED, CODE_FROM_DISK, CODE_BUILT_IN };

/** Compiled code and its origin. */
struct code_made {
	struct cuda_compiled image;
	struct code_key key;
	enum code_origin origin;
	char kernel[64]; /* the kernel's name in the image */
};

/** code_make - get the code for a request; an error is that of the compiler's open() or compile() */
enum paged_status code_make(struct code_maker *maker, const struct code_request *request, struct code_made *made_p,
			    struct paged_error *error);

/**
 * code_maker_refuse - stop using the origin of code that the driver refused
 *
 * @return false: the code was compiled here, so there is no other origin
 */
bool code_maker_refuse(struct code_maker *maker, const struct code_made *made);

void code_maker_close(struct code_maker *maker);

#endif
