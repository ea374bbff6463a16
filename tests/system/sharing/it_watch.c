/* SPDX-License-Identifier: Apache-2.0 */
/* Watches of the index of published pages, beside processes that publish. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/chain_fixture.h"

/* A pool of 1024 pages holds four chains: from the fifth on, each one evicts the oldest. */
enum { POOL_PAGES = 1024, CHAIN_LENGTH = 256, KEPT_CHAINS = POOL_PAGES / CHAIN_LENGTH, BURST = 110, N_READ = 1000 };
/* More than 100,000 pages. */
#define N_CHAINS 396u
#define TIMEOUT_MS ((uint32_t)IT_LIMIT_MS)

/* The publishing process */

/* Publishes as many chains as each message asks for, and answers; 0 ends it. */
static void
publisher_run(int from, int to, void *argument)
{
	struct worker_fixture worker;
	uint32_t n, chain = 0;

	(void)argument;
	worker_open(&worker, NULL, 0);
	for (it_receive(from, &n, sizeof(n)); n != 0; it_receive(from, &n, sizeof(n))) {
		for (uint32_t i = 0; i < n; i++)
			chain_publish(&worker, chain++, CHAIN_LENGTH);
		it_send(to, &chain, sizeof(chain));
	}
	worker_close(&worker);
}

static void
publisher_ask(struct it_worker *publisher, uint32_t n)
{
	it_send(publisher->to, &n, sizeof(n));
}

static uint32_t
publisher_wait(struct it_worker *publisher)
{
	uint32_t n_published;

	it_receive(publisher->from, &n_published, sizeof(n_published));
	return n_published;
}

static void
publisher_end(struct it_worker *publisher)
{
	publisher_ask(publisher, 0);
	it_join(publisher);
}

/* The watching process */

struct mirror {
	struct worker_fixture worker;
	struct paged_watch *watch;
	struct paged_node_info nodes[POOL_PAGES]; /* by page; serial 0: none */
	uint64_t n_changes, n_stored, n_removed;
};

static void
mirror_open(struct mirror *mirror)
{
	memset(mirror, 0, sizeof(*mirror));
	worker_observe(&mirror->worker);
	worker_ok(&mirror->worker, paged_watch_open(mirror->worker.pool, &mirror->watch));
}

static void
mirror_close(struct mirror *mirror)
{
	paged_watch_close(mirror->watch);
	worker_close(&mirror->worker);
}

static struct paged_watch_info
mirror_info(struct mirror *mirror)
{
	struct paged_watch_info info = { .struct_size = sizeof(info) };

	worker_ok(&mirror->worker, paged_watch_get_info(mirror->watch, &info));
	return info;
}

static void
mirror_walk(struct mirror *mirror)
{
	struct paged_node_info nodes[100];
	uint32_t from = 0, previous = 0;
	size_t n;

	memset(mirror->nodes, 0, sizeof(mirror->nodes));
	for (;;) {
		worker_ok(&mirror->worker, paged_watch_walk(mirror->watch, &from, nodes, 100, &n));
		if (n == 0)
			return;
		for (size_t i = 0; i < n; i++) {
			it_require(nodes[i].page >= previous && nodes[i].page < from);
			previous = nodes[i].page + 1;
			mirror->nodes[nodes[i].page] = nodes[i];
		}
	}
}

/* Adds the node of a change as a program does: by its key, if it still stands. */
static void
mirror_add(struct mirror *mirror, const struct paged_change *change)
{
	struct paged_block_key key = { .struct_size = sizeof(key) };
	enum paged_status status = paged_watch_read(mirror->watch, change->page, change->serial, &key, NULL, 0);

	it_require(status == PAGED_OK || status == PAGED_ERR_STALE, "%s", paged_client_error(mirror->worker.client));
	if (status == PAGED_OK)
		mirror->nodes[change->page] = (struct paged_node_info){ .serial = change->serial,
									.parent_serial = key.parent_serial,
									.page = change->page,
									.parent = key.parent };
}

