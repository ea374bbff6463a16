/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefill: rows with many q_rows.  Tiles are packed, then multiplied as matrices.
 *
 * Most instruction sets process one tile at a time for all q_rows of an item.  On instruction sets
 * with blocks (tile_prefill_ops.pipeline_step), an item has several query tiles, which process each KV chunk
 * in turn, so that the chunk's tiles are packed once for all of them.  A query tile goes through the
 * chunk in blocks of tiles, and blocks are software-pipelined: while the scores of one block are
 * multiplied, the weights of the previous block are computed, and the values of the one before are
 * accumulated.
 */
#include "kernels/cpu/prefill/prefill.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/combine.h"
#include "kernels/cpu/token_addresses.h"
#include "kernels/cpu/mod_set.h"
#include "kernels/cpu/q_rows.h"
#include "kernels/cpu/scores.h"
#include "kernels/cpu/tile_mask.h"

/* A scale between this and its reciprocal can be multiplied with another factor without overflow or underflow. */
#define SMALL_SCALE 0x1p-64f

void
prefill_queries(const struct attention_job *job, const struct work_item *item, struct team_scratch *scratch)
{
	const struct kernel_tensor *from = &job->args->q;
	const uint32_t words = job->packed_k / job->prefill_scores->word_elements;
	const size_t bytes = (size_t)from->dim * paged_dtype_size(from->dtype);
	const struct q_tile *q = &item->q;

	for (uint32_t i = 0; i < q->n; i++) {
		const void *query = tensor_at(from, q->row->q_start + q_row_query(job, q, i), q_row_head(job, q, i));
		float *to = scratch->q + (size_t)i * words;

		q_row_prefetch(job, q, i + PREFETCH_Q_ROWS, from);
		if (job->prefill_scores->word_elements == 1) {
			job->ops->widen(to, query, from->dtype, from->dim);
			continue;
		}
		memcpy(to, query, bytes);
		memset((uint8_t *)to + bytes, 0, words * sizeof(*to) - bytes);
	}
}

/* Converts tokens with fewer than `padded` elements to f32 in `to`, with zeros at their ends. */
static void
prefill_pad_tokens(const struct attention_job *job, struct tile_tokens *tokens, uint32_t padded, float *to)
{
	if (tokens->padded == padded)
		return;
	for (uint32_t i = 0; i < tokens->n_tokens; i++, to += padded) {
		memset(to + tokens->padded, 0, (padded - tokens->padded) * sizeof(*to));
		job->ops->widen(to, tokens->token[i], tokens->dtype, tokens->padded);
		tokens->token[i] = to;
	}
	tokens->dtype = PAGED_F32;
	tokens->padded = padded;
}

static void
prefill_pack_keys(const struct attention_job *job, struct team_scratch *scratch, float *panels)
{
	struct tile_tokens *k = &scratch->k_tokens;

	prefill_pad_tokens(job, k, job->packed_k, scratch->k);
	for (uint32_t i = k->n_tokens; i % job->ops->lanes != 0; i++)
		k->token[i] = k->token[k->n_tokens - 1];
	job->prefill_scores->pack_keys(panels, k);
}

/* Packs values; returns the tokens left out because they have NaN or infinite values. */
static uint64_t
prefill_pack_values(const struct attention_job *job, struct team_scratch *scratch, float *panels)
{
	prefill_pad_tokens(job, &scratch->v_tokens, job->v_padded, scratch->v);
	return job->prefill_values->pack_values(panels, &scratch->v_tokens);
}

/* Accumulates the left out tokens for each q_row that sees them; v_tokens must have their addresses. */
static void
prefill_add_non_finite(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		       struct team_scratch *scratch, struct tile_scores *scores, struct softmax_state *state,
		       uint64_t non_finite)
{
	for (uint32_t i = view->first; i < q->n; i++) {
		if (view->mask == TILE_FULL)
			scores->seen[i] = scores->visible[i] == 0 ? 0 : token_bits(0, scores->visible[i]);
		scores->seen[i] &= non_finite;
		scores->rescale[i] = 1;
	}
	job->ops->values_seen(scores, state, view->first, q->n, &scratch->v_tokens);
}

