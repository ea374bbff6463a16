/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/race_watcher.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/prefix.h"
#include "common/ring.h"

#define MAX_PAGES 512
/* Changes after which the thread gives way, so that it is overtaken in a small ring. */
#define YIELD_EVERY 512

#define require(condition)                                                                    \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			printf("not ok - race_watcher, line %d: %s\n", __LINE__, #condition); \
			exit(1);                                                              \
		}                                                                             \
	} while (0)

static struct watcher {
	pthread_t thread;
	const struct region_view *view;
	bool (*is_logged)(uint64_t serial, uint32_t page);
	_Atomic bool stops;
	uint64_t position;
	uint64_t walk_end;          /* number of the last change that the walk may have seen */
	uint64_t serial[MAX_PAGES]; /* the mirror: the node of each page, 0: none */
	struct race_watcher_result result;
} watcher;

/* Begins a new mirror at the head of the ring. */
static void
watcher_walk(void)
{
	struct prefix_node node;

	memset(watcher.serial, 0, sizeof(watcher.serial));
	watcher.position = ring_head(watcher.view);
	for (uint32_t page = 0; page < watcher.view->n_pages; page++)
		if (prefix_node_read(watcher.view, page, 0, &node, NULL)) {
			require(watcher.is_logged(node.serial, page));
			watcher.serial[page] = node.serial;
		}
	/* The walk may have seen changes up to this one; the owner changes a node before it stores the head. */
	watcher.walk_end = ring_head(watcher.view) + 1;
}

static void
watcher_apply(const struct ring_change *change)
{
	uint64_t *serial = &watcher.serial[change->page];
	bool seen = change->number <= watcher.walk_end;

	require(watcher.is_logged(change->serial, change->page));
	if (change->kind == REGION_RING_STORED) {
		/* A walk may have seen a later node of the page. */
		require(*serial == 0 || (seen && *serial >= change->serial));
		if (*serial == 0)
			*serial = change->serial;
	} else {
		require(change->kind == REGION_RING_REMOVED);
		require(*serial == change->serial || seen);
		if (*serial == change->serial)
			*serial = 0;
	}
	watcher.result.n_changes++;
}

/* Reads until there is no further change. */
static void
watcher_drain(void)
{
	struct ring_change change;
	enum ring_result result;

	while ((result = ring_read(watcher.view, watcher.position + 1, &change)) != RING_NONE) {
		if (result == RING_OVERTAKEN) {
			watcher.result.n_overtaken++;
			watcher_walk();
			continue;
		}
		require(change.number == watcher.position + 1);
		watcher.position++;
		watcher_apply(&change);
		if (watcher.result.n_changes % YIELD_EVERY == 0)
			sched_yield();
	}
}

static void *
watcher_run(void *argument)
{
	bool stops;

	do {
		stops = atomic_load(&watcher.stops);
		watcher_drain();
		sched_yield();
	} while (!stops);
	return argument;
}

void
race_watcher_start(const struct region_view *view, bool (*is_logged)(uint64_t serial, uint32_t page))
{
	memset(&watcher, 0, sizeof(watcher));
	watcher.view = view;
	watcher.is_logged = is_logged;
	require(view->n_pages <= MAX_PAGES);
	watcher_walk();
	require(pthread_create(&watcher.thread, NULL, watcher_run, NULL) == 0);
}

struct race_watcher_result
race_watcher_stop(void)
{
	struct prefix_node node;

	atomic_store(&watcher.stops, true);
	pthread_join(watcher.thread, NULL);
	for (uint32_t page = 0; page < watcher.view->n_pages; page++) {
		uint64_t serial = prefix_node_read(watcher.view, page, 0, &node, NULL) ? node.serial : 0;

		require(watcher.serial[page] == serial);
	}
	return watcher.result;
}
