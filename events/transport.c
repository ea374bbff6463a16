/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	BACKLOG = 64,
	/* What the kernel keeps for a peer that does not read, or that sends too much; it doubles both. */
	SEND_BUFFER = 64 << 10,
	RECEIVE_BUFFER = 8 << 10,
	/* A peer whose machine has gone is noticed after 2 minutes, whether something is to be sent to it or not. */
	KEEPALIVE_IDLE_S = 60,
	KEEPALIVE_INTERVAL_S = 20,
	KEEPALIVE_PROBES = 3,
	UNANSWERED_MS = 120000,
};

static const char tcp[] = "tcp://", ipc[] = "ipc://";
static const char unknown_protocol[] = "Protocol not supported: an endpoint begins with tcp:// or ipc://";

bool
transport_is_bound(const char *endpoint)
{
	return strchr(endpoint, '*') != NULL || strstr(endpoint, "::") != NULL ||
	       strncmp(endpoint, ipc, strlen(ipc)) == 0;
}

static const char *
unix_address(const char *endpoint, struct sockaddr_un *address)
{
	const char *path = endpoint + strlen(ipc);

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	if (path[0] == '\0' || path[0] == '@')
		return "ipc:// needs a path of a file";
	if (strlen(path) >= sizeof(address->sun_path))
		return "the path of a socket has at most 107 bytes";
	memcpy(address->sun_path, path, strlen(path));
	return NULL;
}

/* getaddrinfo() and libzmq take the lowest 16 bits of a number, and so another port. */
static const char *
tcp_port(const char *text, char port[16])
{
	unsigned long number = strcmp(text, "*") == 0 ? 0 : strtoul(text, NULL, 10);

	if (strcmp(text, "*") != 0 && (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0'))
		return "tcp:// needs HOST:PORT";
	if (number > UINT16_MAX)
		return "a port is at most 65535";
	snprintf(port, 16, "%lu", number);
	return NULL;
}

/* Splits tcp://HOST:PORT. */
static const char *
tcp_split(const char *endpoint, char host[NI_MAXHOST], char port[16])
{
	const char *from = endpoint + strlen(tcp), *colon = strrchr(from, ':');
	size_t length = colon != NULL ? (size_t)(colon - from) : 0;

	if (colon != NULL && from[0] == '[') {
		if (length < 3 || from[length - 1] != ']')
			return "an IPv6 address needs both brackets";
		from++;
		length -= 2;
	}
	if (length == 0 || length >= NI_MAXHOST)
		return "tcp:// needs HOST:PORT";
	snprintf(host, NI_MAXHOST, "%.*s", (int)length, from);
	return tcp_port(colon + 1, port);
}

/* Adds the addresses of a family. */
static void
addresses_add(struct transport_addresses *addresses, const struct addrinfo *found, int family)
{
	for (; found != NULL && addresses->n < TRANSPORT_MAX_ADDRESSES; found = found->ai_next)
		if (found->ai_family == family)
			memcpy(&addresses->at[addresses->n++], found->ai_addr, found->ai_addrlen);
}

static const char *
tcp_find(const char *endpoint, int flags, struct transport_addresses *addresses)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICSERV | flags, .ai_socktype = SOCK_STREAM }, *found = NULL;
	char host[NI_MAXHOST], port[16];
	const char *problem = tcp_split(endpoint, host, port);
	bool any = problem == NULL && strcmp(host, "*") == 0;
	int error;

	memset(addresses, 0, sizeof(*addresses));
	if (problem != NULL)
		return problem;
	if (any)
		hints.ai_family = AF_INET;
	error = getaddrinfo(any ? NULL : host, port, &hints, &found);
	if (error != 0)
		return gai_strerror(error);
	addresses_add(addresses, found, AF_INET);
	addresses_add(addresses, found, AF_INET6);
	freeaddrinfo(found);
	return addresses->n > 0 ? NULL : "the name has no address of IPv4 or IPv6";
}

