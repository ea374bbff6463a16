/* SPDX-License-Identifier: Apache-2.0 */
/* A client under signals, in a poll loop, and with many threads. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/pagedclient.h"
#include "tests/support/geometry.h"
#include "tests/support/wire_peer.h"
#include "tests/support/sequences.h"

static struct it_daemon daemon_;

static void
count_signal(int signal)
{
	(void)signal;
}

/* A timer signal without SA_RESTART interrupts every call that can sleep. */
static void
start_signal_timer(long interval_us)
{
	const struct sigaction action = { .sa_handler = count_signal };
	const struct itimerval timer = { { 0, interval_us }, { 0, interval_us } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static unsigned int
count_threads(void)
{
	unsigned int n = 0;
	char line[128];
	FILE *file = fopen("/proc/self/status", "re");

	it_require(file != NULL);
	while (fgets(line, sizeof(line), file) != NULL)
		sscanf(line, "Threads: %u", &n);
	fclose(file);
	return n;
}

IT_TEST(interrupted_calls_leak_nothing)
{
	unsigned int fds = 0, threads = 0;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	for (int i = 0; i < 301; i++) {
		struct paged_client *client;
		struct paged_pool *pool;
		paged_seq_id id;

		if (i == 1) {
			fds = it_count_fds(getpid());
			threads = count_threads();
			start_signal_timer(150);
		}
		it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK, "%s", paged_client_error(client));
		it_require(paged_pool_open(client, "p", &pool) == PAGED_OK, "%s", paged_client_error(client));
		it_require(seqs_create(client, pool, 1, &id) == PAGED_OK, "%s", paged_client_error(client));
		paged_client_close(client);
	}
	start_signal_timer(0);
	it_require(it_count_fds(getpid()) == fds, "%u descriptors, %u before", it_count_fds(getpid()), fds);
	it_require(count_threads() == threads, "%u threads, %u before", count_threads(), threads);
	it_daemon_stop(&daemon_);
}

static bool
is_readable(struct paged_client *client)
{
	struct pollfd polled = { .fd = paged_client_fd(client), .events = POLLIN };

	return poll(&polled, 1, 0) > 0;
}

static bool
dispatch_clears(void *client)
{
	it_require(paged_client_dispatch(client) == PAGED_OK);
	return !is_readable(client);
}

IT_TEST(dispatch_clears_the_client_fd)
{
	struct paged_client *client;
	struct paged_pool *pool;
	paged_seq_id id;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK);
	it_require(paged_pool_open(client, "p", &pool) == PAGED_OK);
	for (int i = 0; i < 50; i++) {
		if (i % 2)
			it_require(seqs_create(client, pool, 1, &id) == PAGED_OK &&
				   paged_seq_erase(client, 1, &id) == PAGED_OK);
		/* ZeroMQ's thread may have something to say after the call. */
		it_require(it_wait(dispatch_clears, client), "turn %d", i);
	}
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}

/* Threads make all calls that one client allows concurrently. */
static struct paged_client *shared_client;
static _Atomic bool threads_stop;

#define shared_ok(call)                                                                                              \
	do {                                                                                                         \
		enum paged_status status_ = (call);                                                                  \
		it_require(status_ == PAGED_OK || status_ == PAGED_ERR_FULL || status_ == PAGED_ERR_AGAIN, "%s: %s", \
			   paged_status_name(status_), paged_client_error(shared_client));                           \
	} while (0)

static void *
thread_sequences(void *argument)
{
	struct paged_pool *pool = argument;
	uint32_t tokens[2] = { 9, 5 };
	paged_seq_id id[2];

	while (!threads_stop) {
		if (seqs_create(shared_client, pool, 2, id) != PAGED_OK)
			continue;
		shared_ok(seqs_reserve(shared_client, 2, id, tokens));
		shared_ok(paged_seq_read(pool, id[0], NULL, NULL, 0));
		shared_ok(paged_seq_erase(shared_client, 2, id));
		it_require(paged_seq_erase(shared_client, 2, id) == PAGED_ERR_STALE);
		it_require(strstr(paged_client_error(shared_client), "has ended") != NULL);
	}
	return NULL;
}

static void *
thread_batches(void *argument)
{
	struct paged_pool *pool = argument;
	const struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = 2, .reserve_ahead = 8 };
	float kv[32] = { 1 }, q[32] = { 1 }, out[32];
	struct paged_tensor k = { .data = kv, .dtype = PAGED_F32, .n_heads = 1, .dim = 32 }, in = k, result = k;

	in.data = q;
	result.data = out;
	while (!threads_stop) {
		struct paged_batch_row row = { .q_len = 1 };
		struct paged_batch *batch;

		if (seqs_create(shared_client, pool, 1, &row.seq) != PAGED_OK)
			continue;
		shared_ok(paged_batch_create(pool, &params, &batch));
		for (row.kv_len = 1; row.kv_len <= 24; row.kv_len++) {
			enum paged_status status = paged_batch_plan(batch, 1, &row);

			shared_ok(status);
			if (status != PAGED_OK)
				break;
			shared_ok(paged_append(batch, 0, &k, &k, NULL));
			shared_ok(paged_attention(batch, 0, &in, &result, NULL));
			shared_ok(paged_batch_validate(batch));
		}
		paged_batch_destroy(batch);
		shared_ok(paged_seq_erase(shared_client, 1, &row.seq));
	}
	return NULL;
}

static void *
thread_queries(void *argument)
{
	struct paged_check_result result = { .struct_size = sizeof(result) };
	struct paged_session_entry *sessions;
	struct paged_daemon_info info = { .struct_size = sizeof(info) };
	struct paged_pool *pool;
	size_t n;

	(void)argument;
	while (!threads_stop) {
		shared_ok(paged_client_dispatch(shared_client));
		shared_ok(paged_admin_status(shared_client, &info));
		shared_ok(paged_admin_sessions(shared_client, sizeof(*sessions), &sessions, &n));
		paged_free(sessions);
		shared_ok(paged_admin_check(shared_client, "p", &result));
		it_require(result.holds == 1, "%s", result.text);
		shared_ok(paged_pool_open(shared_client, "p", &pool));
		shared_ok(paged_pool_check(pool, &result));
		it_require(result.holds == 1, "%s", result.text);
		paged_pool_close(pool);
		it_require(paged_pool_open(shared_client, "nope", &pool) == PAGED_ERR_NOENT);
		it_require(strstr(paged_client_error(shared_client), "nope") != NULL);
	}
	return NULL;
}

IT_TEST(threads_share_one_client)
{
	const struct paged_client_params params = { .struct_size = sizeof(params), .n_threads = 2 };
	void *(*const run[])(void *) = { thread_sequences, thread_sequences, thread_batches,
					 thread_batches,   thread_queries,   thread_queries };
	pthread_t thread[6];
	struct paged_pool *pool;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	it_require(paged_client_open(NULL, &params, &shared_client) == PAGED_OK);
	it_require(paged_pool_open(shared_client, "p", &pool) == PAGED_OK);
	for (int i = 0; i < 6; i++)
		it_require(pthread_create(&thread[i], NULL, run[i], pool) == 0);
	usleep(1500000);
	threads_stop = true;
	for (int i = 0; i < 6; i++)
		pthread_join(thread[i], NULL);
	paged_client_close(shared_client);
	it_require(wire_peer_pool_entry().n_free == SMALL_POOL_PAGES);
	it_daemon_stop(&daemon_);
}

IT_MAIN
