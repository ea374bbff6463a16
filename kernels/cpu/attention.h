/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention.h - how one call of kernel_attention() is divided, shared by its files
 *
 * Three units of work are nested.  A work item is what a thread takes
 * (schedule.h): query rows of one row of the batch, under one KV head or some.
 * It walks the KV chunks of KERNEL_SPLIT tokens that its query rows see; each
 * has a softmax state of its own, and these are combined in order (combine.c),
 * whichever thread had them.  A tile is TILE_TOKENS of a chunk: decode.c has one
 * tile of an item with few query rows, prefill.c of one with many, where
 * instruction sets with blocks of tiles take a chunk at a time.
 */
#ifndef PAGED_KERNELS_CPU_ATTENTION_H
#define PAGED_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/rows.h"
#include "kernels/cpu/schedule.h"
#include "kernels/cpu/team.h"

/** The query, and the result, of the query row so far ahead is fetched: they lie apart. */
#define FETCH_Q_ROWS 16u

/** The tile that a thread has next, as far as it knows. */
struct next_tile {
	const struct work_item *item;
	struct kv_tile tile; /* at or past item->kv_end: none */
};

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
	struct schedule schedule;
	float *workspace;    /* states of cut rows' chunks: [q_row] maximum, [q_row] sum, [q_row][v_padded] values */
	size_t state_floats; /* of one of them */
	bool prefetch_items; /* threads take the next item before they work on one, and fetch its first keys */
	/* Of rows with many query rows. */
	const struct tile_packed_ops *scores_packed, *values_packed;
	uint32_t packed_k;       /* elements of a packed query or key */
	uint32_t prefill_q_rows; /* a row with so many query rows is one */
	uint32_t item_q_rows;    /* most query rows of an item under one KV head */
	uint32_t tile_q_rows;    /* of them, those that share a state */
	bool pipelined;          /* chunks are multiplied in blocks of tiles */
};

/** q_tile_of - the query rows of an item's i-th state: of few query rows a KV head's, else a range of them */
struct q_tile q_tile_of(const struct attention_job *job, const struct work_item *item, uint32_t i);

/** q_tile_count - how many states an item has */
static inline uint32_t
q_tile_count(const struct attention_job *job, const struct work_item *item)
{
	return item->prefill ? (item->q.n + job->tile_q_rows - 1) / job->tile_q_rows : item->q.n_heads;
}

/* Keys [0, this) are what the batch row's i-th query sees. */
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

/* The query that a query row is of. */
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
q_row_visible(const struct attention_job *job, const struct q_tile *q, uint32_t i)
{
	return row_visible(job, q->row, q_row_query(job, q, i));
}

/** q_row_fetch - prefetch what a query row has in q or out, if there is that query row */
static inline void
q_row_fetch(const struct attention_job *job, const struct q_tile *q, uint32_t i, const struct kernel_tensor *tensor)
{
	if (i < q->n)
		tensor_fetch(tensor, q->row->q_start + q_row_query(job, q, i), q_row_head(job, q, i));
}

/** token_bits - bits [from, to) of a tile's tokens */
static inline uint64_t
token_bits(uint32_t from, uint32_t to)
{
	return (~UINT64_C(0) >> (TILE_TOKENS - (to - from))) << from;
}

/*
 * combine.c
 */

/** totals_begin - an item's states, one for each of its query tiles, in its workspace if it has one */
void totals_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** totals_end - from states to results, or what the workspace does not yet have of them */
void totals_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/**
 * state_begin - a query tile's state for one chunk
 *
 * Its values are added up in place where the total has none yet, else in `own`,
 * and may be anything before.
 */
void state_begin(const struct attention_job *job, const struct tile_state *total, uint32_t n_q_rows,
		 struct tile_state *state, float *own);

/** state_end - that state into the total */
void state_end(const struct attention_job *job, struct tile_state *total, uint32_t n_q_rows,
	       const struct tile_state *state);

/** chunk_begin - such states for all query tiles of an item, all values 0 */
void chunk_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);
void chunk_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** states_combine - the states that a query tile has in the workspace, into results */
void states_combine(const struct attention_job *job, const struct work_item *item, uint32_t q_tile, uint64_t n_chunks,
		    struct team_scratch *scratch);

/*
 * locate.c
 */

/**
 * rows_locate - addresses of tokens [begin, begin + n_tokens)
 *
 * No page past them is looked at, and none that holds no token of `wanted`, in
 * which there is at least one.
 */
void rows_locate(const struct attention_job *job, const struct q_tile *q, unsigned int plane, uint32_t begin,
		 uint32_t n_tokens, uint64_t wanted, struct tile_rows *rows);

/** rows_next_head - the same tokens for the next KV head, without a look at their pages */
void rows_next_head(const struct attention_job *job, unsigned int plane, struct tile_rows *rows);

/** tile_locate - a tile's keys and values */
void tile_locate(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		 struct team_scratch *scratch);

/** keys_prefetch - the keys to be fetched next, or NULL if there is no next tile or not all of it is seen */
const struct tile_rows *keys_prefetch(const struct attention_job *job, const struct next_tile *next,
				      struct team_scratch *scratch);

/**
 * scales_load - the scales of an i8 tile's tokens
 *
 * @param[out] scale  of pages that hold none of view->wanted as before; NULL: scales are prefetched
 */
void scales_load(const struct attention_job *job, const struct q_tile *q, unsigned int plane,
		 const struct tile_view *view, float *scale);

/** scales_fetch - prefetch those of keys and values */
void scales_fetch(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view);

/*
 * softmax.c
 */

/** score_scale - the caller's scale, with that of the head's keys in it */
float score_scale(const struct attention_job *job, const struct q_tile *q);

/** scores_scale - times each token's scale; scores that a query row does not see may become anything, NaN included */
void scores_scale(struct tile_scores *restrict scores, uint32_t begin, uint32_t end, const float *restrict scale);

/**
 * scores_modify - score mod and mask; returns the scale that is still to be applied
 *
 * @param[in] mod_row  number of the first query row among those that mods were told
 */
float scores_modify(const struct attention_job *job, const struct q_tile *q, uint32_t mod_row,
		    const struct tile_view *view, struct team_scratch *scratch, struct tile_scores *scores);

/** tile_softmax - a tile's scores to weights, times the scales of i8; `fetch`: dots' softmax may fetch these, or NULL
 */
void tile_softmax(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		  struct team_scratch *scratch, struct tile_state *state, const struct tile_rows *fetch);

/*
 * decode.c and prefill.c
 */

/** decode_queries, prefill_queries - an item's queries, as its products take them */
void decode_queries(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);
void prefill_queries(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** decode_tile, prefill_tile - one tile into the states of its chunk */
void decode_tile(const struct attention_job *job, const struct work_item *item, const struct kv_tile *tile,
		 const struct next_tile *next, struct team_scratch *scratch);
void prefill_tile(const struct attention_job *job, const struct work_item *item, const struct kv_tile *tile,
		  const struct next_tile *next, struct team_scratch *scratch);

/** prefill_chunk - a whole chunk into an item's totals; `mask`: what its query rows together see of it */
void prefill_chunk(const struct attention_job *job, const struct work_item *item, uint64_t begin, uint64_t end,
		   enum tile_mask mask, struct team_scratch *scratch);

#endif
