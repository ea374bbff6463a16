/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_mods.h - binds a case's mask and score mods
 */
#ifndef PAGED_BENCH_KV_KV_MODS_H
#define PAGED_BENCH_KV_KV_MODS_H

#include "bench/kv/kv_fixture.h"

/** kv_mods_open - bind the case's mask and score mods, and count the blocks that are at least partly seen */
void kv_mods_open(struct kv_fixture *fixture);

#endif
