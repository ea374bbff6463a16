/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's allocator through a real daemon: rows, capacities and counts of
 * every golden/allocation trace.  (unit_traces compares the free list's order.)
 */
#include "config.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"
#include "tests/support/trace.h"

/* PyTorch's erase empties a row; here it is a truncate to 0, or an erase and a create. */
enum erase_by {
	ERASE_BY_TRUNCATE,
	ERASE_BY_CREATE,
};

struct replay {
	struct worker_fixture worker;
	struct trace trace;
	char pool[24];
	paged_seq_id *seqs; /* [trace.n_rows] */
	uint32_t *pages;    /* [trace.n_pages] */
};

static void
replay_step(struct replay *replay, enum erase_by by)
{
	const struct trace *trace = &replay->trace;
	paged_seq_id *seq = &replay->seqs[trace->row];
	struct worker_fixture *worker = &replay->worker;
	char sentence[256];

	if (trace->verb == TRACE_RESERVE) {
		worker_expect(worker, seqs_reserve(worker->client, 1, seq, &trace->tokens),
			      trace->full ? PAGED_ERR_FULL : PAGED_OK);
		snprintf(sentence, sizeof(sentence), "pool %s: %u pages requested, %u free (0 quarantined)",
			 replay->pool, trace->n_requested, trace->n_empty);
		it_require(!trace->full || strcmp(paged_client_error(worker->client), sentence) == 0, "%s, not %s",
			   paged_client_error(worker->client), sentence);
	} else if (by == ERASE_BY_TRUNCATE) {
		worker_ok(worker, seqs_truncate(worker->client, 1, seq, (uint32_t[]){ 0 }));
	} else {
		worker_ok(worker, paged_seq_erase(worker->client, 1, seq));
		worker_ok(worker, seqs_create(worker->client, worker->pool, 1, seq));
	}
}

static void
replay_compare(struct replay *replay, const char *path)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	const struct trace *trace = &replay->trace;
	struct worker_fixture *worker = &replay->worker;
	struct paged_pool_entry pool = worker_pool_entry(worker, replay->pool);

	for (uint32_t i = 0; i < trace->n_rows; i++) {
		worker_ok(worker, paged_seq_read(worker->pool, replay->seqs[i], &info, replay->pages, trace->n_pages));
		it_require(info.capacity == trace->capacities[i] && info.n_pages == trace->row_pages[i],
			   "%s:%u: row %u has %u tokens, %u pages", path, trace->line_number, i, info.capacity,
			   info.n_pages);
		it_require(memcmp(replay->pages, trace->rows[i], info.n_pages * sizeof(uint32_t)) == 0,
			   "%s:%u: row %u differs", path, trace->line_number, i);
	}
	it_require(pool.n_free == trace->n_free && pool.n_free + pool.n_referenced == pool.n_pages, "%s:%u: %u free",
		   path, trace->line_number, pool.n_free);
}

/* Steps replayed. */
static uint32_t
replay_file(const char *path, size_t index, enum erase_by by)
{
	struct replay replay;
	uint32_t n_steps = 0;
	int result;

	it_require(trace_open(&replay.trace, path), "%s", path);
	worker_attach(&replay.worker, NULL);
	snprintf(replay.pool, sizeof(replay.pool), "t%zu", index);
	worker_ok(&replay.worker, paged_pool_open(replay.worker.client, replay.pool, &replay.worker.pool));
	replay.seqs = calloc(replay.trace.n_rows, sizeof(*replay.seqs));
	replay.pages = calloc(replay.trace.n_pages, sizeof(*replay.pages));
	worker_ok(&replay.worker,
		  seqs_create(replay.worker.client, replay.worker.pool, replay.trace.n_rows, replay.seqs));
	while ((result = trace_next(&replay.trace)) > 0) {
		replay_step(&replay, by);
		replay_compare(&replay, path);
		n_steps++;
	}
	it_require(result == 0, "%s:%u: not understood", path, replay.trace.line_number);
	free(replay.seqs);
	free(replay.pages);
	trace_close(&replay.trace);
	worker_close(&replay.worker);
	return n_steps;
}

static void
traces_find(glob_t *found)
{
	const char *source = getenv("PAGED_SRCDIR");
	char pattern[4096];

	snprintf(pattern, sizeof(pattern), "%s/tests/golden/allocation/*.trace", source != NULL ? source : ".");
	it_require(glob(pattern, 0, NULL, found) == 0 && found->gl_pathc == 16, "no traces at %s", pattern);
}

/* Start one daemon with a pool for each trace. */
static void
daemon_start_for(struct it_daemon *daemon, const glob_t *found)
{
	char configuration[8192];
	size_t used = 0;

	for (size_t i = 0; i < found->gl_pathc; i++) {
		struct trace trace;

		it_require(trace_open(&trace, found->gl_pathv[i]), "%s", found->gl_pathv[i]);
		used += (size_t)snprintf(configuration + used, sizeof(configuration) - used,
					 "pool t%zu {\n layers = 1\n kv-heads = 1\n head-dim = 16\n page-size = %u\n"
					 " pages = %u\n sequences = %u\n max-length = 100000\n}\n",
					 i, trace.page_size, trace.n_pages, trace.n_rows);
		it_require(used < sizeof(configuration));
		trace_close(&trace);
	}
	it_daemon_start(daemon, configuration, NULL, NULL);
}

static void
replay_all(enum erase_by by)
{
	struct it_daemon daemon;
	uint32_t n_steps = 0;
	glob_t found;

	traces_find(&found);
	daemon_start_for(&daemon, &found);
	for (size_t i = 0; i < found.gl_pathc; i++)
		n_steps += replay_file(found.gl_pathv[i], i, by);
	it_require(n_steps == 1470, "%u", n_steps);
	globfree(&found);
	it_daemon_stop(&daemon);
}

IT_TEST(traces_with_erase_as_truncate)
{
	replay_all(ERASE_BY_TRUNCATE);
}

IT_TEST(traces_with_erase_and_create)
{
	replay_all(ERASE_BY_CREATE);
}

IT_MAIN
