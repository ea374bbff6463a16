/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks order the work of batches across processes.  Runs over the fake CUDA
 * driver, whose streams run only when a call waits for them.
 */
#include "config.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/cuda/cuda_daemon.h"
#include "tests/system/cuda/marks_fixture.h"
#include "tests/fake-cuda/load.h"
#include "tests/support/worker_fixture.h"

static void
log_calls(const struct it_daemon *daemon)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/calls", daemon->dir);
	setenv("PAGED_FAKE_CUDA_LOG", path, 1);
}

/* A reader sees a writer's appends after waiting for its mark */

/* The lse over unwritten keys: NaN with legacy memory; with vmm memory keys are zero, and so are scores. */
static bool
is_lse_of_unwritten_pages(float lse)
{
	return isnan(lse) || fabsf(lse - logf((float)marks_params.rows[0].kv_len)) < 1e-5f;
}

static void
reader(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	struct marks_message message;
	float lse;

	(void)to, (void)argument;
	marks_reader_open(&fixture, from, &message);
	if (fake_cuda_wanted()) {
		marks_plan_and_attend(&fixture);
		batch_fixture_get(&fixture, &lse, fixture.lse, sizeof(lse));
		it_require(is_lse_of_unwritten_pages(lse),
			   "the writer's stream has not moved, and its appends are seen: %g", lse);
	}
	batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &message.mark));
	marks_plan_and_attend(&fixture);
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

static void
write_and_read(enum export_setting setting)
{
	struct it_daemon daemon;

	cuda_daemon_start(&daemon, setting, "", "");
	marks_writer_and_reader_run(reader, NULL);
	it_daemon_stop(&daemon);
}

IT_TEST(vmm_reader_waits_for_a_mark)
{
	write_and_read(EXPORT_SETTING_VMM);
}

IT_TEST(legacy_reader_waits_for_a_mark)
{
	write_and_read(EXPORT_SETTING_LEGACY);
}

/* The writer waits with paged_batch_finish() and sends no mark. */
static void
writer_that_finishes(int from, int to, void *argument)
{
	struct marks_message message = { .mark = { { 0 } } };
	struct batch_fixture fixture;
	char word;

	(void)argument;
	marks_writer_open(&fixture, 2);
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, marks_params.rows[r].kv_len);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	memcpy(message.seq, fixture.seq, sizeof(message.seq));
	it_send(to, &message, sizeof(message));
	it_receive(from, &word, 1);
	batch_fixture_close(&fixture);
}

static void
reader_without_wait(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	struct marks_message message;

	(void)to, (void)argument;
	marks_reader_open(&fixture, from, &message);
	marks_plan_and_attend(&fixture);
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

IT_TEST(reader_after_finish_needs_no_mark)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct marks_message message;

	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_fork(&first, writer_that_finishes, NULL);
	it_fork(&second, reader_without_wait, NULL);
	it_receive(first.from, &message, sizeof(message));
	it_send(second.to, &message, sizeof(message));
	it_join(&second);
	it_send(first.to, "e", 1);
	it_join(&first);
	it_daemon_stop(&daemon);
}

/* One event for any number of marks, on both sides */

#define N_MARKS 19u

static void
writer_of_many_marks(int from, int to, void *argument)
{
	struct marks_message message;
	struct batch_fixture fixture;
	char word;

	(void)argument;
	marks_writer_open(&fixture, 1);
	memcpy(message.seq, fixture.seq, sizeof(message.seq));
	for (uint32_t at = 0; at < N_MARKS; at++) {
		batch_fixture_write(&fixture, 0, at, at + 1);
		batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &message.mark));
		it_send(to, &message, sizeof(message));
		it_receive(from, &word, 1);
	}
	it_require(fake_cuda_n_calls("cuIpcGetEventHandle") == 1 && fake_cuda_n_calls("cuEventRecord") >= N_MARKS);
	batch_fixture_close(&fixture);
}

static void
reader_of_many_marks(int from, int to, void *argument)
{
	struct batch_fixture fixture;
	struct marks_message message;

	(void)argument;
	marks_reader_open(&fixture, from, &message);
	fixture.params.n_rows = 1;
	fixture.total_q = 1;
	for (uint32_t at = 0; at < N_MARKS; at++) {
		if (at > 0)
			it_receive(from, &message, sizeof(message));
		fixture.params.rows[0].kv_len = at + 1;
		batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &message.mark));
		marks_plan_and_attend(&fixture);
		batch_fixture_check(&fixture);
		it_send(to, "n", 1);
	}
	it_require(fake_cuda_n_calls("cuIpcOpenEventHandle") == 1);
	batch_fixture_close(&fixture);
}

