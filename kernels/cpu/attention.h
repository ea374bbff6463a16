/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention.h - how one call of kernel_attention() is cut up, shared by its files
 *
 * A row's query lines (its query rows times the query heads of one KV head,
 * heads innermost) are cut into tasks of at most TILE_LINES; or TASK_LINES,
 * where what is packed for one strip of the task is there for the others.  Of
 * few lines, a task has several KV heads, which take turns at each tile.
 */
#ifndef PAGED_KERNELS_CPU_ATTENTION_H
#define PAGED_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/schedule.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/team.h"

/** So far ahead of the line at work its task's queries, and results, are asked for: they lie apart. */
#define FETCH_LINES 16u

struct attention_job {
	const struct attention_args *args;
	const struct kernel_tile_ops *ops;
	uint32_t group;    /* query heads of a KV head */
	uint32_t k_padded; /* elements */
	uint32_t v_padded;
	/* Products may be those of bf16 pairs: of scores, where q and pool lose nothing by it; of values, whose result
	 * is bf16. */
	bool score_pairs, value_pairs;
	/* Those, where they may and the instruction set has them; or NULL. */
	const struct tile_dot_ops *score_dots, *value_dots;
	tile_values_fn values;
	tile_values_seen_fn values_seen;
	float *partials;
	struct order order;
	size_t partial_size; /* floats of one piece: [line] maximum, [line] sum, [line][v_padded] values */
	bool take_ahead;     /* threads take the next item before they work on one, and fetch its first keys */
	/* Of rows with many lines: packed_choose(). */
	const struct tile_packed_ops *scores_packed, *values_packed;
	uint32_t packed_k;   /* elements of a packed query or key */
	uint32_t many_lines; /* a row with so many is packed */
	uint32_t task_lines; /* most lines of a task */
	bool whole;          /* packed tasks go strip by strip and block by block: whole.c */
};

/* Keys [0, this) are what query row i sees. */
static inline uint32_t
row_visible(const struct attention_job *job, const struct kernel_row *row, uint32_t i)
{
	int64_t end;

	if (!job->args->causal || row->q_base >= (int64_t)row->kv_len)
		return row->kv_len;
	end = row->q_base + (int64_t)i + 1;
	if (end <= 0)
		return 0;
	return end < (int64_t)row->kv_len ? (uint32_t)end : row->kv_len;
}

static inline uint32_t
line_query_row(const struct attention_job *job, const struct attention_task *task, uint32_t line)
{
	return (uint32_t)((task->first_line + line) / job->group);
}

static inline uint32_t
line_head(const struct attention_job *job, const struct attention_task *task, uint32_t line)
{
	return task->kv_head * job->group + (uint32_t)((task->first_line + line) % job->group);
}

static inline uint32_t
line_visible(const struct attention_job *job, const struct attention_task *task, uint32_t line)
{
	return row_visible(job, task->row, line_query_row(job, task, line));
}

/** line_fetch - ask for what a line has in q or out, if the task has that line */
static inline void
line_fetch(const struct attention_job *job, const struct attention_task *task, uint32_t line,
	   const struct kernel_tensor *tensor)
{
	if (line < task->n_lines)
		tensor_fetch(tensor, task->row->q_start + line_query_row(job, task, line), line_head(job, task, line));
}

/** task_head - of a task of several KV heads, its h-th alone */
static inline struct attention_task
task_head(const struct attention_task *task, uint32_t h)
{
	struct attention_task one = *task;

	one.kv_head += h;
	one.n_heads = 1;
	return one;
}

/** state_clear - nothing seen yet; what is in `values`, one line after the other, is not looked at */
void state_clear(const struct attention_job *job, struct tile_state *state, uint32_t n_lines, float *values);

/** task_begin - before a thread's splits of a task; mods are told of a task's only KV head */
void task_begin(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch);

/** token_bits - bits [from, to) of a tile's tokens */
static inline uint64_t
token_bits(uint32_t from, uint32_t to)
{
	return (~UINT64_C(0) >> (TILE_TOKENS - (to - from))) << from;
}

/**
 * rows_locate - addresses of tokens [begin, begin + n_tokens)
 *
 * No page past them is looked at, and none that holds no token of `wanted`, in
 * which there is at least one.
 */
void rows_locate(const struct attention_job *job, const struct attention_task *task, unsigned int plane, uint32_t begin,
		 uint32_t n_tokens, uint64_t wanted, struct tile_rows *rows);

