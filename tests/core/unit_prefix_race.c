/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches of the index of published pages while it changes.
 *
 * One thread owns the core: it publishes, starts, trims, erases and evicts in a pool so small that each page becomes a
 * node again and again, and logs each node by its serial.  Two threads search.  Every answer must be the prefix that
 * was searched for, page by page, by the log.  Answers are handed to the owner, who starts sequences on them: what the
 * core accepts must be that prefix too.  A third thread mirrors the index from the ring (race_watcher.h).
 *
 * A plain program, without Criterion, which is also compiled with ThreadSanitizer (unit_prefix_race_tsan).
 * ThreadSanitizer does not model fences: it verifies that all concurrent accesses are atomic, while their order is
 * argued in prefix.h.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/core.h"
#include "tests/core/race_watcher.h"

#define N_READERS 2
#define PAGE_SIZE 4
#define MAX_DEPTH 12
#define MAX_KEPT 24
#define N_HANDED 8 /* answers that wait for the owner, for each reader */
#define MAX_NODES (1u << 25)

/* In the large pool, prefixes of many pages grow and shrink; in the small one, a page changes during a search. */
static const struct scale {
	uint32_t n_searches; /* of each reader */
	uint32_t n_pages;
	uint32_t depth;  /* pages of a prefix, at most */
	uint32_t n_kept; /* sequences that live at a time */
	uint32_t ring_entries;
} scales[] = {
#ifdef __SANITIZE_THREAD__
	{ .n_searches = 50000,
	  .n_pages = 512,
	  .depth = MAX_DEPTH,
	  .n_kept = MAX_KEPT,
	  .ring_entries = REGION_RING_ENTRIES },
	{ .n_searches = 50000, .n_pages = 12, .depth = 2, .n_kept = 3, .ring_entries = 4 },
#else
	{ .n_searches = 600000,
	  .n_pages = 512,
	  .depth = MAX_DEPTH,
	  .n_kept = MAX_KEPT,
	  .ring_entries = REGION_RING_ENTRIES },
	{ .n_searches = 600000, .n_pages = 12, .depth = 2, .n_kept = 3, .ring_entries = 4 },
#endif
};
#define N_SCALES (sizeof(scales) / sizeof(scales[0]))
static struct scale scale;

#define require(condition)                                                      \
	do {                                                                    \
		if (!(condition)) {                                             \
			printf("not ok - line %d: %s\n", __LINE__, #condition); \
			exit(1);                                                \
		}                                                               \
	} while (0)

/* The log */

struct logged_node {
	uint32_t parent; /* serial; 0: the first page of a prefix */
	uint16_t page;
	uint8_t symbol;
};

static struct logged_node *node_log; /* by serial */
static _Atomic uint64_t n_logged;    /* serials below are in the log */

/* A prefix that a reader searches for; each symbol stands for a block key. */
struct path {
	uint32_t n;
	uint8_t symbols[MAX_DEPTH];
};

struct answer {
	struct path path;
	uint32_t n_pages;
	uint32_t pages[MAX_DEPTH];
	uint64_t serials[MAX_DEPTH];
	uint64_t serial; /* of the last page */
};

static bool
answer_is_logged(const struct answer *answer)
{
	uint64_t serial = answer->serial;

	for (uint32_t i = answer->n_pages; i-- > 0; serial = node_log[serial].parent)
		if (serial == 0 || serial != answer->serials[i] || node_log[serial].symbol != answer->path.symbols[i] ||
		    node_log[serial].page != answer->pages[i])
			return false;
	return serial == 0;
}

/* For the watcher. */
static bool
node_is_logged(uint64_t serial, uint32_t page)
{
	while (atomic_load_explicit(&n_logged, memory_order_acquire) <= serial)
		sched_yield();
	return node_log[serial].page == page;
}

/* Prefixes */

static uint32_t
random_below(uint64_t *state, uint32_t n)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*state >> 33) % n;
}

static struct path
random_path(uint64_t *state)
{
	struct path path = { .n = 1 + random_below(state, scale.depth) };

	for (uint32_t i = 0; i < path.n; i++)
		path.symbols[i] = random_below(state, 4) != 0 ? 0 : (uint8_t)random_below(state, 4);
	return path;
}

