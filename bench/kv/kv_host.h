/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_host.h - runs the cases of kv_case.h on the host
 */
#ifndef PAGED_BENCH_KV_KV_HOST_H
#define PAGED_BENCH_KV_KV_HOST_H

#include "bench/kv/kv_fixture.h"
#include "bench/suite.h"

/** kv_host_run - the `run` of suites that use no GPU */
void kv_host_run(struct bench_report *report);

/** kv_host_head_at - address of a token of row r; heads 0 .. kv_heads-1 are K, the next kv_heads are V */
uint8_t *kv_host_head_at(const struct kv_fixture *fixture, uint32_t r, uint32_t head, uint32_t token);

#endif
