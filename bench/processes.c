/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/processes.h"

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

#include "bench/base.h"

/* A child in a directory of its own. */
static struct process {
	char directory[32];
	pid_t pid;
} pagedd, echo;

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
process_prepare(struct process *process)
{
	strcpy(process->directory, "/tmp/paged-bench-XXXXXX");
	if (mkdtemp(process->directory) == NULL)
		bench_die("mkdtemp: %m");
}

/* True in the child. */
static bool
process_fork(struct process *process)
{
	process->pid = fork();
	if (process->pid < 0)
		bench_die("fork: %m");
	return process->pid == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

static void
process_stop(const struct process *process, int number)
{
	char command[64];

	kill(process->pid, number);
	waitpid(process->pid, NULL, 0);
	snprintf(command, sizeof(command), "rm -rf -- '%s'", process->directory);
	if (system(command) != 0)
		fprintf(stderr, "paged-bench: %s stays\n", process->directory);
}

static void
daemon_exec(const char *config, const char *runtime)
{
	const char *program = getenv("PAGED_PAGEDD");

	if (program == NULL)
		program = bench_find_file("daemon/pagedd");
	if (program == NULL)
		program = "pagedd";
	execlp(program, "pagedd", "--config", config, "--runtime-dir", runtime, "--log-level", "error", (char *)NULL);
	fprintf(stderr, "%s: %m\n", program);
	_exit(127);
}

const char *
bench_daemon_start(const char *configuration)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 60 };
	static char runtime[sizeof(pagedd.directory) + 8];
	char config[sizeof(runtime)], message[256] = "";
	FILE *file;
	int notify;

	process_prepare(&pagedd);
	snprintf(runtime, sizeof(runtime), "%s/run", pagedd.directory);
	mkdir(runtime, 0750);
	snprintf(config, sizeof(config), "%s/conf", pagedd.directory);
	file = fopen(config, "we");
	if (file == NULL)
		bench_die("%s: %m", config);
	fputs(configuration, file);
	fclose(file);

	notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", pagedd.directory);
	if (notify < 0 || bind(notify, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    setsockopt(notify, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0)
		bench_die("%s: %m", address.sun_path);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	if (process_fork(&pagedd))
		daemon_exec(config, runtime);
	unsetenv("NOTIFY_SOCKET");
	while (strstr(message, "READY=1") == NULL) {
		ssize_t n = recv(notify, message, sizeof(message) - 1, 0);

		if (n < 0)
			bench_die("pagedd is not ready: %m");
		message[n] = 0;
	}
	close(notify);
	return runtime;
}

void
bench_daemon_stop(void)
{
	process_stop(&pagedd, SIGTERM);
}

/* Receive and reply on a ROUTER socket, as a daemon without any work would. */
static void
echo_loop(const char *endpoint)
{
	void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
	char peer[256], body[1 << 16];

	if (zmq_bind(router, endpoint) != 0)
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
	static char endpoint[sizeof(echo.directory) + 16];

	process_prepare(&echo);
	snprintf(endpoint, sizeof(endpoint), "ipc://%s/echo", echo.directory);
	if (process_fork(&echo))
		echo_loop(endpoint);
	return endpoint;
}

void
bench_echo_stop(void)
{
	process_stop(&echo, SIGKILL);
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

double
bench_ping_us(const void *client_p)
{
	struct paged_client *client = *(struct paged_client *const *)client_p;
	uint64_t start = bench_now_ns();

	for (int i = 0; i < BENCH_TRIPS; i++)
		bench_client_must(client, paged_client_ping(client));
	return bench_since_us(start) / BENCH_TRIPS;
}