/* Applies all changes up to now.  Returns PAGED_ERR_STALE if some were lost. */
static enum paged_status
mirror_follow(struct mirror *mirror)
{
	struct paged_change changes[N_READ];
	enum paged_status status;
	size_t n;

	while ((status = paged_watch_next(mirror->watch, changes, N_READ, 0, &n)) == PAGED_OK) {
		it_require(n > 0 && n <= N_READ);
		for (size_t i = 0; i < n; i++) {
			struct paged_node_info *node = &mirror->nodes[changes[i].page];

			it_require(i == 0 || changes[i].number == changes[i - 1].number + 1);
			if (changes[i].kind == PAGED_CHANGE_STORED)
				mirror_add(mirror, &changes[i]);
			else if (node->serial == changes[i].serial)
				node->serial = 0;
		}
		mirror->n_changes += n;
	}
	it_require(n == 0);
	it_require(status == PAGED_ERR_TIMEOUT || status == PAGED_ERR_STALE, "%s",
		   paged_client_error(mirror->worker.client));
	return status == PAGED_ERR_STALE ? status : PAGED_OK;
}

/* The mirror is what the daemon lists. */
static void
mirror_expect(struct mirror *mirror, size_t n_expected)
{
	struct paged_node_entry *list;
	size_t n, n_mirrored = 0;

	worker_ok(&mirror->worker, paged_admin_prefixes(mirror->worker.client, "test", sizeof(*list), &list, &n));
	it_require(n == n_expected, "%zu pages are published, %zu expected", n, n_expected);
	for (size_t i = 0; i < n; i++) {
		const struct paged_node_info *node = &mirror->nodes[list[i].page];

		it_require(node->serial == list[i].serial && node->parent_serial == list[i].parent_serial &&
				   node->parent == list[i].parent,
			   "page %u has serial %llu, %llu in the mirror", list[i].page,
			   (unsigned long long)list[i].serial, (unsigned long long)node->serial);
	}
	for (uint32_t page = 0; page < POOL_PAGES; page++)
		n_mirrored += mirror->nodes[page].serial != 0;
	it_require(n_mirrored == n, "%zu nodes in the mirror, %zu in the index", n_mirrored, n);
	paged_free(list);
}

/* Tests */

/* What the ring must say about chains that are published one after the other: each evicts the oldest from its end. */
struct expectation {
	uint64_t first_serial;
	uint64_t n_stored, n_removed;
	uint32_t pages[N_CHAINS * CHAIN_LENGTH];
};

static void
expect_change(struct expectation *expected, const struct paged_change *change)
{
	uint64_t chain = expected->n_stored / CHAIN_LENGTH, n_evicted, position;

	/* The chain that is published next has room once as many chains were evicted. */
	n_evicted = chain >= KEPT_CHAINS ? (chain - KEPT_CHAINS + 1) * CHAIN_LENGTH : 0;
	if (expected->n_stored % CHAIN_LENGTH == 0 && expected->n_removed < n_evicted) {
		position = expected->n_removed / CHAIN_LENGTH * CHAIN_LENGTH + CHAIN_LENGTH - 1 -
			   expected->n_removed % CHAIN_LENGTH;
		it_require(change->kind == PAGED_CHANGE_REMOVED && change->page == expected->pages[position]);
		expected->n_removed++;
	} else {
		position = expected->n_stored;
		it_require(change->kind == PAGED_CHANGE_STORED);
		expected->pages[position] = change->page;
		expected->n_stored++;
	}
	it_require(change->serial == expected->first_serial + position, "change %llu: serial %llu, %llu expected",
		   (unsigned long long)change->number, (unsigned long long)change->serial,
		   (unsigned long long)(expected->first_serial + position));
}

/* A page that is still published holds what its place in its chain says. */
static void
expect_key(struct mirror *mirror, const struct expectation *expected, const struct paged_change *change)
{
	uint32_t tokens[CHAIN_PAGE_SIZE], chain, page;
	struct paged_block_key key = { .struct_size = sizeof(key) };
	static const uint8_t zeros[PAGED_DIGEST_SIZE];
	uint64_t position = change->serial - expected->first_serial;

	if (change->kind != PAGED_CHANGE_STORED ||
	    paged_watch_read(mirror->watch, change->page, change->serial, &key, tokens, CHAIN_PAGE_SIZE) != PAGED_OK)
		return;
	chain = (uint32_t)(position / CHAIN_LENGTH);
	page = (uint32_t)(position % CHAIN_LENGTH);
	for (uint32_t i = 0; i < CHAIN_PAGE_SIZE; i++)
		it_require(tokens[i] == chain_token(chain, page * CHAIN_PAGE_SIZE + i));
	it_require(key.has_tokens == 1 && memcmp(key.extra, zeros, sizeof(zeros)) == 0);
	it_require(key.parent_serial == (page == 0 ? 0 : change->serial - 1));
	it_require(key.parent == (page == 0 ? UINT32_MAX : expected->pages[position - 1]));
	mirror->n_stored++;
}

