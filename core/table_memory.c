/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of page tables.  Writing an entry populates the system page that it lies in, so memory is counted in
 * units: system pages that a page table reaches into, or, where several page tables lie in one system page, strides of
 * slots.  A page table that becomes shorter leaves populated units that it does not need.  Small remainders are kept,
 * because the slot soon needs them again; core_tick() gives larger ones back.
 */
#include "core/page_table.h"
#include "core/tenant.h"

#include <assert.h>
#include <stdio.h>
#include <sys/param.h>
#include <unistd.h>

/*
 * A remainder above this is given back.  To give 16 units of 4 KiB back and to populate them again takes 50 us, as long
 * as it takes to free 16,384 pages and to take them again, so this is the most that a page table can be slowed down by.
 */
#define KEEP_BYTES (64u << 10)
/* Units that are given back at a time: 0.3 ms. */
#define RELEASE_UNITS 512u
/* The limit if none is set: enough for sequences that name each page of the pool 64 times. */
#define DEFAULT_BYTES (64ull << 20)
#define DEFAULT_BYTES_PER_PAGE 256ull

static uint64_t
table_offset(const struct core_pool *pool, uint32_t slot)
{
	return pool->view.tables_offset + (uint64_t)slot * pool->view.table_stride;
}

static bool
tables_share_units(const struct table_memory *memory)
{
	return memory->unit_size < memory->page_size;
}

static void
unit_sizes(struct table_memory *memory, uint64_t table_stride)
{
	memory->page_size = (uint32_t)sysconf(_SC_PAGESIZE);
	memory->unit_size = table_stride < memory->page_size ? (uint32_t)table_stride : memory->page_size;
}

void
table_memory_init(struct core_pool *pool, uint64_t limit)
{
	struct table_memory *memory = &pool->table_memory;

	unit_sizes(memory, pool->view.table_stride);
	memory->limit = limit / memory->unit_size;
	for (int i = 0; i < TABLE_MEMORY_LISTS; i++)
		memory->lists[i].first = memory->lists[i].last = NONE;
	store_u64(&pool->header->table_limit, memory->limit * memory->unit_size);
}

/* Units that the first n_entries of a slot's page table reach into. */
static uint32_t
table_units(const struct core_pool *pool, uint32_t slot, uint32_t n_entries)
{
	const struct table_memory *memory = &pool->table_memory;
	uint64_t at = table_offset(pool, slot), end = at + n_entries * sizeof(uint32_t);

	if (tables_share_units(memory))
		return 1;
	return n_entries == 0 ? 0
			      : (uint32_t)((end + memory->page_size - 1) / memory->page_size - at / memory->page_size);
}

/* The most units that n_entries can reach into, in any slot. */
static uint32_t
table_units_most(const struct table_memory *memory, uint32_t n_entries)
{
	uint64_t size = n_entries * sizeof(uint32_t) + memory->page_size - 64;

	if (tables_share_units(memory))
		return 1;
	return n_entries == 0 ? 0 : (uint32_t)((size + memory->page_size - 1) / memory->page_size);
}

void
table_memory_bounds(const struct region_header *layout, const struct core_pool_params *params,
		    struct core_memory *bounds)
{
	struct table_memory memory;
	uint64_t limit;

	unit_sizes(&memory, layout->table_stride);
	bounds->tables_longest = (uint64_t)table_units_most(&memory, layout->table_entries) * memory.unit_size;
	bounds->tables_most = params->n_slots * bounds->tables_longest;
	limit = MAX(MAX(DEFAULT_BYTES, DEFAULT_BYTES_PER_PAGE * params->n_pages), bounds->tables_longest);
	bounds->tables_default = MIN(limit, bounds->tables_most);
}

/* Units that the slot's page table needs, also for what is promised. */
static uint32_t
table_units_needed(const struct core_pool *pool, uint32_t slot)
{
	uint32_t n_entries = MAX(page_table_n_pages(pool, slot), pool->slots[slot].table.n_promised);

	return page_table_owner(pool, slot) == 0 ? 0 : table_units(pool, slot, n_entries);
}

/* Slots with units to spare */

static void
spare_unlist(struct core_pool *pool, uint32_t slot)
{
	struct table_units *own = &pool->slots[slot].table;
	struct table_memory_list *list = &pool->table_memory.lists[own->list];

	if (own->previous != NONE)
		pool->slots[own->previous].table.next = own->next;
	else
		list->first = own->next;
	if (own->next != NONE)
		pool->slots[own->next].table.previous = own->previous;
	else
		list->last = own->previous;
	own->list = TABLE_MEMORY_UNLISTED;
}

