/* SPDX-License-Identifier: Apache-2.0 */
#include "common/prefix.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Pages whose hashes are computed before their nodes are visited, so that the cache misses overlap. */
#define FIND_BATCH 32u
/* A search that ended while the index changed is repeated this often. */
#define FIND_REPEATS 2

static const uint8_t zeros[REGION_EXTRA_SIZE];

struct prefix_block
prefix_block(const struct prefix_keys *keys, uint32_t page_size, uint32_t page, uint32_t *extra)
{
	struct prefix_block block = { 0 };

	if (keys->tokens == NULL) {
		block.extra = keys->extra[page];
		if (keys->attached_tokens != NULL)
			block.attached_tokens = keys->attached_tokens + (uint64_t)page * page_size;
		return block;
	}
	block.tokens = keys->tokens + (uint64_t)page * page_size;
	while (*extra < keys->n_extras && keys->extra_page[*extra] < page)
		++*extra;
	/* An extra of zeros is the same block key as none. */
	if (*extra < keys->n_extras && keys->extra_page[*extra] == page &&
	    memcmp(keys->extra[*extra], zeros, sizeof(zeros)) != 0)
		block.extra = keys->extra[*extra];
	return block;
}

uint64_t
prefix_hash(const struct prefix_block *block, uint32_t page_size, uint64_t parent_hash)
{
	uint64_t hash = parent_hash;

	if (block->tokens != NULL)
		hash = XXH3_64bits_withSeed(block->tokens, page_size * sizeof(*block->tokens), hash);
	if (block->extra != NULL)
		hash = XXH3_64bits_withSeed(block->extra, REGION_EXTRA_SIZE, hash);
	return hash;
}

/* Words of a block key before its token ids. */
#define EXTRA_WORDS (REGION_EXTRA_SIZE / 8)

static uint64_t
word_load(const void *from)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	return word;
}

bool
prefix_block_equal(const struct region_view *view, uint32_t page, const struct prefix_block *block)
{
	const _Atomic uint64_t *key = region_block_key(view, page);
	const uint8_t *extra = block->extra != NULL ? block->extra : zeros;
	uint32_t n_pairs = view->page_size / 2;
	uint64_t differs = 0;

	for (uint32_t i = 0; i < EXTRA_WORDS; i++)
		differs |= atomic_load_explicit(&key[i], memory_order_relaxed) ^ word_load(extra + (size_t)i * 8);
	key += EXTRA_WORDS;
	if (block->tokens == NULL)
		return differs == 0 && (uint32_t)atomic_load_explicit(key, memory_order_relaxed) == PREFIX_NO_TOKENS;
	for (uint32_t i = 0; i < n_pairs; i++)
		differs |= atomic_load_explicit(&key[i], memory_order_relaxed) ^ word_load(&block->tokens[2 * i]);
	if (view->page_size % 2 != 0)
		differs |=
			atomic_load_explicit(&key[n_pairs], memory_order_relaxed) ^ block->tokens[view->page_size - 1];
	return differs == 0;
}

void
prefix_block_store(const struct region_view *view, uint32_t page, const struct prefix_block *block)
{
	_Atomic uint64_t *key = region_block_key(view, page);
	const uint32_t *tokens = block->tokens != NULL ? block->tokens : block->attached_tokens;
	const uint8_t *extra = block->extra != NULL ? block->extra : zeros;
	uint32_t first = 0;

	for (uint32_t i = 0; i < EXTRA_WORDS; i++)
		atomic_store_explicit(&key[i], word_load(extra + (size_t)i * 8), memory_order_relaxed);
	key += EXTRA_WORDS;
	for (uint32_t i = 0; i < view->page_size; i += 2) {
		uint64_t word = tokens != NULL ? tokens[i] : 0;

		if (tokens != NULL && i + 1 < view->page_size)
			word |= (uint64_t)tokens[i + 1] << 32;
		/* In place of the first token id stands the mark of a key. */
		if (i == 0 && block->tokens == NULL) {
			first = tokens != NULL ? tokens[0] + 1 : 0;
			word = (word & ~(uint64_t)UINT32_MAX) | PREFIX_NO_TOKENS;
		}
		atomic_store_explicit(&key[i / 2], word, memory_order_relaxed);
		if (tokens == NULL)
			break;
	}
	atomic_store_explicit(&region_node(view, page)->first_attached, first, memory_order_relaxed);
}

