/* SPDX-License-Identifier: Apache-2.0 */
/* The index of published pages: nodes are stored and removed here and nowhere else.  region.h has the order of stores.
 */
#include "core/core_internal.h"

#include <assert.h>

struct node_ref
node_ref(const struct core_pool *pool, uint32_t page)
{
	return (struct node_ref){ .page = page, .serial = load_u64(&region_node(&pool->view, page)->serial) };
}

struct prefix_position
node_position(const struct core_pool *pool, uint32_t page)
{
	const struct region_node *node;

	if (page == NONE)
		return prefix_root(&pool->view);
	node = region_node(&pool->view, page);
	return (struct prefix_position){
		.page = page,
		.serial = load_u64(&node->serial),
		.hash = load_u64(&node->hash),
	};
}

struct node_ref
node_parent(const struct core_pool *pool, uint32_t page)
{
	const struct region_node *node = region_node(&pool->view, page);

	return (struct node_ref){ .page = load_u32(&node->parent), .serial = load_u64(&node->parent_serial) };
}

/* Writes an entry of the ring: its number is 0 while the fields change. */
static void
ring_write(struct core_pool *pool, enum region_ring_kind kind, uint32_t page, uint64_t serial, uint64_t hash)
{
	uint64_t number = load_u64(&pool->header->ring_head) + 1;
	struct region_ring_entry *entry = region_ring_entry(&pool->view, number);

	atomic_store_explicit(&entry->number, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&entry->serial, serial, memory_order_relaxed);
	atomic_store_explicit(&entry->hash, hash, memory_order_relaxed);
	store_u32(&entry->page, page);
	store_u32(&entry->kind, kind);
	atomic_store_explicit(&entry->number, number, memory_order_release);
	atomic_store_explicit(&pool->header->ring_head, number, memory_order_release);
}

static uint32_t
node_parent_page(const struct core_pool *pool, uint32_t page)
{
	struct node_ref parent = node_parent(pool, page);

	return parent.serial != 0 ? parent.page : NONE;
}

/* Nodes without a parent are siblings of none. */
static void
tree_insert(struct core_pool *pool, uint32_t page, uint32_t parent)
{
	struct pool_node *own = &pool->nodes[page];

	own->depth = 0;
	own->first_child = own->first_slot = own->next_sibling = own->previous_sibling = NONE;
	if (parent == NONE)
		return;
	own->depth = pool->nodes[parent].depth + 1;
	own->next_sibling = pool->nodes[parent].first_child;
	if (own->next_sibling != NONE)
		pool->nodes[own->next_sibling].previous_sibling = page;
	pool->nodes[parent].first_child = page;
}

static void
tree_remove(struct core_pool *pool, uint32_t page)
{
	const struct pool_node *own = &pool->nodes[page];
	uint32_t parent = node_parent_page(pool, page);

	if (own->next_sibling != NONE)
		pool->nodes[own->next_sibling].previous_sibling = own->previous_sibling;
	if (own->previous_sibling != NONE)
		pool->nodes[own->previous_sibling].next_sibling = own->next_sibling;
	else if (parent != NONE)
		pool->nodes[parent].first_child = own->next_sibling;
}

void
node_prefetch(const struct core_pool *pool, uint32_t page)
{
	const uint8_t *key = (const uint8_t *)region_block_key(&pool->view, page);

	__builtin_prefetch(region_node(&pool->view, page), 1);
	__builtin_prefetch(key, 1);
	__builtin_prefetch(key + REGION_EXTRA_SIZE + pool->view.page_size * sizeof(uint32_t) - 1, 1);
	__builtin_prefetch(&pool->pages[page], 1);
	__builtin_prefetch(&pool->nodes[page], 1);
	__builtin_prefetch(region_page(&pool->view, page), 1);
}

