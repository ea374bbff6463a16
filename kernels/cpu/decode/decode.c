/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode: rows with few q_rows.  Keys and values are multiplied where they lie in the pages.  An item
 * may have several KV heads; for each tile, the heads are processed in turn, because their parts of a
 * page are adjacent.  Memory bandwidth is the bottleneck, so every product prefetches what comes next:
 * the scores prefetch the tile's values, and the values prefetch the keys of the next head or tile.
 */
#include "kernels/cpu/decode/decode.h"

#include "kernels/cpu/locate.h"
#include "kernels/cpu/q_rows.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/tile_mask.h"

/* From this many q_rows on, a tile is converted once before its use: for elements of 2 bytes, and of 1 byte. */
#define CONVERT_Q_ROWS 12u
#define CONVERT_Q_ROWS_BYTES 5u

/* Offset of the queries of an item's h-th KV head in q and in q16. */
static size_t
head_queries(const struct attention_job *job, uint32_t h)
{
	return (size_t)h * DECODE_Q_ROWS * job->k_padded;
}

void
decode_queries(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch)
{
	const struct kernel_tensor *from = &job->args->q;

	for (uint32_t h = 0; h < item->q.n_heads; h++) {
		const struct q_tile q = q_tile_of(job, item, h);
		float *to = scratch->q + head_queries(job, h);

		for (uint32_t i = 0; i < q.n; i++) {
			const void *query =
				tensor_at(from, q.row->q_start + q_row_query(job, &q, i), q_row_head(job, &q, i));

			q_row_fetch(job, &q, i + FETCH_Q_ROWS, from);
			if (job->score_dots != NULL)
				job->score_dots->convert_query(scratch->q16 + head_queries(job, h), i, query, from->dim);
			else
				job->ops->widen(to + (size_t)i * job->k_padded, query, from->dtype, from->dim);
		}
	}
}

/*
 * Converts a tile's rows to f32, or to bf16 for products of pairs, if they do not fill whole vectors
 * or if many q_rows will read them.  Returns the converted rows, or the rows themselves.  Sets
 * *fetch_p to NULL if the conversion has prefetched those rows.
 */
static const struct tile_tokens *
rows_prepare(const struct attention_job *job, const struct tile_decode_bf16_ops *dots, const struct tile_tokens *rows,
	     uint32_t padded, uint32_t n_q_rows, float *scratch, struct tile_tokens *made,
	     const struct tile_tokens **fetch_p)
{
	enum paged_dtype dtype = dots != NULL ? PAGED_BF16 : PAGED_F32;
	uint32_t most = dots != NULL                         ? dots->convert_q_rows
			: paged_dtype_size(rows->dtype) == 1 ? CONVERT_Q_ROWS_BYTES
							     : CONVERT_Q_ROWS;
	size_t stride = (size_t)padded * paged_dtype_size(dtype);

	if (rows->padded == padded && (rows->dtype == dtype || n_q_rows < most))
		return rows;
	if (dots != NULL) {
		dots->convert_tokens((uint16_t *)(void *)scratch, padded, rows, *fetch_p);
		*fetch_p = NULL;
	}
	for (uint32_t i = 0; i < rows->n_tokens; i++) {
		made->token[i] = (uint8_t *)scratch + i * stride;
		if (dots == NULL)
			job->ops->widen(scratch + (size_t)i * padded, rows->token[i], rows->dtype, rows->padded);
	}
	for (uint32_t i = rows->n_tokens; i % TILE_TOKEN_BLOCK != 0; i++)
		made->token[i] = made->token[rows->n_tokens - 1];
	made->n_tokens = rows->n_tokens;
	made->dtype = dtype;
	made->padded = padded;
	made->stride = stride;
	return made;
}

/*
 * Scores of the tile in k_rows; returns the rows (v_rows, used next) that softmax should continue to
 * prefetch, or NULL.
 */
static const struct tile_tokens *
head_scores(const struct attention_job *job, const struct q_tile *q, uint32_t h, uint32_t first,
	    struct team_scratch *scratch)
{
	const struct tile_decode_bf16_ops *dots = job->score_dots;
	const struct tile_tokens *fetch = &scratch->v_rows, *k;
	struct tile_scores *scores = &scratch->scores;

	k = rows_prepare(job, dots, &scratch->k_rows, job->k_padded, q->n - first, scratch->k, &scratch->made_rows,
			 &fetch);
	if (dots == NULL)
		job->ops->scores(scores, scratch->q + head_queries(job, h), first, q->n, k, fetch);
	else
		dots->scores(scores, scratch->q16 + head_queries(job, h), first, q->n, k, fetch);
	return dots != NULL && dots->softmax != NULL ? fetch : NULL;
}

/* Accumulates weights . V in a head's state; prefetches the rows of `fetch` unless NULL. */
static void
head_values(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
	    struct team_scratch *scratch, struct softmax_state *state, const struct tile_tokens *fetch)
{
	const struct tile_tokens *v = rows_prepare(job, job->value_dots, &scratch->v_rows, job->v_padded,
						 q->n - view->first, scratch->v, &scratch->made_rows, &fetch);

	if (view->mask == TILE_PARTIAL)
		job->values_seen(&scratch->scores, state, view->first, q->n, v);
	else
		job->values(&scratch->scores, state, view->first, q->n, v, fetch);
}

void
decode_tile(const struct attention_job *job, const struct work_item *item, const struct kv_tile *tile,
	    const struct next_tile *next, struct team_scratch *scratch)
{
	const uint32_t n_heads = item->q.n_heads;
	const struct tile_view view =
		tile_mask_view(job, &item->q, scratch, &scratch->scores, tile->begin, item->kv_end, tile->mask);

	if (view.mask == TILE_EMPTY)
		return;
	tile_locate(job, &item->q, &view, scratch);
	for (uint32_t h = 0; h < n_heads; h++) {
		const struct q_tile q = q_tile_of(job, item, h);
		const struct tile_tokens *fetch;

		scales_fetch(job, &q, &view);
		if (view.mask == TILE_PARTIAL)
			tile_mask_rows(scratch, q.at, q.n, &scratch->scores);
		fetch = head_scores(job, &q, h, view.first, scratch);
		tile_softmax(job, &q, &view, scratch, &scratch->chunk[h], fetch);
		if (h + 1 == n_heads) {
			fetch = keys_prefetch(job, next, scratch);
		} else {
			rows_next_head(job, LAYOUT_K, &scratch->k_rows);
			fetch = &scratch->k_rows;
		}
		head_values(job, &q, &view, scratch, &scratch->chunk[h], fetch);
		if (h + 1 < n_heads)
			rows_next_head(job, LAYOUT_V, &scratch->v_rows);
	}
}
