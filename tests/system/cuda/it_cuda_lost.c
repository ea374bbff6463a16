/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA fails in pagedd's process: pagedd re-executes itself with the same pid and notifies all members. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/fake-cuda/load.h"
#include "tests/support/worker_fixture.h"

static char break_path[64];

/* Only the daemon has the variable that names the file which breaks CUDA. */
static void
breakable_daemon_start(struct it_daemon *daemon)
{
	if (!fake_cuda_wanted())
		it_skip("needs the fake driver");
	snprintf(break_path, sizeof(break_path), "/tmp/paged-break-%d", (int)getpid());
	setenv("PAGED_FAKE_CUDA_BREAK", break_path, 1);
	cuda_daemon_start(daemon, EXPORT_SETTING_AUTO, "", "");
	unsetenv("PAGED_FAKE_CUDA_BREAK");
}

static void
inject_lost_context(void)
{
	int fd = open(break_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	it_require(fd >= 0, "%m");
	close(fd);
}

/* Read the daemon's boot id and check its pid; false: no daemon replies yet. */
static bool
read_boot_id(const struct it_daemon *daemon, char boot_id[33])
{
	struct paged_client_params params = { .struct_size = sizeof(params), .observer = 1 };
	struct paged_daemon_info info = { .struct_size = sizeof(info) };
	struct paged_client *client;
	bool answers;

	answers =
		paged_client_open(NULL, &params, &client) == PAGED_OK && paged_admin_status(client, &info) == PAGED_OK;
	paged_client_close(client);
	if (!answers)
		return false;
	it_require(info.pid == (uint32_t)daemon->pid, "process %u, and not %d", info.pid, (int)daemon->pid);
	memcpy(boot_id, info.boot_id, sizeof(info.boot_id));
	return true;
}

struct boot_ids {
	const struct it_daemon *daemon;
	char first[33], now[33];
};

static bool
has_new_boot_id(void *argument)
{
	struct boot_ids *boot_ids = argument;

	return read_boot_id(boot_ids->daemon, boot_ids->now) && strcmp(boot_ids->now, boot_ids->first) != 0;
}

static void
worker_of_two_boots(int from, int to, void *argument)
{
	paged_seq_id seq;
	struct worker_fixture worker;
	char word;

	(void)argument;
	it_require(fake_cuda_load());
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 20);
	it_send(to, "h", 1);
	it_receive(from, &word, 1);
	worker_expect(&worker, paged_client_ping(worker.client), PAGED_ERR_GONE);
	worker_expect(&worker, paged_seq_erase(worker.client, 1, &seq), PAGED_ERR_GONE);
	worker_close(&worker);
	/* The worker attaches again to the restarted daemon. */
	worker_open(&worker, NULL, 0);
	worker_create_seq(&worker, 20);
	worker_close(&worker);
}

IT_TEST(lost_context_restarts_pagedd)
{
	struct it_worker child;
	struct it_daemon daemon;
	struct boot_ids boot_ids = { .daemon = &daemon };
	unsigned int n_fds;
	char word;

	breakable_daemon_start(&daemon);
	it_require(read_boot_id(&daemon, boot_ids.first));
	it_fork(&child, worker_of_two_boots, NULL);
	it_receive(child.from, &word, 1);
	n_fds = it_count_fds(daemon.pid);
	inject_lost_context();
	it_require(it_wait(has_new_boot_id, &boot_ids));
	it_require(it_daemon_logged(&daemon,
				    "error: pool: test: cuCtxPushCurrent: CUDA_ERROR_LAUNCH_FAILED (unspecified "
				    "launch failure); this process cannot use CUDA any more; restart it; every "
				    "session ends here\n"));
	it_require(it_daemon_logged(&daemon, "warning: pagedd: restarting as process "));
	it_require(it_count_fds(daemon.pid) <= n_fds, "%u descriptors, %u before", it_count_fds(daemon.pid), n_fds);
	it_send(child.to, "g", 1);
	it_join(&child);
	it_daemon_stop(&daemon);
}

