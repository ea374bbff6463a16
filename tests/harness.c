/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_SKIPPED 77
#define READY_LIMIT_MS 30000
#define STOP_LIMIT_MS 30000
#define HEAR_LIMIT_MS 30000

static struct it_test *tests, **tests_end = &tests;

/* Shared with the tests' processes: why one was skipped, where directories are. */
static struct {
	char skip[256];
	char dirs[16][64];
	int n_dirs;
} * board;

void
it_register(struct it_test *test)
{
	*tests_end = test;
	tests_end = &test->next;
}

uint64_t
it_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void
it_fail(const char *file, int line, const char *condition, const char *format, ...)
{
	va_list arguments;
	char text[1024];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	printf("# %s:%d: %s%s%s\n", file, line, condition, text[1] ? ":" : "", text);
	fflush(stdout);
	_exit(1);
}

void
it_skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(board->skip, sizeof(board->skip), format, arguments);
	va_end(arguments);
	_exit(EXIT_SKIPPED);
}

void
it_note(const char *format, ...)
{
	va_list arguments;
	char text[1024];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	printf("# %s\n", text);
	fflush(stdout);
}

bool
it_wait(bool (*holds)(void *argument), void *argument, unsigned int limit_ms)
{
	uint64_t end = it_now_ms() + limit_ms;

	while (!holds(argument)) {
		if (it_now_ms() > end)
			return false;
		usleep(1000);
	}
	return true;
}

const char *
it_build_path(const char *name)
{
	static char path[PATH_MAX];
	const char *dir = getenv("PAGED_BUILDDIR");

	snprintf(path, sizeof(path), "%s/%s", dir != NULL ? dir : ".", name);
	return path;
}

static void
read_file(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t n = 0;

	if (file != NULL) {
		n = fread(text, 1, size - 1, file);
		fclose(file);
	}
	text[n] = 0;
}

/* Daemons */

static void
directory_make(struct it_daemon *daemon, const char *configuration)
{
	FILE *file;

	strcpy(daemon->dir, "/tmp/paged-it-XXXXXX");
	it_require(mkdtemp(daemon->dir) != NULL, "%m");
	it_require(board->n_dirs < 16);
	strcpy(board->dirs[board->n_dirs++], daemon->dir);
	snprintf(daemon->config, sizeof(daemon->config), "%s/pagedd.conf", daemon->dir);
	snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->dir);
	file = fopen(daemon->config, "we");
	it_require(file != NULL, "%m");
	fputs(configuration, file);
	fclose(file);
}

/* systemd's readiness protocol tells when the daemon takes clients. */
static int
notify_open(const struct it_daemon *daemon)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	it_require(fd >= 0, "%m");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", daemon->dir);
	unlink(address.sun_path);
	it_require(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "%m");
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	return fd;
}

static void
daemon_spawn(struct it_daemon *daemon, const char *program, const char *const *environment)
{
	char run_dir[96];

	snprintf(run_dir, sizeof(run_dir), "%s/run", daemon->dir);
	mkdir(run_dir, 0750);
	daemon->pid = fork();
	it_require(daemon->pid >= 0, "%m");
	if (daemon->pid != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(log, 2);
	for (; environment != NULL && *environment != NULL; environment++)
		putenv((char *)*environment);
	const char *path = it_build_path(program != NULL ? program : "daemon/pagedd");
	execl(path, path, "--config", daemon->config, "--runtime-dir", run_dir, (char *)NULL);
	fprintf(stderr, "%s: %m\n", path);
	_exit(127);
}

static void
show_log(const struct it_daemon *daemon)
{
	char text[4096];

	read_file(daemon->log, text, sizeof(text));
	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
		it_note("pagedd: %s", line);
}

static void
launch(struct it_daemon *daemon, const char *program, const char *const *environment)
{
	uint64_t end = it_now_ms() + READY_LIMIT_MS;
	int notify = notify_open(daemon), status;
	char message[256];

	daemon_spawn(daemon, program, environment);
	for (;;) {
		struct pollfd poll_fd = { .fd = notify, .events = POLLIN };
		ssize_t n;

		if (poll(&poll_fd, 1, 20) > 0) {
			n = recv(notify, message, sizeof(message) - 1, 0);
			message[n > 0 ? n : 0] = 0;
			if (strstr(message, "READY=1") != NULL)
				break;
		}
		if (waitpid(daemon->pid, &status, WNOHANG) == daemon->pid) {
			show_log(daemon);
			it_require(!"pagedd ended before it was ready", "wait status %x", (unsigned int)status);
		}
		if (it_now_ms() > end) {
			show_log(daemon);
			it_require(!"pagedd was not ready in time");
		}
	}
	close(notify);
	unsetenv("NOTIFY_SOCKET");
}

void
it_daemon_start(struct it_daemon *daemon, const char *configuration, const char *program,
		const char *const *environment)
{
	char run_dir[96];

	directory_make(daemon, configuration);
	launch(daemon, program, environment);
	snprintf(run_dir, sizeof(run_dir), "%s/run", daemon->dir);
	/* Clients of the test, pagedctl included, find the daemon without being told. */
	setenv("PAGED_RUNTIME_DIR", run_dir, 1);
}

const char *
it_daemon_start_failing(struct it_daemon *daemon, const char *configuration)
{
	static char text[4096];
	int status;

	directory_make(daemon, configuration);
	daemon_spawn(daemon, NULL, NULL);
	it_require(waitpid(daemon->pid, &status, 0) == daemon->pid);
	it_require(WIFEXITED(status) && WEXITSTATUS(status) != 0, "wait status %x", (unsigned int)status);
	read_file(daemon->log, text, sizeof(text));
	return text;
}

void
it_daemon_restart(struct it_daemon *daemon, const char *program, const char *const *environment)
{
	launch(daemon, program, environment);
}

static void
log_check(const struct it_daemon *daemon)
{
	static char text[1 << 20];

	read_file(daemon->log, text, sizeof(text));
	if (strstr(text, "Sanitizer") != NULL || strstr(text, "runtime error:") != NULL) {
		show_log(daemon);
		it_require(!"a sanitizer reported on pagedd");
	}
}

static bool
has_ended(void *argument)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)(*(pid_t *)argument), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

