/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that starts while workers of a killed one map its pools, and there is no room for both: it waits, and names
 * them.
 */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/worker_fixture.h"

#define MIB (1ull << 20)
#define POOL_SIZE (32 * MIB)
#define LIMIT (48 * MIB) /* 1.5 pools */
#define FAULTS "tests/daemon/pagedd-faults"

#define OTHER_UID 60001u
#define POOL "pool test { layers = 1 kv-heads = 1 head-dim = 16 size = 32MiB }\n"

/* A file system root whose control group has the limit; test builds of the daemon read it in place of "/". */
static char root[80];

/* The user that daemon_begin() runs the daemon as; 0: this one. */
static uid_t daemon_uid;

static void
root_write(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	file = fopen(path, "we");
	it_require(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0, "%s: %m", path);
}

static void
root_use_memory(uint64_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)bytes);
	root_write("sys/fs/cgroup/memory.current", text);
}

static void
root_make(const struct it_daemon *daemon)
{
	static const char *const dirs[] = { "", "/proc", "/proc/self", "/sys", "/sys/fs", "/sys/fs/cgroup" };
	char path[128], text[32];

	snprintf(root, sizeof(root), "%s/root", daemon->dir);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", root, dirs[i]);
		it_require(mkdir(path, 0755) == 0, "%s: %m", path);
	}
	root_write("proc/self/cgroup", "0::/\n");
	snprintf(text, sizeof(text), "%llu\n", LIMIT);
	root_write("sys/fs/cgroup/memory.max", text);
	root_use_memory(0);
}

static void
worker_hold(int from, int to, void *argument)
{
	struct worker_fixture worker;

	(void)from, (void)argument;
	it_require(prctl(PR_SET_NAME, "idle\nwork\xe2\x80\xae") == 0, "%m");
	worker_attach(&worker, NULL);
	worker_ok(&worker, paged_pool_open(worker.client, "test", &worker.pool));
	it_send(to, "x", 1);
	pause();
}

/* A killed daemon with one worker, which makes no call and keeps the pool mapped. */
static void
daemon_kill_with_worker(struct it_daemon *daemon, struct it_worker *worker, const char *settings)
{
	char configuration[256], c;

	snprintf(configuration, sizeof(configuration), "%s\n" POOL, settings);
	it_daemon_start(daemon, configuration, NULL, NULL);
	root_make(daemon);
	it_fork(worker, worker_hold, NULL);
	it_receive(worker->from, &c, 1);
	it_daemon_kill(daemon);
	it_require(truncate(daemon->log, 0) == 0, "%m");
	root_use_memory(POOL_SIZE);
}

