/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to the addresses of a name, with a name server of this program's own. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/connector.h"
#include "events/transport.h"

/* What the name "router" has; all answers wait for the semaphore. */
static const char *const *answer;
static _Atomic uint32_t n_lookups;
static sem_t answers;

typedef int (*getaddrinfo_function)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* Puts the lists of the numbers of the answer together, in its order. */
int
getaddrinfo(const char *restrict name, const char *restrict service, const struct addrinfo *restrict hints,
	    struct addrinfo **restrict found)
{
	getaddrinfo_function next = (getaddrinfo_function)dlsym(RTLD_NEXT, "getaddrinfo");

	if (strcmp(name, "router") != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0)
		return next(name, service, hints, found);
	n_lookups++;
	sem_wait(&answers);
	if (answer == NULL)
		return EAI_NONAME;
	for (size_t i = 0; answer[i] != NULL; i++) {
		int error = next(answer[i], service, hints, found);

		if (error != 0)
			return error;
		found = &(*found)->ai_next;
	}
	return 0;
}

static int
listen_at(const char *address, uint16_t *port_p)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, address, &at.sin_addr);
	cr_assert_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	cr_assert_eq(listen(fd, 8), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	*port_p = ntohs(at.sin_port);
	return fd;
}

/* A second for each millisecond, for at most a minute of the test's time.  Returns the socket. */
static int
step(struct connector *connector, uint64_t *now_ms)
{
	int fd = -1;

	for (uint32_t i = 0; i < 60000 && fd < 0; i++, *now_ms += 1000) {
		fd = connector_step(connector, *now_ms);
		usleep(1000);
	}
	return fd;
}

/* The first addresses refuse; one has another family. */
Test(connector, all_addresses_are_tried)
{
	static const char *const addresses[] = { "::1", "127.0.0.2", "127.0.0.3", NULL };
	struct connector *connector;
	struct sockaddr_in peer;
	socklen_t size = sizeof(peer);
	uint64_t now_ms = 1000;
	char endpoint[64];
	uint16_t port;
	int listener = listen_at("127.0.0.3", &port), fd;

	sem_init(&answers, 0, 1000000);
	answer = addresses;
	snprintf(endpoint, sizeof(endpoint), "tcp://router:%u", port);
	connector = connector_create(endpoint, "test");
	cr_assert_not_null(connector);
	fd = step(connector, &now_ms);
	cr_assert_geq(fd, 0);
	cr_assert_eq(getpeername(fd, (struct sockaddr *)&peer, &size), 0);
	cr_assert_eq(peer.sin_addr.s_addr, htonl(INADDR_LOOPBACK + 2));
	close(fd);
	connector_destroy(connector);
	close(listener);
}

/* Nothing waits for a name server, and it is asked again. */
Test(connector, a_name_server_that_does_not_answer)
{
	static const char *const addresses[] = { "127.0.0.1", NULL };
	struct connector *connector;
	uint64_t now_ms = 1000;
	char endpoint[64];
	uint16_t port;
	int listener = listen_at("127.0.0.1", &port), fd;

	sem_init(&answers, 0, 0);
	snprintf(endpoint, sizeof(endpoint), "tcp://router:%u", port);
	connector = connector_create(endpoint, "test");
	for (int i = 0; i < 100; i++, now_ms += 1000)
		cr_assert_eq(connector_step(connector, now_ms), -1);
	while (n_lookups == 0)
		usleep(1000);
	cr_assert_eq(n_lookups, 1);
	/* The first answer is that there is no such name. */
	sem_post(&answers);
	while (n_lookups < 2) {
		cr_assert_eq(connector_step(connector, now_ms), -1);
		now_ms += 1000;
		usleep(1000);
	}
	answer = addresses;
	sem_post(&answers);
	fd = step(connector, &now_ms);
	cr_assert_geq(fd, 0);
	close(fd);
	connector_destroy(connector);
	/* Nor does the end. */
	connector = connector_create(endpoint, "test");
	cr_assert_eq(connector_step(connector, now_ms), -1);
	connector_destroy(connector);
	sem_post(&answers);
	close(listener);
}

/* libzmq binds a name's address of IPv4; so does this. */
Test(connector, addresses_of_ipv4_come_first)
{
	static const char *const addresses[] = { "::1", "127.0.0.1", NULL };
	struct transport_addresses found;
	struct transport_listener listener;
	char text[64];

	sem_init(&answers, 0, 2);
	answer = addresses;
	cr_assert_null(transport_resolve("tcp://router:1", false, &found));
	cr_assert_eq(found.n, 2);
	cr_assert_eq(found.at[0].ss_family, AF_INET);
	cr_assert_eq(found.at[1].ss_family, AF_INET6);
	cr_assert_null(transport_listen("tcp://router:*", &listener));
	transport_text(&listener, text, sizeof(text));
	cr_assert_eq(strncmp(text, "tcp://127.0.0.1:", 16), 0);
	transport_close(&listener);
}
