/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/tile_mask.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/attention.h"

static uint32_t
task_row(const struct attention_job *job, const struct attention_task *task)
{
	return (uint32_t)(task->row - job->args->rows);
}

static int32_t
line_q_idx(const struct attention_job *job, const struct attention_task *task, uint32_t line)
{
	return (int32_t)(task->row->q_base + line_query_row(job, task, line));
}

/*
 * Lists of the block mask.
 */

static bool
same_list(const struct attention_job *job, const struct attention_task *task, uint32_t a, uint32_t b)
{
	const struct block_mask_shape *shape = &job->args->mods->params.blocks->shape;

	return line_query_row(job, task, a) / shape->q_block == line_query_row(job, task, b) / shape->q_block &&
	       (shape->n_heads == 1 || line_head(job, task, a) == line_head(job, task, b));
}

/* Heads are innermost: the same list was last seen one line or one group ago, or not yet. */
static void
owners_find(const struct attention_job *job, const struct attention_task *task, struct sight *sight)
{
	for (uint32_t line = 0; line < task->n_lines; line++) {
		sight->owner[line] = (uint8_t)line;
		if (line >= 1 && same_list(job, task, line, line - 1))
			sight->owner[line] = sight->owner[line - 1];
		else if (line >= job->group && same_list(job, task, line, line - job->group))
			sight->owner[line] = sight->owner[line - job->group];
	}
}

static struct block_mask_list
line_list(const struct attention_job *job, const struct attention_task *task, uint32_t line, enum block_mask_kind kind)
{
	const struct block_mask *mask = job->args->mods->params.blocks;
	uint64_t q_block = line_query_row(job, task, line) / mask->shape.q_block;
	uint32_t row = mask->shape.n_rows == 1 ? 0 : task_row(job, task);

	if (q_block >= block_mask_q_blocks(mask, row))
		return (struct block_mask_list){ NULL, 0 };
	return block_mask_list(mask, kind, row, line_head(job, task, line), q_block);
}

