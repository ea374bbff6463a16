/* SPDX-License-Identifier: Apache-2.0 */
/* Rows read while they change, and one client used by several threads. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define RACE_MS 1000
#define ROW_PAGES (WORKER_MAX_LENGTH / WORKER_PAGE_SIZE)

static int
compare_pages(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

/* A consistent snapshot of a page table contains no page twice and none outside the pool. */
static void
page_table_check(const struct paged_seq_info *info, uint32_t *pages)
{
	it_require(info->capacity == info->n_pages * WORKER_PAGE_SIZE && info->n_pages <= ROW_PAGES,
		   "%u tokens, %u pages", info->capacity, info->n_pages);
	qsort(pages, info->n_pages, sizeof(*pages), compare_pages);
	for (uint32_t i = 0; i < info->n_pages; i++) {
		it_require(pages[i] < WORKER_PAGES, "page %u", pages[i]);
		it_require(i == 0 || pages[i] != pages[i - 1], "page %u twice", pages[i]);
	}
}

static void
read_repeatedly(int from, int to, void *argument)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	uint32_t pages[ROW_PAGES], n_read = 0, n_stale = 0, n_again = 0;
	uint64_t end, other = *(uint64_t *)argument;
	enum paged_status status;
	paged_seq_id seq;
	struct worker_fixture worker;

	it_receive(from, &seq, sizeof(seq));
	worker_open(&worker, NULL, 0);
	it_send(to, "r", 1);
	end = it_now_ms() + RACE_MS;
	do {
		status = paged_seq_read(worker.pool, seq, &info, pages, ROW_PAGES);
		if (status == PAGED_OK)
			page_table_check(&info, pages);
		n_read += status == PAGED_OK;
		n_again += status == PAGED_ERR_AGAIN;
		it_require(status == PAGED_OK || status == PAGED_ERR_AGAIN, "%s", paged_client_error(worker.client));

		/* A plan succeeds, and validate may then report it as stale; or it is refused. */
		status = worker_plan(&worker, seq, 0, 1, PAGED_ROW_NO_APPEND);
		it_require(status == PAGED_OK || status == PAGED_ERR_AGAIN || status == PAGED_ERR_CAPACITY, "%s",
			   paged_client_error(worker.client));
		if (status == PAGED_OK)
			n_stale += paged_batch_validate(worker.batch) == PAGED_ERR_STALE;
		worker_expect(&worker, paged_seq_read(worker.pool, other, NULL, NULL, 0), PAGED_ERR_STALE);
	} while (n_read == 0 || it_now_ms() < end);
	it_note("%u reads of a row that changes, %u came to nothing, %u plans went stale", n_read, n_again, n_stale);
	it_require(n_read > 0);
	worker_close(&worker);
}

IT_TEST(page_tables_are_consistent_while_they_change)
{
	uint64_t end, never = 77ull << 32 | 31;
	struct it_daemon daemon;
	struct it_worker child;
	uint32_t n_changes = 0;
	paged_seq_id seq;
	struct worker_fixture worker;
	char word;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	it_fork(&child, read_repeatedly, &never);
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 0);
	it_send(child.to, &seq, sizeof(seq));
	it_receive(child.from, &word, 1);
	for (end = it_now_ms() + RACE_MS; it_now_ms() < end; n_changes++) {
		paged_seq_id neighbour = worker_create_seq(&worker, 4 * (n_changes % 16));

		worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ 8 + n_changes % 100 }));
		worker_ok(&worker, paged_seq_erase(worker.client, 1, &neighbour));
		worker_ok(&worker, seqs_truncate(worker.client, 1, &seq, (uint32_t[]){ n_changes % 8 }));
	}
	it_join(&child);
	it_note("%u changes", n_changes);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* Threads of one process, and what each of them reports. */

#define THREADS 4
#define ROUNDS 300

static struct worker_fixture shared_worker;
static _Atomic unsigned int n_wrong;

static void
count_unexpected(enum paged_status status, enum paged_status wanted)
{
	if (status != wanted)
		atomic_fetch_add(&n_wrong, 1);
}

/* Each thread causes a different error and reads its own message. */
static void *
failing_request_thread(void *argument)
{
	uint32_t own = *(uint32_t *)argument, tokens = 4 + own;
	char wanted[64];

	snprintf(wanted, sizeof(wanted), "%u.1234", 20 + own);
	for (int round = 0; round < ROUNDS; round++) {
		paged_seq_id seq, stale = 1234ull << 32 | (20 + own);
		struct paged_seq_info info = { .struct_size = sizeof(info) };

		count_unexpected(seqs_create(shared_worker.client, shared_worker.pool, 1, &seq), PAGED_OK);
		count_unexpected(seqs_reserve(shared_worker.client, 1, &seq, &tokens), PAGED_OK);
		count_unexpected(paged_seq_read(shared_worker.pool, seq, &info, NULL, 0), PAGED_OK);
		count_unexpected(info.capacity >= tokens ? PAGED_OK : PAGED_ERR_RANGE, PAGED_OK);
		count_unexpected(paged_seq_erase(shared_worker.client, 1, &stale), PAGED_ERR_STALE);
		if (strstr(paged_client_error(shared_worker.client), wanted) == NULL)
			atomic_fetch_add(&n_wrong, 1);
		count_unexpected(paged_seq_erase(shared_worker.client, 1, &seq), PAGED_OK);
	}
	return NULL;
}

/* Each thread has its own batch; its reserve-ahead shares the client with the others. */
static void *
decode_thread(void *argument)
{
	struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = 1, .reserve_ahead = 8 };
	struct paged_batch *batch;
	paged_seq_id seq;

	(void)argument;
	count_unexpected(paged_batch_create(shared_worker.pool, &params, &batch), PAGED_OK);
	for (int round = 0; round < ROUNDS / 50; round++) {
		struct paged_batch_row row = { .q_len = 1 };

		count_unexpected(seqs_create(shared_worker.client, shared_worker.pool, 1, &seq), PAGED_OK);
		row.seq = seq;
		for (row.kv_len = 1; row.kv_len <= 64; row.kv_len++)
			count_unexpected(paged_batch_plan(batch, 1, &row), PAGED_OK);
		count_unexpected(paged_seq_erase(shared_worker.client, 1, &seq), PAGED_OK);
	}
	paged_batch_destroy(batch);
	return NULL;
}

IT_TEST(threads_share_one_client)
{
	uint32_t numbers[THREADS];
	pthread_t threads[THREADS + 2];
	struct it_daemon daemon;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&shared_worker, NULL, 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		numbers[i] = i;
		it_require(pthread_create(&threads[i], NULL, failing_request_thread, &numbers[i]) == 0);
	}
	for (uint32_t i = THREADS; i < THREADS + 2; i++)
		it_require(pthread_create(&threads[i], NULL, decode_thread, NULL) == 0);
	for (uint32_t i = 0; i < THREADS + 2; i++)
		pthread_join(threads[i], NULL);
	it_require(n_wrong == 0, "%u calls did not give what they should", n_wrong);
	it_require(worker_pool_entry(&shared_worker, "test").n_free == WORKER_PAGES &&
		   worker_pool_entry(&shared_worker, "test").n_sequences == 0);
	worker_check_pool(&shared_worker);
	worker_close(&shared_worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
