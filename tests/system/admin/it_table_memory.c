/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of page tables in a real daemon: forks fill no more than table-memory, and give it back. */
#include "config.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/harness.h"
#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define LENGTH 524288u /* pages of a token: a page table of 2 MiB */
#define N_FORKS 2000u
#define TABLE_MEMORY (40u << 20)
#define TABLE (4 * (uint64_t)LENGTH)
#define REMAINDER (68u << 10) /* of an ended page table that may be kept */

static const char config[] = "pool test { layers = 1 kv-heads = 1 head-dim = 8 page-size = 1 pages = 600000\n"
			     "sequences = 4096 max-length = 524288 table-memory = 40MiB }\n"
			     "pool other { layers = 1 kv-heads = 1 head-dim = 8 pages = 1000 }\n";

static struct it_daemon daemon_;
static paged_seq_id children[N_FORKS];

/* Bytes of the pool's region that the kernel has allocated. */
static uint64_t
region_allocated(void)
{
	char path[300], target[64];
	struct dirent *entry;
	uint64_t n = 0;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)daemon_.pid);
	fds = opendir(path);
	it_require(fds != NULL, "%m");
	while ((entry = readdir(fds)) != NULL) {
		struct stat file;
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)daemon_.pid, entry->d_name);
		length = readlink(path, target, sizeof(target) - 1);
		target[length < 0 ? 0 : length] = '\0';
		if (strcmp(target, "/memfd:test (deleted)") == 0 && stat(path, &file) == 0)
			n = (uint64_t)file.st_blocks * 512;
	}
	closedir(fds);
	it_require(n > 0, "no descriptor of the region");
	return n;
}

static bool
region_is_at_most(void *argument)
{
	return region_allocated() <= *(const uint64_t *)argument;
}

static void
expect_region_falls_to(uint64_t most)
{
	it_require(it_wait(region_is_at_most, &most), "%" PRIu64 " KiB, expected %" PRIu64, region_allocated() >> 10,
		   most >> 10);
}

/* Forks until a fork is refused; returns how many there were before. */
static uint32_t
fork_all(struct worker_fixture *worker, paged_seq_id parent)
{
	const uint32_t n_tokens = LENGTH;
	uint32_t n = 0, n_refused = 0;

	for (uint32_t i = 0; i < N_FORKS; i++) {
		enum paged_status status = paged_batch_fork(worker->batch, 1, &parent, &n_tokens, &children[n]);

		if (status == PAGED_OK) {
			n++;
			continue;
		}
		it_require(status == PAGED_ERR_FULL && strstr(paged_client_error(worker->client), "(table-memory)"),
			   "%s", paged_client_error(worker->client));
		n_refused++;
	}
	it_require(n + n_refused == N_FORKS);
	return n;
}

static void
expect_others_go_on(struct worker_fixture *worker)
{
	paged_seq_id seq = worker_create_seq(worker, 1000);

	worker_ok(worker, seqs_reserve(worker->client, 1, &seq, (uint32_t[]){ 20000 }));
	worker_ok(worker, paged_seq_erase(worker->client, 1, &seq));
}

static void
forking_worker(int from, int to, void *argument)
{
	struct worker_fixture worker;
	paged_seq_id parent;
	uint32_t n;

	(void)from, (void)argument;
	worker_open(&worker, NULL, 0);
	parent = worker_create_seq(&worker, LENGTH);
	n = fork_all(&worker, parent);
	it_send(to, &n, sizeof(n));
	for (;;)
		pause();
}

