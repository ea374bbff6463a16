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
 *   [nodes, each followed by its block key: n_pages x node_stride]
 *   [buckets: n_buckets x 4][ring: ring_entries x 32]
 *
 * Each slot has one page table.  Its entries at or past the slot's capacity
 * are meaningless.  Memory that was never written reads as zero and uses no
 * physical memory, so every zero value means "unused": generation 0, owner 0,
 * capacity 0, count 0, serial 0.
 *
 * Nodes, block keys and buckets are the index of published pages, which
 * common/prefix.h searches.  The ring records the changes of the index, which
 * common/ring.h reads.
 *
 * Each slot is a seqlock.  Order of stores (owner) and loads (reader):
 *   growth       entries, then capacity (release).  Version unchanged.
 *   replacement  version to odd; fence; first, entries, capacity, owner,
 *                generation; version to even (release).
 *   reading      version (acquire; odd: retry), generation, owner, capacity
 *                (acquire), first, entries; fence; version again.
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

#define REGION_MAGIC 0x32424c5444474150ull /* "PAGDTLB2" in little-endian bytes */
#define REGION_VERSION_MAJOR 2u
#define REGION_VERSION_MINOR 2u
#define REGION_BOOT_ID_SIZE 16
#define REGION_MEMORY_ID_SIZE 16
/** Bytes of a block key before its token ids. */
#define REGION_EXTRA_SIZE 32
/** Entries of the ring. */
#define REGION_RING_ENTRIES 65536u

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
	uint32_t n_shards;       /* devices that each hold a part of every page: 1 */
	uint32_t pool;           /* the pool's index in its daemon */

	uint8_t reserved[16]; /* page tables of further layer groups */

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
	_Atomic uint32_t n_cached;  /* published pages that no page table names; a reserve may evict them */

	uint8_t memory_id[REGION_MEMORY_ID_SIZE]; /* identifies the allocation that holds the pages' K and V */

	/* The index of published pages; n_buckets is 0 in a pool that publishes nothing. */
	uint64_t nodes_offset;
	uint64_t keys_offset;
	uint64_t buckets_offset;
	uint64_t ring_offset;
	uint32_t node_stride;  /* bytes */
	uint32_t key_stride;   /* bytes */
	uint32_t n_buckets;    /* 0, or a power of two: 2^31, or at least twice n_pages */
	uint32_t ring_entries; /* a power of two */
	uint64_t seed;         /* of the hash of a prefix's first page */

	_Atomic uint64_t next_serial; /* serial of the next node */
	_Atomic uint64_t ring_head;   /* entries ever written; its low word is a futex */
	_Atomic uint32_t n_pinned;    /* nodes that are pinned */
	uint32_t reserved2;
	/* Totals since the pool was created. */
	_Atomic uint64_t n_starts;       /* sequences that were started with a prefix to look for */
	_Atomic uint64_t n_tokens_asked; /* tokens of these prefixes */
	_Atomic uint64_t n_tokens_found; /* tokens that these sequences share */
	_Atomic uint64_t n_published;    /* nodes ever stored */
	_Atomic uint64_t n_evicted;      /* nodes removed because their pages were needed */
	_Atomic uint64_t n_orphaned;     /* nodes removed because one before them was */

	/* Since version 2.1; regions of version 2.0 have zeros here.  Totals, as above; a hold counts as a sequence. */
	_Atomic uint64_t n_created;   /* sequences */
	_Atomic uint64_t n_ended;     /* sequences; of those created, n_sequences have not ended */
	_Atomic uint64_t n_forked;    /* of those created, children of forks */
	_Atomic uint64_t n_given;     /* sequences given away; each is adopted, cancelled, expired, or in a ticket */
	_Atomic uint64_t n_adopted;   /* sequences */
	_Atomic uint64_t n_cancelled; /* sequences returned because their ticket was cancelled */
	_Atomic uint64_t n_expired;   /* sequences returned because their ticket expired */
	_Atomic uint64_t n_taken;     /* pages that sequences took from the free list */
	_Atomic uint64_t n_trimmed;   /* entries that trims removed from page tables */
	_Atomic uint32_t n_sequences;
	_Atomic uint32_t peak_sequences;  /* the largest n_sequences */
	_Atomic uint32_t peak_referenced; /* the largest n_referenced */
	uint32_t reserved3;

	/* Since version 2.2; older regions have zeros here.  Memory of page tables, bytes. */
	_Atomic uint64_t table_used;      /* that sequences need */
	_Atomic uint64_t table_populated; /* at least as much: also what page tables that were longer have left */
	_Atomic uint64_t table_limit;     /* the most that may be populated */
	/* Totals. */
	_Atomic uint64_t n_displaced;       /* nodes removed because their bucket was full */
	_Atomic uint64_t n_stopped_removed; /* publishes that ended with PAGED_PUBLISH_REMOVED, */
	_Atomic uint64_t n_stopped_trimmed; /* PAGED_PUBLISH_TRIMMED, */
	_Atomic uint64_t n_stopped_other;   /* PAGED_PUBLISH_OTHER, */
	_Atomic uint64_t n_stopped_bucket;  /* PAGED_PUBLISH_BUCKET */
};

