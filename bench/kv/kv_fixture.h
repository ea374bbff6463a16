/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_fixture.h - cases of attention and append, ready to be sampled: their pools, batches and tensors
 *
 * Everything goes through the public API, over explicit page tables, so that the
 * same pool serves permuted and contiguous tables.
 *
 * On a GPU a pool has as many layers as fit, at most those of a model, and a
 * captured graph uses one after another, so that each call reads its keys and values
 * from memory and not from the cache.
 */
#ifndef PAGED_BENCH_KV_KV_FIXTURE_H
#define PAGED_BENCH_KV_KV_FIXTURE_H

#include "bench/gpu/gpu.h"
#include "bench/kv/kv_case.h"
#include "bench/kv/peer.h"
#include "bench/memory_limits.h"
#include "kernels/kernels.h"

#define KV_MAX_POOLS 5
#define KV_GPU_LAYERS 32u

struct kv_shape {
	uint32_t q_heads, kv_heads, k_dim, v_dim;
};

struct kv_pool {
	const struct kv_fixture *first_fixture; /* the first fixture that needs this pool */
	char name[32];
	struct paged_pool *pool;
	struct paged_pool_info info;
	uint32_t n_pages, n_layers, max_length;
	uint32_t *permuted;
};

/** A case, ready to be sampled. */
struct kv_fixture {
	struct kv_case kv_case;        /* with defaults filled in, and scaled to this machine's memory */
	struct bench_case *bench_case; /* in the group's list */
	const struct kv_group *group;
	const struct kv_pool *pool;
	struct kv_shape shape;
	uint32_t n_rows, total_q, n_pages;
	struct paged_batch_row *rows;
	uint32_t *pages;   /* numbers of all pages of the pool; the rows of the batch use the first n_pages */
	uint32_t *trimmed; /* with kv_first: the rows' page tables */
	struct paged_batch *batch;
	struct paged_tensor q, out, k, v;
	struct paged_attention_params attention;
	struct paged_append_params append;
	struct paged_rotary rotary;
	struct paged_mod *mask, *score;
	int32_t *documents;
	/* On the host: */
	double n_blocks;      /* visible blocks, with per_block */
	enum kernel_isa unit; /* of the peak */
	size_t n_repeats;     /* of the work, in one sample */
	struct limit_read read;
	struct limit_copy copy;
	struct layout layout; /* layout and team are used by KV_COPY_PAGES only */
	struct kernel_team *team;
	struct peer_case peer;
	/* On a GPU: */
	struct bench_gpu_graph graph;
	uint32_t n_calls; /* of a graph */
	cuda_address table;
	struct paged_plan_device_params plan;
};

struct kv_group {
	struct bench_report *report;
	bool on_gpu;
	struct paged_client *client;
	struct kv_pool pools[KV_MAX_POOLS];
	size_t n_pools;
	struct kv_fixture fixtures[BENCH_MAX_CASES];
	struct bench_case cases[BENCH_MAX_CASES]; /* of the fixtures */
	size_t n;
};

#endif
