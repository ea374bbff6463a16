/* SPDX-License-Identifier: Apache-2.0 */
/**
 * zap.h - ZeroMQ's authentication protocol (RFC 27): who may connect
 */
#ifndef PAGED_DAEMON_ZAP_H
#define PAGED_DAEMON_ZAP_H

#include <stdbool.h>

struct endpoint;

#define ZAP_DOMAIN "paged"

/** zap_serve - answer one question of ZeroMQ's; false: there is none */
bool zap_serve(struct endpoint *endpoint);

#endif
