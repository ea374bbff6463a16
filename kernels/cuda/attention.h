/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention.h - code shared by the attention kernels: work items, lines, masking, results
 *
 * A line is one (query row, query head) pair of the GQA group of a KV head:
 * a row of M in a matrix product.  The lines of a row are ordered by query row,
 * then by head.  A work item (`item`) is one split of the KV tokens for one tile
 * of lines.  Blocks take items by number, with a grid stride.
 *
 * If a tile has one split, the item's block writes the result.  Else (split-KV)
 * each block stores its partial softmax state and sums, and the tile's block
 * that ends last combines the splits in logical order.
 *
 * Mods: a module is compiled for one pair of mods.  ATTENTION_MOD names a
 * file that defines them, which is included here:
 *
 *	struct attention_mod {
 *		static constexpr bool has_score = true, has_mask = true;
 *		ATTENTION_MOD_FUNCTION float score(float score, int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx,
 *						   const void *args);
 *		ATTENTION_MOD_FUNCTION bool mask(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx,
 *						 const void *args);
 *	};
 *
 * `args` is cuda_attention_params.mod.  mask() is called only for keys that
 * the lengths and the block mask do not exclude.  ATTENTION_SUFFIX, if defined,
 * is appended to the kernels' names, so that several modules can be in one
 * program.  If ATTENTION_ONE is defined, only kernels for which
 * ATTENTION_ONLY_<name> is 1 are compiled, which saves time at run time.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_H
#define PAGED_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/plan_lookup.h"
#include "kernels/cuda/softmax.h"

/* Unroll the loop that follows, so that the arrays it indexes stay in registers; or ROLL: keep the code small. */
#if SIMT_DEVICE
#define ATTENTION_UNROLL _Pragma("unroll")
#define ATTENTION_UNROLL_2 _Pragma("unroll 2")
#define ATTENTION_UNROLL_4 _Pragma("unroll 4")
#define ATTENTION_ROLL _Pragma("unroll 1")
#else
#define ATTENTION_UNROLL
#define ATTENTION_UNROLL_2
#define ATTENTION_UNROLL_4
#define ATTENTION_ROLL
#endif

#define ATTENTION_MOD_FUNCTION SIMT_MEMBER
#ifdef ATTENTION_MOD
#include ATTENTION_MOD
#else
struct attention_mod {
	static constexpr bool has_score = false, has_mask = false;

	ATTENTION_MOD_FUNCTION float
	score(float score, int32_t, int32_t, int32_t, int32_t, const void *)
	{
		return score;
	}

	ATTENTION_MOD_FUNCTION bool
	mask(int32_t, int32_t, int32_t, int32_t, const void *)
	{
		return true;
	}
};
#endif

#ifdef ATTENTION_ONE
#define ATTENTION_HAS(name) ATTENTION_ONLY_##name
#else
#define ATTENTION_HAS(name) 1
#endif

#ifndef ATTENTION_SUFFIX
#define ATTENTION_SUFFIX
#endif
#define ATTENTION_JOIN_(a, b) a##b
#define ATTENTION_JOIN(a, b) ATTENTION_JOIN_(a, b)
#define ATTENTION_NAME(name) ATTENTION_JOIN(name, ATTENTION_SUFFIX)
/* SIMT_KERNEL may paste its arguments, so the name is expanded first. */
#define ATTENTION_KERNEL_(name, threads, min_blocks) SIMT_KERNEL(name, cuda_attention_params, threads, min_blocks)
#define ATTENTION_KERNEL_OF(name, threads, min_blocks) ATTENTION_KERNEL_(name, threads, min_blocks)
#define ATTENTION_KERNEL(name, min_blocks) ATTENTION_KERNEL_OF(name, CUDA_ATTENTION_THREADS, min_blocks)

#define ATTENTION_WORDS (CUDA_SEGMENT / 32)

