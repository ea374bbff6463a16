/* SPDX-License-Identifier: Apache-2.0 */
#include "common/region.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sections start on system pages, of up to 64 KiB, so that a section that is never touched uses no memory. */
#define SECTION_ALIGNMENT 65536ull
#define CHECK_ATTEMPTS 100

/* Places a section at *at, and moves *at past it. */
static uint64_t
region_place(uint64_t *at, uint64_t size)
{
	uint64_t here = *at;

	*at = (here + size + SECTION_ALIGNMENT - 1) & ~(SECTION_ALIGNMENT - 1);
	return here;
}

/* At least two buckets per page: a search that visits a wrong node first waits for two misses of the cache. */
static uint32_t
region_n_buckets(uint32_t n_pages)
{
	uint32_t n = 1;

	while (n < 2ull * n_pages && n < 1u << 31)
		n *= 2;
	return n;
}

bool
region_layout(const struct region_params *params, struct region_header *header)
{
	uint64_t entries, tables_size, at;

	if (params->n_pages == 0 || params->n_slots == 0 || params->n_slots > PAGED_MAX_SLOTS ||
	    params->page_size == 0 || params->max_length == 0 || params->n_pages >= REGION_PAGE_QUARANTINED ||
	    params->page_size > PAGED_MAX_PAGE_SIZE)
		return false;
	entries = ((uint64_t)params->max_length + params->page_size - 1) / params->page_size;
	/* The capacity of a full page table must fit its field. */
	if (entries > UINT32_MAX / sizeof(uint32_t) || entries * params->page_size > UINT32_MAX)
		return false;
	memset(header, 0, sizeof(*header));
	header->table_entries = (uint32_t)entries;
	/*
	 * A page table starts on a cache line: page tables of different
	 * sequences change at different times.  The stride is an odd number of
	 * lines: the ends of many page tables are touched together, and with a
	 * power of two they would all map to one set of the cache.
	 */
	header->table_stride = ((entries * sizeof(uint32_t) + 63) / 64 | 1) * 64;
	header->slot_stride = sizeof(struct region_slot);
	header->page_stride = sizeof(struct region_page);
	/* A node and its block key are read together, so they share cache lines and a page of memory. */
	header->node_stride =
		(uint32_t)(sizeof(struct region_node) + REGION_EXTRA_SIZE + params->page_size * sizeof(uint32_t) + 63) &
		~63u;
	header->key_stride = header->node_stride;
	header->n_buckets = params->publish ? region_n_buckets(params->n_pages) : 0;
	header->ring_entries = REGION_RING_ENTRIES;

	if (__builtin_mul_overflow((uint64_t)params->n_slots, header->table_stride, &tables_size) ||
	    tables_size > INT64_MAX / 2)
		return false;
	/* The other sections cannot overflow: they have at most 2^32 records of at most 2^11 bytes. */
	at = SECTION_ALIGNMENT;
	header->slots_offset = region_place(&at, (uint64_t)params->n_slots * header->slot_stride);
	header->pages_offset = region_place(&at, (uint64_t)params->n_pages * header->page_stride);
	header->tables_offset = region_place(&at, tables_size);
	header->nodes_offset = region_place(&at, (uint64_t)params->n_pages * header->node_stride);
	header->keys_offset = header->nodes_offset + sizeof(struct region_node);
	header->buckets_offset = region_place(&at, (uint64_t)header->n_buckets * sizeof(uint32_t));
	header->ring_offset = region_place(&at, (uint64_t)header->ring_entries * sizeof(struct region_ring_entry));
	header->total_size = at;
	return true;
}

size_t
region_size(const struct region_params *params)
{
	struct region_header header;

	return region_layout(params, &header) ? header.total_size : 0;
}

void
region_format(void *base, const struct region_params *params, const uint8_t boot_id[REGION_BOOT_ID_SIZE])
{
	struct region_header *header = base, layout;
	bool fits = region_layout(params, &layout);
	uint64_t number = params->first_number % REGION_FIRST_NUMBER_MAX;

	assert(fits);
	(void)fits;
	*header = layout;
	header->version_major = REGION_VERSION_MAJOR;
	header->version_minor = REGION_VERSION_MINOR;
	memcpy(header->boot_id, boot_id, REGION_BOOT_ID_SIZE);
	header->n_slots = params->n_slots;
	header->n_pages = params->n_pages;
	header->page_size = params->page_size;
	header->max_length = params->max_length;
	header->n_layer_groups = 1;
	header->n_shards = 1;
	header->pool = params->pool;
	header->seed = params->seed;
	if (params->memory_id != NULL)
		memcpy(header->memory_id, params->memory_id, REGION_MEMORY_ID_SIZE);
	atomic_store_explicit(&header->next_serial, number + 1, memory_order_relaxed);
	atomic_store_explicit(&header->ring_head, number, memory_order_relaxed);
	atomic_store_explicit(&header->n_free, params->n_pages, memory_order_relaxed);
	/* Written last, so that an incomplete header has no magic. */
	header->magic = REGION_MAGIC;
}

