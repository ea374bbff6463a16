/* SPDX-License-Identifier: Apache-2.0 */
/* node.h - the index of published pages, its buckets, and how far each sequence is published */
#ifndef PAGED_CORE_NODE_H
#define PAGED_CORE_NODE_H

#include "core/core_internal.h"

/* published.c; call between core_pool_change_begin() and core_pool_change_end() */

/** published_open - nothing of a new sequence is published */
void published_open(struct core_pool *pool, uint32_t slot);

/** published_set - the sequence is published up to a node, which follows in its chain, or NONE */
void published_set(struct core_pool *pool, uint32_t slot, uint32_t page);

/** published_add_twin - the page table does not name this node's page; published_set() of it or a later one is next */
void published_add_twin(struct core_pool *pool, uint32_t slot, uint32_t page);

/**
 * published_limit - lower what is published to at most n_pages
 *
 * Where a twin may stand for the last of them, or it was given back, nothing counts as published.
 */
void published_limit(struct core_pool *pool, uint32_t slot, uint32_t n_pages);

/** published_copy - a fork is published as far as its parent; published_limit() follows */
void published_copy(struct core_pool *pool, uint32_t slot, uint32_t from);

/** published_trim - the sequence's first page has changed: if it is past what is published, nothing is any more */
void published_trim(struct core_pool *pool, uint32_t slot);

/** Most sequences that a change lowers to another node: each could be lowered again by the next eviction. */
#define LOWERED_AT_ONCE 1024u

/**
 * published_lower - the node will be removed: sequences whose tip it is are published up to the node `to`, or NONE
 *
 * Sequences trimmed past `to`, and those past LOWERED_AT_ONCE, no longer count as published at all.
 */
void published_lower(struct core_pool *pool, uint32_t page, uint32_t to);

/* node.c; call between core_pool_change_begin() and core_pool_change_end() */

/** node_is_live - true: the reference names the page's present node */
static inline bool
node_is_live(const struct core_pool *pool, const struct node_ref *ref)
{
	return ref->serial != 0 &&
	       atomic_load_explicit(&region_node(&pool->view, ref->page)->serial, memory_order_relaxed) == ref->serial;
}

/** page_is_published - true: the page has a node */
static inline bool
page_is_published(const struct core_pool *pool, uint32_t page)
{
	return (atomic_load_explicit(&region_page(&pool->view, page)->flags, memory_order_relaxed) &
		REGION_PAGE_PUBLISHED) != 0;
}

static inline uint32_t
page_count(const struct core_pool *pool, uint32_t page)
{
	return atomic_load_explicit(&region_page(&pool->view, page)->count, memory_order_relaxed);
}

/** node_ref - a reference to the page's node */
struct node_ref node_ref(const struct core_pool *pool, uint32_t page);

/** node_position - the page's node as a place to search from; NONE: the root */
struct prefix_position node_position(const struct core_pool *pool, uint32_t page);

/** node_parent - the node's parent, which is gone if the node is lost; serial 0: the node is the first of its chain */
struct node_ref node_parent(const struct core_pool *pool, uint32_t page);

/** node_store - publish a page of a slot as the child of `parent` with this block key, whose hash is `hash` */
void node_store(const struct core *core, struct core_pool *pool, uint32_t slot, uint32_t page,
		const struct prefix_position *parent, const struct prefix_block *block, uint64_t hash);

/** node_prefetch - prefetch what node_store() writes of a page */
void node_prefetch(const struct core_pool *pool, uint32_t page);

/** Most nodes below those that a request removes that it removes too. */
#define NODES_AT_ONCE 1024u

/**
 * node_remove - take the page's node out of the index, and the nodes below it, which no search finds any more
 *
 * Their cached pages become free.  Past NODES_AT_ONCE, nodes are lost: they stay without a parent
 * until nodes_remove_lost() removes them.
 */
void node_remove(struct core_pool *pool, uint32_t page);

/** nodes_remove_lost - remove up to `budget` lost nodes */
void nodes_remove_lost(struct core_pool *pool, uint32_t budget);

/** node_note_user - record that a session of a tenant depends on the node */
void node_note_user(struct core_pool *pool, uint32_t page, uint32_t tenant, uint32_t session);

/** node_used - record that a start of the session shares the node */
void node_used(const struct core *core, struct core_pool *pool, uint32_t page, const struct core_session *session);

/* bucket.c; call between core_pool_change_begin() and core_pool_change_end() */
void bucket_insert(struct core_pool *pool, uint32_t page, uint64_t hash);
void bucket_remove(struct core_pool *pool, uint32_t page);

/** bucket_prefetch - prefetch the first node of a hash's bucket */
void bucket_prefetch(const struct core_pool *pool, uint64_t hash);

/**
 * bucket_make_room - remove a node of a full bucket, into which a page of the slot is to be published
 *
 * The node is one of the tenant that has most nodes in the bucket, the new one counted; of these, one of the session
 * with most, where ended ones count as one; of these, one that the fewest others use (enum node_users); of these, the
 * one that was used least recently.  It may be one that the slot is published with, by a twin.
 * @return false: the slot's own pages fill the bucket
 */
bool bucket_make_room(const struct core *core, struct core_pool *pool, uint32_t slot, uint64_t hash);

#endif
