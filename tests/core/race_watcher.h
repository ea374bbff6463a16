/* SPDX-License-Identifier: Apache-2.0 */
/**
 * race_watcher.h - a thread of unit_prefix_race that mirrors the index from the ring while it changes
 *
 * It follows the recipe of common/ring.h: a walk, then changes; when it was
 * overtaken, again.  Without a loss, every change must fit the mirror exactly.
 */
#ifndef PAGED_RACE_WATCHER_H
#define PAGED_RACE_WATCHER_H

#include <stdbool.h>

#include "common/region.h"

struct race_watcher_result {
	uint64_t n_changes, n_overtaken;
};

/**
 * race_watcher_start - start the thread
 *
 * @param[in] is_logged  whether the node with this serial was stored at this page; waits until that is known
 */
void race_watcher_start(const struct region_view *view, bool (*is_logged)(uint64_t serial, uint32_t page));

/** race_watcher_stop - let the thread read to the end; exits unless its mirror is the index then */
struct race_watcher_result race_watcher_stop(void);

#endif
