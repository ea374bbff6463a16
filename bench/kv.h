/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv.h - cases of attention and append, on the host or a GPU, and their batches
 *
 * A suite is a table of struct kv_case.  Cases of a group share pools, are
 * sampled in turn and are related to each other.  Everything goes through the
 * public API, over explicit page tables, so that the same pool serves permuted
 * and contiguous tables.
 *
 * On a GPU a pool has as many layers as fit, at most those of a model, and a
 * captured graph uses them in turn, so that each call reads its keys and values
 * from memory and not from the cache.
 */
#ifndef PAGED_BENCH_KV_H
#define PAGED_BENCH_KV_H

#include "bench/gpu.h"
#include "bench/memory_limits.h"
#include "bench/suite.h"

#define KV_ROW_KINDS 3
#define KV_MAX_POOLS 5
#define KV_GPU_LAYERS 32u

/** Rows of a batch with the same lengths. */
struct kv_rows {
	uint32_t n, q_len, kv_len;
};

enum kv_work {
	KV_ATTEND,
	KV_APPEND,
	KV_GATHER, /* copies the appended tokens into tensors */
	KV_PAGES,  /* copies pages: the first row's to the second's; on a GPU all pages to free ones */
	KV_PLAN,   /* plans the batch and computes nothing */
	KV_READ,   /* limit: reads the batch's pages as fast as possible */
	KV_COPY,   /* limit: copies as many bytes as the work `copied`, to the same places */
	KV_PEAK,   /* limit: as many operations, on registers only */
	KV_ROOF,   /* limit: KV_READ, or KV_PEAK of the unit that the dtype allows, whichever takes longer */
	KV_TORCH,  /* PyTorch's fastest attention, on contiguous K and V */
	/* On a GPU: */
	KV_EMPTY,     /* a kernel that does nothing */
	KV_COPY_HALF, /* copies one half of the batch's pages to the other half, by cuMemcpyDtoD */
	KV_COPY_ALL,  /* copies the batch's pages of all layers, by cuMemcpyDtoD */
};

/**
 * PyTorch's attention, measured in turn with ours
 *
 * Two child processes run peers/cpu_torch.py with as many threads as we have,
 * pinned: the OpenMP threads of one wait actively, those of the other sleep.  A
 * batch is opened in both, and the faster one's samples count.  A child is
 * stopped (SIGSTOP) while it is not asked, because threads that wait actively
 * would take our cores.
 */
struct torch_case {
	int number;
	unsigned int child; /* the faster one */
	char how[96];       /* which implementation it used, and how its threads waited */
};

/** A case as a suite's table describes it. */
struct kv_case {
	const char *name;
	const char *group;         /* NULL: a group of its own */
	enum kv_work work, copied; /* copied: only for KV_COPY */
	struct kv_rows rows[KV_ROW_KINDS];
	uint32_t q_heads, kv_heads; /* 0: 32 and 8 */
	uint32_t page_size;         /* 0: 16 */
	bool contiguous;            /* pages in order, not permuted */
	bool latent;                /* MLA: one head of 576, its first 512 are V */
	enum paged_dtype dtype;     /* of the pool; 0: bf16 */
	enum paged_dtype from;      /* of the tensors to append; 0: bf16 */
	const char *mask, *score;   /* in addition to causal; they may name window, doc, heads and cap */
	uint32_t window;
	bool more;     /* only with --long */
	bool by_block; /* result is ns per block of 128 tokens and query rows that is at least partly seen */
	bool rotary;
	const char *export; /* a pagedd owns the pool and exports it this way; NULL: the owner is in this process */
	struct bench_relation relations[BENCH_MAX_RELATIONS]; /* to other cases of the group */
	const char *limit, *target;                           /* as struct bench_case has them */
};

/** Rows of each kind in braces: number of rows, query rows of each, tokens of each. */
#define KV_ROWS(...) .rows = { __VA_ARGS__ }

/** Ratios to other cases of the group, by their names, each with its target or NULL. */
#define KV_RELATIONS(...) .relations = { __VA_ARGS__ }
#define KV_VS_LIMIT(to, wanted)                              \
	{                                                    \
		BENCH_AGAINST_LIMIT, BENCH_SHARE, to, wanted \
	}
#define KV_VS_ORDER(to, wanted)                                   \
	{                                                         \
		BENCH_AGAINST_CONTIGUOUS, BENCH_TIMES, to, wanted \
	}
#define KV_VS_TORCH(to, wanted)                               \
	{                                                     \
		BENCH_AGAINST_TORCH, BENCH_FASTER, to, wanted \
	}

/** A reference case over the same batch as the case `title`. */
#define KV_BESIDE(title, suffix, what, ...)                                     \
	{                                                                       \
		.group = title, .name = title suffix, .work = what, __VA_ARGS__ \
	}
