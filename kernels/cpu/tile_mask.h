/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tile_mask.h - what query rows see, where a block mask or a mask mod says so
 *
 * Asked from the large to the small: which KV chunks may hold something, then
 * which tiles of a chunk, then which tokens of a tile for each query row.  Every
 * answer may be more than what is seen but for the last, and less never.
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
	struct mod_vm **mask; /* [n_threads], or NULL without the mod */
	struct mod_vm **score;
	struct mod_interval **intervals; /* of the mask */
	struct mod_vm *vms[];
};

/** How much of what lengths and causality leave is seen. */
enum tile_mask { TILE_EMPTY, TILE_PARTIAL, TILE_FULL };

/** A tile that an item has to visit. */
struct kv_tile {
	uint64_t begin;       /* its first token */
	enum tile_mask mask;  /* not TILE_EMPTY */
	enum tile_mask chunk; /* of its chunk */
};

/** What query rows see of one tile. */
struct tile_view {
	uint32_t begin, n_tokens;
	enum tile_mask mask;
	uint32_t first;  /* query row that sees something */
	uint64_t wanted; /* tokens that a query row sees */
};

/** What a thread's query rows see: as mods were told of them, and of one chunk and tile. */
struct mask_rows {
	int32_t h[TILE_LINES], q_idx[TILE_LINES];
	/* Query rows of the same list of the block mask share the first such one's words. */
	uint8_t owner[TILE_LINES];
	uint64_t marked; /* first token of the chunk that the words are about; UINT64_MAX: none */
	uint64_t full[TILE_LINES][CHUNK_TILES];
	uint64_t partial[TILE_LINES][CHUNK_TILES];
	uint64_t seen[TILE_LINES]; /* tokens of the tile */
	uint32_t visible[TILE_LINES];
};

/** tile_mask_begin - the query rows of the tiles to come, those of several KV heads one after the other */
void tile_mask_begin(const struct attention_job *job, const struct q_tile *q, struct team_scratch *scratch);

/** tile_mask_range - of keys [begin, end); with a block mask TILE_PARTIAL, or TILE_EMPTY for a chunk without blocks */
enum tile_mask tile_mask_range(const struct attention_job *job, const struct q_tile *q,
			       const struct team_scratch *scratch, uint64_t begin, uint64_t end);

/** tile_mask_next - the first tile at or after tile.begin of which something may be seen; from `end` on: none is */
struct kv_tile tile_mask_next(const struct attention_job *job, const struct q_tile *q,
			      const struct team_scratch *scratch, uint64_t end, struct kv_tile tile);

/**
 * tile_mask_view - what query rows see of the tile at `begin`, whose tokens end at `end` at the latest
 *
 * @param[in]  mask    of the tile, as far as it is known
 * @param[out] scores  visible, but of PARTIAL tiles: those and seen, tile_mask_rows() fills
 */
struct tile_view tile_mask_view(const struct attention_job *job, const struct q_tile *q, struct team_scratch *scratch,
				struct tile_scores *scores, uint64_t begin, uint64_t end, enum tile_mask mask);

/** tile_mask_rows - n query rows' visible and seen of the PARTIAL tile last viewed, from number `at` on */
void tile_mask_rows(const struct team_scratch *scratch, uint32_t at, uint32_t n, struct tile_scores *scores);

#endif
