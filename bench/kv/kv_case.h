/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kv_case.h - cases of work on a KV cache (enum kv_work), as the tables of suites describe them
 *
 * Cases of a group share pools, are sampled in alternation and are compared with each other.
 * The macros generate the cases that a case is compared with.
 */
#ifndef PAGED_BENCH_KV_KV_CASE_H
#define PAGED_BENCH_KV_KV_CASE_H

#include <pagedclient.h>

#include "bench/base.h"
#include "bench/suite.h"

#define KV_ROW_KINDS 3

/** Rows of a batch with the same lengths. */
struct kv_rows {
	uint32_t n, q_len, kv_len;
};

enum kv_work {
	KV_ATTENTION,
	KV_APPEND,
	KV_GATHER,      /* copies the appended tokens into tensors */
	KV_COPY_PAGES,  /* copies pages: the first row's to the second's; on a GPU all pages to free ones */
	KV_PLAN,        /* plans the batch and computes nothing */
	KV_READ,        /* limit: reads the batch's pages as fast as possible */
	KV_COPY,        /* limit: copies as many bytes as the work `copied`, to the same places */
	KV_PEAK,        /* limit: as many operations, on registers only */
	KV_ROOFLINE,    /* limit: KV_READ, or KV_PEAK of the unit that the dtype allows, whichever takes longer */
	KV_PEER,        /* the attention of the peer that the ratios of this run are to */
	KV_PEER_APPEND, /* its append */
	/* On a GPU: */
	KV_EMPTY,     /* a kernel that does nothing */
	KV_COPY_HALF, /* copies one half of the batch's pages to the other half, by cuMemcpyDtoD */
	KV_COPY_ALL,  /* copies the batch's pages of all layers, by cuMemcpyDtoD */
};

/** A case as a suite's table describes it. */
struct kv_case {
	const char *name;
	const char *group;         /* NULL: a group of its own */
	enum kv_work work, copied; /* copied: only for KV_COPY */
	struct kv_rows rows[KV_ROW_KINDS];
	uint32_t q_heads, kv_heads; /* 0: 32 and 8; with mla 128 and 1 */
	uint32_t page_size;         /* 0: 16 */
	bool contiguous;            /* pages in order, not permuted */
	uint32_t kv_first;          /* of each row: tokens before the first key, in addition to kv_len; whole pages */
	bool mla;                   /* MLA: one head of 576, its first 512 are V */
	enum paged_dtype dtype;     /* of the pool; 0: bf16 */
	enum paged_dtype tensor_dtype; /* of the tensors to append; 0: bf16 */
	const char *mask, *score;      /* in addition to causal; they may name window, doc, heads and cap */
	uint32_t window;
	bool long_only; /* only with --long */
	bool per_block; /* result is ns per block of 128 tokens and query rows that is at least partly seen */
	bool rotary;
	const char *export; /* a pagedd owns the pool and exports it this way; NULL: the owner is in this process */
	struct bench_relation relations[BENCH_MAX_RELATIONS]; /* to other cases of the group */
	const char *limit, *target;                           /* as struct bench_case has them */
};

/** Rows of each kind in braces: number of rows, query rows of each, tokens of each. */
#define KV_ROWS(...) .rows = { __VA_ARGS__ }

/** Ratios to other cases of the group, by their names, each with its target or NULL. */
#define KV_RELATIONS(...) .relations = { __VA_ARGS__ }
#define KV_VS_LIMIT(to, wanted)                                   \
	{                                                         \
		BENCH_REFERENCE_LIMIT, BENCH_FRACTION, to, wanted \
	}
#define KV_VS_CONTIGUOUS(to, wanted)                                   \
	{                                                              \
		BENCH_REFERENCE_CONTIGUOUS, BENCH_SLOWDOWN, to, wanted \
	}
#define KV_VS_VLLM(to, wanted)                                  \
	{                                                       \
		BENCH_REFERENCE_VLLM, BENCH_SPEEDUP, to, wanted \
	}
#define KV_VS_TORCH(to, wanted)                                  \
	{                                                        \
		BENCH_REFERENCE_TORCH, BENCH_SPEEDUP, to, wanted \
	}

/** A reference case over the same batch as the case `title`. */
#define KV_REFERENCE(title, suffix, what, ...)                                  \
	{                                                                       \
		.group = title, .name = title suffix, .work = what, __VA_ARGS__ \
	}
#define KV_PAGES_IN_ORDER(title, ...) \
	KV_REFERENCE(title, ", pages in order", KV_ATTENTION, .contiguous = true, __VA_ARGS__)

/** Query heads, KV heads and page sizes of FlashInfer-Bench's gqa_paged_*_d128. */
#define KV_GQA_PAGES(shape, q, kv) shape(q, kv, 1), shape(q, kv, 64)
#define KV_GQA_HEADS(shape, q) KV_GQA_PAGES(shape, q, 8), KV_GQA_PAGES(shape, q, 4), KV_GQA_PAGES(shape, q, 2)
#define KV_GQA_SHAPES(shape) \
	KV_GQA_HEADS(shape, 32), KV_GQA_HEADS(shape, 16), KV_GQA_HEADS(shape, 24), KV_GQA_HEADS(shape, 48)

#endif
