/* SPDX-License-Identifier: Apache-2.0 */
/* One split of a task: its tiles one after the other, from the pages into the running softmax. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/rows.h"

/* With so many lines it pays to convert a tile once, ahead of its use; of two bytes an element, and of one. */
#define CONVERT_LINES 12u
#define CONVERT_LINES_BYTES 5u

/* A split's states, whose values tiles are added to. */
static void
split_clear(const struct attention_job *job, const struct attention_task *task, struct tile_state *states,
	    float *values)
{
	const size_t each = (size_t)task->n_lines * job->v_padded;

	for (uint32_t h = 0; h < task->n_heads; h++)
		state_clear(job, &states[h], task->n_lines, values + h * each);
	memset(values, 0, task->n_heads * each * sizeof(*values));
}

/* Where the queries of a task's h-th KV head begin, in q and in q16. */
static size_t
head_queries(const struct attention_job *job, uint32_t h)
{
	return (size_t)h * TASK_QUERY_LINES * job->k_padded;
}

static void
head_begin(const struct attention_job *job, const struct attention_task *task, uint32_t h, struct team_scratch *scratch)
{
	const struct kernel_tensor *from = &job->args->q;
	float *q = scratch->q + head_queries(job, h);
	uint16_t *q16 = scratch->q16 + head_queries(job, h);

	for (uint32_t line = 0; line < task->n_lines; line++) {
		const void *query = tensor_at(from, task->row->q_start + line_query_row(job, task, line),
					      line_head(job, task, line));

		line_fetch(job, task, line + FETCH_LINES, from);
		if (task->packed)
			packed_query(job, scratch, line, query);
		else if (job->score_dots != NULL)
			job->score_dots->query(q16, line, query, from->dim);
		else
			job->ops->widen(q + (size_t)line * job->k_padded, query, from->dtype, from->dim);
	}
}

void
task_begin(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch)
{
	for (uint32_t h = 0; h < task->n_heads; h++) {
		struct attention_task head = task_head(task, h);

		head_begin(job, &head, h, scratch);
	}
	if (job->args->mods != NULL && task->n_heads == 1 && task->n_lines <= TILE_LINES)
		sight_begin(job, task, scratch);
}

/*
 * Rows that fill no whole vectors, or that many lines will read, are first
 * made f32, or bf16 for products of pairs.  Returns them or the rows as they
 * are; then *ahead_p is NULL if that has been asked for on the way.
 */
static const struct tile_rows *
rows_prepare(const struct attention_job *job, const struct tile_dot_ops *dots, const struct tile_rows *rows,
	     uint32_t padded, uint32_t n_lines, float *scratch, struct tile_rows *made,
	     const struct tile_rows **ahead_p)
{
	enum paged_dtype dtype = dots != NULL ? PAGED_BF16 : PAGED_F32;
	uint32_t most = dots != NULL                         ? dots->pack_lines
			: paged_dtype_size(rows->dtype) == 1 ? CONVERT_LINES_BYTES
							     : CONVERT_LINES;
	size_t stride = (size_t)padded * paged_dtype_size(dtype);

	if (rows->padded == padded && (rows->dtype == dtype || n_lines < most))
		return rows;
	if (dots != NULL) {
		dots->pack((uint16_t *)(void *)scratch, padded, rows, *ahead_p);
		*ahead_p = NULL;
	}
	for (uint32_t i = 0; i < rows->n_tokens; i++) {
		made->token[i] = (uint8_t *)scratch + i * stride;
		if (dots == NULL)
			job->ops->widen(scratch + (size_t)i * padded, rows->token[i], rows->dtype, rows->padded);
	}
	for (uint32_t i = rows->n_tokens; i % TILE_TOKEN_BLOCK != 0; i++)
		made->token[i] = made->token[rows->n_tokens - 1];
	made->n_tokens = rows->n_tokens;
	made->dtype = dtype;
	made->padded = padded;
	made->step = stride;
	return made;
}

void
scores_scale(struct tile_scores *restrict scores, uint32_t begin, uint32_t end, const float *restrict scale)
{
	for (uint32_t line = begin; line < end; line++) {
		float *score = scores->score[line];

		for (uint32_t i = 0; i < TILE_TOKENS; i++)
			score[i] *= scale[i];
	}
}

