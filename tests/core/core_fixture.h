/* SPDX-License-Identifier: Apache-2.0 */
/** core_fixture.h - a core with the pools that a test adds; any failure aborts */
#ifndef PAGED_CORE_FIXTURE_H
#define PAGED_CORE_FIXTURE_H

#include "core/core.h"

#define CORE_FIXTURE_MAX_POOLS PAGED_MAX_POOLS

struct core_fixture {
	struct core *core;
	uint32_t n_pools;
	void *regions[CORE_FIXTURE_MAX_POOLS];
	size_t region_sizes[CORE_FIXTURE_MAX_POOLS];
};

void core_fixture_open(struct core_fixture *fixture);
void core_fixture_close(struct core_fixture *fixture);

/** fixture_add_pool - returns the pool's index; the region is shared with children forked later */
uint32_t core_fixture_add_pool(struct core_fixture *fixture, const char *name, uint32_t n_pages, uint32_t page_size,
			       uint32_t n_slots, uint32_t max_length);

/** fixture_row - read a sequence's page table in logical order; returns the number of pages */
uint32_t core_fixture_page_table(const struct core_fixture *fixture, uint32_t pool, paged_seq_id seq, uint32_t *pages);

#endif
