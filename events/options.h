/* SPDX-License-Identifier: Apache-2.0 */
/**
 * options.h - the command line of paged-events
 *
 * Each part of the program has a struct of its own options here, and its lines
 * in the table and in the help of options.c.
 */
#ifndef PAGED_EVENTS_OPTIONS_H
#define PAGED_EVENTS_OPTIONS_H

#include <pagedclient.h>
#include <stdbool.h>

#include "events/block_hash.h"
#include "events/publisher.h"

/** The KV events, which are off without publisher.endpoint. */
struct kv_events_options {
	struct publisher_options publisher; /* endpoints of the first pool */
	struct block_hasher hasher;
	bool integers; /* hashes are published as integers of 64 bits */
	uint32_t data_parallel_rank;
};

struct events_options {
	const char *runtime_dir; /* NULL: as paged_client_open() */
	/** The pools to watch; none: all that this user may use. */
	const char *pools[PAGED_MAX_POOLS];
	uint32_t n_pools;
	/** "[ADDRESS:]PORT" that serves metrics; NULL: none. */
	const char *metrics_listen;
	struct kv_events_options kv;
};

/** events_options_parse - read the command line; exits with 2 on a mistake, and with 0 after --help or --version */
void events_options_parse(struct events_options *options, int argc, char **argv);

#endif
