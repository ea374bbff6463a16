/* SPDX-License-Identifier: Apache-2.0 */
/* Changes and nodes of the index, as a reader finds them at each moment of the owner's order of stores. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/prefix.h"
#include "common/ring.h"

#define PAGE_SIZE 3

static const uint8_t boot_id[REGION_BOOT_ID_SIZE] = "one life";
static const struct region_params params = {
	.n_pages = 10, .n_slots = 3, .page_size = PAGE_SIZE, .max_length = 30, .publish = true
};

static struct {
	void *base;
	struct region_header *header;
	struct region_view view;
} region;

static void
ring_test_open(void)
{
	size_t size = region_size(&params);
	struct paged_error error;

	region.base = aligned_alloc(4096, size);
	memset(region.base, 0, size);
	region.header = region.base;
	region_format(region.base, &params, boot_id);
	cr_assert_eq(region_view_init(&region.view, region.base, size, boot_id, &error), PAGED_OK, "%s", error.text);
}

static void
ring_test_close(void)
{
	free(region.base);
}

TestSuite(ring, .init = ring_test_open, .fini = ring_test_close);

static void
change_write(uint64_t number, uint32_t page)
{
	struct region_ring_entry *entry = region_ring_entry(&region.view, number);

	atomic_store(&entry->serial, 100 + number);
	atomic_store(&entry->hash, 200 + number);
	atomic_store(&entry->page, page);
	atomic_store(&entry->kind, REGION_RING_STORED);
	atomic_store(&entry->number, number);
}

static void
change_expect(uint64_t number, uint32_t page)
{
	struct ring_change change;

	cr_assert_eq(ring_read(&region.view, number, &change), RING_READ);
	cr_assert_eq(change.number, number);
	cr_assert_eq(change.serial, 100 + number);
	cr_assert_eq(change.hash, 200 + number);
	cr_assert_eq(change.page, page);
	cr_assert_eq(change.kind, REGION_RING_STORED);
}

Test(ring, changes_are_read_in_order)
{
	struct ring_change change;

	cr_assert_eq(ring_head(&region.view), 0);
	cr_assert_eq(ring_read(&region.view, 1, &change), RING_NONE);
	change_write(1, 7);
	/* An entry is a change once the head says so. */
	cr_assert_eq(ring_read(&region.view, 1, &change), RING_NONE);
	change_write(2, 8);
	atomic_store(&region.header->ring_head, 2);
	change_expect(1, 7);
	change_expect(2, 8);
	cr_assert_eq(ring_read(&region.view, 3, &change), RING_NONE);
}

Test(ring, overtaken_readers_notice)
{
	struct ring_change change;

	for (uint64_t number = 1; number <= REGION_RING_ENTRIES; number++)
		change_write(number, 1);
	atomic_store(&region.header->ring_head, REGION_RING_ENTRIES);
	change_expect(1, 1);
	/* The owner begins to write the entry that follows. */
	atomic_store(&region_ring_entry(&region.view, 1)->number, 0);
	cr_assert_eq(ring_read(&region.view, 1, &change), RING_OVERTAKEN);
	change_expect(2, 1);
	change_write(REGION_RING_ENTRIES + 1, 2);
	cr_assert_eq(ring_read(&region.view, 1, &change), RING_OVERTAKEN);
	atomic_store(&region.header->ring_head, REGION_RING_ENTRIES + 1);
	cr_assert_eq(ring_read(&region.view, 1, &change), RING_OVERTAKEN);
	change_expect(REGION_RING_ENTRIES + 1, 2);
	change_expect(2, 1);
}

/* Publishes page 5 under page 4 with token ids 11, 12, 13, or with a key. */
static void
node_write(uint64_t serial, bool has_tokens)
{
	static const uint32_t tokens[PAGE_SIZE] = { 11, 12, 13 };
	static const uint8_t extra[REGION_EXTRA_SIZE] = "extra";
	const struct prefix_block block = { .tokens = has_tokens ? tokens : NULL, .extra = extra };
	struct region_node *node = region_node(&region.view, 5);

	prefix_block_store(&region.view, 5, &block);
	atomic_store(&node->parent_serial, 40);
	atomic_store(&node->parent, 4);
	atomic_store(&node->hash, 77);
	atomic_store(&node->hits, 2);
	atomic_store(&node->serial, serial);
}

Test(ring, nodes_are_read_with_their_keys)
{
	uint32_t tokens[PAGE_SIZE];
	struct prefix_node node;

	cr_assert_not(prefix_node_read(&region.view, 5, 0, &node, tokens));
	node_write(41, true);
	for (uint64_t serial = 0; serial <= 41; serial += 41) {
		cr_assert(prefix_node_read(&region.view, 5, serial, &node, tokens));
		cr_assert(node.serial == 41 && node.parent_serial == 40 && node.parent == 4);
		cr_assert(node.hash == 77 && node.hits == 2 && node.has_tokens);
		cr_assert(memcmp(node.extra, "extra", 6) == 0);
		cr_assert(tokens[0] == 11 && tokens[1] == 12 && tokens[2] == 13);
	}
	cr_assert_not(prefix_node_read(&region.view, 5, 40, &node, tokens));
	cr_assert_not(prefix_tokens(&region.view, 5, 0, tokens));
	cr_assert(prefix_tokens(&region.view, 5, 41, tokens));
}

Test(ring, nodes_of_keys_have_no_tokens)
{
	uint32_t tokens[PAGE_SIZE];
	struct prefix_node node;

	node_write(41, false);
	cr_assert(prefix_node_read(&region.view, 5, 41, &node, NULL));
	cr_assert_not(node.has_tokens);
	cr_assert(memcmp(node.extra, "extra", 6) == 0);
	cr_assert(prefix_tokens(&region.view, 5, 41, tokens));
	cr_assert_eq(tokens[0], PREFIX_NO_TOKENS);
}

Test(ring, token_ids_attached_to_a_key)
{
	static const uint32_t given[2][PAGE_SIZE] = { { 11, 12, 13 }, { 0, UINT32_MAX - 1, 7 } };
	static const uint8_t extra[REGION_EXTRA_SIZE] = "extra";
	struct prefix_block block = { .extra = extra };
	uint32_t tokens[PAGE_SIZE];
	struct prefix_node node;

	for (uint32_t i = 0; i < 2; i++) {
		node_write(41, true);
		block.attached_tokens = given[i];
		prefix_block_store(&region.view, 5, &block);
		cr_assert(prefix_node_read(&region.view, 5, 41, &node, tokens));
		cr_assert(node.keyed && node.has_tokens);
		cr_assert_eq(memcmp(tokens, given[i], sizeof(tokens)), 0);
		/* They are no part of the key. */
		block.attached_tokens = NULL;
		cr_assert(prefix_block_equal(&region.view, 5, &block));
		block.tokens = given[i];
		cr_assert_not(prefix_block_equal(&region.view, 5, &block));
		block.tokens = NULL;
	}
	node_write(41, true);
	cr_assert(prefix_node_read(&region.view, 5, 41, &node, tokens));
	cr_assert(!node.keyed && tokens[0] == 11);
}