/* Starts pagedd without waiting until it is ready. */
static void
daemon_begin(struct it_daemon *daemon)
{
	const char *path = it_build_path(FAULTS);
	char *const arguments[] = {
		(char *)path, "--config", daemon->config, "--runtime-dir", getenv("PAGED_RUNTIME_DIR"), NULL
	};
	int binary = open(path, O_RDONLY | O_CLOEXEC);

	it_require(binary >= 0, "%m");
	daemon->pid = fork();
	it_require(daemon->pid >= 0, "%m");
	if (daemon->pid != 0) {
		close(binary);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("PAGED_TEST_ROOT", root, 1);
	it_require(freopen(daemon->log, "a", stderr) != NULL);
	if (daemon_uid != 0)
		it_require(setresgid(daemon_uid, daemon_uid, daemon_uid) == 0 &&
				   setresuid(daemon_uid, daemon_uid, daemon_uid) == 0,
			   "%m");
	fexecve(binary, arguments, environ);
	_exit(127);
}

static void
expect_named(const struct it_daemon *daemon, const struct it_worker *worker, const char *verb)
{
	char text[160];

	snprintf(text, sizeof(text),
		 "48 MiB of memory, 16 MiB available; process %d (idle?work?\?\?) %s memory of an earlier pagedd: end "
		 "or restart it; this start waits for memory up to ",
		 (int)worker->pid, verb);
	it_require(it_daemon_logged(daemon, text), "%s", text);
}

IT_TEST(start_waits_until_the_worker_ends)
{
	struct it_daemon daemon;
	struct it_worker worker;

	daemon_kill_with_worker(&daemon, &worker, "");
	daemon_begin(&daemon);
	expect_named(&daemon, &worker, "maps");
	it_kill(&worker);
	root_use_memory(0);
	it_require(it_daemon_logged(&daemon, "there is room for the pools after"));
	it_require(it_daemon_logged(&daemon, "ready at "));
	it_daemon_stop(&daemon);
}

IT_TEST(a_signal_ends_the_wait)
{
	struct it_daemon daemon;
	struct it_worker worker;

	daemon_kill_with_worker(&daemon, &worker, "");
	daemon_begin(&daemon);
	expect_named(&daemon, &worker, "maps");
	it_daemon_stop(&daemon);
	it_require(it_daemon_logged(&daemon, "SIGTERM: stopping; the start was waiting for memory"));
	/* What the killed daemon left is still there for the next start. */
	it_require(truncate(daemon.log, 0) == 0, "%m");
	daemon_begin(&daemon);
	it_kill(&worker);
	root_use_memory(0);
	it_require(it_daemon_logged(&daemon, "ready at "));
	it_daemon_stop(&daemon);
}

static void
expect_failure(struct it_daemon *daemon)
{
	int status;

	it_require(waitpid(daemon->pid, &status, 0) == daemon->pid);
	it_require(WIFEXITED(status) && WEXITSTATUS(status) == 1, "wait status %x", (unsigned int)status);
}

IT_TEST(start_timeout_ends_the_wait)
{
	struct it_daemon daemon;
	struct it_worker worker;

	daemon_kill_with_worker(&daemon, &worker, "start-timeout = 0s");
	daemon_begin(&daemon);
	expect_failure(&daemon);
	expect_named(&daemon, &worker, "maps");
	it_kill(&worker);
}

/* As another user than the worker, the daemon may not see what the worker maps, but knows that it was attached. */
IT_TEST(workers_of_another_user_are_named)
{
	const char *runtime_dir;
	struct it_daemon daemon;
	struct it_worker worker;
	char lock[128];

	if (geteuid() != 0)
		it_skip("needs root to start a daemon of another user");
	daemon_kill_with_worker(&daemon, &worker, "");
	runtime_dir = getenv("PAGED_RUNTIME_DIR");
	snprintf(lock, sizeof(lock), "%s/lock", runtime_dir);
	it_require(chmod(daemon.dir, 0755) == 0 && chmod(daemon.config, 0644) == 0 && unlink(lock) == 0, "%m");
	it_require(chown(runtime_dir, OTHER_UID, OTHER_UID) == 0, "%m");
	daemon_uid = OTHER_UID;
	daemon_begin(&daemon);
	expect_named(&daemon, &worker, "may map");
	it_kill(&worker);
	root_use_memory(0);
	it_require(it_daemon_logged(&daemon, "ready at "));
	it_daemon_stop(&daemon);
}

/* A check never waits, and no start does for a pool that never fits. */
IT_TEST(start_fails_at_once_where_waiting_does_not_help)
{
	const char *check[] = { FAULTS, "--check-config", "--config", NULL, "--runtime-dir", NULL, NULL };
	struct it_daemon daemon;
	struct it_worker worker;
	const char *output;
	int code;

	daemon_kill_with_worker(&daemon, &worker, "");
	setenv("PAGED_TEST_ROOT", root, 1);
	check[3] = daemon.config;
	check[5] = getenv("PAGED_RUNTIME_DIR");
	output = it_command(&code, check);
	it_require(code == 1 && strstr(output, "48 MiB of memory, 16 MiB available\n") != NULL, "%d: %s", code, output);
	root_write("sys/fs/cgroup/memory.max", "16777216\n");
	daemon_begin(&daemon);
	expect_failure(&daemon);
	it_kill(&worker);
}

/* The memory of the worker's daemon is that of another directory: it is no earlier one of this daemon. */
IT_TEST(daemons_of_other_directories_are_left_alone)
{
	struct it_daemon first, second;
	struct it_worker worker;
	char c;

	it_daemon_start(&first, POOL, NULL, NULL);
	it_fork(&worker, worker_hold, NULL);
	it_receive(worker.from, &c, 1);
	it_daemon_start(&second, POOL, NULL, NULL);
	it_daemon_stop(&second);
	root_make(&second);
	root_use_memory(POOL_SIZE);
	daemon_begin(&second);
	expect_failure(&second);
	it_kill(&worker);
	it_daemon_stop(&first);
}

IT_MAIN
