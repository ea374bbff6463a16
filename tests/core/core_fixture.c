/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/core_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void
fixture_require(bool holds, const char *text)
{
	if (!holds) {
		fprintf(stderr, "fixture: %s\n", text);
		abort();
	}
}

void
core_fixture_open(struct core_fixture *fixture)
{
	static const uint8_t boot_id[REGION_BOOT_ID_SIZE] = "life of a test";
	struct paged_error error = { 0 };

	*fixture = (struct core_fixture){ 0 };
	fixture_require(core_create(boot_id, &fixture->core, &error) == PAGED_OK, error.text);
}

void
core_fixture_close(struct core_fixture *fixture)
{
	core_destroy(fixture->core);
	for (uint32_t i = 0; i < fixture->n_pools; i++)
		munmap(fixture->regions[i], fixture->region_sizes[i]);
}

uint32_t
core_fixture_add_pool(struct core_fixture *fixture, const char *name, uint32_t n_pages, uint32_t page_size,
		      uint32_t n_slots, uint32_t max_length)
{
	struct core_pool_params params = {
		.name = name,
		.n_pages = n_pages,
		.page_size = page_size,
		.n_slots = n_slots,
		.max_length = max_length,
	};
	size_t size = core_region_size(&params);
	struct paged_error error = { 0 };
	uint32_t pool;
	void *region;

	fixture_require(size != 0 && fixture->n_pools < CORE_FIXTURE_MAX_POOLS, "no such pool can be");
	region = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	fixture_require(region != MAP_FAILED, "no memory");
	fixture_require(core_pool_add(fixture->core, &params, region, &pool, &error) == PAGED_OK, error.text);
	fixture->regions[pool] = region;
	fixture->region_sizes[pool] = size;
	fixture->n_pools++;
	return pool;
}

uint32_t
core_fixture_page_table(const struct core_fixture *fixture, uint32_t pool, paged_seq_id seq, uint32_t *pages)
{
	const struct region_view *view = core_pool_view(fixture->core, pool);
	struct region_snapshot snapshot;
	uint32_t n;

	fixture_require(region_snapshot_begin(view, seq, &snapshot) == REGION_READ, "no such sequence");
	fixture_require(snapshot.capacity % view->page_size == 0, "a capacity is no multiple of the page size");
	n = snapshot.capacity / view->page_size;
	for (uint32_t i = 0; i < n; i++)
		pages[i] = atomic_load_explicit(&region_page_table(view, PAGED_SEQ_SLOT(seq))[i], memory_order_relaxed);
	fixture_require(region_snapshot_valid(view, seq, &snapshot), "a snapshot is invalid although nothing changes");
	return n;
}
