/* SPDX-License-Identifier: Apache-2.0 */
/**
 * schedule.h - the work items of a kernel_attention() call, and the order in which threads take them
 *
 * A work item is the unit that a thread takes: a range of a row's q_rows under one or more KV heads,
 * over all keys that these q_rows see.  If an item would be too large a part of the call, its row is
 * split (split-KV): then an item covers one KV chunk.  Items are numbered by descending cost, to within
 * a factor of two, so the last items are short and threads finish together.  Nothing is sorted or
 * stored: a cursor walks the rows once for each cost class in use.
 *
 * The KV heads of a page are adjacent, so they are best read at about the same time: an item of a row
 * with few q_rows covers several KV heads, and the items of a split row are numbered chunk by chunk, and
 * range by range within each chunk.
 */
#ifndef PAGED_KERNELS_CPU_SCHEDULE_SCHEDULE_H
#define PAGED_KERNELS_CPU_SCHEDULE_SCHEDULE_H

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/work.h"

/** Properties of one row that the schedule is computed from. */
struct schedule_row {
	bool prefill;
	uint64_t n_ranges;  /* ranges of q_rows, times groups of KV heads */
	uint32_t n_heads;   /* KV heads per group */
	uint32_t n_q_rows;  /* q_rows of a range, at most */
	uint32_t n_q_tiles; /* query tiles of a range, at most; for few q_rows the number of KV heads */
	uint64_t n_chunks;  /* KV chunks that the last query row sees, from that of kv_first on */
	uint64_t cost;      /* cost of a range over all chunks */
	bool split_kv;
	unsigned int class;
};

struct schedule_row schedule_row(const struct attention_job *job, const struct kernel_row *row);

/**
 * schedule_make - compute job->schedule for a number of threads
 *
 * @param[in] q_row_floats  workspace floats per q_row of a state
 * @param[in] max_floats    size of the workspace in floats
 */
void schedule_make(struct attention_job *job, uint32_t n_threads, size_t q_row_floats, size_t max_floats);

enum schedule_kind { SCHEDULE_ITEMS, SCHEDULE_COMBINES };

/** A thread's position in the schedule. */
struct schedule_cursor {
	enum schedule_kind kind;
	uint64_t classes; /* not yet finished; the highest is the current one */
	uint32_t row;
	struct schedule_row is;
	uint64_t first;       /* number of the current row's first item */
	uint64_t first_chunk; /* chunks of the split rows before it */
};

struct schedule_cursor schedule_begin(const struct attention_job *job, enum schedule_kind kind);

/** schedule_find - advance to the row of an item, never backwards; false if `number` is past the last item */
bool schedule_find(const struct attention_job *job, struct schedule_cursor *cursor, uint64_t number);

/** schedule_item - the work item with that number, which must be in the cursor's row */
struct work_item schedule_item(const struct attention_job *job, const struct schedule_cursor *cursor, uint64_t number);

#endif
