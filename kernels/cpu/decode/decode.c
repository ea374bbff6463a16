/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode: rows with few q_rows.  Keys and values are multiplied where they lie in the pages.  An item
 * may have several KV heads; for each tile, the heads are processed in turn, because their parts of a
 * page are adjacent.  Memory bandwidth is the bottleneck, so every product prefetches what comes next:
 * the scores prefetch the tile's values, and the values prefetch the keys of the next head or tile.
 */
#include "kernels/cpu/decode/decode.h"

#include "kernels/cpu/token_addresses.h"
#include "kernels/cpu/q_rows.h"
#include "kernels/cpu/scores.h"
#include "kernels/cpu/tile_mask.h"

/* From this many q_rows on, a tile is converted once before its use: for elements of 2 bytes, and of 1 byte. */
#define CONVERT_Q_ROWS 12u
#define CONVERT_Q_ROWS_BYTES 5u

/* Offset of the queries of an item's h-th KV head in q and in q16. */
static size_t
decode_head_queries(const struct attention_job *job, uint32_t h)
{
	return (size_t)h * DECODE_Q_ROWS * job->k_padded;
}

void
decode_queries(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch)
{
	const struct kernel_tensor *from = &job->args->q;

	for (uint32_t h = 0; h < item->q.n_heads; h++) {
		const struct q_tile q = q_tile_of(job, item, h);
		float *to = scratch->q + decode_head_queries(job, h);

		for (uint32_t i = 0; i < q.n; i++) {
			const void *query =
				tensor_at(from, q.row->q_start + q_row_query(job, &q, i), q_row_head(job, &q, i));

			q_row_prefetch(job, &q, i + PREFETCH_Q_ROWS, from);
			if (job->decode_scores != NULL)
				job->decode_scores->convert_query(scratch->q16 + decode_head_queries(job, h), i, query,
								  from->dim);
			else
				job->ops->widen(to + (size_t)i * job->k_padded, query, from->dtype, from->dim);
		}
	}
}

/*
 * Converts a tile's tokens to f32, or to bf16 for products of pairs, if they do not fill whole vectors
 * or if many q_rows will read them.  Returns the converted tokens, or the tokens themselves.  Sets
 * *prefetch_p to NULL if the conversion has prefetched those tokens.
 */
static const struct tile_tokens *
decode_convert_tokens(const struct attention_job *job, const struct tile_decode_bf16_ops *bf16_ops,
		      const struct tile_tokens *tokens, uint32_t padded, uint32_t n_q_rows, float *scratch,
		      struct tile_tokens *converted, const struct tile_tokens **prefetch_p)
{
	enum paged_dtype dtype = bf16_ops != NULL ? PAGED_BF16 : PAGED_F32;
	uint32_t convert_from = bf16_ops != NULL                       ? bf16_ops->convert_q_rows
				: paged_dtype_size(tokens->dtype) == 1 ? CONVERT_Q_ROWS_BYTES
								       : CONVERT_Q_ROWS;
	size_t stride = (size_t)padded * paged_dtype_size(dtype);

	if (tokens->padded == padded && (tokens->dtype == dtype || n_q_rows < convert_from))
		return tokens;
	if (bf16_ops != NULL) {
		bf16_ops->convert_tokens((uint16_t *)(void *)scratch, padded, tokens, *prefetch_p);
		*prefetch_p = NULL;
	}
	for (uint32_t i = 0; i < tokens->n_tokens; i++) {
		converted->token[i] = (uint8_t *)scratch + i * stride;
		if (bf16_ops == NULL)
			job->ops->widen(scratch + (size_t)i * padded, tokens->token[i], tokens->dtype, tokens->padded);
	}
	for (uint32_t i = tokens->n_tokens; i % TILE_TOKEN_BLOCK != 0; i++)
		converted->token[i] = converted->token[tokens->n_tokens - 1];
	converted->n_tokens = tokens->n_tokens;
	converted->dtype = dtype;
	converted->padded = padded;
	converted->stride = stride;
	return converted;
}

/*
 * Scores of the tile in k_tokens; returns the tokens (v_tokens, used next) that softmax should continue to
 * prefetch, or NULL.
 */
static const struct tile_tokens *
decode_head_scores(const struct attention_job *job, const struct q_tile *q, uint32_t h, uint32_t first,
		   struct team_scratch *scratch)
{
	const struct tile_decode_bf16_ops *bf16_ops = job->decode_scores;
	const struct tile_tokens *prefetch = &scratch->v_tokens, *k;
	struct tile_scores *scores = &scratch->scores;

	k = decode_convert_tokens(job, bf16_ops, &scratch->k_tokens, job->k_padded, q->n - first, scratch->k,
				  &scratch->converted_tokens, &prefetch);
	if (bf16_ops == NULL)
		job->ops->scores(scores, scratch->q + decode_head_queries(job, h), first, q->n, k, prefetch);
	else
		bf16_ops->scores(scores, scratch->q16 + decode_head_queries(job, h), first, q->n, k, prefetch);
	return bf16_ops != NULL && bf16_ops->softmax != NULL ? prefetch : NULL;
}

/* Accumulates weights . V in a head's state; prefetches the tokens of `prefetch` unless NULL. */
static void
decode_head_values(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		   struct team_scratch *scratch, struct softmax_state *state, const struct tile_tokens *prefetch)
{
	const struct tile_tokens *v =
		decode_convert_tokens(job, job->decode_values, &scratch->v_tokens, job->v_padded, q->n - view->first,
				      scratch->v, &scratch->converted_tokens, &prefetch);

	if (view->mask == TILE_PARTIAL)
		job->values_seen(&scratch->scores, state, view->first, q->n, v);
	else
		job->values(&scratch->scores, state, view->first, q->n, v, prefetch);
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
	locate_tile(job, &item->q, &view, scratch);
	for (uint32_t h = 0; h < n_heads; h++) {
		const struct q_tile q = q_tile_of(job, item, h);
		const struct tile_tokens *prefetch;

		locate_prefetch_scales(job, &q, &view);
		if (view.mask == TILE_PARTIAL)
			tile_mask_q_rows(scratch, q.at, q.n, &scratch->scores);
		prefetch = decode_head_scores(job, &q, h, view.first, scratch);
		softmax_tile(job, &q, &view, scratch, &scratch->chunk_state[h], prefetch);
		if (h + 1 == n_heads) {
			prefetch = locate_next_keys(job, next, scratch);
		} else {
			locate_next_head(job, LAYOUT_K, &scratch->k_tokens);
			prefetch = &scratch->k_tokens;
		}
		decode_head_values(job, &q, &view, scratch, &scratch->chunk_state[h], prefetch);
		if (h + 1 < n_heads)
			locate_next_head(job, LAYOUT_V, &scratch->v_tokens);
	}
}
