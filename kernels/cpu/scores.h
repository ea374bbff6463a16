/* SPDX-License-Identifier: Apache-2.0 */
/**
 * scores.h - the steps between the two products of a tile: scales, score mod and mask, softmax
 *
 * scores_apply_mods() applies score mods (soft cap, ALiBi, ...) and mask mods, by mod_vm_score_q_rows()
 * (kernels/mod/vm.c); their arithmetic is in kernels/mod/vm_body*.h, that of a soft cap in vm_body_fused.h.
 */
#ifndef PAGED_KERNELS_CPU_SCORES_H
#define PAGED_KERNELS_CPU_SCORES_H

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/scratch.h"

/** score_scale - the caller's scale times the K scale of the query tile's KV head */
float score_scale(const struct attention_job *job, const struct q_tile *q);

/**
 * scores_scale_tokens - multiply scores by their tokens' scales; scores of
 * hidden tokens become undefined, possibly NaN
 */
void scores_scale_tokens(struct tile_scores *restrict scores, uint32_t begin, uint32_t end,
			 const float *restrict scale);

/**
 * scores_apply_mods - apply score mod and mask; returns the scale that the caller must still apply
 *
 * @param[in] mod_row  index of the first q_row among those set by tile_mask_begin()
 */
float scores_apply_mods(const struct attention_job *job, const struct q_tile *q, uint32_t mod_row,
			const struct tile_view *view, struct team_scratch *scratch, struct tile_scores *scores);

/**
 * softmax_tile - turn a tile's scores into weights, times the V scales of i8
 *
 * @param[in] prefetch  tokens that the softmax of tile_decode_bf16_ops prefetches; NULL: use the plain softmax
 */
void softmax_tile(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		  struct team_scratch *scratch, struct softmax_state *state, const struct tile_tokens *prefetch);

#endif
