/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention.h - how one kernel_attention() call is divided into work; shared by the files that do it
 *
 * A q_row is one (query, query head) pair.  Three units of work are nested:
 *   - A work item is the unit that a thread takes (schedule.h): q_rows of one row of the batch, under
 *     one or more KV heads.
 *   - A KV chunk is KERNEL_SPLIT tokens.  An item walks the chunks that its q_rows see.  Each chunk
 *     has a softmax state of its own, and combine.c combines these states in chunk order, whichever
 *     threads computed them.
 *   - A tile is TILE_TOKENS tokens of a chunk. decode.c processes one tile of an item with few q_rows,
 *     prefill.c one tile of an item with many; on instruction sets with tile_packed_ops.blocks,
 *     prefill.c processes a chunk at a time.
 */
#ifndef PAGED_KERNELS_CPU_ATTENTION_H
#define PAGED_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/rows.h"
#include "kernels/cpu/schedule/schedule.h"
#include "kernels/cpu/schedule/team.h"

/** Prefetch distance, in q_rows, for queries and results, which are not contiguous. */
#define FETCH_Q_ROWS 16u

/** The tile that a thread processes next, if that is known. */
struct next_tile {
	const struct work_item *item;
	struct kv_tile tile; /* tile.begin at or past item->kv_end: none */
};

struct attention_job {
	const struct attention_args *args;
	const struct kernel_tile_ops *ops;
	uint32_t group;    /* query heads per KV head */
	uint32_t k_padded; /* K dim, padded for the products of decode; v_padded is the V dim */
	uint32_t v_padded;
	/*
	 * Whether products may use bf16 pairs. bf16 must represent the pool's elements exactly; in
	 * addition, q must be bf16 for scores, and out for values.
	 */
	bool score_pairs, value_pairs;
	/* The functions for pairs, if they are allowed and the instruction set has them; else NULL. */
	const struct tile_dot_ops *score_dots, *value_dots;
	tile_values_fn values;
	tile_values_seen_fn values_seen;
	struct schedule schedule;
	float *workspace;    /* states of cut rows' chunks: [q_row] maximum, [q_row] sum, [q_row][v_padded] values */
	size_t state_floats; /* floats of one state */
	/* threads take the next item before they process the current one, to prefetch its first keys */
	bool prefetch_items;
	/* Prefill: rows with many q_rows. */
	const struct tile_packed_ops *scores_packed, *values_packed;
	uint32_t packed_k;       /* elements of a packed query or key */
	uint32_t prefill_q_rows; /* a row with at least this many q_rows uses prefill */
	uint32_t item_q_rows;    /* most q_rows of an item under one KV head */
	uint32_t tile_q_rows;    /* q_rows of an item that share a state */
	bool pipelined;          /* chunks are multiplied in pipelined blocks of tiles */
};

/** q_tile_of - the q_rows of an item's i-th state: for decode those of one KV head, for prefill a range of q_rows */
struct q_tile q_tile_of(const struct attention_job *job, const struct work_item *item, uint32_t i);

/** q_tile_count - number of states (query tiles) of an item */
static inline uint32_t
q_tile_count(const struct attention_job *job, const struct work_item *item)
{
	return item->prefill ? (item->q.n + job->tile_q_rows - 1) / job->tile_q_rows : item->q.n_heads;
}

/* The i-th query of a batch row sees keys [0, result), before mods. */
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
q_row_visible(const struct attention_job *job, const struct q_tile *q, uint32_t i)
{
	return row_visible(job, q->row, q_row_query(job, q, i));
}

/** q_row_fetch - prefetch a q_row's elements of q or out, if the q_row exists */
static inline void
q_row_fetch(const struct attention_job *job, const struct q_tile *q, uint32_t i, const struct kernel_tensor *tensor)
{
	if (i < q->n)
		tensor_fetch(tensor, q->row->q_start + q_row_query(job, q, i), q_row_head(job, q, i));
}

/** token_bits - mask of bits [from, to) for the tokens of a tile; from < to */
static inline uint64_t
token_bits(uint32_t from, uint32_t to)
{
	return (~UINT64_C(0) >> (TILE_TOKENS - (to - from))) << from;
}

/*
 * combine.c
 */

