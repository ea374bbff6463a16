/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buckets of the index.  Hashes are not collision resistant and their seed is in the region, so members can aim at
 * any bucket.  A bucket has at most PREFIX_BUCKET_MAX nodes, which limits what a search costs; a further node takes the
 * place of one of the tenant that has most nodes there, and of that tenant's session with most.  Among these, the nodes
 * that others use go last, because a member may publish what others begin with only to have it displaced under them.
 */
#include "core/node.h"
#include "core/page_table.h"
#include "core/session.h"

void
bucket_insert(struct core_pool *pool, uint32_t page, uint64_t hash)
{
	_Atomic uint32_t *bucket = region_bucket(&pool->view, hash);
	uint32_t first = load_u32(bucket);

	store_u32(&region_node(&pool->view, page)->next, first);
	pool->nodes[page].bucket_previous = NONE;
	if (first != 0)
		pool->nodes[first - 1].bucket_previous = page;
	atomic_store_explicit(bucket, page + 1, memory_order_release);
}

void
bucket_remove(struct core_pool *pool, uint32_t page)
{
	const struct region_node *node = region_node(&pool->view, page);
	uint32_t next = load_u32(&node->next), previous = pool->nodes[page].bucket_previous;

	if (previous == NONE)
		atomic_store_explicit(region_bucket(&pool->view, load_u64(&node->hash)), next, memory_order_release);
	else
		atomic_store_explicit(&region_node(&pool->view, previous)->next, next, memory_order_release);
	if (next != 0)
		pool->nodes[next - 1].bucket_previous = previous;
}

void
bucket_prefetch(const struct core_pool *pool, uint64_t hash)
{
	uint32_t link = load_u32(region_bucket(&pool->view, hash));

	if (link == 0)
		return;
	__builtin_prefetch(region_node(&pool->view, link - 1));
	__builtin_prefetch(&pool->nodes[link - 1], 1);
}

/* A node of a full bucket, and how many nodes there are of its tenant, and of its session and tenant. */
struct bucket_node {
	uint32_t page, tenant, session;
	uint32_t n_tenant, n_session;
};

/* Sessions that have ended count as one: else a process could have any number of them. */
static uint32_t
bucket_session(const struct core *core, uint32_t id)
{
	const struct core_session *session = idmap_find(&core->sessions, id);

	return session == NULL || session->ended ? 0 : id;
}

/* The nodes of a bucket; the node that the slot is to publish counts for its publisher.  Returns how many they are. */
static uint32_t
bucket_count(const struct core *core, const struct core_pool *pool, uint32_t slot, uint64_t hash,
	     struct bucket_node nodes[PREFIX_BUCKET_MAX])
{
	const uint32_t tenant = pool->slots[slot].tenant, session = page_table_owner(pool, slot);
	uint32_t n = 0;

	for (uint32_t link = load_u32(region_bucket(&pool->view, hash)); link != 0 && n < PREFIX_BUCKET_MAX;
	     link = load_u32(&region_node(&pool->view, link - 1)->next))
		nodes[n++] = (struct bucket_node){
			.page = link - 1,
			.tenant = pool->pages[link - 1].tenant,
			.session = bucket_session(core, pool->pages[link - 1].session),
		};
	for (uint32_t i = 0; i < n; i++) {
		struct bucket_node *node = &nodes[i];

		node->n_tenant = node->tenant == tenant;
		node->n_session = node->tenant == tenant && node->session == session;
		for (uint32_t k = 0; k < n; k++) {
			node->n_tenant += nodes[k].tenant == node->tenant;
			node->n_session += nodes[k].tenant == node->tenant && nodes[k].session == node->session;
		}
	}
	return n;
}

/* True: the page table names the node, and what the slot publishes next stands on it. */
static bool
bucket_is_above(const struct core_pool *pool, uint32_t slot, uint32_t page)
{
	uint32_t depth = pool->nodes[page].depth;

	return depth >= page_table_first(pool, slot) &&
	       depth < page_table_published(pool, slot) / pool->view.page_size &&
	       load_u32(&region_page_table(&pool->view, slot)[depth]) == page;
}

/* True: a makes room rather than b. */
static bool
bucket_gives_way(const struct core_pool *pool, const struct bucket_node *a, const struct bucket_node *b)
{
	const struct region_node *node = region_node(&pool->view, a->page), *other = region_node(&pool->view, b->page);

	if (a->n_tenant != b->n_tenant)
		return a->n_tenant > b->n_tenant;
	if (a->n_session != b->n_session)
		return a->n_session > b->n_session;
	if (pool->pages[a->page].users != pool->pages[b->page].users)
		return pool->pages[a->page].users < pool->pages[b->page].users;
	if (load_u32(&node->used) != load_u32(&other->used))
		return load_u32(&node->used) < load_u32(&other->used);
	return load_u64(&node->serial) < load_u64(&other->serial);
}

bool
bucket_make_room(const struct core *core, struct core_pool *pool, uint32_t slot, uint64_t hash)
{
	struct bucket_node nodes[PREFIX_BUCKET_MAX];
	uint32_t n = bucket_count(core, pool, slot, hash, nodes);
	const struct bucket_node *found = NULL;

	for (uint32_t i = 0; i < n; i++)
		if (!bucket_is_above(pool, slot, nodes[i].page) &&
		    (found == NULL || bucket_gives_way(pool, &nodes[i], found)))
			found = &nodes[i];
	if (found == NULL)
		return false;
	node_remove(pool, found->page);
	counter_add(&pool->header->n_displaced, 1);
	return true;
}
