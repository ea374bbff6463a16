/* SPDX-License-Identifier: Apache-2.0 */
/** core_fixture.h - a core with the pools that a test adds; any failure aborts */
#ifndef PAGED_CORE_FIXTURE_H
#define PAGED_CORE_FIXTURE_H

#include "core/core.h"

#define FIXTURE_MAX_POOLS PAGED_MAX_POOLS

struct fixture {
	struct core *core;
	uint32_t n_pools;
	void *regions[FIXTURE_MAX_POOLS];
	size_t region_sizes[FIXTURE_MAX_POOLS];
};

void fixture_open(struct fixture *fixture);
void fixture_close(struct fixture *fixture);

/** fixture_add_pool - returns the pool's index; the region is shared with children forked later */
uint32_t fixture_add_pool(struct fixture *fixture, const char *name, uint32_t n_pages, uint32_t page_size,
			  uint32_t n_slots, uint32_t max_length);

/** fixture_row - read a sequence's page table in logical order; returns the number of pages */
uint32_t fixture_row(const struct fixture *fixture, uint32_t pool, paged_seq_id seq, uint32_t *pages);

#endif