/* A weight of 0 stays 0, whatever the token's scale is; without a branch, so that vectors do it. */
static void
weights_scale(struct tile_scores *restrict scores, uint32_t begin, uint32_t end, const float *restrict scale)
{
	for (uint32_t line = begin; line < end; line++) {
		float *weight = scores->score[line];

		for (uint32_t i = 0; i < TILE_TOKENS; i++) {
			uint32_t keep = -(uint32_t)(convert_bits(weight[i]) != 0);

			weight[i] = convert_float(convert_bits(weight[i] * scale[i]) & keep);
		}
	}
}

/* The last tile's tokens end where the last line's sight does. */
static uint32_t
tile_end(uint32_t begin, uint32_t most)
{
	return most - begin < TILE_TOKENS ? most : begin + TILE_TOKENS;
}

struct tile_sight
tile_sight(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	   struct tile_scores *scores, uint32_t begin, uint32_t most, enum sight_part part)
{
	struct tile_sight sight = { .part = part, .end = tile_end(begin, most), .wanted = ~UINT64_C(0) };
	bool whole = line_visible(job, task, 0) >= sight.end;

	while (!whole && line_visible(job, task, sight.first) <= begin)
		sight.first++;
	for (uint32_t line = sight.first; line < task->n_lines; line++) {
		uint32_t visible = whole ? sight.end : line_visible(job, task, line);

		scores->visible[line] = (visible < sight.end ? visible : sight.end) - begin;
	}
	if (part == SIGHT_SOME)
		sight.part = sight_tile(job, task, scratch, scores, begin, sight.end, sight.first, &sight.wanted);
	return sight;
}

/* What lengths and causality leave of a tile is all seen: scores.seen says so too. */
static void
seen_fill(struct tile_scores *scores, uint32_t first, uint32_t n_lines)
{
	for (uint32_t line = 0; line < n_lines; line++)
		scores->seen[line] = line < first ? 0 : token_bits(0, scores->visible[line]);
}

float
score_scale(const struct attention_job *job, const struct attention_task *task)
{
	const struct attention_args *args = job->args;

	return args->k_scale != NULL ? args->scale * args->k_scale[task->kv_head] : args->scale;
}

float
scores_modify(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	      struct tile_scores *scores, uint32_t begin, const struct tile_sight *sight, uint32_t mod_line)
{
	const struct kernel_mods *mods = job->args->mods;
	uint32_t end = sight->end, first = sight->first;
	enum sight_part part = sight->part;
	float scale = score_scale(job, task);

	if (mods->score == NULL && part == SIGHT_ALL)
		return scale;
	if (mods->score != NULL && part == SIGHT_ALL)
		seen_fill(scores, first, task->n_lines);
	if (mods->score != NULL)
		mod_vm_score_lines(mods->score[scratch->thread], mod_line, task->n_lines, (int32_t)begin, end - begin,
				   scores->seen, scale, scores->score[0], TILE_TOKENS);
	else
		job->ops->scale(scores, first, task->n_lines, scale);
	if (part == SIGHT_SOME)
		job->ops->hide(scores, first, task->n_lines);
	return 1;
}

/* A tile of one of a task's KV heads. */
struct tile_place {
	struct attention_task task; /* of that head alone */
	uint32_t h;                 /* its number among the task's */
	uint32_t begin;
	uint32_t most;     /* so many keys the task's last line sees */
	bool beside;       /* the head before it was just at the same tile */
	uint32_t mod_line; /* its first line among those that mods were told of */
};

static struct tile_place
place_of(const struct attention_job *job, const struct attention_piece *piece, uint32_t h)
{
	return (struct tile_place){ .task = task_head(&piece->task, h),
				    .h = h,
				    .begin = (uint32_t)(piece->split * KERNEL_SPLIT),
				    .most = line_visible(job, &piece->task, piece->task.n_lines - 1) };
}

/* KV heads that take turns at each tile: what they have of it lies side by side in the pages. */
struct turn {
	const struct attention_task *task;
	uint32_t first, end;
};

/* The tile's next head, or the next tile's first. */
static struct tile_place
place_after(const struct tile_place *place, const struct turn *turn)
{
	struct tile_place after = *place;

	after.beside = place->h + 1 < turn->end;
	after.h = after.beside ? place->h + 1 : turn->first;
	after.task.kv_head = turn->task->kv_head + after.h;
	after.mod_line = after.beside ? place->mod_line + turn->task->n_lines : 0;
	if (!after.beside)
		after.begin += TILE_TOKENS;
	return after;
}

