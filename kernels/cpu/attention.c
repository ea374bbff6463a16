/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row's query lines (its query rows times the query heads of one KV head,
 * heads innermost) are cut into tasks of at most job->task_lines.  A task walks
 * the splits it can see, one tile after the other, and folds each finished
 * split into the total.  Of a row that is long beside the others' work, an item
 * is one split of one task; its state is kept, and a second run folds them.
 * Both ways do the same operations in the same order for every line.
 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/rows.h"

/* Products below which waking the team costs more than it saves. */
#define ALONE_PRODUCTS (256u << 10)
/* Of rows with many lines there are so many items a thread, if they can be cut so. */
#define PACKED_A_THREAD 4u
/* With so many items a thread, each may hold one more than it works on. */
#define AHEAD_A_THREAD 8u

/* The last query rows see most, so they come first. */
static struct attention_task
task_of(const struct attention_job *job, const struct kernel_row *row, const struct order_row *is, uint64_t number)
{
	uint64_t lines = (uint64_t)row->q_len * job->group, n_chunks = rows_divide_up(lines, job->task_lines);
	uint64_t first = (n_chunks - 1 - number % n_chunks) * job->task_lines;
	uint32_t head = (uint32_t)(number / n_chunks) * is->n_heads;
	uint32_t left = job->args->pages.layout->params.n_kv_heads - head;

	return (struct attention_task){
		.row = row,
		.kv_head = head,
		.n_heads = left < is->n_heads ? left : is->n_heads,
		.first_line = first,
		.n_lines = (uint32_t)least(lines - first, job->task_lines),
		.packed = lines >= job->many_lines,
	};
}

uint32_t
strips_of(const struct attention_task *task)
{
	return (task->n_lines + BLOCK_STRIP - 1) / BLOCK_STRIP;
}

struct attention_task
strip_of(const struct attention_task *task, uint32_t number)
{
	struct attention_task strip = *task;

	strip.strip = number * BLOCK_STRIP;
	strip.first_line += strip.strip;
	strip.n_lines = (uint32_t)least(task->n_lines - strip.strip, BLOCK_STRIP);
	return strip;
}

/* Splits of which lengths and causality leave the last line something. */
static uint64_t
task_splits(const struct attention_job *job, const struct attention_task *task)
{
	return rows_divide_up(line_visible(job, task, task->n_lines - 1), KERNEL_SPLIT);
}

/* sight_next(), of all strips if there are some, each as far as it reaches. */
static uint64_t
task_next(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	  uint64_t split, uint64_t n_splits)
{
	uint64_t next = n_splits;

	if (job->args->mods == NULL)
		return split;
	if (!has_strips(job, task))
		return sight_next(job, task, scratch, split, n_splits);
	for (uint32_t i = 0; i < strips_of(task) && next > split; i++) {
		struct attention_task strip = strip_of(task, i);
		uint64_t end = least(task_splits(job, &strip), next), found;

		if (split >= end)
			continue;
		if (job->args->mods->params.blocks != NULL)
			sight_begin(job, &strip, scratch);
		found = sight_next(job, &strip, scratch, split, end);
		next = found < end ? found : next;
	}
	return next;
}

/* A split into the totals of a task without strips. */
static void
split_fold(const struct attention_job *job, const struct attention_piece *piece, const struct attention_piece *next,
	   struct team_scratch *scratch)
{
	split_attend(job, piece, next, scratch, scratch->split_values);
	for (uint32_t h = 0; h < piece->task.n_heads; h++)
		job->ops->merge(&scratch->total[h], piece->task.n_lines, scratch->split[h].maximum,
				scratch->split[h].sum, scratch->split[h].values);
}

/* All splits of a task; `next`: what comes after it, or NULL if that is not known. */
static void
task_attend(const struct attention_job *job, const struct attention_task *task, const struct attention_piece *next,
	    struct team_scratch *scratch)
{
	struct attention_piece piece = { .task = *task }, after = { .task = *task };
	uint64_t n_splits = task_splits(job, task);
	/* What a block mask says of a split is kept until it is asked about another. */
	bool late = job->args->mods != NULL && job->args->mods->params.blocks != NULL;

