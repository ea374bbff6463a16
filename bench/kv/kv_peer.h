/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_peer.h - opens a case's batch in a peer, with the queries, K and V of our own case
 */
#ifndef PAGED_BENCH_KV_KV_PEER_H
#define PAGED_BENCH_KV_KV_PEER_H

#include "bench/kv/kv_fixture.h"

/**
 * kv_peer_open - open the batch; sets the case's `method`, or `skipped` if the peer does not accept the batch
 *
 * For attention, `method` also has the errors of the peer's result and of ours,
 * compared with float64 for some query rows; ends the program if one of them is
 * above 2 %.
 */
void kv_peer_open(struct kv_fixture *fixture);
void kv_peer_close(struct kv_fixture *fixture);

#endif