static uint32_t
place_tokens(const struct tile_place *place)
{
	return tile_end(place->begin, place->most) - place->begin;
}

/*
 * Addresses of the tile's tokens; `known`: its keys' are in k_rows for another
 * head beside it, else in `ahead`.
 */
static void
place_locate(const struct attention_job *job, const struct tile_place *place, struct team_scratch *scratch,
	     uint64_t wanted, bool known)
{
	const struct attention_task *task = &place->task;
	uint32_t begin = place->begin, n = place_tokens(place);

	if (!place->beside && known)
		scratch->k_rows = scratch->ahead;
	else if (!place->beside)
		rows_locate(job, task, LAYOUT_K, begin, n, wanted, &scratch->k_rows);
	if (!place->beside)
		rows_locate(job, task, LAYOUT_V, begin, n, wanted, &scratch->v_rows);
	else
		rows_next_head(job, LAYOUT_V, &scratch->v_rows);
	for (unsigned int i = 0; i < 2 && job->args->pages.layout->params.dtype == PAGED_I8; i++)
		scales_fetch(job, task, LAYOUT_K_SCALE + i, begin, n, wanted);
}

/* Keys that come next, once those in k_rows were multiplied. */
static const struct tile_rows *
ahead_locate(const struct attention_job *job, const struct tile_place *next, struct team_scratch *scratch)
{
	if (next == NULL)
		return NULL;
	if (next->beside) {
		rows_next_head(job, LAYOUT_K, &scratch->k_rows);
		return &scratch->k_rows;
	}
	rows_locate(job, &next->task, LAYOUT_K, next->begin, place_tokens(next), ~UINT64_C(0), &scratch->ahead);
	return &scratch->ahead;
}

/*
 * A tile into the split's state; `part` of the split is seen.  `known`: the
 * tile before this one left its keys' addresses.  Returns whether this one left
 * those of `next`, if there is one that is surely wanted.
 */
static bool
tile_attend(const struct attention_job *job, struct team_scratch *scratch, const struct tile_place *place,
	    const struct tile_place *next, enum sight_part part, bool known)
{
	const struct attention_task *task = &place->task;
	struct tile_scores *scores = &scratch->scores;
	struct tile_state *state = &scratch->split[place->h];
	const struct tile_rows *v = &scratch->v_rows, *k = &scratch->k_rows, *ahead = v;
	uint32_t begin = place->begin, n = task->n_lines, n_tokens = place_tokens(place);
	const struct tile_sight sight = tile_sight(job, task, scratch, scores, begin, place->most, part);
	const uint32_t first = sight.first;
	bool scales = job->args->pages.layout->params.dtype == PAGED_I8, located;
	float scale = score_scale(job, task);

	part = sight.part;
	if (part == SIGHT_NOTHING)
		return false;
	place_locate(job, place, scratch, sight.wanted, known);
	if (!task->packed)
		k = rows_prepare(job, job->score_dots, k, job->k_padded, n - first, scratch->k, &scratch->made_rows,
				 &ahead);
	if (task->packed)
		packed_scores(job, task, scratch, first);
	else if (job->score_dots != NULL)
		job->score_dots->scores(scores, scratch->q16 + head_queries(job, place->h), first, n, k, ahead);
	else
		job->ops->scores(scores, scratch->q + head_queries(job, place->h), first, n, k, ahead);
	if (scales) {
		scales_load(job, task, LAYOUT_K_SCALE, begin, n_tokens, sight.wanted, scratch->scale);
		scores_scale(scores, first, n, scratch->scale);
	}
	if (job->args->mods != NULL)
		scale = scores_modify(job, task, scratch, scores, begin, &sight, place->mod_line);
	if (!task->packed && job->score_dots != NULL && job->score_dots->softmax != NULL)
		job->score_dots->softmax(scores, state, first, n, scale, ahead);
	else
		job->ops->softmax(scores, state, first, n, scale);
	if (scales) {
		scales_load(job, task, LAYOUT_V_SCALE, begin, n_tokens, sight.wanted, scratch->scale);
		weights_scale(scores, first, n, scratch->scale);
	}
	ahead = ahead_locate(job, next, scratch);
	located = ahead != NULL;
	if (task->packed) {
		packed_values(job, task, scratch, first, part, ahead);
		return located;
	}
	v = rows_prepare(job, job->value_dots, v, job->v_padded, n - first, scratch->v, &scratch->made_rows, &ahead);
	if (part == SIGHT_SOME)
		job->values_seen(scores, state, first, n, v);
	else
		job->values(scores, state, first, n, v, ahead);
	return located;
}

