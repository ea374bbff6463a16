/* SPDX-License-Identifier: Apache-2.0 */
/**
 * combine.h - softmax states of KV chunks: initialisation, combination, and the final results
 *
 * The second half of split-KV: FlashInfer's "merge states".  attention_merge.c is something else: the public call on
 * two finished results.
 */
#ifndef PAGED_KERNELS_CPU_COMBINE_H
#define PAGED_KERNELS_CPU_COMBINE_H

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/scratch.h"

/** combine_item_begin - initialise an item's states, one per query tile, in its workspace if it has one */
void combine_item_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** combine_item_end - write the results, or for an item with a workspace, complete its states there */
void combine_item_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/**
 * combine_state_begin - initialise a query tile's state for one chunk
 *
 * If the item's state has accumulated nothing yet, the chunk accumulates directly in its values, else
 * in `own`.  The values are not initialised.
 */
void combine_state_begin(const struct attention_job *job, const struct softmax_state *item_state, uint32_t n_q_rows,
			 struct softmax_state *state, float *own);

/** combine_state_end - combine a chunk's state into the item's */
void combine_state_end(const struct attention_job *job, struct softmax_state *item_state, uint32_t n_q_rows,
		       const struct softmax_state *state);

/** combine_chunk_begin, combine_chunk_end - combine_state_begin() with zeroed values, and combine_state_end(), for all
 * query tiles of an item */
void combine_chunk_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);
void combine_chunk_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** combine_workspace - combine the chunk states of a query tile from the workspace and write the results */
void combine_workspace(const struct attention_job *job, const struct work_item *item, uint32_t q_tile,
		       uint64_t n_chunks, struct team_scratch *scratch);

#endif
