/* SPDX-License-Identifier: Apache-2.0 */
/* Which endpoints can be bound, and what happens to the files that are there. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "events/transport.h"

static char dir[] = "/tmp/unit_transport.XXXXXX", path[64], endpoint[80];

static void
dir_create(void)
{
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/kv", dir);
	snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
}

/* No other file may be left next to the socket. */
static void
dir_remove(void)
{
	unlink(path);
	cr_assert_eq(rmdir(dir), 0);
}

/* No number becomes another port. */
Test(transport, ports)
{
	static const char *const wrong[] = {
		"65536", "131072", "18446744073709551617", "99999999999999999999", "-1", "+1", " 1", "0x10", "http",
		"1*",    ""
	};
	struct transport_listener listener;
	char text[64];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(text, sizeof(text), "tcp://127.0.0.1:%s", wrong[i]);
		cr_assert_not_null(transport_check(text), "%s", text);
		cr_assert_not_null(transport_listen(text, &listener), "%s", text);
	}
	cr_assert_null(transport_check("tcp://127.0.0.1:65535"));
	cr_assert_not_null(transport_check("tcp://127.0.0.1:0"));
	cr_assert_not_null(transport_check("tcp://127.0.0.1:*"));
	cr_assert_null(transport_listen("tcp://127.0.0.1:*", &listener));
	transport_text(&listener, text, sizeof(text));
	transport_close(&listener);
	cr_assert_eq(strncmp(text, "tcp://127.0.0.1:", 16), 0);
	cr_assert_neq(atoi(text + 16), 0);
}

/* With something to be sent, keepalive does not run. */
Test(transport, peers_that_have_gone)
{
	struct transport_addresses found;
	struct transport_listener listener;
	int client, accepted, limit_ms;
	socklen_t size = sizeof(limit_ms);
	char text[64];

	cr_assert_null(transport_listen("tcp://127.0.0.1:*", &listener));
	transport_text(&listener, text, sizeof(text));
	cr_assert_null(transport_resolve(text, true, &found));
	client = transport_connect(&found.at[0]);
	while ((accepted = transport_accept(&listener)) < 0)
		;
	cr_assert_eq(getsockopt(accepted, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &size), 0);
	cr_assert_eq(limit_ms, 120000);
	close(accepted);
	close(client);
	transport_close(&listener);
}

/* What a process leaves that is killed. */
static void
leave_socket(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, path);
	cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
}

Test(transport, a_left_socket_is_replaced, .init = dir_create, .fini = dir_remove)
{
	struct transport_listener listener, other;

	leave_socket();
	cr_assert_null(transport_listen(endpoint, &listener));
	cr_assert_not_null(transport_listen(endpoint, &other));
	cr_assert_eq(access(path, F_OK), 0);
	transport_close(&listener);
	cr_assert_neq(access(path, F_OK), 0);
}

/* A regular file, and what a link leads to, stay. */
Test(transport, other_files_stay, .init = dir_create, .fini = dir_remove)
{
	struct transport_listener listener;
	struct stat status;
	FILE *file = fopen(path, "w");

	cr_assert_not_null(file);
	fputs("a model", file);
	fclose(file);
	cr_assert_not_null(transport_listen(endpoint, &listener));
	cr_assert_eq(stat(path, &status), 0);
	cr_assert_eq(status.st_size, 7);
	unlink(path);
	cr_assert_eq(symlink("/dev/null", path), 0);
	cr_assert_not_null(transport_listen(endpoint, &listener));
	cr_assert_eq(lstat(path, &status), 0);
}

enum { STARTERS = 2, ROUNDS = 2000 };

static pthread_barrier_t barrier;
static struct transport_listener started[STARTERS];
static bool succeeded[STARTERS];

static void *
start_run(void *argument)
{
	size_t i = (size_t)argument;

	for (int round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&barrier);
		succeeded[i] = transport_listen(endpoint, &started[i]) == NULL;
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* One of those that start at once gets the path, and keeps it. */
Test(transport, starts_at_once, .init = dir_create, .fini = dir_remove)
{
	pthread_t threads[STARTERS];

	pthread_barrier_init(&barrier, NULL, STARTERS + 1);
	for (size_t i = 0; i < STARTERS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, start_run, (void *)i), 0);
	for (int round = 0; round < ROUNDS; round++) {
		int n = 0;

		leave_socket();
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		for (size_t i = 0; i < STARTERS; i++)
			n += succeeded[i];
		cr_assert_eq(n, 1, "round %d: %d listen", round, n);
		for (size_t i = 0; i < STARTERS; i++)
			if (succeeded[i])
				transport_close(&started[i]);
		cr_assert_neq(access(path, F_OK), 0);
		pthread_barrier_wait(&barrier);
	}
	for (size_t i = 0; i < STARTERS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
}
