/* SPDX-License-Identifier: Apache-2.0 */
/**
 * prefill.h - attention of a work item with many q_rows, tile by tile or KV chunk by KV chunk
 */
#ifndef PAGED_KERNELS_CPU_PREFILL_PREFILL_H
#define PAGED_KERNELS_CPU_PREFILL_PREFILL_H

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/scratch.h"

/** prefill_queries - convert or pack an item's queries for the products */
void prefill_queries(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** prefill_tile - accumulate one tile into the states of its chunk; `next` is the tile to prefetch */
void prefill_tile(const struct attention_job *job, const struct work_item *item, const struct kv_tile *tile,
		  const struct next_tile *next, struct team_scratch *scratch);

/** prefill_chunk - accumulate a whole chunk into an item's states; `mask`: mask of the chunk for all its q_rows */
void prefill_chunk(const struct attention_job *job, const struct work_item *item, uint64_t begin, uint64_t end,
		   enum tile_mask mask, struct team_scratch *scratch);

#endif
