/* SPDX-License-Identifier: Apache-2.0 */
/**
 * region.h - the table region: page tables that workers read without asking
 *
 * One region a pool, in a memfd that the owner alone can write.  It holds
 * offsets, not pointers; a reader takes every offset, stride and count from
 * the header, never from sizeof, so that a newer owner of the same major
 * version may make records larger.
 *
 *   [header][slots: n_slots x slot_stride][pages: n_pages x page_stride]
 *   [rows: n_slots x row_stride]
 *
 * Memory that was never written reads as zero and costs nothing, so every
 * zero value means "unused": generation 0, owner 0, capacity 0, count 0.
 * Entries of a row at or past its capacity mean nothing.
 *
 * Order of stores (owner) and loads (reader):
 *   growth       entries, then capacity (release).  Version unchanged.
 *   replacement  version to odd; fence; entries, capacity, owner,
 *                generation; version to even (release).
 *   reading      version (acquire; odd: retry), generation, owner, capacity
 *                (acquire), entries; fence; version again.
 * So a plan made at version V is good as long as version is still V and the
 * generation is the id's.  An owner killed inside a replacement leaves the
 * version odd for ever: readers retry a bounded number of times.
 *
 * Life: an owner formats zeroed memory once; nothing is ever freed in it.
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

/** A page's count while it waits in quarantine; smaller values are references. */
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

	uint64_t rows_offset;
	uint64_t row_stride;  /* bytes */
	uint32_t row_entries; /* entries a row has room for */
	uint32_t page_size;   /* tokens */

	uint32_t max_length;   /* tokens a sequence may reserve */
	uint32_t n_row_groups; /* 1; else refuse */
	uint32_t n_shards;     /* 1; else refuse */
	uint32_t pool;         /* the pool's index in its daemon */

	uint8_t reserved[16];

	/*
	 * Books, for people and for check; no reader of rows needs them.
	 * `change` is odd while the owner changes anything, so that two equal
	 * even readings around a walk mean that the walk saw one state.
	 */
	_Atomic uint64_t change;
	_Atomic uint32_t n_free;
	_Atomic uint32_t n_referenced;
	_Atomic uint32_t n_quarantined;
	_Atomic uint32_t high_page; /* pages at or above were never handed out */
	_Atomic uint32_t high_slot; /* slots at or above were never used */
	uint32_t reserved2;
};

struct region_slot {
	_Atomic uint64_t version; /* of replaced entries; odd while replacing */
	_Atomic uint32_t generation;
	_Atomic uint32_t owner;         /* session id, 0: the slot is free */
	_Atomic uint32_t capacity;      /* tokens, a multiple of page_size */
	_Atomic uint32_t writable_from; /* tokens before it may not be written in place */
	_Atomic uint32_t length;        /* tokens, as the owner last told */
	uint32_t reserved[9];
};

struct region_page {
	_Atomic uint32_t count; /* references, or REGION_PAGE_QUARANTINED */
};

static_assert(sizeof(struct region_header) == 160, "the header's layout is in paged-protocol(7)");
static_assert(offsetof(struct region_header, slots_offset) == 48, "layout");
static_assert(offsetof(struct region_header, pages_offset) == 64, "layout");
static_assert(offsetof(struct region_header, rows_offset) == 72, "layout");
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

/** region_size - bytes that region_format() needs; 0 when the numbers overflow, exceed a limit or are 0 */
size_t region_size(const struct region_params *params);

/**
 * region_format - write the header into zeroed memory
 *
 * @param[in] base  page-aligned, region_size(params) bytes, all zero
 */
void region_format(void *base, const struct region_params *params, const uint8_t boot_id[REGION_BOOT_ID_SIZE]);

/** A checked mapping: every address below is inside [base, base + size). */
struct region_view {
	const uint8_t *base;
	const struct region_header *header;
	uint64_t slots_offset, pages_offset, rows_offset, row_stride;
	uint32_t pool, n_slots, n_pages, slot_stride, page_stride, row_entries, page_size, max_length;
};