void
prefill_tile(const struct attention_job *job, const struct work_item *item, const struct kv_tile *tile,
	     const struct next_tile *next, struct team_scratch *scratch)
{
	const struct tile_prefill_ops *ops = job->prefill_scores;
	struct tile_scores *scores = &scratch->scores;
	struct softmax_state *state = scratch->chunk_state;
	const struct q_tile *q = &item->q;
	const struct tile_view view = tile_mask_view(job, q, scratch, scores, tile->begin, item->kv_end, tile->mask);
	uint64_t non_finite;

	if (view.mask == TILE_EMPTY)
		return;
	if (view.mask == TILE_PARTIAL)
		tile_mask_q_rows(scratch, 0, q->n, scores);
	locate_tile(job, q, &view, scratch);
	locate_prefetch_scales(job, q, &view);
	prefill_pack_keys(job, scratch, scratch->k_panels);
	ops->scores(scores, scratch->q, view.first, q->n, scratch->k_panels, view.n_tokens,
		    job->packed_k / ops->word_elements, &scratch->v_tokens);
	softmax_tile(job, q, &view, scratch, state, NULL);
	non_finite = prefill_pack_values(job, scratch, scratch->v_panels);
	job->prefill_values->values(scores, state, view.first, q->n, scratch->v_panels, view.n_tokens,
				    locate_next_keys(job, next, scratch));
	if (non_finite != 0)
		prefill_add_non_finite(job, q, &view, scratch, scores, state, non_finite);
}

/* KV chunks in pipelined blocks of tiles. */

static struct packed_tile *
prefill_packed_tile(struct team_scratch *scratch, uint32_t begin)
{
	return &scratch->packed[begin % KERNEL_KV_CHUNK / TILE_TOKENS];
}

/* Packs the tile of a view, unless it is already packed with all wanted tokens. */
static void
prefill_pack_tile(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
		  struct team_scratch *scratch)
{
	struct packed_tile *to = prefill_packed_tile(scratch, view->begin);
	struct tile_view all = *view;

	/* Pages past the last token may have no memory. */
	all.wanted &= token_bits(0, view->n_tokens);
	if (to->n_tokens >= view->n_tokens && (all.wanted & ~to->wanted) == 0)
		return;
	/* Blocks in the pipeline may still need the tokens that are packed now. */
	if (to->n_tokens != 0)
		all.wanted |= to->wanted;
	if (to->n_tokens > view->n_tokens)
		all.n_tokens = to->n_tokens;
	locate_tile(job, q, &all, scratch);
	prefill_pack_keys(job, scratch, to->k_panels);
	to->non_finite = prefill_pack_values(job, scratch, to->v_panels);
	if (job->args->pages.layout->params.dtype == PAGED_I8) {
		locate_load_scales(job, q, LAYOUT_K_SCALE, &all, to->k_scale);
		locate_load_scales(job, q, LAYOUT_V_SCALE, &all, to->v_scale);
	}
	to->n_tokens = all.n_tokens;
	to->wanted = all.wanted;
}

/* A query tile in one KV chunk. */
struct q_tile_chunk {
	struct q_tile q;
	struct softmax_state *state;
	uint64_t begin, end;
	enum tile_mask mask;
};

/* Starts a block: the tiles from `begin` on, which are packed here; tiles without visible tokens are left out. */
static void
pipeline_block_begin(const struct attention_job *job, const struct q_tile_chunk *chunk, uint64_t begin,
		     struct team_scratch *scratch, struct pipeline_block *to, struct tile_scores *tiles)
{
	const struct q_tile *q = &chunk->q;
	const uint32_t words = job->packed_k / job->prefill_scores->word_elements;
	const uint64_t end = min_u64(begin + BLOCK_TILES * TILE_TOKENS, chunk->end);
	struct tile_block *block = &to->block;
	uint32_t n = 0;

