/* SPDX-License-Identifier: Apache-2.0 */
/**
 * admission.h - which connection is closed so that a new one may come
 *
 * The number of connections is limited.  A new connection displaces one of the origin that has the most.  An origin is
 * a user on a Unix socket; an address of IPv4, or the first 64 bits of one of IPv6, on TCP.  All addresses of
 * loopback are one origin.
 *
 * So nothing that one origin does keeps another away.  A host with many addresses has many origins: together they can
 * leave each other origin no more than two connections in use, and keep away one that comes later.
 */
#ifndef PAGED_EVENTS_ADMISSION_H
#define PAGED_EVENTS_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/** Most connections that admission_victim() chooses from. */
#define ADMISSION_MAX 4096

/** Where a connection comes from: `number` is a uid, an address, or the first 64 bits of an IPv6 address. */
struct origin {
	uint64_t kind;
	uint64_t group; /* first 48 bits of an IPv6 address: one customer's; else as `number` */
	uint64_t number;
};

/** origin_of_address - of an address of IPv4 or IPv6 */
struct origin origin_of_address(const struct sockaddr_storage *address);

/** origin_of - of the peer of a connected socket */
struct origin origin_of(int fd);

/** A connection, as far as admission is concerned. */
struct admission_entry {
	struct origin origin;
	enum admission_state {
		ADMISSION_FREE,  /* no connection, or one that is being closed */
		ADMISSION_NEW,   /* nothing of use was received */
		ADMISSION_IDLE,  /* may be displaced by its own origin */
		ADMISSION_ACTIVE /* displaced only by another origin that has fewer */
	} state;
	uint64_t used; /* grows with time */
};

/**
 * admission_victim - the connection to be closed so that one more of an origin may come
 *
 * It is one of the group that has the most, and in it of the origin that has the most, if that has more than the new
 * one's would have: the new or idle one that was used the longest ago, or else the active one that came last, if its
 * group has more than two.  If there is none, it is a new or idle one of the new one's origin, and then the
 * new or idle one that was used the longest ago of all origins that have as many as the new one's would have.
 *
 * @return its index; n: none, refuse the new connection
 */
size_t admission_victim(const struct admission_entry *entries, size_t n, const struct origin *origin);

#endif
