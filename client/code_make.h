/* SPDX-License-Identifier: Apache-2.0 */
/**
 * code_make.h - where the code for a request comes from: the library itself (ready.h), the disk, the compiler
 *
 * The compiler is opened by the first request that the disk has no answer
 * to: NVRTC is a library of a hundred megabytes, which takes longer to load
 * than a whole program to start.  The cache is opened by the first request.
 *
 * Threads: one at a time; what code_maker_refuse() does, any.
 */
#ifndef PAGED_CLIENT_CODE_MAKE_H
#define PAGED_CLIENT_CODE_MAKE_H

#include <stdatomic.h>

#include "client/code.h"
#include "client/code_cache.h"

struct code_maker {
	struct code_store_params params;

	/* Its own, zeros at first. */
	bool compiler_open, cache_asked, sources_known;
	atomic_bool ready_refused;     /* by a driver that is older than the library */
	char version[CODE_MAKER_SIZE]; /* of the compiler */
	struct code_key sources;       /* of the kernels that are built in */
	struct code_cache *cache;      /* NULL: none */
};

enum code_origin { CODE_COMPILED, CODE_FROM_DISK, CODE_BUILT_IN };

/** Code, and where it came from. */
struct code_made {
	struct cuda_compiled image;
	struct code_key key;
	enum code_origin origin;
	char kernel[64]; /* as it is called in there */
};

/** code_make - PAGED_OK, or what opening the compiler and its compile() say */
enum paged_status code_make(struct code_maker *maker, const struct code_request *request, struct code_made *made_p,
			    struct paged_error *error);

/** code_maker_refuse - not to come again from where it came; false: there is no other place */
bool code_maker_refuse(struct code_maker *maker, const struct code_made *made);

void code_maker_close(struct code_maker *maker);

#endif
