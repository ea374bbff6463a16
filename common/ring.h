/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ring.h - read the changes of the index of published pages
 *
 * The owner writes each change into the ring of the table region (region.h)
 * after it has changed the index.  Readers need no request and no lock, and the
 * owner does not know them: one that is more than ring_entries changes behind
 * has lost the oldest of them.
 *
 * A mirror of the index.  Take ring_head() as the position, walk all nodes by
 * prefix_node_read(), then apply the changes after the position.  That is
 * consistent, because a change that precedes the position is visible to the walk
 * (head is stored after the change, with release, and loaded with acquire), and
 * because a change that the walk has seen already is idempotent: serials never
 * repeat, so a node that is stored twice is one node, and the removal of a serial
 * that the mirror does not have changes nothing.
 *
 * prefix.h has the memory order of entries and nodes.
 *
 * Threads: any number of readers; one writer.
 */
#ifndef PAGED_RING_H
#define PAGED_RING_H

#include "common/region.h"

/** A change of the index. */
struct ring_change {
	uint64_t number; /* without gaps */
	uint64_t serial; /* of the node */
	uint64_t hash;   /* of the node; prefix_hash() */
	uint32_t page;
	uint32_t kind; /* enum region_ring_kind */
};

enum ring_result {
	RING_READ,      /* the change was copied */
	RING_NONE,      /* it has not been made yet */
	RING_OVERTAKEN, /* a later change has replaced it */
};

/** ring_head - number of the last change; 0: none yet */
static inline uint64_t
ring_head(const struct region_view *view)
{
	return atomic_load_explicit(&view->header->ring_head, memory_order_acquire);
}

/** ring_read - copy the change with this number */
enum ring_result ring_read(const struct region_view *view, uint64_t number, struct ring_change *change);

#endif
