/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's log: standard error that nobody reads, a stopped terminal, a full disk.  Requests are served meanwhile,
 * and the log says afterwards how many lines were lost.  Entries of the journal, read from a socket in its place.
 */
#include "config.h"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/support/worker_fixture.h"

/* More than a pipe (64 KiB) and the daemon's queue (256 KiB) hold. */
#define N_REFUSED 100000u

#define NO_SESSION 999999u

static const char debug_config[] = "log-level = debug\npool test {\n" WORKER_POOL_SETTINGS "\n}\n";

/*
 * Starts a daemon whose standard error is the file at daemon->log, which `make` creates.  It is no file that the
 * harness can read, and is replaced by an empty one once the daemon has it open.
 */
static void
daemon_start_on(struct it_daemon *daemon, void (*make)(const char *path, int *fd_p), int *fd_p)
{
	it_daemon_start(daemon, debug_config, NULL, NULL);
	it_daemon_stop(daemon);
	it_require(unlink(daemon->log) == 0, "%m");
	make(daemon->log, fd_p);
	it_daemon_restart(daemon, NULL, NULL);
	it_require(unlink(daemon->log) == 0, "%m");
	close(open(daemon->log, O_WRONLY | O_CREAT, 0600));
}

static void
pipe_make(const char *path, int *fd_p)
{
	it_require(mkfifo(path, 0600) == 0, "%m");
	*fd_p = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	it_require(*fd_p >= 0, "%m");
}

/* Each is one debug line. */
static void
requests_refuse(struct worker_fixture *worker, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		worker_expect(worker, paged_admin_kick(worker->client, NO_SESSION, 0), PAGED_ERR_NOENT);
}

/* Ends pagedctl by SIGKILL, somewhere between its attaching and its end. */
static void
pagedctl_kill(unsigned int delay_us)
{
	pid_t pid = fork();

	it_require(pid >= 0, "%m");
	if (pid == 0) {
		const char *path = it_build_path("pagedctl/pagedctl");
		int null = open("/dev/null", O_WRONLY);

		dup2(null, 1);
		execl(path, path, "sequences", (char *)NULL);
		_exit(127);
	}
	usleep(delay_us);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* What was read from the daemon's standard error. */
struct lines {
	int fd;
	char *text;
	size_t n, size;
};

/* Reads until the log contains the text; false: it does not within IT_LIMIT_MS. */
static bool
lines_read_until(struct lines *lines, const char *text)
{
	uint64_t end = it_now_ms() + IT_LIMIT_MS;
	size_t searched = 0;

	while (it_now_ms() < end) {
		struct pollfd poll_fd = { .fd = lines->fd, .events = POLLIN };
		ssize_t n;

		if (lines->size - lines->n < 65536) {
			lines->size += 1 << 20;
			lines->text = realloc(lines->text, lines->size);
			it_require(lines->text != NULL);
		}
		poll(&poll_fd, 1, 100);
		n = read(lines->fd, lines->text + lines->n, lines->size - lines->n - 1);
		if (n > 0)
			lines->n += (size_t)n;
		lines->text[lines->n] = '\0';
		if (strstr(lines->text + searched, text) != NULL)
			return true;
		searched = lines->n > 200 ? lines->n - 200 : 0;
	}
	return false;
}

static unsigned long
lines_count(const char *text, const char *part)
{
	unsigned long n = 0;

	while ((text = strstr(text, part)) != NULL) {
		text += strlen(part);
		n++;
	}
	return n;
}

/* The sum of all "N lines were lost". */
static unsigned long
lines_lost(const char *text)
{
	unsigned long n = 0;

	while ((text = strstr(text, "pagedd: warning: log: ")) != NULL) {
		text += strlen("pagedd: warning: log: ");
		n += strtoul(text, NULL, 10);
	}
	return n;
}

IT_TEST(pipe_that_nobody_reads)
{
	struct lines lines = { 0 };
	struct worker_fixture worker;
	unsigned long n_lines, n_lost;
	struct it_daemon daemon;

	daemon_start_on(&daemon, pipe_make, &lines.fd);
	worker_open(&worker, NULL, 0);
	for (uint32_t i = 0; i < 10; i++) {
		paged_seq_id seq = worker_create_seq(&worker, 8);

		requests_refuse(&worker, N_REFUSED / 10);
		pagedctl_kill(1000 * i);
		worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	}

	it_require(lines_read_until(&lines, "lines were lost: standard error was not read in time"));
	/* The log works again. */
	worker_expect(&worker, paged_admin_kick(worker.client, NO_SESSION + 1, 0), PAGED_ERR_NOENT);
	it_require(lines_read_until(&lines, "1000000"));
	n_lines = lines_count(lines.text, "999999");
	n_lost = lines_lost(lines.text);
	it_note("%lu lines of refusals, %lu lines lost", n_lines, n_lost);
	it_require(n_lines > 0 && n_lines < N_REFUSED);
	/* Lines of pagedctl's ends may be among those lost. */
	it_require(n_lines + n_lost >= N_REFUSED && n_lines + n_lost < N_REFUSED + 1000, "%lu + %lu", n_lines, n_lost);
	it_require(lines_count(lines.text, "\npagedd: ") + 1 == lines_count(lines.text, "\n"), "a line is torn");

	worker_close(&worker);
	it_daemon_stop(&daemon);
	close(lines.fd);
	free(lines.text);
}

/* Another process that has the pipe, too, makes it non-blocking: lines wait for the reader all the same. */
IT_TEST(pipe_that_does_not_block)
{
	struct lines lines = { 0 };
	struct worker_fixture worker;
	struct it_daemon daemon;
	int pidfd, fd;

	daemon_start_on(&daemon, pipe_make, &lines.fd);
	pidfd = (int)syscall(SYS_pidfd_open, daemon.pid, 0);
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, 2, 0);
	if (fd < 0)
		it_skip("pidfd_getfd: %m");
	it_require(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0, "%m");
	close(fd);
	close(pidfd);
	worker_open(&worker, NULL, 0);
	requests_refuse(&worker, 10000);
	it_require(lines_read_until(&lines, "lines were lost: standard error was not read in time"));
	it_require(lines_count(lines.text, "999999") + lines_lost(lines.text) >= 10000);
	it_require(lines_count(lines.text, "\npagedd: ") + 1 == lines_count(lines.text, "\n"), "a line is torn");
	worker_close(&worker);
	it_daemon_stop(&daemon);
	close(lines.fd);
	free(lines.text);
}

