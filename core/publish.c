/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request that makes pages findable.  A published page never changes, so what is published cannot be written any
 * more.  Two sequences with the same prefix have one chain of nodes: the pages of the one that publishes second stay
 * private, and the first one's nodes stand for them (twins).
 */
#include <sys/param.h>

#include "core/node.h"
#include "core/page_table.h"
#include "core/request.h"

/* Pages whose hashes are computed before their nodes are stored, so that the cache misses overlap. */
#define PUBLISH_BATCH 32u

/* Walks over the pages of an item, from the first that is not published. */
struct publish_walk {
	struct core_pool *pool;
	const struct core_publish *item;
	const _Atomic uint32_t *table;
	uint32_t slot;
	uint32_t next, end; /* pages */
	uint32_t extra;     /* of prefix_block() */
	struct prefix_position at;
};

/*
 * False: the first page to publish was given back, so that no node can stand for it.  The sequence publishes nothing
 * more.
 */
static bool
publish_is_possible(const struct core_pool *pool, uint32_t slot)
{
	return page_table_published(pool, slot) >= page_table_first(pool, slot) * pool->view.page_size;
}

/* The walk begins where the published part ends. */
static struct publish_walk
publish_walk_begin(struct core *core, const struct core_publish *item)
{
	struct core_pool *pool = request_pool(core, item->seq);
	uint32_t slot = PAGED_SEQ_SLOT(item->seq);
	struct publish_walk walk = {
		.pool = pool,
		.item = item,
		.table = region_page_table(&pool->view, slot),
		.slot = slot,
		.next = page_table_published(pool, slot) / pool->view.page_size,
		.end = item->from + item->keys.n_pages,
		.at = node_position(pool, pool->slots[slot].tip),
	};

	return walk;
}

static uint32_t
publish_walk_page(const struct publish_walk *walk, uint32_t i)
{
	return atomic_load_explicit(&walk->table[i], memory_order_relaxed);
}

/* True: the page's node is the child of the walk's position that has this block key. */
static bool
publish_node_fits(const struct publish_walk *walk, uint32_t page, const struct prefix_block *block)
{
	struct node_ref parent = node_parent(walk->pool, page);

	return parent.serial == walk->at.serial && (parent.serial == 0 || parent.page == walk->at.page) &&
	       prefix_block_equal(&walk->pool->view, page, block);
}

static enum paged_status
publish_check_keys(struct core *core, const struct core_publish *item, struct paged_error *error)
{
	const struct prefix_keys *keys = &item->keys;
	const uint32_t *tokens = keys->tokens != NULL ? keys->tokens : keys->attached_tokens;
	uint64_t n_tokens = (uint64_t)keys->n_pages * request_pool(core, item->seq)->view.page_size;

	for (uint64_t i = 0; tokens != NULL && i < n_tokens; i++)
		if (tokens[i] == PREFIX_NO_TOKENS)
			return request_fail(core, item->seq, error, PAGED_ERR_INVALID,
					    "has token id 0x%x after page %u, which no token may have",
					    PREFIX_NO_TOKENS, item->from);
	if (keys->tokens == NULL && keys->n_extras != keys->n_pages)
		return request_fail(core, item->seq, error, PAGED_ERR_INVALID, "has %u keys for %u pages",
				    keys->n_extras, keys->n_pages);
	for (uint32_t i = 0; keys->tokens != NULL && i < keys->n_extras; i++)
		if (keys->extra_page[i] >= keys->n_pages || (i > 0 && keys->extra_page[i] <= keys->extra_page[i - 1]))
			return request_fail(core, item->seq, error, PAGED_ERR_INVALID,
					    "has extra %u of %u for page %u of %u; the pages must ascend", i,
					    keys->n_extras, keys->extra_page[i], keys->n_pages);
	return PAGED_OK;
}

static enum paged_status
publish_check(struct core *core, const struct core_session *session, const struct core_publish *item,
	      struct paged_error *error)
{
	enum paged_status status = request_check_seq(core, session, item->seq, true, error);
	uint32_t slot = PAGED_SEQ_SLOT(item->seq), n_pages;
	const struct core_pool *pool;
	uint64_t version;

	if (status != PAGED_OK)
		return status;
	pool = request_pool(core, item->seq);
	if (pool->view.n_buckets == 0)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s publishes nothing (publish = no)", pool->name);
	version = atomic_load_explicit(&region_slot(&pool->view, slot)->version, memory_order_relaxed);
	if (item->version != version)
		return request_fail(core, item->seq, error, PAGED_ERR_STALE,
				    "has version %llu of its page table, not %llu: pages were replaced",
				    (unsigned long long)version, (unsigned long long)item->version);
	n_pages = page_table_n_pages(pool, slot);
	if (item->from > n_pages || item->keys.n_pages > n_pages - item->from)
		return request_fail(core, item->seq, error, PAGED_ERR_CAPACITY,
				    "has %u pages; pages %u to %llu cannot be published", n_pages, item->from,
				    (unsigned long long)item->from + item->keys.n_pages - 1);
	return publish_check_keys(core, item, error);
}

/* The sequence is published as far as the walk has come. */
static void
publish_note(const struct publish_walk *walk)
{
	if (walk->at.serial != 0)
		published_set(walk->pool, walk->slot, walk->at.page);
}

