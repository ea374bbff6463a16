/* SPDX-License-Identifier: Apache-2.0 */
/**
 * q_rows.h - the q_rows of query tiles: their queries, heads and visible tokens
 */
#ifndef PAGED_KERNELS_CPU_Q_ROWS_H
#define PAGED_KERNELS_CPU_Q_ROWS_H

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/int_math.h"
#include "kernels/cpu/tensor.h"
#include "kernels/cpu/work.h"

/** Prefetch distance, in q_rows, for queries and results, which are not contiguous. */
#define PREFETCH_Q_ROWS 16u

/* The i-th query of a batch row sees keys [0, result), before mods. */
static inline uint32_t
row_visible_tokens(const struct attention_job *job, const struct kernel_row *row, uint32_t i)
{
	int64_t end;

	if (!job->args->causal || row->q_base >= (int64_t)row->kv_len)
		return row->kv_len;
	end = row->q_base + (int64_t)i + 1;
	if (end <= 0)
		return 0;
	return end < (int64_t)row->kv_len ? (uint32_t)end : row->kv_len;
}

/* The query that a q_row belongs to, counted within its batch row. */
static inline uint32_t
q_row_query(const struct attention_job *job, const struct q_tile *q, uint32_t i)
{
	return (uint32_t)((q->first + i) / job->group);
}

static inline uint32_t
q_row_head(const struct attention_job *job, const struct q_tile *q, uint32_t i)
{
	return q->kv_head * job->group + (uint32_t)((q->first + i) % job->group);
}

static inline uint32_t
q_row_visible_tokens(const struct attention_job *job, const struct q_tile *q, uint32_t i)
{
	return row_visible_tokens(job, q->row, q_row_query(job, q, i));
}

/** q_row_prefetch - prefetch a q_row's elements of q or out, if the q_row exists */
static inline void
q_row_prefetch(const struct attention_job *job, const struct q_tile *q, uint32_t i, const struct kernel_tensor *tensor)
{
	if (i < q->n)
		tensor_prefetch(tensor, q->row->q_start + q_row_query(job, q, i), q_row_head(job, q, i));
}

/** q_tile_count - number of states (query tiles) of an item */
static inline uint32_t
q_tile_count(const struct attention_job *job, const struct work_item *item)
{
	return item->prefill ? (item->q.n + job->tile_q_rows - 1) / job->tile_q_rows : item->q.n_heads;
}

/** q_tile_of - the q_rows of an item's i-th state: for decode those of one KV head, for prefill a range of q_rows */
static inline struct q_tile
q_tile_of(const struct attention_job *job, const struct work_item *item, uint32_t i)
{
	struct q_tile q = item->q;

	q.n_heads = 1;
	if (!item->prefill) {
		q.kv_head += i;
		q.at = i * q.n;
		return q;
	}
	q.at = i * job->tile_q_rows;
	q.first += q.at;
	q.n = (uint32_t)min_u64(q.n - q.at, job->tile_q_rows);
	return q;
}

/** token_bits - mask of bits [from, to) for the tokens of a tile; from < to */
static inline uint64_t
token_bits(uint32_t from, uint32_t to)
{
	return (~UINT64_C(0) >> (TILE_TOKENS - (to - from))) << from;
}

#endif
