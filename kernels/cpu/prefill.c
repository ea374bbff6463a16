/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of many lines in blocks: the strips of a split one after the other,
 * each from its first tokens to its last.  While a block's scores are
 * multiplied, the weights of the one before it are computed, and the values
 * of the one before that are added up.  Tiles stay packed for all strips.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention.h"

/* Scales from it to its reciprocal may go into a product with another factor, which neither end then leaves. */
#define SMALL_SCALE 0x1p-64f

static void
keys_pack(const struct attention_job *job, struct team_scratch *scratch, struct team_packed *to)
{
	struct tile_rows *k = &scratch->k_rows;

	packed_pad(job, k, job->packed_k, scratch->k);
	for (uint32_t i = k->n_tokens; i % job->ops->lanes != 0; i++)
		k->token[i] = k->token[k->n_tokens - 1];
	job->scores_packed->pack_keys(to->k_panels, k);
}

static void
values_locate(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	      uint32_t begin, uint32_t n_tokens, uint64_t wanted)
{
	rows_locate(job, task, LAYOUT_V, begin, n_tokens, wanted, &scratch->v_rows);
	packed_pad(job, &scratch->v_rows, job->v_padded, scratch->v);
}

/* A tile with at least n_tokens, those of `wanted` among them. */
static void
tile_pack(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	  uint32_t begin, uint32_t n_tokens, uint64_t wanted)
{
	struct team_packed *to = &scratch->packed[begin % KERNEL_SPLIT / TILE_TOKENS];

	/* Not what lies past them: pages there may be wanted by nobody. */
	wanted &= ~UINT64_C(0) >> (TILE_TOKENS - n_tokens);
	if (to->n_tokens >= n_tokens && (wanted & ~to->wanted) == 0)
		return;
	/* Blocks on their way may still need what is there. */
	if (to->n_tokens != 0)
		wanted |= to->wanted;
	if (to->n_tokens > n_tokens)
		n_tokens = to->n_tokens;
	rows_locate(job, task, LAYOUT_K, begin, n_tokens, wanted, &scratch->k_rows);
	keys_pack(job, scratch, to);
	values_locate(job, task, scratch, begin, n_tokens, wanted);
	to->wild = job->values_packed->pack_values(to->v_panels, &scratch->v_rows);
	if (job->args->pages.layout->params.dtype == PAGED_I8) {
		scales_load(job, task, LAYOUT_K_SCALE, begin, n_tokens, wanted, to->k_scale);
		scales_load(job, task, LAYOUT_V_SCALE, begin, n_tokens, wanted, to->v_scale);
	}
	to->n_tokens = n_tokens;
	to->wanted = wanted;
}

/* Sight of a block's tiles, which are packed; those of which nothing is seen are left out. */
static void
block_begin(const struct attention_job *job, const struct attention_task *strip, struct team_scratch *scratch,
	    uint64_t number, uint32_t begin, uint32_t end, enum sight_part part)
{
	struct team_block *to = &scratch->block[number % TEAM_BLOCKS];
	struct tile_block *block = &to->block;

	block->n_tiles = 0;
	block->tile = scratch->block_scores[number % TEAM_SCORES];
	for (; begin < end; begin += TILE_TOKENS) {
		const struct team_packed *packed = &scratch->packed[begin % KERNEL_SPLIT / TILE_TOKENS];
		uint32_t i = block->n_tiles;
		struct tile_scores *scores = &block->tile[i];
		struct tile_sight *sight = &to->sight[i];

		*sight = tile_sight(job, strip, scratch, scores, begin, end, part);
		if (sight->part == SIGHT_NOTHING)
			continue;
		tile_pack(job, strip, scratch, begin, sight->end - begin, sight->wanted);
		memset(scores->visible, 0, sight->first * sizeof(*scores->visible));
		to->begin[i] = begin;
		block->n_tokens[i] = sight->end - begin;
		block->keys[i] = packed->k_panels;
		block->values[i] = packed->v_panels;
		block->token_scale[i] = job->args->pages.layout->params.dtype == PAGED_I8 ? packed->v_scale : NULL;
		block->n_tiles++;
	}
}

static bool
scale_is_usual(float scale)
{
	return scale > SMALL_SCALE && scale < 1 / SMALL_SCALE;
}