/** rows_next_head - the same tokens for the next KV head, without a look at their pages */
void rows_next_head(const struct attention_job *job, unsigned int plane, struct tile_rows *rows);

/** scales_load - the scales of an i8 tile's tokens; those of pages that hold none of `wanted` stay as they are */
void scales_load(const struct attention_job *job, const struct attention_task *task, unsigned int plane, uint32_t begin,
		 uint32_t n_tokens, uint64_t wanted, float scale[TILE_TOKENS]);

/** scales_fetch - ask for them, while products keep the core busy */
void scales_fetch(const struct attention_job *job, const struct attention_task *task, unsigned int plane,
		  uint32_t begin, uint32_t n_tokens, uint64_t wanted);

/** scores_scale - times each token's scale; those that a line does not see may become anything, NaN included */
void scores_scale(struct tile_scores *restrict scores, uint32_t begin, uint32_t end, const float *restrict scale);

/** tile_sight - of tokens [begin, most), of whose split `part` is seen; fills visible, and seen, from `first` on */
struct tile_sight tile_sight(const struct attention_job *job, const struct attention_task *task,
			     struct team_scratch *scratch, struct tile_scores *scores, uint32_t begin, uint32_t most,
			     enum sight_part part);

/** score_scale - the caller's scale, with that of the head's keys in it */
float score_scale(const struct attention_job *job, const struct attention_task *task);

/**
 * scores_modify - what comes between products and softmax; returns the scale that is still to be applied
 *
 * @param[in] mod_line  what the score mod was told that the first line is
 */
float scores_modify(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
		    struct tile_scores *scores, uint32_t begin, const struct tile_sight *sight, uint32_t mod_line);

/** packed_choose - how rows with many lines are multiplied: the job's last fields, from those before them */
void packed_choose(struct attention_job *job);

/** packed_query - one line's query, as packed_scores() wants it */
void packed_query(const struct attention_job *job, struct team_scratch *scratch, uint32_t line, const void *from);

/** packed_scores - the scores of lines from `first` on and the tile that scratch->k_rows say; v_rows come next */
void packed_scores(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
		   uint32_t first);

/** packed_values - what weights and scratch->v_rows add to those lines' state; `ahead` comes next, or is NULL */
void packed_values(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
		   uint32_t first, enum sight_part part, const struct tile_rows *ahead);

/** packed_pad - rows that do not fill `padded` elements are made f32 in `to`, zeros at their ends */
void packed_pad(const struct attention_job *job, struct tile_rows *rows, uint32_t padded, float *to);

/** One split of a task. */
struct attention_piece {
	struct attention_task task;
	uint64_t split;
};

/**
 * split_attend - one split of a task into scratch->split, whose values lie in `values`, head after head
 *
 * @param[in] next  what this thread will do next, to be fetched meanwhile; or NULL
 */
void split_attend(const struct attention_job *job, const struct attention_piece *piece,
		  const struct attention_piece *next, struct team_scratch *scratch, float *values);

/** strips_of - how many strips of BLOCK_STRIP lines a task has */
uint32_t strips_of(const struct attention_task *task);

struct attention_task strip_of(const struct attention_task *task, uint32_t number);

static inline bool
has_strips(const struct attention_job *job, const struct attention_task *task)
{
	return task->packed && job->whole;
}

/** totals_clear - of a task's KV heads, or of its strips, whose values are side by side, too */
void totals_clear(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch);

/** totals_finish - from totals to results */
void totals_finish(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch);

/** strip_values - where a strip's values of a split are added up: where they are wanted, if they may, or `own` */
float *strip_values(const struct attention_job *job, const struct attention_task *strip, struct team_scratch *scratch,
		    float *partial, float *own);

/**
 * strip_done - a strip's state after a split: into its total, or, if that is not NULL, into the task's `partial`
 *
 * Its values lie where strip_values() said, which may be there already.
 */
void strip_done(const struct attention_job *job, const struct attention_task *strip, struct team_scratch *scratch,
		const struct tile_state *state, float *partial);

/** whole_attend - all strips of one split of a task, the last first: it sees most, so what it packs serves the others
 */
void whole_attend(const struct attention_job *job, const struct attention_piece *piece, struct team_scratch *scratch,
		  float *partial);

#endif