/* The daemon stops although what it has to say is not read, and dies of no signal when the reader is gone. */
IT_TEST(stop_while_nobody_reads)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	int fd;

	for (int reader_lives = 0; reader_lives < 2; reader_lives++) {
		daemon_start_on(&daemon, pipe_make, &fd);
		worker_open(&worker, NULL, 0);
		if (!reader_lives)
			close(fd);
		requests_refuse(&worker, 10000);
		worker_close(&worker);
		it_daemon_stop(&daemon);
		if (reader_lives)
			close(fd);
	}
}

static void
terminal_make(const char *path, int *fd_p)
{
	*fd_p = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	it_require(*fd_p >= 0 && grantpt(*fd_p) == 0 && unlockpt(*fd_p) == 0, "%m");
	it_require(symlink(ptsname(*fd_p), path) == 0, "%m");
}

/* As by ^S. */
IT_TEST(stopped_terminal)
{
	struct lines lines = { 0 };
	struct worker_fixture worker;
	struct it_daemon daemon;
	int slave;

	daemon_start_on(&daemon, terminal_make, &lines.fd);
	slave = open(ptsname(lines.fd), O_RDWR | O_NOCTTY | O_CLOEXEC);
	it_require(slave >= 0 && tcflow(slave, TCOOFF) == 0, "%m");
	worker_open(&worker, NULL, 0);
	requests_refuse(&worker, 10000);
	it_require(tcflow(slave, TCOON) == 0, "%m");
	it_require(lines_read_until(&lines, "lines were lost: standard error was not read in time"));
	worker_close(&worker);
	it_daemon_stop(&daemon);
	close(slave);
	close(lines.fd);
	free(lines.text);
}

static void
size_limit_set(pid_t pid, rlim_t bytes)
{
	const struct rlimit limit = { .rlim_cur = bytes, .rlim_max = RLIM_INFINITY };

	it_require(prlimit(pid, RLIMIT_FSIZE, &limit, NULL) == 0, "%m");
}

