/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_cache.h - K and V in the pages of a pool, through libpagedclient
 *
 * This is all that an engine does to keep its cache in pagedd(8): create a
 * sequence, plan a step, append and attend once a layer, erase.  Pages come
 * from plan(), which asks for them some steps ahead.
 */
#ifndef LLAMA_PAGED_CACHE_H
#define LLAMA_PAGED_CACHE_H

#include <pagedclient.h>

#include "examples/llama/attention.h"
#include "examples/llama/model.h"
#include "examples/llama/team.h"

struct paged_attachment {
	/** NULL with embedded_pages 0: the default runtime directory. */
	const char *runtime_dir;
	const char *pool;
	/** Not 0: no daemon; a pool of that many pages of this process's own. */
	uint32_t embedded_pages;
	enum paged_dtype embedded_dtype;
	/** "host" or "cuda"; NULL: host. */
	const char *embedded_backend;
	/** Kernels run on these threads; NULL: on n_threads of the library's. */
	struct team *team;
	uint32_t n_threads;
	uint32_t max_rows;
	/** Shown by pagedctl; NULL: the program's name. */
	const char *name;
};

/** paged_cache_create - attach and open the pool; one of another shape than the model's is refused */
struct attention *paged_cache_create(const struct model *model, const struct paged_attachment *attachment);

/** paged_cache_destroy - leave the session; takes NULL */
void paged_cache_destroy(struct attention *attention);

/** paged_cache_dtype - element type of the pool's K and V */
enum paged_dtype paged_cache_dtype(const struct attention *attention);

#endif
