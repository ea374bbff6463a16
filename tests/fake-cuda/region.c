/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that kernels may access, sorted by address. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fake-cuda/race_cell.h"
#include "tests/fake-cuda/simt_block.h"

static struct region *regions;
static size_t n_regions, n_places, last;

static size_t
region_position(uintptr_t address)
{
	size_t low = 0, high = n_regions;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (regions[middle].start + regions[middle].size <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void
region_forget(struct region *region)
{
	if (region->cells != NULL)
		munmap(region->cells, race_cells_size(region->size));
	region->cells = NULL;
}

bool
simt_region_add(const void *start, size_t size, bool writable, const char *name)
{
	uintptr_t address = (uintptr_t)start;
	size_t at = region_position(address);

	if (size == 0 || (at < n_regions && regions[at].start < address + size))
		return false;
	if (n_regions == n_places) {
		size_t wanted = n_places * 2 + 16;
		struct region *grown = realloc(regions, wanted * sizeof(*regions));

		if (grown == NULL)
			return false;
		regions = grown;
		n_places = wanted;
	}
	memmove(&regions[at + 1], &regions[at], (n_regions - at) * sizeof(*regions));
	regions[at] =
		(struct region){ .start = address, .size = size, .readable = true, .writable = writable, .name = name };
	n_regions++;
	return true;
}

void
simt_region_remove(const void *start)
{
	size_t at = region_position((uintptr_t)start);

	if (at == n_regions || regions[at].start != (uintptr_t)start)
		return;
	region_forget(&regions[at]);
	n_regions--;
	memmove(&regions[at], &regions[at + 1], (n_regions - at) * sizeof(*regions));
}

void
simt_region_allow(const void *start, bool readable, bool writable)
{
	struct region *region = region_find((uintptr_t)start);

	region->readable = readable;
	region->writable = readable && writable;
}

void
region_forget_shadows(void)
{
	for (size_t i = 0; i < n_regions; i++)
		region_forget(&regions[i]);
}

void
region_forget_shared(uintptr_t start)
{
	struct region *region = region_find(start);

	if (region != NULL && region->cells != NULL)
		memset(region->cells, 0, race_cells_size(region->size));
}

struct region *
region_find(uintptr_t address)
{
	if (last < n_regions && address - regions[last].start < regions[last].size)
		return &regions[last];
	last = region_position(address);
	return last < n_regions && regions[last].start <= address ? &regions[last] : NULL;
}

const char *
region_describe(uintptr_t address)
{
	static char text[160];
	size_t at = region_position(address);

	if (at < n_regions && regions[at].start <= address)
		snprintf(text, sizeof(text), "%s + %zu", regions[at].name, (size_t)(address - regions[at].start));
	else if (at > 0)
		snprintf(text, sizeof(text), "address %#zx, %zu bytes past the end of %s (of %zu bytes)",
			 (size_t)address, (size_t)(address - regions[at - 1].start - regions[at - 1].size),
			 regions[at - 1].name, regions[at - 1].size);
	else
		snprintf(text, sizeof(text), "address %#zx, which is in no allocation", (size_t)address);
	return text;
}

struct region *
region_checked(uintptr_t address, size_t size, bool writes, const void *code)
{
	struct region *region = region_find(address);
	const char *what = writes ? "writes" : "reads";

	if (region == NULL)
		block_fail_at(code, "it %s %zu bytes at %s", what, size, region_describe(address));
	if (region->size - (address - region->start) < size)
		block_fail_at(code, "it %s %zu bytes at %s, past the end (%zu bytes)", what, size,
			      region_describe(address), region->size);
	if (!region->readable)
		block_fail_at(code, "it %s %s, which this device may not touch now", what, region_describe(address));
	if (writes && !region->writable)
		block_fail_at(code, "it writes %s, which is read only", region_describe(address));
	if (block_begins_early() && block_rank_shared(region->start) == block.n_blocks &&
	    region->start != (uintptr_t)block.launch->params)
		block_fail_at(code, "it %s %s before simt_dependency_wait(), in a dependent launch", what,
			      region_describe(address));
	if (region->cells == NULL) {
		void *cells = mmap(NULL, race_cells_size(region->size), PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (cells == MAP_FAILED)
			block_fail("no memory for the shadow of %s", region->name);
		region->cells = cells;
	}
	return region;
}