/* Stores the node of the walk's page, of which there is none yet. */
static enum paged_publish_end
publish_store(const struct core *core, const struct publish_walk *walk, uint32_t page, const struct prefix_block *block,
	      uint64_t hash, bool full)
{
	struct core_pool *pool = walk->pool;
	struct node_ref above = { .page = walk->at.page, .serial = walk->at.serial };

	if (full)
		publish_note(walk);
	if (full && !bucket_make_room(core, pool, walk->slot, hash))
		return PAGED_PUBLISH_BUCKET;
	if (above.serial != 0 && !node_is_live(pool, &above))
		return PAGED_PUBLISH_REMOVED;
	page_table_protect(pool, walk->slot, (walk->next + 1) * pool->view.page_size);
	node_store(core, pool, walk->slot, page, &walk->at, block, hash);
	return PAGED_PUBLISH_DONE;
}

/* Publishes the walk's page. */
static enum paged_publish_end
publish_page(const struct core *core, struct publish_walk *walk, const struct prefix_block *block, uint64_t hash)
{
	struct core_pool *pool = walk->pool;
	uint32_t page = publish_walk_page(walk, walk->next), n_visited;
	enum paged_publish_end end = PAGED_PUBLISH_DONE;

	if (page_is_published(pool, page)) {
		if (!publish_node_fits(walk, page, block))
			end = PAGED_PUBLISH_OTHER;
	} else if (prefix_step(&pool->view, block, hash, &walk->at, &n_visited)) {
		published_add_twin(pool, walk->slot, walk->at.page);
		return PAGED_PUBLISH_DONE;
	} else {
		end = publish_store(core, walk, page, block, hash, n_visited == PREFIX_BUCKET_MAX);
	}
	if (end != PAGED_PUBLISH_DONE)
		return end;
	walk->at = node_position(pool, page);
	return PAGED_PUBLISH_DONE;
}

/* Publishes up to PUBLISH_BATCH pages, until one of them cannot be published. */
static enum paged_publish_end
publish_batch(const struct core *core, struct publish_walk *walk)
{
	struct core_pool *pool = walk->pool;
	uint32_t first = walk->next, n = MIN(walk->end - first, PUBLISH_BATCH);
	struct prefix_block blocks[PUBLISH_BATCH];
	uint64_t hashes[PUBLISH_BATCH], hash = walk->at.hash;
	enum paged_publish_end end = PAGED_PUBLISH_DONE;

	for (uint32_t i = 0; i < n; i++) {
		blocks[i] = prefix_block(&walk->item->keys, pool->view.page_size, first + i - walk->item->from,
					 &walk->extra);
		hashes[i] = hash = prefix_hash(&blocks[i], pool->view.page_size, hash);
		__builtin_prefetch((const void *)region_bucket(&pool->view, hash), 1);
		node_prefetch(pool, publish_walk_page(walk, first + i));
	}
	for (uint32_t i = 0; i < n; i++)
		bucket_prefetch(pool, hashes[i]);
	for (uint32_t i = 0; i < n; i++) {
		end = publish_page(core, walk, &blocks[i], hashes[i]);
		if (end != PAGED_PUBLISH_DONE)
			break;
		walk->next++;
		page_table_protect(pool, walk->slot, walk->next * pool->view.page_size);
	}
	/* When a node of the chain was removed, the slot was told. */
	if (end != PAGED_PUBLISH_REMOVED)
		publish_note(walk);
	return end;
}

static void
publish_count_end(struct core_pool *pool, enum paged_publish_end end)
{
	switch (end) {
	case PAGED_PUBLISH_DONE:
		break;
	case PAGED_PUBLISH_REMOVED:
		counter_add(&pool->header->n_stopped_removed, 1);
		break;
	case PAGED_PUBLISH_TRIMMED:
		counter_add(&pool->header->n_stopped_trimmed, 1);
		break;
	case PAGED_PUBLISH_OTHER:
		counter_add(&pool->header->n_stopped_other, 1);
		break;
	case PAGED_PUBLISH_BUCKET:
		counter_add(&pool->header->n_stopped_bucket, 1);
		break;
	}
}

/* Returns how many pages are published in all. */
static uint32_t
publish_apply(struct core *core, const struct core_publish *item, uint32_t *end_p)
{
	struct publish_walk walk = publish_walk_begin(core, item);
	enum paged_publish_end end = PAGED_PUBLISH_DONE;
	struct core_pool *pool = walk.pool;

	if (walk.next >= walk.end)
		;
	else if (!publish_is_possible(pool, walk.slot))
		end = PAGED_PUBLISH_TRIMMED;
	else if (walk.next < item->from)
		end = PAGED_PUBLISH_REMOVED;
	core_pool_change_begin(pool);
	while (end == PAGED_PUBLISH_DONE && walk.next < walk.end)
		end = publish_batch(core, &walk);
	core_pool_change_end(pool);
	store_u32(&region_slot(&pool->view, walk.slot)->publish_end, end);
	publish_count_end(pool, end);
	*end_p = end;
	return page_table_published(pool, walk.slot) / pool->view.page_size;
}

enum paged_status
core_seq_publish(struct core *core, uint32_t session_id, uint32_t n, const struct core_publish *publishes,
		 uint32_t *n_published, uint32_t *ends, struct paged_error *error)
{
	struct core_session *session;
	enum paged_status status = request_begin(core, session_id, n, &session, error);

	for (uint32_t i = 0; i < n && status == PAGED_OK; i++)
		status = publish_check(core, session, &publishes[i], error);
	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++)
		n_published[i] = publish_apply(core, &publishes[i], &ends[i]);
	return PAGED_OK;
}
