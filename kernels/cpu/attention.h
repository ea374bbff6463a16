/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention.h - how one call of kernel_attention() is cut up, shared by its files
 *
 * A row's query lines (its query rows times the query heads of one KV head,
 * heads innermost) are cut into tasks of at most TILE_LINES.  Of few lines, a
 * task has several KV heads, which take turns at each tile.
 */
#ifndef PAGED_KERNELS_CPU_ATTENTION_H
#define PAGED_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/order.h"
#include "kernels/cpu/team.h"

struct attention_job {
	const struct attention_args *args;
	const struct kernel_tile_ops *ops;
	uint32_t group;    /* query heads of a KV head */
	uint32_t k_padded; /* elements */
	uint32_t v_padded;
	/* Products may be those of bf16 pairs: of scores, where q and pool lose nothing by it; of values, whose result is bf16. */
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
};

struct attention_task {
	const struct kernel_row *row;
	uint32_t kv_head; /* the first of n_heads */
	uint32_t n_heads; /* more than one: of a row with few lines and without a block mask */
	uint64_t first_line;
	uint32_t n_lines; /* of each KV head; of all together TILE_LINES at most */
	bool packed;      /* its row has many lines */
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

/** task_head - of a task of several KV heads, its h-th alone */
static inline struct attention_task
task_head(const struct attention_task *task, uint32_t h)
{
	struct attention_task one = *task;

	one.kv_head += h;
	one.n_heads = 1;
	return one;
}

/** states_clear - of a task's KV heads: nothing seen yet, values side by side in `values` */
void states_clear(const struct attention_job *job, const struct attention_task *task, struct tile_state *states,
		  float *values);

/** task_begin - before a thread's splits of a task; mods are told of a task's only KV head */
void task_begin(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch);

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

#endif
