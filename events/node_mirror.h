/* SPDX-License-Identifier: Apache-2.0 */
/**
 * node_mirror.h - which blocks can be found in a pool: its nodes as a tree, and their hashes
 *
 * A node is identified by its page and serial (paged_watch.h).  Two nodes may have
 * the same hash, for example if an engine has published by token ids what another
 * has published by its own hashes; a hash is announced with its first node and
 * withdrawn with its last.  When a node is removed, no search finds those
 * below it any more: they are removed with it.
 */
#ifndef PAGED_EVENTS_NODE_MIRROR_H
#define PAGED_EVENTS_NODE_MIRROR_H

#include "events/block_hash.h"

/** The parent of a first block. */
#define NODE_MIRROR_ROOT UINT32_MAX

struct node_mirror;

/** node_mirror_create - for a pool of n_pages; memory is used as pages are; NULL: no memory */
struct node_mirror *node_mirror_create(uint32_t n_pages);
void node_mirror_destroy(struct node_mirror *mirror);

/** node_mirror_clear - remove all nodes */
void node_mirror_clear(struct node_mirror *mirror);

/** node_mirror_find - the hash of a node; NULL: the mirror does not have it */
const struct block_hash *node_mirror_find(const struct node_mirror *mirror, uint32_t page, uint64_t serial);

/**
 * node_mirror_add - add a node to a page that has none
 *
 * @param[in] parent  page of a node in the mirror, or NODE_MIRROR_ROOT
 * @return true: no other node has this hash
 */
bool node_mirror_add(struct node_mirror *mirror, uint32_t page, uint64_t serial, uint32_t parent,
		     const struct block_hash *hash);

/** Receives a hash that no node has any more. */
typedef void (*node_mirror_gone_fn)(void *argument, const struct block_hash *hash);

/** node_mirror_remove - remove a page's node and those below it, children first; nothing if there is none */
void node_mirror_remove(struct node_mirror *mirror, uint32_t page, node_mirror_gone_fn gone, void *argument);

#endif
