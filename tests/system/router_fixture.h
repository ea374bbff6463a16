/* SPDX-License-Identifier: Apache-2.0 */
/**
 * router_fixture.h - runs paged-events, and subscribes to it as a router does
 *
 * A router keeps a table of the blocks that can be found.  It asks for a replay
 * where it has missed batches, as vLLM's example of a subscriber does.  An event that
 * does not fit the table ends the test: a block that is stored twice or under a parent
 * that is not there, and one that is removed without having been stored.
 */
#ifndef TESTS_ROUTER_FIXTURE_H
#define TESTS_ROUTER_FIXTURE_H

#include "events/block_hash.h"
#include "tests/support/harness.h"
#include "tests/system/chain_fixture.h"

/* paged-events */

struct events_process {
	pid_t pid;
	char log[96];
	char endpoint[96], replay_endpoint[96]; /* ipc:// in the daemon's directory */
};

/** events_start - run paged-events with its endpoints and these further arguments, which end with NULL */
void events_start(struct events_process *events, const struct it_daemon *daemon, const char *const *arguments);

/** events_stop - SIGTERM; must exit with 0 */
void events_stop(struct events_process *events);

/** events_logged - whether its log contains this text; waits up to 10 s for it */
bool events_logged(const struct events_process *events, const char *text);

/* Batches */

/** The three frames of a batch. */
struct router_batch {
	char topic[32];
	uint64_t sequence;
	size_t size;
	uint8_t *payload; /* NULL: the end of a replay */
};

void router_batch_free(struct router_batch *batch);

/* Routers */

/** A block of the table; hashes in the form of integers. */
struct router_block {
	uint64_t hash, parent; /* parent 0: none */
	uint32_t n_tokens;     /* 0: unknown */
	uint32_t tokens[CHAIN_PAGE_SIZE];
	char extra[BLOCK_HASH_EXTRA_TEXT + 1]; /* "": no extra keys */
};

struct router {
	void *zmq, *subscriber, *requester;
	uint64_t next; /* sequence number that is expected */
	size_t n_blocks;
	struct router_block *blocks; /* [ROUTER_MAX_BLOCKS] */
	uint32_t n_cleared, n_replays, n_batches;
	const char *medium; /* expected of each event */
};
#define ROUTER_MAX_BLOCKS 4096

void router_open(struct router *router, const struct events_process *events, const char *topic);
void router_close(struct router *router);

/** router_receive - the next batch of the subscription; false: none within limit_ms */
bool router_receive(struct router *router, struct router_batch *batch, int limit_ms);

/** router_request - ask for a replay */
void router_request(struct router *router, uint64_t from);

/** router_replayed - the next batch of a replay, which must come within 20 s; false: it was the end */
bool router_replayed(struct router *router, struct router_batch *batch);

/** router_apply - check a batch and apply its events to the table */
void router_apply(struct router *router, const struct router_batch *batch);

/** router_follow - apply batches until the table has these blocks exactly, in any order; the test fails after 30 s */
void router_follow(struct router *router, const struct router_block *blocks, size_t n);

/**
 * router_expect_chain - add the blocks of a chain's first n_pages to a list
 *
 * @param[in] extra  [PAGED_DIGEST_SIZE] extra key of its first page; NULL: none
 * @return the new length of the list
 */
size_t router_expect_chain(struct router_block *blocks, size_t n, const struct block_hasher *hasher, uint32_t chain,
			   uint32_t n_pages, const uint8_t *extra);

#endif
