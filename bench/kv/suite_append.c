/* SPDX-License-Identifier: Apache-2.0 */
/* Append, gather and page copies, compared with copying as many bytes to or from the same places. */
#include "bench/base.h"
#include "bench/kv/kv_case.h"
#include "bench/kv/kv_host.h"
#include "bench/suite.h"

/* Compared with copying as many bytes, with pages in order, and with vLLM. */
#define COPIED_AND(order, title, what, share, ...)                   \
	{ .group = title,                                            \
	  .name = title,                                             \
	  .work = what,                                              \
	  KV_RELATIONS(KV_VS_LIMIT(title ": copied", share), order), \
	  __VA_ARGS__ },                                             \
		KV_REFERENCE(title, ": copied", KV_COPY, .copied = what, __VA_ARGS__)
#define COPIED(title, what, share, ...) COPIED_AND({ 0 }, title, what, share, __VA_ARGS__)
#define BOTH(contiguous, vllm) contiguous, vllm
#define APPEND(title, share, ...)                                                                                \
	COPIED_AND(BOTH(KV_VS_CONTIGUOUS(title ", pages in order", NULL), KV_VS_VLLM(title ": vllm", ">= 1.0")), \
		   title, KV_APPEND, share, __VA_ARGS__),                                                        \
		KV_REFERENCE(title, ", pages in order", KV_APPEND, .contiguous = true, __VA_ARGS__),             \
		KV_REFERENCE(title, ": vllm", KV_PEER_APPEND, __VA_ARGS__)

/* Append with conversion or rotary embedding, compared with append of bf16 without. */
#define CONVERSION(title, ...)                                                                                    \
	{                                                                                                         \
		.group = "conversion", .name = "append 5000, " title, .work = KV_APPEND, ONE_5000,                \
		KV_RELATIONS({ BENCH_REFERENCE_LIMIT, BENCH_SLOWDOWN, "append 5000, bf16 to bf16" }), __VA_ARGS__ \
	}

#define ONE_5000 KV_ROWS({ 1, 5000, 5000 })

static const struct kv_case cases[] = {
	/* FlashInfer's bench_append_paged_kv_cache, and a decode step of a large batch. */
	APPEND("append 5000", ">= 0.8", ONE_5000),
	APPEND("append 8 x 625", ">= 0.8", KV_ROWS({ 8, 625, 625 })),
	APPEND("append 4993, 7 x 1", ">= 0.8", KV_ROWS({ 1, 4993, 4993 }, { 7, 1, 1 })),
	APPEND("append 8 x 1", NULL, KV_ROWS({ 8, 1, 1024 })),
	APPEND("append 256 x 1", NULL, KV_ROWS({ 256, 1, 256 })),
	APPEND("append 5000, pages of 1", NULL, ONE_5000, .page_size = 1),

	{ .group = "conversion", .name = "append 5000, bf16 to bf16", .work = KV_APPEND, ONE_5000 },
	CONVERSION("f32 to bf16", .tensor_dtype = PAGED_F32),
	CONVERSION("rotary", .rotary = true),
	CONVERSION("bf16 to e4m3", .dtype = PAGED_E4M3),
	CONVERSION("bf16 to i8", .dtype = PAGED_I8),
	CONVERSION("rotary, to i8", .dtype = PAGED_I8, .rotary = true),

	COPIED("gather 5000", KV_GATHER, ">= 0.8", ONE_5000),
	COPIED("gather 5000, pages of 1", KV_GATHER, NULL, ONE_5000, .page_size = 1),
	COPIED("313 pages", KV_COPY_PAGES, ">= 0.9", KV_ROWS({ 2, 5008, 5008 })),
};

const struct bench_suite bench_suite_append = {
	.name = "append",
	.description = "K and V into pages, out of them and between them, compared with copying as many bytes",
	.run = kv_host_run,
	.kv_cases = cases,
	.n_kv_cases = BENCH_N(cases),
	.references = 1u << BENCH_REFERENCE_CONTIGUOUS | 1u << BENCH_REFERENCE_VLLM,
};