void
node_store(const struct core *core, struct core_pool *pool, uint32_t slot, uint32_t page,
	   const struct prefix_position *parent, const struct prefix_block *block, uint64_t hash)
{
	struct region_header *header = pool->header;
	struct region_node *node = region_node(&pool->view, page);
	uint64_t serial = load_u64(&header->next_serial);

	assert(load_u64(&node->serial) == 0 && page_count(pool, page) != 0);
	atomic_store_explicit(&header->next_serial, serial + 1, memory_order_relaxed);
	/* serial is 0, as node_remove() left it; readers of the fields stored below must see that. */
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&node->parent_serial, parent->serial, memory_order_relaxed);
	atomic_store_explicit(&node->hash, hash, memory_order_relaxed);
	store_u32(&node->parent, parent->page);
	store_u32(&node->used, (uint32_t)(core->now_ms / 1000));
	store_u32(&node->hits, 0);
	prefix_block_store(&pool->view, page, block);
	atomic_store_explicit(&node->serial, serial, memory_order_release);
	pool->nodes[page].session = page_table_owner(pool, slot);
	pool->nodes[page].tenant = pool->slots[slot].tenant;
	tree_insert(pool, page, parent->serial != 0 ? parent->page : NONE);
	bucket_insert(pool, page, hash);
	pages_publish(pool, page);
	ring_write(pool, REGION_RING_STORED, page, serial, hash);
	counter_add(&header->n_published, 1);
}

/* Removes a node without children. */
static void
node_remove_leaf(struct core_pool *pool, uint32_t page)
{
	struct region_node *node = region_node(&pool->view, page);
	uint64_t serial = load_u64(&node->serial);

	assert(serial != 0);
	lru_unlist(pool, page);
	atomic_store_explicit(&node->serial, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	bucket_remove(pool, page);
	tree_remove(pool, page);
	if (pool->pages[page].n_pins > 0) {
		pool->pages[page].n_pins = 0;
		store_u32(&pool->header->n_pinned, load_u32(&pool->header->n_pinned) - 1);
	}
	ring_write(pool, REGION_RING_REMOVED, page, serial, load_u64(&node->hash));
	pages_unpublish(pool, page);
}

void
node_remove(struct core_pool *pool, uint32_t page)
{
	uint32_t leaf = page, above = node_parent_page(pool, page), next, n_orphaned = 0;

	/* From the youngest leaf up: a node is removed when its last child was. */
	for (;; leaf = next, n_orphaned++) {
		while (pool->nodes[leaf].first_child != NONE)
			leaf = pool->nodes[leaf].first_child;
		next = node_parent_page(pool, leaf);
		published_lower(pool, leaf, above);
		node_remove_leaf(pool, leaf);
		if (leaf == page)
			break;
	}
	counter_add(&pool->header->n_orphaned, n_orphaned);
}

void
node_used(const struct core *core, struct core_pool *pool, uint32_t page)
{
	struct region_node *node = region_node(&pool->view, page);
	uint32_t hits = load_u32(&node->hits);

	store_u32(&node->used, (uint32_t)(core->now_ms / 1000));
	if (hits != UINT32_MAX)
		store_u32(&node->hits, hits + 1);
}

bool
core_node_next(const struct core *core, uint32_t pool_index, uint32_t page, uint32_t end,
	       struct paged_node_entry *entry)
{
	const struct core_pool *pool = core->pools[pool_index];
	uint32_t now_s = (uint32_t)(core->now_ms / 1000);
	const struct region_node *node;
	struct node_ref parent;

	if (pool->view.n_buckets == 0)
		return false;
	if (end > pool->high_page)
		end = pool->high_page;
	while (page < end && node_ref(pool, page).serial == 0)
		page++;
	if (page >= end)
		return false;
	node = region_node(&pool->view, page);
	parent = node_parent(pool, page);
	*entry = (struct paged_node_entry){
		.serial = load_u64(&node->serial),
		.parent_serial = parent.serial,
		.page = page,
		.parent = parent.page,
		.n_references = load_u32(&region_page(&pool->view, page)->count),
		.used_s = now_s - load_u32(&node->used),
		.hits = load_u32(&node->hits),
		.pinned = pool->pages[page].n_pins > 0,
	};
	return true;
}
