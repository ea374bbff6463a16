/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_events.h - the part of paged-events that serves vLLM's KV events
 *
 * Each pool has a publisher of its own, with its own endpoints and sequence
 * numbers, which lives as long as the program, and a stream (kv_stream.h) for
 * each life of the daemon.
 */
#ifndef PAGED_EVENTS_KV_EVENTS_H
#define PAGED_EVENTS_KV_EVENTS_H

#include "events/options.h"

struct kv_events;

/** kv_events_open - prepare the part; NULL: no memory, as was logged */
struct kv_events *kv_events_open(const struct events_options *options);

/**
 * kv_events_attach - begin a life of the daemon; does nothing without an endpoint
 *
 * @return false: a pool cannot be watched or served, as was logged
 */
bool kv_events_attach(struct kv_events *kv, struct paged_client *client);

/** kv_events_detach - end it; false: a stream had failed */
bool kv_events_detach(struct kv_events *kv, bool daemon_ended);

/** kv_events_close - takes NULL */
void kv_events_close(struct kv_events *kv);

#endif