struct region_slot {
	/* Seqlock: changes when entries are replaced or removed, or a truncate ends inside the last page; odd
	 * meanwhile. */
	_Atomic uint64_t version;
	_Atomic uint32_t generation;
	_Atomic uint32_t owner;         /* session id, 0: the slot is free */
	_Atomic uint32_t capacity;      /* tokens, a multiple of page_size */
	_Atomic uint32_t writable_from; /* tokens before this one must not be written in place */
	uint32_t unused;
	_Atomic uint32_t published; /* tokens that a search finds (for some turns fewer), a multiple of page_size */
	_Atomic uint32_t flags;     /* REGION_SLOT_* */
	_Atomic uint32_t first;     /* pages at the beginning that were given back: their entries are REGION_NO_PAGE */
	uint32_t reserved[5];       /* of further layer groups */
	_Atomic uint32_t publish_end; /* enum paged_publish_end of the last publish; 0 in regions before version 2.2 */
};

/** Flags of a slot.  Writers treat writable_from of a row with either as all ones; the field keeps its value. */
#define REGION_SLOT_FROZEN 1u /* given away: nothing changes it until it is adopted or returned */
#define REGION_SLOT_HOLD 2u   /* a hold, whose page table has pages in any order */

/** Owner of a given sequence whose giver's session has ended. */
#define REGION_OWNER_TICKET UINT32_MAX

/** Flags of a page. */
#define REGION_PAGE_PUBLISHED 1u /* a node stands for the page */

struct region_page {
	_Atomic uint32_t count; /* page tables that name it, or REGION_PAGE_QUARANTINED */
	_Atomic uint32_t flags;
};

/** Serials and numbers of changes begin below this, so that they stay exact as numbers of JSON. */
#define REGION_FIRST_NUMBER_MAX (1ull << 52)

/** No page: the parent of a prefix's first page; an entry of a page table whose page was given back. */
#define REGION_NO_PAGE UINT32_MAX

/**
 * A published page.  A node's number is its page's.  serial identifies the node
 * for ever: a page that is published again gets a node with another serial.  In each
 * life of the owner serials begin with another random number, so that those of an
 * earlier life name no node.
 *
 * Order of stores: serial = 0; release fence; the other fields and the block key;
 * serial (release).  A reader loads the serial (acquire), the fields and the key, then
 * after an acquire fence the serial again: equal and not 0 means that all belong to
 * that node.  used, hits and next may change while the serial stands.
 */
