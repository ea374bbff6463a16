/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row's query lines (its query rows times the query heads of one KV head,
 * heads innermost) are cut into tasks of at most TILE_LINES.  A task walks
 * the splits it can see, one tile after the other, and folds each finished
 * split into the total.  Where there are fewer tasks than threads could use,
 * a unit is one split of one task; its state is kept, and a second run folds
 * them.  Both ways do the same operations in the same order for every line.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/rows.h"

/* Products below which waking the team costs more than it saves. */
#define ALONE_PRODUCTS (256u << 10)
/* With so many tasks a thread, whole tasks spread well enough. */
#define TASKS_A_THREAD 4u
/* With so many tasks or units a thread, each may hold one more than it works on. */
#define AHEAD_A_THREAD 8u

static uint64_t
row_lines(const struct attention_job *job, const struct kernel_row *row)
{
	return (uint64_t)row->q_len * job->group;
}

static uint64_t
row_splits(const struct attention_job *job, const struct kernel_row *row)
{
	return row->q_len == 0 ? 0 : rows_divide_up(row_visible(job, row, row->q_len - 1), KERNEL_SPLIT);
}

static uint64_t
row_tasks(const void *context, const struct kernel_row *row)
{
	const struct attention_job *job = context;

	return rows_divide_up(row_lines(job, row), TILE_LINES) * job->args->pages.layout->params.n_kv_heads;
}

static uint64_t
row_units(const void *context, const struct kernel_row *row)
{
	return row_tasks(context, row) * row_splits(context, row);
}

/* The last query rows see most, so they come first. */
static struct attention_task
task_of(const struct attention_job *job, const struct kernel_row *row, uint64_t number)
{
	uint64_t lines = row_lines(job, row), n_chunks = rows_divide_up(lines, TILE_LINES);
	uint64_t first = (n_chunks - 1 - number % n_chunks) * TILE_LINES;

	return (struct attention_task){
		.row = row,
		.kv_head = (uint32_t)(number / n_chunks),
		.first_line = first,
		.n_lines = lines - first < TILE_LINES ? (uint32_t)(lines - first) : TILE_LINES,
		.packed = lines >= KERNEL_MANY_LINES,
	};
}

static void
split_merge(const struct attention_job *job, const struct attention_task *task, struct tile_state *total,
	    const float *maximum, const float *sum, const float *values)
{
	for (uint32_t line = 0; line < task->n_lines; line++)
		if (sum[line] != 0) /* else it weighs nothing */
			job->ops->merge(total, line, maximum[line], sum[line], values + (size_t)line * job->v_padded);
}

/* One line's numbers, once all its keys are in. */
struct line_end {
	float factor; /* of the values */
	float lse;
};

static struct line_end
line_end(float maximum, float sum)
{
	return (struct line_end){ .factor = sum == 0 ? 0 : 1 / sum, .lse = sum == 0 ? -INFINITY : maximum + logf(sum) };
}

static struct line_end
line_end_with_sink(float maximum, float sum, float sink)
{
	float top = sink > maximum ? sink : maximum;
	float rescale, all;

	if (sink == -INFINITY)
		return line_end(maximum, sum);
	rescale = expf(maximum - top);
	all = sum * rescale + expf(sink - top);
	return (struct line_end){ .factor = rescale / all, .lse = top + logf(all) };
}

static void
task_finish(const struct attention_job *job, const struct attention_task *task, const struct tile_state *total)
{
	const struct attention_args *args = job->args;
	const struct kernel_tensor *out = &args->out;
	const float *scales = args->pages.layout->params.v_in_k ? args->k_scale : args->v_scale;
	float v_scale = scales != NULL ? scales[task->kv_head] : 1;

	for (uint32_t line = 0; line < task->n_lines; line++) {
		uint64_t packed = task->row->q_start + line_query_row(job, task, line);
		uint32_t head = line_head(job, task, line);
		float sum = total->sum[line], maximum = total->maximum[line];
		struct line_end keys = line_end(maximum, sum), end = keys;
		uint64_t at = packed * out->n_heads + head;

		if (args->sink != NULL)
			end = line_end_with_sink(maximum, sum, args->sink[head]);
		job->ops->narrow(tensor_at(out, packed, head), out->dtype, total->values + (size_t)line * job->v_padded,
				 end.factor * v_scale, out->dim);
		if (args->lse != NULL)
			args->lse[at] = args->lse_without_sink ? keys.lse : end.lse;
		if (args->maximum != NULL)
			args->maximum[at] = isnan(sum) ? NAN : maximum;
	}
}

/* Without a mask every key that lengths leave is read, so what comes next can be fetched ahead. */
static bool
sees_all(const struct attention_job *job)
{
	const struct kernel_mods *mods = job->args->mods;

	return mods == NULL || (mods->params.mask == NULL && mods->params.blocks == NULL);
}