static off_t
log_size(const struct it_daemon *daemon)
{
	struct stat facts;

	it_require(stat(daemon->log, &facts) == 0, "%m");
	return facts.st_size;
}

struct growth {
	const struct it_daemon *daemon;
	off_t size;
};

static bool
log_reached(void *argument)
{
	const struct growth *growth = argument;

	return log_size(growth->daemon) >= growth->size;
}

/* The log is a file that may not grow, in the middle of a line; then it may again. */
IT_TEST(full_disk)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	struct growth growth = { .daemon = &daemon };

	it_daemon_start(&daemon, debug_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_expect(&worker, paged_admin_kick(worker.client, 111111, 0), PAGED_ERR_NOENT);
	it_require(it_daemon_logged(&daemon, "111111"));
	growth.size = log_size(&daemon) + 10;
	size_limit_set(daemon.pid, (rlim_t)growth.size);
	requests_refuse(&worker, 5);
	it_require(it_wait(log_reached, &growth));
	size_limit_set(daemon.pid, RLIM_INFINITY);
	worker_expect(&worker, paged_admin_kick(worker.client, 333333, 0), PAGED_ERR_NOENT);
	/* Some of the five may have been tried after that. */
	it_require(it_daemon_logged(&daemon, "lost: standard error: File too large\n"));
	it_require(it_daemon_logged(&daemon, "333333"));
	it_require(it_daemon_logged(&daemon, "\npagedd: warning: log: "), "the torn line was continued");
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

static bool
log_has(const struct it_daemon *daemon, const char *part)
{
	static char text[1 << 20];
	FILE *file = fopen(daemon->log, "re");

	it_require(file != NULL, "%m");
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	return strstr(text, part) != NULL;
}

static void
pagedctl_expect(const char *expected, int expected_code, const char *operand, const char *option)
{
	const char *output;
	int code;

	output = it_pagedctl(&code, "log-level", operand != NULL ? operand : option, operand != NULL ? option : NULL,
			     (char *)NULL);
	it_require(code == expected_code && strcmp(output, expected) == 0, "%d: %s", code, output);
}

/* The level changes while workers run; each change is logged, whatever the levels. */
IT_TEST(level_at_run_time)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	uint32_t was;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	worker_expect(&worker, paged_admin_kick(worker.client, 111111, 0), PAGED_ERR_NOENT);
	pagedctl_expect("info\n", 0, NULL, NULL);
	pagedctl_expect("log level debug, was info\n", 0, "debug", NULL);
	worker_expect(&worker, paged_admin_kick(worker.client, 222222, 0), PAGED_ERR_NOENT);
	it_require(it_daemon_logged(&daemon, "no session 222222\n"));
	it_require(!log_has(&daemon, "111111"));
	pagedctl_expect("{\n  \"log_level\": \"error\",\n  \"was\": \"debug\"\n}\n", 0, "error", "--json");
	it_require(it_daemon_logged(&daemon, "the level is error, and was debug: set by process"));
	worker_expect(&worker, paged_admin_kick(worker.client, 333333, 0), PAGED_ERR_NOENT);
	worker_ok(&worker, paged_admin_log_level(worker.client, PAGED_LOG_WARNING, &was));
	it_require(was == PAGED_LOG_ERROR, "%u", was);
	it_require(it_daemon_logged(&daemon, "pagedd: info: log: the level is warning, and was error"));
	it_require(!log_has(&daemon, "333333"));
	pagedctl_expect("pagedctl: log level loud is none of error, warning, info, debug (see pagedctl --help)\n", 2,
			"loud", NULL);
	worker_expect(&worker, paged_admin_log_level(worker.client, 5, NULL), PAGED_ERR_INVALID);
	it_require(strstr(paged_client_error(worker.client), "log level 5 is none of 3 (error)") != NULL);
	worker_ok(&worker, paged_admin_log_level(worker.client, 0, &was));
	it_require(was == PAGED_LOG_WARNING, "%u", was);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* A socket in the place of journald's. */
static int
journal_open(const struct it_daemon *daemon, char path[96])
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(path, 96, "%s/journal", daemon->dir);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	it_require(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "%m");
	return fd;
}

