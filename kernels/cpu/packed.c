/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of rows with many query lines: packed once, then multiplied as matrices. */
#include "kernels/cpu/attention.h"

/* Rows that do not fill what is read of them are first made f32. */
static void
rows_pad(const struct attention_job *job, struct tile_rows *rows, uint32_t padded, float *scratch)
{
	if (rows->padded == padded)
		return;
	for (uint32_t i = 0; i < rows->n_tokens; i++, scratch += padded) {
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
	const struct tile_packed_ops *ops = job->ops->floats;
	struct tile_rows *k = &scratch->k_rows;

	rows_pad(job, k, job->k_padded, scratch->k);
	for (uint32_t i = k->n_tokens; i % job->ops->lanes != 0; i++)
		k->token[i] = k->token[k->n_tokens - 1];
	ops->pack_keys(scratch->k_panels, k);
	ops->scores(&scratch->scores, scratch->q, first, task->n_lines, scratch->k_panels, k->n_tokens,
		    job->k_padded, &scratch->v_rows);
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
	job->ops->values_seen(scores, &scratch->split, first, task->n_lines, &scratch->v_rows);
}

void
packed_values(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	      uint32_t first, enum sight_part part, const struct tile_rows *ahead)
{
	const struct tile_packed_ops *ops = job->ops->floats;
	struct tile_rows *v = &scratch->v_rows;
	uint64_t wild;

	rows_pad(job, v, job->v_padded, scratch->v);
	wild = ops->pack_values(scratch->v_panels, v);
	ops->values(&scratch->scores, &scratch->split, first, task->n_lines, scratch->v_panels, v->n_tokens, ahead);
	if (wild != 0)
		wild_add(job, task, scratch, first, part, wild);
}
