/* SPDX-License-Identifier: Apache-2.0 */
/**
 * region.h - the table region: page tables in shared memory that workers read without a request
 *
 * Each pool has one region, in a memfd that only the owner can write.  The
 * region holds offsets, not pointers.  A reader takes every offset, stride
 * and count from the header, never from sizeof, so that a newer owner of the
 * same major version may enlarge the records.
 *
 *   [header][slots: n_slots x slot_stride][pages: n_pages x page_stride]
 *   [page tables: n_slots x table_stride]
 *
 * Each slot has one page table.  Its entries at or past the slot's capacity
 * are meaningless.  Memory that was never written reads as zero and uses no
 * physical memory, so every zero value means "unused": generation 0, owner 0,
 * capacity 0, count 0.
 *
 * Each slot is a seqlock.  Order of stores (owner) and loads (reader):
 *   growth       entries, then capacity (release).  Version unchanged.
 *   replacement  version to odd; fence; entries, capacity, owner,
 *                generation; version to even (release).
 *   reading      version (acquire; odd: retry), generation, owner, capacity
 *                (acquire), entries; fence; version again.
 * A plan made at version V is therefore valid as long as the version is still
 * V and the generation is the id's.  An owner killed inside a replacement
 * leaves the version odd for ever, so readers retry a bounded number of times.
 *
 * Life: the owner formats zeroed memory once; nothing in it is ever freed.
 * Threads: one writer; any number of readers in any process.
 */
#ifndef PAGED_REGION_H
#define PAGED_REGION_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/paged_reports.h"
#include "common/status.h"

#define REGION_MAGIC 0x31424c5444474150ull /* "PAGDTLB1" in little-endian bytes */
#define REGION_VERSION_MAJOR 1u
#define REGION_VERSION_MINOR 0u
#define REGION_BOOT_ID_SIZE 16

/** A page's count while the page is in quarantine; smaller values are numbers of references. */
#define REGION_PAGE_QUARANTINED UINT32_MAX

struct region_header {
	uint64_t magic;
	uint32_t version_major;
	uint32_t version_minor;
	uint8_t boot_id[REGION_BOOT_ID_SIZE];
	uint64_t total_size; /* bytes */

	uint32_t n_slots;
	uint32_t slot_stride; /* bytes */
	uint64_t slots_offset;

	uint32_t n_pages;
	uint32_t page_stride; /* bytes */
	uint64_t pages_offset;

	uint64_t tables_offset;
	uint64_t table_stride;  /* bytes */
	uint32_t table_entries; /* entries that a page table has room for */
	uint32_t page_size;     /* tokens */

	uint32_t max_length;     /* tokens a sequence may reserve */
	uint32_t n_layer_groups; /* layer groups with page tables of their own: 1; a reader refuses other values */
	uint32_t n_shards;       /* 1; a reader refuses other values */
	uint32_t pool;           /* the pool's index in its daemon */

	uint8_t reserved[16];

	/*
	 * Page accounting, for display and for region_check(); readers of page
	 * tables do not need it.  `change` is a seqlock over the whole region:
	 * it is odd while the owner changes anything.  A walk saw one consistent
	 * state if `change` had the same even value before and after it.
	 */
	_Atomic uint64_t change;
	_Atomic uint32_t n_free;
	_Atomic uint32_t n_referenced;
	_Atomic uint32_t n_quarantined;
	_Atomic uint32_t high_page; /* pages at or above were never used */
	_Atomic uint32_t high_slot; /* slots at or above were never used */
	uint32_t reserved2;
};

struct region_slot {
	_Atomic uint64_t version; /* seqlock: changes when entries are replaced or removed, odd meanwhile */
	_Atomic uint32_t generation;
	_Atomic uint32_t owner;         /* session id, 0: the slot is free */
	_Atomic uint32_t capacity;      /* tokens, a multiple of page_size */
	_Atomic uint32_t writable_from; /* tokens before this one must not be written in place */
	_Atomic uint32_t length;        /* tokens; no owner of this version reports one: always 0 */
	uint32_t reserved[9];
};

struct region_page {
	_Atomic uint32_t count; /* references, or REGION_PAGE_QUARANTINED */
};

static_assert(sizeof(struct region_header) == 160, "the header's layout is in paged-protocol(7)");
static_assert(offsetof(struct region_header, slots_offset) == 48, "layout");
static_assert(offsetof(struct region_header, pages_offset) == 64, "layout");
static_assert(offsetof(struct region_header, tables_offset) == 72, "layout");
static_assert(offsetof(struct region_header, max_length) == 96, "layout");
static_assert(offsetof(struct region_header, change) == 128, "layout");
static_assert(sizeof(struct region_slot) == 64, "a slot is a cache line");
static_assert(sizeof(struct region_page) == 4, "layout");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "readers map the region read-only");

struct region_params {
	uint32_t pool;
	uint32_t n_pages;
	uint32_t n_slots;
	uint32_t page_size;  /* tokens */
	uint32_t max_length; /* tokens */
};

/** region_size - bytes that region_format() needs; 0 if a number overflows, exceeds a limit or is 0 */
size_t region_size(const struct region_params *params);

/**
 * region_format - write the header into zeroed memory
 *
 * @param[in] base  page-aligned, region_size(params) bytes, all zero
 */
void region_format(void *base, const struct region_params *params, const uint8_t boot_id[REGION_BOOT_ID_SIZE]);