/* A turn's tiles from `place` to `end`; `then` comes after them, or is NULL.  Returns what tile_attend() does. */
static bool
turn_attend(const struct attention_job *job, struct team_scratch *scratch, const struct turn *turn,
	    struct tile_place place, uint64_t end, const struct tile_place *then, enum sight_part part, bool known)
{
	while (place.begin < end) {
		const struct tile_place after = place_after(&place, turn);
		const struct tile_place *next = part == SIGHT_ALL ? &after : NULL;

		if (after.begin >= end)
			next = then;
		known = tile_attend(job, scratch, &place, next, part, known);
		place = after;
	}
	return known;
}

/* Tiles of a split, side by side, that are seen alike. */
struct run {
	uint64_t begin, end;
	enum sight_part part;
};

/* From `begin` on, in a split of which `part` is seen up to its end.  A block mask is asked tile by tile, later. */
static struct run
run_of(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch, uint64_t begin,
       uint64_t end, enum sight_part part)
{
	struct run run = { begin, end, part };
	uint64_t next;

	if (part != SIGHT_SOME || job->args->mods->params.blocks != NULL)
		return run;
	run.end = least(begin + TILE_TOKENS, end);
	run.part = sight_split(job, task, scratch, begin, run.end);
	for (; run.end < end; run.end = next) {
		next = least(run.end + TILE_TOKENS, end);
		if (sight_split(job, task, scratch, run.end, next) != run.part)
			break;
	}
	return run;
}

/* Whether what comes next surely wants its first keys. */
static bool
piece_is_seen(const struct attention_job *job, const struct attention_piece *piece, struct team_scratch *scratch)
{
	const struct kernel_mods *mods = job->args->mods;
	const struct tile_place place = place_of(job, piece, 0);
	const uint64_t end = least(place.begin + TILE_TOKENS, place.most);

	if (place.begin >= place.most || (mods != NULL && mods->params.blocks != NULL))
		return false;
	return mods == NULL || sight_split(job, &piece->task, scratch, place.begin, end) == SIGHT_ALL;
}

/* A run of the piece's tiles; `known` and what is returned as of turn_attend(). */
static bool
run_attend(const struct attention_job *job, const struct attention_piece *piece, const struct run *run,
	   const struct attention_piece *next, struct team_scratch *scratch, bool known)
{
	const struct attention_task *task = &piece->task;
	const struct kernel_mods *mods = job->args->mods;
	struct tile_place then;
	uint32_t step = task->n_heads;

	/* A mask knows one head at a time. */
	if (run->part == SIGHT_SOME)
		step = 1;
	else if (mods != NULL && mods->score != NULL && task->n_heads > 1)
		sight_begin(job, task, scratch);
	if (next != NULL)
		then = place_of(job, next, 0);
	for (uint32_t h = 0; h < task->n_heads; h += step) {
		const struct turn turn = { task, h, h + step };
		struct tile_place place = place_of(job, piece, h);
		const bool last = h + step == task->n_heads;

		place.begin = (uint32_t)run->begin;
		if (step < task->n_heads)
			sight_begin(job, &place.task, scratch);
		known = turn_attend(job, scratch, &turn, place, run->end, last && next != NULL ? &then : NULL,
				    run->part, known);
	}
	return known;
}

void
split_attend(const struct attention_job *job, const struct attention_piece *piece, const struct attention_piece *next,
	     struct team_scratch *scratch, float *values)
{
	const struct attention_task *task = &piece->task;
	const struct tile_place begin = place_of(job, piece, 0);
	struct run run = { .end = begin.begin };
	uint64_t end = least(begin.begin + KERNEL_SPLIT, begin.most);
	enum sight_part part = SIGHT_ALL;
	bool known = false;

	split_clear(job, task, scratch->split, values);
	if (job->args->mods != NULL && begin.begin < end)
		part = sight_split(job, task, scratch, begin.begin, end);
	if (part == SIGHT_NOTHING)
		return;
	if (next != NULL && !piece_is_seen(job, next, scratch))
		next = NULL;
	while (run.end < end) {
		run = run_of(job, task, scratch, run.end, end, part);
		if (run.part == SIGHT_NOTHING)
			known = false;
		else
			known = run_attend(job, piece, &run, run.end == end ? next : NULL, scratch, known);
	}
}
