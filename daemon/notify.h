/* SPDX-License-Identifier: Apache-2.0 */
/**
 * notify.h - the service manager's protocol, sd_notify(3): datagrams to the socket that $NOTIFY_SOCKET names
 */
#ifndef PAGED_DAEMON_NOTIFY_H
#define PAGED_DAEMON_NOTIFY_H

#include <stdint.h>

/** notify - send a state, "READY=1"; does nothing without a service manager.  Threads: any. */
void notify(const char *state);

/** notify_watchdog_us - how often the service manager expects "WATCHDOG=1"; 0: it does not */
uint64_t notify_watchdog_us(void);

#endif
