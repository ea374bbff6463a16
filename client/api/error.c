/* SPDX-License-Identifier: Apache-2.0 */
#include "client/api/error.h"

#include <stdatomic.h>

struct error_slot {
	uint64_t serial; /* 0: unused */
	uint64_t order;  /* sequence number of its last failure; 0: unused */
	struct paged_error error;
};

static _Thread_local struct {
	struct error_slot slot[ERROR_SLOTS];
	uint64_t n_failures;
} kept;

uint64_t
error_serial(void)
{
	static _Atomic uint64_t last;

	return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

static struct error_slot *
error_slot_find(uint64_t serial)
{
	for (unsigned int i = 0; i < ERROR_SLOTS; i++)
		if (kept.slot[i].serial == serial)
			return &kept.slot[i];
	return NULL;
}

void
error_keep(uint64_t serial, const struct paged_error *error)
{
	struct error_slot *slot = error_slot_find(serial);

	if (slot == NULL) {
		/* Replace the least recent failure. */
		slot = &kept.slot[0];
		for (unsigned int i = 1; i < ERROR_SLOTS; i++)
			if (kept.slot[i].order < slot->order)
				slot = &kept.slot[i];
	}
	slot->serial = serial;
	slot->order = ++kept.n_failures;
	slot->error = *error;
}

const char *
error_text(uint64_t serial)
{
	const struct error_slot *slot = error_slot_find(serial);

	return slot != NULL ? slot->error.text : "";
}

const struct paged_shortage *
error_shortage(uint64_t serial)
{
	const struct error_slot *slot = error_slot_find(serial);

	return slot != NULL && paged_error_has_shortage(&slot->error) ? &slot->error.shortage : NULL;
}