struct region_node {
	_Atomic uint64_t serial;         /* 0: the page has no node */
	_Atomic uint64_t parent_serial;  /* of the page before it; 0: the first page of a prefix */
	_Atomic uint64_t hash;           /* of the block key and of the parent's hash; prefix_hash() */
	_Atomic uint32_t parent;         /* page number, or REGION_NO_PAGE */
	_Atomic uint32_t next;           /* 1 + the next page of the bucket; 0: none */
	_Atomic uint32_t used;           /* time of the last start that shared it, seconds of the owner's clock */
	uint32_t reserved[5];            /* pages of further layer groups */
	_Atomic uint32_t first_attached; /* 1 + the first token id attached to a key; others are in their places */
	_Atomic uint32_t hits;           /* starts that shared it; stops at UINT32_MAX */
};

/** Kinds of changes. */
enum region_ring_kind {
	REGION_RING_STORED = 1,  /* a node was stored */
	REGION_RING_REMOVED = 2, /* a node was removed */
	REGION_RING_CLEARED = 3, /* all nodes were removed */
};

/** A change of the index.  Entry number n is at index (n - 1) modulo ring_entries. */
struct region_ring_entry {
	_Atomic uint64_t number; /* 0: being written */
	_Atomic uint64_t serial;
	_Atomic uint64_t hash;
	_Atomic uint32_t page;
	_Atomic uint32_t kind;
};

static_assert(sizeof(struct region_header) == 456, "the header's layout is in paged-protocol(7)");
static_assert(offsetof(struct region_header, memory_id) == 160, "layout");
static_assert(offsetof(struct region_header, nodes_offset) == 176, "layout");
static_assert(offsetof(struct region_header, seed) == 224, "layout");
static_assert(offsetof(struct region_header, ring_head) == 240, "layout");
static_assert(offsetof(struct region_header, n_created) == 304, "layout");
static_assert(offsetof(struct region_header, n_sequences) == 376, "layout");
static_assert(offsetof(struct region_header, table_used) == 392, "layout");
static_assert(sizeof(struct region_node) == 64, "a node is a cache line");
static_assert(sizeof(struct region_ring_entry) == 32, "layout");
static_assert(offsetof(struct region_header, slots_offset) == 48, "layout");
static_assert(offsetof(struct region_header, pages_offset) == 64, "layout");
static_assert(offsetof(struct region_header, tables_offset) == 72, "layout");
static_assert(offsetof(struct region_header, max_length) == 96, "layout");
static_assert(offsetof(struct region_header, change) == 128, "layout");
static_assert(sizeof(struct region_slot) == 64, "a slot is a cache line");
static_assert(sizeof(struct region_page) == 8, "layout");
static_assert(REGION_SLOT_FROZEN == PAGED_STATE_GIVEN && REGION_SLOT_HOLD == PAGED_STATE_HOLD, "reports have them");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "readers map the region read-only");

struct region_params {
	uint32_t pool;
	uint32_t n_pages;
	uint32_t n_slots;
	uint32_t page_size;       /* tokens */
	uint32_t max_length;      /* tokens */
	bool publish;             /* the pool has an index of published pages */
	uint64_t seed;            /* random */
	uint64_t first_number;    /* random: serials and changes of the ring count on from its low 52 bits */
	const uint8_t *memory_id; /* [REGION_MEMORY_ID_SIZE]; NULL: zeros */
};

/** region_layout - compute the sizes and offsets of a region; false: a number is 0, exceeds a limit or overflows */
bool region_layout(const struct region_params *params, struct region_header *header);

/** region_size - bytes that region_format() needs; 0 if a number overflows, exceeds a limit or is 0 */
size_t region_size(const struct region_params *params);

/**
 * region_format - write the header into zeroed memory
 *
 * @param[in] base  page-aligned, region_size(params) bytes, all zero
 */
void region_format(void *base, const struct region_params *params, const uint8_t boot_id[REGION_BOOT_ID_SIZE]);

/**
 * region_release - give memory of a shared, writable mapping back: it reads as zeros in all mappings
 *
 * A reader of a page table that is released sees page 0 in entries past the capacity, which it ignores.
 *
 * @param[in] memory  aligned to system pages, as size
 * @return false: the kernel refuses; nothing has changed
 */
bool region_release(void *memory, size_t size);