static void
socket_prepare(int fd)
{
	const int on = 1, send_buffer = SEND_BUFFER, receive_buffer = RECEIVE_BUFFER, idle = KEEPALIVE_IDLE_S,
		  interval = KEEPALIVE_INTERVAL_S, probes = KEEPALIVE_PROBES, unanswered_ms = UNANSWERED_MS;

	/* Those of TCP fail on a Unix socket, which needs none. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof(unanswered_ms));
}

static int
socket_create(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0)
		socket_prepare(fd);
	return fd;
}

static const char *
tcp_listen(const char *endpoint, struct transport_listener *listener)
{
	struct transport_addresses addresses;
	const char *problem = tcp_find(endpoint, AI_PASSIVE, &addresses);
	const int on = 1;

	for (uint32_t i = 0; i < addresses.n; i++) {
		const struct sockaddr *address = (const struct sockaddr *)&addresses.at[i];

		if (listener->fd >= 0)
			close(listener->fd);
		listener->fd = socket_create(address->sa_family);
		if (listener->fd >= 0 && setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
		    bind(listener->fd, address, sizeof(addresses.at[i])) == 0 && listen(listener->fd, BACKLOG) == 0)
			return NULL;
		problem = strerror(errno);
	}
	return problem;
}

static bool
same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/*
 * Takes the lock of a socket, so that no other start finds the socket bound and not listening yet, which looks as
 * if it were left from an earlier run.
 */
static const char *
unix_lock(const char *path, struct transport_listener *listener)
{
	struct stat opened, found;

	if (asprintf(&listener->lock_path, "%s.lock", path) < 0) {
		listener->lock_path = NULL;
		return strerror(ENOMEM);
	}
	for (;;) {
		listener->lock =
			open(listener->lock_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
		if (listener->lock < 0)
			return strerror(errno);
		if (flock(listener->lock, LOCK_EX | LOCK_NB) < 0)
			return strerror(errno == EWOULDBLOCK ? EADDRINUSE : errno);
		/* The one who held it before may have removed it since it was opened. */
		if (fstat(listener->lock, &opened) == 0 && lstat(listener->lock_path, &found) == 0 &&
		    same_file(&opened, &found)) {
			listener->locked = true;
			return NULL;
		}
		close(listener->lock);
	}
}

/* A socket that no process listens at is left from an earlier run; any other file is not ours to remove. */
static bool
unix_is_stale(const struct sockaddr_un *address)
{
	struct stat status;
	bool stale;
	int fd;

	if (lstat(address->sun_path, &status) < 0 || !S_ISSOCK(status.st_mode))
		return false;
	fd = socket_create(AF_UNIX);
	stale = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 && errno == ECONNREFUSED;
	if (fd >= 0)
		close(fd);
	return stale;
}

static const char *
unix_listen(const char *endpoint, struct transport_listener *listener)
{
	struct sockaddr_un address;
	const char *problem = unix_address(endpoint, &address);
	int error;

	if (problem == NULL)
		problem = unix_lock(address.sun_path, listener);
	if (problem != NULL)
		return problem;
	listener->fd = socket_create(AF_UNIX);
	if (listener->fd < 0)
		return strerror(errno);
	error = bind(listener->fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
	if (error == EADDRINUSE && unix_is_stale(&address)) {
		unlink(address.sun_path);
		error = bind(listener->fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
	}
	if (error != 0)
		return strerror(error);
	listener->path = strdup(address.sun_path);
	if (listener->path == NULL || lstat(address.sun_path, &listener->status) < 0 ||
	    listen(listener->fd, BACKLOG) < 0)
		return strerror(errno);
	return NULL;
}

const char *
transport_listen(const char *endpoint, struct transport_listener *listener)
{
	const char *problem = unknown_protocol;

	*listener = (struct transport_listener){ .fd = -1, .lock = -1 };
	if (strncmp(endpoint, tcp, strlen(tcp)) == 0)
		problem = tcp_listen(endpoint, listener);
	else if (strncmp(endpoint, ipc, strlen(ipc)) == 0)
		problem = unix_listen(endpoint, listener);
	if (problem != NULL)
		transport_close(listener);
	return problem;
}

void
transport_close(struct transport_listener *listener)
{
	struct stat status;

	if (listener->fd >= 0)
		close(listener->fd);
	if (listener->path != NULL && lstat(listener->path, &status) == 0 && same_file(&status, &listener->status))
		unlink(listener->path);
	if (listener->locked)
		unlink(listener->lock_path);
	if (listener->lock >= 0)
		close(listener->lock);
	free(listener->path);
	free(listener->lock_path);
	*listener = (struct transport_listener){ .fd = -1, .lock = -1 };
}

void
transport_text(const struct transport_listener *listener, char *text, size_t size)
{
	struct sockaddr_storage storage;
	socklen_t address_size = sizeof(storage);
	char host[NI_MAXHOST], port[16];

	if (listener->path != NULL)
		snprintf(text, size, "%s%s", ipc, listener->path);
	else if (getsockname(listener->fd, (struct sockaddr *)&storage, &address_size) == 0 &&
		 getnameinfo((struct sockaddr *)&storage, address_size, host, sizeof(host), port, sizeof(port),
			     NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(text, size, storage.ss_family == AF_INET6 ? "%s[%s]:%s" : "%s%s:%s", tcp, host, port);
	else
		snprintf(text, size, "?");
}

int
transport_accept(const struct transport_listener *listener)
{
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0)
		socket_prepare(fd);
	return fd;
}

const char *
transport_check(const char *endpoint)
{
	char host[NI_MAXHOST], port[16];
	const char *problem = unknown_protocol;

	if (strncmp(endpoint, tcp, strlen(tcp)) == 0)
		problem = tcp_split(endpoint, host, port);
	if (problem == NULL && strcmp(host, "*") == 0)
		return "* is no address to connect to";
	if (problem == NULL && strcmp(port, "0") == 0)
		return "0 is no port to connect to";
	return problem;
}

const char *
transport_resolve(const char *endpoint, bool is_number, struct transport_addresses *addresses)
{
	return tcp_find(endpoint, is_number ? AI_NUMERICHOST : 0, addresses);
}

int
transport_connect(const struct sockaddr_storage *address)
{
	int fd = socket_create(address->ss_family), error;

	if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EINPROGRESS)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}
