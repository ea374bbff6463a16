/* SPDX-License-Identifier: Apache-2.0 */
/**
 * connector.h - connects to an endpoint tcp://HOST:PORT until it is reached
 *
 * All addresses of a name are tried, one after the other, those of IPv4 first as by libzmq.  A thread of its own looks
 * the name up, because a name server that does not answer takes many seconds; the name is looked up again when all
 * addresses have failed, at most every 10 seconds.  The first failure is logged, and each that has another reason than
 * the one before.
 *
 * Threads: one at a time.
 */
#ifndef PAGED_EVENTS_CONNECTOR_H
#define PAGED_EVENTS_CONNECTOR_H

#include <stdint.h>

struct connector;

/**
 * connector_create - nothing is connected to yet
 *
 * @param[in] endpoint  transport_check() accepts it
 * @param[in] name      of the pool, for log lines; borrowed
 * @return NULL: no memory
 */
struct connector *connector_create(const char *endpoint, const char *name);

/** connector_destroy - takes NULL; does not wait for a look-up */
void connector_destroy(struct connector *connector);

/** connector_step - go on connecting, without waiting: once a second; returns a socket that is connected, or -1 */
int connector_step(struct connector *connector, uint64_t now_ms);

#endif
