/* SPDX-License-Identifier: Apache-2.0 */
/* Invalid marks, and marks that cannot be made: on the fake driver, which fails at will. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/api/mark.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/cuda/marks_fixture.h"
#include "tests/support/cuda_graph.h"

/* Refused calls leave a capture valid. */

static struct cuda_graphs graphs;

static void
capture_begin(const struct batch_fixture *fixture)
{
	it_require(cuda_graphs_find(&graphs, &fixture->gpu.driver));
	it_require(graphs.begin(fixture->stream, CUDA_CAPTURE_GLOBAL) == CUDA_SUCCESS);
}

static void
capture_end(const struct batch_fixture *fixture)
{
	cuda_graph graph;

	it_require(graphs.end(fixture->stream, &graph) == CUDA_SUCCESS);
	it_require(graphs.destroy(graph) == CUDA_SUCCESS);
}

/* Invalid marks */

static void
expect_wait_refused(struct batch_fixture *fixture, const struct mark *mark, enum paged_status wanted, const char *part)
{
	struct paged_mark bytes = { { 0 } };

	memcpy(&bytes, mark, sizeof(*mark));
	batch_fixture_expect(fixture, paged_batch_wait(fixture->batch, &bytes), wanted);
	it_require(strstr(paged_client_error(fixture->client), part) != NULL, "%s",
		   paged_client_error(fixture->client));
}

#define EXPECT_WAIT_REFUSED(field, wanted, part)                         \
	do {                                                             \
		struct mark invalid = valid;                             \
                                                                         \
		invalid.field;                                           \
		expect_wait_refused(&fixture, &invalid, (wanted), part); \
	} while (0)

static void
reader_of_invalid_marks(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	struct marks_message message;
	struct mark valid;

	(void)to, (void)argument;
	marks_reader_open(&fixture, from, &message);
	memcpy(&valid, &message.mark, sizeof(valid));
	EXPECT_WAIT_REFUSED(magic = 0, PAGED_ERR_INVALID, "these bytes are no mark");
	EXPECT_WAIT_REFUSED(version = 0, PAGED_ERR_INVALID, "these bytes are no mark");
	EXPECT_WAIT_REFUSED(version++, PAGED_ERR_VERSION, "a mark of version 3, this library knows 2");
	EXPECT_WAIT_REFUSED(memory_id[0] ^= 1, PAGED_ERR_GONE, "memory that this daemon had before");
	EXPECT_WAIT_REFUSED(pool++, PAGED_ERR_INVALID, "pool test is number 0 of its daemon, the mark is of number 1");
	EXPECT_WAIT_REFUSED(kind = MARK_REACHED, PAGED_ERR_INVALID, "not of a GPU's memory");
	EXPECT_WAIT_REFUSED(kind = 7, PAGED_ERR_INVALID, "not of a GPU's memory");
	EXPECT_WAIT_REFUSED(device.bytes[3] ^= 1, PAGED_ERR_INVALID, "of another GPU than GPU-");
	EXPECT_WAIT_REFUSED(process.pid = 0, PAGED_ERR_GONE, "process 0 has ended");
	EXPECT_WAIT_REFUSED(process.pid = -1, PAGED_ERR_GONE, "process -1 has ended");
	EXPECT_WAIT_REFUSED(process.started++, PAGED_ERR_GONE, "has ended, or is in another PID namespace");
	EXPECT_WAIT_REFUSED(handle.bytes[0] ^= 1, PAGED_ERR_BACKEND,
			    "pool test: cuIpcOpenEventHandle: CUDA_ERROR_INVALID_VALUE");
	setenv("PAGED_FAKE_CUDA_FAIL", "cuIpcOpenEventHandle=400", 1);
	EXPECT_WAIT_REFUSED(event = valid.event, PAGED_ERR_BACKEND, "cuIpcOpenEventHandle: CUDA_ERROR_INVALID_HANDLE");
	setenv("PAGED_FAKE_CUDA_FAIL", "cuStreamWaitEvent=999", 1);
	EXPECT_WAIT_REFUSED(event = valid.event, PAGED_ERR_BACKEND, "cuStreamWaitEvent: CUDA_ERROR_UNKNOWN");
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	capture_begin(&fixture);
	EXPECT_WAIT_REFUSED(event = valid.event, PAGED_ERR_UNSUPPORTED, "a graph waits for no marks");
	capture_end(&fixture);
	batch_fixture_expect(&fixture, paged_batch_wait(fixture.batch, NULL), PAGED_ERR_INVALID);
	batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &message.mark));
	marks_plan_and_attend(&fixture);
	batch_fixture_check(&fixture);
	/* A mark of this process with an event number that was never recorded. */
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &message.mark));
	memcpy(&valid, &message.mark, sizeof(valid));
	EXPECT_WAIT_REFUSED(event++, PAGED_ERR_INVALID, "this process made no such mark");
	batch_fixture_close(&fixture);
}

IT_TEST(invalid_marks_are_refused)
{
	struct it_daemon daemon;

	cuda_skip_with_gpu();
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	marks_writer_and_reader_run(reader_of_invalid_marks, NULL);
	it_daemon_stop(&daemon);
}

/* Marks that cannot be made */

static void
expect_mark_refused(struct batch_fixture *fixture, enum paged_status wanted, const char *part)
{
	struct paged_mark mark;

	batch_fixture_expect(fixture, paged_batch_mark(fixture->batch, &mark), wanted);
	it_require(strstr(paged_client_error(fixture->client), part) != NULL, "%s",
		   paged_client_error(fixture->client));
}

static void
writer_with_failing_calls(int from, int to, void *argument)
{
	static const char *const calls[] = { "cuEventCreate", "cuIpcGetEventHandle", "cuEventRecord" };
	struct paged_mark mark;
	struct batch_fixture fixture;
	char fail[64];

	(void)from, (void)to, (void)argument;
	marks_writer_open(&fixture, 1);
	batch_fixture_expect(&fixture, paged_batch_mark(fixture.batch, NULL), PAGED_ERR_INVALID);
	capture_begin(&fixture);
	expect_mark_refused(&fixture, PAGED_ERR_UNSUPPORTED,
			    "pool test: the stream is being captured, and a graph has no marks");
	batch_fixture_expect(&fixture, paged_batch_finish(fixture.batch), PAGED_ERR_UNSUPPORTED);
	capture_end(&fixture);
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(fail, sizeof(fail), "%s=999", calls[i]);
		setenv("PAGED_FAKE_CUDA_FAIL", fail, 1);
		expect_mark_refused(&fixture, PAGED_ERR_BACKEND, calls[i]);
	}
	setenv("PAGED_FAKE_CUDA_FAIL", "cuStreamSynchronize=719", 1);
	batch_fixture_expect(&fixture, paged_batch_finish(fixture.batch), PAGED_ERR_BACKEND);
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &mark));
	batch_fixture_close(&fixture);
}

static void
writer_without_ipc_events(int from, int to, void *argument)
{
	struct batch_fixture fixture;

	(void)from, (void)to, (void)argument;
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "125=0", 1);
	marks_writer_open(&fixture, 1);
	expect_mark_refused(&fixture, PAGED_ERR_UNSUPPORTED,
			    "shares no events between processes; finish the batch instead");
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	batch_fixture_close(&fixture);
}

IT_TEST(mark_reports_failures)
{
	struct it_worker child;
	struct it_daemon daemon;

	cuda_skip_with_gpu();
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_fork(&child, writer_with_failing_calls, NULL);
	it_join(&child);
	it_fork(&child, writer_without_ipc_events, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

IT_MAIN
