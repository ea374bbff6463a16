/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/region.h"

static const uint8_t boot_id[REGION_BOOT_ID_SIZE] = "one life";
static const uint8_t other_boot_id[REGION_BOOT_ID_SIZE] = "another";
static const struct region_params params = { .pool = 2, .n_pages = 10, .n_slots = 3, .page_size = 4, .max_length = 30 };

static struct {
	uint8_t *base;
	size_t size;
	struct region_header *header;
	struct region_view view;
	struct paged_error error;
} r;

static void
open_region(void)
{
	memset(&r, 0, sizeof(r));
	r.size = region_size(&params);
	r.base = aligned_alloc(4096, r.size);
	memset(r.base, 0, r.size);
	r.header = (struct region_header *)r.base;
	region_format(r.base, &params, boot_id);
	cr_assert_eq(region_view_init(&r.view, r.base, r.size, boot_id, &r.error), PAGED_OK, "%s", r.error.text);
}

static void
close_region(void)
{
	free(r.base);
}

TestSuite(region, .init = open_region, .fini = close_region);

static void
set(_Atomic uint32_t *field, uint32_t value)
{
	atomic_store(field, value);
}

/* A live sequence 1.5 of session 7 with pages 3, 2. */
#define SEQ PAGED_SEQ(5, 2, 1)

static struct region_slot *
put_sequence(const struct region_view *view, struct region_header *header)
{
	struct region_slot *slot = region_slot(view, 1);

	set(&slot->generation, 5);
	set(&slot->owner, 7);
	set(&region_page_table(view, 1)[0], 3);
	set(&region_page_table(view, 1)[1], 2);
	set(&slot->capacity, 8);
	set(&region_page(view, 2)->count, 1);
	set(&region_page(view, 3)->count, 1);
	set(&header->n_free, 8);
	set(&header->n_referenced, 2);
	set(&header->high_page, 4);
	set(&header->high_slot, 2);
	return slot;
}

static enum paged_status
init(size_t size)
{
	struct region_view view;

	return region_view_init(&view, r.base, size, boot_id, &r.error);
}

Test(region, format_and_view)
{
	cr_assert_eq(memcmp(r.base, "PAGDTLB1", 8), 0);
	cr_assert_eq(r.header->total_size, r.size);
	cr_assert_eq(r.header->pool, 2);
	cr_assert_eq(r.view.n_pages, 10);
	cr_assert_eq(r.view.n_slots, 3);
	cr_assert_eq(r.view.table_entries, 8);
	cr_assert_eq(r.view.table_stride, 64);
	cr_assert_eq(atomic_load(&r.header->n_free), 10);
	for (uint32_t s = 0; s < 3; s++) {
		cr_assert_eq((uintptr_t)region_page_table(&r.view, s) % 64, 0);
		cr_assert_leq((uint8_t *)(region_page_table(&r.view, s) + 8), r.base + r.size);
	}
	cr_assert_leq((uint8_t *)(region_slot(&r.view, 2) + 1), (uint8_t *)region_page(&r.view, 0));
	cr_assert_leq((uint8_t *)(region_page(&r.view, 9) + 1), (uint8_t *)region_page_table(&r.view, 0));
}

/* However large the mapping, the capacity of a full page table must fit its field: callers multiply. */
Test(region, page_tables_whose_capacity_overflows)
{
	r.header->table_entries = 1u << 24;
	r.header->table_stride = 1u << 26;
	r.header->page_size = 255;
	cr_assert_eq(init((size_t)1 << 40), PAGED_OK, "%s", r.error.text);
	r.header->page_size = 256;
	cr_assert_eq(init((size_t)1 << 40), PAGED_ERR_PROTOCOL);
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
		/* The last page of a full page table would end one token past what the capacity can say. */
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
	cr_assert_eq(init(sizeof(struct region_header) - 1), PAGED_ERR_PROTOCOL);
	cr_assert_eq(init(r.size - 1), PAGED_ERR_PROTOCOL);
	cr_assert_eq(init(r.size), PAGED_OK);
	r.header->magic ^= 1;
	cr_assert_eq(init(r.size), PAGED_ERR_PROTOCOL);
	cr_assert_not_null(strstr(r.error.text, "does not begin with paged's magic"));
}

