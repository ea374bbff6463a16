/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/schedule/schedule.h"

#include "kernels/cpu/mod_set.h"
#include "kernels/cpu/q_rows.h"

/* Reading a token costs as much as multiplying it with this many q_rows. */
#define READING_Q_ROWS 8u
/* The limit of an item's cost is a thread's share of the call divided by ITEMS_PER_THREAD ... */
#define ITEMS_PER_THREAD 16u
/*
 * ... or, if that is larger, the lesser of SHORT_COST and the share divided by SHORT_ITEMS_PER_THREAD:
 * short items are expensive to combine.
 */
#define SHORT_ITEMS_PER_THREAD 4u
#define SHORT_COST (UINT64_C(2) * KERNEL_KV_CHUNK * (READING_Q_ROWS + 4))
/*
 * If a head's part of a page is below this size, an item of several KV heads may cost as much as the share
 * divided by SHORT_ITEMS_PER_THREAD: short reads are expensive.
 */
#define HEAD_BYTES 4096u

static uint64_t
schedule_cost(uint64_t n_tokens, uint32_t n_q_rows)
{
	return n_tokens * (n_q_rows + READING_Q_ROWS);
}

/*
 * Number of KV heads of a row that form an item, if one head costs `cost`.  With a block mask it is 1,
 * because the lists are per head.
 */
static uint32_t
schedule_heads_per_item(const struct attention_job *job, uint64_t n_q_rows, uint64_t cost)
{
	const struct kernel_mod_set *mod_set = job->args->mod_set;
	uint32_t n_heads = job->args->pages.layout->params.n_kv_heads;
	uint64_t most = cost == 0 ? 1 : min_u64(job->schedule.heads_limit / cost, ITEM_HEADS);

	if ((mod_set != NULL && mod_set->params.blocks != NULL) || n_q_rows == 0 || n_q_rows > DECODE_Q_ROWS)
		return 1;
	most = min_u64(most, TILE_Q_ROWS / n_q_rows);
	most = min_u64(most, (uint64_t)TILE_Q_ROWS * PAGED_MAX_DIM / (DECODE_Q_ROWS * job->k_padded));
	if (most <= 1)
		return 1;
	return (uint32_t)div_round_up(n_heads, div_round_up(n_heads, most));
}

/* The first KV chunk that has a key at or past kv_first. */
static uint64_t
schedule_first_chunk(const struct kernel_row *row)
{
	return row->kv_first / KERNEL_KV_CHUNK;
}

struct schedule_row
schedule_row(const struct attention_job *job, const struct kernel_row *row)
{
	uint64_t q_rows = (uint64_t)row->q_len * job->group;
	uint64_t end = row->q_len == 0 ? 0 : row_visible_tokens(job, row, row->q_len - 1);
	uint64_t tokens = end > row->kv_first ? end - row->kv_first : 0;
	struct schedule_row is = {
		.prefill = q_rows >= job->prefill_q_rows,
		.n_chunks = tokens == 0 ? 0 : div_round_up(end, KERNEL_KV_CHUNK) - schedule_first_chunk(row),
		.n_q_rows = (uint32_t)min_u64(q_rows, job->item_q_rows),
	};
	uint64_t cost = schedule_cost(tokens, is.n_q_rows), item_cost;

	is.split_kv = cost > job->schedule.limit && is.n_chunks > 1;
	item_cost = is.split_kv ? schedule_cost(KERNEL_KV_CHUNK, is.n_q_rows) : cost;
	is.n_heads = is.prefill ? 1 : schedule_heads_per_item(job, q_rows, item_cost);
	is.n_q_tiles = is.prefill ? (uint32_t)div_round_up(is.n_q_rows, job->tile_q_rows) : is.n_heads;
	is.n_ranges = div_round_up(q_rows, job->item_q_rows) *
		      div_round_up(job->args->pages.layout->params.n_kv_heads, is.n_heads);
	is.cost = cost * is.n_heads;
	is.class = 63 - (unsigned int)__builtin_clzll(item_cost * is.n_heads | 1);
	return is;
}

/*
 * q_rows of a state in the workspace.  A pipelined query tile writes values of all its q_rows,
 * including those that do not exist.
 */
static uint32_t
schedule_state_q_rows(const struct attention_job *job, const struct schedule_row *row)
{
	return row->prefill && job->pipelined ? row->n_q_tiles * job->tile_q_rows : row->n_q_rows * row->n_heads;
}

static void
schedule_count(struct attention_job *job)
{
	struct schedule schedule = { .limit = job->schedule.limit, .heads_limit = job->schedule.heads_limit };

	for (uint32_t i = 0; i < job->args->n_rows; i++) {
		struct schedule_row row = schedule_row(job, &job->args->rows[i]);

		if (row.n_ranges == 0)
			continue;
		schedule.classes |= UINT64_C(1) << row.class;
		schedule.n_items += row.n_ranges * (row.split_kv ? row.n_chunks : 1);
		if (!row.split_kv)
			continue;
		schedule.n_chunks += row.n_ranges * row.n_chunks;
		schedule.n_combines += row.n_ranges * row.n_q_tiles;
		if (schedule_state_q_rows(job, &row) > schedule.max_q_rows)
			schedule.max_q_rows = schedule_state_q_rows(job, &row);
	}
	job->schedule = schedule;
}