/* An entry of the journal: its fields as lines, the last of which is "MESSAGE=...". */
static void
entry_receive(int fd, char *text, size_t size)
{
	static const char name[] = "\nMESSAGE\n";
	char datagram[4096];
	uint64_t length;
	char *message;
	ssize_t n = recv(fd, datagram, sizeof(datagram), 0);

	it_require(n > 0, "%m");
	message = memmem(datagram, (size_t)n, name, strlen(name));
	it_require(message != NULL && datagram + n - message > 18 && datagram[n - 1] == '\n');
	memcpy(&length, message + strlen(name), sizeof(length));
	length = le64toh(length);
	it_require(message + strlen(name) + sizeof(length) + length + 1 == datagram + n);
	snprintf(text, size, "%.*s\nMESSAGE=%.*s", (int)(message - datagram), datagram, (int)length,
		 message + strlen(name) + sizeof(length));
}

/* Reads entries until one contains the part; fails the test if none comes. */
static const char *
entry_find(int fd, const char *part)
{
	static char text[4096];

	while (it_readable(fd)) {
		entry_receive(fd, text, sizeof(text));
		if (strstr(text, part) != NULL)
			return text;
	}
	it_require(!"no such entry", "%s", part);
	return NULL;
}

/* Restarts the daemon with a JOURNAL_STREAM that names its log, or another file. */
static void
daemon_restart_journalled(struct it_daemon *daemon, const char *path, int names_log)
{
	char socket_variable[128], stream[64];
	const char *const environment[] = { socket_variable, stream, NULL };
	struct stat facts;

	it_require(stat(daemon->log, &facts) == 0 && truncate(daemon->log, 0) == 0, "%m");
	snprintf(socket_variable, sizeof(socket_variable), "PAGED_TEST_JOURNAL=%s", path);
	snprintf(stream, sizeof(stream), "JOURNAL_STREAM=%ju:%ju", (uintmax_t)facts.st_dev,
		 (uintmax_t)facts.st_ino + !names_log);
	it_daemon_restart(daemon, "tests/daemon/pagedd-faults", environment);
}

IT_TEST(journal_entries)
{
	char path[96], expected[256];
	struct worker_fixture worker;
	struct it_daemon daemon;
	int fd;

	it_daemon_start(&daemon, debug_config, NULL, NULL);
	it_daemon_stop(&daemon);
	fd = journal_open(&daemon, path);
	daemon_restart_journalled(&daemon, path, true);
	it_require(strstr(entry_find(fd, "PAGED_POOL="),
			  "PRIORITY=6\nSYSLOG_IDENTIFIER=pagedd\nPAGED_TOKEN=pool\nPAGED_POOL=test\n"
			  "MESSAGE=pool: test: 64 pages") != NULL);
	worker_open(&worker, NULL, 0);
	requests_refuse(&worker, 1);
	snprintf(expected, sizeof(expected),
		 "PRIORITY=7\nSYSLOG_IDENTIFIER=pagedd\nPAGED_TOKEN=rpc\nPAGED_SESSION=1\nPAGED_MEMBER=1\n"
		 "OBJECT_PID=%d\nMESSAGE=rpc: member 1: no session %u",
		 (int)getpid(), NO_SESSION);
	it_require(strcmp(entry_find(fd, "PAGED_TOKEN=rpc"), expected) == 0, "%s", expected);
	/* More entries than the socket holds, unread: the daemon does not wait. */
	requests_refuse(&worker, 10000);
	it_require(entry_find(fd, "lines were lost: standard error was not read in time") != NULL);
	it_require(log_size(&daemon) == 0);

	/* journald is gone: its stream still takes lines. */
	close(fd);
	unlink(path);
	requests_refuse(&worker, 1);
	it_require(it_daemon_logged(&daemon, "<7>rpc: member 1: no session 999999\n"));
	worker_close(&worker);
	it_daemon_stop(&daemon);

	/* The variable was inherited, and standard error redirected. */
	fd = journal_open(&daemon, path);
	daemon_restart_journalled(&daemon, path, false);
	it_require(it_daemon_logged(&daemon, "pagedd: info: pool: test: 64 pages"));
	it_daemon_stop(&daemon);
	close(fd);
}

IT_MAIN