	to->q = *q;
	to->last = false;
	block->tile = tiles;
	block->state = chunk->state;
	block->n_q_rows = q->n;
	block->q = scratch->q + (size_t)q->at * words;
	block->depth = words;
	for (; begin < end; begin += TILE_TOKENS) {
		const struct packed_tile *packed = prefill_packed_tile(scratch, (uint32_t)begin);
		struct tile_view *view = &to->view[n];
		enum tile_mask mask = chunk->mask;

		if (begin + TILE_TOKENS <= q->row->kv_first)
			continue;
		if (mask == TILE_PARTIAL && job->args->mod_set->params.blocks == NULL)
			mask = tile_mask_range(job, q, scratch, begin, min_u64(begin + TILE_TOKENS, end));
		mask = tile_mask_bound(q->row, begin, mask);
		if (mask != TILE_EMPTY)
			*view = tile_mask_view(job, q, scratch, &tiles[n], begin, end, mask);
		if (mask == TILE_EMPTY || view->mask == TILE_EMPTY)
			continue;
		if (view->mask == TILE_PARTIAL)
			tile_mask_q_rows(scratch, 0, q->n, &tiles[n]);
		prefill_pack_tile(job, q, view, scratch);
		memset(tiles[n].visible, 0, view->first * sizeof(*tiles[n].visible));
		block->n_tokens[n] = view->n_tokens;
		block->keys[n] = packed->k_panels;
		block->values[n] = packed->v_panels;
		block->token_scale[n] = job->args->pages.layout->params.dtype == PAGED_I8 ? packed->v_scale : NULL;
		n++;
	}
	block->n_tiles = n;
}

static bool
scale_is_moderate(float scale)
{
	return scale > SMALL_SCALE && scale < 1 / SMALL_SCALE;
}

/*
 * Applies score mod and mask to raw scores, and a scale that is not moderate.  Returns the scale that softmax must
 * still apply: a moderate one, with and without a mask mod, so that the bits are the same.
 */
static float
block_apply_mods_to_tile(const struct attention_job *job, struct team_scratch *scratch, struct pipeline_block *at,
			 uint32_t i)
{
	const struct kernel_mod_set *mod_set = job->args->mod_set;
	struct tile_scores *scores = &at->block.tile[i];
	const struct tile_view *view = &at->view[i];
	float scale = score_scale(job, &at->q);

	if ((mod_set != NULL && mod_set->score != NULL) || !scale_is_moderate(scale))
		scale = scores_apply_mods(job, &at->q, 0, view, scratch, scores);
	else if (view->mask == TILE_PARTIAL)
		job->ops->hide(scores, view->first, at->q.n);
	if (scale_is_moderate(scale))
		return scale;
	job->ops->scale(scores, view->first, at->q.n, scale);
	return 1;
}

static void
block_apply_mods(const struct attention_job *job, struct team_scratch *scratch, struct pipeline_block *at)
{
	for (uint32_t i = 0; i < at->block.n_tiles; i++) {
		if (at->block.token_scale[i] != NULL)
			scores_scale_tokens(&at->block.tile[i], at->view[i].first, at->q.n,
					    prefill_packed_tile(scratch, at->view[i].begin)->k_scale);
		at->block.scale[i] = block_apply_mods_to_tile(job, scratch, at, i);
	}
}

/* Accumulates the tokens left out of a block's tiles, with weights rounded to bf16 as in the products. */
static void
block_add_non_finite(const struct attention_job *job, struct team_scratch *scratch, struct pipeline_block *at)
{
	uint16_t weight[TILE_TOKENS];

	for (uint32_t i = 0; i < at->block.n_tiles; i++) {
		uint64_t non_finite = prefill_packed_tile(scratch, at->view[i].begin)->non_finite;
		struct tile_scores *scores = &at->block.tile[i];

		if (non_finite == 0)
			continue;
		for (uint32_t r = at->view[i].first; r < at->q.n; r++) {
			memcpy(weight, scores->score[r], sizeof(weight));
			job->ops->widen(scores->score[r], weight, PAGED_BF16, TILE_TOKENS);
		}
		locate_tile(job, &at->q, &at->view[i], scratch);
		prefill_pad_tokens(job, &scratch->v_tokens, job->v_padded, scratch->v);
		prefill_add_non_finite(job, &at->q, &at->view[i], scratch, scores, at->block.state, non_finite);
	}
}

/* The blocks whose next step is weights or values, or NULL. */
struct pipeline {
	struct pipeline_block *weights, *values;
	uint32_t n_blocks, n_q_tiles; /* so far; query tiles that see nothing are not counted */
};

static void
pipeline_block_end(const struct attention_job *job, struct team_scratch *scratch, const struct pipeline_block *at)
{
	if (at->last)
		combine_state_end(job, &scratch->item_state[at->q.at / job->tile_q_rows], at->q.n, at->block.state);
}

/* Advances all blocks in the pipeline by one step; `block` enters the pipeline, or is NULL. */
static void
pipeline_step(const struct attention_job *job, struct team_scratch *scratch, struct pipeline *pipeline,
	      struct pipeline_block *block)
{
	struct pipeline_block *weights = pipeline->weights, *values = pipeline->values;
	uint64_t non_finite = 0;

