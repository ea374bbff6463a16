/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tile_mask.h - which keys a block mask or mask mod lets q_rows see
 *
 * Visibility is resolved from coarse to fine: first which KV chunks may contain visible keys, then
 * which tiles of a chunk, then which tokens of a tile for each q_row.  The first two answers are
 * conservative: they may include keys that no q_row sees, but never omit a visible key.  The last one
 * is exact.
 */
#ifndef PAGED_KERNELS_CPU_TILE_MASK_H
#define PAGED_KERNELS_CPU_TILE_MASK_H

#include "kernels/cpu/tile.h"
#include "kernels/mask/mask.h"
#include "kernels/mod/mod.h"

#define CHUNK_TILES (KERNEL_SPLIT / TILE_TOKENS)

struct attention_job;
struct q_tile;
struct team_scratch;

struct kernel_mods {
	struct kernel_mods_params params;
	uint32_t n_threads;
	struct mod_vm **mask; /* [n_threads]; NULL without a mask mod */
	struct mod_vm **score;
	struct mod_interval **intervals; /* [n_threads] for the mask mod; NULL without it */
	struct mod_vm *vms[];
};

/** How many of the keys that lengths and `causal` allow are visible: none, some, all. */
enum tile_mask { TILE_EMPTY, TILE_PARTIAL, TILE_FULL };

/** A tile that a work item must visit. */
struct kv_tile {
	uint64_t begin;       /* first token */
	enum tile_mask mask;  /* not TILE_EMPTY */
	enum tile_mask chunk; /* mask of the tile's KV chunk */
};

/** Visibility of one tile for a query tile. */
struct tile_view {
	uint32_t begin, n_tokens;
	enum tile_mask mask;
	uint32_t first;  /* first q_row that sees a token */
	uint64_t wanted; /* bit t: some q_row sees token t */
};

/** A thread's q_rows as mods see them, and their visibility in the current chunk and tile. */
struct mask_rows {
	int32_t h[TILE_LINES], q_idx[TILE_LINES];
	/*
	 * For the block mask: q_rows with the same lists share `full` and `partial` of the first such
	 * q_row, owner[i].
	 */
	uint8_t owner[TILE_LINES];
	uint64_t marked; /* first token of the chunk that `full` and `partial` describe; UINT64_MAX: none */
	uint64_t full[TILE_LINES][CHUNK_TILES];
	uint64_t partial[TILE_LINES][CHUNK_TILES];
	uint64_t seen[TILE_LINES]; /* bit t: token t of the tile */
	uint32_t visible[TILE_LINES];
};

/** tile_mask_begin - set the q_rows of the following tiles, KV head after KV head */
void tile_mask_begin(const struct attention_job *job, const struct q_tile *q, struct team_scratch *scratch);

/**
 * tile_mask_range - mask of keys [begin, end); with a block mask PARTIAL, or EMPTY if no block
 * intersects the range
 */
enum tile_mask tile_mask_range(const struct attention_job *job, const struct q_tile *q,
			       const struct team_scratch *scratch, uint64_t begin, uint64_t end);

/** tile_mask_next - the first tile at or after tile.begin that may have visible tokens; result.begin >= end: none */
struct kv_tile tile_mask_next(const struct attention_job *job, const struct q_tile *q,
			      const struct team_scratch *scratch, uint64_t end, struct kv_tile tile);

/**
 * tile_mask_view - visibility of the tile at `begin`, whose tokens end at `end` or earlier
 *
 * @param[in]  mask    what tile_mask_next() found for the tile
 * @param[out] scores  visible is filled in; for a PARTIAL tile tile_mask_rows() then replaces visible and fills in seen
 */
struct tile_view tile_mask_view(const struct attention_job *job, const struct q_tile *q, struct team_scratch *scratch,
				struct tile_scores *scores, uint64_t begin, uint64_t end, enum tile_mask mask);

/** tile_mask_rows - fill in visible and seen of the last viewed tile, if PARTIAL, for n q_rows from number `at` on */
void tile_mask_rows(const struct team_scratch *scratch, uint32_t at, uint32_t n, struct tile_scores *scores);

#endif
