/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_host.h - runs the cases of kv_case.h on the host
 */
#ifndef PAGED_BENCH_KV_HOST_H
#define PAGED_BENCH_KV_HOST_H

#include "bench/suite.h"

/** kv_host_run - the `run` of suites that use no GPU */
void kv_host_run(struct bench_report *report);

#endif
