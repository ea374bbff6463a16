/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tile_mask.h - what a task's lines see, where a block mask or a mask mod says so
 *
 * Asked from the large to the small: which splits may hold something, then
 * which tiles of a split, then which tokens of a tile for each line.  Every
 * answer may be more than what is seen but for the last, and less never.
 */
#ifndef PAGED_KERNELS_CPU_SIGHT_H
#define PAGED_KERNELS_CPU_SIGHT_H

#include "kernels/cpu/tile.h"
#include "kernels/mask/mask.h"
#include "kernels/mod/mod.h"

#define SIGHT_TILES (KERNEL_SPLIT / TILE_TOKENS)

struct attention_job;
struct attention_task;
struct team_scratch;

struct kernel_mods {
	struct kernel_mods_params params;
	uint32_t n_threads;
	struct mod_vm **mask; /* [n_threads], or NULL without the mod */
	struct mod_vm **score;
	struct mod_vm *vms[];
};

/** How much of what lengths and causality leave is seen. */
enum sight_part { SIGHT_NOTHING, SIGHT_SOME, SIGHT_ALL };

/** A thread's knowledge of its task and of one split. */
struct sight {
	int32_t h[TILE_LINES], q_idx[TILE_LINES];
	/* Lines of the same list of the block mask share the first such line's words. */
	uint8_t owner[TILE_LINES];
	uint64_t marked; /* first token of the split that the words are about; UINT64_MAX: none */
	bool any;        /* of the words has a bit */
	uint64_t full[TILE_LINES][SIGHT_TILES];
	uint64_t partial[TILE_LINES][SIGHT_TILES];
};

/** sight_begin - before a thread's splits of a task; of several KV heads, scores are all that may be asked about */
void sight_begin(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch);

/** sight_next - the first split at or after `split` in which something may be seen, or n_splits */
uint64_t sight_next(const struct attention_job *job, const struct attention_task *task, struct team_scratch *scratch,
		    uint64_t split, uint64_t n_splits);

/** sight_split - of keys [begin, end), a split as far as lengths and causality reach; without a block mask any keys */
enum sight_part sight_split(const struct attention_job *job, const struct attention_task *task,
			    struct team_scratch *scratch, uint64_t begin, uint64_t end);

/**
 * sight_tile - of keys [begin, end) in the split last asked about
 *
 * Reads visible of lines from `first` on; on SIGHT_SOME fills seen (of lines
 * before `first` with 0), lowers visible to the last token that is seen, and
 * gives the tokens that at least one line sees.
 */
enum sight_part sight_tile(const struct attention_job *job, const struct attention_task *task,
			   struct team_scratch *scratch, struct tile_scores *scores, uint32_t begin, uint32_t end,
			   uint32_t first, uint64_t *seen_by_any);

#endif
