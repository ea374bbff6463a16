/* SPDX-License-Identifier: Apache-2.0 */
/**
 * transport.h - sockets of ZeroMQ's endpoints "tcp://..." and "ipc://..."
 *
 * tcp://HOST:PORT, where HOST is a name, an address, an IPv6 address in brackets, or, to bind, "*" (all IPv4
 * addresses); PORT may be "*" or 0 to bind any.  ipc://PATH is a Unix socket; the permissions of its directory, and
 * the process's umask, decide who may connect.  A socket that is left from an earlier run is replaced; any other file,
 * and a socket that a process listens at, is not.
 *
 * All sockets are non-blocking.
 */
#ifndef PAGED_EVENTS_TRANSPORT_H
#define PAGED_EVENTS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct transport_listener {
	int fd;
	/* With ipc://, what was bound, so that another's file is not removed. */
	char *path;
	struct stat status;
	/* PATH.lock, which is held as long as the listener is open. */
	char *lock_path;
	int lock;
	bool locked;
};

/** transport_is_bound - whether vLLM binds an endpoint: it has "*" or "::" in it, or is ipc:// */
bool transport_is_bound(const char *endpoint);

/** transport_listen - bind an endpoint and listen; NULL, or what is wrong */
const char *transport_listen(const char *endpoint, struct transport_listener *listener);

/** transport_close - also removes the socket and its lock */
void transport_close(struct transport_listener *listener);

/** transport_text - the endpoint that a listener is bound to, with the port that a wildcard stands for */
void transport_text(const struct transport_listener *listener, char *text, size_t size);

/** transport_accept - the next connection; -1: errno says why there is none */
int transport_accept(const struct transport_listener *listener);

/** transport_check - NULL, or what is wrong with the text of an endpoint to connect to, which must be tcp:// */
const char *transport_check(const char *endpoint);

#define TRANSPORT_MAX_ADDRESSES 8

/** The addresses of a host, those of IPv4 first. */
struct transport_addresses {
	uint32_t n;
	struct sockaddr_storage at[TRANSPORT_MAX_ADDRESSES];
};

/**
 * transport_resolve - the addresses of an endpoint tcp://...
 *
 * @param[in] is_number  look no name up, which may take long
 * @return NULL, or what is wrong
 */
const char *transport_resolve(const char *endpoint, bool is_number, struct transport_addresses *addresses);

/** transport_connect - begin to connect; -1: errno says why not */
int transport_connect(const struct sockaddr_storage *address);

#endif
