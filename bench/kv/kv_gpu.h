/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_gpu.h - runs the cases of kv_case.h on a GPU
 */
#ifndef PAGED_BENCH_KV_KV_GPU_H
#define PAGED_BENCH_KV_KV_GPU_H

#include "bench/suite.h"

/** kv_gpu_run - the `run` of the GPU suite */
void kv_gpu_run(struct bench_report *report);

#endif