static void
spare_list(struct core_pool *pool, uint32_t slot, uint32_t which)
{
	struct table_units *own = &pool->slots[slot].table;
	struct table_memory_list *list = &pool->table_memory.lists[which];

	own->list = which;
	own->previous = list->last;
	own->next = NONE;
	if (own->previous != NONE)
		pool->slots[own->previous].table.next = slot;
	else
		list->first = slot;
	list->last = slot;
}

/* Puts the slot into the list that its spare units belong to. */
static void
spare_update(struct core_pool *pool, uint32_t slot)
{
	struct table_units *own = &pool->slots[slot].table;
	const struct table_memory *memory = &pool->table_memory;
	uint32_t n_spare = own->n_populated - own->n_needed, which = TABLE_MEMORY_UNLISTED;

	if (n_spare > 0 && !tables_share_units(memory) && !own->stuck)
		which = (uint64_t)n_spare * memory->unit_size > KEEP_BYTES ? TABLE_MEMORY_LARGE : TABLE_MEMORY_SMALL;
	if (which == own->list)
		return;
	if (own->list != TABLE_MEMORY_UNLISTED)
		spare_unlist(pool, slot);
	if (which != TABLE_MEMORY_UNLISTED)
		spare_list(pool, slot, which);
}

/* The tenant's part of the pool; NULL: without a tenant. */
static struct tenant_pool *
table_tenant(const struct core_pool *pool, uint32_t tenant)
{
	return tenant == 0 ? NULL : &pool->tenants->items[tenant - 1]->pools[pool->index];
}

static void
table_memory_publish(struct core_pool *pool)
{
	const struct table_memory *memory = &pool->table_memory;

	store_u64(&pool->header->table_used, memory->n_needed * memory->unit_size);
	store_u64(&pool->header->table_populated, memory->n_populated * memory->unit_size);
}

void
table_memory_update(struct core_pool *pool, uint32_t slot)
{
	struct table_units *own = &pool->slots[slot].table;
	struct table_memory *memory = &pool->table_memory;
	uint32_t n = table_units_needed(pool, slot);
	struct tenant_pool *tenant = table_tenant(pool, pool->slots[slot].tenant);

	if (n == own->n_needed)
		return;
	memory->n_needed += n;
	memory->n_needed -= own->n_needed;
	if (tenant != NULL)
		tenant->n_table_units += (uint64_t)n - own->n_needed;
	own->n_needed = n;
	if (n > own->n_populated) {
		memory->n_populated += n - own->n_populated;
		own->n_populated = n;
	}
	spare_update(pool, slot);
	table_memory_publish(pool);
}

void
table_memory_promise(struct core_pool *pool, uint32_t slot, uint32_t n_entries)
{
	pool->slots[slot].table.n_promised = n_entries;
	table_memory_update(pool, slot);
}

/* Giving memory back */

/* True: a page table next to this one has populated the unit that both reach into. */
static bool
neighbour_populates(const struct core_pool *pool, uint32_t slot, uint64_t unit)
{
	const struct table_memory *memory = &pool->table_memory;
	const struct table_units *table;

	if (slot > 0) {
		table = &pool->slots[slot - 1].table;
		if (table->n_populated > 0 &&
		    table_offset(pool, slot - 1) / memory->page_size + table->n_populated > unit)
			return true;
	}
	return slot + 1 < pool->high_slot && pool->slots[slot + 1].table.n_populated > 0 &&
	       table_offset(pool, slot + 1) / memory->page_size == unit;
}

/* Gives back up to RELEASE_UNITS of a slot's spare units, the last ones first; returns how many. */
static uint32_t
spare_release(struct core_pool *pool, uint32_t slot)
{
	struct table_memory *memory = &pool->table_memory;
	struct table_units *own = &pool->slots[slot].table;
	uint64_t first = table_offset(pool, slot) / memory->page_size, from, to;
	uint32_t n = MIN(own->n_populated - own->n_needed, RELEASE_UNITS);

	/* Only the first and the last unit of a page table can be another's as well. */
	to = first + own->n_populated;
	from = to - n;
	if (neighbour_populates(pool, slot, to - 1))
		to--;
	if (from < to && neighbour_populates(pool, slot, from))
		from++;
	if (from < to && (memory->release == NULL ||
			  !memory->release((uint8_t *)(uintptr_t)pool->view.base + from * memory->page_size,
					   (to - from) * memory->page_size))) {
		own->stuck = 1; /* what is populated stays counted */
		spare_update(pool, slot);
		return 0;
	}
	own->n_populated -= n;
	memory->n_populated -= n;
	spare_update(pool, slot);
	return n;
}

