/* SPDX-License-Identifier: Apache-2.0 */
/**
 * combine.h - softmax states of KV chunks: initialisation, combination, and the final results
 */
#ifndef PAGED_KERNELS_CPU_COMBINE_H
#define PAGED_KERNELS_CPU_COMBINE_H

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/scratch.h"

/** totals_begin - initialise an item's states, one per query tile, in its workspace if it has one */
void totals_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** totals_end - write the results, or for an item with a workspace, complete its states there */
void totals_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/**
 * state_begin - initialise a query tile's state for one chunk
 *
 * If the total has accumulated nothing yet, the chunk accumulates directly in the total's values, else
 * in `own`.  The values are not initialised.
 */
void state_begin(const struct attention_job *job, const struct softmax_state *total, uint32_t n_q_rows,
		 struct softmax_state *state, float *own);

/** state_end - combine a chunk's state into the total */
void state_end(const struct attention_job *job, struct softmax_state *total, uint32_t n_q_rows,
	       const struct softmax_state *state);

/** chunk_begin, chunk_end - state_begin() with zeroed values, and state_end(), for all query tiles of an item */
void chunk_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);
void chunk_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** states_combine - combine the chunk states of a query tile from the workspace and write the results */
void states_combine(const struct attention_job *job, const struct work_item *item, uint32_t q_tile, uint64_t n_chunks,
		    struct team_scratch *scratch);

#endif