/**
 * region_view_init - check a mapped region's header and remember where things lie
 *
 * @param[in] boot_id  what the daemon said when it handed the region out; NULL: any
 * @retval PAGED_ERR_VERSION   another major version, or more row groups or shards than 1
 * @retval PAGED_ERR_GONE      a region of another life of the daemon
 * @retval PAGED_ERR_PROTOCOL  no region, or offsets that leave the mapping
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

/** The row's entries: physical page of each logical page. */
static inline _Atomic uint32_t *
region_row(const struct region_view *view, uint32_t slot)
{
	return (_Atomic uint32_t *)(view->base + view->rows_offset + (uint64_t)slot * view->row_stride);
}

/** What one consistent look at a slot gave. */
struct region_look {
	uint64_t version;
	uint32_t owner;
	uint32_t capacity; /* tokens */
	uint32_t writable_from;
	uint32_t length;
};

enum region_result {
	REGION_READ,  /* the look is consistent */
	REGION_BUSY,  /* being replaced: look again, a bounded number of times */
	REGION_STALE, /* the id names no live sequence of this pool */
};

/**
 * region_look_begin - look at the slot of an id
 *
 * Entries may be read afterwards, as far as look->capacity; they count only
 * if region_look_holds() says so after the last of them.
 */
enum region_result region_look_begin(const struct region_view *view, paged_seq_id id, struct region_look *look);

/** region_look_holds - no entry was replaced or removed since the look */
static inline bool
region_look_holds(const struct region_view *view, paged_seq_id id, const struct region_look *look)
{
	const struct region_slot *slot = region_slot(view, PAGED_SEQ_SLOT(id));

	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&slot->version, memory_order_relaxed) == look->version;
}

/**
 * region_row_copy - entries 0 .. n - 1 of a row, as of a look
 *
 * @param[in] n  at most what look->capacity holds
 * @return false: entries were replaced or removed meanwhile; look again
 */
bool region_row_copy(const struct region_view *view, paged_seq_id id, const struct region_look *look, uint32_t n,
		     uint32_t *entries);

/**
 * region_spare_pages - how many of n_free pages a reserve may take ahead of need
 *
 * An eighth of the pool stays free for reserves that wait for their pages.
 */
static inline uint32_t
region_spare_pages(uint32_t n_pages, uint32_t n_free)
{
	return n_free > n_pages / 8 ? n_free - n_pages / 8 : 0;
}

/** Attempts at a busy row; with the pauses, some milliseconds. */
#define REGION_ATTEMPTS 1000u

/** region_pause - wait a little before the next attempt; n counts them from 0 */
void region_pause(unsigned int n);

/**
 * region_free_wait - sleep while n_free is `seen`, at most timeout_ms
 *
 * n_free is a futex, and waiting works on a read-only mapping.  May return early.
 */
void region_free_wait(const struct region_header *header, uint32_t seen, uint32_t timeout_ms);

/**
 * region_free_wake - wake all that sleep in region_free_wait() if pages became free
 *
 * @param[in,out] last  n_free at the call before, which the owner keeps
 */
void region_free_wake(const struct region_header *header, uint32_t *last);

/**
 * region_books_read - the header's numbers of pages, all of one state; the rest of the result is 0
 *
 * @return false: they changed in every one of REGION_ATTEMPTS attempts
 */
bool region_books_read(const struct region_view *view, struct paged_check_result *result);

/** region_verdict - what a check found, into its result: PAGED_OK, or PAGED_ERR_CORRUPT with its sentence; returned */
enum paged_status region_verdict(struct paged_check_result *result, enum paged_status status,
				 const struct paged_error *error);

/**
 * region_check - recount every page from every row and compare with the books
 *
 * Reads the region alone, so any process that mapped it can do it.  The
 * owner may be working meanwhile: the walk is repeated until `change` stood
 * still around it.
 *
 * Prefix entries do not exist yet, so a page's count is the number of rows
 * that name it.
 *
 * @param[out] result  the header's numbers and the verdict; written on OK and CORRUPT
 * @retval PAGED_ERR_CORRUPT  error names the first page or number that is wrong
 * @retval PAGED_ERR_AGAIN    the tables changed in every attempt
 * @retval PAGED_ERR_NOMEM    no memory for one counter a used page
 */
enum paged_status region_check(const struct region_view *view, struct paged_check_result *result,
			       struct paged_error *error);

#endif
