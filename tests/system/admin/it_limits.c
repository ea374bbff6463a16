/* SPDX-License-Identifier: Apache-2.0 */
/* The largest requests, listings that take several replies, and requests over several pools. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "tests/support/wire_peer.h"
#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define MAX_SEQS PAGED_MAX_REQUEST_SEQS

static const char configuration[] = "pool big { layers = 1 kv-heads = 1 head-dim = 16 dtype = f16 page-size = 1\n"
				    " pages = 40000 sequences = 5000 max-length = 20000 }\n"
				    "pool small { layers = 1 kv-heads = 1 head-dim = 16 dtype = f16 page-size = 4\n"
				    " pages = 10 sequences = 16 max-length = 64 }\n";

static void
pool_open(struct worker_fixture *worker, const char *name)
{
	worker_attach(worker, NULL);
	worker_ok(worker, paged_pool_open(worker->client, name, &worker->pool));
}

IT_TEST(requests_of_the_largest_size)
{
	static paged_seq_id seqs[MAX_SEQS + 1];
	static uint32_t tokens[MAX_SEQS + 1];
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_seq_entry *list;
	struct it_daemon daemon;
	struct worker_fixture worker;
	size_t n;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	pool_open(&worker, "big");
	worker_expect(&worker, seqs_create(worker.client, worker.pool, MAX_SEQS + 1, seqs), PAGED_ERR_LIMIT);
	worker_ok(&worker, seqs_create(worker.client, worker.pool, MAX_SEQS, seqs));
	for (uint32_t i = 0; i < MAX_SEQS; i++)
		tokens[i] = i % 9;
	worker_ok(&worker, seqs_reserve(worker.client, MAX_SEQS, seqs, tokens));
	for (uint32_t i = 0; i < MAX_SEQS; i++) {
		worker_ok(&worker, paged_seq_read(worker.pool, seqs[i], &info, NULL, 0));
		it_require(info.capacity == tokens[i]);
	}

	/* The request is atomic: the last sequence does not fit. */
	for (uint32_t i = 0; i < MAX_SEQS; i++)
		tokens[i] = i % 9 + 1;
	seqs[MAX_SEQS] = seqs[MAX_SEQS - 1];
	seqs[MAX_SEQS - 1] = seqs[0];
	worker_expect(&worker, seqs_reserve(worker.client, MAX_SEQS, seqs, tokens), PAGED_ERR_INVALID);
	seqs[MAX_SEQS - 1] = seqs[MAX_SEQS];
	tokens[MAX_SEQS - 1] = 30000;
	worker_expect(&worker, seqs_reserve(worker.client, MAX_SEQS, seqs, tokens), PAGED_ERR_LIMIT);
	worker_ok(&worker, paged_seq_read(worker.pool, seqs[1], &info, NULL, 0));
	it_require(info.capacity == 1, "%u", info.capacity);

	worker_ok(&worker, paged_admin_sequences(worker.client, "big", sizeof(*list), &list, &n));
	it_require(n == MAX_SEQS, "%zu", n);
	for (uint32_t i = 0; i < MAX_SEQS; i++)
		it_require(list[i].seq == seqs[i] && list[i].capacity == i % 9);
	paged_free(list);
	worker_ok(&worker, paged_seq_erase(worker.client, MAX_SEQS, seqs));
	it_require(worker_pool_entry(&worker, "big").n_free == 40000);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(page_table_spans_several_replies)
{
	static uint32_t mapped[20000];
	uint32_t tokens = 20000, *told;
	struct paged_seq_entry entry;
	struct it_daemon daemon;
	paged_seq_id seq;
	struct worker_fixture worker;
	size_t n;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	pool_open(&worker, "big");
	seq = worker_create_seq(&worker, tokens);
	worker_ok(&worker, paged_seq_read(worker.pool, seq, NULL, mapped, 20000));
	worker_ok(&worker, paged_admin_table(worker.client, seq, sizeof(entry), &entry, &told, &n));
	it_require(n == 20000 && entry.seq == seq && entry.n_pages == 20000, "%zu", n);
	it_require(memcmp(mapped, told, sizeof(mapped)) == 0);
	paged_free(told);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* One process has at most 64 members. */
enum { N_HOLDERS = 6, SESSIONS_EACH = 50 };

static void
hold_sessions(int from, int to, void *argument)
{
	struct wire_control_reply reply;
	char word;

	(void)argument;
	for (int i = 0; i < SESSIONS_EACH; i++) {
		wire_peer_hello(wire_peer_connect_control(), WIRE_ROLE_SESSION, NULL, &reply);
		it_require(reply.kind == WIRE_WELCOME, "%d: %s", i, reply.refusal.text);
	}
	it_send(to, "", 1);
	it_receive(from, &word, 1);
}

IT_TEST(session_list_spans_several_replies)
{
	struct it_worker holders[N_HOLDERS];
	struct paged_session_entry *list;
	struct it_daemon daemon;
	struct worker_fixture worker;
	int n_own = 0;
	char word;
	size_t n;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	for (int i = 0; i < N_HOLDERS; i++)
		it_fork(&holders[i], hold_sessions, NULL);
	for (int i = 0; i < N_HOLDERS; i++)
		it_receive(holders[i].from, &word, 1);
	worker_attach(&worker, NULL);
	worker_ok(&worker, paged_admin_sessions(worker.client, sizeof(*list), &list, &n));
	it_require(n == N_HOLDERS * SESSIONS_EACH + 1, "%zu", n);
	for (size_t i = 0; i < n; i++) {
		n_own += list[i].session == paged_client_session(worker.client);
		it_require(i == 0 || list[i].session > list[i - 1].session);
	}
	it_require(n_own == 1);
	paged_free(list);
	worker_close(&worker);
	for (int i = 0; i < N_HOLDERS; i++) {
		it_send(holders[i].to, "", 1);
		it_join(&holders[i]);
	}
	it_daemon_stop(&daemon);
}

IT_TEST(reserve_over_two_pools_is_atomic)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_seq_item items[2];
	struct paged_pool *small;
	struct it_daemon daemon;
	struct worker_fixture worker;

	it_daemon_start(&daemon, configuration, NULL, NULL);
	pool_open(&worker, "big");
	worker_ok(&worker, paged_pool_open(worker.client, "small", &small));
	items[0] = (struct paged_seq_item){ .n_tokens = 100 };
	items[1] = (struct paged_seq_item){ .n_tokens = 41 };
	worker_ok(&worker, seqs_create(worker.client, worker.pool, 1, &items[0].seq));
	worker_ok(&worker, seqs_create(worker.client, small, 1, &items[1].seq));
	worker_expect(&worker, paged_seq_reserve(worker.client, 2, items), PAGED_ERR_FULL);
	it_require(strstr(paged_client_error(worker.client), "pool small: 11 pages requested, 10 free") != NULL, "%s",
		   paged_client_error(worker.client));
	it_require(worker_pool_entry(&worker, "big").n_free == 40000, "the other pool gave pages all the same");
	items[1].n_tokens = 40;
	worker_ok(&worker, paged_seq_reserve(worker.client, 2, items));
	worker_ok(&worker, paged_seq_read(worker.pool, items[0].seq, &info, NULL, 0));
	it_require(info.capacity == 100);
	it_require(worker_pool_entry(&worker, "small").n_free == 0);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
