/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill, whole and chunked, and mixed with decode, compared with the peak of the best matrix unit. */
#include "bench/base.h"
#include "bench/kv/kv_case.h"
#include "bench/kv/kv_host.h"
#include "bench/suite.h"

/* Compared with as many operations on registers, with pages in order, with PyTorch and vLLM. */
#define PREFILL(title, share, places, faster, ...)                                                             \
	{ .group = title,                                                                                      \
	  .name = title,                                                                                       \
	  KV_RELATIONS(KV_VS_LIMIT(title ": peak", share), KV_VS_CONTIGUOUS(title ", pages in order", places), \
		       KV_VS_TORCH(title ": torch", faster), KV_VS_VLLM(title ": vllm", ">= 1.0")),            \
	  __VA_ARGS__ },                                                                                       \
		KV_REFERENCE(title, ": peak", KV_PEAK, __VA_ARGS__), KV_PAGES_IN_ORDER(title, __VA_ARGS__),    \
		KV_REFERENCE(title, ": torch", KV_PEER, __VA_ARGS__),                                          \
		KV_REFERENCE(title, ": vllm", KV_PEER, __VA_ARGS__)

/* Time per visited block, compared with causal without a mod. */
#define MOD(title, wanted, ...)                                                                             \
	{                                                                                                   \
		.group = "mods", .name = "prefill 2k of 2k " title, PROMPT_2K, .per_block = true,           \
		KV_RELATIONS({ BENCH_REFERENCE_LIMIT, BENCH_SLOWDOWN, "prefill 2k of 2k causal", wanted }), \
		__VA_ARGS__                                                                                 \
	}

/* FlashInfer-Bench's gqa_paged_prefill_causal, a prompt and a chunk of 1k. */
#define GQA(q, kv, page)                                                                                        \
	PREFILL("prefill " #q "/" #kv " heads, pages of " #page, NULL, NULL, NULL,                              \
		KV_ROWS({ 1, 1024, 1024 }, { 1, 1024, 2048 }), .q_heads = q, .kv_heads = kv, .page_size = page, \
		.long_only = true)

#define PROMPT_2K KV_ROWS({ 1, 2048, 2048 })

static const struct kv_case cases[] = {
	PREFILL("prefill 512 of 4k", ">= 0.65 (AMX 0.40)", "<= 1.02", ">= 1.8", KV_ROWS({ 1, 512, 4096 })),

	/* vLLM's attention_benchmarks: prompts, chunks, and both mixed with decode. */
	PREFILL("prefill 512 of 512", NULL, "<= 1.02", ">= 1.8", KV_ROWS({ 1, 512, 512 })),
	PREFILL("prefill 2k of 2k", ">= 0.65 (AMX 0.40)", "<= 1.02", ">= 1.8", PROMPT_2K),
	PREFILL("prefill 4k of 4k", ">= 0.65 (AMX 0.40)", "<= 1.02", ">= 1.8", KV_ROWS({ 1, 4096, 4096 })),
	PREFILL("chunk 1k of 2k", NULL, "<= 1.02", ">= 1.8", KV_ROWS({ 1, 1024, 2048 })),
	PREFILL("chunks 2 x 1k of 4k", NULL, "<= 1.02", ">= 1.8", KV_ROWS({ 2, 1024, 4096 })),
	PREFILL("mixed 2 x 2k, 8 x 1 of 1k", NULL, "<= 1.02", ">= 1.8", KV_ROWS({ 2, 2048, 2048 }, { 8, 1, 1024 })),
	PREFILL("mixed 4 x 1k, 16 x 1 of 2k", NULL, "<= 1.02", ">= 1.8", KV_ROWS({ 4, 1024, 1024 }, { 16, 1, 2048 })),
	/* benchmark_cpu_attn, an eighth of its batch. */
	PREFILL("prefill 8 x 512 of 512, pages of 128", NULL, "<= 1.02", ">= 1.8", KV_ROWS({ 8, 512, 512 }),
		.page_size = 128),

	/* More cases of these: attention_benchmarks, benchmark_cpu_attn, bench_batch_attention. */
	PREFILL("prefill 8k of 8k", NULL, NULL, NULL, KV_ROWS({ 1, 8192, 8192 }), .long_only = true),
	PREFILL("mixed 2 x 4k, 32 x 1 of 1k", NULL, NULL, NULL, KV_ROWS({ 2, 4096, 4096 }, { 32, 1, 1024 }),
		.long_only = true),
	PREFILL("prefill 64 x 512 of 512, pages of 128", NULL, NULL, NULL, KV_ROWS({ 64, 512, 512 }), .page_size = 128,
		.long_only = true),
	PREFILL("mixed 2 x 1k, 32 x 1 of 4k, pages of 1", NULL, NULL, NULL, KV_ROWS({ 2, 1024, 4096 }, { 32, 1, 4096 }),
		.page_size = 1, .long_only = true),
	KV_GQA_SHAPES(GQA),

	{ .group = "mods", .name = "prefill 2k of 2k causal", PROMPT_2K, .per_block = true },
	MOD("window", "<= 1.05", .mask = "sliding_window", .window = 1024),
	MOD("document", "<= 1.05", .mask = "document"),
	MOD("alibi", "<= 1.10", .score = "alibi"),
	MOD("soft cap", "<= 1.15 (AMX 1.7)", .score = "soft_cap"),
};

const struct bench_suite bench_suite_prefill = {
	.name = "prefill",
	.description = "attention of many query rows per sequence, compared with the peak of the best matrix unit",
	.run = kv_host_run,
	.kv_cases = cases,
	.n_kv_cases = BENCH_N(cases),
	.references = 1u << BENCH_REFERENCE_CONTIGUOUS | 1u << BENCH_REFERENCE_TORCH | 1u << BENCH_REFERENCE_VLLM,
};
