/* SPDX-License-Identifier: Apache-2.0 */
/* The region's layout: what a view of it refuses, and snapshots of slots. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/region.h"

static const uint8_t boot_id[REGION_BOOT_ID_SIZE] = "one life";
static const uint8_t other_boot_id[REGION_BOOT_ID_SIZE] = "another";
static const struct region_params params = {
	.pool = 2, .n_pages = 10, .n_slots = 3, .page_size = 4, .max_length = 30, .publish = true
};

static struct {
	uint8_t *base;
	size_t size;
	struct region_header *header;
	struct region_view view;
	struct paged_error error;
} region;

static void
region_test_open(void)
{
	memset(&region, 0, sizeof(region));
	region.size = region_size(&params);
	region.base = aligned_alloc(4096, region.size);
	memset(region.base, 0, region.size);
	region.header = (struct region_header *)region.base;
	region_format(region.base, &params, boot_id);
	cr_assert_eq(region_view_init(&region.view, region.base, region.size, boot_id, &region.error), PAGED_OK, "%s",
		     region.error.text);
}

static void
region_test_close(void)
{
	free(region.base);
}

TestSuite(region, .init = region_test_open, .fini = region_test_close);

static void
field_set(_Atomic uint32_t *field, uint32_t value)
{
	atomic_store(field, value);
}

/* A live sequence 1.5 of session 7 with pages 3, 2. */
#define SEQ PAGED_SEQ(5, 2, 1)

static struct region_slot *
sequence_write(const struct region_view *view, struct region_header *header)
{
	struct region_slot *slot = region_slot(view, 1);

	field_set(&slot->generation, 5);
	field_set(&slot->owner, 7);
	field_set(&region_page_table(view, 1)[0], 3);
	field_set(&region_page_table(view, 1)[1], 2);
	field_set(&slot->capacity, 8);
	field_set(&region_page(view, 2)->count, 1);
	field_set(&region_page(view, 3)->count, 1);
	field_set(&header->n_free, 8);
	field_set(&header->n_referenced, 2);
	field_set(&header->high_page, 4);
	field_set(&header->high_slot, 2);
	return slot;
}

static enum paged_status
region_test_init(size_t size)
{
	struct region_view view;

	return region_view_init(&view, region.base, size, boot_id, &region.error);
}

Test(region, format_and_view)
{
	cr_assert_eq(memcmp(region.base, "PAGDTLB2", 8), 0);
	cr_assert_eq(region.header->total_size, region.size);
	cr_assert_eq(region.header->pool, 2);
	cr_assert_eq(region.view.n_pages, 10);
	cr_assert_eq(region.view.n_slots, 3);
	cr_assert_eq(region.view.table_entries, 8);
	cr_assert_eq(region.view.table_stride, 64);
	cr_assert_eq(atomic_load(&region.header->n_free), 10);
	for (uint32_t s = 0; s < 3; s++) {
		cr_assert_eq((uintptr_t)region_page_table(&region.view, s) % 64, 0);
		cr_assert_leq((uint8_t *)(region_page_table(&region.view, s) + 8), region.base + region.size);
	}
	cr_assert_leq((uint8_t *)(region_slot(&region.view, 2) + 1), (uint8_t *)region_page(&region.view, 0));
	cr_assert_leq((uint8_t *)(region_page(&region.view, 9) + 1), (uint8_t *)region_page_table(&region.view, 0));
}

/* The capacity of a full page table must fit 32 bits for any size of the mapping, because callers multiply. */
Test(region, page_tables_whose_capacity_overflows)
{
	region.header->table_entries = 1u << 24;
	region.header->table_stride = 1u << 26;
	region.header->key_stride = 2048;
	region.header->page_size = 255;
	cr_assert_eq(region_test_init((size_t)1 << 40), PAGED_OK, "%s", region.error.text);
	region.header->page_size = 256;
	cr_assert_eq(region_test_init((size_t)1 << 40), PAGED_ERR_PROTOCOL);
}