uint32_t
table_memory_tick(struct core_pool *pool, uint32_t budget)
{
	struct table_memory_list *large = &pool->table_memory.lists[TABLE_MEMORY_LARGE];
	uint32_t n = 0;

	for (; n < budget && large->first != NONE; n += 1 + spare_release(pool, large->first))
		;
	if (n > 0)
		table_memory_publish(pool);
	return n;
}

/*
 * Releases spare units until n_units more can be populated within the limit; false: there are too few.  Page tables
 * that share units need none: a new slot is used only if no slot is free, so what is populated is the most that was
 * needed.
 */
static bool
table_memory_make_room(struct core_pool *pool, uint64_t n_units)
{
	struct table_memory *memory = &pool->table_memory;

	if (memory->n_needed + n_units > memory->limit)
		return false;
	if (tables_share_units(memory))
		return true;
	while (memory->n_populated + n_units > memory->limit) {
		uint32_t slot = memory->lists[TABLE_MEMORY_LARGE].first;

		if (slot == NONE)
			slot = memory->lists[TABLE_MEMORY_SMALL].first;
		if (slot == NONE)
			return false;
		spare_release(pool, slot);
	}
	table_memory_publish(pool);
	return true;
}

/* Requests */

void
table_memory_count_new(struct core_pool *pool, uint32_t n_entries)
{
	pool->request.n_table_units += table_units_most(&pool->table_memory, n_entries);
}

void
table_memory_count(struct core_pool *pool, uint32_t slot, uint32_t n_entries, uint32_t n_ahead)
{
	uint32_t n_now = pool->slots[slot].table.n_needed, n = table_units(pool, slot, n_entries);

	pool->request.n_table_units += n > n_now ? n - n_now : 0;
	pool->request.n_table_ahead += table_units(pool, slot, n_entries + n_ahead) - n;
}

static uint64_t
tenant_table_limit(const struct core_pool *pool, const struct tenant_pool *tenant)
{
	return tenant->limits.table_bytes / pool->table_memory.unit_size;
}

static bool
tenant_has_room(const struct core_pool *pool, const struct tenant_pool *tenant, uint64_t n_units)
{
	return tenant == NULL || n_units == 0 || tenant->n_table_units + n_units <= tenant_table_limit(pool, tenant);
}

static enum paged_status
tenant_fail_table(const struct core_pool *pool, uint32_t number, uint64_t n_units, struct paged_error *error)
{
	const struct tenant_pool *tenant = table_tenant(pool, number);
	uint32_t unit_size = pool->table_memory.unit_size;

	return paged_fail(
		error, PAGED_ERR_QUOTA,
		"tenant %s, pool %s: page tables of %llu bytes requested, %llu in use, and its share is %llu of "
		"%llu: end sequences or forks, or raise %s or table-memory",
		pool->tenants->items[number - 1]->name, pool->name, (unsigned long long)(n_units * unit_size),
		(unsigned long long)(tenant->n_table_units * unit_size),
		(unsigned long long)(tenant_table_limit(pool, tenant) * unit_size),
		(unsigned long long)(pool->table_memory.limit * unit_size),
		tenant_setting(pool->tenants->items[number - 1]));
}

bool
table_memory_has_ahead(struct core_pool *pool, uint32_t tenant)
{
	uint64_t n = pool->request.n_table_units + pool->request.n_table_ahead;

	return pool->request.n_table_ahead == 0 ||
	       (tenant_has_room(pool, table_tenant(pool, tenant), n) && table_memory_make_room(pool, n));
}

