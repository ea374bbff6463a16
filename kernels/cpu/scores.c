/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/scores.h"

#include "kernels/cpu/convert.h"
#include "kernels/cpu/token_addresses.h"
#include "kernels/cpu/mod_set.h"
#include "kernels/cpu/q_rows.h"

float
score_scale(const struct attention_job *job, const struct q_tile *q)
{
	const struct attention_args *args = job->args;

	return args->k_scale != NULL ? args->scale * args->k_scale[q->kv_head] : args->scale;
}

void
scores_scale_tokens(struct tile_scores *restrict scores, uint32_t begin, uint32_t end, const float *restrict scale)
{
	for (uint32_t q_row = begin; q_row < end; q_row++) {
		float *score = scores->score[q_row];

		for (uint32_t i = 0; i < TILE_TOKENS; i++)
			score[i] *= scale[i];
	}
}

/* A weight of 0 stays 0 whatever the token's scale is; branch-free so that the loop vectorises. */
static void
weights_scale_tokens(struct tile_scores *restrict scores, uint32_t begin, uint32_t end, const float *restrict scale)
{
	for (uint32_t q_row = begin; q_row < end; q_row++) {
		float *weight = scores->score[q_row];

		for (uint32_t i = 0; i < TILE_TOKENS; i++) {
			uint32_t keep = -(uint32_t)(convert_bits(weight[i]) != 0);

			weight[i] = convert_float(convert_bits(weight[i] * scale[i]) & keep);
		}
	}
}

float
scores_apply_mods(const struct attention_job *job, const struct q_tile *q, uint32_t mod_row,
		  const struct tile_view *view, struct team_scratch *scratch, struct tile_scores *scores)
{
	const struct kernel_mod_set *mod_set = job->args->mod_set;
	const bool score_mod = mod_set != NULL && mod_set->score != NULL;
	float scale = score_scale(job, q);

	if (!score_mod && view->mask == TILE_FULL)
		return scale;
	for (uint32_t i = 0; i < q->n && view->mask == TILE_FULL; i++)
		scores->seen[i] = i < view->first ? 0 : token_bits(0, scores->visible[i]);
	if (score_mod)
		mod_vm_score_q_rows(mod_set->score[scratch->thread], mod_row, q->n, (int32_t)view->begin,
				    view->n_tokens, scores->seen, scale, scores->score[0], TILE_TOKENS);
	else
		job->ops->scale(scores, view->first, q->n, scale);
	if (view->mask == TILE_PARTIAL)
		job->ops->hide(scores, view->first, q->n);
	return 1;
}

void
softmax_tile(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
	     struct team_scratch *scratch, struct softmax_state *state, const struct tile_tokens *prefetch)
{
	const bool token_scales = job->args->pages.layout->params.dtype == PAGED_I8;
	struct tile_scores *scores = &scratch->scores;
	float scale = score_scale(job, q);

	if (token_scales) {
		locate_load_scales(job, q, LAYOUT_K_SCALE, view, scratch->scale);
		scores_scale_tokens(scores, view->first, q->n, scratch->scale);
	}
	if (job->args->mod_set != NULL || view->mask == TILE_PARTIAL)
		scale = scores_apply_mods(job, q, q->at, view, scratch, scores);
	if (prefetch != NULL)
		job->decode_scores->softmax(scores, state, view->first, q->n, scale, prefetch);
	else
		job->ops->softmax(scores, state, view->first, q->n, scale);
	if (token_scales) {
		locate_load_scales(job, q, LAYOUT_V_SCALE, view, scratch->scale);
		weights_scale_tokens(scores, view->first, q->n, scratch->scale);
	}
}
