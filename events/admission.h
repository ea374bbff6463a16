/* SPDX-License-Identifier: Apache-2.0 */
/**
 * admission.h - which connection is closed so that a new one may come
 *
 * The number of connections is limited, and nothing that one origin does keeps another away: a new connection
 * displaces one of the origin that has the most.  An origin is a user on a Unix socket, an address on TCP.
 */
#ifndef PAGED_EVENTS_ADMISSION_H
#define PAGED_EVENTS_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Where a connection comes from: a uid, an IPv4 address, or the first 64 bits of an IPv6 address. */
struct origin {
	uint64_t kind, number;
};

/** origin_of - of the peer of a connected socket */
struct origin origin_of(int fd);

/** A connection, as far as admission is concerned. */
struct admission_entry {
	struct origin origin;
	enum {
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
 * It is one of the origin that has the most: the new or idle one that was used the longest ago, or else the
 * active one that came last.
 *
 * @return its index; n: none, refuse the new connection
 */
size_t admission_victim(const struct admission_entry *entries, size_t n, const struct origin *origin);

#endif
