/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/tile_mask.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/mod_set.h"
#include "kernels/cpu/q_rows.h"

static int32_t
q_row_idx(const struct attention_job *job, const struct q_tile *q, uint32_t i)
{
	return (int32_t)(q->row->q_base + q_row_query(job, q, i));
}

/* The first key at or past `begin` that kv_first does not hide. */
static uint64_t
mask_first_key(const struct q_tile *q, uint64_t begin)
{
	return begin < q->row->kv_first ? q->row->kv_first : begin;
}

/*
 * Lists of the block mask.
 */

static struct block_mask_list
mask_list_of(const struct attention_job *job, const struct q_tile *q, uint32_t head, uint64_t q_block,
	     enum block_mask_kind kind)
{
	const struct block_mask *mask = job->args->mod_set->params.blocks;
	uint32_t row = mask->shape.n_rows == 1 ? 0 : (uint32_t)(q->row - job->args->rows);

	if (q_block >= block_mask_q_blocks(mask, row))
		return (struct block_mask_list){ NULL, 0 };
	return block_mask_list(mask, kind, row, head, q_block);
}

/* Index of the first entry at or past `block`; the list must ascend. */
static uint64_t
mask_list_find(const struct block_mask_list *list, uint64_t block)
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

/* First key of the first block that ends after `begin`, or `next` if none begins before `next`. */
static uint64_t
mask_list_next(const struct block_mask *blocks, const struct block_mask_list *list, uint64_t begin, uint64_t next)
{
	uint64_t size = blocks->shape.kv_block;

	for (uint64_t i = blocks->ascending ? mask_list_find(list, begin / size) : 0; i < list->n; i++) {
		uint64_t first = list->blocks[i] * size;

		if (first + size > begin && first < next)
			next = first;
		if (blocks->ascending)
			break;
	}
	return next;
}

/*
 * The first key in [begin, end), at or past kv_first, that is in a block of some q_row's lists; at or past `end` if
 * there is none.  The result may be too small, never too large: it includes heads of the group that have no q_row in
 * the tile.
 */
static uint64_t
mask_blocks_next(const struct attention_job *job, const struct q_tile *q, uint64_t begin, uint64_t end)
{
	const struct block_mask *blocks = job->args->mod_set->params.blocks;
	uint32_t n_heads = blocks->shape.n_heads == 1 ? 1 : job->group, first_head = q->kv_head * job->group;
	uint64_t q_block = q_row_query(job, q, 0) / blocks->shape.q_block, next = end;

	begin = mask_first_key(q, begin);
	for (; q_block <= q_row_query(job, q, q->n - 1) / blocks->shape.q_block; q_block++)
		for (uint32_t i = 0; i < n_heads * BLOCK_MASK_N_KINDS; i++) {
			struct block_mask_list list = mask_list_of(job, q, first_head + i / BLOCK_MASK_N_KINDS, q_block,
								   (enum block_mask_kind)(i % BLOCK_MASK_N_KINDS));

			next = mask_list_next(blocks, &list, begin, next);
		}
	return next > begin ? next : begin;
}

static bool
mask_same_list(const struct attention_job *job, const struct q_tile *q, uint32_t a, uint32_t b)
{
	const struct block_mask_shape *shape = &job->args->mod_set->params.blocks->shape;

	return q_row_query(job, q, a) / shape->q_block == q_row_query(job, q, b) / shape->q_block &&
	       (shape->n_heads == 1 || q_row_head(job, q, a) == q_row_head(job, q, b));
}

/*
 * Sets owner[i], the first q_row that has the same list as q_row i.  Heads are innermost, so an earlier q_row with that
 * list exists only if q_row i - 1 or i - group has it.
 */
static void
mask_find_owners(const struct attention_job *job, const struct q_tile *q, struct mask_q_rows *q_rows)
{
	for (uint32_t i = 0; i < q->n; i++) {
		q_rows->owner[i] = (uint8_t)i;
		if (i >= 1 && mask_same_list(job, q, i, i - 1))
			q_rows->owner[i] = q_rows->owner[i - 1];
		else if (i >= job->group && mask_same_list(job, q, i, i - job->group))
			q_rows->owner[i] = q_rows->owner[i - job->group];
	}
}