void
it_daemon_stop(struct it_daemon *daemon)
{
	int status;

	kill(daemon->pid, SIGTERM);
	it_require(it_wait(has_ended, &daemon->pid, STOP_LIMIT_MS), "pagedd did not stop");
	waitpid(daemon->pid, &status, 0);
	log_check(daemon);
	if (status != 0)
		show_log(daemon);
	it_require(status == 0, "pagedd ended with wait status %x", (unsigned int)status);
	daemon->pid = 0;
}

void
it_daemon_kill(struct it_daemon *daemon)
{
	kill(daemon->pid, SIGKILL);
	waitpid(daemon->pid, NULL, 0);
	log_check(daemon);
	daemon->pid = 0;
}

struct logged {
	const struct it_daemon *daemon;
	const char *text;
};

static bool
log_has(void *argument)
{
	static char text[1 << 20];
	const struct logged *logged = argument;

	read_file(logged->daemon->log, text, sizeof(text));
	return strstr(text, logged->text) != NULL;
}

bool
it_daemon_logged(const struct it_daemon *daemon, const char *text)
{
	struct logged logged = { daemon, text };

	return it_wait(log_has, &logged, 5000);
}

/* Processes */

void
it_fork(struct it_worker *worker, void (*run)(int from, int to, void *argument), void *argument)
{
	int down[2], up[2];

	it_require(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0, "%m");
	fflush(stdout);
	worker->pid = fork();
	it_require(worker->pid >= 0, "%m");
	if (worker->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		run(down[0], up[1], argument);
		fflush(stdout);
		exit(0);
	}
	close(down[0]);
	close(up[1]);
	worker->to = down[1];
	worker->from = up[0];
}

void
it_say(int fd, const void *data, size_t size)
{
	it_require(write(fd, data, size) == (ssize_t)size, "%m");
}

void
it_hear(int fd, void *data, size_t size)
{
	size_t got = 0;

	while (got < size) {
		struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
		ssize_t n;

		it_require(poll(&poll_fd, 1, HEAR_LIMIT_MS) > 0, "nothing heard");
		n = read(fd, (char *)data + got, size - got);
		it_require(n > 0, "the other side ended");
		got += (size_t)n;
	}
}

bool
it_sanitized(void)
{
#ifdef __SANITIZE_ADDRESS__
	return true;
#else
	return false;
#endif
}

static void
worker_close(struct it_worker *worker)
{
	close(worker->to);
	close(worker->from);
	worker->pid = 0;
}

void
it_join(struct it_worker *worker)
{
	int status;

	it_require(waitpid(worker->pid, &status, 0) == worker->pid, "%m");
	it_require(status == 0, "worker ended with wait status %x", (unsigned int)status);
	worker_close(worker);
}

int
it_wait_signal(struct it_worker *worker)
{
	int status;

	it_require(waitpid(worker->pid, &status, 0) == worker->pid, "%m");
	it_require(WIFSIGNALED(status), "worker ended with wait status %x", (unsigned int)status);
	worker_close(worker);
	return WTERMSIG(status);
}

