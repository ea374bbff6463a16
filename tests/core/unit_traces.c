/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's allocator, replayed step by step: page tables, capacities, and the order of the free list. */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/trace.h"

/* PyTorch's erase empties a row; the test truncates the sequence to 0 tokens, or erases it and creates another. */
enum erase_by {
	ERASE_BY_TRUNCATE,
	ERASE_BY_CREATE,
};

struct replay {
	struct core_fixture fixture;
	struct trace trace;
	uint32_t session;
	paged_seq_id *seqs; /* one per row of the trace */
	uint32_t *pages;    /* n_pages of the trace */
};

static void
replay_create(struct replay *replay, uint32_t n, paged_seq_id *ids)
{
	struct paged_error error = { 0 };

	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq(core_seq_create(replay->fixture.core, replay->session, 1, &(struct seq_spec){ .tag = "" },
					     &ids[i], &error),
			     PAGED_OK, "%s", error.text);
}

static void
replay_erase(struct replay *replay, enum erase_by by)
{
	struct paged_seq_item item = { .seq = replay->seqs[replay->trace.row] };
	struct core *core = replay->fixture.core;
	struct paged_error error = { 0 };

	if (by == ERASE_BY_TRUNCATE) {
		cr_assert_eq(core_seq_truncate(core, replay->session, 1, &item, &error), PAGED_OK, "%s", error.text);
		return;
	}
	cr_assert_eq(core_seq_erase(core, replay->session, 1, &item.seq, &error), PAGED_OK, "%s", error.text);
	replay_create(replay, 1, &replay->seqs[replay->trace.row]);
}

static void
replay_reserve(struct replay *replay)
{
	const struct trace *trace = &replay->trace;
	struct paged_seq_item item = { .seq = replay->seqs[trace->row], .n_tokens = trace->tokens };
	struct paged_error error = { 0 };
	enum paged_status status;
	char sentence[256];

	status = core_seq_reserve(replay->fixture.core, replay->session, 1, &item, &error);
	if (!trace->full) {
		cr_assert_eq(status, PAGED_OK, "%s", error.text);
		return;
	}
	snprintf(sentence, sizeof(sentence), "pool torch: %u pages requested, %u free (0 quarantined)",
		 trace->n_requested, trace->n_empty);
	cr_assert_eq(status, PAGED_ERR_FULL);
	cr_assert_str_eq(error.text, sentence);
}

static void
replay_compare(struct replay *replay, const char *path)
{
	const struct trace *trace = &replay->trace;
	const struct region_view *view = core_pool_view(replay->fixture.core, 0);
	struct paged_pool_entry status;

	for (uint32_t i = 0; i < trace->n_rows; i++) {
		uint32_t n = core_fixture_page_table(&replay->fixture, 0, replay->seqs[i], replay->pages);
		struct region_snapshot snapshot;

		cr_assert_eq(region_snapshot_begin(view, replay->seqs[i], &snapshot), REGION_READ);
		cr_assert_eq(snapshot.capacity, trace->capacities[i], "%s:%u", path, trace->line_number);
		cr_assert_eq(n, trace->row_pages[i], "%s:%u", path, trace->line_number);
		cr_assert_arr_eq(replay->pages, trace->rows[i], n * sizeof(uint32_t), "%s:%u: row %u", path,
				 trace->line_number, i);
	}
	core_pool_status(replay->fixture.core, 0, &status);
	cr_assert_eq(status.n_free, trace->n_free, "%s:%u", path, trace->line_number);
	core_pool_free_list(replay->fixture.core, 0, replay->pages);
	cr_assert_arr_eq(replay->pages, trace->free, trace->n_free * sizeof(uint32_t), "%s:%u: free list", path,
			 trace->line_number);
}

/* Returns the number of steps. */
static uint32_t
replay_file(const char *path, enum erase_by by)
{
	struct replay replay;
	struct paged_error error = { 0 };
	struct paged_check_result accounting = { .struct_size = sizeof(accounting) };
	uint32_t member, n_steps = 0;
	int result;

	cr_assert(trace_open(&replay.trace, path), "%s", path);
	core_fixture_open(&replay.fixture);
	core_fixture_add_pool(&replay.fixture, "torch", replay.trace.n_pages, replay.trace.page_size,
			      replay.trace.n_rows, 100000);
	replay.seqs = calloc(replay.trace.n_rows, sizeof(paged_seq_id));
	replay.pages = calloc(replay.trace.n_pages, sizeof(uint32_t));
	cr_assert_eq(core_session_open(replay.fixture.core, &replay.session, &member, &error), PAGED_OK);
	replay_create(&replay, replay.trace.n_rows, replay.seqs);
	while ((result = trace_next(&replay.trace)) > 0) {
		if (replay.trace.verb == TRACE_ERASE)
			replay_erase(&replay, by);
		else
			replay_reserve(&replay);
		replay_compare(&replay, path);
		cr_assert_eq(core_check(replay.fixture.core, 0, &accounting, &error), PAGED_OK, "%s", error.text);
		n_steps++;
	}
	cr_assert_eq(result, 0, "%s:%u: syntax error", path, replay.trace.line_number);
	free(replay.seqs);
	free(replay.pages);
	core_fixture_close(&replay.fixture);
	trace_close(&replay.trace);
	return n_steps;
}

static void
replay_all(enum erase_by by)
{
	char pattern[4096];
	uint32_t n_steps = 0;
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/tests/golden/allocation/*.trace",
		 getenv("PAGED_SRCDIR") != NULL ? getenv("PAGED_SRCDIR") : ".");
	cr_assert_eq(glob(pattern, 0, NULL, &found), 0, "no traces at %s", pattern);
	cr_assert_eq(found.gl_pathc, 16);
	for (size_t i = 0; i < found.gl_pathc; i++)
		n_steps += replay_file(found.gl_pathv[i], by);
	cr_assert_eq(n_steps, 1470);
	globfree(&found);
}

Test(traces, erase_by_truncate)
{
	replay_all(ERASE_BY_TRUNCATE);
}

Test(traces, erase_by_erase_and_create)
{
	replay_all(ERASE_BY_CREATE);
}
