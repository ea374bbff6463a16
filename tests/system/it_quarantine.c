/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a worker that died become free only after the quarantine. */
#include "config.h"

#include <string.h>

#include "tests/support/wire_peer.h"
#include "tests/support/worker_fixture.h"

#define WAIT_MS 600u
#define N_HELD_PAGES 5u /* of 20 tokens */

#define POOL(name, more) "pool " name " { " WORKER_POOL_SETTINGS " " more " }\n"

static const char configuration[] = POOL("quick", "") POOL("test", "quarantine = 600ms");

/* Holds pages of pool quick, and may have opened pool test too. */
struct holder {
	bool opens_test_pool;
	const char *join_token;
};

static void
hold_pages(int from, int to, void *argument)
{
	const struct holder *holder = argument;
	struct paged_client_params params = { .struct_size = sizeof(params), .join_token = holder->join_token };
	struct paged_pool *other;
	struct worker_fixture worker;
	char word;

	worker_attach(&worker, &params);
	worker_ok(&worker, paged_pool_open(worker.client, "quick", &worker.pool));
	if (holder->opens_test_pool)
		worker_ok(&worker, paged_pool_open(worker.client, "test", &other));
	if (holder->join_token == NULL)
		worker_create_seq(&worker, 20);
	it_send(to, "h", 1);
	it_receive(from, &word, 1);
	worker_close(&worker);
}

static void
holder_start(struct it_worker *child, struct holder *holder)
{
	char word;

	it_fork(child, hold_pages, holder);
	it_receive(child->from, &word, 1);
	it_require(wire_peer_pool_entry().n_referenced == N_HELD_PAGES);
}

/* Wait until all pages are free, WAIT_MS after `began` at least.  The accounting is consistent at every moment. */
static void
wait_pages_free(uint64_t began)
{
	struct paged_pool_entry pool;
	int code;

	for (;;) {
		pool = wire_peer_pool_entry();
		it_require(pool.n_free + pool.n_referenced + pool.n_quarantined == 64);
		if (pool.n_free == 64)
			break;
		it_require(pool.n_free == 64 - N_HELD_PAGES, "%u are free", pool.n_free);
		it_require(it_now_ms() - began < IT_LIMIT_MS);
		it_pagedctl(&code, "check", NULL);
		it_require(code == 0);
	}
	it_require(it_now_ms() - began >= WAIT_MS, "it waits for the longest of what it opened");
}

IT_TEST(pages_of_a_killed_worker_are_quarantined)
{
	struct holder holder = { .opens_test_pool = true };
	struct it_worker child;
	struct it_daemon daemon;
	uint64_t began;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	holder_start(&child, &holder);
	began = it_now_ms();
	it_kill(&child);
	wait_pages_free(began);
	it_daemon_stop(&daemon);
}

/* No quarantine for a member that did not open the pool, or that closed its client. */
IT_TEST(quarantine_is_limited_to_its_pool)
{
	struct holder holder = { .opens_test_pool = false };
	struct it_worker child;
	struct it_daemon daemon;

	it_daemon_start(&daemon, POOL("quick", "") POOL("test", "quarantine = 60min"), NULL, NULL);
	holder_start(&child, &holder);
	it_kill(&child);
	it_require(wire_peer_wait_free(64));
	holder.opens_test_pool = true;
	holder_start(&child, &holder);
	it_send(child.to, "c", 1);
	it_join(&child);
	it_require(wire_peer_pool_entry().n_free == 64, "a clean close has given everything back");
	it_daemon_stop(&daemon);
}

/* A killed rank quarantines its session's pages, although the first member closes its client. */
IT_TEST(killed_rank_quarantines_its_session)
{
	struct holder holder = { .opens_test_pool = true };
	struct it_worker rank;
	struct it_daemon daemon;
	struct worker_fixture worker;
	uint64_t began;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	worker_attach(&worker, NULL);
	worker_ok(&worker, paged_pool_open(worker.client, "quick", &worker.pool));
	worker_create_seq(&worker, 20);
	holder.join_token = paged_client_join_token(worker.client);
	holder_start(&rank, &holder);
	began = it_now_ms();
	it_kill(&rank);
	worker_close(&worker);
	wait_pages_free(began);
	it_daemon_stop(&daemon);
}

IT_TEST(stop_ignores_the_quarantine)
{
	struct holder holder = { .opens_test_pool = true };
	struct it_worker child;
	struct it_daemon daemon;

	it_daemon_start(&daemon, POOL("quick", "") POOL("test", "quarantine = 1000000ms"), NULL, NULL);
	holder_start(&child, &holder);
	it_kill(&child);
	it_daemon_stop(&daemon);
}

IT_MAIN
