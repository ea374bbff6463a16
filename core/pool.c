/* SPDX-License-Identifier: Apache-2.0 */
/* A pool's memory of the core: lists, counts and its table region. */
#include "core/node.h"
#include "core/page_table.h"
#include "core/pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct region_params
pool_region_params(const struct core_pool_params *params, uint32_t index)
{
	return (struct region_params){
		.pool = index,
		.n_pages = params->n_pages,
		.n_slots = params->n_slots,
		.page_size = params->page_size,
		.max_length = params->max_length,
		.publish = params->publish,
		.seed = params->seed,
		.first_number = params->first_number,
		.memory_id = params->memory_id,
	};
}

size_t
core_region_size(const struct core_pool_params *params)
{
	struct region_params region = pool_region_params(params, 0);

	return region_size(&region);
}

void
core_pool_memory(const struct core_pool_params *params, struct core_memory *memory)
{
	const struct region_params region = pool_region_params(params, 0);
	struct region_header layout;

	*memory = (struct core_memory){ 0 };
	if (!region_layout(&region, &layout))
		return;
	table_memory_bounds(&layout, params, memory);
	memory->other = layout.total_size - params->n_slots * layout.table_stride +
			params->n_pages * (uint64_t)(3 * sizeof(uint32_t) + sizeof(struct pool_page)) +
			params->n_slots * (uint64_t)(sizeof(struct pool_slot) + PAGED_MAX_TAG + 1);
	memory->tenant = params->n_pages * (uint64_t)sizeof(uint32_t); /* its references by page */
	if (!params->publish)
		return;
	memory->other += params->n_pages * (uint64_t)sizeof(struct pool_node);
	memory->cache_shares = params->n_pages * (uint64_t)sizeof(struct share_page);
}

void *
core_map_array(uint32_t n, size_t size)
{
	void *array = mmap(NULL, n * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return array == MAP_FAILED ? NULL : array;
}

void
core_unmap_array(void *array, uint32_t n, size_t size)
{
	if (array != NULL)
		munmap(array, n * size);
}

static enum paged_status
pool_check_params(const struct core_pool_params *params, struct paged_error *error)
{
	size_t length = strlen(params->name);

	if (length == 0 || length > PAGED_MAX_NAME)
		return paged_fail(error, PAGED_ERR_INVALID, "a pool's name has 1 to %u bytes, not %zu", PAGED_MAX_NAME,
				  length);
	if (params->n_slots > PAGED_MAX_SLOTS)
		return paged_fail(error, PAGED_ERR_LIMIT, "pool %s: %u sequences, at most %u", params->name,
				  params->n_slots, PAGED_MAX_SLOTS);
	if (core_region_size(params) == 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "pool %s: no tables for %u pages of %u tokens and %u sequences of %u tokens",
				  params->name, params->n_pages, params->page_size, params->n_slots,
				  params->max_length);
	return PAGED_OK;
}

enum paged_status
core_pool_create(const struct core_pool_params *params, uint32_t index, void *region,
		 const uint8_t boot_id[REGION_BOOT_ID_SIZE], struct core_pool **pool_p, struct paged_error *error)
{
	struct region_params region_params = pool_region_params(params, index);
	struct core_memory memory;
	enum paged_status status;
	struct core_pool *pool;

	status = pool_check_params(params, error);
	if (status != PAGED_OK)
		return status;
	pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory", params->name);
	pool->stack = core_map_array(params->n_pages, sizeof(*pool->stack));
	pool->pages = core_map_array(params->n_pages, sizeof(*pool->pages));
	if (params->publish)
		pool->nodes = core_map_array(params->n_pages, sizeof(*pool->nodes));
	for (int i = 0; i < 2; i++)
		pool->walk[i] = core_map_array(params->n_pages, sizeof(*pool->walk[i]));
	pool->slots = core_map_array(params->n_slots, sizeof(*pool->slots));
	pool->tags = core_map_array(params->n_slots, sizeof(*pool->tags));
	pool->view.n_pages = params->n_pages;
	pool->view.n_slots = params->n_slots;
	if (pool->stack == NULL || pool->pages == NULL || (params->publish && pool->nodes == NULL) ||
	    pool->walk[0] == NULL || pool->walk[1] == NULL || pool->slots == NULL || pool->tags == NULL) {
		core_pool_destroy(pool);
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no address space for %u pages and %u sequences",
				  params->name, params->n_pages, params->n_slots);
	}
	strcpy(pool->name, params->name);
	pool->index = index;
	pool->header = region;
	pool->first_free_slot = pool->lost = NONE;
	pool->first_pin_ms = CORE_NO_DEADLINE;
	pool->lru = pool->pinned = (struct page_list){ .coldest = NONE, .hottest = NONE };
	pool->free_pages = params->free_pages;
	pool->pin_limit = params->pin_limit;

	region_format(region, &region_params, boot_id);
	status = region_view_init(&pool->view, region, core_region_size(params), boot_id, error);
	assert(status == PAGED_OK);
	(void)status;
	pool->table_memory.release = params->release;
	core_pool_memory(params, &memory);
	table_memory_init(pool, params->table_memory != 0 ? params->table_memory : memory.tables_default);
	*pool_p = pool;
	return PAGED_OK;
}