/* What comes between products and softmax, which multiplies by a usual scale itself: a line's bits must not tell. */
static float
tile_modify(const struct attention_job *job, struct team_scratch *scratch, struct team_block *at, uint32_t i)
{
	const struct attention_task *strip = &at->strip;
	const struct kernel_mods *mods = job->args->mods;
	struct tile_scores *scores = &at->block.tile[i];
	const struct tile_sight *sight = &at->sight[i];
	float scale = score_scale(job, strip);

	if (mods != NULL && (mods->score != NULL || !scale_is_usual(scale)))
		scale = scores_modify(job, strip, scratch, scores, at->begin[i], sight, 0);
	else if (sight->part == SIGHT_SOME)
		job->ops->hide(scores, sight->first, strip->n_lines);
	if (scale_is_usual(scale))
		return scale;
	job->ops->scale(scores, sight->first, strip->n_lines, scale);
	return 1;
}

static void
block_modify(const struct attention_job *job, struct team_scratch *scratch, struct team_block *at)
{
	for (uint32_t i = 0; i < at->block.n_tiles; i++) {
		const struct team_packed *packed = &scratch->packed[at->begin[i] % KERNEL_SPLIT / TILE_TOKENS];

		if (at->block.token_scale[i] != NULL)
			scores_scale(&at->block.tile[i], at->sight[i].first, at->strip.n_lines, packed->k_scale);
		at->block.scale[i] = tile_modify(job, scratch, at, i);
	}
}

/* Values of a tile that were left out for being no finite numbers, line by line for those that see them. */
static void
wild_add(const struct attention_job *job, struct team_scratch *scratch, struct team_block *at, uint32_t i)
{
	uint64_t wild = scratch->packed[at->begin[i] % KERNEL_SPLIT / TILE_TOKENS].wild;
	uint32_t first = at->sight[i].first, n_lines = at->strip.n_lines;
	struct tile_scores *scores = &at->block.tile[i];
	uint16_t weight[TILE_TOKENS];

	if (wild == 0)
		return;
	for (uint32_t line = first; line < n_lines; line++) {
		uint32_t visible = scores->visible[line];

		if (at->sight[i].part == SIGHT_ALL)
			scores->seen[line] = visible == 0 ? 0 : ~UINT64_C(0) >> (TILE_TOKENS - visible);
		scores->seen[line] &= wild;
		scores->rescale[line] = 1;
		memcpy(weight, scores->score[line], sizeof(weight));
		job->ops->widen(scores->score[line], weight, PAGED_BF16, TILE_TOKENS);
	}
	values_locate(job, &at->strip, scratch, at->begin[i], at->block.n_tokens[i], at->sight[i].wanted);
	job->ops->values_seen(scores, at->block.state, first, n_lines, &scratch->v_rows);
}

static bool
block_is_wild(const struct team_scratch *scratch, const struct team_block *at)
{
	uint64_t wild = 0;

	for (uint32_t i = 0; i < at->block.n_tiles; i++)
		wild |= scratch->packed[at->begin[i] % KERNEL_SPLIT / TILE_TOKENS].wild;
	return wild != 0;
}

/* Blocks on their way. */
struct pipeline {
	struct team_block *weights, *values; /* or NULL: that are at it next */
	uint32_t n_blocks, n_strips;         /* so far; strips that see nothing are not on their way */
	enum sight_part part;                /* of the split is seen by all strips together */
	float *partial;
};

static void
block_done(const struct attention_job *job, struct team_scratch *scratch, const struct pipeline *pipeline,
	   const struct team_block *at)
{
	if (at->last)
		strip_done(job, &at->strip, scratch, at->block.state, pipeline->partial);
}

/* A step of all blocks on their way, of which `block` is to begin, or NULL. */
static void
pipeline_step(const struct attention_job *job, struct team_scratch *scratch, struct pipeline *pipeline,
	      struct team_block *block)
{
	struct team_block *weights = pipeline->weights, *values = pipeline->values;

	job->scores_packed->blocks(block != NULL ? &block->block : NULL, weights != NULL ? &weights->block : NULL,
				   values != NULL ? &values->block : NULL);
	if (block != NULL)
		block_modify(job, scratch, block);
	if (values != NULL)
		block_done(job, scratch, pipeline, values);
	pipeline->weights = block;
	pipeline->values = weights;
	if (weights == NULL || !block_is_wild(scratch, weights))
		return;
	/* At once, for the next block will have its scores where these weights are. */
	job->scores_packed->blocks(NULL, NULL, &weights->block);
	for (uint32_t i = 0; i < weights->block.n_tiles; i++)
		wild_add(job, scratch, weights, i);
	block_done(job, scratch, pipeline, weights);
	pipeline->values = NULL;
}

