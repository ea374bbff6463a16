/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a worker that died become free only after the quarantine. */
#include "config.h"

#include <string.h>

#include "tests/support/wire_peer.h"
#include "tests/support/worker_fixture.h"

#define WAIT_MS 600u
#define PAGES 5u /* of 20 tokens */

#define POOL(name, more)                                                                    \
	"pool " name " { layers = 2 kv-heads = 2 head-dim = 32 dtype = f32 page-size = 4\n" \
	" pages = 64 sequences = 32 max-length = 128 " more " }\n"

static const char configuration[] = POOL("quick", "") POOL("toy", "quarantine = 600ms");

/* Holds pages of pool quick, and has opened toy as well or not. */
struct holder {
	bool opens_toy;
	const char *join_token;
};

static void
hold(int from, int to, void *argument)
{
	const struct holder *holder = argument;
	struct paged_client_params params = { .struct_size = sizeof(params), .join_token = holder->join_token };
	struct paged_pool *other;
	struct toy toy;
	char word;

	toy_attach(&toy, &params);
	toy_ok(&toy, paged_pool_open(toy.client, "quick", &toy.pool));
	if (holder->opens_toy)
		toy_ok(&toy, paged_pool_open(toy.client, "toy", &other));
	if (holder->join_token == NULL)
		toy_sequence(&toy, 20);
	it_say(to, "h", 1);
	it_hear(from, &word, 1);
	toy_close(&toy);
}

static void
holder_start(struct it_worker *worker, struct holder *holder)
{
	char word;

	it_fork(worker, hold, holder);
	it_hear(worker->from, &word, 1);
	it_require(raw_pool().n_referenced == PAGES);
}

/* Milliseconds until all pages are free; the accounting holds all the time. */
static uint64_t
pages_return_ms(void)
{
	uint64_t began = it_now_ms();
	struct paged_pool_entry pool;
	int code;

	for (;;) {
		pool = raw_pool();
		it_require(pool.n_free + pool.n_referenced + pool.n_quarantined == 64);
		if (pool.n_free == 64)
			return it_now_ms() - began;
		it_require(pool.n_free == 64 - PAGES, "%u are free", pool.n_free);
		it_require(it_now_ms() - began < 20000);
		it_pagedctl(&code, "check", NULL);
		it_require(code == 0);
	}
}

IT_TEST(pages_of_the_dead_wait)
{
	struct holder holder = { .opens_toy = true };
	struct it_worker worker;
	struct it_daemon daemon;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	holder_start(&worker, &holder);
	it_kill(&worker);
	it_require(pages_return_ms() >= WAIT_MS / 2, "it waits for the longest of what it opened");
	it_daemon_stop(&daemon);
}

/* Who opened no such pool cannot write to it; who says goodbye writes no more. */
IT_TEST(others_do_not_wait)
{
	struct holder holder = { .opens_toy = false };
	struct it_worker worker;
	struct it_daemon daemon;
	uint64_t began;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	holder_start(&worker, &holder);
	began = it_now_ms();
	it_kill(&worker);
	it_require(raw_wait_free(64, 5000));
	it_note("killed: %u ms", (unsigned int)(it_now_ms() - began));
	holder.opens_toy = true;
	holder_start(&worker, &holder);
	it_say(worker.to, "c", 1);
	it_join(&worker);
	it_require(raw_pool().n_free == 64, "a clean close has given everything back");
	it_daemon_stop(&daemon);
}

/* A rank that died holds up the pages of its session, though the first member leaves in good order. */
IT_TEST(a_dead_rank_counts)
{
	struct holder holder = { .opens_toy = true };
	struct it_worker rank;
	struct it_daemon daemon;
	struct toy toy;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	toy_attach(&toy, NULL);
	toy_ok(&toy, paged_pool_open(toy.client, "quick", &toy.pool));
	toy_sequence(&toy, 20);
	holder.join_token = paged_client_join_token(toy.client);
	holder_start(&rank, &holder);
	it_kill(&rank);
	toy_close(&toy);
	it_require(pages_return_ms() >= WAIT_MS / 2);
	it_daemon_stop(&daemon);
}

IT_TEST(stopping_does_not_wait)
{
	struct holder holder = { .opens_toy = true };
	struct it_worker worker;
	struct it_daemon daemon;

	it_daemon_start(&daemon, POOL("quick", "") POOL("toy", "quarantine = 1000000ms"), NULL, NULL);
	holder_start(&worker, &holder);
	it_kill(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
