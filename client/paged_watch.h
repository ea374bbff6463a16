/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_watch.h - watch the index of published pages: its changes, and a walk over all of it
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 *
 * For programs that must know what the prefix cache of a pool holds: routers,
 * tiers, metrics.  paged-events(8) is one.  The owner writes every change of the
 * index into a ring in the table region, and a watch reads it there.  A watch
 * sends no request and takes no lock, and the owner does not know it: a watcher that is
 * slow, stopped or killed affects no other process.  An observer may watch
 * (paged_client_params.observer), and so may a thread of the process that runs the
 * embedded owner.
 *
 * Nodes.  A published page is a node of the index.  Its serial identifies this
 * publication for ever: if the page is evicted and published again, it is another
 * node with another serial.  Each life of the daemon begins with another random
 * serial, below 2^52, so that a pair of page and serial noted in an earlier one names
 * no node.  A node names the one before it in its prefix by page and
 * serial.  Its block key says what the page holds: token ids, and an extra that
 * stands for the salt and for images (paged_sharing.h), or one key without token
 * ids.
 *
 * The ring holds PAGED_WATCH_CHANGES changes.  A watch that is further behind has
 * lost the oldest ones: paged_watch_next() says so with PAGED_ERR_STALE.
 *
 * To mirror the index, for example in a map from serial to node:
 *
 *   1. paged_watch_open(), which notes a position in the ring
 *   2. paged_watch_walk() to its end; add each node
 *   3. paged_watch_next() for ever.  STORED: read the node by paged_watch_read(); add
 *      it unless the mirror has its serial.  REMOVED: delete the node with this
 *      serial, if there is one.  CLEARED: delete all
 *   4. when it returns PAGED_ERR_STALE: empty the mirror and go on with 2.  The watch
 *      has noted a new position
 *
 * The walk and the changes overlap: a change after the position may be visible to
 * the walk.  It is then applied twice, which is harmless, because serials never
 * repeat.  A node may be gone before paged_watch_read() reaches it
 * (PAGED_ERR_STALE); its REMOVED follows.  When a node is removed, no sequence can be
 * started on those below it; their REMOVED come after its own.
 *
 * Threads: a watch is used by one thread at a time; different watches of a pool
 * run concurrently.
 */
#ifndef PAGED_WATCH_H
#define PAGED_WATCH_H

#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

struct paged_watch;

/** Changes that the ring holds at least, in daemons of this version. */
#define PAGED_WATCH_CHANGES 65536

/** Kinds of changes; ignore others. */
enum paged_change_kind {
	PAGED_CHANGE_STORED = 1,  /* a page was published */
	PAGED_CHANGE_REMOVED = 2, /* a page, or one before it in its prefix, was evicted or displaced */
	PAGED_CHANGE_CLEARED = 3  /* all nodes were removed; page and serial are 0 */
};

/** A change of the index. */
struct paged_change {
	uint64_t number; /* of the change, without gaps; the first one is random in each life of the daemon */
	uint64_t serial; /* of the node */
	uint64_t hash;   /* of the node's prefix, seeded by the pool: equal prefixes have equal hashes, others may */
	uint32_t page;
	uint32_t kind; /* enum paged_change_kind */
	uint32_t reserved[4];
};

/** A node of the index. */
struct paged_node_info {
	uint64_t serial;
	uint64_t parent_serial; /* 0: the first page of a prefix */
	uint64_t hash;          /* as in struct paged_change */
	uint32_t page;
	uint32_t parent; /* page before it; UINT32_MAX: the first page of a prefix */
	uint32_t hits;   /* sequences that were started on it */
	uint32_t reserved[3];
};

/** Where a watch stands. */
struct paged_watch_info {
	size_t struct_size;
	uint64_t position; /* number of the change that the watch has read last; changes up to it precede a walk */
	uint64_t n_behind; /* changes made since then */
	uint64_t n_lost;   /* changes that this watch has lost in all */
};

/** A node and its block key. */
struct paged_block_key {
	size_t struct_size;
	uint64_t parent_serial; /* as in struct paged_node_info */
	uint32_t parent;
	/** 1: the token ids are known: they are a part of the key, or were published with it. */
	uint32_t has_tokens;
	/**
	 * Not keyed: zeros for a page without salt and extras; else the SHA-256 of the salt (first page only)
	 * and, for each struct paged_extra that overlaps the page, of its `first` minus the page's first token
	 * (int32_t), n_tokens (uint32_t), both least significant byte first, and digest.
	 */
	uint8_t extra[PAGED_DIGEST_SIZE];
	/** 1: the key is `extra` alone, a paged_prefix.keys entry; 0: it is the token ids and `extra`. */
	uint32_t keyed;
	uint32_t reserved;
};

/**
 * paged_watch_open - watch a pool from now on
 *
 * @param[out] watch_p  caller closes it with paged_watch_close(); closed with the pool at the latest
 * @retval PAGED_ERR_UNSUPPORTED  the pool publishes nothing (publish = no)
 */
enum paged_status paged_watch_open(struct paged_pool *pool, struct paged_watch **watch_p);

/** paged_watch_close - free the watch; takes NULL */
void paged_watch_close(struct paged_watch *watch);

/**
 * paged_watch_next - copy the next changes, and wait for the first of them if there is none
 *
 * @param[out] changes     [n_max], n_max at least 1; changes[0 .. *n_p) are written
 * @param[in]  timeout_ms  0: do not wait
 * @param[out] n_p         at least 1 on PAGED_OK, else 0
 * @retval PAGED_ERR_TIMEOUT  no change within timeout_ms
 * @retval PAGED_ERR_STALE    changes were lost; the message and paged_watch_get_info() say how many.  The watch
 *                            goes on after the last change of now: walk again
 * @retval PAGED_ERR_GONE     the daemon died, or ended this session; noticed within a second
 *
 * Blocks: up to timeout_ms, in futex(2).
 */
enum paged_status paged_watch_next(struct paged_watch *watch, struct paged_change *changes, size_t n_max,
				   uint32_t timeout_ms, size_t *n_p);

/**
 * paged_watch_walk - list the nodes, in the order of their pages, while they change
 *
 * Each node that was published before the watch's position and still is will be listed.  A node of later changes is
 * listed or not.  Parents may follow their children.
 *
 * @param[in,out] from  0 at first; pass the value on to the next call
 * @param[out]    nodes [n_max], n_max at least 1
 * @param[out]    n_p   nodes written; 0: the walk is complete
 */
enum paged_status paged_watch_walk(struct paged_watch *watch, uint32_t *from, struct paged_node_info *nodes,
				   size_t n_max, size_t *n_p);

/**
 * paged_watch_read - copy a node's block key
 *
 * @param[in]  serial  as in the change or the walk
 * @param[out] key     filled up to its struct_size
 * @param[out] tokens  [n_max] the token ids, as many as the pool's page size, if key->has_tokens is 1; NULL: not
 *                     wanted
 * @retval PAGED_ERR_STALE  the page is no longer published, or was published again: its REMOVED follows
 * @retval PAGED_ERR_GONE   the daemon died, or ended this session; noticed within a second
 * @retval PAGED_ERR_RANGE  the pool has no such page, or n_max is smaller than the page size
 */
enum paged_status paged_watch_read(struct paged_watch *watch, uint32_t page, uint64_t serial,
				   struct paged_block_key *key, uint32_t *tokens, size_t n_max);

/** paged_watch_get_info - where the watch stands; fills info up to its struct_size */
enum paged_status paged_watch_get_info(const struct paged_watch *watch, struct paged_watch_info *info);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