IT_TEST(marks_of_a_batch_share_an_event)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct marks_message message;
	char word;

	cuda_skip_with_gpu();
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	log_calls(&daemon);
	it_fork(&first, writer_of_many_marks, NULL);
	it_fork(&second, reader_of_many_marks, NULL);
	for (uint32_t i = 0; i < N_MARKS; i++) {
		it_receive(first.from, &message, sizeof(message));
		it_send(second.to, &message, sizeof(message));
		it_receive(second.from, &word, 1);
		it_send(first.to, &word, 1);
	}
	it_join(&second);
	it_join(&first);
	it_daemon_stop(&daemon);
}

/* Batches of one process, one of them destroyed */

static void
two_batches(int from, int to, void *argument)
{
	const struct paged_batch_params params = { .struct_size = sizeof(params) };
	struct paged_batch *other;
	struct paged_mark mark;
	struct batch_fixture fixture;
	cuda_stream stream;

	(void)from, (void)to, (void)argument;
	marks_writer_open(&fixture, 2);
	batch_fixture_ok(&fixture, paged_batch_create(fixture.pool, &params, &other));
	it_require(fixture.gpu.driver.stream_create(&stream, CUDA_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	batch_fixture_ok(&fixture, paged_batch_stream(other, stream));
	for (uint32_t r = 0; r < 2; r++)
		batch_fixture_write(&fixture, r, 0, marks_params.rows[r].kv_len);
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &mark));
	batch_fixture_ok(&fixture, paged_batch_wait(other, &mark));
	batch_fixture_ok(&fixture, paged_batch_finish(other));
	/* The wait for one stream ran the other, so no work is left. */
	it_require(fixture.gpu.driver.stream_query(fixture.stream) == CUDA_SUCCESS);
	batch_fixture_ok(&fixture, paged_batch_mark(other, &mark));
	paged_batch_destroy(other);
	batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &mark));
	batch_fixture_ok(&fixture, paged_batch_create(fixture.pool, &params, &other));
	batch_fixture_ok(&fixture, paged_batch_mark(other, &mark));
	it_require(fake_cuda_n_calls("cuIpcGetEventHandle") == 2, "the third batch has the second's event");
	it_require(fake_cuda_n_calls("cuIpcOpenEventHandle") == 0);
	it_require(fixture.gpu.driver.stream_destroy(stream) == CUDA_SUCCESS);
	batch_fixture_close(&fixture);
}

IT_TEST(marks_within_one_process)
{
	struct it_worker child;
	struct it_daemon daemon;

	cuda_skip_with_gpu();
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	log_calls(&daemon);
	it_fork(&child, two_batches, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

/* A driver that opens an event slowly delays only those that wait for this event. */

struct waiting {
	struct paged_batch *batch;
	struct paged_mark mark;
	enum paged_status status;
};

static void *
wait_for_mark(void *argument)
{
	struct waiting *waiting = argument;

	waiting->status = paged_batch_wait(waiting->batch, &waiting->mark);
	return NULL;
}

static bool
file_exists(void *path)
{
	return access(path, F_OK) == 0;
}

static void
reader_with_slow_driver(int from, int to, void *held)
{
	const struct paged_batch_params params = { .struct_size = sizeof(params) };
	struct batch_fixture fixture;
	struct waiting waiting[2];
	struct marks_message message;
	struct paged_mark mark;
	struct paged_batch *other;
	pthread_t threads[2];

	(void)to;
	marks_reader_open(&fixture, from, &message);
	batch_fixture_ok(&fixture, paged_batch_create(fixture.pool, &params, &other));
	for (unsigned int i = 0; i < 2; i++) {
		waiting[i] = (struct waiting){ .mark = message.mark, .status = PAGED_ERR_AGAIN };
		batch_fixture_ok(&fixture, paged_batch_create(fixture.pool, &params, &waiting[i].batch));
		it_require(pthread_create(&threads[i], NULL, wait_for_mark, &waiting[i]) == 0);
		it_require(it_wait(file_exists, held), "no call opens the event");
	}
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &mark));
	batch_fixture_ok(&fixture, paged_batch_wait(other, &mark));
	it_require(unlink(held) == 0, "%m");
	for (unsigned int i = 0; i < 2; i++) {
		it_require(pthread_join(threads[i], NULL) == 0);
		batch_fixture_ok(&fixture, waiting[i].status);
	}
	it_require(fake_cuda_n_calls("cuIpcOpenEventHandle") == 1);
	batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &message.mark));
	marks_plan_and_attend(&fixture);
	batch_fixture_check(&fixture);
	batch_fixture_close(&fixture);
}