/* What a strip sees of a split, of which its task sees `part`.  Mods hear of its lines if they will be asked. */
static enum sight_part
strip_sight(const struct attention_job *job, const struct attention_task *strip, struct team_scratch *scratch,
	    uint32_t begin, uint32_t end, enum sight_part part)
{
	const struct kernel_mods *mods = job->args->mods;
	bool listed = mods->params.blocks != NULL;

	if (listed)
		sight_begin(job, strip, scratch);
	if (part == SIGHT_SOME)
		part = sight_split(job, strip, scratch, begin, end);
	if (!listed && (part == SIGHT_SOME || (part == SIGHT_ALL && mods->score != NULL)))
		sight_begin(job, strip, scratch);
	return part;
}

static void
strip_attend(const struct attention_job *job, const struct attention_task *strip, uint64_t split,
	     struct team_scratch *scratch, struct pipeline *pipeline)
{
	uint32_t begin = (uint32_t)(split * KERNEL_SPLIT), end = begin + KERNEL_SPLIT;
	uint32_t most = line_visible(job, strip, strip->n_lines - 1), number = pipeline->n_strips % TEAM_BLOCKS;
	uint32_t words = job->packed_k / job->scores_packed->word_elements;
	struct tile_state *state = &scratch->strip[number];
	enum sight_part part = SIGHT_ALL;
	struct team_block *block = NULL;

	end = end < most ? end : most;
	state_clear(job, state, BLOCK_STRIP,
		    strip_values(job, strip, scratch, pipeline->partial, scratch->strip_values[number]));
	if (job->args->mods != NULL && begin < end)
		part = strip_sight(job, strip, scratch, begin, end, pipeline->part);
	for (; part != SIGHT_NOTHING && begin < end; begin += BLOCK_TILES * TILE_TOKENS) {
		uint32_t past = begin + BLOCK_TILES * TILE_TOKENS;
		struct team_block *next = &scratch->block[pipeline->n_blocks % TEAM_BLOCKS];

		block_begin(job, strip, scratch, pipeline->n_blocks, begin, past < end ? past : end, part);
		if (next->block.n_tiles == 0)
			continue;
		next->strip = *strip;
		next->last = false;
		next->block.fresh = block == NULL;
		next->block.state = state;
		next->block.n_lines = strip->n_lines;
		next->block.q = scratch->q + (size_t)strip->strip * words;
		next->block.depth = words;
		block = next;
		pipeline->n_blocks++;
		pipeline_step(job, scratch, pipeline, block);
	}
	if (block == NULL) {
		strip_done(job, strip, scratch, state, pipeline->partial);
		return;
	}
	block->last = true;
	pipeline->n_strips++;
}

/* Asked once for all strips; a block mask says it of one strip at a time. */
static enum sight_part
task_sight(const struct attention_job *job, const struct attention_piece *piece, struct team_scratch *scratch)
{
	const struct kernel_mods *mods = job->args->mods;
	uint64_t begin = piece->split * KERNEL_SPLIT;
	uint64_t end = least(begin + KERNEL_SPLIT, line_visible(job, &piece->task, piece->task.n_lines - 1));

	if (mods == NULL || mods->params.blocks != NULL || begin >= end)
		return SIGHT_SOME;
	return sight_split(job, &piece->task, scratch, begin, end);
}

void
whole_attend(const struct attention_job *job, const struct attention_piece *piece, struct team_scratch *scratch,
	     float *partial)
{
	struct pipeline pipeline = { .part = task_sight(job, piece, scratch), .partial = partial };

	for (uint32_t i = 0; i < KERNEL_SPLIT / TILE_TOKENS; i++)
		scratch->packed[i].n_tokens = 0;
	for (uint32_t i = strips_of(&piece->task); i-- > 0;) {
		struct attention_task strip = strip_of(&piece->task, i);

		strip_attend(job, &strip, piece->split, scratch, &pipeline);
	}
	while (pipeline.weights != NULL || pipeline.values != NULL)
		pipeline_step(job, scratch, &pipeline, NULL);
}
