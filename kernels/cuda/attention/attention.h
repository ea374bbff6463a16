/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention.h - code shared by the attention kernels: work items, query rows, masking
 *
 * A `q_row` (packed query row) is one (query, query head) pair of the GQA group
 * of a KV head: a row of M in a matrix product.  The q_rows of a plan's row are
 * ordered by query, then by head.  A work item (`item`) is one KV chunk of one
 * tile of q_rows.  attention_combine.h has the blocks' loop over items, and
 * their results.
 *
 * Parameters of this header, all optional macros: ATTENTION_MOD,
 * ATTENTION_SUFFIX, ATTENTION_ONE with ATTENTION_ONLY_<name>,
 * ATTENTION_BLOCK_MASKS: 0 if the module's kernels are launched without block
 * masks only, and have no code for them.
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
 * ATTENTION_ONLY_<name> is 1 are compiled, which shortens JIT compilation.
 */
#ifndef PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_H
#define PAGED_KERNELS_CUDA_ATTENTION_ATTENTION_H

#include "kernels/cuda/device/plan_lookup.h"
#include "kernels/cuda/device/softmax.h"

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

/* Tiles of every kernel divide this number of tokens. */
#define ATTENTION_TILE_UNIT 64u

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

/* 1 or 0.  ATTENTION_IS_1() is 0 for a name that is not defined. */
#ifdef ATTENTION_ONE
#define ATTENTION_HAS(name) ATTENTION_IS_1(ATTENTION_ONLY_##name)
#else
#define ATTENTION_HAS(name) 1
#endif
#define ATTENTION_IS_1(value) ATTENTION_IS_1_(value)
#define ATTENTION_IS_1_(value) ATTENTION_SECOND(ATTENTION_COMMA_##value 1, 0, 0)
#define ATTENTION_COMMA_1 0,
#define ATTENTION_SECOND(...) ATTENTION_SECOND_(__VA_ARGS__)
#define ATTENTION_SECOND_(first, second, ...) second

#ifndef ATTENTION_SUFFIX
#define ATTENTION_SUFFIX
#endif
#define ATTENTION_JOIN_(a, b) a##b
#define ATTENTION_JOIN(a, b) ATTENTION_JOIN_(a, b)
#define ATTENTION_NAME(name) ATTENTION_JOIN(name, ATTENTION_SUFFIX)
/* SIMT_KERNEL() and SIMT_KERNEL_OF_CLUSTERS() paste their arguments, so the name is expanded first. */
#define ATTENTION_KERNEL_(name, threads, min_blocks) SIMT_KERNEL(name, cuda_attention_params, threads, min_blocks)
#define ATTENTION_KERNEL_OF(name, threads, min_blocks) ATTENTION_KERNEL_(name, threads, min_blocks)
#define ATTENTION_KERNEL_OF_CLUSTERS_(name, threads, min_blocks) \
	SIMT_KERNEL_OF_CLUSTERS(name, cuda_attention_cluster_params, threads, min_blocks)
#define ATTENTION_KERNEL_OF_CLUSTERS(name, threads, min_blocks) ATTENTION_KERNEL_OF_CLUSTERS_(name, threads, min_blocks)

/*
 * ATTENTION_INSTANCE(name, min_blocks, attend) - the kernel `name`, if ATTENTION_HAS(name): it calls attend(p), an
 * instance of a template
 */
#define ATTENTION_WHEN(has, ...) ATTENTION_WHEN_(has, __VA_ARGS__)
#define ATTENTION_WHEN_(has, ...) ATTENTION_WHEN_##has(__VA_ARGS__)
#define ATTENTION_WHEN_0(...)
#define ATTENTION_WHEN_1(...) __VA_ARGS__
#define ATTENTION_INSTANCE(name, min_blocks, ...) \
	ATTENTION_INSTANCE_OF(name, CUDA_ATTENTION_THREADS, min_blocks, __VA_ARGS__)
#define ATTENTION_INSTANCE_OF(name, threads, min_blocks, ...) \
	ATTENTION_WHEN(ATTENTION_HAS(name), \
		       ATTENTION_KERNEL_OF(ATTENTION_NAME(name), threads, min_blocks) { __VA_ARGS__(p); })
