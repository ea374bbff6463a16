/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts under limits: closed standard descriptors, no threads, a kernel or a filter that refuses system calls, a user
 * namespace that lacks users.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/worker_fixture.h"

#define OTHER_UID 60001u
#define POOL "pool p { layers = 1 kv-heads = 1 head-dim = 16 pages = 4 }\n"

/* Where a program writes standard error, and may write sockets. */
static char dir[64];

struct program {
	const char *name; /* in the build tree */
	const char *arguments[8];
	void (*prepare)(void); /* in the child, before it executes the program */
};

static void
directory_make(const char *configuration)
{
	char path[80];
	FILE *file;

	strcpy(dir, "/tmp/paged-it-XXXXXX");
	it_require(mkdtemp(dir) != NULL && chmod(dir, 0777) == 0, "%m");
	snprintf(path, sizeof(path), "%s/conf", dir);
	file = fopen(path, "we");
	it_require(file != NULL && fputs(configuration, file) >= 0 && fclose(file) == 0, "%m");
	it_require(chmod(path, 0644) == 0, "%m");
}

static void
directory_remove(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	it_require(system(command) == 0);
}

/* Opens the executable that libtool's script at the path runs, if there is one. */
static int
binary_open(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	char hidden[300];
	int fd;

	snprintf(hidden, sizeof(hidden), "%.*s.libs/%s", (int)(name - path), path, name);
	fd = open(hidden, O_RDONLY | O_CLOEXEC);
	return fd >= 0 ? fd : open(path, O_RDONLY | O_CLOEXEC);
}

static pid_t
program_start(const struct program *program)
{
	char log_path[80], path[256], *libraries;
	const char *arguments[10] = { path };
	int binary, log;
	pid_t pid;

	snprintf(path, sizeof(path), "%s", it_build_path(program->name));
	binary = binary_open(path);
	it_require(binary >= 0, "%s: %m", path);
	libraries = realpath(it_build_path("client/.libs"), NULL);
	if (libraries != NULL)
		setenv("LD_LIBRARY_PATH", libraries, 1);
	free(libraries);
	for (int i = 0; program->arguments[i] != NULL; i++)
		arguments[i + 1] = program->arguments[i];
	snprintf(log_path, sizeof(log_path), "%s/err", dir);
	log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
	it_require(log >= 0, "%m");
	pid = fork();
	it_require(pid >= 0, "%m");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(log, 1);
		dup2(log, 2);
		program->prepare();
		fexecve(binary, (char *const *)arguments, environ);
		_exit(127);
	}
	close(binary);
	close(log);
	return pid;
}

/* Runs a program to its end; returns its standard error (static buffer). */
static const char *
program_run(const struct program *program, int *code_p)
{
	static char text[8192];
	pid_t pid = program_start(program);
	char path[80];
	int status;
	size_t n;
	FILE *file;

	it_require(waitpid(pid, &status, 0) == pid);
	snprintf(path, sizeof(path), "%s/err", dir);
	file = fopen(path, "re");
	it_require(file != NULL, "%m");
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = '\0';
	it_require(WIFEXITED(status), "wait status %x: %s", (unsigned int)status, text);
	*code_p = WEXITSTATUS(status);
	return text;
}

static void
expect_failure(const struct program *program, const char *part)
{
	const char *text;
	int code;

	text = program_run(program, &code);
	if (code == 127) {
		it_note("%s does not run as another user, to whom the build tree is closed", program->name);
		return;
	}
	it_require(code == 1 && strstr(text, part) != NULL, "%s: %d: %s", program->name, code, text);
}

static struct program
pagedd_with(const char *first, void (*prepare)(void))
{
	static char config[80], runtime_dir[80];

	snprintf(config, sizeof(config), "%s/conf", dir);
	snprintf(runtime_dir, sizeof(runtime_dir), "%s/run", dir);
	return (struct program){ "tests/daemon/pagedd-faults",
				 { "--config", config, "--runtime-dir", runtime_dir, first, NULL },
				 prepare };
}

static struct program
paged_events_with(void (*prepare)(void))
{
	static char runtime_dir[80];

	snprintf(runtime_dir, sizeof(runtime_dir), "%s/run", dir);
	return (struct program){ "events/paged-events",
				 { "--runtime-dir", runtime_dir, "--endpoint", "ipc:///tmp/paged-it-unused", NULL },
				 prepare };
}

static void
standard_fds_close(void)
{
	close(0);
	close(1);
	close(2);
}

/* The process's descriptors 0 to 2 are /dev/null; false: it has not opened them yet. */
static bool
has_null_fds(void *argument)
{
	char path[64], target[64] = "";
	pid_t pid = *(pid_t *)argument;

	for (int fd = 0; fd <= 2; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (strcmp(target, "/dev/null") != 0)
			return false;
	}
	return true;
}

