/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ring.h"

enum ring_result
ring_read(const struct region_view *view, uint64_t number, struct ring_change *change)
{
	const struct region_ring_entry *entry = region_ring_entry(view, number);

	if (ring_head(view) < number)
		return RING_NONE;
	/* The entry was written before head, so any other number is of a later change, or 0 while that is written. */
	if (atomic_load_explicit(&entry->number, memory_order_acquire) != number)
		return RING_OVERTAKEN;
	*change = (struct ring_change){
		.number = number,
		.serial = atomic_load_explicit(&entry->serial, memory_order_relaxed),
		.hash = atomic_load_explicit(&entry->hash, memory_order_relaxed),
		.page = atomic_load_explicit(&entry->page, memory_order_relaxed),
		.kind = atomic_load_explicit(&entry->kind, memory_order_relaxed),
	};
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&entry->number, memory_order_relaxed) == number ? RING_READ : RING_OVERTAKEN;
}