/** A work item: one split of a tile of lines. */
struct attention_item {
	int64_t q_base;
	uint32_t row, kv_head;
	int32_t b; /* the row's batch index, for mods */
	uint32_t q_start, q_len, kv_len;
	uint32_t tile_lines;
	uint32_t first_line, n_lines; /* the tile's range in the row's lines */
	uint32_t begin, end;      /* the split's tokens; `end` is clipped to those visible to the tile's last line */
	uint32_t split, n_splits; /* n_splits counts the splits that the tile sees; at least 1 */
	uint32_t group;           /* index of the tile's counter, used if n_splits > 1 */
	uint32_t first_partial;   /* first_line of the row's struct cuda_row */
};

/**
 * The block mask of one segment, as one bit per token for each line.  Lines with the same list share the bits of the
 * first such line (attention_line.owner).
 */
struct attention_marks {
	uint32_t full[CUDA_MAX_TILE_LINES][ATTENTION_WORDS];
	uint32_t partial[CUDA_MAX_TILE_LINES][ATTENTION_WORDS];
	uint32_t any[ATTENTION_WORDS];
};

/** The beginning of each kernel's shared memory: the block's current work item. */
struct attention_block {
	attention_item item;
	attention_marks marks; /* of the current segment, if there is a block mask */
	bool taken;
	uint32_t last;
};

/** A line, in its threads' registers. */
struct attention_line {
	uint32_t visible; /* keys [0, visible) pass lengths and causality; 0 past the tile's last line */
	uint32_t owner;   /* the line whose marks apply to this line */
	int32_t h, q_idx;
};

/* The number of keys that query row i sees by lengths and causality. */
SIMT_FUNCTION uint32_t
row_visible(const cuda_attention_params &p, const attention_item &item, uint32_t i)
{
	int64_t end;

	if (!p.causal || item.q_base >= (int64_t)item.kv_len)
		return item.kv_len;
	end = item.q_base + (int64_t)i + 1;
	if (end <= 0)
		return 0;
	return end < (int64_t)item.kv_len ? (uint32_t)end : item.kv_len;
}

SIMT_FUNCTION uint32_t
attention_group(const cuda_attention_params &p)
{
	return p.n_q_heads / p.pages.n_kv_heads;
}

/* Find the work item with this number.  Returns false if the split begins past the tokens that its tile sees. */
SIMT_FUNCTION bool
item_find(const cuda_attention_params &p, uint32_t number, attention_item *item)
{
	uint32_t r = plan_find_item(p.plan, number), group = attention_group(p);
	const cuda_row &row = plan_row(p.plan, r);
	uint32_t at = number - pointer_to<const uint32_t>(p.plan.first_item)[r];
	uint32_t tile = at / row.n_splits / p.pages.n_kv_heads, lines = row.q_len * group, seen;

	item->q_base = row.q_base;
	item->row = r;
	item->b = row.b;
	item->kv_head = at / row.n_splits % p.pages.n_kv_heads;
	item->q_start = row.q_start;
	item->q_len = row.q_len;
	item->kv_len = row.kv_len;
	item->tile_lines = row.tile_lines;
	item->first_line = tile * row.tile_lines;
	item->n_lines = lines - item->first_line < row.tile_lines ? lines - item->first_line : row.tile_lines;
	item->split = at % row.n_splits;
	seen = row_visible(p, *item, (item->first_line + item->n_lines - 1) / group);
	item->n_splits = seen == 0 ? 1 : (seen - 1) / row.split_tokens + 1;
	item->begin = item->split * row.split_tokens;
	item->end = seen - item->begin < row.split_tokens ? seen : item->begin + row.split_tokens;
	item->group = row.first_group + at / row.n_splits;
	item->first_partial = row.first_line;
	return item->split < item->n_splits;
}

SIMT_FUNCTION uint32_t
line_query(const cuda_attention_params &p, const attention_item &item, uint32_t line)
{
	return (item.first_line + line) / attention_group(p);
}

SIMT_FUNCTION uint32_t
line_head(const cuda_attention_params &p, const attention_item &item, uint32_t line)
{
	uint32_t group = attention_group(p);

	return item.kv_head * group + (item.first_line + line) % group;
}

