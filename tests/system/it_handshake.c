/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching while the ZeroMQ handshake takes longer than the daemon allows, as when a process is stopped or has no CPU.
 * zmq_connect() of this program leads the library's first connection over a relay that stops in the handshake.
 */
#include "config.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/support/worker_fixture.h"

#define IPC "ipc://"
#define GREETING 10 /* bytes of ZMTP's greeting that pass before the relay stops */
#define STOP_MS 1500

static struct {
	bool used;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	struct sockaddr_un daemon;
	int listener;
	pthread_t thread;
	_Atomic unsigned int n_connects;
	unsigned int n_stops; /* connections that stop */
} relay;

static bool
pass_bytes(int from, int to, size_t n_max)
{
	char buffer[4096];
	ssize_t n = recv(from, buffer, n_max < sizeof(buffer) ? n_max : sizeof(buffer), 0);

	return n > 0 && send(to, buffer, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *
relay_run(void *argument)
{
	int client = accept(relay.listener, NULL, NULL), daemon = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd polled[2] = { { .fd = client, .events = POLLIN }, { .fd = daemon, .events = POLLIN } };

	(void)argument;
	if (client >= 0 && connect(daemon, (struct sockaddr *)&relay.daemon, sizeof(relay.daemon)) == 0 &&
	    pass_bytes(client, daemon, GREETING)) {
		poll(NULL, 0, STOP_MS);
		while (poll(polled, 2, -1) > 0)
			if ((polled[0].revents != 0 && !pass_bytes(client, daemon, SIZE_MAX)) ||
			    (polled[1].revents != 0 && !pass_bytes(daemon, client, SIZE_MAX)))
				break;
	}
	close(client);
	close(daemon);
	return NULL;
}

/* Interposes libzmq's. */
int
zmq_connect(void *socket, const char *endpoint)
{
	int (*connect_to)(void *, const char *) = (int (*)(void *, const char *))dlsym(RTLD_NEXT, "zmq_connect");
	char over[sizeof(IPC) + sizeof(relay.path)];

	if (!relay.used || strncmp(endpoint, IPC, strlen(IPC)) != 0 || relay.n_connects++ >= relay.n_stops)
		return connect_to(socket, endpoint);
	relay.daemon.sun_family = AF_UNIX;
	snprintf(relay.daemon.sun_path, sizeof(relay.daemon.sun_path), "%s", endpoint + strlen(IPC));
	it_require(pthread_create(&relay.thread, NULL, relay_run, NULL) == 0);
	snprintf(over, sizeof(over), IPC "%s", relay.path);
	return connect_to(socket, over);
}

static void
relay_open(const struct it_daemon *daemon)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(relay.path, sizeof(relay.path), "%s/relay", daemon->dir);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", relay.path);
	relay.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	it_require(bind(relay.listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		   listen(relay.listener, 4) == 0);
	relay.n_stops = 1;
	relay.used = true;
}

static void
relay_close(void)
{
	pthread_join(relay.thread, NULL);
	close(relay.listener);
	unlink(relay.path);
}

static struct paged_client_params
patient(void)
{
	struct paged_client_params params = worker_params("patient");

	params.timeout_ms = 60000;
	return params;
}

IT_TEST(a_handshake_that_was_dropped_is_begun_again)
{
	struct paged_client_params params = patient();
	struct worker_fixture worker;
	struct it_daemon daemon;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	relay_open(&daemon);
	worker_open(&worker, &params, 0);
	it_require(relay.n_connects == 2, "%u connections", relay.n_connects);
	worker_create_seq(&worker, 4);
	worker_close(&worker);
	relay_close();
	it_daemon_stop(&daemon);
}

/* A daemon that takes no handshake: the call ends after its time-out. */
IT_TEST(a_stopped_daemon_costs_the_time_out_alone)
{
	struct paged_client_params params = worker_params("impatient");
	struct paged_client *client;
	struct it_daemon daemon;

	params.timeout_ms = 300;
	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	kill(daemon.pid, SIGSTOP);
	it_require(paged_client_open(NULL, &params, &client) == PAGED_ERR_TIMEOUT);
	paged_client_close(client);
	kill(daemon.pid, SIGCONT);
	it_daemon_stop(&daemon);
}

static void
open_and_close(int from, int to, void *argument)
{
	struct paged_client_params params = patient();
	struct worker_fixture worker;

	(void)from, (void)to, (void)argument;
	worker_open(&worker, &params, 0);
	worker_close(&worker);
}

/* Either side is stopped for longer than a handshake may take, somewhere while clients attach. */
static void
stop_while_attaching(bool stops_daemon)
{
	struct it_worker worker;
	struct it_daemon daemon;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	for (unsigned int i = 0; i < 8; i++) {
		pid_t stopped;

		it_fork(&worker, open_and_close, NULL);
		stopped = stops_daemon ? daemon.pid : worker.pid;
		usleep(1000 * i);
		kill(stopped, SIGSTOP);
		usleep(700000);
		kill(stopped, SIGCONT);
		it_join(&worker);
	}
	it_daemon_stop(&daemon);
}

IT_TEST(clients_attach_to_a_daemon_that_was_stopped)
{
	stop_while_attaching(true);
}

IT_TEST(clients_that_were_stopped_attach)
{
	stop_while_attaching(false);
}

IT_MAIN