Test(region, refuses_other_versions)
{
	r.header->version_minor = 9;
	cr_assert_eq(init(r.size), PAGED_OK);
	r.header->version_major = 2;
	cr_assert_eq(init(r.size), PAGED_ERR_VERSION);
	cr_assert_str_eq(r.error.text, "table region has version 2.9, this library reads 1.x");
	r.header->version_major = 1;
	r.header->n_layer_groups = 2;
	cr_assert_eq(init(r.size), PAGED_ERR_VERSION);
	r.header->n_layer_groups = 1;
	r.header->n_shards = 4;
	cr_assert_eq(init(r.size), PAGED_ERR_VERSION);
	cr_assert_str_eq(r.error.text, "table region has 1 layer groups and 4 shards, this library reads 1 of each");
}

Test(region, refuses_another_boot_id)
{
	struct region_view view;

	cr_assert_eq(region_view_init(&view, r.base, r.size, other_boot_id, &r.error), PAGED_ERR_GONE);
	cr_assert_eq(region_view_init(&view, r.base, r.size, NULL, &r.error), PAGED_OK);
}

/* Each line makes the header lie about one thing. */
#define LIES(assignment)                                                     \
	do {                                                                 \
		struct region_header before;                                 \
		memcpy(&before, r.base, sizeof(before));                     \
		assignment;                                                  \
		cr_assert_eq(init(r.size), PAGED_ERR_PROTOCOL, #assignment); \
		memcpy(r.base, &before, sizeof(before));                     \
	} while (0)

Test(region, refuses_offsets_outside_the_region)
{
	struct region_header *h = r.header;

	LIES(h->total_size = r.size + 1);
	LIES(h->n_slots = 0);
	LIES(h->n_pages = 0);
	LIES(h->n_pages = UINT32_MAX);
	LIES(h->n_pages = 100000);
	LIES(h->n_slots = 100000);
	LIES(h->page_size = 0);
	LIES(h->page_size = 257);
	LIES(h->max_length = 33);
	LIES(h->table_entries = 7);
	LIES(h->table_entries = UINT32_MAX);
	LIES(h->table_stride = 28);
	LIES(h->table_stride = UINT64_MAX - 3);
	LIES(h->slot_stride = 56);
	LIES(h->slot_stride = 68);
	LIES(h->page_stride = 0);
	LIES(h->page_stride = 6);
	LIES(h->slots_offset = UINT64_MAX - 7);
	LIES(h->slots_offset += 4);
	LIES(h->pages_offset += 2);
	LIES(h->pages_offset = r.size);
	LIES(h->tables_offset = r.size - 4);
	LIES(h->tables_offset += 1);
}

/* A newer owner's records may be larger: only the header says where things are. */
Test(region, accepts_larger_strides)
{
	static _Alignas(64) uint8_t memory[8192];
	struct region_header *header = (struct region_header *)memory;
	struct region_view view;
	struct region_snapshot snapshot;
	struct paged_check_result accounting;

	*header = (struct region_header){
		.magic = REGION_MAGIC,
		.version_major = 1,
		.version_minor = 7,
		.total_size = sizeof(memory),
		.n_slots = 3,
		.slot_stride = 136,
		.slots_offset = 256,
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
	};
	cr_assert_eq(region_view_init(&view, memory, sizeof(memory), NULL, &r.error), PAGED_OK, "%s", r.error.text);
	cr_assert_eq((uint8_t *)region_slot(&view, 2), memory + 256 + 2 * 136);
	cr_assert_eq((uint8_t *)region_page(&view, 9), memory + 1024 + 9 * 12);
	cr_assert_eq((uint8_t *)region_page_table(&view, 1), memory + 2048 + 100);
	put_sequence(&view, header);
	cr_assert_eq(region_snapshot_begin(&view, SEQ, &snapshot), REGION_READ);
	cr_assert_eq(snapshot.capacity, 8);
	cr_assert_eq(region_check(&view, &accounting, &r.error), PAGED_OK, "%s", r.error.text);
	cr_assert_eq(accounting.n_sequences, 1);
}

Test(region, snapshot)
{
	struct region_slot *slot = put_sequence(&r.view, r.header);
	struct region_snapshot snapshot;
	uint32_t entries[2];

	set(&slot->writable_from, 4);
	set(&slot->length, 6);
	cr_assert_eq(region_snapshot_begin(&r.view, SEQ, &snapshot), REGION_READ);
	cr_assert_eq(snapshot.owner, 7);
	cr_assert_eq(snapshot.capacity, 8);
	cr_assert_eq(snapshot.writable_from, 4);
	cr_assert_eq(snapshot.length, 6);
	cr_assert(region_snapshot_valid(&r.view, SEQ, &snapshot));
	cr_assert(region_snapshot_copy(&r.view, SEQ, &snapshot, 2, entries));
	cr_assert_eq(entries[0], atomic_load(&region_page_table(&r.view, 1)[0]));
	cr_assert_eq(entries[1], atomic_load(&region_page_table(&r.view, 1)[1]));

	/* Growth leaves a snapshot valid. */
	set(&region_page_table(&r.view, 1)[2], 0);
	set(&slot->capacity, 12);
	cr_assert(region_snapshot_valid(&r.view, SEQ, &snapshot));

	atomic_fetch_add(&slot->version, 1);
	cr_assert_not(region_snapshot_valid(&r.view, SEQ, &snapshot));
	cr_assert_not(region_snapshot_copy(&r.view, SEQ, &snapshot, 2, entries));
	cr_assert_eq(region_snapshot_begin(&r.view, SEQ, &snapshot), REGION_BUSY);
	atomic_fetch_add(&slot->version, 1);
	cr_assert_eq(region_snapshot_begin(&r.view, SEQ, &snapshot), REGION_READ);
	cr_assert_eq(snapshot.capacity, 12);
}

Test(region, snapshot_of_stale_ids)
{
	struct region_slot *slot = put_sequence(&r.view, r.header);
	struct region_snapshot snapshot;

	cr_assert_eq(region_snapshot_begin(&r.view, 0, &snapshot), REGION_STALE);
	cr_assert_eq(region_snapshot_begin(&r.view, (paged_seq_id)5 << 32 | 3, &snapshot), REGION_STALE);
	cr_assert_eq(region_snapshot_begin(&r.view, (paged_seq_id)5 << 32 | UINT32_MAX, &snapshot), REGION_STALE);
	cr_assert_eq(region_snapshot_begin(&r.view, (paged_seq_id)4 << 32 | 1, &snapshot), REGION_STALE);
	/* Slots that were never used have generation 0, and so have no ids. */
	cr_assert_eq(region_snapshot_begin(&r.view, 2, &snapshot), REGION_STALE);
	set(&slot->owner, 0);
	cr_assert_eq(region_snapshot_begin(&r.view, SEQ, &snapshot), REGION_STALE);
}

/* An owner would not write it, but a reader must not leave the page table. */
Test(region, snapshot_of_an_invalid_capacity)
{
	struct region_slot *slot = put_sequence(&r.view, r.header);
	struct region_snapshot snapshot;

	set(&slot->capacity, 36);
	cr_assert_eq(region_snapshot_begin(&r.view, SEQ, &snapshot), REGION_BUSY);
}

static void
check_fails(const char *sentence)
{
	struct paged_check_result accounting;

	cr_assert_eq(region_check(&r.view, &accounting, &r.error), PAGED_ERR_CORRUPT);
	cr_assert_str_eq(r.error.text, sentence);
	cr_assert_eq(accounting.n_pages, 10);
}

Test(region, check)
{
	struct region_slot *slot;
	struct paged_check_result accounting;

	cr_assert_eq(region_check(&r.view, &accounting, &r.error), PAGED_OK);
	cr_assert_eq(accounting.n_free, 10);
	slot = put_sequence(&r.view, r.header);
	cr_assert_eq(region_check(&r.view, &accounting, &r.error), PAGED_OK, "%s", r.error.text);

	set(&region_page(&r.view, 2)->count, 2);
	check_fails("page 2: count 2, but 1 page table entries name it");
	set(&region_page(&r.view, 2)->count, REGION_PAGE_QUARANTINED);
	check_fails("page 2: count 0, but 1 page table entries name it");
	set(&region_page(&r.view, 2)->count, 1);

	set(&region_page_table(&r.view, 1)[0], 4);
	check_fails("slot 1: entry 0 names page 4, but only pages below 4 were handed out");
	set(&region_page_table(&r.view, 1)[0], 3);

	set(&slot->capacity, 36);
	check_fails("slot 1: 9 entries in a page table of 8");
	set(&slot->capacity, 8);

	set(&r.header->n_referenced, 3);
	check_fails("counted 2 referenced and 0 quarantined pages, the accounting says 3 and 0");
	set(&r.header->n_referenced, 2);

	set(&r.header->n_free, 7);
	check_fails("7 free + 2 referenced + 0 quarantined are not 10 pages");
	set(&r.header->n_free, 8);

	set(&r.header->high_page, 11);
	check_fails("high-water marks 11 pages and 2 slots exceed 10 and 3");
	set(&r.header->high_page, 4);

	/* An owner that died within a change. */
	atomic_fetch_add(&r.header->change, 1);
	cr_assert_eq(region_check(&r.view, &accounting, &r.error), PAGED_ERR_AGAIN);
}
