/* SPDX-License-Identifier: Apache-2.0 */
/**
 * decode.h - attention of a work item with few q_rows, tile by tile
 */
#ifndef PAGED_KERNELS_CPU_DECODE_DECODE_H
#define PAGED_KERNELS_CPU_DECODE_DECODE_H

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/scratch.h"

/** decode_queries - convert an item's queries for the products */
void decode_queries(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** decode_tile - accumulate one tile into the states of its chunk; `next` is the tile to prefetch */
void decode_tile(const struct attention_job *job, const struct work_item *item, const struct kv_tile *tile,
		 const struct next_tile *next, struct team_scratch *scratch);

#endif
