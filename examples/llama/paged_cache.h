/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_cache.h - K and V in the pages of a pool, through libpagedclient
 *
 * An engine needs only these steps to keep its cache in pagedd(8): start a
 * sequence, plan a step, append and attend once per layer, publish, erase.
 * plan() reserves pages some steps ahead.
 *
 * With options.prefix_cache, a sequence starts on the longest published prefix of
 * its tokens.  Prefixes are those of the pool's model, if pagedd.conf(5) names it,
 * else of the same model file (its checksum), and of the same options.salt.  K is
 * stored as transformers has it, so that its processes, too, can use the pages.
 */
#ifndef LLAMA_PAGED_CACHE_H
#define LLAMA_PAGED_CACHE_H

#include <pagedclient.h>

#include "examples/llama/attention.h"
#include "examples/llama/model.h"
#include "examples/llama/options.h"
#include "examples/llama/thread_pool.h"

/**
 * paged_cache_create - attach to the options' pool, or create it; a pool whose shape differs from the model's is
 * refused
 *
 * @param[in] thread_pool  kernels run on its threads
 * @param[in] name  shown by pagedctl; NULL: the program's name
 */
struct attention *paged_cache_create(const struct model *model, const struct options *options,
				     struct thread_pool *thread_pool, const char *name);

/** paged_cache_destroy - leave the session; takes NULL */
void paged_cache_destroy(struct attention *attention);

/** paged_cache_share - turn the prefix cache on or off for sequences that are opened from now on */
void paged_cache_share(struct attention *attention, bool on);

/**
 * paged_cache_give - let another process adopt a sequence, whose first n_tokens tokens are written
 *
 * From now on the sequence is not this process's: it must not be planned or closed.
 */
void paged_cache_give(struct attention *attention, uint64_t sequence, uint32_t n_tokens, struct paged_ticket *ticket);

/** paged_cache_adopt - take over the sequence of a ticket; returns it and its written tokens */
uint64_t paged_cache_adopt(struct attention *attention, const struct paged_ticket *ticket, uint32_t *n_tokens_p);

/** paged_cache_dtype - element type of the pool's K and V */
enum paged_dtype paged_cache_dtype(const struct attention *attention);

#endif
