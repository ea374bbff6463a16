/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon that does not answer: publishes never wait, what was created too late is undone, waits end. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "client/api/objects.h"
#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define N_TOKENS 40u /* 10 pages */

static uint32_t tokens[N_TOKENS];

static struct paged_prefix
prefix_of(size_t n)
{
	for (uint32_t i = 0; i < N_TOKENS; i++)
		tokens[i] = 3 * i;
	return (struct paged_prefix){ .struct_size = sizeof(struct paged_prefix), .tokens = tokens, .n_tokens = n };
}

static void
publish(struct worker_fixture *worker, paged_seq_id seq, size_t n)
{
	struct paged_prefix prefix = prefix_of(n);

	worker_ok(worker, paged_seq_publish(worker->pool, 1, &(struct paged_publish){ .seq = seq, .prefix = &prefix }));
}

static uint32_t
match(struct worker_fixture *worker)
{
	struct paged_prefix prefix = prefix_of(N_TOKENS);
	uint32_t n;

	worker_ok(worker, paged_prefix_match(worker->pool, &prefix, &n));
	return n;
}

/*
 * Four publishes are sent while the daemon stands still; the others return at once and are not lost.  One that waited
 * for the daemon would fail by its time limit.
 */
IT_TEST(publishes_never_wait)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	paged_seq_id seq;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, N_TOKENS);
	kill(daemon.pid, SIGSTOP);
	for (uint32_t n = 4; n <= N_TOKENS; n += 4)
		publish(&worker, seq, n);
	it_require(match(&worker) == 0);
	kill(daemon.pid, SIGCONT);
	worker_ok(&worker, paged_client_ping(worker.client));
	it_require(match(&worker) == 16, "%u tokens are published", match(&worker));
	publish(&worker, seq, N_TOKENS);
	worker_ok(&worker, paged_client_ping(worker.client));
	it_require(match(&worker) == N_TOKENS, "%u tokens are published", match(&worker));
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* While another thread waits for the daemon and holds the client's mutex, a publish returns. */
static bool
is_locked(void *mutex)
{
	if (pthread_mutex_trylock(mutex) == EBUSY)
		return true;
	pthread_mutex_unlock(mutex);
	return false;
}

static void *
ping(void *argument)
{
	struct worker_fixture *worker = argument;

	worker_ok(worker, paged_client_ping(worker->client));
	return NULL;
}

IT_TEST(publishes_do_not_wait_for_other_threads)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	pthread_t thread;
	paged_seq_id seq;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, N_TOKENS);
	kill(daemon.pid, SIGSTOP);
	it_require(pthread_create(&thread, NULL, ping, &worker) == 0);
	it_require(it_wait(is_locked, &worker.client->mutex));
	publish(&worker, seq, N_TOKENS);
	kill(daemon.pid, SIGCONT);
	pthread_join(thread, NULL);
	publish(&worker, seq, N_TOKENS);
	worker_ok(&worker, paged_client_ping(worker.client));
	it_require(match(&worker) == N_TOKENS, "%u tokens are published", match(&worker));
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

static bool
has_one_sequence(void *argument)
{
	return worker_pool_entry(argument, "test").n_sequences == 1;
}

/* Forks and starts whose replies come too late leave no sequences. */
IT_TEST(late_forks_and_starts_are_undone)
{
	struct worker_fixture worker, observer;
	struct paged_prefix prefix = prefix_of(N_TOKENS);
	struct paged_start start = { .prefix = &prefix, .reserve = N_TOKENS };
	paged_seq_id seq, late[2] = { 0 };
	struct it_daemon daemon;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_observe(&observer);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, N_TOKENS);
	publish(&worker, seq, 20);
	worker_ok(&worker, paged_client_ping(worker.client));
	kill(daemon.pid, SIGSTOP);
	worker_set_timeout(&worker, 100);
	worker_expect(&worker,
		      paged_batch_fork(worker.batch, 2, (paged_seq_id[]){ seq, seq }, (uint32_t[]){ 9, 39 }, late),
		      PAGED_ERR_TIMEOUT);
	worker_expect(&worker, paged_seq_start(worker.pool, 1, &start, late, NULL), PAGED_ERR_TIMEOUT);
	it_require(late[0] == 0 && late[1] == 0, "nothing is written unless the call succeeds");
	kill(daemon.pid, SIGCONT);
	worker_set_timeout(&worker, IT_LIMIT_MS);
	worker_ok(&worker, paged_client_ping(worker.client));
	it_require(it_wait(has_one_sequence, &observer), "%u sequences",
		   worker_pool_entry(&observer, "test").n_sequences);
	it_require(worker_pool_entry(&observer, "test").n_referenced == 10);
	worker_check_pool(&observer);
	worker_close(&worker);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/* A worker sleeps until another one has published the prompt that it needs, or until the daemon has ended. */
static void
wait_twice(int from, int to, void *argument)
{
	struct paged_prefix prefix = prefix_of(N_TOKENS);
	struct worker_fixture worker;

	(void)from, (void)argument;
	worker_open(&worker, NULL, 0);
	it_send(to, "", 1);
	worker_ok(&worker, paged_prefix_wait(worker.pool, &prefix, 20, IT_LIMIT_MS));
	it_require(match(&worker) == 20);
	it_send(to, "", 1);
	worker_expect(&worker, paged_prefix_wait(worker.pool, &prefix, N_TOKENS, IT_LIMIT_MS), PAGED_ERR_GONE);
	worker_close(&worker);
}

IT_TEST(waits_end_with_a_publish_or_with_the_daemon)
{
	struct worker_fixture worker;
	struct it_worker waiting;
	struct it_daemon daemon;
	paged_seq_id seq;
	char word;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	it_fork(&waiting, wait_twice, NULL);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, N_TOKENS);
	it_receive(waiting.from, &word, 1);
	for (size_t n = 4; n <= 20; n += 4) {
		publish(&worker, seq, n);
		worker_ok(&worker, paged_client_ping(worker.client));
	}
	it_receive(waiting.from, &word, 1);
	it_daemon_kill(&daemon);
	it_join(&waiting);
	worker_close(&worker);
}

IT_MAIN
