/* SPDX-License-Identifier: Apache-2.0 */
/* The index of published pages: nodes are stored and removed here and nowhere else.  region.h has the order of stores.
 */
#include "core/node.h"
#include "core/pages.h"
#include "core/tenant.h"

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

/* Lists of siblings: the first one's previous_sibling is the last one, so that a list can be put before another. */

static void
siblings_insert(struct core_pool *pool, uint32_t *first, uint32_t page)
{
	struct pool_node *own = &pool->nodes[page];

	own->next_sibling = *first;
	own->previous_sibling = *first == NONE ? page : pool->nodes[*first].previous_sibling;
	if (*first != NONE)
		pool->nodes[*first].previous_sibling = page;
	*first = page;
}

static void
siblings_remove(struct core_pool *pool, uint32_t *first, uint32_t page)
{
	const struct pool_node *own = &pool->nodes[page];

	if (page == *first)
		*first = own->next_sibling;
	else
		pool->nodes[own->previous_sibling].next_sibling = own->next_sibling;
	if (own->next_sibling != NONE)
		pool->nodes[own->next_sibling].previous_sibling = own->previous_sibling;
	else if (*first != NONE)
		pool->nodes[*first].previous_sibling = own->previous_sibling;
}

static void
siblings_prepend(struct core_pool *pool, uint32_t *first, uint32_t more)
{
	uint32_t last;

	if (more == NONE)
		return;
	last = pool->nodes[more].previous_sibling;
	pool->nodes[last].next_sibling = *first;
	if (*first != NONE) {
		pool->nodes[more].previous_sibling = pool->nodes[*first].previous_sibling;
		pool->nodes[*first].previous_sibling = last;
	}
	*first = more;
}

/* The list that a node is in: of its parent's children, or of the lost nodes; NULL: it is the first of a prefix. */
static uint32_t *
node_siblings(struct core_pool *pool, uint32_t page)
{
	struct node_ref parent = node_parent(pool, page);

	if (parent.serial == 0)
		return NULL;
	return node_is_live(pool, &parent) ? &pool->nodes[parent.page].first_child : &pool->lost;
}

static void
tree_insert(struct core_pool *pool, uint32_t page, uint32_t parent)
{
	struct pool_node *own = &pool->nodes[page];

	own->depth = parent == NONE ? 0 : pool->nodes[parent].depth + 1;
	own->first_child = own->first_slot = NONE;
	if (parent != NONE)
		siblings_insert(pool, &pool->nodes[parent].first_child, page);
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
	pool->pages[page].session = page_table_owner(pool, slot);
	pool->pages[page].tenant = pool->slots[slot].tenant;
	pool->pages[page].users = NODE_NO_OTHERS;
	tenant_count_node(pool, pool->pages[page].tenant, true);
	tree_insert(pool, page, parent->serial != 0 ? parent->page : NONE);
	bucket_insert(pool, page, hash);
	pages_publish(pool, page);
	ring_write(pool, REGION_RING_STORED, page, serial, hash);
	counter_add(&header->n_published, 1);
}

/* Removes one node.  Its children are lost; sequences that are published up to it are published up to `above`. */
static void
node_remove_one(struct core_pool *pool, uint32_t page, uint32_t above)
{
	struct region_node *node = region_node(&pool->view, page);
	uint32_t *siblings = node_siblings(pool, page);
	uint64_t serial = load_u64(&node->serial);

	assert(serial != 0);
	published_lower(pool, page, above);
	lru_unlist(pool, page);
	if (siblings != NULL)
		siblings_remove(pool, siblings, page);
	atomic_store_explicit(&node->serial, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	bucket_remove(pool, page);
	siblings_prepend(pool, &pool->lost, pool->nodes[page].first_child);
	if (pool->pages[page].n_pins > 0) {
		pool->pages[page].n_pins = 0;
		store_u32(&pool->header->n_pinned, load_u32(&pool->header->n_pinned) - 1);
	}
	tenant_count_node(pool, pool->pages[page].tenant, false);
	ring_write(pool, REGION_RING_REMOVED, page, serial, load_u64(&node->hash));
	pages_unpublish(pool, page);
}

void
node_remove(struct core_pool *pool, uint32_t page)
{
	struct node_ref parent = node_parent(pool, page);
	uint32_t above = node_is_live(pool, &parent) ? parent.page : NONE, n = 0;
	uint32_t lost = pool->lost == page ? pool->nodes[page].next_sibling : pool->lost;

	node_remove_one(pool, page, above);
	for (; pool->lost != lost && pool->n_at_once > 0; n++, pool->n_at_once--)
		node_remove_one(pool, pool->lost, above);
	pool->n_worked += n;
	counter_add(&pool->header->n_orphaned, n);
}

void
nodes_remove_lost(struct core_pool *pool, uint32_t budget)
{
	uint32_t n = 0;

	for (; pool->lost != NONE && n < budget; n++)
		node_remove_one(pool, pool->lost, NONE);
	pool->n_worked += n;
	counter_add(&pool->header->n_orphaned, n);
}

void
node_note_user(struct core_pool *pool, uint32_t page, uint32_t tenant, uint32_t session)
{
	struct pool_page *own = &pool->pages[page];

	if (own->tenant != tenant)
		own->users = NODE_OTHER_TENANTS;
	else if (own->session != session && own->users == NODE_NO_OTHERS)
		own->users = NODE_OTHER_SESSIONS;
}

void
node_used(const struct core *core, struct core_pool *pool, uint32_t page, const struct core_session *session)
{
	struct region_node *node = region_node(&pool->view, page);
	uint32_t hits = load_u32(&node->hits);

	store_u32(&node->used, (uint32_t)(core->now_ms / 1000));
	if (hits != UINT32_MAX)
		store_u32(&node->hits, hits + 1);
	node_note_user(pool, page, session->tenant, session->id);
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
