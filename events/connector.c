/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/connector.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/log.h"
#include "events/transport.h"

enum {
	CONNECT_MS = 10000,
	LOOKUP_INTERVAL_MS = 10000,
};

/* The connector's and its thread's: the last of them frees it. */
struct lookup {
	_Atomic int n_users;
	_Atomic bool done;
	struct transport_addresses found;
	const char *problem;
	char endpoint[];
};

struct connector {
	const char *name;
	char *endpoint;
	bool is_number; /* nothing is to be looked up */
	struct lookup *lookup;
	uint64_t looked_up_ms;

	struct transport_addresses addresses;
	uint32_t next; /* address to be tried */
	int fd;        /* is being connected; -1: none */
	uint64_t since_ms;

	char *problem; /* that was logged last; NULL: none since the last connection */
};

struct connector *
connector_create(const char *endpoint, const char *name)
{
	struct connector *connector = calloc(1, sizeof(*connector));

	if (connector == NULL)
		return NULL;
	connector->name = name;
	connector->fd = -1;
	connector->endpoint = strdup(endpoint);
	if (connector->endpoint == NULL) {
		free(connector);
		return NULL;
	}
	connector->is_number = transport_resolve(endpoint, true, &connector->addresses) == NULL;
	return connector;
}

static void
lookup_release(struct lookup *lookup)
{
	if (lookup != NULL && atomic_fetch_sub(&lookup->n_users, 1) == 1)
		free(lookup);
}

void
connector_destroy(struct connector *connector)
{
	if (connector == NULL)
		return;
	if (connector->fd >= 0)
		close(connector->fd);
	lookup_release(connector->lookup);
	free(connector->problem);
	free(connector->endpoint);
	free(connector);
}

static void
connector_failed(struct connector *connector, const char *problem)
{
	if (connector->problem != NULL && strcmp(connector->problem, problem) == 0)
		return;
	events_log(EVENTS_LOG_WARNING, "kv", "pool %s: cannot connect to %s: %s", connector->name, connector->endpoint,
		   problem);
	free(connector->problem);
	connector->problem = strdup(problem);
}

/* Names */

static void *
lookup_run(void *argument)
{
	struct lookup *lookup = argument;

	lookup->problem = transport_resolve(lookup->endpoint, false, &lookup->found);
	lookup->done = true;
	lookup_release(lookup);
	return NULL;
}

static void
lookup_start(struct connector *connector, uint64_t now_ms)
{
	size_t size = strlen(connector->endpoint) + 1;
	struct lookup *lookup = calloc(1, sizeof(*lookup) + size);
	pthread_t thread;

	connector->looked_up_ms = now_ms;
	if (lookup == NULL)
		return;
	memcpy(lookup->endpoint, connector->endpoint, size);
	lookup->n_users = 2;
	if (pthread_create(&thread, NULL, lookup_run, lookup) != 0) {
		connector_failed(connector, "no thread to look up the name");
		free(lookup);
		return;
	}
	pthread_detach(thread);
	connector->lookup = lookup;
}

static void
lookup_take(struct connector *connector)
{
	struct lookup *lookup = connector->lookup;

	if (lookup == NULL || !lookup->done)
		return;
	if (lookup->problem != NULL)
		connector_failed(connector, lookup->problem);
	else
		connector->addresses = lookup->found;
	connector->next = 0;
	lookup_release(lookup);
	connector->lookup = NULL;
}

/* Connections */

static int
connect_error(int fd)
{
	socklen_t size = sizeof(int);
	int error = 0;

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? errno : error;
}

/* Returns the socket if it is connected, or -1.  After a failure, the next address may be tried. */
static int
connect_check(struct connector *connector, uint64_t now_ms)
{
	struct pollfd polled = { .fd = connector->fd, .events = POLLOUT };
	int fd = connector->fd, error = 0;

	if (fd < 0)
		error = errno;
	else if (poll(&polled, 1, 0) > 0)
		error = connect_error(fd);
	else if (now_ms - connector->since_ms >= CONNECT_MS)
		error = ETIMEDOUT;
	else
		return -1;
	connector->fd = -1;
	if (error == 0) {
		free(connector->problem);
		connector->problem = NULL;
		connector->next = 0;
		return fd;
	}
	if (fd >= 0)
		close(fd);
	connector->next++;
	connector_failed(connector, strerror(error));
	return -1;
}

int
connector_step(struct connector *connector, uint64_t now_ms)
{
	int fd = -1;

	lookup_take(connector);
	if (connector->fd >= 0)
		fd = connect_check(connector, now_ms);
	if (fd < 0 && connector->fd < 0 && connector->next >= connector->addresses.n) {
		connector->next = 0;
		if (!connector->is_number && connector->lookup == NULL &&
		    (connector->looked_up_ms == 0 || now_ms - connector->looked_up_ms >= LOOKUP_INTERVAL_MS))
			lookup_start(connector, now_ms);
	}
	while (fd < 0 && connector->fd < 0 && connector->next < connector->addresses.n) {
		connector->fd = transport_connect(&connector->addresses.at[connector->next]);
		connector->since_ms = now_ms;
		fd = connect_check(connector, now_ms);
	}
	return fd;
}