/* Sets bits [from, to) of a chunk. */
static void
bits_set_range(uint64_t *words, uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at = (at / 64 + 1) * 64) {
		uint64_t n = (at / 64 + 1) * 64 < to ? 64 - at % 64 : to - at;

		words[at / 64] |= (n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << at % 64;
	}
}

/* Marks the tokens of a chunk that are in a list's blocks. */
static void
mask_list_mark(const struct block_mask *blocks, const struct block_mask_list *list, uint64_t begin, uint64_t *words)
{
	uint64_t size = blocks->shape.kv_block, end = begin + KERNEL_KV_CHUNK;

	memset(words, 0, CHUNK_TILES * sizeof(*words));
	for (uint64_t i = blocks->ascending ? mask_list_find(list, begin / size) : 0; i < list->n; i++) {
		uint64_t first = list->blocks[i] * size, past = first + size;

		if (first >= end && blocks->ascending)
			break;
		if (first < end && past > begin)
			bits_set_range(words, first > begin ? first - begin : 0,
				       past < end ? past - begin : KERNEL_KV_CHUNK);
	}
}

static void
mask_chunk_mark(const struct attention_job *job, const struct q_tile *q, struct mask_q_rows *q_rows, uint64_t begin)
{
	const struct block_mask *blocks = job->args->mod_set->params.blocks;

	if (q_rows->marked == begin)
		return;
	q_rows->marked = begin;
	for (uint32_t i = 0; i < q->n; i++) {
		uint64_t q_block = q_row_query(job, q, i) / blocks->shape.q_block;
		uint32_t head = q_row_head(job, q, i);
		struct block_mask_list full, partial;

		if (q_rows->owner[i] != i)
			continue;
		full = mask_list_of(job, q, head, q_block, BLOCK_MASK_FULL);
		partial = mask_list_of(job, q, head, q_block, BLOCK_MASK_PARTIAL);
		mask_list_mark(blocks, &full, begin, q_rows->full[i]);
		mask_list_mark(blocks, &partial, begin, q_rows->partial[i]);
	}
}

/* Visibility by a mask mod, through interval analysis, of keys at or past kv_first; EMPTY if there are none. */
static enum tile_mask
mask_interval(const struct attention_job *job, const struct q_tile *q, const struct team_scratch *scratch,
	      uint64_t begin, uint64_t end)
{
	uint32_t last = q->n - 1, first_head = q->kv_head * job->group;
	uint32_t others = (q->n_heads - 1) * job->group; /* query heads of the other KV heads */
	bool one_query = q_row_query(job, q, 0) == q_row_query(job, q, last);
	int32_t b = q->row->b;
	struct mod_box box = {
		.b = { b, b },
		.h = { (int32_t)(one_query ? q_row_head(job, q, 0) : first_head),
		       (int32_t)((one_query ? q_row_head(job, q, last) : first_head + job->group - 1) + others) },
		.q_idx = { q_row_idx(job, q, 0), q_row_idx(job, q, last) },
		.kv_idx = { (int32_t)mask_first_key(q, begin), (int32_t)(end - 1) },
	};

	if (q->row->kv_first >= end)
		return TILE_EMPTY;
	switch (mod_interval_box(job->args->mod_set->intervals[scratch->thread], &box)) {
	case MOD_ALL_FALSE:
		return TILE_EMPTY;
	case MOD_ALL_TRUE:
		return TILE_FULL;
	case MOD_UNKNOWN:
		break;
	}
	return TILE_PARTIAL;
}

/* Skips chunks that are certainly not seen: with exponentially growing steps, then with shrinking ones. */
static uint64_t
mask_interval_next(const struct attention_job *job, const struct q_tile *q, const struct team_scratch *scratch,
		   uint64_t begin, uint64_t end)
{
	uint64_t step = KERNEL_KV_CHUNK;
	bool growing = true;

	while (begin < end) {
		if (mask_interval(job, q, scratch, begin, min_u64(begin + step, end)) == TILE_EMPTY) {
			begin += step;
			step *= growing ? 2 : 1;
		} else if (step > KERNEL_KV_CHUNK) {
			step /= 2;
			growing = false;
		} else {
			break;
		}
	}
	return begin;
}

