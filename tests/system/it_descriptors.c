/* SPDX-License-Identifier: Apache-2.0 */
/* Clients with few descriptors left: each call says what is lacking, and no process is aborted. */
#include "config.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/worker_fixture.h"

#define MOST 64 /* descriptors that a client surely has enough of */

static void
limit_descriptors(unsigned int n)
{
	struct rlimit limit;

	it_require(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = n;
	it_require(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* The lowest descriptor that is free. */
static unsigned int
first_free(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	it_require(fd >= 0);
	close(fd);
	return (unsigned int)fd;
}

/* Opens client and pool with `limit` descriptors; returns whether both succeed. */
static bool
opens_with(unsigned int limit, bool *pool_refused)
{
	struct paged_client *client;
	struct paged_pool *pool;
	enum paged_status status;

	limit_descriptors(limit);
	status = paged_client_open(NULL, NULL, &client);
	if (status == PAGED_OK) {
		status = paged_pool_open(client, "test", &pool);
		*pool_refused |= status != PAGED_OK;
	}
	it_require(status == PAGED_OK || (status == PAGED_ERR_SYSTEM &&
					  (strstr(paged_client_error(client), "Too many open files") != NULL ||
					   strstr(paged_client_error(client), "RLIMIT_NOFILE") != NULL)),
		   "with %u descriptors: %s: %s", limit, paged_status_name(status), paged_client_error(client));
	paged_client_close(client);
	limit_descriptors(1024);
	return status == PAGED_OK;
}

IT_TEST(a_lack_of_descriptors_is_called_so)
{
	bool pool_refused = false;
	struct it_daemon daemon;
	unsigned int n;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	for (n = first_free(); !opens_with(n, &pool_refused); n++)
		it_require(n < first_free() + MOST);
	it_require(pool_refused, "no limit lets a client open and no pool");
	it_daemon_stop(&daemon);
}

/* A client that has used up its descriptors since it was opened. */
IT_TEST(a_pool_needs_two_descriptors)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	unsigned int lowest;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_attach(&worker, NULL);
	lowest = first_free();
	for (unsigned int n = 0; n < 2; n++) {
		limit_descriptors(lowest + n);
		worker_expect(&worker, paged_pool_open(worker.client, "test", &worker.pool), PAGED_ERR_SYSTEM);
		it_require(strstr(paged_client_error(worker.client), "RLIMIT_NOFILE") != NULL, "%s",
			   paged_client_error(worker.client));
	}
	limit_descriptors(1024);
	worker_ok(&worker, paged_pool_open(worker.client, "test", &worker.pool));
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