void
it_kill(struct it_worker *worker)
{
	kill(worker->pid, SIGKILL);
	waitpid(worker->pid, NULL, 0);
	worker_close(worker);
}

const char *
it_command(int *exit_code, const char *const *argv)
{
	static char output[1 << 18];
	size_t used = 0;
	int pipe_fd[2], status;
	pid_t pid;
	ssize_t n;

	it_require(pipe2(pipe_fd, O_CLOEXEC) == 0, "%m");
	fflush(stdout);
	pid = fork();
	it_require(pid >= 0, "%m");
	if (pid == 0) {
		dup2(pipe_fd[1], 1);
		dup2(pipe_fd[1], 2);
		execv(it_build_path(argv[0]), (char *const *)argv);
		printf("%s: %m\n", it_build_path(argv[0]));
		fflush(stdout);
		_exit(127);
	}
	close(pipe_fd[1]);
	while ((n = read(pipe_fd[0], output + used, sizeof(output) - 1 - used)) > 0)
		used += (size_t)n;
	output[used] = 0;
	close(pipe_fd[0]);
	it_require(waitpid(pid, &status, 0) == pid);
	it_require(WIFEXITED(status), "%s ended with wait status %x", argv[0], (unsigned int)status);
	if (exit_code != NULL)
		*exit_code = WEXITSTATUS(status);
	return output;
}

const char *
it_pagedctl(int *exit_code, ...)
{
	const char *argv[16] = { "client/ctl/pagedctl" };
	va_list words;
	size_t n = 1;

	va_start(words, exit_code);
	while ((argv[n] = va_arg(words, const char *)) != NULL)
		it_require(++n < sizeof(argv) / sizeof(argv[0]));
	va_end(words);
	return it_command(exit_code, argv);
}

/* Facts */

unsigned int
it_count_fds(pid_t pid)
{
	unsigned int n = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	it_require(dir != NULL, "%s: %m", path);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* A line "NAME:  123 kB" of a file in /proc. */
static unsigned long
proc_kib(pid_t pid, const char *file, const char *name)
{
	char path[64], text[16384];
	const char *at;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	read_file(path, text, sizeof(text));
	at = strstr(text, name);
	it_require(at != NULL, "%s has no %s", path, name);
	return strtoul(at + strlen(name), NULL, 10);
}

unsigned long
it_private_kib(pid_t pid)
{
	return proc_kib(pid, "status", "RssAnon:");
}

unsigned long
it_rss_kib(pid_t pid)
{
	return proc_kib(pid, "status", "VmRSS:");
}

/* Running tests */

static void
directory_remove(const char *dir)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf -- '%s'", dir);
	if (system(command) != 0)
		it_note("%s stays", dir);
}

/* The library closes what it opens, and nothing that a test starts outlives it. */
static void
leavings_check(unsigned int n_fds)
{
	siginfo_t info = { 0 };

	if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
		it_require(!"no process is left", "one is: %d", (int)info.si_pid);
	it_require(it_count_fds(getpid()) <= n_fds, "%u descriptors, %u before", it_count_fds(getpid()), n_fds);
}

/* The test's process, its daemon and workers share a process group. */
static int
test_run(const struct it_test *test)
{
	uint64_t end = it_now_ms() + test->limit_s * 1000ull;
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		unsigned int n_fds = it_count_fds(getpid());

		setpgid(0, 0);
		test->run();
		leavings_check(n_fds);
		fflush(stdout);
		exit(0);
	}
	setpgid(pid, pid);
	while (!has_ended(&pid)) {
		if (it_now_ms() > end) {
			it_note("%s: no end after %u s", test->name, test->limit_s);
			kill(-pid, SIGKILL);
		}
		usleep(1000);
	}
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	return status;
}

static bool
is_wanted(const struct it_test *test, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], test->name) == 0)
			return true;
	return argc == 1;
}

int
main(int argc, char **argv)
{
	int number = 0, n_failed = 0;

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		return 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (const struct it_test *test = tests; test != NULL; test = test->next) {
		int status;

		if (!is_wanted(test, argc, argv))
			continue;
		status = test_run(test);
		number++;
		if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED) {
			printf("ok %d - %s # SKIP %s\n", number, test->name, board->skip);
		} else {
			if (status != 0)
				it_note("%s: wait status %x", test->name, (unsigned int)status);
			printf("%sok %d - %s\n", status == 0 ? "" : "not ", number, test->name);
			n_failed += status != 0;
		}
		while (board->n_dirs > 0) {
			board->n_dirs--;
			if (getenv("PAGED_KEEP") == NULL)
				directory_remove(board->dirs[board->n_dirs]);
		}
	}
	printf("1..%d\n", number);
	return n_failed != 0;
}