IT_TEST(no_change_is_lost_to_a_reader_that_keeps_up)
{
	static struct expectation expected;
	static struct mirror mirror;
	struct paged_change changes[N_READ];
	uint64_t n_changes = 0, n_behind = 0, before;
	struct it_worker publisher;
	struct it_daemon daemon;
	enum paged_status status;
	size_t n;

	it_daemon_start(&daemon, CHAIN_POOL(1024, ""), NULL, NULL);
	mirror_open(&mirror);
	before = mirror_info(&mirror).position;
	it_fork(&publisher, publisher_run, NULL);
	for (uint32_t n_published = 0; n_published < N_CHAINS;) {
		publisher_ask(&publisher, N_CHAINS - n_published < BURST ? N_CHAINS - n_published : BURST);
		n_published = publisher_wait(&publisher);
		n_behind = mirror_info(&mirror).n_behind > n_behind ? mirror_info(&mirror).n_behind : n_behind;
		while ((status = paged_watch_next(mirror.watch, changes, N_READ, 0, &n)) == PAGED_OK) {
			if (n_changes == 0)
				expected.first_serial = changes[0].serial;
			for (size_t i = 0; i < n; i++) {
				it_require(changes[i].number == before + ++n_changes);
				expect_change(&expected, &changes[i]);
				expect_key(&mirror, &expected, &changes[i]);
			}
		}
		it_require(status == PAGED_ERR_TIMEOUT, "%s", paged_client_error(mirror.worker.client));
	}
	it_require(expected.n_stored == N_CHAINS * CHAIN_LENGTH &&
		   expected.n_removed == (N_CHAINS - KEPT_CHAINS) * CHAIN_LENGTH);
	it_require(n_behind > 50000 && n_behind < 60000, "%llu", (unsigned long long)n_behind);
	it_require(mirror_info(&mirror).n_lost == 0 && mirror_info(&mirror).position == before + n_changes);
	it_require(mirror.n_stored >= POOL_PAGES);
	it_note("%llu changes, at most %llu behind", (unsigned long long)n_changes, (unsigned long long)n_behind);
	publisher_end(&publisher);
	mirror_close(&mirror);
	it_daemon_stop(&daemon);
}

IT_TEST(overtaken_reader_recovers_by_a_walk)
{
	static struct mirror mirror;
	struct paged_watch_info before, after;
	struct it_worker publisher;
	struct it_daemon daemon;
	char text[128];

	it_daemon_start(&daemon, CHAIN_POOL(1024, ""), NULL, NULL);
	mirror_open(&mirror);
	it_fork(&publisher, publisher_run, NULL);
	publisher_ask(&publisher, 2);
	publisher_wait(&publisher);
	it_require(mirror_follow(&mirror) == PAGED_OK);
	mirror_expect(&mirror, 2 * CHAIN_LENGTH);

	publisher_ask(&publisher, 160);
	publisher_wait(&publisher);
	before = mirror_info(&mirror);
	it_require(before.n_behind > PAGED_WATCH_CHANGES && before.n_lost == 0);
	it_require(mirror_follow(&mirror) == PAGED_ERR_STALE);
	after = mirror_info(&mirror);
	it_require(after.n_lost == before.n_behind && after.n_behind == 0 &&
		   after.position == before.position + before.n_behind);
	snprintf(text, sizeof(text), "pool test: %llu changes were lost, the ring has 65536: walk the nodes again",
		 (unsigned long long)before.n_behind);
	it_require(strcmp(paged_client_error(mirror.worker.client), text) == 0, "%s",
		   paged_client_error(mirror.worker.client));
	mirror_walk(&mirror);
	mirror_expect(&mirror, POOL_PAGES);

	/* It goes on from there. */
	publisher_ask(&publisher, 1);
	publisher_wait(&publisher);
	it_require(mirror_follow(&mirror) == PAGED_OK && mirror.n_changes == 2 * CHAIN_LENGTH + 2 * CHAIN_LENGTH);
	mirror_expect(&mirror, POOL_PAGES);
	publisher_end(&publisher);
	mirror_close(&mirror);
	it_daemon_stop(&daemon);
}