/* Index of the first block at or past `block`. */
static uint64_t
list_find(const struct block_mask_list *list, uint64_t block)
{
	uint64_t low = 0, high = list->n;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (list->blocks[middle] < block)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Bits [from, to) of a split. */
static void
words_set(uint64_t *words, uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at = (at / 64 + 1) * 64) {
		uint64_t n = (at / 64 + 1) * 64 < to ? 64 - at % 64 : to - at;

		words[at / 64] |= (n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << at % 64;
	}
}

/* The tokens of a split that a list's blocks hold; false: none. */
static bool
list_mark(const struct block_mask *blocks, const struct block_mask_list *list, uint64_t begin, uint64_t *words)
{
	uint64_t size = blocks->shape.kv_block, end = begin + KERNEL_SPLIT;
	bool any = false;

	memset(words, 0, SIGHT_TILES * sizeof(*words));
	for (uint64_t i = blocks->ascending ? list_find(list, begin / size) : 0; i < list->n; i++) {
		uint64_t first = list->blocks[i] * size, past = first + size;

		if (first >= end && blocks->ascending)
			break;
		if (first >= end || past <= begin)
			continue;
		words_set(words, first > begin ? first - begin : 0, past < end ? past - begin : KERNEL_SPLIT);
		any = true;
	}
	return any;
}

static bool
split_mark(const struct attention_job *job, const struct attention_task *task, struct sight *sight, uint64_t begin)
{
	const struct block_mask *blocks = job->args->mods->params.blocks;

	if (sight->marked == begin)
		return sight->any;
	sight->marked = begin;
	sight->any = false;
	for (uint32_t line = 0; line < task->n_lines; line++) {
		struct block_mask_list full, partial;

		if (sight->owner[line] != line)
			continue;
		full = line_list(job, task, line, BLOCK_MASK_FULL);
		partial = line_list(job, task, line, BLOCK_MASK_PARTIAL);
		sight->any |= list_mark(blocks, &full, begin, sight->full[line]);
		sight->any |= list_mark(blocks, &partial, begin, sight->partial[line]);
	}
	return sight->any;
}

/*
 * The mask mod by intervals.
 */

static enum sight_part
interval(const struct attention_job *job, const struct attention_task *task, uint64_t begin, uint64_t end)
{
	uint32_t last = task->n_lines - 1, first_head = task->kv_head * job->group;
	uint32_t others = (task->n_heads - 1) * job->group; /* query heads of the task's other KV heads */
	bool one_row = line_query_row(job, task, 0) == line_query_row(job, task, last);
	int32_t b = (int32_t)task_row(job, task);
	struct mod_box box = {
		.b = { b, b },
		.h = { (int32_t)(one_row ? line_head(job, task, 0) : first_head),
		       (int32_t)((one_row ? line_head(job, task, last) : first_head + job->group - 1) + others) },
		.q_idx = { line_q_idx(job, task, 0), line_q_idx(job, task, last) },
		.kv_idx = { (int32_t)begin, (int32_t)(end - 1) },
	};

	assert(begin < end);
	switch (mod_interval(job->args->mods->params.mask, &box)) {
	case MOD_ALL_FALSE:
		return SIGHT_NOTHING;
	case MOD_ALL_TRUE:
		return SIGHT_ALL;
	case MOD_UNKNOWN:
		break;
	}
	return SIGHT_SOME;
}

static uint64_t
splits_end(const struct attention_job *job, const struct attention_task *task, uint64_t split)
{
	uint64_t most = line_visible(job, task, task->n_lines - 1);

	return split * KERNEL_SPLIT < most ? split * KERNEL_SPLIT : most;
}

/* Ever larger steps over what is surely not seen, then ever smaller ones. */
static uint64_t
interval_next(const struct attention_job *job, const struct attention_task *task, uint64_t split, uint64_t n_splits)
{
	uint64_t step = 1;
	bool growing = true;

	while (split < n_splits) {
		uint64_t end = splits_end(job, task, split + step);

		if (interval(job, task, split * KERNEL_SPLIT, end) == SIGHT_NOTHING) {
			split += step;
			step *= growing ? 2 : 1;
		} else if (step > 1) {
			step /= 2;
			growing = false;
		} else {
			return split;
		}
	}
	return n_splits;
}

/*
 * Both.
 */

void
sight_begin(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch)
{
	const struct kernel_mods *mods = job->args->mods;
	int32_t b = (int32_t)task_row(job, task);
	uint32_t n = task->n_heads * task->n_lines;
	struct sight *sight = &scratch->sight;
	struct mod_vm *mask = mods->mask == NULL ? NULL : mods->mask[scratch->thread];
	struct mod_vm *score = mods->score == NULL ? NULL : mods->score[scratch->thread];

	for (uint32_t line = 0; line < n; line++) {
		uint32_t other = line / task->n_lines, within = line % task->n_lines;

		sight->h[line] = (int32_t)(line_head(job, task, within) + other * job->group);
		sight->q_idx[line] = line_q_idx(job, task, within);
	}
	if (mask != NULL)
		mod_vm_lines(mask, b, sight->h, sight->q_idx, n);
	if (score != NULL)
		mod_vm_lines(score, b, sight->h, sight->q_idx, n);
	sight->marked = UINT64_MAX;
	if (mods->params.blocks != NULL)
		owners_find(job, task, sight);
}

uint64_t
sight_next(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	   uint64_t split, uint64_t n_splits)
{
	const struct kernel_mods *mods = job->args->mods;

	if (mods->params.blocks != NULL)
		while (split < n_splits && !split_mark(job, task, &scratch->sight, split * KERNEL_SPLIT))
			split++;
	else if (mods->mask != NULL)
		split = interval_next(job, task, split, n_splits);
	return split;
}

enum sight_part
sight_split(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	    uint64_t begin, uint64_t end)
{
	const struct kernel_mods *mods = job->args->mods;

	if (mods->params.blocks != NULL)
		return split_mark(job, task, &scratch->sight, begin) ? SIGHT_SOME : SIGHT_NOTHING;
	return mods->mask == NULL ? SIGHT_ALL : interval(job, task, begin, end);
}

/* Where the mod is to be asked, and where nothing needs to be. */
struct line_words {
	uint64_t full, partial;
};

static struct line_words
line_words(const struct kernel_mods *mods, const struct sight *sight, uint32_t line, uint32_t tile)
{
	uint32_t owner = sight->owner[line];

	if (mods->params.blocks == NULL)
		return (struct line_words){ .partial = ~UINT64_C(0) };
	return (struct line_words){ .full = sight->full[owner][tile], .partial = sight->partial[owner][tile] };
}

/* Of keys [begin, end): what a line sees for certain, and what the mod is asked about; returns the union of the latter.
 */
static uint64_t
tile_words(const struct attention_task *task, const struct kernel_mods *mods, const struct team_scratch *scratch,
	   const struct tile_scores *scores, uint32_t begin, uint32_t first, uint64_t *certain, uint64_t *asked)
{
	uint32_t tile = begin % KERNEL_SPLIT / TILE_TOKENS;
	uint64_t any = 0;

	for (uint32_t line = 0; line < task->n_lines; line++) {
		struct line_words words = { 0, 0 };
		uint64_t within = 0;

		if (line >= first) {
			words = line_words(mods, &scratch->sight, line, tile);
			within = ~UINT64_C(0) >> (TILE_TOKENS - scores->visible[line]);
		}
		certain[line] = words.full & within;
		asked[line] = words.partial & ~words.full & within;
		any |= asked[line];
	}
	return any;
}

enum sight_part
sight_tile(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
	   struct tile_scores *scores, uint32_t begin, uint32_t end, uint32_t first, uint64_t *seen_by_any)
{
	const struct kernel_mods *mods = job->args->mods;
	uint64_t any = 0, unseen = 0, certain[TILE_LINES], asked[TILE_LINES];

	if (mods->params.blocks == NULL) {
		enum sight_part part = interval(job, task, begin, end);

		if (part != SIGHT_SOME)
			return part;
	}
	if (tile_words(task, mods, scratch, scores, begin, first, certain, asked) != 0 && mods->mask != NULL)
		mod_vm_mask(mods->mask[scratch->thread], (int32_t)begin, end - begin, asked, asked);
	for (uint32_t line = 0; line < task->n_lines; line++)
		scores->seen[line] = certain[line] | asked[line];
	for (uint32_t line = first; line < task->n_lines; line++) {
		any |= scores->seen[line];
		unseen |= ~scores->seen[line] & ~UINT64_C(0) >> (TILE_TOKENS - scores->visible[line]);
	}
	if (unseen == 0)
		return SIGHT_ALL;
	for (uint32_t line = first; line < task->n_lines; line++)
		scores->visible[line] =
			scores->seen[line] == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(scores->seen[line]);
	*seen_by_any = any;
	return any == 0 ? SIGHT_NOTHING : SIGHT_SOME;
}
