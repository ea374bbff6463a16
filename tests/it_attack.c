/* SPDX-License-Identifier: Apache-2.0 */
/* What a permitted user can do to a daemon and to its other users, and what signals do to the library. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/pagedclient.h"
#include "tests/raw.h"

#define POOL "pool p { layers = 1 kv-heads = 1 head-dim = 32 pages = 64 page-size = 4 sequences = 8 }\n"

static struct it_daemon daemon_;

static void
tick(int signal)
{
	(void)signal;
}

/* Signals without SA_RESTART all the time: every call that can sleep is interrupted. */
static void
ticking(long interval_us)
{
	const struct sigaction action = { .sa_handler = tick };
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

IT_TEST(a_client_under_signals_leaves_nothing)
{
	unsigned int fds = 0, threads = 0;

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	for (int i = 0; i < 301; i++) {
		struct paged_client *client;
		struct paged_pool *pool;
		paged_seq_id id;

		if (i == 1) {
			fds = it_count_fds(getpid());
			threads = count_threads();
			ticking(150);
		}
		it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK, "%s", paged_client_error(client));
		it_require(paged_pool_open(client, "p", &pool) == PAGED_OK, "%s", paged_client_error(client));
		it_require(paged_seq_create(pool, 1, &id) == PAGED_OK, "%s", paged_client_error(client));
		paged_client_close(client);
	}
	ticking(0);
	it_require(it_count_fds(getpid()) == fds, "%u descriptors, %u before", it_count_fds(getpid()), fds);
	it_require(count_threads() == threads, "%u threads, %u before", count_threads(), threads);
	it_daemon_stop(&daemon_);
}

IT_TEST(a_name_that_cannot_be_costs_no_session)
{
	struct paged_client *client;
	struct paged_pool *pool;

	it_daemon_start(&daemon_, POOL, NULL, NULL);
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK);
	it_require(paged_pool_open(client, "p\n", &pool) == PAGED_ERR_INVALID, "%s", paged_client_error(client));
	it_require(paged_pool_open(client, "p", &pool) == PAGED_OK, "%s", paged_client_error(client));
	paged_client_close(client);
	it_daemon_stop(&daemon_);
}