static void
program_expect_null_fds(const struct program *program)
{
	pid_t pid = program_start(program);

	it_require(it_wait(has_null_fds, &pid), "%s", program->name);
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
}

static bool
is_ready(void *argument)
{
	enum paged_status status = paged_client_open(NULL, NULL, argument);

	if (status == PAGED_OK)
		return true;
	it_require(status == PAGED_ERR_NO_DAEMON, "%s", paged_client_error(*(struct paged_client **)argument));
	paged_client_close(*(struct paged_client **)argument);
	return false;
}

IT_TEST(closed_standard_descriptors)
{
	const struct program events = paged_events_with(standard_fds_close);
	struct program pagedd, ctl = { "pagedctl/pagedctl", { "pools", NULL }, standard_fds_close };
	char path[80], text[256] = "", expected[16];
	struct paged_client *client;
	int status, lock;
	pid_t pid;

	directory_make("log-level = debug\n" POOL);
	pagedd = pagedd_with(NULL, standard_fds_close);
	pid = program_start(&pagedd);
	snprintf(path, sizeof(path), "%s/run", dir);
	setenv("PAGED_RUNTIME_DIR", path, 1);
	it_require(it_wait(is_ready, &client));
	paged_client_close(client);
	it_require(has_null_fds(&pid));
	snprintf(path, sizeof(path), "%s/run/lock", dir);
	lock = open(path, O_RDONLY | O_CLOEXEC);
	it_require(lock >= 0 && read(lock, text, sizeof(text) - 1) > 0, "%m");
	close(lock);
	snprintf(expected, sizeof(expected), "%d\n", (int)pid);
	it_require(strcmp(text, expected) == 0, "the lock file has %s", text);

	/* pagedctl's output cannot be written, and goes nowhere else. */
	expect_failure(&ctl, "");
	if (access(it_build_path("events/paged-events"), X_OK) == 0)
		program_expect_null_fds(&events);
	kill(pid, SIGTERM);
	it_require(waitpid(pid, &status, 0) == pid && status == 0, "wait status %x", (unsigned int)status);
	directory_remove();
}

/* As another user, who has no other process, without a second thread. */
static void
threads_forbid(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NPROC, &limit) < 0)
		_exit(126);
	limit.rlim_cur = 1;
	if (setrlimit(RLIMIT_NPROC, &limit) < 0 || setresgid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 ||
	    setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0)
		_exit(126);
}

/* The leak sanitizer starts a process at the end. */
static void
threads_allow(void)
{
	struct rlimit limit;

	it_require(getrlimit(RLIMIT_NPROC, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	it_require(setrlimit(RLIMIT_NPROC, &limit) == 0);
}

static void
client_open_without_threads(int from, int to, void *argument)
{
	struct paged_client *client;

	(void)from, (void)to, (void)argument;
	threads_forbid();
	it_require(paged_client_open(NULL, NULL, &client) == PAGED_ERR_SYSTEM, "%s", paged_client_error(client));
	it_require(strstr(paged_client_error(client), "no thread can be created") != NULL, "%s",
		   paged_client_error(client));
	paged_client_close(client);
	threads_allow();
}

IT_TEST(no_threads)
{
	struct program program;
	struct it_daemon daemon;
	struct it_worker worker;

	if (geteuid() != 0)
		it_skip("needs root to become a user without other processes");
	directory_make(POOL);
	program = pagedd_with(NULL, threads_forbid);
	expect_failure(&program, "pagedd cannot work here: no thread can be created: Resource temporarily unavailable");
	program = pagedd_with("--check-config", threads_forbid);
	expect_failure(&program, "pagedd cannot work here: no thread can be created: Resource temporarily unavailable");
	program = paged_events_with(threads_forbid);
	if (access(it_build_path(program.name), X_OK) == 0)
		expect_failure(&program, "no thread can be created: Resource temporarily unavailable");
	directory_remove();

	it_daemon_start(&daemon, "allow-user = 60001\n" POOL, NULL, NULL);
	it_require(chmod(daemon.dir, 0711) == 0, "%m");
	it_fork(&worker, client_open_without_threads, NULL);
	it_join(&worker);
	it_daemon_stop(&daemon);
}

/* A filter under which the system call fails with EPERM. */
static void
system_call_refuse(uint32_t number)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(126);
}

static void
pidfd_open_refuse(void)
{
	setenv("PAGED_NO_PEERPIDFD", "1", 1);
	system_call_refuse(SYS_pidfd_open);
}

static void
memfd_create_refuse(void)
{
	system_call_refuse(SYS_memfd_create);
}

static void
eventfd_refuse(void)
{
	system_call_refuse(SYS_eventfd2);
}

/* libzmq aborts the process. */
static void
sched_setscheduler_refuse(void)
{
	system_call_refuse(SYS_sched_setscheduler);
}

static void
pidfd_send_signal_refuse(void)
{
	system_call_refuse(SYS_pidfd_send_signal);
}

IT_TEST(refused_system_calls)
{
	static const struct {
		void (*prepare)(void);
		const char *part;
	} refused[] = {
		{ pidfd_open_refuse, "pagedd cannot work here: pidfd_open of process " },
		{ pidfd_send_signal_refuse, "pagedd cannot work here: pidfd_send_signal: Operation not permitted" },
		{ sched_setscheduler_refuse, "pagedd cannot work here: a thread may not set its own policy" },
		{ memfd_create_refuse, "pagedd cannot work here: memfd_create: Operation not permitted" },
		{ eventfd_refuse, "pagedd cannot work here: eventfd: Operation not permitted" },
	};
	struct program pagedd;

	directory_make(POOL);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		pagedd = pagedd_with("--check-config", refused[i].prepare);
		expect_failure(&pagedd, refused[i].part);
		pagedd = pagedd_with(NULL, refused[i].prepare);
		expect_failure(&pagedd, refused[i].part);
	}
	directory_remove();
}

