/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of rows with many query lines: packed once, then multiplied as matrices. */
#include <string.h>

#include "kernels/cpu/attention.h"

void
packed_choose(struct attention_job *job)
{
	const struct kernel_tile_ops *ops = job->ops;
	uint32_t multiple;

	job->scores_packed = job->score_pairs && ops->pairs != NULL ? ops->pairs : ops->floats;
	job->values_packed = job->value_pairs && ops->pairs != NULL ? ops->pairs : ops->floats;
	job->many_lines = job->scores_packed->many_lines > job->values_packed->many_lines
				  ? job->scores_packed->many_lines
				  : job->values_packed->many_lines;
	job->whole = job->scores_packed == ops->pairs && job->values_packed == ops->pairs && ops->pairs->blocks != NULL;
	job->task_lines = job->whole ? TASK_LINES : TILE_LINES;
	multiple = ops->lanes * job->scores_packed->word_elements;
	job->packed_k = (job->args->pages.layout->params.k_dim + multiple - 1) / multiple * multiple;
}

void
packed_query(const struct attention_job *job, struct team_scratch *scratch, uint32_t line, const void *from)
{
	const struct kernel_tensor *q = &job->args->q;
	uint32_t words = job->packed_k / job->scores_packed->word_elements;
	float *to = scratch->q + (size_t)line * words;
	size_t bytes = (size_t)q->dim * paged_dtype_size(q->dtype);

	if (job->scores_packed->word_elements == 1) {
		job->ops->widen(to, from, q->dtype, q->dim);
		return;
	}
	memcpy(to, from, bytes);
	memset((uint8_t *)to + bytes, 0, words * sizeof(*to) - bytes);
}

void
packed_pad(const struct attention_job *job, struct tile_rows *rows, uint32_t padded, float *scratch)
{
	if (rows->padded == padded)
		return;
	for (uint32_t i = 0; i < rows->n_tokens; i++, scratch += padded) {
		memset(scratch + rows->padded, 0, (padded - rows->padded) * sizeof(*scratch));
		job->ops->widen(scratch, rows->token[i], rows->dtype, rows->padded);
		rows->token[i] = scratch;
	}
	rows->dtype = PAGED_F32;
	rows->padded = padded;
}

void
packed_scores(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	      uint32_t first)
{
	const struct tile_packed_ops *ops = job->scores_packed;
	struct tile_rows *k = &scratch->k_rows;

	packed_pad(job, k, job->packed_k, scratch->k);
	for (uint32_t i = k->n_tokens; i % job->ops->lanes != 0; i++)
		k->token[i] = k->token[k->n_tokens - 1];
	ops->pack_keys(scratch->k_panels, k);
	ops->scores(&scratch->scores, scratch->q, first, task->n_lines, scratch->k_panels, k->n_tokens,
		    job->packed_k / ops->word_elements, &scratch->v_rows);
}

/* Tokens that were left out for being no finite number, line by line for those that see them. */
static void
wild_add(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	 uint32_t first, enum sight_part part, uint64_t wild)
{
	struct tile_scores *scores = &scratch->scores;

	for (uint32_t line = first; line < task->n_lines; line++) {
		if (part == SIGHT_ALL)
			scores->seen[line] = ~UINT64_C(0) >> (TILE_TOKENS - scores->visible[line]);
		scores->seen[line] &= wild;
		scores->rescale[line] = 1;
	}
	job->ops->values_seen(scores, scratch->split, first, task->n_lines, &scratch->v_rows);
}

void
packed_values(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	      uint32_t first, enum sight_part part, const struct tile_rows *ahead)
{
	const struct tile_packed_ops *ops = job->values_packed;
	struct tile_rows *v = &scratch->v_rows;
	uint64_t wild;

	packed_pad(job, v, job->v_padded, scratch->v);
	wild = ops->pack_values(scratch->v_panels, v);
	ops->values(&scratch->scores, scratch->split, first, task->n_lines, scratch->v_panels, v->n_tokens, ahead);
	if (wild != 0)
		wild_add(job, task, scratch, first, part, wild);
}