#define ATTENTION_INSTANCE_OF_CLUSTERS(name, threads, min_blocks, ...) \
	ATTENTION_WHEN(ATTENTION_HAS(name), \
		       ATTENTION_KERNEL_OF_CLUSTERS(ATTENTION_NAME(name), threads, min_blocks) { __VA_ARGS__(p); })

#define ATTENTION_BITMAP_WORDS (CUDA_MASK_BITMAP_TOKENS / 32)

/** A work item: one KV chunk of a tile of q_rows. */
struct attention_work_item {
	int64_t q_base;
	uint32_t row, kv_head;
	int32_t b; /* the row's batch index, for mods */
	uint32_t q_start, q_len, kv_first, kv_len;
	uint32_t tile_q_rows;
	uint32_t first_q_row, n_q_rows; /* the tile's range in the q_rows of the plan's row */
	/*
	 * Tokens of the KV chunk that the tile's last q_row sees, from a multiple of ATTENTION_TILE_UNIT on; none if
	 * begin >= end.  Those before kv_first are hidden.
	 */
	uint32_t begin, end;
	uint32_t kv_chunk, n_kv_chunks; /* n_kv_chunks counts the chunks that the tile sees; at least 1 */
	uint32_t counter;               /* index of the tile's counter, used if n_kv_chunks > 1 */
	uint32_t first_state;           /* of the row's struct cuda_row */
};

/**
 * Bits of the block mask for CUDA_MASK_BITMAP_TOKENS tokens and a tile of q_rows: one bit per token for each q_row.
 * Q_rows with the same list share the bits of the first of them (attention_q_row.mask_owner).
 */
template <uint32_t Q_ROWS> struct attention_mask_bitmap_of {
	uint32_t full[Q_ROWS][ATTENTION_BITMAP_WORDS];
	uint32_t partial[Q_ROWS][ATTENTION_BITMAP_WORDS];
	uint32_t any[ATTENTION_BITMAP_WORDS];
};
using attention_mask_bitmap = attention_mask_bitmap_of<CUDA_MAX_TILE_Q_ROWS>;

/* Weights of KV chunks that are in shared memory at once, at least CUDA_MAX_KV_CHUNKS, and their most q_rows. */
#define ATTENTION_COMBINE_WEIGHTS 1024u
#define ATTENTION_COMBINE_Q_ROWS 32u
static_assert(ATTENTION_COMBINE_WEIGHTS >= CUDA_MAX_KV_CHUNKS, "all chunks of one q_row");

/** A q_row whose KV chunks are being combined. */
struct attention_combine_q_row {
	uint64_t out;
	uint32_t first_state; /* index in the workspace of the state of KV chunk 0 */
	float factor;
};

/** What a block combines at once: some q_rows of its tile. */
struct attention_combine_batch {
	simt_vec2 weight[ATTENTION_COMBINE_WEIGHTS]; /* [q_row][KV chunk]: softmax weight, row_sum; floats */
	attention_combine_q_row q_row[ATTENTION_COMBINE_Q_ROWS];
};

/**
 * Results of an item on their way from the registers of a tensor core kernel to memory: the softmax states of each
 * warp's q_rows, and the sums of values of as many q_rows as have room (attention_mma.h).
 */
struct attention_results {
	float row_max[CUDA_ATTENTION_THREADS / 32][CUDA_TILE_Q_ROWS];
	float row_sum[CUDA_ATTENTION_THREADS / 32][CUDA_TILE_Q_ROWS];
	alignas(16) float values[CUDA_ATTENTION_THREADS / 32][512];
};

/** The beginning of each kernel's shared memory: the block's current work item, of a tile of at most Q_ROWS q_rows. */
template <uint32_t Q_ROWS> struct attention_block_of {
	attention_work_item item;
	union {
		attention_mask_bitmap_of<Q_ROWS> mask_bitmap; /* of the current tokens, if there is a block mask */
		attention_results results;                    /* after the item's last tile */
		attention_combine_batch combine;              /* after the item */
	};
	uint32_t n_left; /* of shares_begin(): those below this number remain, some of which are the block's */
	bool valid;
	uint32_t last;
};
using attention_block = attention_block_of<CUDA_MAX_TILE_Q_ROWS>;