/* Visibility by block mask and mask mod together. */

void
tile_mask_begin(const struct attention_job *job, const struct q_tile *q, struct team_scratch *scratch)
{
	const struct kernel_mod_set *mod_set = job->args->mod_set;
	int32_t b = q->row->b;
	uint32_t n = q->n_heads * q->n;
	struct mask_q_rows *q_rows = &scratch->mask;

	for (uint32_t i = 0; i < n; i++) {
		q_rows->h[i] = (int32_t)(q_row_head(job, q, i % q->n) + i / q->n * job->group);
		q_rows->q_idx[i] = q_row_idx(job, q, i % q->n);
	}
	if (mod_set->mask != NULL)
		mod_vm_set_q_rows(mod_set->mask[scratch->thread], b, q_rows->h, q_rows->q_idx, n);
	if (mod_set->score != NULL)
		mod_vm_set_q_rows(mod_set->score[scratch->thread], b, q_rows->h, q_rows->q_idx, n);
	q_rows->marked = UINT64_MAX;
	if (mod_set->params.blocks != NULL)
		mask_find_owners(job, q, q_rows);
}

enum tile_mask
tile_mask_range(const struct attention_job *job, const struct q_tile *q, const struct team_scratch *scratch,
		uint64_t begin, uint64_t end)
{
	const struct kernel_mod_set *mod_set = job->args->mod_set;

	if (mod_set != NULL && mod_set->params.blocks != NULL)
		return mask_blocks_next(job, q, begin, end) < end ? TILE_PARTIAL : TILE_EMPTY;
	return mod_set == NULL || mod_set->mask == NULL ? TILE_FULL : mask_interval(job, q, scratch, begin, end);
}

/* The first chunk at or after `begin` (a chunk boundary) in which a key may be seen. */
static uint64_t
mask_chunk_next(const struct attention_job *job, const struct q_tile *q, const struct team_scratch *scratch,
		uint64_t begin, uint64_t end)
{
	const struct kernel_mod_set *mod_set = job->args->mod_set;

	if (mod_set->params.blocks != NULL) {
		uint64_t next = mask_blocks_next(job, q, begin, end);

		return next < end ? next / KERNEL_KV_CHUNK * KERNEL_KV_CHUNK : end;
	}
	return mod_set->mask != NULL ? mask_interval_next(job, q, scratch, begin, end) : begin;
}

struct kv_tile
tile_mask_next(const struct attention_job *job, const struct q_tile *q, const struct team_scratch *scratch,
	       uint64_t end, struct kv_tile tile)
{
	const struct kernel_mod_set *mod_set = job->args->mod_set;
	const uint64_t first = q->row->kv_first / TILE_TOKENS * TILE_TOKENS;

	if (mod_set == NULL) {
		tile.begin = tile.begin < first ? first : tile.begin;
		tile.chunk = TILE_FULL;
		tile.mask = tile_mask_bound(q->row, tile.begin, TILE_FULL);
		return tile;
	}
	for (; tile.begin < end; tile.begin += TILE_TOKENS) {
		if (tile.begin % KERNEL_KV_CHUNK == 0) {
			tile.begin = mask_chunk_next(job, q, scratch, tile.begin, end);
			if (tile.begin >= end)
				break;
			tile.chunk = mod_set->params.blocks != NULL
					     ? TILE_PARTIAL
					     : tile_mask_range(job, q, scratch, tile.begin,
							       min_u64(tile.begin + KERNEL_KV_CHUNK, end));
		}
		if (tile.begin < first)
			continue;
		tile.mask = tile.chunk;
		/* With a block mask, tile_mask_view() determines the tile's mask from its bits. */
		if (tile.mask == TILE_PARTIAL && mod_set->params.blocks == NULL)
			tile.mask = mask_interval(job, q, scratch, tile.begin, min_u64(tile.begin + TILE_TOKENS, end));
		if (tile.mask != TILE_EMPTY)
			break;
	}
	tile.mask = tile_mask_bound(q->row, tile.begin, tile.mask);
	return tile;
}