/* Is this the node of the block key under the parent?  *serial_p is then its serial. */
static bool
node_matches(const struct region_view *view, uint32_t page, const struct prefix_block *block, uint64_t hash,
	     const struct prefix_position *parent, uint64_t *serial_p)
{
	const struct region_node *node = region_node(view, page);
	uint64_t serial = atomic_load_explicit(&node->serial, memory_order_acquire);

	if (serial == 0 || atomic_load_explicit(&node->hash, memory_order_relaxed) != hash ||
	    atomic_load_explicit(&node->parent, memory_order_relaxed) != parent->page ||
	    atomic_load_explicit(&node->parent_serial, memory_order_relaxed) != parent->serial ||
	    !prefix_block_equal(view, page, block))
		return false;
	atomic_thread_fence(memory_order_acquire);
	*serial_p = serial;
	return atomic_load_explicit(&node->serial, memory_order_relaxed) == serial;
}

bool
prefix_step(const struct region_view *view, const struct prefix_block *block, uint64_t hash, struct prefix_position *at,
	    uint32_t *n_visited_p)
{
	uint32_t link = atomic_load_explicit(region_bucket(view, hash), memory_order_acquire), n = 0;
	uint64_t serial;

	/* A reader may follow a link that changes, so neither its value nor an end of the list is certain. */
	for (; link != 0 && link <= view->n_pages && n < PREFIX_BUCKET_MAX; n++) {
		uint32_t page = link - 1;

		if (node_matches(view, page, block, hash, at, &serial)) {
			*at = (struct prefix_position){ .page = page, .serial = serial, .hash = hash };
			*n_visited_p = n + 1;
			return true;
		}
		link = atomic_load_explicit(&region_node(view, page)->next, memory_order_acquire);
	}
	*n_visited_p = n;
	return false;
}

/* The page of a link; page 0 if it is none, so that callers need no branch. */
static uint32_t
link_page(const struct region_view *view, uint32_t link)
{
	return link - 1 < view->n_pages ? link - 1 : 0;
}

/* Inlined by force: GCC 12 drops calls of a function that only prefetches, as if it had no effect. */
static inline __attribute__((always_inline)) void
node_prefetch_with_key(const struct region_view *view, uint32_t page)
{
	const uint8_t *key = (const uint8_t *)region_block_key(view, page);

	__builtin_prefetch(region_node(view, page));
	__builtin_prefetch(key);
	__builtin_prefetch(key + REGION_EXTRA_SIZE + view->page_size * sizeof(uint32_t) - 1);
}

/*
 * Prefetches what prefix_step() will read for each hash, whose buckets are prefetched already: the first node of the
 * bucket, and the second one if the first has another hash.  Without a branch: it would often be mispredicted, after it
 * has waited for the first node.
 */
static void
find_prefetch_nodes(const struct region_view *view, const uint64_t *hashes, uint32_t n)
{
	uint32_t pages[FIND_BATCH];

	for (uint32_t i = 0; i < n; i++) {
		pages[i] = link_page(view, atomic_load_explicit(region_bucket(view, hashes[i]), memory_order_relaxed));
		node_prefetch_with_key(view, pages[i]);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct region_node *node = region_node(view, pages[i]);
		uint32_t next = link_page(view, atomic_load_explicit(&node->next, memory_order_relaxed));
		/* All ones if the first node is another one. */
		uint32_t other = -(uint32_t)(atomic_load_explicit(&node->hash, memory_order_relaxed) != hashes[i]);

		node_prefetch_with_key(view, (next & other) | (pages[i] & ~other));
	}
}