/** A q_row, in its threads' registers. */
struct attention_q_row {
	uint32_t kv_end; /* tokens [kv_first, kv_end) pass lengths and causality; 0 past the tile's last q_row */
	uint32_t mask_owner; /* the q_row whose bits in the bitmap apply to this one */
	int32_t h, q_idx;
};

#ifndef ATTENTION_BLOCK_MASKS
#define ATTENTION_BLOCK_MASKS 1
#endif

SIMT_FUNCTION bool
has_block_mask(const cuda_attention_params &p)
{
	return ATTENTION_BLOCK_MASKS && p.blocks.first_list != 0;
}

/* The end of the tokens that query i sees by lengths and causality. */
SIMT_FUNCTION uint32_t
query_kv_end(const cuda_attention_params &p, const attention_work_item &item, uint32_t i)
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
gqa_group_size(const cuda_attention_params &p)
{
	return p.n_q_heads / p.pages.n_kv_heads;
}

/* Make a row's work item number `at`.  Returns false if the KV chunk begins past the tokens that its tile sees. */
SIMT_FUNCTION bool
work_item_make(const cuda_attention_params &p, uint32_t r, uint32_t at, attention_work_item *item)
{
	const cuda_row &row = plan_row_at(p.plan, r);
	uint32_t group = gqa_group_size(p);
	uint32_t tile = at / row.n_kv_chunks / p.pages.n_kv_heads, q_rows = row.q_len * group;
	uint32_t kv_begin = plan_row_kv_begin(row), first = row.kv_first / ATTENTION_TILE_UNIT * ATTENTION_TILE_UNIT;
	uint32_t last_query = 0, kv_end;

	item->q_base = row.q_base;
	item->row = r;
	item->b = row.b;
	item->kv_head = at / row.n_kv_chunks % p.pages.n_kv_heads;
	item->q_start = row.q_start;
	item->q_len = row.q_len;
	item->kv_first = row.kv_first;
	item->kv_len = row.kv_len;
	item->tile_q_rows = row.tile_q_rows;
	item->first_q_row = tile * row.tile_q_rows;
	item->n_q_rows = q_rows - item->first_q_row < row.tile_q_rows ? q_rows - item->first_q_row : row.tile_q_rows;
	item->kv_chunk = at % row.n_kv_chunks;
	/* In decode neither of these divisions is necessary. */
	if (row.q_len > 1)
		last_query = (item->first_q_row + item->n_q_rows - 1) / group;
	kv_end = query_kv_end(p, *item, last_query);
	item->n_kv_chunks = row.n_kv_chunks;
	if (kv_end < row.kv_len)
		item->n_kv_chunks = kv_end <= kv_begin ? 1 : (kv_end - kv_begin - 1) / row.kv_chunk_tokens + 1;
	item->begin = kv_begin + item->kv_chunk * row.kv_chunk_tokens;
	item->end = kv_end < item->begin + row.kv_chunk_tokens ? kv_end : item->begin + row.kv_chunk_tokens;
	item->begin = item->begin < first ? first : item->begin;
	item->counter = row.first_counter + at / row.n_kv_chunks;
	item->first_state = row.first_state;
	return item->kv_chunk < item->n_kv_chunks;
}

/* The same, of the work item with this number. */
SIMT_FUNCTION bool
work_item_find(const cuda_attention_params &p, uint32_t number, attention_work_item *item)
{
	uint32_t r = plan_find_item(p.plan, number);

	return work_item_make(p, r, number - pointer_to<const uint32_t>(p.plan.first_work_item)[r], item);
}

SIMT_FUNCTION uint32_t
work_item_query(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row)
{
	return (item.first_q_row + q_row) / gqa_group_size(p);
}

SIMT_FUNCTION uint32_t
work_item_head(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row)
{
	uint32_t group = gqa_group_size(p);

	return item.kv_head * group + (item.first_q_row + q_row) % group;
}