/* A walk while pages are published and evicted, and the changes since its position, are the index in the end. */
IT_TEST(walks_beside_a_publisher_are_consistent)
{
	static struct mirror mirror;
	uint32_t n_walks = 0, n_published = 0;
	struct it_worker publisher;
	struct it_daemon daemon;

	it_daemon_start(&daemon, CHAIN_POOL(1024, ""), NULL, NULL);
	mirror_open(&mirror);
	it_fork(&publisher, publisher_run, NULL);
	while (n_published < 100) {
		publisher_ask(&publisher, 10);
		for (uint32_t i = 0; i < 20; i++, n_walks++) {
			/* The position that the walk begins at. */
			it_require(mirror_follow(&mirror) == PAGED_OK);
			mirror_walk(&mirror);
		}
		n_published = publisher_wait(&publisher);
		it_require(mirror_follow(&mirror) == PAGED_OK);
		mirror_expect(&mirror, n_published < KEPT_CHAINS ? n_published * CHAIN_LENGTH : POOL_PAGES);
	}
	publisher_end(&publisher);
	mirror_close(&mirror);
	it_daemon_stop(&daemon);
}

/* Watches until it is killed, or reports how the watch ended. */
static void
watcher_run(int from, int to, void *argument)
{
	static struct mirror mirror;
	struct paged_change changes[16];
	enum paged_status status = PAGED_OK;
	size_t n;

	(void)from;
	(void)argument;
	mirror_open(&mirror);
	it_send(to, &status, sizeof(status));
	do
		status = paged_watch_next(mirror.watch, changes, 16, TIMEOUT_MS, &n);
	while (status == PAGED_OK || status == PAGED_ERR_STALE);
	it_send(to, &status, sizeof(status));
	mirror_close(&mirror);
}

static void
watcher_start(struct it_worker *watcher)
{
	enum paged_status status;

	it_fork(watcher, watcher_run, NULL);
	it_receive(watcher->from, &status, sizeof(status));
	usleep(50000); /* it sleeps by now */
}

IT_TEST(stopped_and_killed_readers_cost_nothing)
{
	static struct mirror mirror;
	struct it_worker publisher, stopped, killed;
	struct it_daemon daemon;
	enum paged_status status;
	unsigned int n_fds;
	int code;

	it_daemon_start(&daemon, CHAIN_POOL(1024, ""), NULL, NULL);
	n_fds = it_count_fds(daemon.pid);
	it_fork(&publisher, publisher_run, NULL);
	watcher_start(&stopped);
	watcher_start(&killed);
	kill(stopped.pid, SIGSTOP);
	publisher_ask(&publisher, 10);
	publisher_wait(&publisher);
	it_kill(&killed);
	/* More than the ring holds. */
	publisher_ask(&publisher, 160);
	it_require(publisher_wait(&publisher) == 170);
	mirror_open(&mirror);
	mirror_walk(&mirror);
	mirror_expect(&mirror, POOL_PAGES);
	worker_check_pool(&mirror.worker);
	mirror_close(&mirror);

	/* The stopped one was overtaken, goes on, and notices the end of the daemon. */
	kill(stopped.pid, SIGCONT);
	publisher_ask(&publisher, 1);
	publisher_wait(&publisher);
	publisher_end(&publisher);
	it_pagedctl(&code, "check", NULL);
	it_require(code == 0);
	it_require(it_count_fds(daemon.pid) <= n_fds + 8, "%u, %u", it_count_fds(daemon.pid), n_fds);
	it_daemon_kill(&daemon);
	it_receive(stopped.from, &status, sizeof(status));
	it_require(status == PAGED_ERR_GONE, "%s", paged_status_name(status));
	it_join(&stopped);
}

