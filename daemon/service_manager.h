/* SPDX-License-Identifier: Apache-2.0 */
/**
 * service_manager.h - the service manager's protocol of sd_notify(3): datagrams to the socket $NOTIFY_SOCKET
 */
#ifndef PAGED_DAEMON_SERVICE_MANAGER_H
#define PAGED_DAEMON_SERVICE_MANAGER_H

#include <stdint.h>

/** service_manager_notify - send a state such as "READY=1"; does nothing without a service manager.  Threads: any. */
void service_manager_notify(const char *state);

/**
 * service_manager_watchdog_us - longest time that the service manager allows between two "WATCHDOG=1"; 0: no watchdog
 */
uint64_t service_manager_watchdog_us(void);

#endif