static bool
task_take(struct kernel_team *team, const struct attention_job *job, struct rows_cursor *cursor,
	  struct attention_task *task)
{
	const struct attention_args *args = job->args;
	uint64_t number = team_take(team);

	if (!rows_find(cursor, number, args->rows, args->n_rows, row_tasks, job))
		return false;
	*task = task_of(job, &args->rows[cursor->row], number - cursor->first);
	return true;
}

/* All splits of a task; `next`: the task after it, or NULL if that is not known. */
static void
task_attend(const struct attention_job *job, const struct attention_task *task, const struct attention_task *next,
	    struct team_scratch *scratch)
{
	uint64_t n_splits = rows_divide_up(line_visible(job, task, task->n_lines - 1), KERNEL_SPLIT);

	task_begin(job, task, scratch);
	state_clear(&scratch->total, scratch->total_values, job->v_padded, task->n_lines);
	for (uint64_t split = 0; split < n_splits; split++) {
		struct attention_piece piece = { .task = *task }, after = { .task = *task };
		bool last;

		if (job->args->mods != NULL)
			split = sight_next(job, task, scratch, split, n_splits);
		if (split == n_splits)
			break;
		last = split + 1 == n_splits;
		piece.split = split;
		if (!last)
			after.split = split + 1;
		else if (next != NULL)
			after.task = *next;
		split_attend(job, &piece, sees_all(job) && (!last || next != NULL) ? &after : NULL, scratch,
			     scratch->split_values);
		split_merge(job, task, &scratch->total, scratch->split.maximum, scratch->split.sum,
			    scratch->split_values);
	}
	task_finish(job, task, &scratch->total);
}

static void
tasks_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct attention_job *job = context;
	struct rows_cursor cursor = { 0 };
	struct attention_task tasks[2];
	bool more = task_take(team, job, &cursor, &tasks[0]);

	for (uint32_t i = 0; more; i ^= 1) {
		const struct attention_task *next = NULL;

		if (job->take_ahead) {
			more = task_take(team, job, &cursor, &tasks[i ^ 1]);
			next = more ? &tasks[i ^ 1] : NULL;
		}
		task_attend(job, &tasks[i], next, scratch);
		if (!job->take_ahead)
			more = task_take(team, job, &cursor, &tasks[i ^ 1]);
	}
}

struct unit {
	struct attention_piece piece;
	float *partial;
};

static bool
unit_take(struct kernel_team *team, const struct attention_job *job, struct rows_cursor *cursor, struct unit *unit)
{
	const struct attention_args *args = job->args;
	uint64_t number = team_take(team), n_splits;

	if (!rows_find(cursor, number, args->rows, args->n_rows, row_units, job))
		return false;
	n_splits = row_splits(job, &args->rows[cursor->row]);
	unit->piece.task = task_of(job, &args->rows[cursor->row], (number - cursor->first) / n_splits);
	unit->piece.split = (number - cursor->first) % n_splits;
	unit->partial = job->partials + number * job->partial_size;
	return true;
}

static void
splits_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct attention_job *job = context;
	struct rows_cursor cursor = { 0 };
	struct unit units[2];
	bool more = unit_take(team, job, &cursor, &units[0]);

	for (uint32_t i = 0; more; i ^= 1) {
		const struct unit *unit = &units[i];
		const struct attention_piece *next = NULL;
		uint32_t n = unit->piece.task.n_lines;

		if (job->take_ahead) {
			more = unit_take(team, job, &cursor, &units[i ^ 1]);
			next = more && sees_all(job) ? &units[i ^ 1].piece : NULL;
		}
		task_begin(job, &unit->piece.task, scratch);
		split_attend(job, &unit->piece, next, scratch, unit->partial + 2 * job->max_lines);
		memcpy(unit->partial, scratch->split.maximum, n * sizeof(float));
		memcpy(unit->partial + job->max_lines, scratch->split.sum, n * sizeof(float));
		if (!job->take_ahead)
			more = unit_take(team, job, &cursor, &units[i ^ 1]);
	}
}

static void
merge_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct attention_job *job = context;
	const struct attention_args *args = job->args;
	struct rows_cursor tasks = { 0 }, units = { 0 };

	for (;;) {
		uint64_t number = team_take(team), n_splits, unit;
		struct attention_task task;

		if (!rows_find(&tasks, number, args->rows, args->n_rows, row_tasks, job))
			return;
		for (; units.row < tasks.row; units.row++)
			units.first += row_units(job, &args->rows[units.row]);
		n_splits = row_splits(job, &args->rows[tasks.row]);
		unit = units.first + (number - tasks.first) * n_splits;
		task = task_of(job, &args->rows[tasks.row], number - tasks.first);
		state_clear(&scratch->total, scratch->total_values, job->v_padded, task.n_lines);
		for (uint64_t split = 0; split < n_splits; split++, unit++) {
			const float *partial = job->partials + unit * job->partial_size;

			split_merge(job, &task, &scratch->total, partial, partial + job->max_lines,
				    partial + 2 * job->max_lines);
		}
		task_finish(job, &task, &scratch->total);
	}
}