/* The first q_row of the tile that has the same block mask list. */
SIMT_FUNCTION uint32_t
q_row_mask_owner(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row)
{
	uint32_t group = gqa_group_size(p), at = item.first_q_row + q_row;
	uint32_t i = at / group / p.blocks.q_block * p.blocks.q_block, first = item.first_q_row / group;

	i = i < first ? first : i;
	if (p.blocks.n_heads == 1)
		return i * group < item.first_q_row ? 0 : i * group - item.first_q_row;
	at = i * group + at % group;
	return at < item.first_q_row ? at + group - item.first_q_row : at - item.first_q_row;
}

SIMT_FUNCTION attention_q_row
q_row_make(const cuda_attention_params &p, const attention_work_item &item, uint32_t q_row)
{
	attention_q_row to = { 0, 0, 0, 0 };
	uint32_t i;

	if (q_row >= item.n_q_rows)
		return to;
	i = work_item_query(p, item, q_row);
	to.kv_end = query_kv_end(p, item, i);
	to.mask_owner = has_block_mask(p) ? q_row_mask_owner(p, item, q_row) : 0;
	to.h = (int32_t)work_item_head(p, item, q_row);
	to.q_idx = (int32_t)(item.q_base + i);
	return to;
}

/* Index of the first block >= min_block in an ascending list of n blocks; n if there is none. */
SIMT_FUNCTION uint64_t
mask_blocks_lower_bound(const uint32_t *blocks, uint64_t n, uint32_t min_block)
{
	uint64_t low = 0, high = n < min_block ? n : min_block; /* blocks are distinct, so the i-th is at least i */

	ATTENTION_ROLL
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (blocks[middle] < min_block)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The threads of a block that do something together: COUNT of them, from FIRST on; COUNT 0: all. */
template <uint32_t FIRST, uint32_t COUNT> struct attention_threads_of {
	SIMT_MEMBER uint32_t
	number()
	{
		return simt_thread() - FIRST;
	}
	SIMT_MEMBER uint32_t
	count()
	{
		return COUNT == 0 ? simt_n_threads() : COUNT;
	}
	SIMT_MEMBER void
	sync()
	{
		if constexpr (COUNT == 0)
			simt_sync();
		else
			simt_sync_part(1, (int)COUNT);
	}
};
using attention_threads = attention_threads_of<0, 0>;

/* Set the bits of one list's blocks in the bitmap.  All THREADS call; they divide the list. */
template <class THREADS>
SIMT_FUNCTION void
mask_list_add(const cuda_attention_params &p, uint32_t kind, uint64_t list, uint32_t bitmap_begin, uint32_t *words)
{
	const uint64_t *start = pointer_to<const uint64_t>(p.blocks.start[kind]) + list;
	const uint32_t *blocks = pointer_to<const uint32_t>(p.blocks.indices[kind]) + start[0];
	uint64_t n = start[1] - start[0], i = THREADS::number();

	/* The threads read a list of up to THREADS::count() blocks in one step, so a search would save nothing. */
	if (p.blocks.ascending && n > THREADS::count())
		i += mask_blocks_lower_bound(blocks, n, bitmap_begin / p.blocks.kv_block);
	ATTENTION_ROLL
	for (; i < n; i += THREADS::count()) {
		uint64_t begin = (uint64_t)blocks[i] * p.blocks.kv_block, end = begin + p.blocks.kv_block;

		if (p.blocks.ascending && begin >= bitmap_begin + CUDA_MASK_BITMAP_TOKENS)
			break;
		begin = begin < bitmap_begin ? bitmap_begin : begin;
		end = end < bitmap_begin + CUDA_MASK_BITMAP_TOKENS ? end : bitmap_begin + CUDA_MASK_BITMAP_TOKENS;
		ATTENTION_ROLL
		for (uint64_t at = begin; at < end; at = (at / 32 + 1) * 32) {
			uint32_t bits = end - at < 32 - at % 32 ? (uint32_t)(end - at) : 32 - (uint32_t)at % 32;

			simt_atomic_or(&words[(at - bitmap_begin) / 32], 0xffffffffu >> (32 - bits) << at % 32);
		}
	}
}

/* Expand the block mask of tokens [bitmap_begin, bitmap_begin + CUDA_MASK_BITMAP_TOKENS) to bits.  All THREADS call. */
template <class THREADS = attention_threads, uint32_t Q_ROWS>
SIMT_FUNCTION void
mask_bitmap_build(const cuda_attention_params &p, const attention_work_item &item, uint32_t bitmap_begin,
		  attention_mask_bitmap_of<Q_ROWS> &mask_bitmap)
{
	const uint64_t *first_list = pointer_to<const uint64_t>(p.blocks.first_list);
	uint32_t row = p.blocks.n_rows == 1 ? 0 : item.row;
	uint64_t q_blocks = (first_list[row + 1] - first_list[row]) / p.blocks.n_heads;

	THREADS::sync();
	ATTENTION_ROLL
	for (uint32_t i = THREADS::number(); i < item.n_q_rows * ATTENTION_BITMAP_WORDS; i += THREADS::count())
		mask_bitmap.partial[0][i] = mask_bitmap.full[0][i] = 0;
	THREADS::sync();
	ATTENTION_ROLL
	for (uint32_t q_row = 0; q_row < item.n_q_rows; q_row++) {
		uint64_t q_block = work_item_query(p, item, q_row) / p.blocks.q_block;
		uint32_t head = p.blocks.n_heads == 1 ? 0 : work_item_head(p, item, q_row);

		if (q_block >= q_blocks || q_row_mask_owner(p, item, q_row) != q_row)
			continue;
		ATTENTION_ROLL
		for (uint32_t kind = 0; kind < 2; kind++)
			mask_list_add<THREADS>(p, kind, first_list[row] + head * q_blocks + q_block, bitmap_begin,
					       kind == 0 ? mask_bitmap.partial[q_row] : mask_bitmap.full[q_row]);
	}
	THREADS::sync();
	if (THREADS::number() < ATTENTION_BITMAP_WORDS) {
		uint32_t any = 0;

		ATTENTION_ROLL
		for (uint32_t q_row = 0; q_row < item.n_q_rows; q_row++)
			any |= mask_bitmap.full[q_row][THREADS::number()] |
			       mask_bitmap.partial[q_row][THREADS::number()];
		mask_bitmap.any[THREADS::number()] = any;
	}
	THREADS::sync();
}

/* The end of the tokens from `begin` on that are in one bitmap of the block mask; the item's end without one. */
SIMT_FUNCTION uint32_t
mask_bitmap_end(const cuda_attention_params &p, const attention_work_item &item, uint32_t begin)
{
	uint32_t end = (begin / CUDA_MASK_BITMAP_TOKENS + 1) * CUDA_MASK_BITMAP_TOKENS;

	return has_block_mask(p) && end < item.end ? end : item.end;
}

/* Does the block mask let any q_row see any of n tokens from `begin` on?  n is a multiple of 32. */
template <uint32_t Q_ROWS>
SIMT_FUNCTION bool
tile_visible(const cuda_attention_params &p, const attention_block_of<Q_ROWS> &block, uint32_t begin, uint32_t n)
{
	uint32_t any = 0;

	if (!has_block_mask(p))
		return true;
	for (uint32_t i = 0; i < n / 32; i++)
		any |= block.mask_bitmap.any[begin % CUDA_MASK_BITMAP_TOKENS / 32 + i];
	return any != 0;
}

/* Is the token in [kv_first, end), and does the block mask let any q_row of the item see it? */
template <uint32_t Q_ROWS>
SIMT_FUNCTION bool
item_token_visible(const cuda_attention_params &p, const attention_block_of<Q_ROWS> &block,
		   const attention_work_item &item, uint32_t token, uint32_t end)
{
	if (token >= end || token < item.kv_first)
		return false;
	if (!has_block_mask(p))
		return true;
	return (block.mask_bitmap.any[token % CUDA_MASK_BITMAP_TOKENS / 32] >> token % 32 & 1) != 0;
}

/* The page table's entry for a token before `end`, or anything if nothing sees the token. */
template <uint32_t Q_ROWS>
SIMT_FUNCTION uint32_t
item_entry_load(const cuda_attention_params &p, const attention_block_of<Q_ROWS> &block,
		const attention_work_item &item, uint32_t token, uint32_t end)
{
	if (!item_token_visible(p, block, item, token, end))
		return UINT32_MAX;
	return plan_entry(p.plan, item.row, token / p.pages.page_size);
}

template <uint32_t Q_ROWS>
SIMT_FUNCTION bool
token_visible(const cuda_attention_params &p, const attention_block_of<Q_ROWS> &block, uint32_t token, uint32_t end)
{
	return item_token_visible(p, block, block.item, token, end);
}

/* The first tile of TOKENS tokens from `begin` on that the block mask does not hide; `end` or more if there is none. */
template <uint32_t TOKENS, uint32_t Q_ROWS>
SIMT_FUNCTION uint32_t
next_visible_tile(const cuda_attention_params &p, const attention_block_of<Q_ROWS> &block, uint32_t begin, uint32_t end)
{
	ATTENTION_ROLL
	for (; begin < end; begin += TOKENS) {
		uint32_t n = TOKENS, left = CUDA_MASK_BITMAP_TOKENS - begin % CUDA_MASK_BITMAP_TOKENS;

		/* Tiles begin at multiples of ATTENTION_TILE_UNIT, so larger ones may pass the end of the bitmap. */
		if (TOKENS > ATTENTION_TILE_UNIT && left < n)
			n = left;
		if (tile_visible(p, block, begin, n))
			break;
	}
	return begin;
}

/*
 * The end of the item's tokens that all q_rows see from kv_first on, with no mask to evaluate; 0 if there is a mask.
 * The first q_row sees the fewest tokens.
 */
SIMT_FUNCTION uint32_t
work_item_full_end(const cuda_attention_params &p, const attention_work_item &item)
{
	uint32_t first_end = query_kv_end(p, item, work_item_query(p, item, 0));

	if (attention_mod::has_mask || has_block_mask(p))
		return 0;
	return first_end < item.end ? first_end : item.end;
}

/*
 * Does every q_row see all tokens in [begin, end), with no mask to evaluate?  Not by work_item_full_end(): with it,
 * ptxas writes four or five instructions more for each tile of attention_bulk.
 */
SIMT_FUNCTION bool
tile_is_full(const cuda_attention_params &p, const attention_work_item &item, uint32_t begin, uint32_t end)
{
	return !attention_mod::has_mask && !has_block_mask(p) && begin >= item.kv_first && end <= item.end &&
	       end <= query_kv_end(p, item, work_item_query(p, item, 0));
}

/* Does the q_row see this token, by lengths, causality, block mask and mask mod? */
template <uint32_t Q_ROWS>
SIMT_FUNCTION bool
q_row_sees(const cuda_attention_params &p, const attention_work_item &item,
	   const attention_mask_bitmap_of<Q_ROWS> &mask_bitmap, const attention_q_row &q_row, uint32_t token)
{
	if (token >= q_row.kv_end || token < item.kv_first)
		return false;
	if (has_block_mask(p)) {
		uint32_t word = token % CUDA_MASK_BITMAP_TOKENS / 32, bit = 1u << token % 32;

		if (mask_bitmap.full[q_row.mask_owner][word] & bit)
			return true;
		if (!(mask_bitmap.partial[q_row.mask_owner][word] & bit))
			return false;
	}
	return !attention_mod::has_mask ||
	       attention_mod::mask(item.b, q_row.h, q_row.q_idx, (int32_t)token, pointer_to<const void>(p.mod));
}

/* The score of a token that the q_row sees: scaled product, then score mod. */
SIMT_FUNCTION float
q_row_score(const cuda_attention_params &p, const attention_work_item &item, const attention_q_row &q_row,
	    uint32_t token, float product)
{
	float score = product * p.scale;

	if (attention_mod::has_score)
		score = attention_mod::score(score, item.b, q_row.h, q_row.q_idx, (int32_t)token,
					     pointer_to<const void>(p.mod));
	return score;
}

#endif