/* Opened without its pages, a pool can be watched and its tables read; K and V are not mapped. */
IT_TEST(tables_only)
{
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_client_params params = worker_params("tables only");
	static struct mirror mirror;
	struct paged_batch *batch;
	struct it_worker publisher;
	struct it_daemon daemon;
	paged_seq_id seq = 0;

	it_daemon_start(&daemon, CHAIN_POOL(1024, ""), NULL, NULL);
	params.tables_only = 1;
	worker_attach(&mirror.worker, &params);
	worker_ok(&mirror.worker, paged_pool_open(mirror.worker.client, "test", &mirror.worker.pool));
	worker_ok(&mirror.worker, paged_pool_get_info(mirror.worker.pool, &info));
	it_require(info.base == NULL && strcmp(info.backend, "host") == 0 && info.n_pages == POOL_PAGES);
	worker_expect(&mirror.worker, paged_batch_create(mirror.worker.pool, NULL, &batch), PAGED_ERR_UNSUPPORTED);
	worker_ok(&mirror.worker, paged_watch_open(mirror.worker.pool, &mirror.watch));
	it_fork(&publisher, publisher_run, NULL);
	publisher_ask(&publisher, 3);
	publisher_wait(&publisher);
	it_require(mirror_follow(&mirror) == PAGED_OK);
	mirror_expect(&mirror, 3 * CHAIN_LENGTH);
	/* It may have sequences, as an engine's scheduler does. */
	seq = worker_create_seq(&mirror.worker, 8);
	worker_check_pool(&mirror.worker);
	chain_erase(&mirror.worker, seq);
	publisher_end(&publisher);
	mirror_close(&mirror);

	params.tables_only = 2;
	it_require(paged_client_open(NULL, &params, &mirror.worker.client) == PAGED_ERR_INVALID);
	paged_client_close(mirror.worker.client);
	it_daemon_stop(&daemon);
}

IT_TEST(refusals)
{
	struct paged_block_key key = { .struct_size = sizeof(key) };
	uint32_t from = 0, tokens[CHAIN_PAGE_SIZE];
	struct paged_node_info node;
	static struct mirror mirror;
	struct paged_change change;
	struct worker_fixture worker;
	struct it_daemon daemon;
	uint64_t began_ms;
	paged_seq_id seq;
	size_t n = 1;

	it_daemon_start(&daemon, CHAIN_POOL(1024, "") "pool mute { " SMALL_POOL_SHAPE " pages = 4 publish = no }\n",
			NULL, NULL);
	mirror_open(&mirror);
	worker_open(&worker, NULL, 0);
	began_ms = it_now_ms();
	worker_expect(&mirror.worker, paged_watch_next(mirror.watch, &change, 1, 200, &n), PAGED_ERR_TIMEOUT);
	it_require(n == 0 && it_now_ms() - began_ms >= 200);
	it_require(paged_watch_next(NULL, &change, 1, 0, &n) == PAGED_ERR_INVALID);
	worker_expect(&mirror.worker, paged_watch_next(mirror.watch, NULL, 1, 0, &n), PAGED_ERR_INVALID);
	worker_expect(&mirror.worker, paged_watch_next(mirror.watch, &change, 0, 0, &n), PAGED_ERR_INVALID);
	worker_expect(&mirror.worker, paged_watch_walk(mirror.watch, &from, &node, 0, &n), PAGED_ERR_INVALID);
	worker_expect(&mirror.worker, paged_watch_open(mirror.worker.pool, NULL), PAGED_ERR_INVALID);

	seq = chain_create(&worker, 7, 1, NULL);
	worker_ok(&mirror.worker, paged_watch_next(mirror.watch, &change, 1, TIMEOUT_MS, &n));
	it_require(n == 1 && change.kind == PAGED_CHANGE_STORED);
	worker_ok(&mirror.worker, paged_watch_read(mirror.watch, change.page, change.serial, &key, tokens, 4));
	it_require(tokens[3] == chain_token(7, 3));
	worker_expect(&mirror.worker, paged_watch_read(mirror.watch, change.page, change.serial, &key, tokens, 3),
		      PAGED_ERR_RANGE);
	worker_expect(&mirror.worker, paged_watch_read(mirror.watch, POOL_PAGES, change.serial, &key, NULL, 0),
		      PAGED_ERR_RANGE);
	worker_expect(&mirror.worker, paged_watch_read(mirror.watch, change.page, change.serial + 1, &key, NULL, 0),
		      PAGED_ERR_STALE);
	worker_expect(&mirror.worker, paged_watch_read(mirror.watch, change.page, 0, &key, NULL, 0), PAGED_ERR_STALE);
	worker_expect(&mirror.worker, paged_watch_read(mirror.watch, change.page, change.serial, NULL, NULL, 0),
		      PAGED_ERR_INVALID);
	chain_erase(&worker, seq);
	paged_watch_close(mirror.watch);
	paged_watch_close(NULL);

	paged_pool_close(mirror.worker.pool);
	worker_ok(&mirror.worker, paged_pool_open(mirror.worker.client, "mute", &mirror.worker.pool));
	worker_expect(&mirror.worker, paged_watch_open(mirror.worker.pool, &mirror.watch), PAGED_ERR_UNSUPPORTED);
	worker_close(&worker);
	worker_close(&mirror.worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