void
core_pool_destroy(struct core_pool *pool)
{
	core_unmap_array(pool->stack, pool->view.n_pages, sizeof(*pool->stack));
	pins_free(pool);
	core_unmap_array(pool->pages, pool->view.n_pages, sizeof(*pool->pages));
	core_unmap_array(pool->shares, pool->view.n_pages, sizeof(*pool->shares));
	core_unmap_array(pool->nodes, pool->view.n_pages, sizeof(*pool->nodes));
	for (int i = 0; i < 2; i++)
		core_unmap_array(pool->walk[i], pool->view.n_pages, sizeof(*pool->walk[i]));
	core_unmap_array(pool->slots, pool->view.n_slots, sizeof(*pool->slots));
	core_unmap_array(pool->tags, pool->view.n_slots, sizeof(*pool->tags));
	free(pool);
}

uint32_t
core_pool_n_free(const struct core_pool *pool)
{
	return pool->view.n_pages - pool->high_page + pool->n_stack;
}

uint32_t
core_pool_n_available(const struct core_pool *pool)
{
	return core_pool_n_free(pool) + pool->n_cached - pool->n_promised;
}

uint32_t
core_pool_n_free_slots(const struct core_pool *pool)
{
	return pool->view.n_slots - pool->n_sequences - pool->n_retired;
}

void
core_pool_change_begin(struct core_pool *pool)
{
	uint64_t change = atomic_load_explicit(&pool->header->change, memory_order_relaxed);

	if (pool->n_changes++ > 0)
		return;
	assert(change % 2 == 0);
	pool->n_at_once = NODES_AT_ONCE;
	pool->n_lowered_at_once = LOWERED_AT_ONCE;
	atomic_store_explicit(&pool->header->change, change + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

void
core_pool_change_end(struct core_pool *pool)
{
	struct region_header *header = pool->header;
	uint64_t change = atomic_load_explicit(&header->change, memory_order_relaxed);

	if (--pool->n_changes > 0)
		return;
	atomic_store_explicit(&header->n_free, core_pool_n_free(pool), memory_order_relaxed);
	atomic_store_explicit(&header->n_cached, pool->n_cached, memory_order_relaxed);
	atomic_store_explicit(&header->n_referenced, pool->n_referenced, memory_order_relaxed);
	peak_raise(&header->peak_referenced, pool->n_referenced);
	atomic_store_explicit(&header->n_quarantined, pool->n_quarantined, memory_order_relaxed);
	atomic_store_explicit(&header->high_page, pool->high_page, memory_order_relaxed);
	atomic_store_explicit(&header->high_slot, pool->high_slot, memory_order_relaxed);
	atomic_store_explicit(&header->change, change + 1, memory_order_release);
}

void
core_wake(struct core *core)
{
	for (uint32_t i = 0; i < core->n_pools; i++) {
		region_free_wake(core->pools[i]->header, &core->pools[i]->n_free_woken);
		region_ring_wake(core->pools[i]->header, &core->pools[i]->ring_woken);
	}
}

void
core_pool_status(const struct core *core, uint32_t pool_index, struct paged_pool_entry *entry)
{
	const struct core_pool *pool = core->pools[pool_index];
	struct region_header *header = pool->header;

	*entry = (struct paged_pool_entry){
		.number = pool_index,
		.n_pages = pool->view.n_pages,
		.n_free = core_pool_n_free(pool),
		.n_referenced = pool->n_referenced,
		.n_cached = pool->n_cached,
		.n_quarantined = pool->n_quarantined,
		.n_pinned = load_u32(&header->n_pinned),
		.page_size = pool->view.page_size,
		.n_slots = pool->view.n_slots,
		.n_sequences = pool->n_sequences,
		.max_length = pool->view.max_length,
		.publishes = pool->view.n_buckets != 0,
		.n_starts = load_u64(&header->n_starts),
		.n_tokens_asked = load_u64(&header->n_tokens_asked),
		.n_tokens_found = load_u64(&header->n_tokens_found),
		.n_published = load_u64(&header->n_published),
		.n_evicted = load_u64(&header->n_evicted),
		.n_orphaned = load_u64(&header->n_orphaned),
		.n_displaced = load_u64(&header->n_displaced),
		.n_stopped_removed = load_u64(&header->n_stopped_removed),
		.n_stopped_trimmed = load_u64(&header->n_stopped_trimmed),
		.n_stopped_other = load_u64(&header->n_stopped_other),
		.n_stopped_bucket = load_u64(&header->n_stopped_bucket),
		.n_taken = load_u64(&header->n_taken),
		.n_trimmed = load_u64(&header->n_trimmed),
		.n_created = load_u64(&header->n_created),
		.n_ended = load_u64(&header->n_ended),
		.n_forked = load_u64(&header->n_forked),
		.n_given = load_u64(&header->n_given),
		.n_adopted = load_u64(&header->n_adopted),
		.n_cancelled = load_u64(&header->n_cancelled),
		.n_expired = load_u64(&header->n_expired),
		.peak_sequences = load_u32(&header->peak_sequences),
		.peak_referenced = load_u32(&header->peak_referenced),
		.table_used = load_u64(&header->table_used),
		.table_populated = load_u64(&header->table_populated),
		.table_limit = load_u64(&header->table_limit),
	};
	memcpy(entry->name, pool->name, sizeof(entry->name));
}