#define KV_PAGES_IN_ORDER(title, ...) KV_BESIDE(title, ", pages in order", KV_ATTEND, .contiguous = true, __VA_ARGS__)

/** Query heads, KV heads and page sizes of FlashInfer-Bench's gqa_paged_*_d128. */
#define KV_GQA_PAGES(shape, q, kv) shape(q, kv, 1), shape(q, kv, 64)
#define KV_GQA_HEADS(shape, q) KV_GQA_PAGES(shape, q, 8), KV_GQA_PAGES(shape, q, 4), KV_GQA_PAGES(shape, q, 2)
#define KV_GQA_SHAPES(shape) \
	KV_GQA_HEADS(shape, 32), KV_GQA_HEADS(shape, 16), KV_GQA_HEADS(shape, 24), KV_GQA_HEADS(shape, 48)

struct kv_shape {
	uint32_t q_heads, kv_heads, k_dim, v_dim;
};

struct kv_pool {
	const struct kv_fixture *like; /* the first fixture that needs this pool */
	char name[32];
	struct paged_pool *pool;
	struct paged_pool_info info;
	uint32_t n_pages, n_layers, max_length;
	uint32_t *permuted;
};

/** A case, ready to be sampled. */
struct kv_fixture {
	struct kv_case of;         /* with defaults filled in, and scaled to this machine's memory */
	struct bench_case *result; /* in the group's list */
	const struct kv_group *group;
	const struct kv_pool *pool;
	struct kv_shape shape;
	uint32_t n_rows, total_q, n_pages;
	struct paged_batch_row *rows;
	uint32_t *pages; /* all of the pool's; the batch has the first n_pages */
	struct paged_batch *batch;
	struct paged_tensor q, out, k, v;
	struct paged_attention_params attention;
	struct paged_append_params append;
	struct paged_rotary rotary;
	struct paged_mod *mask, *score;
	int32_t *documents;
	/* On the host: */
	double n_blocks;      /* seen, with by_block */
	enum kernel_isa unit; /* of the peak */
	size_t n_repeats;     /* of the work, in one sample */
	struct limit_read read;
	struct limit_copy copy;
	struct layout layout; /* layout and team are used by KV_PAGES only */
	struct kernel_team *team;
	struct torch_case torch;
	/* On a GPU: */
	struct gpu_graph graph;
	uint32_t n_calls; /* of a graph */
	cuda_address table;
	cuda_function copy_pages;
	struct paged_plan_device_params plan;
};

struct kv_group {
	struct bench_report *report;
	bool gpu;
	struct paged_client *client;
	struct kv_pool pools[KV_MAX_POOLS];
	size_t n_pools;
	struct kv_fixture fixtures[BENCH_MAX_CASES];
	struct bench_case cases[BENCH_MAX_CASES]; /* of the fixtures */
	size_t n;
};

/** kv_groups_run - call `measure` for each group of the suite that the options select; returns their number */
size_t kv_groups_run(struct bench_report *report, bool on_gpu, void (*measure)(struct kv_group *group));

/** kv_list - print a line for each case that has relations, with its relations */
void kv_list(const struct bench_suite *suite);

/** kv_host_run - the `run` of suites that use no GPU */
void kv_host_run(struct bench_report *report);

/** kv_gpu_run - the `run` of the GPU suite */
void kv_gpu_run(struct bench_report *report);

/** kv_group_open - create the pools and batches that the group's fixtures need */
void kv_group_open(struct kv_group *group);
void kv_group_close(struct kv_group *group);

/** kv_has_batch - whether its work is a call of the public API with a batch */
bool kv_has_batch(const struct kv_fixture *fixture);

/** kv_fill - fill memory with numbers of moderate size and either sign, the same in every run */
void kv_fill(void *memory, size_t size, enum paged_dtype dtype);

/** kv_mods_open - bind the case's mask and score mods, and count the blocks that are at least partly seen */
void kv_mods_open(struct kv_fixture *fixture);

/* torch.c */

/**
 * torch_start - start both children and wait until they are ready; ends the program with advice if there is no torch
 *
 * $PAGED_TORCH is the Python to run, by default python3; peers/setup makes one.
 * Call after threads_start().
 */
void torch_start(void);
void torch_stop(void);

/** torch_version - "torch 2.15.0"; valid once started */
const char *torch_version(void);

/** torch_open - open the fixture's batch; false: no implementation accepts the batch, and `how` has the reason */
bool torch_open(struct torch_case *of, const struct kv_fixture *fixture);
double torch_sample_us(const struct torch_case *of);
void torch_close(const struct torch_case *of);

#endif