struct path_keys {
	struct prefix_keys keys;
	uint32_t tokens[MAX_DEPTH * PAGE_SIZE];
	uint32_t extra_page[MAX_DEPTH];
	uint8_t extra[MAX_DEPTH][REGION_EXTRA_SIZE];
};

/* A symbol's first bit is in its token ids, the second in its extra: half of one key and half of another make a third.
 */
static void
path_keys_init(struct path_keys *keys, const struct path *path)
{
	for (uint32_t i = 0; i < path->n; i++) {
		for (uint32_t k = 0; k < PAGE_SIZE; k++)
			keys->tokens[i * PAGE_SIZE + k] = 100 + (path->symbols[i] & 1u);
		keys->extra_page[i] = i;
		memset(keys->extra[i], path->symbols[i] & 2, REGION_EXTRA_SIZE);
	}
	keys->keys = (struct prefix_keys){ .n_pages = path->n,
					   .tokens = keys->tokens,
					   .n_extras = path->n,
					   .extra_page = keys->extra_page,
					   .extra = (const uint8_t(*)[REGION_EXTRA_SIZE])keys->extra };
}

/* Readers */

struct reader {
	pthread_t thread;
	const struct region_view *view;
	uint64_t random;
	uint64_t n_found; /* pages */
	pthread_mutex_t lock;
	uint32_t n_handed;
	struct answer handed[N_HANDED];
	_Atomic bool done;
};

static struct answer
reader_search(struct reader *reader)
{
	struct answer answer = { .path = random_path(&reader->random) };
	struct prefix_position at = prefix_root(reader->view);
	struct path_keys keys;

	path_keys_init(&keys, &answer.path);
	answer.n_pages = prefix_find_nodes(reader->view, &keys.keys, &at, answer.pages, answer.serials);
	answer.serial = at.serial;
	return answer;
}

/* Waits while the owner has many answers to serve, so that it takes part in the race on a busy machine too. */
static void
reader_hand_over(struct reader *reader, const struct answer *answer)
{
	bool handed = false;

	while (!handed) {
		pthread_mutex_lock(&reader->lock);
		handed = reader->n_handed < N_HANDED;
		if (handed)
			reader->handed[reader->n_handed++] = *answer;
		pthread_mutex_unlock(&reader->lock);
		if (!handed)
			sched_yield();
	}
}

static void *
reader_run(void *arg)
{
	struct reader *reader = arg;

	for (uint32_t i = 0; i < scale.n_searches; i++) {
		struct answer answer = reader_search(reader);

		while (atomic_load_explicit(&n_logged, memory_order_acquire) <= answer.serial)
			sched_yield();
		require(answer_is_logged(&answer));
		reader->n_found += answer.n_pages;
		if (i % 2 == 0)
			reader_hand_over(reader, &answer);
	}
	atomic_store(&reader->done, true);
	return NULL;
}

/* The owner */

struct owner {
	struct core *core;
	const struct region_view *view;
	uint32_t session;
	uint64_t random;
	paged_seq_id kept[MAX_KEPT];
	uint32_t n_kept, next_kept;
	uint64_t n_accepted, n_stale, n_trimmed;
	struct paged_error error;
	void *region;
	size_t region_size;
};