enum paged_status
table_memory_check(struct core_pool *pool, uint32_t tenant, struct paged_error *error)
{
	struct table_memory *memory = &pool->table_memory;

	if (!tenant_has_room(pool, table_tenant(pool, tenant), pool->request.n_table_units))
		return tenant_fail_table(pool, tenant, pool->request.n_table_units, error);
	if (pool->request.n_table_units == 0 || table_memory_make_room(pool, pool->request.n_table_units))
		return PAGED_OK;
	return paged_fail(
		error, PAGED_ERR_FULL,
		"pool %s: page tables of %llu bytes requested, %llu of %llu used (table-memory): end sequences "
		"or forks",
		pool->name, (unsigned long long)(pool->request.n_table_units * memory->unit_size),
		(unsigned long long)(memory->n_needed * memory->unit_size),
		(unsigned long long)(memory->limit * memory->unit_size));
}

enum paged_status
table_memory_check_move(const struct core_pool *pool, uint32_t tenant, uint32_t n, const struct paged_seq_item *items,
			struct paged_error *error)
{
	uint64_t n_units = 0;

	for (uint32_t i = 0; i < n; i++)
		n_units += pool->slots[PAGED_SEQ_SLOT(items[i].seq)].table.n_needed;
	return tenant_has_room(pool, table_tenant(pool, tenant), n_units)
		       ? PAGED_OK
		       : tenant_fail_table(pool, tenant, n_units, error);
}

void
table_memory_move(struct core_pool *pool, uint32_t slot, uint32_t to)
{
	struct tenant_pool *from = table_tenant(pool, pool->slots[slot].tenant), *other = table_tenant(pool, to);

	if (from != NULL)
		from->n_table_units -= pool->slots[slot].table.n_needed;
	if (other != NULL)
		other->n_table_units += pool->slots[slot].table.n_needed;
}

/* Check */

static enum paged_status
check_tenants_tables(const struct core_pool *pool, struct paged_error *error)
{
	for (uint32_t tenant = 1; tenant <= pool->tenants->n; tenant++) {
		uint64_t n_units = 0;

		if (pool->tenants->items[tenant - 1] == NULL)
			continue;
		for (uint32_t slot = 0; slot < pool->high_slot; slot++)
			n_units += pool->slots[slot].tenant == tenant ? pool->slots[slot].table.n_needed : 0;
		if (n_units != table_tenant(pool, tenant)->n_table_units)
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "pool %s: page tables of tenant %s need %llu units, counted as %llu",
					  pool->name, pool->tenants->items[tenant - 1]->name,
					  (unsigned long long)n_units,
					  (unsigned long long)table_tenant(pool, tenant)->n_table_units);
	}
	return PAGED_OK;
}

enum paged_status
check_table_memory(const struct core_pool *pool, struct paged_error *error)
{
	const struct table_memory *memory = &pool->table_memory;
	uint64_t n_needed = 0, n_populated = 0;
	uint32_t n_listed[TABLE_MEMORY_LISTS] = { 0 };

	for (uint32_t slot = 0; slot < pool->high_slot; slot++) {
		const struct table_units *own = &pool->slots[slot].table;
		uint32_t n = table_units_needed(pool, slot);

		if (own->n_needed != n || own->n_populated < n)
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "pool %s: the page table of slot %u needs %u units, and has %u of %u",
					  pool->name, slot, n, own->n_needed, own->n_populated);
		n_needed += n;
		n_populated += own->n_populated;
		n_listed[own->list]++;
	}
	for (uint32_t list = TABLE_MEMORY_UNLISTED + 1; list < TABLE_MEMORY_LISTS; list++)
		for (uint32_t slot = memory->lists[list].first; slot != NONE; slot = pool->slots[slot].table.next)
			if (pool->slots[slot].table.list != list || n_listed[list]-- == 0)
				return paged_fail(error, PAGED_ERR_CORRUPT,
						  "pool %s: slot %u is in the wrong list of spare memory", pool->name,
						  slot);
	if (n_needed != memory->n_needed || n_populated != memory->n_populated ||
	    (tables_share_units(memory) ? n_needed : n_populated) > memory->limit ||
	    n_listed[TABLE_MEMORY_SMALL] != 0 || n_listed[TABLE_MEMORY_LARGE] != 0)
		return paged_fail(
			error, PAGED_ERR_CORRUPT,
			"pool %s: page tables need %llu units and have %llu, counted as %llu and %llu of %llu",
			pool->name, (unsigned long long)n_needed, (unsigned long long)n_populated,
			(unsigned long long)memory->n_needed, (unsigned long long)memory->n_populated,
			(unsigned long long)memory->limit);
	return check_tenants_tables(pool, error);
}
