/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv.h - opens the groups of a suite: sizes, pools and batches
 */
#ifndef PAGED_BENCH_KV_KV_H
#define PAGED_BENCH_KV_KV_H

#include "bench/kv/kv_fixture.h"

/** kv_groups_run - call `measure` for each group of the suite that the options select; returns their number */
size_t kv_groups_run(struct bench_report *report, bool on_gpu, void (*measure)(struct kv_group *group));

/** kv_list - print a line for each case that has relations, with its relations */
void kv_list(const struct bench_suite *suite);

/** kv_group_open - create the pools and batches that the group's fixtures need */
void kv_group_open(struct kv_group *group);
void kv_group_close(struct kv_group *group);

/** kv_has_batch - true if the work of the fixture's case is a call of the public API with a batch */
bool kv_has_batch(const struct kv_fixture *fixture);

#endif