IT_TEST(an_event_that_opens_slowly_delays_no_other_mark)
{
	struct it_daemon daemon;
	char held[96], hold[128];

	cuda_skip_with_gpu();
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	log_calls(&daemon);
	snprintf(held, sizeof(held), "%s/held", daemon.dir);
	snprintf(hold, sizeof(hold), "cuIpcOpenEventHandle=%s", held);
	setenv("PAGED_FAKE_CUDA_HOLD", hold, 1);
	marks_writer_and_reader_run(reader_with_slow_driver, held);
	it_daemon_stop(&daemon);
}

/* Killed between mark and wait */

/* Descriptors of this process that name another one.  A GPU's driver may keep more for each event that it opens. */
static unsigned int
count_pidfds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;
	char target[64];

	it_require(dir != NULL, "%m");
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
		ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		target[length > 0 ? length : 0] = 0;
		n += strstr(target, "pidfd") != NULL;
	}
	closedir(dir);
	return n;
}

static void
reader_of_killed_writer(int from, int to, void *argument)
{
	bool waits_before = *(bool *)argument;
	unsigned int n_fds, n_pidfds;
	struct batch_fixture fixture;
	struct marks_message message;
	char word;

	marks_reader_open(&fixture, from, &message);
	n_fds = it_count_fds(getpid());
	n_pidfds = count_pidfds();
	if (waits_before)
		batch_fixture_ok(&fixture, paged_batch_wait(fixture.batch, &message.mark));
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	it_send(to, "r", 1);
	it_receive(from, &word, 1);
	batch_fixture_expect(&fixture, paged_batch_wait(fixture.batch, &message.mark), PAGED_ERR_GONE);
	it_require(strstr(paged_client_error(fixture.client), "pool test: process ") != NULL &&
			   strstr(paged_client_error(fixture.client), " has ended") != NULL,
		   "%s", paged_client_error(fixture.client));
	/* No descriptor of the killed process is left, and the stream is usable. */
	it_require(count_pidfds() == n_pidfds, "%u descriptors of processes, %u before", count_pidfds(), n_pidfds);
	it_require(!fake_cuda_wanted() || it_count_fds(getpid()) == n_fds, "%u descriptors, %u before",
		   it_count_fds(getpid()), n_fds);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	batch_fixture_close(&fixture);
}

static void
kill_writer(bool waits_before)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	struct marks_message message;
	char word;

	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_fork(&first, marks_writer, NULL);
	it_fork(&second, reader_of_killed_writer, &waits_before);
	it_receive(first.from, &message, sizeof(message));
	it_send(second.to, &message, sizeof(message));
	it_receive(second.from, &word, 1);
	it_kill(&first);
	it_send(second.to, "k", 1);
	it_join(&second);
	it_daemon_stop(&daemon);
}

IT_TEST(wait_fails_after_writer_is_killed)
{
	kill_writer(false);
}

IT_TEST(wait_fails_after_writer_of_open_event_is_killed)
{
	kill_writer(true);
}

/* The daemon has been killed: wait and mark fail, finish succeeds. */
static void
writer_of_killed_daemon(int from, int to, void *argument)
{
	struct paged_mark mark;
	struct batch_fixture fixture;
	char word;

	(void)argument;
	marks_writer_open(&fixture, 1);
	batch_fixture_write(&fixture, 0, 0, 19);
	batch_fixture_ok(&fixture, paged_batch_mark(fixture.batch, &mark));
	it_send(to, "m", 1);
	it_receive(from, &word, 1);
	batch_fixture_expect(&fixture, paged_client_ping(fixture.client), PAGED_ERR_GONE);
	batch_fixture_expect(&fixture, paged_batch_wait(fixture.batch, &mark), PAGED_ERR_GONE);
	batch_fixture_expect(&fixture, paged_batch_mark(fixture.batch, &mark), PAGED_ERR_GONE);
	batch_fixture_ok(&fixture, paged_batch_finish(fixture.batch));
	batch_fixture_close(&fixture);
}

IT_TEST(marks_fail_after_daemon_is_killed)
{
	struct it_worker child;
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, EXPORT_SETTING_VMM, "", "");
	it_fork(&child, writer_of_killed_daemon, NULL);
	it_receive(child.from, &word, 1);
	it_daemon_kill(&daemon);
	it_send(child.to, "k", 1);
	it_join(&child);
}

IT_MAIN