/* In a user namespace with one user and group, which are root there; all others are 65534. */
static void
user_namespace_enter(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];
	int fd;

	if (unshare(CLONE_NEWUSER) < 0)
		_exit(125);
	fd = open("/proc/self/setgroups", O_WRONLY);
	if (fd < 0 || write(fd, "deny", 4) != 4 || close(fd) < 0)
		_exit(126);
	snprintf(map, sizeof(map), "0 %u 1", (unsigned int)uid);
	fd = open("/proc/self/uid_map", O_WRONLY);
	if (fd < 0 || write(fd, map, strlen(map)) < 0 || close(fd) < 0)
		_exit(126);
	snprintf(map, sizeof(map), "0 %u 1", (unsigned int)gid);
	fd = open("/proc/self/gid_map", O_WRONLY);
	if (fd < 0 || write(fd, map, strlen(map)) < 0 || close(fd) < 0)
		_exit(126);
}

static void
nothing_prepare(void)
{
}

IT_TEST(lists_with_the_overflow_id)
{
	static const char *const parts[] = {
		"pagedd: warning: policy: allow-user = 65534: in this user namespace the kernel reports all users and "
		"groups that it lacks as 65534: the list admits them all\n",
		"policy: admin-group = 65534: in this user namespace the kernel reports all users and groups",
		"policy: pool p: allow-group = 65534: ",
		"policy: tenant t: allow-user = 65534: ",
	};
	struct program pagedd;
	const char *text;
	int code;

	directory_make("allow-user = { 7, 65534 }\nadmin-group = 65534\n"
		       "pool p { layers = 1 kv-heads = 1 head-dim = 16 pages = 4 allow-group = 65534 }\n"
		       "tenant t { allow-user = 65534 limit p = 2 }\n");
	pagedd = pagedd_with("--check-config", user_namespace_enter);
	text = program_run(&pagedd, &code);
	if (code == 125)
		it_skip("a user namespace needs privilege");
	it_require(code == 0, "%d: %s", code, text);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		it_require(strstr(text, parts[i]) != NULL, "%s: %s", parts[i], text);
	pagedd = pagedd_with("--check-config", nothing_prepare);
	text = program_run(&pagedd, &code);
	it_require(code == 0 && strstr(text, "policy") == NULL, "%d: %s", code, text);
	directory_remove();
}

static void
waiting_pagedctl(int from, int to, void *argument)
{
	const char *output;
	int code;

	(void)from;
	(void)argument;
	output = it_pagedctl(&code, "--wait", "300", "pools", NULL);
	it_require(code == 0 && strstr(output, "p ") != NULL, "%d: %s", code, output);
	it_send(to, &code, sizeof(code));
}

/* pagedctl --wait begins before the daemon, and outlasts its start. */
IT_TEST(pagedctl_waits_for_a_start)
{
	struct it_daemon daemon;
	struct it_worker waiting;
	const char *output;
	uint64_t begin_ms;
	int code;

	it_daemon_start(&daemon, POOL, NULL, NULL);
	it_daemon_kill(&daemon);
	begin_ms = it_now_ms();
	output = it_pagedctl(&code, "--wait", "0.5", "pools", NULL);
	it_require(code == 3 && strstr(output, "no daemon") != NULL, "%d: %s", code, output);
	it_require(it_now_ms() - begin_ms >= 500);
	it_fork(&waiting, waiting_pagedctl, NULL);
	it_daemon_restart(&daemon, NULL, NULL);
	it_receive(waiting.from, &code, sizeof(code));
	it_join(&waiting);
	it_daemon_stop(&daemon);
}

IT_MAIN
