/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table region as a client reads it, damaged anywhere: the header is refused, or whatever the slots, page tables,
 * nodes, buckets and changes hold, readers stay inside of the region and come to an end.
 *
 * An input is the region, which is small: a reader takes offsets and strides from the header.
 */
#include "config.h"

#include <string.h>
#include <sys/mman.h>

#include "common/ring.h"
#include "core/core.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "region";
const unsigned int fuzz_mutations = 2000;

enum { N_SLOTS = 4, N_PAGES = 8, PAGE_SIZE = 4, MAX_LENGTH = 24, N_RING = 8, MAX_READ = 64 };

/* The token ids of the prefix that is looked for, and published in the seed. */
static const uint32_t tokens[N_PAGES * PAGE_SIZE] = { 1, 2, 3, 4, 5, 6, 7, 8 };

static void
fuzz_slot(const struct region_view *view, uint32_t slot)
{
	uint32_t generation = atomic_load(&region_slot(view, slot)->generation);
	paged_seq_id id = PAGED_SEQ(generation, view->pool, slot);
	struct region_snapshot snapshot;
	uint32_t *entries, n;

	if (region_snapshot_begin(view, id, &snapshot) != REGION_READ)
		return;
	n = snapshot.capacity / view->page_size;
	fuzz_require(n <= view->table_entries && snapshot.first <= n);
	entries = malloc(n * sizeof(*entries) + 1);
	fuzz_require(entries != NULL && region_snapshot_copy(view, id, &snapshot, n, entries));
	free(entries);
}

static void
fuzz_node(const struct region_view *view, uint32_t page)
{
	uint32_t *copy = malloc(view->page_size * sizeof(*copy));
	struct prefix_node node;

	fuzz_require(copy != NULL);
	if (prefix_node_read(view, page, 0, &node, copy))
		prefix_tokens(view, page, node.serial, copy);
	free(copy);
}

static void
fuzz_search(const struct region_view *view)
{
	struct prefix_keys keys = { .n_pages = sizeof(tokens) / sizeof(tokens[0]) / view->page_size, .tokens = tokens };
	struct prefix_position at = prefix_root(view);
	uint32_t pages[sizeof(tokens) / sizeof(tokens[0])], n_found = prefix_find(view, &keys, &at, pages);

	fuzz_require(n_found <= keys.n_pages);
	for (uint32_t i = 0; i < n_found; i++)
		fuzz_require(pages[i] < view->n_pages);
}

static void
fuzz_changes(const struct region_view *view)
{
	uint64_t head = ring_head(view);
	struct ring_change change;

	for (uint64_t i = 0; i < MAX_READ; i++)
		if (ring_read(view, head + 1 - i, &change) == RING_READ)
			fuzz_require(change.number == head + 1 - i);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct paged_check_result result;
	struct paged_error error = { 0 };
	struct region_view view;
	void *region = malloc(size + 1);

	fuzz_require(region != NULL);
	memcpy(region, data, size);
	if (region_view_init(&view, region, size, NULL, &error) == PAGED_OK) {
		for (uint32_t slot = 0; slot < view.n_slots && slot < MAX_READ; slot++)
			fuzz_slot(&view, slot);
		for (uint32_t page = 0; page < view.n_pages && page < MAX_READ; page++)
			fuzz_node(&view, page);
		fuzz_search(&view);
		fuzz_changes(&view);
		region_accounting_read(&view, &result);
		region_available_pages(view.header);
		if (region_check(&view, &result, &error) != PAGED_OK)
			fuzz_require(error.text[0] != '\0');
	} else {
		fuzz_require(error.status != PAGED_OK && error.text[0] != '\0');
	}
	free(region);
	return 0;
}

/* Seeds: a core's region, its sections moved together. */

static struct core *
seed_core(void *region, const struct core_pool_params *params, bool publishes)
{
	struct core_publish publish = { .keys = { .n_pages = 2, .tokens = tokens } };
	struct seq_spec specs[2] = { { .n_tokens = MAX_LENGTH / 2, .tag = "a" }, { .n_tokens = 1, .tag = "b" } };
	uint32_t session, member, pool, n_published, end;
	struct region_snapshot snapshot;
	struct paged_error error;
	struct core *core;
	paged_seq_id ids[2];

	fuzz_require(core_create((const uint8_t *)"life of a region", &core, &error) == PAGED_OK);
	fuzz_require(core_pool_add(core, params, region, &pool, &error) == PAGED_OK);
	fuzz_require(core_session_open(core, &session, &member, &error) == PAGED_OK);
	fuzz_require(core_seq_create(core, session, 2, specs, ids, &error) == PAGED_OK);
	if (!publishes)
		return core;
	fuzz_require(region_snapshot_begin(core_pool_view(core, pool), ids[0], &snapshot) == REGION_READ);
	publish.seq = ids[0];
	publish.version = snapshot.version;
	fuzz_require(core_seq_publish(core, session, 1, &publish, &n_published, &end, &error) == PAGED_OK);
	return core;
}

/* Appends a section of a region to the small one. */
static uint64_t
seed_section(uint8_t *small, size_t *at, const uint8_t *region, uint64_t offset, uint64_t size)
{
	uint64_t here = *at;

	memcpy(small + here, region + offset, size);
	*at += (size + 7) / 8 * 8;
	return here;
}

static size_t
seed_region(uint8_t *small, bool publishes)
{
	const struct core_pool_params params = { .name = "seed",
						 .n_pages = N_PAGES,
						 .page_size = PAGE_SIZE,
						 .n_slots = N_SLOTS,
						 .max_length = MAX_LENGTH,
						 .publish = publishes };
	size_t size = core_region_size(&params), at = sizeof(struct region_header);
	uint8_t *region = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct region_header *header = (struct region_header *)(void *)region;
	struct core *core;

	fuzz_require(region != MAP_FAILED);
	core = seed_core(region, &params, publishes);
	header->ring_entries = N_RING;
	header->slots_offset = seed_section(small, &at, region, header->slots_offset, N_SLOTS * header->slot_stride);
	header->pages_offset = seed_section(small, &at, region, header->pages_offset, N_PAGES * header->page_stride);
	header->tables_offset = seed_section(small, &at, region, header->tables_offset, N_SLOTS * header->table_stride);
	header->nodes_offset = seed_section(small, &at, region, header->nodes_offset, N_PAGES * header->node_stride);
	header->keys_offset = header->nodes_offset + sizeof(struct region_node);
	header->buckets_offset = seed_section(small, &at, region, header->buckets_offset, header->n_buckets * 4);
	header->ring_offset =
		seed_section(small, &at, region, header->ring_offset, N_RING * sizeof(struct region_ring_entry));
	at += 64; /* the section of keys ends later than that of nodes */
	header->total_size = at;
	memcpy(small, header, sizeof(*header));
	core_destroy(core);
	munmap(region, size);
	return at;
}

size_t
fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size)
{
	fuzz_require(buffer_size >= 8192);
	memset(buffer, 0, 8192);
	return index < 2 ? seed_region(buffer, index == 0) : 0;
}
