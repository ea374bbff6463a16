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

#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/scratch.h"

/** tile_mask_begin - set the q_rows of the following tiles, KV head after KV head */
void tile_mask_begin(const struct attention_job *job, const struct q_tile *q, struct team_scratch *scratch);

/**
 * tile_mask_range - mask of keys [begin, end) that are at or past kv_first; with a block mask PARTIAL, or EMPTY if no
 * block intersects the range
 */
enum tile_mask tile_mask_range(const struct attention_job *job, const struct q_tile *q,
			       const struct team_scratch *scratch, uint64_t begin, uint64_t end);

/**
 * tile_mask_bound - `mask`, the mask of the tile at `begin` by mods and block mask, with kv_first applied
 *
 * The tile must end past kv_first.
 */
static inline enum tile_mask
tile_mask_bound(const struct kernel_row *row, uint64_t begin, enum tile_mask mask)
{
	return mask == TILE_FULL && begin < row->kv_first ? TILE_PARTIAL : mask;
}

/** tile_mask_next - the first tile at or after tile.begin that may have visible tokens; result.begin >= end: none */
struct kv_tile tile_mask_next(const struct attention_job *job, const struct q_tile *q,
			      const struct team_scratch *scratch, uint64_t end, struct kv_tile tile);

/**
 * tile_mask_view - visibility of the tile at `begin`, whose tokens end at `end` or earlier
 *
 * @param[in]  mask    what tile_mask_next() found for the tile
 * @param[out] scores  visible is filled in; for a PARTIAL tile tile_mask_q_rows() then replaces visible and fills in
 * seen
 */
struct tile_view tile_mask_view(const struct attention_job *job, const struct q_tile *q, struct team_scratch *scratch,
				struct tile_scores *scores, uint64_t begin, uint64_t end, enum tile_mask mask);

/** tile_mask_q_rows - fill in visible and seen of the last viewed tile, if PARTIAL, for n q_rows from number `at` on */
void tile_mask_q_rows(const struct team_scratch *scratch, uint32_t at, uint32_t n, struct tile_scores *scores);

#endif
