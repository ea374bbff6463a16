/* SPDX-License-Identifier: Apache-2.0 */
/**
 * scratch.h - scratch memory of a team's threads
 */
#ifndef PAGED_KERNELS_CPU_SCRATCH_H
#define PAGED_KERNELS_CPU_SCRATCH_H

#include <stdatomic.h>

#include "kernels/cpu/work.h"

/** Blocks in the pipeline at once. */
#define PIPELINE_BLOCKS 3u
/** Score buffers of the pipeline: the newest block's scores reuse the buffer of the oldest block's weights. */
#define PIPELINE_SCORES 2u

#define CHUNK_TILES (KERNEL_KV_CHUNK / TILE_TOKENS)

/** A thread's q_rows as mods see them, and their visibility in the current chunk and tile. */
struct mask_q_rows {
	int32_t h[TILE_Q_ROWS], q_idx[TILE_Q_ROWS];
	/*
	 * For the block mask: q_rows with the same lists share `full` and `partial` of the first such
	 * q_row, owner[i].
	 */
	uint8_t owner[TILE_Q_ROWS];
	uint64_t marked; /* first token of the chunk that `full` and `partial` describe; UINT64_MAX: none */
	uint64_t full[TILE_Q_ROWS][CHUNK_TILES];
	uint64_t partial[TILE_Q_ROWS][CHUNK_TILES];
	uint64_t seen[TILE_Q_ROWS]; /* bit t: token t of the tile */
	uint32_t visible[TILE_Q_ROWS];
};

/** A tile packed for the query tiles of an item. */
struct packed_tile {
	uint32_t n_tokens;   /* 0: not packed */
	uint64_t wanted;     /* tokens that were packed */
	uint64_t non_finite; /* tokens left out because they have NaN or infinite values */
	_Alignas(64) float k_panels[TILE_TOKENS * PAGED_MAX_DIM / 2];
	float v_panels[TILE_TOKENS * PAGED_MAX_DIM / 2];
	float k_scale[TILE_TOKENS], v_scale[TILE_TOKENS]; /* for i8 */
};

/** A block of the pipeline and the query tile it belongs to. */
struct pipeline_block {
	struct q_tile q;
	bool last; /* last block of its query tile and chunk */
	struct tile_view view[BLOCK_TILES];
	_Alignas(64) struct tile_block block;
};

/** Scratch memory of one thread; lives as long as the team. */
struct team_scratch {
	uint32_t thread;          /* thread number in the team; the caller is 0 */
	_Atomic uint64_t section; /* kernel_team.section of the last call of run() that used this scratch */
	_Alignas(64) float q[ITEM_Q_ROWS / 2 * PAGED_MAX_DIM]; /* all q_rows in bf16, or half as many in f32 */
	uint16_t q16[TILE_Q_ROWS * PAGED_MAX_DIM];             /* q in bf16, if scores use products of pairs */
	/*
	 * States of an item's query tiles: over all its chunks, and over one chunk (pipelined: of the
	 * tiles in flight).
	 */
	struct softmax_state item_state[ITEM_Q_TILES], chunk_state[ITEM_HEADS];
	float item_values[ITEM_Q_ROWS * PAGED_MAX_DIM];
	float chunk_values[PIPELINE_BLOCKS * BLOCK_Q_ROWS * PAGED_MAX_DIM];
	float k[TILE_TOKENS * PAGED_MAX_DIM];
	float v[TILE_TOKENS * PAGED_MAX_DIM];
	float k_panels[TILE_TOKENS * PAGED_MAX_DIM];
	float v_panels[TILE_TOKENS * PAGED_MAX_DIM];
	struct tile_scores scores;
	struct tile_tokens k_tokens, v_tokens, converted_tokens;
	struct tile_tokens next_keys; /* of the tile at next_begin; UINT64_MAX: none */
	uint64_t next_begin;
	float scale[TILE_TOKENS]; /* for i8: the tokens' scales */
	struct mask_q_rows mask;
	struct packed_tile packed[KERNEL_KV_CHUNK / TILE_TOKENS];
	struct pipeline_block block[PIPELINE_BLOCKS];
	struct tile_scores block_scores[PIPELINE_SCORES][BLOCK_TILES];
};

_Static_assert(KERNEL_PREFILL_Q_ROWS - 1 <= DECODE_Q_ROWS && KERNEL_PREFILL_Q_ROWS_AMX - 1 <= DECODE_Q_ROWS,
	       "the queries of decode fit");
_Static_assert(ITEM_Q_ROWS >= 2 * TILE_Q_ROWS, "q has room for the query rows of a tile in f32");
_Static_assert(ITEM_Q_TILES >= ITEM_HEADS && ITEM_HEADS >= PIPELINE_BLOCKS, "each query tile has its states");
_Static_assert(PIPELINE_BLOCKS *BLOCK_Q_ROWS >= TILE_Q_ROWS, "values of a chunk fit");

#endif