/** A validated mapping: slots, pages and page tables lie inside [base, base + size). */
struct region_view {
	const uint8_t *base;
	const struct region_header *header;
	uint64_t slots_offset, pages_offset, tables_offset, table_stride;
	uint64_t nodes_offset, keys_offset, buckets_offset, ring_offset;
	uint32_t pool, n_slots, n_pages, slot_stride, page_stride, table_entries, page_size, max_length;
	uint32_t node_stride, key_stride, n_buckets, ring_entries;
};

/**
 * region_view_init - validate a mapped region's header and copy its layout
 *
 * @param[in] boot_id  the boot id that the daemon sent with the region; NULL: any
 * @retval PAGED_ERR_VERSION   another major version, or n_layer_groups is not 1
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

static inline struct region_node *
region_node(const struct region_view *view, uint32_t page)
{
	return (struct region_node *)(view->base + view->nodes_offset + (uint64_t)page * view->node_stride);
}

/** A node's block key as 64-bit words: REGION_EXTRA_SIZE bytes, then page_size token ids, padded with 0. */
static inline _Atomic uint64_t *
region_block_key(const struct region_view *view, uint32_t page)
{
	return (_Atomic uint64_t *)(view->base + view->keys_offset + (uint64_t)page * view->key_stride);
}

/** The first node of a bucket, as in region_node.next; the bucket of a hash is its low bits. */
static inline _Atomic uint32_t *
region_bucket(const struct region_view *view, uint64_t hash)
{
	return (_Atomic uint32_t *)(view->base + view->buckets_offset) + (hash & (view->n_buckets - 1));
}

static inline struct region_ring_entry *
region_ring_entry(const struct region_view *view, uint64_t number)
{
	return (struct region_ring_entry *)(view->base + view->ring_offset) + ((number - 1) & (view->ring_entries - 1));
}

/** A consistent snapshot of a slot's fields. */
struct region_snapshot {
	uint64_t version;
	uint32_t owner;
	uint32_t capacity;      /* tokens */
	uint32_t flags;         /* REGION_SLOT_* */
	uint32_t writable_from; /* UINT32_MAX with any of these flags */
	uint32_t published;     /* tokens */
	uint32_t first;         /* entries before this one are REGION_NO_PAGE; at most capacity / page_size */
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

/** region_available_pages - free pages and cached ones, which a reserve evicts */
static inline uint32_t
region_available_pages(const struct region_header *header)
{
	return atomic_load_explicit(&header->n_free, memory_order_relaxed) +
	       atomic_load_explicit(&header->n_cached, memory_order_relaxed);
}

/**
 * region_spare_pages - how many of n_available pages a reserve may take ahead of need
 *
 * An eighth of the pool stays available for reserves that need pages now.
 */
static inline uint32_t
region_spare_pages(uint32_t n_pages, uint32_t n_available)
{
	return n_available > n_pages / 8 ? n_available - n_pages / 8 : 0;
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
 * region_free_wake - wake all waiters of region_free_wait() if more pages are free or cached than at the last call
 *
 * @param[in,out] last  free and cached pages at the last call; the owner stores it
 */
void region_free_wake(const struct region_header *header, uint32_t *last);

/**
 * region_ring_wait - sleep while the low word of ring_head equals `seen`, at most timeout_ms; may return early
 */
void region_ring_wait(const struct region_header *header, uint32_t seen, uint32_t timeout_ms);

/** region_ring_wake - wake all waiters of region_ring_wait() if ring_head is not *last; the owner stores *last */
void region_ring_wake(const struct region_header *header, uint64_t *last);

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
 * A page's count is the number of page tables that name it; a page that none
 * names is free, cached (published) or in quarantine.
 *
 * @param[out] result  the header's counts and the verdict; written on OK and CORRUPT
 * @retval PAGED_ERR_CORRUPT  error names the first wrong page or count
 * @retval PAGED_ERR_AGAIN    the region changed during each attempt
 * @retval PAGED_ERR_NOMEM    no memory for one counter per page ever used
 */
enum paged_status region_check(const struct region_view *view, struct paged_check_result *result,
			       struct paged_error *error);

#endif
