/* SPDX-License-Identifier: Apache-2.0 */
/**
 * schedule.h - which work items a call of kernel_attention() has, and in which order threads take them
 *
 * A work item is what a thread takes at a time: a range of a row's query rows
 * under some of its KV heads, over all keys that they see, or over one KV chunk
 * where the row is cut because an item would be too large a part of the call
 * (split-KV).  Items are numbered by falling cost, to within a factor of two:
 * the last ones are short, and threads end together.  Nothing is sorted or
 * kept: a cursor walks the rows once for each class of cost that there is.
 *
 * KV heads lie next to each other in a page and are read at about the same
 * time: an item of a row with few query rows has several of them, and the items
 * of a row that is cut are numbered chunk by chunk, in each range by range.
 */
#ifndef PAGED_KERNELS_CPU_SCHEDULE_H
#define PAGED_KERNELS_CPU_SCHEDULE_H

#include "kernels/kernels.h"

struct attention_job;
struct work_item;

struct schedule {
	uint64_t limit;       /* rows of which a KV head costs more are cut */
	uint64_t heads_limit; /* an item of several KV heads costs no more */
	uint64_t classes;     /* bit c: of items that cost 2^c or more, below 2^(c + 1), there are some */
	uint64_t n_items;     /* of all rows; below, of those that are cut */
	uint64_t n_chunks;    /* items of one KV chunk, each with a state in the workspace */
	uint64_t n_combines;  /* query tiles whose states are to be combined */
	uint32_t max_q_rows;  /* of a state in the workspace */
};

/** One row as the schedule sees it. */
struct schedule_row {
	bool prefill;
	uint64_t n_ranges;  /* of query rows, times groups of KV heads */
	uint32_t n_heads;   /* KV heads of a group */
	uint32_t n_q_rows;  /* of a range, at most */
	uint32_t n_q_tiles; /* of a range, at most; of few query rows the KV heads */
	uint64_t n_chunks;  /* that the last query row sees */
	uint64_t cost;      /* of a range over all chunks */
	bool cut;
	unsigned int class;
};

struct schedule_row schedule_row(const struct attention_job *job, const struct kernel_row *row);

/**
 * schedule_make - job->schedule, for a number of threads
 *
 * @param[in] q_row_floats  workspace that a state takes for each query row
 * @param[in] max_floats    workspace that there is
 */
void schedule_make(struct attention_job *job, uint32_t n_threads, size_t q_row_floats, size_t max_floats);

enum schedule_units { SCHEDULE_ITEMS, SCHEDULE_COMBINES };

/** A thread's place in the rows. */
struct schedule_cursor {
	enum schedule_units units;
	uint64_t classes; /* not yet walked; the highest is being walked */
	uint32_t row;
	struct schedule_row is;
	uint64_t first;       /* number of the row's first unit */
	uint64_t first_chunk; /* chunks of rows before it */
};

struct schedule_cursor schedule_begin(const struct attention_job *job, enum schedule_units units);

/** schedule_find - move to the row of a unit; false: it is past the last.  Never backwards. */
bool schedule_find(const struct attention_job *job, struct schedule_cursor *cursor, uint64_t number);

/** schedule_item - a work item of the cursor's row */
struct work_item schedule_item(const struct attention_job *job, const struct schedule_cursor *cursor, uint64_t number);

#endif