/*
 * Visible tokens of each q_row in a PARTIAL tile: those at or past kv_first of full blocks, and of partial blocks
 * those for which the mod is true.
 */
static void
mask_evaluate_tokens(const struct attention_job *job, const struct q_tile *q, struct team_scratch *scratch,
		     const struct tile_scores *scores, const struct tile_view *view)
{
	const struct kernel_mod_set *mod_set = job->args->mod_set;
	const bool blocks = mod_set != NULL && mod_set->params.blocks != NULL;
	const uint32_t kv_first = q->row->kv_first;
	const uint64_t kept = kv_first > view->begin ? token_bits(kv_first - view->begin, TILE_TOKENS) : ~UINT64_C(0);
	struct mask_q_rows *q_rows = &scratch->mask;
	uint32_t tile = view->begin % KERNEL_KV_CHUNK / TILE_TOKENS, n = q->n_heads * q->n;
	uint64_t unknown[TILE_Q_ROWS], any = 0;

	if (blocks)
		mask_chunk_mark(job, q, q_rows, view->begin / KERNEL_KV_CHUNK * KERNEL_KV_CHUNK);
	for (uint32_t r = 0; r < n; r++) {
		uint32_t i = r % q->n;
		uint64_t within = i < view->first ? 0 : token_bits(0, scores->visible[i]) & kept;
		uint64_t full = 0, partial = ~UINT64_C(0);

		if (blocks) {
			uint32_t owner = q_rows->owner[i];

			full = q_rows->full[owner][tile];
			partial = q_rows->partial[owner][tile] & ~full;
		}
		q_rows->seen[r] = full & within;
		unknown[r] = partial & within;
		any |= unknown[r];
	}
	if (any != 0 && mod_set != NULL && mod_set->mask != NULL)
		mod_vm_mask(mod_set->mask[scratch->thread], (int32_t)view->begin, view->n_tokens, unknown, unknown);
	for (uint32_t r = 0; r < n; r++)
		q_rows->seen[r] |= unknown[r];
}

struct tile_view
tile_mask_view(const struct attention_job *job, const struct q_tile *q, struct team_scratch *scratch,
	       struct tile_scores *scores, uint64_t begin, uint64_t end, enum tile_mask mask)
{
	struct tile_view view = { .begin = (uint32_t)begin,
				  .n_tokens = (uint32_t)min_u64(end - begin, TILE_TOKENS),
				  .mask = mask,
				  .wanted = ~UINT64_C(0) };
	const uint32_t tile_end = view.begin + view.n_tokens;
	const bool all = q_row_visible_tokens(job, q, 0) >= tile_end;
	struct mask_q_rows *q_rows = &scratch->mask;
	uint64_t seen = 0, unseen = 0;

	while (!all && q_row_visible_tokens(job, q, view.first) <= begin)
		view.first++;
	for (uint32_t i = view.first; i < q->n; i++)
		scores->visible[i] =
			(uint32_t)min_u64(all ? tile_end : q_row_visible_tokens(job, q, i), tile_end) - view.begin;
	if (mask != TILE_PARTIAL)
		return view;
	mask_evaluate_tokens(job, q, scratch, scores, &view);
	for (uint32_t r = 0; r < q->n_heads * q->n; r++) {
		seen |= q_rows->seen[r];
		if (r % q->n >= view.first)
			unseen |= ~q_rows->seen[r] & token_bits(0, scores->visible[r % q->n]);
		q_rows->visible[r] = q_rows->seen[r] == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(q_rows->seen[r]);
	}
	if (unseen == 0) {
		view.mask = TILE_FULL;
		return view;
	}
	view.wanted = seen;
	view.mask = seen == 0 ? TILE_EMPTY : TILE_PARTIAL;
	return view;
}

void
tile_mask_q_rows(const struct team_scratch *scratch, uint32_t at, uint32_t n, struct tile_scores *scores)
{
	memcpy(scores->visible, scratch->mask.visible + at, n * sizeof(*scores->visible));
	memcpy(scores->seen, scratch->mask.seen + at, n * sizeof(*scores->seen));
}