	task_begin(job, task, scratch);
	totals_clear(job, task, scratch);
	piece.split = task_next(job, task, scratch, 0, n_splits);
	for (; piece.split < n_splits; piece.split = after.split) {
		after.split = late ? n_splits : task_next(job, task, scratch, piece.split + 1, n_splits);
		if (has_strips(job, task))
			whole_attend(job, &piece, scratch, NULL);
		else
			split_fold(job, &piece, after.split < n_splits ? &after : next, scratch);
		if (late)
			after.split = task_next(job, task, scratch, piece.split + 1, n_splits);
	}
	totals_finish(job, task, scratch);
}

/* One split of a task, whose state waits in `partial` to be merged. */
static void
piece_attend(const struct attention_job *job, const struct attention_piece *piece, const struct attention_piece *next,
	     struct team_scratch *scratch, float *partial)
{
	uint32_t n = piece->task.n_lines, most = job->order.max_lines;

	task_begin(job, &piece->task, scratch);
	if (has_strips(job, &piece->task)) {
		whole_attend(job, piece, scratch, partial);
		return;
	}
	split_attend(job, piece, next, scratch, partial + 2 * (size_t)most);
	for (uint32_t h = 0; h < piece->task.n_heads; h++) {
		memcpy(partial + h * n, scratch->split[h].maximum, n * sizeof(float));
		memcpy(partial + most + h * n, scratch->split[h].sum, n * sizeof(float));
	}
}

struct item {
	struct attention_piece piece;
	float *partial; /* NULL: the whole task */
};

static bool
item_take(struct kernel_team *team, const struct attention_job *job, struct order_cursor *cursor, struct item *item)
{
	uint64_t number = team_take(team), piece;
	const struct order_row *is = &cursor->is;
	const struct kernel_row *row;

	if (!order_item(job, cursor, number))
		return false;
	row = &job->args->rows[cursor->row];
	number -= cursor->first;
	item->partial = NULL;
	item->piece.split = 0;
	if (is->cut) {
		item->piece.split = number / is->n_tasks;
		number %= is->n_tasks;
		piece = cursor->first_piece + number * is->n_splits + item->piece.split;
		item->partial = job->partials + piece * job->partial_size;
	}
	item->piece.task = task_of(job, row, is, number);
	return true;
}

static void
items_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct attention_job *job = context;
	struct order_cursor cursor = order_begin(job);
	struct item items[2];
	bool more = item_take(team, job, &cursor, &items[0]);

	if (job->ops->begin != NULL)
		job->ops->begin();
	for (uint32_t i = 0; more; i ^= 1) {
		const struct attention_piece *next = NULL;
		const struct item *item = &items[i];

		if (job->take_ahead) {
			more = item_take(team, job, &cursor, &items[i ^ 1]);
			next = more ? &items[i ^ 1].piece : NULL;
		}
		if (item->partial == NULL)
			task_attend(job, &item->piece.task, next, scratch);
		else
			piece_attend(job, &item->piece, next, scratch, item->partial);
		if (!job->take_ahead)
			more = item_take(team, job, &cursor, &items[i ^ 1]);
	}
	if (job->ops->end != NULL)
		job->ops->end();
}

static void
partial_merge(const struct attention_job *job, const struct attention_task *head, struct team_scratch *scratch,
	      const float *maximum, const float *sum, const float *values)
{
	if (!has_strips(job, head)) {
		job->ops->merge(scratch->total, head->n_lines, maximum, sum, values);
		return;
	}
	for (uint32_t i = 0; i < strips_of(head); i++) {
		struct attention_task strip = strip_of(head, i);

		job->ops->merge(&scratch->total[i], strip.n_lines, maximum + strip.strip, sum + strip.strip,
				values + (size_t)strip.strip * job->v_padded);
	}
}

/* One KV head of a task, of which `partial` is its row's first. */
static void
head_merge(const struct attention_job *job, const struct attention_task *task, uint32_t h, uint64_t n_splits,
	   const float *partial, struct team_scratch *scratch)
{
	const struct attention_task head = task_head(task, h);
	const uint32_t most = job->order.max_lines, line = h * task->n_lines;

	totals_clear(job, &head, scratch);
	for (uint64_t split = 0; split < n_splits; split++, partial += job->partial_size)
		partial_merge(job, &head, scratch, partial + line, partial + most + line,
			      partial + 2 * (size_t)most + (size_t)line * job->v_padded);
	totals_finish(job, &head, scratch);
}