IT_TEST(forks_fill_no_more_than_table_memory)
{
	struct worker_fixture worker, other;
	struct paged_pool_totals totals = { .struct_size = sizeof(totals) };
	struct paged_pool_entry entry;
	uint64_t before;
	paged_seq_id parent;
	uint32_t n;

	it_daemon_start(&daemon_, config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_open(&other, NULL, 0);
	parent = worker_create_seq(&worker, LENGTH);
	before = region_allocated();
	n = fork_all(&worker, parent);
	it_require(n >= 17 && n <= 18, "%u forks", n);
	it_require(region_allocated() <= before + TABLE_MEMORY && region_allocated() >= before + n * TABLE,
		   "%" PRIu64 " KiB", region_allocated() >> 10);
	entry = worker_pool_entry(&other, "test");
	it_require(entry.table_limit == TABLE_MEMORY && entry.table_used >= (n + 1) * TABLE &&
		   entry.table_populated >= entry.table_used && entry.table_populated <= entry.table_limit);
	worker_ok(&other, paged_pool_get_totals(other.pool, &totals));
	it_require(totals.table_used == entry.table_used && totals.table_limit == TABLE_MEMORY);
	expect_others_go_on(&other);
	worker_check_pool(&other);
	/* What ends is given back, and can be used again. */
	worker_ok(&worker, paged_seq_erase(worker.client, n - 2, children));
	expect_region_falls_to(before + 3 * TABLE);
	it_require(fork_all(&worker, parent) == n - 2);
	worker_check_pool(&other);
	worker_close(&worker);
	expect_region_falls_to(before - TABLE + 20 * REMAINDER);
	expect_others_go_on(&other);
	worker_close(&other);
	it_daemon_stop(&daemon_);
}

IT_TEST(page_tables_of_a_killed_worker_are_given_back)
{
	struct worker_fixture observer;
	struct it_worker child;
	uint64_t before;
	uint32_t n;

	it_daemon_start(&daemon_, config, NULL, NULL);
	before = region_allocated();
	it_fork(&child, forking_worker, NULL);
	it_receive(child.from, &n, sizeof(n));
	it_require(region_allocated() > before + n * TABLE);
	it_kill(&child);
	worker_observe(&observer);
	worker_wait_free(&observer, "test");
	/* The counts of pages stay. */
	expect_region_falls_to(before + 600000 * 8 + (n + 2) * REMAINDER);
	worker_check_pool(&observer);
	worker_close(&observer);
	it_daemon_stop(&daemon_);
}

/* Runs --check-config; returns its output. */
static const char *
check(int expected)
{
	const char *argv[] = { "daemon/pagedd",
			       "--check-config",
			       "--config",
			       daemon_.config,
			       "--runtime-dir",
			       getenv("PAGED_RUNTIME_DIR"),
			       NULL };
	const char *output;
	int code;

	output = it_command(&code, argv);
	it_require(code == expected, "%d: %s", code, output);
	return output;
}

/* MiB that --check-config advises with these settings. */
static unsigned
advice(const char *settings)
{
	const char *found;
	unsigned n = 0;

	it_daemon_start(&daemon_, settings, NULL, NULL);
	found = strstr(check(0), "MemoryMax=");
	it_require(found != NULL && sscanf(found, "MemoryMax=%uM", &n) == 1);
	it_daemon_stop(&daemon_);
	return n;
}

/* Each tenant has a count of 4 bytes for each of 600,000 pages: two have 4.6 MiB.  A share of the cache takes 6.9. */
IT_TEST(tenants_are_in_the_advice)
{
	char settings[1024];
	unsigned n = advice(config), n_tenants, n_limited;

	snprintf(settings, sizeof(settings), "%stenant a { allow-user = 61001 }\ntenant b { allow-user = 61002 }\n",
		 config);
	n_tenants = advice(settings);
	it_require(n_tenants >= n + 4, "%u and %u MiB", n, n_tenants);
	snprintf(settings, sizeof(settings),
		 "%stenant a { allow-user = 61001 }\ntenant b { allow-user = 61002 limit test = 50%% }\n", config);
	n_limited = advice(settings);
	it_require(n_limited >= n_tenants + 6, "%u and %u MiB", n_tenants, n_limited);
}

IT_TEST(check_config_says_how_much_memory_a_pool_takes)
{
	const char *output;

	it_daemon_start(&daemon_, config, NULL, NULL);
	output = check(0);
	it_require(strstr(output,
			  "pool test: page tables of at most 40 MiB (table-memory), 8208 MiB if all 4096 sequences "
			  "had max-length; index and lists of at most ") != NULL &&
			   strstr(output, ", and 2343 KiB more for each user of no tenant but the first\n") != NULL &&
			   strstr(output, "host memory of all pools and the daemon: MemoryMax=") != NULL,
		   "%s", output);
	it_daemon_stop(&daemon_);
	output = it_daemon_start_failing(
		&daemon_, "pool test { layers = 1 kv-heads = 1 head-dim = 8 page-size = 1 pages = 600000\n"
			  "max-length = 524288 table-memory = 1MiB }\n");
	it_require(strstr(output, "pagedd.conf:2: pool test: table-memory = 1MiB: the page table of a sequence of "
				  "max-length (524288) takes 2052 KiB\n") != NULL,
		   "%s", output);
	output = it_daemon_start_failing(
		&daemon_, "pool test { layers = 1 kv-heads = 1 head-dim = 8 page-size = 1 pages = 600000\n"
			  "max-length = 524288 sequences = 4000000 table-memory = 5TiB }\n");
	it_require(strstr(output, "of page tables and lists (table-memory, sequences); the ") != NULL, "%s", output);
}

IT_MAIN