bool
region_release(void *memory, size_t size)
{
	return madvise(memory, size, MADV_REMOVE) == 0;
}

/* True: n records with this stride, which is at least `least` bytes, are aligned and end within size bytes. */
static bool
region_section_fits(uint64_t offset, uint64_t n, uint64_t stride, uint64_t least, uint64_t alignment, uint64_t size)
{
	uint64_t length, end;

	return stride >= least && offset % alignment == 0 && stride % alignment == 0 &&
	       !__builtin_mul_overflow(n, stride, &length) && !__builtin_add_overflow(offset, length, &end) &&
	       end <= size;
}

enum paged_status
region_view_init(struct region_view *view, const void *base, size_t size, const uint8_t boot_id[REGION_BOOT_ID_SIZE],
		 struct paged_error *error)
{
	const struct region_header *header = base;

	if (size < sizeof(*header) || header->magic != REGION_MAGIC)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "table region of %zu bytes does not begin with paged's magic", size);
	if (header->version_major != REGION_VERSION_MAJOR)
		return paged_fail(error, PAGED_ERR_VERSION, "table region has version %u.%u, this library reads %u.x",
				  header->version_major, header->version_minor, REGION_VERSION_MAJOR);
	if (header->n_layer_groups != 1)
		return paged_fail(error, PAGED_ERR_VERSION, "table region has %u layer groups, this library reads 1",
				  header->n_layer_groups);
	if (boot_id != NULL && memcmp(header->boot_id, boot_id, REGION_BOOT_ID_SIZE) != 0)
		return paged_fail(error, PAGED_ERR_GONE, "table region belongs to an earlier run of the daemon");
	if (header->total_size > size || header->n_slots == 0 || header->n_pages == 0 || header->page_size == 0 ||
	    header->page_size > PAGED_MAX_PAGE_SIZE || header->n_pages >= REGION_PAGE_QUARANTINED ||
	    (uint64_t)header->table_entries * header->page_size < header->max_length ||
	    (uint64_t)header->table_entries * header->page_size > UINT32_MAX ||
	    !region_section_fits(header->slots_offset, header->n_slots, header->slot_stride, sizeof(struct region_slot),
				 8, size) ||
	    !region_section_fits(header->pages_offset, header->n_pages, header->page_stride, sizeof(struct region_page),
				 4, size) ||
	    !region_section_fits(header->tables_offset, header->n_slots, header->table_stride,
				 (uint64_t)header->table_entries * sizeof(uint32_t), 4, size) ||
	    !region_section_fits(header->nodes_offset, header->n_pages, header->node_stride, sizeof(struct region_node),
				 8, size) ||
	    !region_section_fits(header->keys_offset, header->n_pages, header->key_stride,
				 REGION_EXTRA_SIZE + header->page_size * sizeof(uint32_t), 8, size) ||
	    !region_section_fits(header->buckets_offset, header->n_buckets, sizeof(uint32_t), 4, 4, size) ||
	    !region_section_fits(header->ring_offset, header->ring_entries, sizeof(struct region_ring_entry), 32, 8,
				 size) ||
	    (header->n_buckets & (header->n_buckets - 1)) != 0 || header->ring_entries == 0 ||
	    (header->ring_entries & (header->ring_entries - 1)) != 0)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "table region of %zu bytes: an offset in its header is out of bounds", size);

	*view = (struct region_view){
		.base = base,
		.header = header,
		.slots_offset = header->slots_offset,
		.pages_offset = header->pages_offset,
		.tables_offset = header->tables_offset,
		.table_stride = header->table_stride,
		.nodes_offset = header->nodes_offset,
		.keys_offset = header->keys_offset,
		.buckets_offset = header->buckets_offset,
		.ring_offset = header->ring_offset,
		.pool = header->pool,
		.n_slots = header->n_slots,
		.n_pages = header->n_pages,
		.slot_stride = header->slot_stride,
		.page_stride = header->page_stride,
		.table_entries = header->table_entries,
		.page_size = header->page_size,
		.max_length = header->max_length,
		.node_stride = header->node_stride,
		.key_stride = header->key_stride,
		.n_buckets = header->n_buckets,
		.ring_entries = header->ring_entries,
	};
	return PAGED_OK;
}

