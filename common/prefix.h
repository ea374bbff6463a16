/* SPDX-License-Identifier: Apache-2.0 */
/**
 * prefix.h - search the index of published pages
 *
 * The index is a hash table of nodes in the table region (region.h).  A node
 * stands for a published page; it is identified by its parent, which stands for
 * the page before it, and by its block key, which says what the page holds.  So the
 * nodes form a radix tree whose edges are pages, as in SGLang's RadixAttention, and
 * a search walks down from the root.  Block keys and parents are compared whole; a
 * hash only finds candidates.
 *
 * A search needs no request and no lock.  Concurrent changes can make its result
 * shorter than it could be.  They cannot make it wrong: a node's fields and block key
 * are read under one serial, and a parent is compared by number and serial.
 *
 * Memory order (C11; also on machines that reorder loads and stores).  S is a node's
 * serial, F any other field or a word of its block key; s1 and s2 are serials of one page's
 * nodes, and serials never repeat.
 *   1. F belongs to s2 or is newer (message passing).  The writer stores F, then S = s2
 *      with release; the reader loads S = s2 with acquire, then F.
 *   2. F is not newer than s1 (a seqlock's reader; Boehm, "Can seqlocks get along with
 *      programming language memory models?", 2012).  The writer stores S = 0, a release
 *      fence, then F of s2; the reader loads F, an acquire fence, then S again.  If it read
 *      the new F, the fences synchronise, so it reads 0 or a later serial: not s1.
 *   3. A child is compared with its parent's number and serial, which are part of F.  The
 *      parent may be gone by then: what the child holds does not change.
 *   4. A link of a bucket may lead into another bucket while nodes move.  The loads are then
 *      wasted, or a node is missed; 1 to 3 do not depend on how a node was reached.
 *   5. An entry of the ring (ring.h) is written as in 1 and 2, with its number in place of S.
 *
 * Threads: any number of readers; one writer.
 */
#ifndef PAGED_PREFIX_H
#define PAGED_PREFIX_H

#include "common/region.h"

/** First token id of a block key that has no token ids, so no token id may have this value. */
#define PREFIX_NO_TOKENS UINT32_MAX
/** Most nodes of a bucket.  Of 300 million buckets, one would have more without an attack. */
#define PREFIX_BUCKET_MAX 8u

/** The block keys of consecutive pages, from the first page of a prefix or from a later one. */
struct prefix_keys {
	uint32_t n_pages;
	const uint32_t *tokens; /* [n_pages][page_size]; NULL: the block keys are the extras alone */
	/* [n_pages][page_size], with tokens NULL: stored for programs that watch, but no part of block keys; or NULL */
	const uint32_t *attached_tokens;
	/*
	 * What token ids do not express: salt, images, adapters.  Pages without an entry have zeros.  With tokens NULL:
	 * one for each page, and extra_page is NULL.
	 */
	uint32_t n_extras;
	const uint32_t *extra_page; /* [n_extras], ascending: index of a page in these keys */
	const uint8_t (*extra)[REGION_EXTRA_SIZE];
};

/** The block key of one page. */
struct prefix_block {
	const uint32_t *tokens;          /* [page_size]; NULL: none */
	const uint32_t *attached_tokens; /* [page_size], no part of the key; NULL: none */
	const uint8_t *extra;            /* [REGION_EXTRA_SIZE]; NULL: zeros */
};

/** A place in the tree: a node, or the root. */
struct prefix_position {
	uint32_t page;   /* REGION_NO_PAGE: the root */
	uint64_t serial; /* 0: the root */
	uint64_t hash;   /* of the node; the region's seed at the root */
};

/** prefix_root - where a prefix's first page is searched */
static inline struct prefix_position
prefix_root(const struct region_view *view)
{
	return (struct prefix_position){ .page = REGION_NO_PAGE, .hash = view->header->seed };
}

/** prefix_block - the block key of a page; *extra is 0 before the first call, and pages are asked for in ascending
 * order */
struct prefix_block prefix_block(const struct prefix_keys *keys, uint32_t page_size, uint32_t page, uint32_t *extra);

/** prefix_hash - hash of a block key under a parent: XXH3 with the parent's hash as the seed */
uint64_t prefix_hash(const struct prefix_block *block, uint32_t page_size, uint64_t parent_hash);

/** prefix_block_equal - compare a block key with that of a node; the caller checks the node's serial afterwards */
bool prefix_block_equal(const struct region_view *view, uint32_t page, const struct prefix_block *block);

/** prefix_block_store - write a node's block key; the node's serial is 0 */
void prefix_block_store(const struct region_view *view, uint32_t page, const struct prefix_block *block);

/**
 * prefix_step - search the child of *at that has this block key, and move *at to it
 *
 * @param[in] hash  prefix_hash(block, page_size, at->hash)
 * @param[out] n_visited_p  nodes of the bucket that were visited; at most PREFIX_BUCKET_MAX
 * @return false: there is none; *at is unchanged
 */
bool prefix_step(const struct region_view *view, const struct prefix_block *block, uint64_t hash,
		 struct prefix_position *at, uint32_t *n_visited_p);

/**
 * prefix_find - find the longest published chain of these block keys
 *
 * @param[in,out] at  where the search starts; then the last node found
 * @param[out] pages  [keys->n_pages] the pages found; NULL: not wanted
 * @return number of pages found
 */
uint32_t prefix_find(const struct region_view *view, const struct prefix_keys *keys, struct prefix_position *at,
		     uint32_t *pages);

/** prefix_find_nodes - prefix_find() with the serials of the pages found: [keys->n_pages]; NULL: not wanted */
uint32_t prefix_find_nodes(const struct region_view *view, const struct prefix_keys *keys, struct prefix_position *at,
			   uint32_t *pages, uint64_t *serials);

/** A node, with its block key but for the token ids. */
struct prefix_node {
	uint64_t serial;
	uint64_t parent_serial; /* 0: the first page of a prefix */
	uint64_t hash;
	uint32_t parent; /* page, or REGION_NO_PAGE */
	uint32_t hits;
	uint8_t extra[REGION_EXTRA_SIZE];
	bool keyed;      /* the block key is the extra alone */
	bool has_tokens; /* of the block key, or attached to it */
};

/**
 * prefix_node_read - copy a page's node
 *
 * @param[in]  page    below view->n_pages
 * @param[in]  serial  of the node; 0: whichever the page has
 * @param[out] tokens  [page_size]; meaningless if node->has_tokens is false; NULL: not wanted
 * @return false: the page has no node, or one of another serial
 */
bool prefix_node_read(const struct region_view *view, uint32_t page, uint64_t serial, struct prefix_node *node,
		      uint32_t *tokens);

/**
 * prefix_tokens - copy the token ids of a node, those of its block key or attached to it
 *
 * @param[out] tokens  [page_size]; the first is PREFIX_NO_TOKENS if there are none
 * @return false: the page has no node, or one of another serial
 */
bool prefix_tokens(const struct region_view *view, uint32_t page, uint64_t serial, uint32_t *tokens);

#endif