/* The first line of the tile that has the same block mask list. */
SIMT_FUNCTION uint32_t
line_owner(const cuda_attention_params &p, const attention_item &item, uint32_t line)
{
	uint32_t group = attention_group(p), at = item.first_line + line;
	uint32_t i = at / group / p.blocks.q_block * p.blocks.q_block, first = item.first_line / group;

	i = i < first ? first : i;
	if (p.blocks.n_heads == 1)
		return i * group < item.first_line ? 0 : i * group - item.first_line;
	at = i * group + at % group;
	return at < item.first_line ? at + group - item.first_line : at - item.first_line;
}

SIMT_FUNCTION attention_line
line_make(const cuda_attention_params &p, const attention_item &item, uint32_t line)
{
	attention_line to = { 0, 0, 0, 0 };
	uint32_t i;

	if (line >= item.n_lines)
		return to;
	i = line_query(p, item, line);
	to.visible = row_visible(p, item, i);
	to.owner = p.blocks.first_list == 0 ? 0 : line_owner(p, item, line);
	to.h = (int32_t)line_head(p, item, line);
	to.q_idx = (int32_t)(item.q_base + i);
	return to;
}

/* Lower bound: index of the first block >= `least` in an ascending list of n blocks; n if there is none. */
SIMT_FUNCTION uint64_t
list_find(const uint32_t *blocks, uint64_t n, uint32_t least)
{
	uint64_t low = 0, high = n < least ? n : least; /* blocks are distinct, so the i-th is at least i */

	ATTENTION_ROLL
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (blocks[middle] < least)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Set the bits of one list's blocks in the segment.  All threads of the block call; they divide the list. */
SIMT_FUNCTION void
list_mark(const cuda_attention_params &p, uint32_t kind, uint64_t list, uint32_t segment, uint32_t *words)
{
	const uint64_t *start = pointer_to<const uint64_t>(p.blocks.start[kind]) + list;
	const uint32_t *blocks = pointer_to<const uint32_t>(p.blocks.indices[kind]) + start[0];
	uint64_t n = start[1] - start[0], i = simt_thread();

	/* The threads read a list of up to simt_n_threads() blocks in one step, so a search would save nothing. */
	if (p.blocks.ascending && n > simt_n_threads())
		i += list_find(blocks, n, segment / p.blocks.kv_block);
	ATTENTION_ROLL
	for (; i < n; i += simt_n_threads()) {
		uint64_t begin = (uint64_t)blocks[i] * p.blocks.kv_block, end = begin + p.blocks.kv_block;

		if (p.blocks.ascending && begin >= segment + CUDA_SEGMENT)
			break;
		begin = begin < segment ? segment : begin;
		end = end < segment + CUDA_SEGMENT ? end : segment + CUDA_SEGMENT;
		ATTENTION_ROLL
		for (uint64_t at = begin; at < end; at = (at / 32 + 1) * 32) {
			uint32_t bits = end - at < 32 - at % 32 ? (uint32_t)(end - at) : 32 - (uint32_t)at % 32;

			simt_atomic_or(&words[(at - segment) / 32], 0xffffffffu >> (32 - bits) << at % 32);
		}
	}
}

/* Expand the block mask for tokens [segment, segment + CUDA_SEGMENT) to bits.  All threads of the block call. */
SIMT_FUNCTION void
segment_mark(const cuda_attention_params &p, const attention_item &item, uint32_t segment, attention_marks &marks)
{
	const uint64_t *first_list = pointer_to<const uint64_t>(p.blocks.first_list);
	uint32_t row = p.blocks.n_rows == 1 ? 0 : item.row;
	uint64_t q_blocks = (first_list[row + 1] - first_list[row]) / p.blocks.n_heads;

	simt_sync();
	ATTENTION_ROLL
	for (uint32_t i = simt_thread(); i < item.n_lines * ATTENTION_WORDS; i += simt_n_threads())
		marks.partial[0][i] = marks.full[0][i] = 0;
	simt_sync();
	ATTENTION_ROLL
	for (uint32_t line = 0; line < item.n_lines; line++) {
		uint64_t q_block = line_query(p, item, line) / p.blocks.q_block;
		uint32_t head = p.blocks.n_heads == 1 ? 0 : line_head(p, item, line);

		if (q_block >= q_blocks || line_owner(p, item, line) != line)
			continue;
		ATTENTION_ROLL
		for (uint32_t kind = 0; kind < 2; kind++)
			list_mark(p, kind, first_list[row] + head * q_blocks + q_block, segment,
				  kind == 0 ? marks.partial[line] : marks.full[line]);
	}
	simt_sync();
	if (simt_thread() < ATTENTION_WORDS) {
		uint32_t any = 0;

		ATTENTION_ROLL
		for (uint32_t line = 0; line < item.n_lines; line++)
			any |= marks.full[line][simt_thread()] | marks.partial[line][simt_thread()];
		marks.any[simt_thread()] = any;
	}
	simt_sync();
}

/* Does the block mask let any line see any of n tokens from `begin` on?  n is a multiple of 32. */
SIMT_FUNCTION bool
tile_wanted(const cuda_attention_params &p, const attention_block &block, uint32_t begin, uint32_t n)
{
	uint32_t any = 0;

	if (p.blocks.first_list == 0)
		return true;
	for (uint32_t i = 0; i < n / 32; i++)
		any |= block.marks.any[begin % CUDA_SEGMENT / 32 + i];
	return any != 0;
}

/* Is the token below `end`, and does the block mask let any line see it? */
SIMT_FUNCTION bool
token_wanted(const cuda_attention_params &p, const attention_block &block, uint32_t token, uint32_t end)
{
	if (token >= end || p.blocks.first_list == 0)
		return token < end;
	return (block.marks.any[token % CUDA_SEGMENT / 32] >> token % 32 & 1) != 0;
}

/* Does every line see all tokens before `end`, with no mask to evaluate?  The first line sees the fewest tokens. */
SIMT_FUNCTION bool
tile_whole(const cuda_attention_params &p, const attention_item &item, uint32_t end)
{
	return !attention_mod::has_mask && p.blocks.first_list == 0 && end <= item.end &&
	       end <= row_visible(p, item, line_query(p, item, 0));
}

/* Does the line see this token, by lengths, causality, block mask and mask mod? */
SIMT_FUNCTION bool
line_sees(const cuda_attention_params &p, const attention_item &item, const attention_marks &marks,
	  const attention_line &line, uint32_t token)
{
	if (token >= line.visible)
		return false;
	if (p.blocks.first_list != 0) {
		uint32_t word = token % CUDA_SEGMENT / 32, bit = 1u << token % 32;

		if (marks.full[line.owner][word] & bit)
			return true;
		if (!(marks.partial[line.owner][word] & bit))
			return false;
	}
	return !attention_mod::has_mask ||
	       attention_mod::mask(item.b, line.h, line.q_idx, (int32_t)token, pointer_to<const void>(p.mod));
}

/* The score of a token that the line sees: scaled product, then score mod. */
SIMT_FUNCTION float
line_score(const cuda_attention_params &p, const attention_item &item, const attention_line &line, uint32_t token,
	   float product)
{
	float score = product * p.scale;

	if (attention_mod::has_score)
		score = attention_mod::score(score, item.b, line.h, line.q_idx, (int32_t)token,
					     pointer_to<const void>(p.mod));
	return score;
}

/*
 * Write a line's LSE and maximum to the caller's arrays; returns the factor for the line's values.  Only the thread
 * with `write` set writes.
 */
SIMT_FUNCTION float
line_finish(const cuda_attention_params &p, const attention_item &item, uint32_t line, float maximum, float sum,
	    bool write)
{
	uint32_t head = line_head(p, item, line);
	uint64_t at = (uint64_t)(item.q_start + line_query(p, item, line)) * p.n_q_heads + head;
	float sink = p.sink == 0 ? -infinity() : pointer_to<const float>(p.sink)[head];
	softmax_end end = softmax_finish(maximum, sum, sink, p.lse_without_sink != 0);

	if (write && p.lse != 0)
		pointer_to<float>(p.lse)[at] = end.lse;
	if (write && p.maximum != 0)
		pointer_to<float>(p.maximum)[at] = end.maximum;
	return end.factor;
}

SIMT_FUNCTION uint64_t
line_out(const cuda_attention_params &p, const attention_item &item, uint32_t line)
{
	return tensor_address(p.out, item.q_start + line_query(p, item, line), line_head(p, item, line));
}

/* Index of a line's partial result of a split. */
SIMT_FUNCTION uint64_t
line_partial(const cuda_attention_params &p, const attention_item &item, uint32_t line, uint32_t split)
{
	return item.first_partial + (uint64_t)split * item.q_len * p.n_q_heads +
	       (uint64_t)line_query(p, item, line) * p.n_q_heads + line_head(p, item, line);
}

/*
 * Store a line's softmax state: as the result if there is one split, else as a partial state.  Returns the factor for
 * the line's values.  Only the thread with `write` set writes.
 */
SIMT_FUNCTION float
state_store(const cuda_attention_params &p, const attention_item &item, uint32_t line, float maximum, float sum,
	    bool write)
{
	if (item.n_splits == 1)
		return line_finish(p, item, line, maximum, sum, write);
	if (write)
		pointer_to<simt_vec2>(p.partial_states)[line_partial(p, item, line, item.split)] = { bits_of(maximum),
												     bits_of(sum) };
	return 1;
}

/* Called after the block stored its partial results: is it the last block of its tile?  `last` is shared memory. */
SIMT_FUNCTION bool
item_last(const cuda_attention_params &p, const attention_item &item, uint32_t *last)
{
	simt_sync();
	if (simt_thread() == 0) {
		uint32_t *counter = pointer_to<uint32_t>(p.counters) + item.group;

		simt_fence();
		*last = simt_atomic_add(counter, 1) == item.n_splits - 1;
		simt_fence();
		if (*last)
			*counter = 0; /* for the next launch with this plan */
	}
	simt_sync();
	return *last != 0;
}

/* Combine the partial results of a line's splits in logical order.  The whole warp calls. */
SIMT_FUNCTION void
line_merge(const cuda_attention_params &p, const attention_item &item, uint32_t line)
{
	const simt_vec2 *states = pointer_to<const simt_vec2>(p.partial_states);
	const float *values = pointer_to<const float>(p.partial_values);
	uint32_t v_dim = p.pages.plane[CUDA_V].dim;
	float maximum = -infinity(), sum = 0, factor;

	for (uint32_t s = 0; s < item.n_splits; s++)
		maximum = softmax_larger(maximum, float_of(simt_load_fresh(&states[line_partial(p, item, line, s)]).x));
	for (uint32_t s = 0; s < item.n_splits; s++) {
		simt_vec2 state = simt_load_fresh(&states[line_partial(p, item, line, s)]);

		if (float_of(state.y) != 0)
			sum = simt_fma(float_of(state.y), softmax_weight(float_of(state.x), maximum), sum);
	}
	factor = line_finish(p, item, line, maximum, sum, simt_lane() == 0);
	for (uint32_t d = simt_lane(); d < v_dim; d += 32) {
		float value = 0;

		for (uint32_t s = 0; s < item.n_splits; s++) {
			uint64_t at = line_partial(p, item, line, s);
			simt_vec2 state = simt_load_fresh(&states[at]);

			if (float_of(state.y) != 0)
				value = simt_fma(simt_load_fresh(&values[at * v_dim + d]),
						 softmax_weight(float_of(state.x), maximum), value);
		}
		element_store(line_out(p, item, line), p.out.dtype, d, value * factor);
	}
}

SIMT_FUNCTION void
item_merge(const cuda_attention_params &p, const attention_item &item)
{
	for (uint32_t line = simt_warp(); line < item.n_lines; line += simt_n_threads() / 32)
		line_merge(p, item, line);
}

/* The block's loop over its work items; `attend()` computes block.item. */
template <class F>
SIMT_FUNCTION void
items_attend(const cuda_attention_params &p, attention_block &block, F attend)
{
	uint32_t n_items = plan_head(p.plan)->n_items;

	ATTENTION_ROLL
	for (uint32_t number = simt_block(); number < n_items; number += simt_n_blocks()) {
		simt_sync();
		if (simt_thread() == 0)
			block.taken = item_find(p, number, &block.item);
		simt_sync();
		if (!block.taken)
			continue;
		attend();
		if (block.item.n_splits > 1 && item_last(p, block.item, &block.last))
			item_merge(p, block.item);
	}
}

#endif