struct attention_size {
	uint64_t n_tasks;
	uint64_t n_units;
	uint64_t products;
};

static struct attention_size
size_up(struct attention_job *job)
{
	const struct attention_args *args = job->args;
	struct attention_size size = { 0 };

	for (uint32_t i = 0; i < args->n_rows; i++) {
		const struct kernel_row *row = &args->rows[i];
		uint64_t lines = row_lines(job, row);

		size.n_tasks += row_tasks(job, row);
		size.n_units += row_units(job, row);
		size.products +=
			lines * args->pages.layout->params.n_kv_heads * row->kv_len * (job->k_padded + job->v_padded);
		if (lines > job->max_lines)
			job->max_lines = lines < TILE_LINES ? (uint32_t)lines : TILE_LINES;
	}
	return size;
}

static uint32_t
round_up(uint32_t n, uint32_t lanes)
{
	return (n + lanes - 1) / lanes * lanes;
}

/* Every element is a bf16 too. */
static bool
is_bf16_or_bytes(enum paged_dtype dtype)
{
	return dtype == PAGED_BF16 || paged_dtype_size(dtype) == 1;
}

/* Numbers that fit what mods count in, and a block mask of this plan's size. */
static void
mods_assert(const struct kernel_team *team, const struct attention_args *args)
{
	const struct block_mask *blocks = args->mods->params.blocks;

	assert(args->mods->n_threads == team_n_threads(team));
	for (uint32_t i = 0; i < args->n_rows; i++) {
		const struct kernel_row *row = &args->rows[i];

		assert(row->q_len == 0 || (row->kv_len <= INT32_MAX && row->q_base >= INT32_MIN &&
					   row->q_base + (row->q_len - 1) <= INT32_MAX));
		(void)row;
	}
	assert(blocks == NULL || blocks->shape.n_rows == 1 || blocks->shape.n_rows == args->n_rows);
	assert(blocks == NULL || blocks->shape.n_heads == 1 || blocks->shape.n_heads == args->q.n_heads);
	(void)team;
	(void)blocks;
}

void
kernel_attention(struct kernel_team *team, const struct attention_args *args)
{
	const struct layout_params *params = &args->pages.layout->params;
	const struct kernel_tile_ops *ops = team_ops(team);
	struct attention_job job = {
		.args = args,
		.ops = ops,
		.group = args->q.n_heads / params->n_kv_heads,
		.k_padded = round_up(params->k_dim, ops->lanes),
		.v_padded = round_up(params->v_dim, ops->lanes),
		.partials = team_partials(team),
	};
	struct attention_size size;

	if (is_bf16_or_bytes(params->dtype) && args->q.dtype == PAGED_BF16)
		job.score_dots = ops->dot;
	if (is_bf16_or_bytes(params->dtype) && args->out.dtype == PAGED_BF16)
		job.value_dots = ops->dot;
	job.values = job.value_dots != NULL ? ops->dot->values : ops->values;
	job.values_seen = job.value_dots != NULL ? ops->dot->values_seen : ops->values_seen;
	packed_choose(&job);
	assert(args->q.n_heads % params->n_kv_heads == 0 && args->q.dim == params->k_dim);
	assert(args->k_scale == NULL || params->dtype == PAGED_E4M3 || params->dtype == PAGED_E5M2);
	assert(args->v_scale == NULL || (params->dtype != PAGED_I8 && !params->v_in_k));
	if (args->mods != NULL)
		mods_assert(team, args);
	assert(args->out.n_heads == args->q.n_heads && args->out.dim == params->v_dim);
	size = size_up(&job);
	if (size.products < ALONE_PRODUCTS) {
		team_run_alone(team, tasks_work, &job);
		return;
	}
	job.partial_size = (size_t)job.max_lines * (job.v_padded + 2);
	if (team_n_threads(team) == 1 || size.n_tasks >= (uint64_t)TASKS_A_THREAD * team_n_threads(team) ||
	    size.n_units > TEAM_PARTIALS / job.partial_size) {
		job.take_ahead = size.n_tasks >= (uint64_t)AHEAD_A_THREAD * team_n_threads(team);
		team_run(team, tasks_work, &job);
		return;
	}
	job.take_ahead = size.n_units >= (uint64_t)AHEAD_A_THREAD * team_n_threads(team);
	team_run(team, splits_work, &job);
	team_run(team, merge_work, &job);
}