static uint32_t
find_once(const struct region_view *view, const struct prefix_keys *keys, struct prefix_position *at, uint32_t *pages,
	  uint64_t *serials)
{
	uint32_t n_found = 0, extra = 0, visited;
	struct prefix_block blocks[FIND_BATCH];
	uint64_t hashes[FIND_BATCH], hash = at->hash;

	while (n_found < keys->n_pages) {
		uint32_t n = keys->n_pages - n_found < FIND_BATCH ? keys->n_pages - n_found : FIND_BATCH;

		for (uint32_t i = 0; i < n; i++) {
			blocks[i] = prefix_block(keys, view->page_size, n_found + i, &extra);
			hashes[i] = hash = prefix_hash(&blocks[i], view->page_size, hash);
			__builtin_prefetch((const void *)region_bucket(view, hash));
		}
		find_prefetch_nodes(view, hashes, n);
		for (uint32_t i = 0; i < n; i++, n_found++) {
			if (!prefix_step(view, &blocks[i], hashes[i], at, &visited))
				return n_found;
			if (pages != NULL)
				pages[n_found] = at->page;
			if (serials != NULL)
				serials[n_found] = at->serial;
		}
	}
	return n_found;
}

uint32_t
prefix_find_nodes(const struct region_view *view, const struct prefix_keys *keys, struct prefix_position *at,
		  uint32_t *pages, uint64_t *serials)
{
	const struct region_header *header = view->header;
	uint32_t n_found;

	if (view->n_buckets == 0)
		return 0;
	/* A change of a bucket can hide its other nodes, so a search that fell short while the index changed is
	 * repeated. */
	for (int attempt = 0;; attempt++) {
		uint64_t head = atomic_load_explicit(&header->ring_head, memory_order_acquire);
		struct prefix_position last = *at;

		n_found = find_once(view, keys, &last, pages, serials);
		if (n_found == keys->n_pages || attempt == FIND_REPEATS ||
		    atomic_load_explicit(&header->ring_head, memory_order_acquire) == head) {
			*at = last;
			return n_found;
		}
	}
}

uint32_t
prefix_find(const struct region_view *view, const struct prefix_keys *keys, struct prefix_position *at, uint32_t *pages)
{
	return prefix_find_nodes(view, keys, at, pages, NULL);
}

bool
prefix_node_read(const struct region_view *view, uint32_t page, uint64_t serial, struct prefix_node *node,
		 uint32_t *tokens)
{
	const struct region_node *from = region_node(view, page);
	const _Atomic uint64_t *key = region_block_key(view, page);
	uint64_t found;
	uint32_t first;

	if (view->n_buckets == 0)
		return false;
	found = atomic_load_explicit(&from->serial, memory_order_acquire);
	if (found == 0 || (serial != 0 && found != serial))
		return false;
	*node = (struct prefix_node){
		.serial = found,
		.parent_serial = atomic_load_explicit(&from->parent_serial, memory_order_relaxed),
		.hash = atomic_load_explicit(&from->hash, memory_order_relaxed),
		.parent = atomic_load_explicit(&from->parent, memory_order_relaxed),
		.hits = atomic_load_explicit(&from->hits, memory_order_relaxed),
	};
	for (uint32_t i = 0; i < EXTRA_WORDS; i++) {
		uint64_t word = atomic_load_explicit(&key[i], memory_order_relaxed);

		memcpy(node->extra + (size_t)i * 8, &word, sizeof(word));
	}
	key += EXTRA_WORDS;
	first = atomic_load_explicit(&from->first_attached, memory_order_relaxed);
	node->keyed = (uint32_t)atomic_load_explicit(key, memory_order_relaxed) == PREFIX_NO_TOKENS;
	node->has_tokens = !node->keyed || first != 0;
	for (uint32_t i = 0; tokens != NULL && i < view->page_size; i++)
		tokens[i] = (uint32_t)(atomic_load_explicit(&key[i / 2], memory_order_relaxed) >> (i % 2 * 32));
	if (tokens != NULL && node->keyed && first != 0)
		tokens[0] = first - 1;
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&from->serial, memory_order_relaxed) == found;
}

bool
prefix_tokens(const struct region_view *view, uint32_t page, uint64_t serial, uint32_t *tokens)
{
	struct prefix_node node;

	return serial != 0 && prefix_node_read(view, page, serial, &node, tokens);
}
