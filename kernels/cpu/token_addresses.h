/* SPDX-License-Identifier: Apache-2.0 */
/**
 * token_addresses.h - addresses of a tile's tokens and of their scales: page by page, skipping pages without a wanted
 * token
 */
#ifndef PAGED_KERNELS_CPU_TOKEN_ADDRESSES_H
#define PAGED_KERNELS_CPU_TOKEN_ADDRESSES_H

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/scratch.h"

/**
 * locate_tokens - addresses of tokens [begin, begin + n_tokens)
 *
 * Reads only the page numbers that these tokens need, and skips pages without a token of `wanted`.  At
 * least one token must be wanted.
 */
void locate_tokens(const struct attention_job *job, const struct q_tile *q, unsigned int plane, uint32_t begin,
		   uint32_t n_tokens, uint64_t wanted, struct tile_tokens *tokens);

/** locate_next_head - the same tokens of the next KV head, without reading page numbers again */
void locate_next_head(const struct attention_job *job, unsigned int plane, struct tile_tokens *tokens);

/** locate_tile - addresses of a tile's keys and values */
void locate_tile(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		 struct team_scratch *scratch);

/**
 * locate_next_keys - addresses of the next tile's keys, to be prefetched; NULL if there is none or its
 * mask is not FULL
 */
const struct tile_tokens *locate_next_keys(const struct attention_job *job, const struct next_tile *next,
					   struct team_scratch *scratch);

/**
 * locate_load_scales - load the scales of an i8 tile's tokens
 *
 * @param[out] scale  entries of pages without a token of view->wanted are unchanged; NULL: only prefetch the scales
 */
void locate_load_scales(const struct attention_job *job, const struct q_tile *q, unsigned int plane,
			const struct tile_view *view, float *scale);

/** locate_prefetch_scales - prefetch the K and V scales of an i8 tile */
void locate_prefetch_scales(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view);

#endif
