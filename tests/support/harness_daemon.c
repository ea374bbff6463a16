/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and stops daemons, each in its own directory. */
#include "config.h"

#include "tests/support/harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness_internal.h"

static void
runtime_dir_make(struct it_daemon *daemon, const char *configuration)
{
	FILE *file;

	strcpy(daemon->dir, "/tmp/paged-it-XXXXXX");
	it_require(mkdtemp(daemon->dir) != NULL, "%m");
	harness_remove_later(daemon->dir);
	snprintf(daemon->config, sizeof(daemon->config), "%s/pagedd.conf", daemon->dir);
	snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->dir);
	file = fopen(daemon->config, "we");
	it_require(file != NULL, "%m");
	fputs(configuration, file);
	fclose(file);
}

/* The daemon reports readiness for clients by systemd's sd_notify protocol. */
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
	const char *wrapper = getenv("PAGED_TEST_WRAPPER");

	if (wrapper != NULL)
		execl(wrapper, wrapper, path, "--config", daemon->config, "--runtime-dir", run_dir, (char *)NULL);
	execl(path, path, "--config", daemon->config, "--runtime-dir", run_dir, (char *)NULL);
	fprintf(stderr, "%s: %m\n", path);
	_exit(127);
}

static void
log_show(const struct it_daemon *daemon)
{
	char text[4096];

	harness_read_file(daemon->log, text, sizeof(text));
	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
		it_note("pagedd: %s", line);
}

/* True: ready; false: ended before that, with this wait status. */
static bool
daemon_try_launch(struct it_daemon *daemon, const char *program, const char *const *environment, int *status_p)
{
	uint64_t end = it_now_ms() + IT_LIMIT_MS;
	int notify = notify_open(daemon);
	bool ready = false;
	char message[256];

	daemon_spawn(daemon, program, environment);
	for (;;) {
		struct pollfd poll_fd = { .fd = notify, .events = POLLIN };
		ssize_t n;

		if (poll(&poll_fd, 1, 20) > 0) {
			n = recv(notify, message, sizeof(message) - 1, 0);
			message[n > 0 ? n : 0] = 0;
			ready = strstr(message, "READY=1") != NULL;
			if (ready)
				break;
		}
		if (waitpid(daemon->pid, status_p, WNOHANG) == daemon->pid)
			break;
		if (it_now_ms() > end) {
			log_show(daemon);
			it_require(!"pagedd was not ready in time");
		}
	}
	close(notify);
	unsetenv("NOTIFY_SOCKET");
	return ready;
}

static void
daemon_launch(struct it_daemon *daemon, const char *program, const char *const *environment)
{
	int status;

	if (daemon_try_launch(daemon, program, environment, &status))
		return;
	log_show(daemon);
	it_require(!"pagedd ended before it was ready", "wait status %x", (unsigned int)status);
}

void
it_daemon_start(struct it_daemon *daemon, const char *configuration, const char *program,
		const char *const *environment)
{
	char run_dir[96];

	runtime_dir_make(daemon, configuration);
	daemon_launch(daemon, program, environment);
	snprintf(run_dir, sizeof(run_dir), "%s/run", daemon->dir);
	/* Clients of the test, including pagedctl, find the daemon by the environment. */
	setenv("PAGED_RUNTIME_DIR", run_dir, 1);
}

const char *
it_daemon_start_failing(struct it_daemon *daemon, const char *configuration)
{
	static char text[4096];
	int status;

	runtime_dir_make(daemon, configuration);
	daemon_spawn(daemon, NULL, NULL);
	it_require(waitpid(daemon->pid, &status, 0) == daemon->pid);
	it_require(WIFEXITED(status) && WEXITSTATUS(status) != 0, "wait status %x", (unsigned int)status);
	harness_read_file(daemon->log, text, sizeof(text));
	return text;
}

void
it_daemon_restart(struct it_daemon *daemon, const char *program, const char *const *environment)
{
	daemon_launch(daemon, program, environment);
}

bool
it_daemon_try_restart(struct it_daemon *daemon, const char *const *environment, const char **output_p)
{
	static char text[1 << 16];
	int status;

	it_require(truncate(daemon->log, 0) == 0, "%m");
	if (daemon_try_launch(daemon, NULL, environment, &status))
		return true;
	it_require(WIFEXITED(status) && WEXITSTATUS(status) == 1, "wait status %x", (unsigned int)status);
	harness_read_file(daemon->log, text, sizeof(text));
	it_require(strstr(text, "Sanitizer") == NULL && strstr(text, "runtime error:") == NULL, "%s", text);
	*output_p = text;
	return false;
}

static void
log_expect_no_sanitizer_report(const struct it_daemon *daemon)
{
	static char text[1 << 20];

	harness_read_file(daemon->log, text, sizeof(text));
	if (strstr(text, "Sanitizer") != NULL || strstr(text, "runtime error:") != NULL) {
		log_show(daemon);
		it_require(!"a sanitizer reported on pagedd");
	}
}

void
it_daemon_stop(struct it_daemon *daemon)
{
	int status;

	kill(daemon->pid, SIGTERM);
	it_require(it_wait(harness_process_ended, &daemon->pid), "pagedd did not stop");
	waitpid(daemon->pid, &status, 0);
	log_expect_no_sanitizer_report(daemon);
	if (status != 0)
		log_show(daemon);
	it_require(status == 0, "pagedd ended with wait status %x", (unsigned int)status);
	daemon->pid = 0;
}

void
it_daemon_kill(struct it_daemon *daemon)
{
	kill(daemon->pid, SIGKILL);
	waitpid(daemon->pid, NULL, 0);
	log_expect_no_sanitizer_report(daemon);
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

	harness_read_file(logged->daemon->log, text, sizeof(text));
	return strstr(text, logged->text) != NULL;
}

bool
it_daemon_logged(const struct it_daemon *daemon, const char *text)
{
	struct logged logged = { daemon, text };

	return it_wait(log_has, &logged);
}

bool
it_daemon_log_has(const struct it_daemon *daemon, const char *text)
{
	return log_has(&(struct logged){ daemon, text });
}
