/* SPDX-License-Identifier: Apache-2.0 */
/* Part of core_check(): nodes, buckets and the lists of cached pages are consistent. */
#include "core/audit.h"
#include "core/node.h"
#include "core/page_table.h"

#include <stdlib.h>

/* The hash must be that of the block key and of the parent's hash; the block key is read as the publisher gave it. */
static bool
check_hash(const struct core_pool *pool, uint32_t page, uint64_t hash)
{
	uint64_t key[(REGION_EXTRA_SIZE + PAGED_MAX_PAGE_SIZE * sizeof(uint32_t)) / 8];
	uint32_t n_words = (REGION_EXTRA_SIZE + pool->view.page_size * (uint32_t)sizeof(uint32_t) + 7) / 8;
	const struct node_ref parent = node_parent(pool, page);
	const uint32_t *tokens = (const uint32_t *)&key[REGION_EXTRA_SIZE / 8];
	struct prefix_block block = { 0 };

	for (uint32_t i = 0; i < n_words; i++) {
		key[i] = atomic_load_explicit(&region_block_key(&pool->view, page)[i], memory_order_relaxed);
		if (i < REGION_EXTRA_SIZE / 8 && key[i] != 0)
			block.extra = (const uint8_t *)key;
	}
	if (tokens[0] != PREFIX_NO_TOKENS)
		block.tokens = tokens;
	else
		block.extra = (const uint8_t *)key;
	return prefix_hash(&block, pool->view.page_size,
			   node_position(pool, parent.serial != 0 ? parent.page : NONE).hash) == hash;
}

/* The parent has the node among its children, or the node is lost. */
static bool
check_in_tree(const struct core_pool *pool, uint32_t page)
{
	const struct pool_node *own = &pool->nodes[page];
	struct node_ref parent = node_parent(pool, page);
	uint32_t first;

	if (parent.serial == 0)
		return own->depth == 0;
	if (node_is_live(pool, &parent) && own->depth != pool->nodes[parent.page].depth + 1)
		return false;
	first = node_is_live(pool, &parent) ? pool->nodes[parent.page].first_child : pool->lost;
	return first != NONE && (page == first || pool->nodes[own->previous_sibling].next_sibling == page) &&
	       pool->nodes[own->next_sibling == NONE ? first : own->next_sibling].previous_sibling == page;
}

static enum paged_status
check_node(const struct core_pool *pool, uint32_t page, struct paged_error *error)
{
	const struct region_node *node = region_node(&pool->view, page);
	uint64_t serial = atomic_load_explicit(&node->serial, memory_order_relaxed);
	uint64_t hash = atomic_load_explicit(&node->hash, memory_order_relaxed);
	struct node_ref parent = node_parent(pool, page);
	uint32_t link, n = 0;

	if (page_is_published(pool, page) != (serial != 0))
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: page %u is %s, but its node's serial is %llu",
				  pool->name, page, serial != 0 ? "not published" : "published",
				  (unsigned long long)serial);
	if (serial == 0)
		return PAGED_OK;
	if (!check_in_tree(pool, page))
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: node %u is not below its parent", pool->name,
				  page);
	if ((parent.serial == 0 || node_is_live(pool, &parent)) && !check_hash(pool, page, hash))
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: the hash of node %u is wrong", pool->name, page);
	link = atomic_load_explicit(region_bucket(&pool->view, hash), memory_order_relaxed);
	while (link != 0 && link - 1 != page && n++ < PREFIX_BUCKET_MAX)
		link = atomic_load_explicit(&region_node(&pool->view, link - 1)->next, memory_order_relaxed);
	if (link != page + 1)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: node %u is not in its bucket", pool->name, page);
	return PAGED_OK;
}