Test(region, size_of_invalid_params_is_0)
{
	struct region_params bad[] = {
		{ .n_pages = 0, .n_slots = 1, .page_size = 1, .max_length = 1 },
		{ .n_pages = 1, .n_slots = 0, .page_size = 1, .max_length = 1 },
		{ .n_pages = 1, .n_slots = 1, .page_size = 0, .max_length = 1 },
		{ .n_pages = 1, .n_slots = 1, .page_size = 1, .max_length = 0 },
		{ .n_pages = UINT32_MAX, .n_slots = 1, .page_size = 1, .max_length = 1 },
		{ .n_pages = 1, .n_slots = 1, .page_size = 257, .max_length = 1 },
		{ .n_pages = 1, .n_slots = 1, .page_size = 1, .max_length = UINT32_MAX },
		/* The last page of a full page table would end one token past the largest capacity. */
		{ .n_pages = 1, .n_slots = 1, .page_size = 256, .max_length = UINT32_MAX - 200 },
	};
	struct region_params most = {
		.n_pages = UINT32_MAX - 1, .n_slots = 1, .page_size = 256, .max_length = UINT32_MAX - 255
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_eq(region_size(&bad[i]), 0, "case %zu", i);
	cr_assert_neq(region_size(&most), 0);
	most.n_slots = UINT32_MAX;
	cr_assert_eq(region_size(&most) % 4096, 0);
}

Test(region, refuses_other_files)
{
	cr_assert_eq(region_test_init(sizeof(struct region_header) - 1), PAGED_ERR_PROTOCOL);
	cr_assert_eq(region_test_init(region.size - 1), PAGED_ERR_PROTOCOL);
	cr_assert_eq(region_test_init(region.size), PAGED_OK);
	region.header->magic ^= 1;
	cr_assert_eq(region_test_init(region.size), PAGED_ERR_PROTOCOL);
	cr_assert_not_null(strstr(region.error.text, "does not begin with paged's magic"));
}

Test(region, refuses_other_versions)
{
	region.header->version_minor = 9;
	cr_assert_eq(region_test_init(region.size), PAGED_OK);
	region.header->version_major = 3;
	cr_assert_eq(region_test_init(region.size), PAGED_ERR_VERSION);
	cr_assert_str_eq(region.error.text, "table region has version 3.9, this library reads 2.x");
	region.header->version_major = 2;
	region.header->n_shards = 4;
	cr_assert_eq(region_test_init(region.size), PAGED_OK, "the page tables of shards are the same");
	region.header->n_layer_groups = 2;
	cr_assert_eq(region_test_init(region.size), PAGED_ERR_VERSION);
	cr_assert_str_eq(region.error.text, "table region has 2 layer groups, this library reads 1");
}

Test(region, refuses_another_boot_id)
{
	struct region_view view;

	cr_assert_eq(region_view_init(&view, region.base, region.size, other_boot_id, &region.error), PAGED_ERR_GONE);
	cr_assert_eq(region_view_init(&view, region.base, region.size, NULL, &region.error), PAGED_OK);
}

/* Each line makes one field of the header invalid. */
#define EXPECT_INVALID(assignment)                                                            \
	do {                                                                                  \
		struct region_header before;                                                  \
		memcpy(&before, region.base, sizeof(before));                                 \
		assignment;                                                                   \
		cr_assert_eq(region_test_init(region.size), PAGED_ERR_PROTOCOL, #assignment); \
		memcpy(region.base, &before, sizeof(before));                                 \
	} while (0)

Test(region, refuses_offsets_outside_the_region)
{
	struct region_header *h = region.header;

	EXPECT_INVALID(h->total_size = region.size + 1);
	EXPECT_INVALID(h->n_slots = 0);
	EXPECT_INVALID(h->n_pages = 0);
	EXPECT_INVALID(h->n_pages = UINT32_MAX);
	EXPECT_INVALID(h->n_pages = 100000);
	EXPECT_INVALID(h->n_slots = 100000);
	EXPECT_INVALID(h->page_size = 0);
	EXPECT_INVALID(h->page_size = 257);
	EXPECT_INVALID(h->max_length = 33);
	EXPECT_INVALID(h->table_entries = 7);
	EXPECT_INVALID(h->table_entries = UINT32_MAX);
	EXPECT_INVALID(h->table_stride = 28);
	EXPECT_INVALID(h->table_stride = UINT64_MAX - 3);
	EXPECT_INVALID(h->slot_stride = 56);
	EXPECT_INVALID(h->slot_stride = 68);
	EXPECT_INVALID(h->page_stride = 0);
	EXPECT_INVALID(h->page_stride = 6);
	EXPECT_INVALID(h->slots_offset = UINT64_MAX - 7);
	EXPECT_INVALID(h->slots_offset += 4);
	EXPECT_INVALID(h->pages_offset += 2);
	EXPECT_INVALID(h->pages_offset = region.size);
	EXPECT_INVALID(h->tables_offset = region.size - 4);
	EXPECT_INVALID(h->tables_offset += 1);
	EXPECT_INVALID(h->nodes_offset = region.size);
	EXPECT_INVALID(h->node_stride = 56);
	EXPECT_INVALID(h->keys_offset += 4);
	EXPECT_INVALID(h->key_stride = 40);
	EXPECT_INVALID(h->n_buckets = 3);
	EXPECT_INVALID(h->n_buckets = 1u << 31);
	EXPECT_INVALID(h->buckets_offset = region.size);
	EXPECT_INVALID(h->ring_entries = 0);
	EXPECT_INVALID(h->ring_entries = 3);
	EXPECT_INVALID(h->ring_offset = region.size - 32);
}

/* A newer owner's records may be larger: readers use the strides and offsets of the header. */
Test(region, accepts_larger_strides)
{
	static _Alignas(64) uint8_t memory[8192];
	struct region_header *header = (struct region_header *)memory;
	struct region_view view;
	struct region_snapshot snapshot;
	struct paged_check_result accounting;

	*header = (struct region_header){
		.magic = REGION_MAGIC,
		.version_major = 2,
		.version_minor = 7,
		.total_size = sizeof(memory),
		.n_slots = 3,
		.slot_stride = 136,
		.slots_offset = 512,
		.n_pages = 10,
		.page_stride = 12,
		.pages_offset = 1024,
		.tables_offset = 2048,
		.table_stride = 100,
		.table_entries = 9,
		.page_size = 4,
		.max_length = 30,
		.n_layer_groups = 1,
		.n_shards = 1,
		.pool = 2,
		.nodes_offset = 3072,
		.node_stride = 72,
		.keys_offset = 4096,
		.key_stride = 56,
		.n_buckets = 16,
		.buckets_offset = 5120,
		.ring_entries = 4,
		.ring_offset = 6144,
	};
	cr_assert_eq(region_view_init(&view, memory, sizeof(memory), NULL, &region.error), PAGED_OK, "%s",
		     region.error.text);
	cr_assert_eq((uint8_t *)region_slot(&view, 2), memory + 512 + 2 * 136);
	cr_assert_eq((uint8_t *)region_page(&view, 9), memory + 1024 + 9 * 12);
	cr_assert_eq((uint8_t *)region_page_table(&view, 1), memory + 2048 + 100);
	cr_assert_eq((uint8_t *)region_node(&view, 9), memory + 3072 + 9 * 72);
	cr_assert_eq((uint8_t *)region_block_key(&view, 9), memory + 4096 + 9 * 56);
	cr_assert_eq((uint8_t *)region_bucket(&view, 0x1f), memory + 5120 + 15 * 4);
	cr_assert_eq((uint8_t *)region_ring_entry(&view, 6), memory + 6144 + 32);
	sequence_write(&view, header);
	cr_assert_eq(region_snapshot_begin(&view, SEQ, &snapshot), REGION_READ);
	cr_assert_eq(snapshot.capacity, 8);
	cr_assert_eq(region_check(&view, &accounting, &region.error), PAGED_OK, "%s", region.error.text);
	cr_assert_eq(accounting.n_sequences, 1);
}

Test(region, snapshot)
{
	struct region_slot *slot = sequence_write(&region.view, region.header);
	struct region_snapshot snapshot;
	uint32_t entries[2];

	field_set(&slot->writable_from, 4);
	cr_assert_eq(region_snapshot_begin(&region.view, SEQ, &snapshot), REGION_READ);
	cr_assert_eq(snapshot.owner, 7);
	cr_assert_eq(snapshot.capacity, 8);
	cr_assert_eq(snapshot.writable_from, 4);
	cr_assert(region_snapshot_valid(&region.view, SEQ, &snapshot));
	cr_assert(region_snapshot_copy(&region.view, SEQ, &snapshot, 2, entries));
	cr_assert_eq(entries[0], atomic_load(&region_page_table(&region.view, 1)[0]));
	cr_assert_eq(entries[1], atomic_load(&region_page_table(&region.view, 1)[1]));

	/* Pages given back: at most as many as there are. */
	cr_assert_eq(snapshot.first, 0);
	field_set(&slot->first, 2);
	cr_assert_eq(region_snapshot_begin(&region.view, SEQ, &snapshot), REGION_READ);
	cr_assert_eq(snapshot.first, 2);
	field_set(&slot->first, 3);
	cr_assert_eq(region_snapshot_begin(&region.view, SEQ, &snapshot), REGION_BUSY);
	field_set(&slot->first, 0);
	cr_assert_eq(region_snapshot_begin(&region.view, SEQ, &snapshot), REGION_READ);

	/* Growth leaves a snapshot valid. */
	field_set(&region_page_table(&region.view, 1)[2], 0);
	field_set(&slot->capacity, 12);
	cr_assert(region_snapshot_valid(&region.view, SEQ, &snapshot));

	atomic_fetch_add(&slot->version, 1);
	cr_assert_not(region_snapshot_valid(&region.view, SEQ, &snapshot));
	cr_assert_not(region_snapshot_copy(&region.view, SEQ, &snapshot, 2, entries));
	cr_assert_eq(region_snapshot_begin(&region.view, SEQ, &snapshot), REGION_BUSY);
	atomic_fetch_add(&slot->version, 1);
	cr_assert_eq(region_snapshot_begin(&region.view, SEQ, &snapshot), REGION_READ);
	cr_assert_eq(snapshot.capacity, 12);
}

Test(region, snapshot_of_stale_ids)
{
	struct region_slot *slot = sequence_write(&region.view, region.header);
	struct region_snapshot snapshot;

	cr_assert_eq(region_snapshot_begin(&region.view, 0, &snapshot), REGION_STALE);
	cr_assert_eq(region_snapshot_begin(&region.view, (paged_seq_id)5 << 32 | 3, &snapshot), REGION_STALE);
	cr_assert_eq(region_snapshot_begin(&region.view, (paged_seq_id)5 << 32 | UINT32_MAX, &snapshot), REGION_STALE);
	cr_assert_eq(region_snapshot_begin(&region.view, (paged_seq_id)4 << 32 | 1, &snapshot), REGION_STALE);
	/* Slots that were never used have generation 0, which no id has. */
	cr_assert_eq(region_snapshot_begin(&region.view, 2, &snapshot), REGION_STALE);
	field_set(&slot->owner, 0);
	cr_assert_eq(region_snapshot_begin(&region.view, SEQ, &snapshot), REGION_STALE);
}

/* No owner writes this capacity, but a reader must stay inside the page table. */
Test(region, snapshot_of_an_invalid_capacity)
{
	struct region_slot *slot = sequence_write(&region.view, region.header);
	struct region_snapshot snapshot;

	field_set(&slot->capacity, 36);
	cr_assert_eq(region_snapshot_begin(&region.view, SEQ, &snapshot), REGION_BUSY);
}

static void
expect_check_error(const char *sentence)
{
	struct paged_check_result accounting;

	cr_assert_eq(region_check(&region.view, &accounting, &region.error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(region.error.text, sentence);
	cr_assert_eq(accounting.n_pages, 10);
}

Test(region, check)
{
	struct region_slot *slot;
	struct paged_check_result accounting;

	cr_assert_eq(region_check(&region.view, &accounting, &region.error), PAGED_OK);
	cr_assert_eq(accounting.n_free, 10);
	slot = sequence_write(&region.view, region.header);
	cr_assert_eq(region_check(&region.view, &accounting, &region.error), PAGED_OK, "%s", region.error.text);

	field_set(&region_page(&region.view, 2)->count, 2);
	expect_check_error("page 2: count 2, but 1 page table entries name it");
	field_set(&region_page(&region.view, 2)->count, REGION_PAGE_QUARANTINED);
	expect_check_error("page 2: count 0, but 1 page table entries name it");
	field_set(&region_page(&region.view, 2)->count, 1);

	field_set(&region_page_table(&region.view, 1)[0], 4);
	expect_check_error("slot 1: entry 0 names page 4, but only pages below 4 were handed out");
	field_set(&region_page_table(&region.view, 1)[0], 3);

	/* An entry whose page was given back. */
	field_set(&slot->first, 1);
	expect_check_error("page 3: count 1, but 0 page table entries name it");
	field_set(&slot->first, 3);
	expect_check_error("slot 1: 3 pages were given back, but the page table has 2 entries");
	field_set(&slot->first, 0);

	field_set(&slot->capacity, 36);
	expect_check_error("slot 1: 9 entries in a page table of 8");
	field_set(&slot->capacity, 8);

	field_set(&region.header->n_referenced, 3);
	expect_check_error("counted 2 referenced, 0 cached and 0 quarantined pages, the accounting says 3, 0 and 0");
	field_set(&region.header->n_referenced, 2);

	field_set(&region.header->n_free, 7);
	expect_check_error("7 free + 2 referenced + 0 cached + 0 quarantined are not 10 pages");
	field_set(&region.header->n_free, 8);

	field_set(&region.header->high_page, 11);
	expect_check_error("high-water marks 11 pages and 2 slots exceed 10 and 3");
	field_set(&region.header->high_page, 4);

	/* An owner that died during a change. */
	atomic_fetch_add(&region.header->change, 1);
	cr_assert_eq(region_check(&region.view, &accounting, &region.error), PAGED_ERR_AGAIN);
}

static void *
ring_waiter(void *argument)
{
	struct timespec before, after;

	clock_gettime(CLOCK_MONOTONIC, &before);
	/* Returns at once if the entry is there already. */
	region_ring_wait(region.header, 0, 3600000);
	clock_gettime(CLOCK_MONOTONIC, &after);
	*(time_t *)argument = after.tv_sec - before.tv_sec;
	return NULL;
}

/* A waiter that is not woken sleeps for its timeout of an hour. */
Test(region, ring_wake)
{
	uint64_t last = 0;
	pthread_t thread;
	time_t slept_s;

	cr_assert_eq(pthread_create(&thread, NULL, ring_waiter, &slept_s), 0);
	usleep(50000);
	atomic_store(&region.header->ring_head, 1);
	region_ring_wake(region.header, &last);
	cr_assert_eq(last, 1);
	pthread_join(thread, NULL);
	cr_assert_lt(slept_s, 1800);
}
