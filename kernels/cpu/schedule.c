/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/schedule.h"

#include "kernels/cpu/attention.h"
#include "kernels/cpu/rows.h"

/* A token costs as much to read as so many lines to be multiplied with it. */
#define READING_LINES 8u
/* An item is at most this part of what each thread has to do ... */
#define ITEMS_A_THREAD 16u
/* ... but a short one, for which merging is dear, this. */
#define SHORT_ITEMS_A_THREAD 4u
#define SHORT_COST (UINT64_C(2) * KERNEL_SPLIT * (READING_LINES + 4))
/* So is one of several KV heads that have less than this each in a page: reading so little at a place is dear too. */
#define HEAD_BYTES 4096u

static uint64_t
cost_of(uint64_t n_tokens, uint32_t n_lines)
{
	return n_tokens * (n_lines + READING_LINES);
}

/*
 * So many KV heads of a row make a task, of which one alone costs `cost`: what
 * they have of a tile lies side by side in its pages.  A block mask lists what one
 * of them sees.
 */
static uint32_t
heads_together(const struct attention_job *job, uint64_t n_lines, uint64_t cost)
{
	const struct kernel_mods *mods = job->args->mods;
	uint32_t n_heads = job->args->pages.layout->params.n_kv_heads;
	uint64_t most = cost == 0 ? 1 : least(job->order.heads_limit / cost, TASK_HEADS);

	if ((mods != NULL && mods->params.blocks != NULL) || n_lines == 0 || n_lines > TASK_QUERY_LINES ||
	    n_lines >= job->many_lines)
		return 1;
	most = least(most, TILE_LINES / n_lines);
	most = least(most, (uint64_t)TILE_LINES * PAGED_MAX_DIM / (TASK_QUERY_LINES * job->k_padded));
	if (most <= 1)
		return 1;
	return (uint32_t)rows_divide_up(n_heads, rows_divide_up(n_heads, most));
}

struct order_row
order_row(const struct attention_job *job, const struct kernel_row *row)
{
	uint64_t lines = (uint64_t)row->q_len * job->group;
	uint64_t tokens = row->q_len == 0 ? 0 : row_visible(job, row, row->q_len - 1);
	struct order_row is = {
		.n_splits = rows_divide_up(tokens, KERNEL_SPLIT),
		.n_lines = (uint32_t)least(lines, job->task_lines),
	};
	uint64_t cost = cost_of(tokens, is.n_lines), item_cost;

	is.cut = cost > job->order.limit && is.n_splits > 1;
	item_cost = is.cut ? cost_of(KERNEL_SPLIT, is.n_lines) : cost;
	is.n_heads = heads_together(job, lines, item_cost);
	is.n_tasks = rows_divide_up(lines, job->task_lines) *
		     rows_divide_up(job->args->pages.layout->params.n_kv_heads, is.n_heads);
	is.task_cost = cost * is.n_heads;
	is.class = 63 - (unsigned int)__builtin_clzll(item_cost * is.n_heads | 1);
	return is;
}

/* Lines that a partial state has place for: values are stored strip by strip, whatever lines a task has of the last. */
static uint64_t
partial_lines(const struct attention_job *job, const struct order_row *row)
{
	uint64_t n = (uint64_t)row->n_lines * row->n_heads;

	return job->whole && row->n_lines >= job->many_lines ? rows_divide_up(n, BLOCK_STRIP) * BLOCK_STRIP : n;
}

static void
count(struct attention_job *job)
{
	struct order order = { .limit = job->order.limit, .heads_limit = job->order.heads_limit };

	for (uint32_t i = 0; i < job->args->n_rows; i++) {
		struct order_row row = order_row(job, &job->args->rows[i]);

		if (row.n_tasks == 0)
			continue;
		order.classes |= UINT64_C(1) << row.class;
		order.n_items += row.n_tasks * (row.cut ? row.n_splits : 1);
		if (!row.cut)
			continue;
		order.n_pieces += row.n_tasks * row.n_splits;
		order.n_merges += row.n_tasks * row.n_heads;
		if (partial_lines(job, &row) > order.max_lines)
			order.max_lines = (uint32_t)partial_lines(job, &row);
	}
	job->order = order;
}

/* Before there are limits, so of single KV heads. */
static uint64_t
total_cost(const struct attention_job *job)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < job->args->n_rows; i++) {
		struct order_row row = order_row(job, &job->args->rows[i]);

		total += row.n_tasks * row.task_cost;
	}
	return total;
}

void
order_make(struct attention_job *job, uint32_t n_threads, size_t piece_floats, size_t max_floats)
{
	uint64_t share = total_cost(job) / n_threads, shortest = share / SHORT_ITEMS_A_THREAD;
	struct order *order = &job->order;

	shortest = least(shortest, SHORT_COST);
	order->limit = share / ITEMS_A_THREAD > shortest ? share / ITEMS_A_THREAD : shortest;
	order->heads_limit = order->limit;
	if (job->args->pages.layout->plane[LAYOUT_K].head_stride < HEAD_BYTES)
		order->heads_limit = share / SHORT_ITEMS_A_THREAD;
	if (n_threads == 1)
		order->limit = order->heads_limit = UINT64_MAX;
	count(job);
	while (order->n_pieces * order->max_lines > max_floats / piece_floats) {
		order->limit *= 2;
		count(job);
	}
}

struct order_cursor
order_begin(const struct attention_job *job)
{
	return (struct order_cursor){ .classes = job->order.classes };
}

enum walk { WALK_ITEMS, WALK_MERGES };

static bool
walk(const struct attention_job *job, struct order_cursor *cursor, uint64_t number, enum walk what)
{
	while (cursor->classes != 0) {
		unsigned int class = 63 - (unsigned int)__builtin_clzll(cursor->classes);

		for (; cursor->row < job->args->n_rows; cursor->row++) {
			struct order_row row = order_row(job, &job->args->rows[cursor->row]);
			uint64_t n_pieces = row.cut ? row.n_tasks * row.n_splits : 0;
			uint64_t n_merges = row.cut ? row.n_tasks * row.n_heads : 0;
			uint64_t n = row.cut ? n_pieces : row.n_tasks;

			if (row.class != class)
				continue;
			n = what == WALK_MERGES ? n_merges : n;
			cursor->is = row;
			if (number - cursor->first < n)
				return true;
			cursor->first += n;
			cursor->first_piece += n_pieces;
		}
		cursor->row = 0;
		cursor->classes &= ~(UINT64_C(1) << class);
	}
	return false;
}

bool
order_item(const struct attention_job *job, struct order_cursor *cursor, uint64_t number)
{
	return walk(job, cursor, number, WALK_ITEMS);
}

bool
order_merge(const struct attention_job *job, struct order_cursor *cursor, uint64_t number)
{
	return walk(job, cursor, number, WALK_MERGES);
}
