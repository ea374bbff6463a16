/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that a suite measures against or with: a pagedd, a bare echo. */
#include "bench/bench.h"

#include <libgen.h>
#include <limits.h>
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
#include <zmq.h>

static char directory[] = "/tmp/paged-bench-XXXXXX";
static char runtime[sizeof(directory) + 8];
static pid_t daemon_pid;

static char echo_directory[] = "/tmp/paged-echo-XXXXXX";
static char echo_endpoint[sizeof(echo_directory) + 16];
static pid_t echo_pid;

/* This program is bench/paged-bench, or bench/.libs/lt-paged-bench. */
const char *
bench_find_file(const char *name)
{
	static char path[PATH_MAX + 64];
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n > 0 ? n : 0] = 0;
	for (char *dir = dirname(self); strlen(dir) > 1; dir = dirname(dir)) {
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		if (access(path, R_OK) == 0)
			return path;
	}
	return NULL;
}

static void
directory_make(char *template)
{
	strcpy(template + strlen(template) - 6, "XXXXXX");
	if (mkdtemp(template) == NULL)
		bench_die("mkdtemp: %m");
}

static void
process_stop(pid_t pid, int number, const char *its_directory)
{
	char command[128];

	kill(pid, number);
	waitpid(pid, NULL, 0);
	snprintf(command, sizeof(command), "rm -rf -- '%s'", its_directory);
	if (system(command) != 0)
		fprintf(stderr, "paged-bench: %s stays\n", its_directory);
}

static const char *
daemon_program(void)
{
	const char *found;

	if (getenv("PAGED_PAGEDD") != NULL)
		return getenv("PAGED_PAGEDD");
	found = bench_find_file("daemon/pagedd");
	return found != NULL ? found : "pagedd";
}

static void
wait_until_ready(int notify)
{
	char message[256];

	for (;;) {
		ssize_t n = recv(notify, message, sizeof(message) - 1, 0);

		if (n < 0)
			bench_die("pagedd: no word of readiness: %m");
		message[n] = 0;
		if (strstr(message, "READY=1") != NULL)
			return;
	}
}

const char *
bench_daemon_start(const char *configuration)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 60 };
	char config[sizeof(directory) + 16];
	FILE *file;
	int notify;

	directory_make(directory);
	snprintf(runtime, sizeof(runtime), "%s/run", directory);
	mkdir(runtime, 0750);
	snprintf(config, sizeof(config), "%s/conf", directory);
	file = fopen(config, "we");
	if (file == NULL)
		bench_die("%s: %m", config);
	fputs(configuration, file);
	fclose(file);

	notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", directory);
	if (notify < 0 || bind(notify, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    setsockopt(notify, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0)
		bench_die("%s: %m", address.sun_path);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	daemon_pid = fork();
	if (daemon_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp(daemon_program(), "pagedd", "--config", config, "--runtime-dir", runtime, "--log-level", "error",
		       (char *)NULL);
		fprintf(stderr, "%s: %m\n", daemon_program());
		_exit(127);
	}
	unsetenv("NOTIFY_SOCKET");
	wait_until_ready(notify);
	close(notify);
	return runtime;
}

void
bench_daemon_stop(void)
{
	process_stop(daemon_pid, SIGTERM, directory);
}

/* ROUTER in, ROUTER out, as a daemon that does nothing would. */
static void
echo_loop(void)
{
	void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
	char peer[256], body[1 << 16];

	if (zmq_bind(router, echo_endpoint) != 0)
		_exit(1);
	for (;;) {
		int peer_size = zmq_recv(router, peer, sizeof(peer), 0);
		int size = zmq_recv(router, body, sizeof(body), 0);

		if (peer_size < 0 || size < 0)
			_exit(0);
		zmq_send(router, peer, (size_t)peer_size, ZMQ_SNDMORE);
		zmq_send(router, body, (size_t)size, 0);
	}
}

const char *
bench_echo_start(void)
{
	directory_make(echo_directory);
	snprintf(echo_endpoint, sizeof(echo_endpoint), "ipc://%s/echo", echo_directory);
	echo_pid = fork();
	if (echo_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		echo_loop();
	}
	return echo_endpoint;
}

void
bench_echo_stop(void)
{
	process_stop(echo_pid, SIGKILL, echo_directory);
}

void
bench_dealer_open(struct bench_dealer *dealer, const char *endpoint)
{
	dealer->context = zmq_ctx_new();
	dealer->socket = zmq_socket(dealer->context, ZMQ_DEALER);
	if (zmq_connect(dealer->socket, endpoint) != 0)
		bench_die("%s: %s", endpoint, zmq_strerror(zmq_errno()));
}

void
bench_dealer_close(struct bench_dealer *dealer)
{
	int none = 0;

	zmq_setsockopt(dealer->socket, ZMQ_LINGER, &none, sizeof(none));
	zmq_close(dealer->socket);
	zmq_ctx_term(dealer->context);
}

void
bench_dealer_trip(const struct bench_dealer *dealer)
{
	char body[8] = { 0 };

	zmq_send(dealer->socket, body, sizeof(body), 0);
	zmq_recv(dealer->socket, body, sizeof(body), 0);
}

double
bench_dealer_trip_us(const void *dealer)
{
	uint64_t start = bench_now_ns();

	for (int i = 0; i < BENCH_TRIPS; i++)
		bench_dealer_trip(dealer);
	return bench_since_us(start) / BENCH_TRIPS;
}
