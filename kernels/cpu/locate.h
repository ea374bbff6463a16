/* SPDX-License-Identifier: Apache-2.0 */
/**
 * locate.h - addresses of a tile's tokens and of their scales: page by page, skipping pages without a wanted token
 */
#ifndef PAGED_KERNELS_CPU_LOCATE_H
#define PAGED_KERNELS_CPU_LOCATE_H

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/scratch.h"

/**
 * rows_locate - addresses of tokens [begin, begin + n_tokens)
 *
 * Reads only the page numbers that these tokens need, and skips pages without a token of `wanted`.  At
 * least one token must be wanted.
 */
void rows_locate(const struct attention_job *job, const struct q_tile *q, unsigned int plane, uint32_t begin,
		 uint32_t n_tokens, uint64_t wanted, struct tile_tokens *rows);

/** rows_next_head - the same tokens of the next KV head, without reading page numbers again */
void rows_next_head(const struct attention_job *job, unsigned int plane, struct tile_tokens *rows);

/** tile_locate - addresses of a tile's keys and values */
void tile_locate(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		 struct team_scratch *scratch);

/**
 * keys_prefetch - addresses of the next tile's keys, to be prefetched; NULL if there is none or its
 * mask is not FULL
 */
const struct tile_tokens *keys_prefetch(const struct attention_job *job, const struct next_tile *next,
				      struct team_scratch *scratch);

/**
 * scales_load - load the scales of an i8 tile's tokens
 *
 * @param[out] scale  entries of pages without a token of view->wanted are unchanged; NULL: only prefetch the scales
 */
void scales_load(const struct attention_job *job, const struct q_tile *q, unsigned int plane,
		 const struct tile_view *view, float *scale);

/** scales_fetch - prefetch the K and V scales of an i8 tile */
void scales_fetch(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view);

#endif