void
schedule_make(struct attention_job *job, uint32_t n_threads, size_t q_row_floats, size_t max_floats)
{
	struct schedule *schedule = &job->schedule;
	uint64_t total = 0, share, shortest;

	/* The limits are not set yet, so these are the costs of single KV heads. */
	for (uint32_t i = 0; i < job->args->n_rows; i++) {
		struct schedule_row row = schedule_row(job, &job->args->rows[i]);

		total += row.n_ranges * row.cost;
	}
	share = total / n_threads;
	shortest = min_u64(share / SHORT_ITEMS_PER_THREAD, SHORT_COST);
	schedule->limit = share / ITEMS_PER_THREAD > shortest ? share / ITEMS_PER_THREAD : shortest;
	schedule->heads_limit = schedule->limit;
	if (job->args->pages.layout->plane[LAYOUT_K].head_stride < HEAD_BYTES)
		schedule->heads_limit = share / SHORT_ITEMS_PER_THREAD;
	if (n_threads == 1)
		schedule->limit = schedule->heads_limit = UINT64_MAX;
	schedule_count(job);
	while (schedule->n_chunks * schedule->max_q_rows > max_floats / q_row_floats) {
		schedule->limit *= 2;
		schedule_count(job);
	}
}

struct schedule_cursor
schedule_begin(const struct attention_job *job, enum schedule_kind kind)
{
	return (struct schedule_cursor){ .kind = kind, .classes = job->schedule.classes };
}

bool
schedule_find(const struct attention_job *job, struct schedule_cursor *cursor, uint64_t number)
{
	while (cursor->classes != 0) {
		unsigned int class = 63 - (unsigned int)__builtin_clzll(cursor->classes);

		for (; cursor->row < job->args->n_rows; cursor->row++) {
			struct schedule_row row = schedule_row(job, &job->args->rows[cursor->row]);
			uint64_t n_chunks = row.split_kv ? row.n_ranges * row.n_chunks : 0;
			uint64_t n = row.split_kv ? n_chunks : row.n_ranges;

			if (row.class != class)
				continue;
			if (cursor->kind == SCHEDULE_COMBINES)
				n = row.split_kv ? row.n_ranges * row.n_q_tiles : 0;
			cursor->is = row;
			if (number - cursor->first < n)
				return true;
			cursor->first += n;
			cursor->first_chunk += n_chunks;
		}
		cursor->row = 0;
		cursor->classes &= ~(UINT64_C(1) << class);
	}
	return false;
}

/* The last query rows see most keys, so their range comes first. */
static struct q_tile
schedule_range(const struct attention_job *job, const struct schedule_cursor *cursor, uint64_t number)
{
	const struct kernel_row *row = &job->args->rows[cursor->row];
	uint64_t q_rows = (uint64_t)row->q_len * job->group, n_ranges = div_round_up(q_rows, job->item_q_rows);
	uint64_t first = (n_ranges - 1 - number % n_ranges) * job->item_q_rows;
	uint32_t head = (uint32_t)(number / n_ranges) * cursor->is.n_heads;

	return (struct q_tile){
		.row = row,
		.kv_head = head,
		.n_heads = (uint32_t)min_u64(job->args->pages.layout->params.n_kv_heads - head, cursor->is.n_heads),
		.first = first,
		.n = (uint32_t)min_u64(q_rows - first, job->item_q_rows),
	};
}

struct work_item
schedule_item(const struct attention_job *job, const struct schedule_cursor *cursor, uint64_t number)
{
	const struct schedule_row *is = &cursor->is;
	bool combine = cursor->kind == SCHEDULE_COMBINES;
	uint64_t within = number - cursor->first, chunk = 0, range;
	struct work_item item = { .prefill = is->prefill };

	range = combine ? within / is->n_q_tiles : is->split_kv ? within % is->n_ranges : within;
	item.q = schedule_range(job, cursor, range);
	item.kv_end = q_row_visible_tokens(job, &item.q, item.q.n - 1);
	item.kv_begin = schedule_first_chunk(item.q.row) * KERNEL_KV_CHUNK;
	if (!is->split_kv)
		return item;
	if (!combine) {
		chunk = within / is->n_ranges;
		item.kv_begin += chunk * KERNEL_KV_CHUNK;
		item.kv_end = min_u64(item.kv_end, item.kv_begin + KERNEL_KV_CHUNK);
	}
	item.workspace = job->workspace + (cursor->first_chunk + range * is->n_chunks + chunk) * job->state_floats;
	return item;
}