/* A list has cached pages only, each colder than its parent, if that is in the list too. */
static enum paged_status
check_list(const struct core_pool *pool, bool pinned, bool *seen, uint32_t *n_p, struct paged_error *error)
{
	const struct page_list *list = pinned ? &pool->pinned : &pool->lru;
	uint32_t previous = NONE;

	for (uint32_t page = list->coldest; page != NONE; page = pool->pages[page].next) {
		const struct pool_page *own = &pool->pages[page];
		struct node_ref parent = node_parent(pool, page);

		if (seen[page] || !own->listed || own->marked || own->previous != previous ||
		    page_count(pool, page) != 0 || !page_is_published(pool, page) || (own->n_pins > 0) != pinned)
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "pool %s: page %u should not be in the list of %s pages", pool->name, page,
					  pinned ? "pinned" : "cached");
		if (node_is_live(pool, &parent) && seen[parent.page] && (pool->pages[parent.page].n_pins > 0) == pinned)
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "pool %s: page %u would be evicted before its child %u", pool->name,
					  parent.page, page);
		seen[page] = true;
		previous = page;
		++*n_p;
	}
	if (list->hottest != previous)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: the list of %s pages ends with %u, not %u",
				  pool->name, pinned ? "pinned" : "cached", previous, list->hottest);
	return PAGED_OK;
}

/* Each sequence is published as far as its tip says, and is in the tip's list. */
static enum paged_status
check_tips(const struct core_pool *pool, struct paged_error *error)
{
	uint32_t n_listed = 0, n_tips = 0;

	for (uint32_t page = 0; pool->nodes != NULL && page < pool->high_page; page++) {
		if (!page_is_published(pool, page))
			continue;
		for (uint32_t slot = pool->nodes[page].first_slot; slot != NONE; slot = pool->slots[slot].tip_next)
			if (pool->slots[slot].tip != page || ++n_listed > pool->high_slot)
				return paged_fail(error, PAGED_ERR_CORRUPT,
						  "pool %s: slot %u is no sequence of node %u", pool->name, slot, page);
	}
	for (uint32_t slot = 0; slot < pool->high_slot; slot++) {
		uint32_t tip = pool->slots[slot].tip, n_pages = tip == NONE ? 0 : pool->nodes[tip].depth + 1;

		n_tips += tip != NONE;
		if (tip != NONE && n_pages < page_table_first(pool, slot))
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "pool %s: slot %u has %u pages published, its page table begins with page %u",
					  pool->name, slot, n_pages, page_table_first(pool, slot));
		if (page_table_published(pool, slot) != n_pages * pool->view.page_size)
			return paged_fail(error, PAGED_ERR_CORRUPT,
					  "pool %s: %u tokens of slot %u are published, its chain has %u pages",
					  pool->name, page_table_published(pool, slot), slot, n_pages);
	}
	if (n_listed != n_tips)
		return paged_fail(error, PAGED_ERR_CORRUPT, "pool %s: the nodes list %u of %u sequences", pool->name,
				  n_listed, n_tips);
	return PAGED_OK;
}

enum paged_status
check_index(const struct core_pool *pool, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	uint32_t n_listed = 0, n_pinned = 0;
	bool *seen = calloc((size_t)pool->high_page + 1, sizeof(*seen));

	if (seen == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory to list %u pages", pool->name,
				  pool->high_page);
	for (uint32_t page = 0; page < pool->high_page && status == PAGED_OK; page++) {
		status = check_node(pool, page, error);
		n_pinned += pool->pages[page].n_pins > 0;
	}
	if (status == PAGED_OK)
		status = check_tips(pool, error);
	for (int pinned = 0; pinned < 2 && status == PAGED_OK; pinned++)
		status = check_list(pool, pinned, seen, &n_listed, error);
	free(seen);
	if (status != PAGED_OK)
		return status;
	if (n_listed != pool->n_cached ||
	    n_pinned != atomic_load_explicit(&pool->header->n_pinned, memory_order_relaxed))
		return paged_fail(error, PAGED_ERR_CORRUPT,
				  "pool %s: the lists have %u cached pages of %u, and %u nodes are pinned, not %u",
				  pool->name, n_listed, pool->n_cached, n_pinned,
				  atomic_load_explicit(&pool->header->n_pinned, memory_order_relaxed));
	return PAGED_OK;
}
