/* SPDX-License-Identifier: Apache-2.0 */
/**
 * zap.h - handler of ZeroMQ's authentication protocol (ZAP, RFC 27)
 */
#ifndef PAGED_DAEMON_ZAP_H
#define PAGED_DAEMON_ZAP_H

#include <stdbool.h>

struct endpoint;

#define ZAP_DOMAIN "paged"

/** zap_answer - answer one ZAP request; false: there was none */
bool zap_answer(struct endpoint *endpoint);

#endif
