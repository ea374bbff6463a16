/* SPDX-License-Identifier: Apache-2.0 */
/**
 * schedule.h - what threads take of a call of kernel_attention(), and in which order
 *
 * An item is what a thread takes at a time: a task, or one split of a task
 * where the row is cut, for its tasks would be too much at a time.  Items are
 * numbered by falling cost, to within a factor of two: so what is left for the
 * end is short, and threads end together.  Nothing is sorted or kept: a cursor
 * walks the rows once for each class of cost that there is.
 *
 * What KV heads have in a page lies side by side, and is read at about the same
 * time: of a row with few lines a task has several of them, and the pieces of a
 * row that is cut are numbered split by split, in each task by task.
 */
#ifndef PAGED_KERNELS_CPU_ORDER_H
#define PAGED_KERNELS_CPU_ORDER_H

#include "kernels/kernels.h"

struct attention_job;

struct order {
	uint64_t limit;       /* rows of which a KV head costs more are cut */
	uint64_t heads_limit; /* an item of several KV heads costs no more */
	uint64_t classes;     /* bit c: of items that cost 2^c or more, below 2^(c + 1), there are some */
	uint64_t n_items;     /* of all rows; below, of those that are cut */
	uint64_t n_pieces;    /* splits of tasks */
	uint64_t n_merges;    /* KV heads of tasks */
	uint32_t max_lines;   /* of a task that is cut, of all its KV heads, or of whole strips */
};

/** What one row is to the order. */
struct order_row {
	uint64_t n_tasks;
	uint32_t n_heads;  /* KV heads of a task */
	uint64_t n_splits; /* of its longest task */
	uint64_t task_cost;
	uint32_t n_lines; /* of a KV head, at most */
	bool cut;
	unsigned int class;
};

struct order_row order_row(const struct attention_job *job, const struct kernel_row *row);

/**
 * order_make - job->order, for a number of threads
 *
 * @param[in] piece_floats  memory that a piece takes for each line
 * @param[in] max_floats    and all of them have
 */
void order_make(struct attention_job *job, uint32_t n_threads, size_t piece_floats, size_t max_floats);

struct order_cursor {
	uint64_t classes; /* not yet walked; the highest is being */
	uint32_t row;
	struct order_row is;
	uint64_t first;       /* the row's first number */
	uint64_t first_piece; /* pieces of rows before it */
};

struct order_cursor order_begin(const struct attention_job *job);

/** order_item - move to the row of an item; false: it is past the last.  Never backwards. */
bool order_item(const struct attention_job *job, struct order_cursor *cursor, uint64_t number);

/** order_merge - the same of KV heads of tasks whose splits wait to be merged, in the same order */
bool order_merge(const struct attention_job *job, struct order_cursor *cursor, uint64_t number);

#endif