	job->prefill_scores->pipeline_step(block != NULL ? &block->block : NULL,
					   weights != NULL ? &weights->block : NULL,
					   values != NULL ? &values->block : NULL);
	if (block != NULL)
		block_apply_mods(job, scratch, block);
	if (values != NULL)
		pipeline_block_end(job, scratch, values);
	pipeline->weights = block;
	pipeline->values = weights;
	for (uint32_t i = 0; weights != NULL && i < weights->block.n_tiles; i++)
		non_finite |= prefill_packed_tile(scratch, weights->view[i].begin)->non_finite;
	if (non_finite == 0)
		return;
	/* Done at once, because the next block's scores overwrite these weights. */
	job->prefill_scores->pipeline_step(NULL, NULL, &weights->block);
	block_add_non_finite(job, scratch, weights);
	pipeline_block_end(job, scratch, weights);
	pipeline->values = NULL;
}

/*
 * Visibility of a chunk for a query tile, given `mask` for the whole item.  Sets the q_rows of the
 * mods if the mods will be evaluated.
 */
static enum tile_mask
q_tile_mask(const struct attention_job *job, const struct q_tile_chunk *chunk, enum tile_mask mask,
	    struct team_scratch *scratch)
{
	const struct kernel_mod_set *mod_set = job->args->mod_set;

	if (mod_set == NULL || chunk->begin >= chunk->end)
		return mask;
	if (mask == TILE_PARTIAL)
		mask = tile_mask_range(job, &chunk->q, scratch, chunk->begin, chunk->end);
	if (mask == TILE_PARTIAL ||
	    (mask == TILE_FULL && (mod_set->score != NULL || chunk->begin < chunk->q.row->kv_first)))
		tile_mask_begin(job, &chunk->q, scratch);
	return mask;
}

static void
prefill_q_tile(const struct attention_job *job, const struct q_tile_chunk *chunk, struct team_scratch *scratch,
	       struct pipeline *pipeline)
{
	struct pipeline_block *last = NULL;

	for (uint64_t begin = chunk->begin; chunk->mask != TILE_EMPTY && begin < chunk->end;
	     begin += BLOCK_TILES * TILE_TOKENS) {
		struct pipeline_block *block = &scratch->block[pipeline->n_blocks % PIPELINE_BLOCKS];

		pipeline_block_begin(job, chunk, begin, scratch, block,
				     scratch->block_scores[pipeline->n_blocks % PIPELINE_SCORES]);
		if (block->block.n_tiles == 0)
			continue;
		block->block.init_acc = last == NULL;
		last = block;
		pipeline->n_blocks++;
		pipeline_step(job, scratch, pipeline, block);
	}
	if (last == NULL)
		return;
	last->last = true;
	pipeline->n_q_tiles++;
}

/* The last query tile goes first: it sees most keys, so the tiles that it packs serve the others. */
void
prefill_chunk(const struct attention_job *job, const struct work_item *item, uint64_t begin, uint64_t end,
	      enum tile_mask mask, struct team_scratch *scratch)
{
	struct pipeline pipeline = { 0 };

	for (uint32_t i = 0; i < KERNEL_KV_CHUNK / TILE_TOKENS; i++)
		scratch->packed[i].n_tokens = 0;
	for (uint32_t i = q_tile_count(job, item); i-- > 0;) {
		const uint32_t slot = pipeline.n_q_tiles % PIPELINE_BLOCKS;
		struct q_tile_chunk chunk = { .q = q_tile_of(job, item, i), .state = &scratch->chunk_state[slot] };

		chunk.begin = begin;
		chunk.end = min_u64(end, q_row_visible_tokens(job, &chunk.q, chunk.q.n - 1));
		chunk.mask = q_tile_mask(job, &chunk, mask, scratch);
		combine_state_begin(job, &scratch->item_state[i], chunk.q.n, chunk.state,
				    scratch->chunk_values + (size_t)slot * BLOCK_Q_ROWS * job->v_padded);
		prefill_q_tile(job, &chunk, scratch, &pipeline);
	}
	while (pipeline.weights != NULL || pipeline.values != NULL)
		pipeline_step(job, scratch, &pipeline, NULL);
}