/** totals_begin - initialise an item's states, one per query tile, in its workspace if it has one */
void totals_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** totals_end - write the results, or for an item with a workspace, complete its states there */
void totals_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/**
 * state_begin - initialise a query tile's state for one chunk
 *
 * If the total has accumulated nothing yet, the chunk accumulates directly in the total's values, else
 * in `own`.  The values are not initialised.
 */
void state_begin(const struct attention_job *job, const struct tile_state *total, uint32_t n_q_rows,
		 struct tile_state *state, float *own);

/** state_end - combine a chunk's state into the total */
void state_end(const struct attention_job *job, struct tile_state *total, uint32_t n_q_rows,
	       const struct tile_state *state);

/** chunk_begin, chunk_end - state_begin() with zeroed values, and state_end(), for all query tiles of an item */
void chunk_begin(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);
void chunk_end(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** states_combine - combine the chunk states of a query tile from the workspace and write the results */
void states_combine(const struct attention_job *job, const struct work_item *item, uint32_t q_tile, uint64_t n_chunks,
		    struct team_scratch *scratch);

/*
 * locate.c
 */

/**
 * rows_locate - addresses of tokens [begin, begin + n_tokens)
 *
 * Reads only the page numbers that these tokens need, and skips pages without a token of `wanted`.  At
 * least one token must be wanted.
 */
void rows_locate(const struct attention_job *job, const struct q_tile *q, unsigned int plane, uint32_t begin,
		 uint32_t n_tokens, uint64_t wanted, struct tile_rows *rows);

/** rows_next_head - the same tokens of the next KV head, without reading page numbers again */
void rows_next_head(const struct attention_job *job, unsigned int plane, struct tile_rows *rows);

/** tile_locate - addresses of a tile's keys and values */
void tile_locate(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		 struct team_scratch *scratch);

/**
 * keys_prefetch - addresses of the next tile's keys, to be prefetched; NULL if there is none or its
 * mask is not FULL
 */
const struct tile_rows *keys_prefetch(const struct attention_job *job, const struct next_tile *next,
				      struct team_scratch *scratch);

/**
 * scales_load - load the scales of an i8 tile's tokens
 *
 * @param[out] scale  entries of pages without a token of view->wanted are unchanged; NULL: only prefetch the scales
 */
void scales_load(const struct attention_job *job, const struct q_tile *q, unsigned int plane,
		 const struct tile_view *view, float *scale);

/** scales_fetch - prefetch the K and V scales of an i8 tile */
void scales_fetch(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view);

/*
 * softmax.c
 */

/** score_scale - the caller's scale times the K scale of the query tile's KV head */
float score_scale(const struct attention_job *job, const struct q_tile *q);

/** scores_scale - multiply by each token's scale; scores that a q_row does not see become undefined, possibly NaN */
void scores_scale(struct tile_scores *restrict scores, uint32_t begin, uint32_t end, const float *restrict scale);

/**
 * scores_modify - apply score mod and mask; returns the scale that the caller must still apply
 *
 * @param[in] mod_row  index of the first q_row among those set by tile_mask_begin()
 */
float scores_modify(const struct attention_job *job, const struct q_tile *q, uint32_t mod_row,
		    const struct tile_view *view, struct team_scratch *scratch, struct tile_scores *scores);

/**
 * tile_softmax - turn a tile's scores into weights, times the V scales of i8
 *
 * @param[in] fetch  rows that the softmax of tile_dot_ops prefetches; NULL: use the plain softmax
 */
void tile_softmax(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		  struct team_scratch *scratch, struct tile_state *state, const struct tile_rows *fetch);

/*
 * decode.c and prefill.c
 */

/** decode_queries, prefill_queries - convert or pack an item's queries for the products */
void decode_queries(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);
void prefill_queries(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch);

/** decode_tile, prefill_tile - accumulate one tile into the states of its chunk; `next` is the tile to prefetch */
void decode_tile(const struct attention_job *job, const struct work_item *item, const struct kv_tile *tile,
		 const struct next_tile *next, struct team_scratch *scratch);
void prefill_tile(const struct attention_job *job, const struct work_item *item, const struct kv_tile *tile,
		  const struct next_tile *next, struct team_scratch *scratch);

/** prefill_chunk - accumulate a whole chunk into an item's totals; `mask`: mask of the chunk for all its q_rows */
void prefill_chunk(const struct attention_job *job, const struct work_item *item, uint64_t begin, uint64_t end,
		   enum tile_mask mask, struct team_scratch *scratch);

#endif
