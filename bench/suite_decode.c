/* SPDX-License-Identifier: Apache-2.0 */
/* Decode: one query row a sequence, next to reading the same pages. */
#include "bench/kv.h"

/* Next to reading its pages, the roofline of that and its arithmetic, and pages in their order. */
#define PAGES(title, share, places, ...)                                                                \
	{                                                                                               \
		.name = title, .derived = KV_PAGES_READ | KV_ROOFLINE | KV_IN_ORDER | KV_READ_IN_ORDER, \
		.targets = { share, places }, __VA_ARGS__                                               \
	}

/* And next to PyTorch. */
#define DECODE(title, share, places, faster, ...)                                                                     \
	{                                                                                                             \
		.name = title, .derived = KV_PAGES_READ | KV_ROOFLINE | KV_IN_ORDER | KV_READ_IN_ORDER | KV_BY_TORCH, \
		.targets = { share, places, faster }, __VA_ARGS__                                                     \
	}

/* FlashInfer-Bench's gqa_paged_decode, 32 sequences of 1k. */
#define GQA(q, kv, page)                                                                                          \
	PAGES("decode " #q "/" #kv " heads, pages of " #page, NULL, NULL, KV_ROWS({ 32, 1, 1024 }), .q_heads = q, \
	      .kv_heads = kv, .page_size = page, .more = true)

/* Next to the same batch in bf16. */
#define BYTES(title, type, wanted)                                                                                     \
	{                                                                                                              \
		.group = "bytes", .name = "decode 1 x 128k " title, ONE_128K, .dtype = type, .derived = KV_PAGES_READ, \
		.relation = {                                                                                          \
			BENCH_AGAINST_LIMIT,                                                                           \
			BENCH_FASTER,                                                                                  \
			"decode 1 x 128k bf16",                                                                        \
			wanted                                                                                         \
		}                                                                                                      \
	}

/* A block that is seen, next to one of causal alone. */
#define MOD(title, ...)                                                                                    \
	{                                                                                                  \
		.group = "mods", .name = "decode 16 x 8k " title, SIXTEEN_8K, .by_block = true,            \
		.relation = { BENCH_AGAINST_LIMIT, BENCH_TIMES, "decode 16 x 8k", "<= 1.05" }, __VA_ARGS__ \
	}

#define ONE_128K KV_ROWS({ 1, 1, 131072 })
#define SIXTEEN_8K KV_ROWS({ 16, 1, 8192 })

