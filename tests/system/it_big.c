/* SPDX-License-Identifier: Apache-2.0 */
/* Ten million small pages and a hundred thousand slots: the daemon's memory besides the pool. */
#include "config.h"

#include <stdio.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define LIMIT_KIB (64ul << 10)
#define NEEDS_KIB (4ul << 20)

/* 64 bytes a page: 610 MiB, which pagedd does not keep mapped. */
static const char configuration[] = "pool test {\n"
				    "    layers = 1\n kv-heads = 1\n k-dim = 16\n v-dim = 16\n v-in-k = yes\n"
				    "    dtype = f16\n page-size = 1\n"
				    "    pages = 10000000\n sequences = 100000\n max-length = 8192\n"
				    "}\n";

static unsigned long
available_kib(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long kib = 0;
	char line[128];

	it_require(file != NULL, "/proc/meminfo: %m");
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "MemAvailable: %lu", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

/* Resident memory of the daemon: heap, program, and the touched pages of the table region. */
static unsigned long
daemon_rss_kib(const struct it_daemon *daemon, const char *when)
{
	unsigned long kib = it_rss_kib(daemon->pid);

	it_note("pagedd holds %lu KiB %s, %lu of it anonymous", kib, when, it_private_kib(daemon->pid));
	return kib;
}

/* Reserve n_tokens tokens in each of n_seqs sequences at once, then erase all. */
static void
reserve_and_erase(struct worker_fixture *worker, uint32_t n_seqs, uint32_t n_tokens)
{
	static paged_seq_id seqs[PAGED_MAX_REQUEST_SEQS];
	static uint32_t tokens[PAGED_MAX_REQUEST_SEQS];

	for (uint32_t i = 0; i < n_seqs; i++)
		tokens[i] = n_tokens;
	worker_ok(worker, seqs_create(worker->client, worker->pool, n_seqs, seqs));
	worker_ok(worker, seqs_reserve(worker->client, n_seqs, seqs, tokens));
	worker_ok(worker, paged_seq_erase(worker->client, n_seqs, seqs));
}

IT_TEST(ten_million_pages)
{
	unsigned long at_start, used, after_reuse;
	struct it_daemon daemon;
	struct worker_fixture worker;

	if (available_kib() < NEEDS_KIB)
		it_skip("%lu KiB of memory available, %lu needed", available_kib(), NEEDS_KIB);
	it_daemon_start(&daemon, configuration, NULL, NULL);
	at_start = daemon_rss_kib(&daemon, "at start");
	worker_attach(&worker, NULL);
	worker_ok(&worker, paged_pool_open(worker.client, "test", &worker.pool));
	it_require(worker_pool_entry(&worker, "test").n_free == 10000000);

	/* Daemon memory follows the largest use so far; using the same amount again adds nothing. */
	reserve_and_erase(&worker, 1000, 100);
	used = daemon_rss_kib(&daemon, "after 1000 sequences of 100 pages");
	for (int i = 0; i < 20; i++)
		reserve_and_erase(&worker, 1000, 100);
	after_reuse = daemon_rss_kib(&daemon, "after the same 20 times more");
	worker_check_pool(&worker);
	worker_close(&worker);
	if (it_sanitized()) {
		it_note("memory not judged: AddressSanitizer has its own");
	} else {
		it_require(at_start <= LIMIT_KIB && after_reuse <= LIMIT_KIB);
		it_require(after_reuse <= used + 1024, "%lu KiB more", after_reuse - used);
	}
	it_daemon_stop(&daemon);
}

IT_MAIN