/* The failure persists after the restart. */
static void
expect_two_losses(const char *failure, const char *logged)
{
	struct it_daemon daemon;
	int status;

	if (!fake_cuda_wanted())
		it_skip("needs the fake driver");
	setenv("PAGED_FAKE_CUDA_FAIL", failure, 1);
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_require(waitpid(daemon.pid, &status, 0) == daemon.pid);
	it_require(WIFEXITED(status) && WEXITSTATUS(status) == 3, "wait status %x", (unsigned int)status);
	it_require(it_daemon_logged(&daemon, logged));
	it_require(it_daemon_logged(&daemon, "error: pagedd: CUDA was lost twice within 30 s: giving up\n"));
	daemon.pid = 0;
}

IT_TEST(second_lost_context_ends_pagedd)
{
	expect_two_losses("cuStreamQuery=700", "error: pool: test: cuStreamQuery: CUDA_ERROR_ILLEGAL_ADDRESS");
}

/* Only work that reaches the device is sure to find the fault. */
IT_TEST(fault_is_found_by_work_on_the_device)
{
	expect_two_losses("cuEventRecord=220", "error: pool: test: cuEventRecord: CUDA error 220");
}

/* A driver whose device has fallen off the bus may return this error, for ever. */
IT_TEST(errors_in_a_row_are_a_loss)
{
	expect_two_losses("cuEventRecord=999", "error: pool: test: second error in a row: cuEventRecord: "
					       "CUDA_ERROR_UNKNOWN (unknown error); every session ends here\n");
}

/* One other error, or lack of memory at any time, is logged, and the daemon continues. */
IT_TEST(other_errors_are_logged)
{
	struct it_daemon daemon;

	if (!fake_cuda_wanted())
		it_skip("needs the fake driver");
	setenv("PAGED_FAKE_CUDA_FAIL", "cuStreamQuery@1=999,cuStreamQuery@3=2,cuStreamQuery@4=2,cuStreamQuery@6=46", 1);
	cuda_daemon_start(&daemon, EXPORT_SETTING_AUTO, "", "");
	it_require(it_daemon_logged(&daemon, "warning: pool: test: cuStreamQuery: CUDA_ERROR_UNKNOWN"));
	it_require(it_daemon_logged(&daemon, "warning: pool: test: cuStreamQuery: CUDA_ERROR_OUT_OF_MEMORY"));
	it_require(it_daemon_logged(&daemon, "warning: pool: test: cuStreamQuery: CUDA_ERROR_DEVICE_UNAVAILABLE"));
	it_daemon_stop(&daemon);
}

/* The restart is delayed because another process holds the lock of the runtime directory. */

/* Takes the lock when the daemon gives it up; -1: the daemon has restarted and has it again. */
static int
runtime_dir_lock(struct boot_ids *boot_ids)
{
	unsigned int n_tries = 0;
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "%s/run/lock", boot_ids->daemon->dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	it_require(fd >= 0, "%m");
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (++n_tries % 64 == 0 && has_new_boot_id(boot_ids)) {
			close(fd);
			return -1;
		}
		usleep(50);
	}
	return fd;
}

/*
 * Starts a daemon, takes its GPU away, and takes the lock while the daemon restarts.  On a busy machine the daemon may
 * have the lock again before this process runs; then the next daemon is tried.
 */
static int
daemon_start_and_take_lock(struct it_daemon *daemon, struct boot_ids *boot_ids)
{
	*boot_ids = (struct boot_ids){ .daemon = daemon };
	for (;;) {
		int fd;

		breakable_daemon_start(daemon);
		it_require(read_boot_id(daemon, boot_ids->first));
		inject_lost_context();
		fd = runtime_dir_lock(boot_ids);
		if (fd >= 0)
			return fd;
		it_daemon_stop(daemon);
	}
}

IT_TEST(restart_waits_for_the_directory_lock)
{
	struct it_daemon daemon;
	struct boot_ids boot_ids;
	int fd = daemon_start_and_take_lock(&daemon, &boot_ids);

	it_require(it_daemon_logged(&daemon, "belongs to another pagedd"));
	it_require(kill(daemon.pid, 0) == 0);
	close(fd);
	it_require(it_wait(has_new_boot_id, &boot_ids));
	it_daemon_stop(&daemon);
}

IT_TEST(signal_ends_the_wait)
{
	struct it_daemon daemon;
	struct boot_ids boot_ids;
	int fd = daemon_start_and_take_lock(&daemon, &boot_ids);

	it_require(it_daemon_logged(&daemon, "belongs to another pagedd"));
	it_daemon_stop(&daemon);
	close(fd);
}

IT_MAIN