enum region_result
region_snapshot_begin(const struct region_view *view, paged_seq_id id, struct region_snapshot *snapshot)
{
	const struct region_slot *slot;
	uint32_t generation;

	if (PAGED_SEQ_SLOT(id) >= view->n_slots || PAGED_SEQ_GENERATION(id) == 0 || PAGED_SEQ_POOL(id) != view->pool)
		return REGION_STALE;
	slot = region_slot(view, PAGED_SEQ_SLOT(id));
	snapshot->version = atomic_load_explicit(&slot->version, memory_order_acquire);
	if (snapshot->version & 1)
		return REGION_BUSY;
	generation = atomic_load_explicit(&slot->generation, memory_order_relaxed);
	snapshot->owner = atomic_load_explicit(&slot->owner, memory_order_relaxed);
	snapshot->flags = atomic_load_explicit(&slot->flags, memory_order_relaxed);
	snapshot->writable_from = atomic_load_explicit(&slot->writable_from, memory_order_relaxed);
	if (snapshot->flags & (REGION_SLOT_FROZEN | REGION_SLOT_HOLD))
		snapshot->writable_from = UINT32_MAX;
	snapshot->published = atomic_load_explicit(&slot->published, memory_order_relaxed);
	snapshot->capacity = atomic_load_explicit(&slot->capacity, memory_order_acquire);
	/* After the capacity: a fork stores `first`, then the capacity, without a change of the version. */
	snapshot->first = atomic_load_explicit(&slot->first, memory_order_relaxed);
	if (!region_snapshot_valid(view, id, snapshot))
		return REGION_BUSY;
	if (generation != PAGED_SEQ_GENERATION(id) || snapshot->owner == 0)
		return REGION_STALE;
	if (snapshot->capacity > (uint64_t)view->table_entries * view->page_size ||
	    snapshot->first > snapshot->capacity / view->page_size)
		return REGION_BUSY;
	return REGION_READ;
}

bool
region_snapshot_copy(const struct region_view *view, paged_seq_id id, const struct region_snapshot *snapshot,
		     uint32_t n, uint32_t *entries)
{
	const _Atomic uint32_t *table = region_page_table(view, PAGED_SEQ_SLOT(id));

	for (uint32_t i = 0; i < n; i++)
		entries[i] = atomic_load_explicit(&table[i], memory_order_relaxed);
	return region_snapshot_valid(view, id, snapshot);
}