/** A validated mapping: slots, pages and page tables lie inside [base, base + size). */
struct region_view {
	const uint8_t *base;
	const struct region_header *header;
	uint64_t slots_offset, pages_offset, tables_offset, table_stride;
	uint32_t pool, n_slots, n_pages, slot_stride, page_stride, table_entries, page_size, max_length;
};

/**
 * region_view_init - validate a mapped region's header and copy its layout
 *
 * @param[in] boot_id  the boot id that the daemon sent with the region; NULL: any
 * @retval PAGED_ERR_VERSION   another major version, or n_layer_groups or n_shards is not 1
 * @retval PAGED_ERR_GONE      the region of another daemon life (another boot id)
 * @retval PAGED_ERR_PROTOCOL  not a table region, or its offsets leave the mapping
 */
enum paged_status region_view_init(struct region_view *view, const void *base, size_t size,
				   const uint8_t boot_id[REGION_BOOT_ID_SIZE], struct paged_error *error);

static inline struct region_slot *
region_slot(const struct region_view *view, uint32_t slot)
{
	return (struct region_slot *)(view->base + view->slots_offset + (uint64_t)slot * view->slot_stride);
}

static inline struct region_page *
region_page(const struct region_view *view, uint32_t page)
{
	return (struct region_page *)(view->base + view->pages_offset + (uint64_t)page * view->page_stride);
}

/** The entries of a slot's page table: the physical page of each logical page. */
static inline _Atomic uint32_t *
region_page_table(const struct region_view *view, uint32_t slot)
{
	return (_Atomic uint32_t *)(view->base + view->tables_offset + (uint64_t)slot * view->table_stride);
}

/** A consistent snapshot of a slot's fields. */
struct region_snapshot {
	uint64_t version;
	uint32_t owner;
	uint32_t capacity; /* tokens */
	uint32_t writable_from;
	uint32_t length;
};

enum region_result {
	REGION_READ,  /* the snapshot is consistent */
	REGION_BUSY,  /* the slot is being changed: retry, a bounded number of times */
	REGION_STALE, /* the id names no live sequence of this pool */
};

/**
 * region_snapshot_begin - take a snapshot of the slot of an id
 *
 * The caller may then read entries up to snapshot->capacity.  They are valid only
 * if region_snapshot_valid() returns true after the last of them was read.
 */
enum region_result region_snapshot_begin(const struct region_view *view, paged_seq_id id,
					 struct region_snapshot *snapshot);

/** region_snapshot_valid - true: no entry was replaced or removed since the snapshot */
static inline bool
region_snapshot_valid(const struct region_view *view, paged_seq_id id, const struct region_snapshot *snapshot)
{
	const struct region_slot *slot = region_slot(view, PAGED_SEQ_SLOT(id));

	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&slot->version, memory_order_relaxed) == snapshot->version;
}

/**
 * region_snapshot_copy - copy entries 0 .. n - 1 of a page table, as of a snapshot
 *
 * @param[in] n  at most snapshot->capacity / page_size
 * @return false: entries were replaced or removed meanwhile; take a new snapshot
 */
bool region_snapshot_copy(const struct region_view *view, paged_seq_id id, const struct region_snapshot *snapshot,
			  uint32_t n, uint32_t *entries);

/**
 * region_spare_pages - number of n_free pages that a reserve may take ahead of need
 *
 * An eighth of the pool stays free for reserves that need pages now.
 */
static inline uint32_t
region_spare_pages(uint32_t n_pages, uint32_t n_free)
{
	return n_free > n_pages / 8 ? n_free - n_pages / 8 : 0;
}

/** Attempts to read a busy slot; with the pauses, a few milliseconds. */
#define REGION_ATTEMPTS 1000u

/** region_pause - wait briefly before the next attempt; n counts the attempts from 0 */
void region_pause(unsigned int n);

/**
 * region_free_wait - sleep while n_free equals `seen`, at most timeout_ms
 *
 * n_free is a futex; FUTEX_WAIT works on a read-only mapping.  May return early.
 */
void region_free_wait(const struct region_header *header, uint32_t seen, uint32_t timeout_ms);

/**
 * region_free_wake - wake all waiters of region_free_wait() if n_free has grown since the last call
 *
 * @param[in,out] last  n_free at the last call; the owner stores it
 */
void region_free_wake(const struct region_header *header, uint32_t *last);

/**
 * region_accounting_read - read the header's page counts, consistent with each other; the rest of the result is 0
 *
 * @return false: the counts changed in each of REGION_ATTEMPTS attempts
 */
bool region_accounting_read(const struct region_view *view, struct paged_check_result *result);

/** region_verdict - store a check's status and error text in its result; returns the status */
enum paged_status region_verdict(struct paged_check_result *result, enum paged_status status,
				 const struct paged_error *error);

/**
 * region_check - recount the references to each page and compare with the page accounting
 *
 * Reads only the region, so any process that has mapped it can call this.
 * The owner may change the region meanwhile: the walk is repeated until
 * `change` is the same before and after it.
 *
 * Prefix entries do not exist yet, so a page's count is the number of
 * page tables that name it.
 *
 * @param[out] result  the header's counts and the verdict; written on OK and CORRUPT
 * @retval PAGED_ERR_CORRUPT  error names the first wrong page or count
 * @retval PAGED_ERR_AGAIN    the region changed during each attempt
 * @retval PAGED_ERR_NOMEM    no memory for one counter per page ever used
 */
enum paged_status region_check(const struct region_view *view, struct paged_check_result *result,
			       struct paged_error *error);

#endif