static void
merges_work(struct kernel_team *team, void *context, struct team_scratch *scratch)
{
	const struct attention_job *job = context;
	struct order_cursor cursor = order_begin(job);
	uint64_t number;

	while (order_merge(job, &cursor, number = team_take(team))) {
		const struct order_row *is = &cursor.is;
		uint32_t h = (uint32_t)((number -= cursor.first) % is->n_heads);
		uint64_t piece = cursor.first_piece + number / is->n_heads * is->n_splits;
		struct attention_task task = task_of(job, &job->args->rows[cursor.row], is, number / is->n_heads);

		if (h < task.n_heads) /* the row's last task may have fewer */
			head_merge(job, &task, h, is->n_splits, job->partials + piece * job->partial_size, scratch);
	}
}

/* Products of queries and keys, values and weights. */
static uint64_t
count_products(const struct attention_job *job)
{
	const struct attention_args *args = job->args;
	uint64_t n = 0;

	for (uint32_t i = 0; i < args->n_rows; i++)
		n += (uint64_t)args->rows[i].q_len * args->rows[i].kv_len;
	return n * args->q.n_heads * (job->k_padded + job->v_padded);
}

/* Items that packed rows may be cut into. */
static uint64_t
count_packed(const struct attention_job *job)
{
	const struct attention_args *args = job->args;
	uint64_t n = 0;

	for (uint32_t i = 0; i < args->n_rows; i++) {
		const uint64_t lines = (uint64_t)args->rows[i].q_len * job->group;

		if (lines >= job->many_lines)
			n += rows_divide_up(lines, job->task_lines) *
			     rows_divide_up(args->rows[i].kv_len, KERNEL_SPLIT);
	}
	return n * args->pages.layout->params.n_kv_heads;
}

/* The more lines share packed tiles, the better, as long as every thread has its share of tasks. */
static void
task_lines_choose(struct attention_job *job, uint32_t n_threads)
{
	uint64_t n;

	while (job->task_lines > TILE_LINES && (n = count_packed(job)) != 0 &&
	       n < (uint64_t)PACKED_A_THREAD * n_threads)
		job->task_lines /= 2;
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
		.partials = team_partials(team),
	};
	uint32_t n_threads = team_n_threads(team);

	job.score_pairs = is_bf16_or_bytes(params->dtype) && args->q.dtype == PAGED_BF16;
	job.value_pairs = is_bf16_or_bytes(params->dtype) && args->out.dtype == PAGED_BF16;
	job.score_dots = job.score_pairs ? ops->dot : NULL;
	job.value_dots = job.value_pairs ? ops->dot : NULL;
	job.values = job.value_dots != NULL ? ops->dot->values : ops->values;
	job.values_seen = job.value_dots != NULL ? ops->dot->values_seen : ops->values_seen;
	job.k_padded = round_up(params->k_dim, job.score_dots != NULL ? ops->dot->row_elements : ops->lanes);
	job.v_padded = round_up(params->v_dim, job.value_dots != NULL ? ops->dot->row_elements : ops->lanes);
	packed_choose(&job);
	assert(args->q.n_heads % params->n_kv_heads == 0 && args->q.dim == params->k_dim);
	assert(args->k_scale == NULL || params->dtype == PAGED_E4M3 || params->dtype == PAGED_E5M2);
	assert(args->v_scale == NULL || (params->dtype != PAGED_I8 && !params->v_in_k));
	if (args->mods != NULL)
		mods_assert(team, args);
	assert(args->out.n_heads == args->q.n_heads && args->out.dim == params->v_dim);
	if (count_products(&job) < ALONE_PRODUCTS)
		n_threads = 1;
	task_lines_choose(&job, n_threads);
	order_make(&job, n_threads, job.v_padded + 2, TEAM_PARTIALS);
	job.partial_size = job.order.max_lines * ((size_t)job.v_padded + 2);
	job.take_ahead = job.order.n_items >= (uint64_t)AHEAD_A_THREAD * n_threads;
	if (n_threads == 1)
		team_run_alone(team, items_work, &job);
	else
		team_run(team, items_work, &job);
	if (job.order.n_merges != 0)
		team_run(team, merges_work, &job);
}
