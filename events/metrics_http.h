/* SPDX-License-Identifier: Apache-2.0 */
/**
 * metrics_http.h - the numbers of metrics_text.h over HTTP, for Prometheus
 *
 * A thread of libmicrohttpd serves all connections.  Nothing that HTTP clients do costs the daemon more than a few
 * requests a second: a snapshot serves all scrapes of METRICS_AGE_MS.  The number of connections, their idle time and
 * the size of a request are limited, and a new connection displaces one of the address that has the most (admission.h),
 * the one that was used the longest ago, so that clients which send nothing keep no other away.
 *
 * Life: open binds the address; attach and detach say which daemon is shown, if any; close ends the thread.
 * Threads: one calls these functions.
 */
#ifndef PAGED_EVENTS_METRICS_HTTP_H
#define PAGED_EVENTS_METRICS_HTTP_H

#include <pagedclient.h>
#include <stdbool.h>

#include "events/options.h"

/** Age up to which a snapshot is used again, milliseconds. */
#define METRICS_AGE_MS 200

struct metrics_http;

/**
 * metrics_http_open - bind options->metrics_listen and start to serve
 *
 * @param[in]  options  borrowed until metrics_http_close()
 * @param[out] http_p   NULL if metrics_listen is
 * @return false: the reason was logged
 */
bool metrics_http_open(const struct events_options *options, struct metrics_http **http_p);

/** metrics_http_attach - from now on scrapes show this client's daemon; http may be NULL */
void metrics_http_attach(struct metrics_http *http, struct paged_client *client);

/** metrics_http_detach - scrapes show that there is no daemon; returns when none uses the client any more */
void metrics_http_detach(struct metrics_http *http);

/** metrics_http_close - stop serving; takes NULL */
void metrics_http_close(struct metrics_http *http);

#endif