void
region_pause(unsigned int n)
{
	/* A replacement takes well below a microsecond unless the owner was descheduled within it. */
	if (n % 64 == 63)
		sched_yield();
	else
#if defined(__x86_64__)
		__builtin_ia32_pause();
#else
		atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void
region_futex_wait(const void *word, uint32_t seen, uint32_t timeout_ms)
{
	struct timespec timeout = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L };

	syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

static void
region_futex_wake(const void *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void
region_free_wait(const struct region_header *header, uint32_t seen, uint32_t timeout_ms)
{
	region_futex_wait(&header->n_free, seen, timeout_ms);
}

void
region_free_wake(const struct region_header *header, uint32_t *last)
{
	uint32_t n_available = region_available_pages(header);

	if (n_available > *last)
		region_futex_wake(&header->n_free);
	*last = n_available;
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low word of ring_head is at its address");

void
region_ring_wait(const struct region_header *header, uint32_t seen, uint32_t timeout_ms)
{
	region_futex_wait(&header->ring_head, seen, timeout_ms);
}

void
region_ring_wake(const struct region_header *header, uint64_t *last)
{
	uint64_t head = atomic_load_explicit(&header->ring_head, memory_order_relaxed);

	if (head != *last)
		region_futex_wake(&header->ring_head);
	*last = head;
}

static void
region_accounting_load(const struct region_view *view, struct paged_check_result *result)
{
	const struct region_header *header = view->header;

	*result = (struct paged_check_result){
		.n_pages = view->n_pages,
		.n_free = atomic_load_explicit(&header->n_free, memory_order_relaxed),
		.n_referenced = atomic_load_explicit(&header->n_referenced, memory_order_relaxed),
		.n_quarantined = atomic_load_explicit(&header->n_quarantined, memory_order_relaxed),
		.n_cached = atomic_load_explicit(&header->n_cached, memory_order_relaxed),
	};
}

/* True: all values read since `change` was `before` belong to one state. */
static bool
region_is_unchanged(const struct region_header *header, uint64_t before)
{
	atomic_thread_fence(memory_order_acquire);
	return before % 2 == 0 && atomic_load_explicit(&header->change, memory_order_relaxed) == before;
}

bool
region_accounting_read(const struct region_view *view, struct paged_check_result *result)
{
	for (unsigned int attempt = 0; attempt < REGION_ATTEMPTS; attempt++) {
		uint64_t before = atomic_load_explicit(&view->header->change, memory_order_acquire);

		region_accounting_load(view, result);
		if (region_is_unchanged(view->header, before))
			return true;
		region_pause(attempt);
	}
	return false;
}

enum paged_status
region_verdict(struct paged_check_result *result, enum paged_status status, const struct paged_error *error)
{
	result->holds = status == PAGED_OK;
	if (status != PAGED_OK)
		snprintf(result->text, sizeof(result->text), "%s", error->text);
	return status;
}

/* One walk over page tables and counts. */
static enum paged_status
region_check_once(const struct region_view *view, uint32_t *counted, uint32_t high_page, uint32_t high_slot,
		  struct paged_check_result *result, struct paged_error *error)
{
	uint32_t n_referenced = 0, n_quarantined = 0, n_cached = 0;

	for (uint32_t s = 0; s < high_slot; s++) {
		const struct region_slot *slot = region_slot(view, s);
		_Atomic uint32_t *table = region_page_table(view, s);
		uint32_t n, first;

		if (atomic_load_explicit(&slot->owner, memory_order_relaxed) == 0)
			continue;
		result->n_sequences++;
		n = atomic_load_explicit(&slot->capacity, memory_order_acquire) / view->page_size;
		first = atomic_load_explicit(&slot->first, memory_order_relaxed);
		if (n > view->table_entries)
			return paged_fail(error, PAGED_ERR_CORRUPT, "slot %u: %u entries in a page table of %u", s, n,
					  view->table_entries);
		if (first > n)
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "slot %u: %u pages were given back, but the page table has %u entries", s,
					  first, n);
		for (uint32_t i = first; i < n; i++) {
			uint32_t page = atomic_load_explicit(&table[i], memory_order_relaxed);

			if (page >= high_page)
				return paged_fail(
					error, PAGED_ERR_CORRUPT,
					"slot %u: entry %u names page %u, but only pages below %u were handed out", s,
					i, page, high_page);
			counted[page]++;
		}
	}
	for (uint32_t page = 0; page < high_page; page++) {
		uint32_t count = atomic_load_explicit(&region_page(view, page)->count, memory_order_relaxed);

		if (count == REGION_PAGE_QUARANTINED) {
			n_quarantined++;
			count = 0;
		} else if (count != 0) {
			n_referenced++;
		} else if (atomic_load_explicit(&region_page(view, page)->flags, memory_order_relaxed) &
			   REGION_PAGE_PUBLISHED) {
			n_cached++;
		}
		if (count != counted[page])
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "page %u: count %u, but %u page table entries name it", page, count,
					  counted[page]);
	}
	if (n_referenced != result->n_referenced || n_quarantined != result->n_quarantined ||
	    n_cached != result->n_cached)
		return paged_fail(
			error, PAGED_ERR_CORRUPT,
			"counted %u referenced, %u cached and %u quarantined pages, the accounting says %u, %u and %u",
			n_referenced, n_cached, n_quarantined, result->n_referenced, result->n_cached,
			result->n_quarantined);
	if ((uint64_t)result->n_free + n_referenced + n_cached + n_quarantined != view->n_pages)
		return paged_fail(error, PAGED_ERR_CORRUPT,
				  "%u free + %u referenced + %u cached + %u quarantined are not %u pages",
				  result->n_free, n_referenced, n_cached, n_quarantined, view->n_pages);
	return PAGED_OK;
}

enum paged_status
region_check(const struct region_view *view, struct paged_check_result *result, struct paged_error *error)
{
	const struct region_header *header = view->header;
	enum paged_status status;

	for (int attempt = 0; attempt < CHECK_ATTEMPTS; attempt++) {
		uint64_t before = atomic_load_explicit(&header->change, memory_order_acquire);
		uint32_t high_page = atomic_load_explicit(&header->high_page, memory_order_relaxed);
		uint32_t high_slot = atomic_load_explicit(&header->high_slot, memory_order_relaxed);
		uint32_t *counted;

		if (before & 1)
			continue;
		region_accounting_load(view, result);
		if (high_page > view->n_pages || high_slot > view->n_slots)
			return region_verdict(result,
					      paged_fail(error, PAGED_ERR_CORRUPT,
							 "high-water marks %u pages and %u slots exceed %u and %u",
							 high_page, high_slot, view->n_pages, view->n_slots),
					      error);
		counted = calloc((size_t)high_page + 1, sizeof(*counted));
		if (counted == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "no memory to count %u pages", high_page);
		status = region_check_once(view, counted, high_page, high_slot, result, error);
		free(counted);
		if (region_is_unchanged(header, before))
			return region_verdict(result, status, error);
	}
	return paged_fail(error, PAGED_ERR_AGAIN, "the tables changed during each of %d walks", CHECK_ATTEMPTS);
}