static void
owner_open(struct owner *owner)
{
	static const uint8_t boot_id[REGION_BOOT_ID_SIZE] = "race";
	struct core_pool_params params = {
		.name = "race",
		.n_pages = scale.n_pages,
		.page_size = PAGE_SIZE,
		.n_slots = 2 * MAX_KEPT,
		.max_length = (MAX_DEPTH + 1) * PAGE_SIZE,
		.publish = true,
		.seed = 0x9E3779B97F4A7C15ull,
	};
	uint32_t pool, member;

	owner->region_size = core_region_size(&params);
	require(core_create(boot_id, &owner->core, &owner->error) == PAGED_OK);
	owner->region = mmap(NULL, owner->region_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(owner->region != MAP_FAILED);
	require(core_pool_add(owner->core, &params, owner->region, &pool, &owner->error) == PAGED_OK);
	require(core_session_open(owner->core, &owner->session, &member, &owner->error) == PAGED_OK);
	owner->view = core_pool_view(owner->core, 0);
	/* The owner and all readers take the size of the ring from here. */
	((struct region_view *)(uintptr_t)owner->view)->ring_entries = scale.ring_entries;
	node_log = mmap(NULL, MAX_NODES * sizeof(*node_log), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	require(node_log != MAP_FAILED);
	atomic_store(&n_logged, atomic_load(&owner->view->header->next_serial));
}

static void
owner_close(struct owner *owner)
{
	core_destroy(owner->core);
	munmap(owner->region, owner->region_size);
	munmap(node_log, MAX_NODES * sizeof(*node_log));
}

/* Keeps a sequence; the one that was kept longest ends. */
static void
owner_keep(struct owner *owner, paged_seq_id seq)
{
	if (owner->n_kept == scale.n_kept)
		require(core_seq_erase(owner->core, owner->session, 1, &owner->kept[owner->next_kept], &owner->error) ==
			PAGED_OK);
	else
		owner->n_kept++;
	owner->kept[owner->next_kept] = seq;
	owner->next_kept = (owner->next_kept + 1) % scale.n_kept;
}

/* Logs the nodes that a publish has stored; the symbols are those of the sequence. */
static void
owner_log(const struct path *path, const struct region_view *view, paged_seq_id seq)
{
	uint64_t next = atomic_load(&view->header->next_serial), first = atomic_load(&n_logged);

	for (uint32_t i = 0; i < path->n; i++) {
		uint32_t page = atomic_load(&region_page_table(view, PAGED_SEQ_SLOT(seq))[i]);
		const struct region_node *node = region_node(view, page);
		uint64_t serial = atomic_load(&node->serial);

		if (serial >= first)
			node_log[serial] = (struct logged_node){ .parent = (uint32_t)atomic_load(&node->parent_serial),
								 .page = (uint16_t)page,
								 .symbol = path->symbols[i] };
	}
	atomic_store_explicit(&n_logged, next, memory_order_release);
}

static void
owner_publish(struct owner *owner)
{
	struct path path = random_path(&owner->random);
	struct seq_spec spec = { .n_tokens = path.n * PAGE_SIZE, .tag = "" };
	struct core_publish publish = { 0 };
	struct path_keys keys;
	uint32_t n_published, end;

	if (atomic_load(&n_logged) + MAX_DEPTH >= MAX_NODES)
		return;
	require(core_seq_create(owner->core, owner->session, 1, &spec, &publish.seq, &owner->error) == PAGED_OK);
	publish.version = atomic_load(&region_slot(owner->view, PAGED_SEQ_SLOT(publish.seq))->version);
	path_keys_init(&keys, &path);
	publish.keys = keys.keys;
	require(core_seq_publish(owner->core, owner->session, 1, &publish, &n_published, &end, &owner->error) ==
		PAGED_OK);
	require(n_published == path.n);
	owner_log(&path, owner->view, publish.seq);
	owner_keep(owner, publish.seq);
}

static void
owner_start(struct owner *owner, const struct answer *answer)
{
	const struct seq_start_spec spec = { .n_pages = answer->n_pages,
					     .serial = answer->serial,
					     .n_tokens = (answer->n_pages + 1) * PAGE_SIZE,
					     .tag = "" };
	const struct seq_start_list list = {
		.n = 1, .specs = &spec, .n_pages = answer->n_pages, .pages = answer->pages
	};
	enum paged_status status;
	paged_seq_id seq;

	if (answer->n_pages == 0)
		return;
	status = core_seq_start(owner->core, owner->session, &list, &seq, &owner->error);
	require(status == PAGED_OK || status == PAGED_ERR_STALE);
	owner->n_accepted += status == PAGED_OK;
	owner->n_stale += status != PAGED_OK;
	if (status != PAGED_OK)
		return;
	require(answer_is_logged(answer));
	for (uint32_t i = 0; i < answer->n_pages; i++) {
		require(atomic_load(&region_page_table(owner->view, PAGED_SEQ_SLOT(seq))[i]) == answer->pages[i]);
		require(atomic_load(&region_page(owner->view, answer->pages[i])->flags) == REGION_PAGE_PUBLISHED);
	}
	owner_keep(owner, seq);
}

/* Starts sequences on the answers that were handed over; returns how many they were. */
static uint32_t
owner_serve(struct owner *owner, struct reader *readers)
{
	struct answer answers[N_HANDED];
	uint32_t n, n_served = 0;

	for (uint32_t i = 0; i < N_READERS; i++) {
		pthread_mutex_lock(&readers[i].lock);
		n = readers[i].n_handed;
		memcpy(answers, readers[i].handed, n * sizeof(*answers));
		readers[i].n_handed = 0;
		pthread_mutex_unlock(&readers[i].lock);
		for (uint32_t k = 0; k < n; k++)
			owner_start(owner, &answers[k]);
		n_served += n;
	}
	return n_served;
}

/* Gives the beginning of a kept sequence back: its nodes stay, in the list of cached pages. */
static void
owner_trim(struct owner *owner)
{
	struct paged_seq_item item = { .seq = owner->kept[random_below(&owner->random, owner->n_kept)] };
	const struct region_slot *slot = region_slot(owner->view, PAGED_SEQ_SLOT(item.seq));

	item.n_tokens = random_below(&owner->random, atomic_load(&slot->capacity) + 1);
	require(core_seq_trim(owner->core, owner->session, 1, &item, &owner->error) == PAGED_OK);
	owner->n_trimmed += item.n_tokens / PAGE_SIZE;
}

/* Changes the index until the readers are done, at their pace where all share a CPU. */
static void
owner_run(struct owner *owner, struct reader *readers)
{
	while (!atomic_load(&readers[0].done) || !atomic_load(&readers[1].done)) {
		uint32_t n_served = owner_serve(owner, readers);

		for (uint32_t i = 0; i <= n_served / 2; i++) {
			owner_publish(owner);
			if (random_below(&owner->random, 2) == 0)
				owner_trim(owner);
			if (random_below(&owner->random, 2) == 0)
				core_prefix_evict(owner->core, 0,
						  1 + random_below(&owner->random, 1 + scale.n_pages / 64));
		}
		if (n_served == 0)
			sched_yield();
	}
}

static void
race_run(uint32_t number)
{
	struct owner owner = { .random = 1 };
	static struct reader readers[N_READERS];
	struct race_watcher_result watched;
	struct paged_check_result result;

	scale = scales[number];
	owner_open(&owner);
	race_watcher_start(owner.view, node_is_logged);
	for (uint32_t i = 0; i < N_READERS; i++) {
		readers[i] = (struct reader){ .view = owner.view, .random = 1000 + i };
		require(pthread_mutex_init(&readers[i].lock, NULL) == 0);
		require(pthread_create(&readers[i].thread, NULL, reader_run, &readers[i]) == 0);
	}
	owner_run(&owner, readers);
	for (uint32_t i = 0; i < N_READERS; i++)
		pthread_join(readers[i].thread, NULL);
	watched = race_watcher_stop();
	require(core_check(owner.core, 0, &result, &owner.error) == PAGED_OK);
	require(owner.n_accepted > scale.n_searches / 100);
	require(owner.n_trimmed > 0);
	require(watched.n_changes > 0 && (watched.n_overtaken > 0 || scale.ring_entries == REGION_RING_ENTRIES));
	printf("# %u searches found %llu pages; %llu starts, %llu stale; %llu nodes\n", N_READERS * scale.n_searches,
	       (unsigned long long)(readers[0].n_found + readers[1].n_found), (unsigned long long)owner.n_accepted,
	       (unsigned long long)owner.n_stale, (unsigned long long)atomic_load(&n_logged));
	printf("# the watcher read %llu changes and was overtaken %llu times\n", (unsigned long long)watched.n_changes,
	       (unsigned long long)watched.n_overtaken);
	printf("ok %u - each answer is the prefix that was searched for, and the mirror is the index, in a pool of %u"
	       " pages\n",
	       number + 1, scale.n_pages);
	fflush(stdout);
	owner_close(&owner);
}

int
main(void)
{
	printf("1..%zu\n", N_SCALES);
	for (uint32_t i = 0; i < N_SCALES; i++)
		race_run(i);
	return 0;
}