static const struct kv_case cases[] = {
	DECODE("decode 1 x 4k", ">= 0.90", "<= 1.02", ">= 6", KV_ROWS({ 1, 1, 4096 })),
	DECODE("decode 1 x 8k", NULL, "<= 1.02", ">= 6", KV_ROWS({ 1, 1, 8192 })),
	DECODE("decode 1 x 128k", ">= 0.85", "<= 1.02", ">= 6", ONE_128K),

	/* As many bytes, in rows alike and unlike. */
	{ .group = "skew",
	  .name = "decode 64 x 3056",
	  KV_ROWS({ 64, 1, 3056 }),
	  .derived = KV_PAGES_READ | KV_BY_TORCH,
	  .targets[BENCH_AGAINST_TORCH] = ">= 6" },
	{ .group = "skew",
	  .name = "decode 1 x 128k, 63 x 1k",
	  KV_ROWS({ 1, 1, 131072 }, { 63, 1, 1024 }),
	  .derived = KV_BY_TORCH,
	  .targets[BENCH_AGAINST_TORCH] = ">= 6",
	  .relation = { BENCH_AGAINST_LIMIT, BENCH_TIMES, "decode 64 x 3056", "<= 1.05" } },

	PAGES("decode 1 x 4k, pages of 1", NULL, "<= 1.15", KV_ROWS({ 1, 1, 4096 }), .page_size = 1),
	PAGES("decode 1 x 128k, pages of 1", NULL, "<= 1.15", ONE_128K, .page_size = 1),
	PAGES("decode 1 x 128k, pages of 64", ">= 0.85", "<= 1.02", ONE_128K, .page_size = 64),

	{ .group = "bytes", .name = "decode 1 x 128k bf16", ONE_128K },
	BYTES("e4m3", PAGED_E4M3, ">= 1.7"),
	BYTES("e5m2", PAGED_E5M2, ">= 1.7"),
	BYTES("i8", PAGED_I8, NULL),

	/* Long enough that little of what one has read is in the cache for the next. */
	{ .group = "mods", .name = "decode 16 x 8k", SIXTEEN_8K, .by_block = true },
	MOD("alibi", .score = "alibi"),
	MOD("soft cap", .score = "soft_cap"),
	MOD("window", .mask = "sliding_window", .window = 4096),
	MOD("document", .mask = "document"),

	/* vLLM's benchmark_paged_attention and attention_benchmarks, FlashInfer's bench_batch_decode,
	   benchmark_cpu_attn; MLA. */
	PAGES("decode 8 x 4k, 64/8 heads, f16", NULL, "<= 1.02", KV_ROWS({ 8, 1, 4096 }), .q_heads = 64, .kv_heads = 8,
	      .dtype = PAGED_F16),
	PAGES("decode 32 x 1k, 32/4 heads", ">= 0.85", "<= 1.02", KV_ROWS({ 32, 1, 1024 }), .q_heads = 32,
	      .kv_heads = 4),
	PAGES("decode 16 x 2k", ">= 0.85", "<= 1.02", KV_ROWS({ 16, 1, 2048 })),
	PAGES("decode 64 x 512, pages of 128", ">= 0.85", "<= 1.02", KV_ROWS({ 64, 1, 512 }), .page_size = 128),
	PAGES("decode 4 x 8k, MLA", NULL, "<= 1.02", KV_ROWS({ 4, 1, 8192 }), .latent = true),

	/* More of theirs: attention_benchmarks, bench_batch_decode, TileOPs, FA3's benchmark_mla_decode. */
	PAGES("decode 8 x 1k", NULL, NULL, KV_ROWS({ 8, 1, 1024 }), .more = true),
	PAGES("decode 32 x 1k", NULL, NULL, KV_ROWS({ 32, 1, 1024 }), .more = true),
	PAGES("decode 64 x 4k", NULL, NULL, KV_ROWS({ 64, 1, 4096 }), .more = true),
	PAGES("decode 1 x 16k, 32/4 heads", NULL, NULL, KV_ROWS({ 1, 1, 16384 }), .q_heads = 32, .kv_heads = 4,
	      .more = true),
	PAGES("decode 64 x 2k, 32/4 heads, e4m3", NULL, NULL, KV_ROWS({ 64, 1, 2048 }), .q_heads = 32, .kv_heads = 4,
	      .dtype = PAGED_E4M3, .more = true),
	PAGES("decode 32 x 4k, pages of 64", NULL, NULL, KV_ROWS({ 32, 1, 4096 }), .page_size = 64, .more = true),
	PAGES("decode 8 x 32k, pages of 256", NULL, NULL, KV_ROWS({ 8, 1, 32768 }), .page_size = 256, .more = true),
	PAGES("decode 64 x 2k, pages of 64", NULL, NULL, KV_ROWS({ 64, 1, 2048 }), .page_size = 64, .more = true),
	PAGES("decode 8 x 4k, f32", NULL, NULL, KV_ROWS({ 8, 1, 4096 }), .dtype = PAGED_F32, .more = true),
	PAGES("decode 16 x 1k, MLA, pages of 128", NULL, NULL, KV_ROWS({ 16, 1, 1024 }), .latent = true,
	      .page_size = 128, .more = true),
	KV_GQA_SHAPES(GQA),
};

const struct bench_suite bench_suite_decode = {
	.name = "decode",
	.what = "attention of one query row a sequence, beside reading the same pages",
	.run = kv_host_run,
	.kv_cases = cases,
	.n_kv_cases = BENCH_N(cases),
	.against = 1u << BENCH_AGAINST_CONTIGUOUS | 1u << BENCH_AGAINST_TORCH,
};
