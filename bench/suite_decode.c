/* SPDX-License-Identifier: Apache-2.0 */
/* Decode: one query row a sequence, beside reading the same pages. */
#include "bench/kv_scene.h"

/* Beside reading its pages, the roofline of that and its arithmetic, and pages in their order. */
#define PAGES(title, share, places, ...) \
	FIGURE(title, share, places, { 0 }, __VA_ARGS__), BESIDE(title, { 0 }, __VA_ARGS__)

/* And beside PyTorch, as is reading its pages: no kernel is faster than that. */
#define DECODE(title, share, places, faster, ...)                                      \
	FIGURE(title, share, places, OVER_TORCH(title, faster), __VA_ARGS__),          \
		BESIDE(title, OVER_TORCH(title, NULL), __VA_ARGS__),                   \
	{                                                                              \
		.group = title, .name = title ": torch", .work = KV_TORCH, __VA_ARGS__ \
	}

#define FIGURE(title, share, places, over_torch, ...)                                                       \
	{                                                                                                   \
		.group = title, .name = title,                                                              \
		.relations = { { BENCH_AGAINST_LIMIT, BENCH_SHARE, title ": pages read", share },           \
			       { BENCH_AGAINST_LIMIT, BENCH_SHARE, title ": roofline", NULL },              \
			       { BENCH_AGAINST_CONTIGUOUS, BENCH_TIMES, title ", pages in order", places }, \
			       over_torch },                                                                \
		__VA_ARGS__                                                                                 \
	}
/* Reading, too, takes its time to find pages that lie anywhere. */
#define BESIDE(title, over_torch, ...)                                                                            \
	{ .group = title, .name = title ", pages in order", .contiguous = true, __VA_ARGS__ },                    \
		{ .group = title, .name = title ": roofline", .work = KV_ROOF, __VA_ARGS__ },                     \
		{ .group = title,                                                                                 \
		  .name = title ": pages read",                                                                   \
		  .work = KV_READ,                                                                                \
		  .relations = { { BENCH_AGAINST_CONTIGUOUS, BENCH_TIMES, title ": read in order", NULL },        \
				 over_torch },                                                                    \
		  __VA_ARGS__ },                                                                                  \
	{                                                                                                         \
		.group = title, .name = title ": read in order", .work = KV_READ, .contiguous = true, __VA_ARGS__ \
	}
#define OVER_TORCH(title, faster)                                          \
	{                                                                  \
		BENCH_AGAINST_TORCH, BENCH_FASTER, title ": torch", faster \
	}

/* FlashInfer-Bench's gqa_paged_decode, 32 sequences of 1k. */
#define GQA(q, kv, page)                                                                                    \
	PAGES("decode " #q "/" #kv " heads, pages of " #page, NULL, NULL, .rows = KV_ROWS({ 32, 1, 1024 }), \
	      .q_heads = q, .kv_heads = kv, .page_size = page, .more = true)

/* Beside the same batch in bf16. */
#define BYTES(title, type, wanted)                                                                                    \
	{ .group = "bytes",                                                                                           \
	  .name = "decode 1 x 128k " title,                                                                           \
	  .rows = ONE_128K,                                                                                           \
	  .dtype = type,                                                                                              \
	  .relations = { { BENCH_AGAINST_LIMIT, BENCH_SHARE, "decode 1 x 128k " title ": pages read", NULL },         \
			 { BENCH_AGAINST_LIMIT, BENCH_FASTER, "decode 1 x 128k bf16", wanted } } },                   \
	{                                                                                                             \
		.group = "bytes", .name = "decode 1 x 128k " title ": pages read", .work = KV_READ, .rows = ONE_128K, \
		.dtype = type                                                                                         \
	}

/* A block that is seen, beside one of causal alone. */
#define MOD(title, ...)                                                                                         \
	{                                                                                                       \
		.group = "mods", .name = "decode 16 x 8k " title, .rows = SIXTEEN_8K, .by_block = true,         \
		.relations = { { BENCH_AGAINST_LIMIT, BENCH_TIMES, "decode 16 x 8k", "<= 1.05" } }, __VA_ARGS__ \
	}

#define ONE_128K KV_ROWS({ 1, 1, 131072 })
#define SIXTEEN_8K KV_ROWS({ 16, 1, 8192 })

static const struct kv_case figures[] = {
	DECODE("decode 1 x 4k", ">= 0.90", "<= 1.02", ">= 6", .rows = KV_ROWS({ 1, 1, 4096 })),
	DECODE("decode 1 x 8k", NULL, "<= 1.02", ">= 6", .rows = KV_ROWS({ 1, 1, 8192 })),
	DECODE("decode 1 x 128k", ">= 0.85", "<= 1.02", ">= 6", .rows = ONE_128K),

	/* As many bytes, in rows alike and unlike. */
	{ .group = "skew",
	  .name = "decode 64 x 3056",
	  .rows = KV_ROWS({ 64, 1, 3056 }),
	  .relations = { { BENCH_AGAINST_LIMIT, BENCH_SHARE, "decode 64 x 3056: pages read", NULL },
			 { BENCH_AGAINST_TORCH, BENCH_FASTER, "decode 64 x 3056: torch", ">= 6" } } },
	{ .group = "skew",
	  .name = "decode 1 x 128k, 63 x 1k",
	  .rows = KV_ROWS({ 1, 1, 131072 }, { 63, 1, 1024 }),
	  .relations = { { BENCH_AGAINST_LIMIT, BENCH_TIMES, "decode 64 x 3056", "<= 1.05" },
			 { BENCH_AGAINST_TORCH, BENCH_FASTER, "decode 1 x 128k, 63 x 1k: torch", ">= 6" } } },
	{ .group = "skew", .name = "decode 64 x 3056: pages read", .work = KV_READ, .rows = KV_ROWS({ 64, 1, 3056 }) },
	{ .group = "skew", .name = "decode 64 x 3056: torch", .work = KV_TORCH, .rows = KV_ROWS({ 64, 1, 3056 }) },
	{ .group = "skew",
	  .name = "decode 1 x 128k, 63 x 1k: torch",
	  .work = KV_TORCH,
	  .rows = KV_ROWS({ 1, 1, 131072 }, { 63, 1, 1024 }) },

	PAGES("decode 1 x 4k, pages of 1", NULL, "<= 1.15", .rows = KV_ROWS({ 1, 1, 4096 }), .page_size = 1),
	PAGES("decode 1 x 128k, pages of 1", NULL, "<= 1.15", .rows = ONE_128K, .page_size = 1),
	PAGES("decode 1 x 128k, pages of 64", ">= 0.85", "<= 1.02", .rows = ONE_128K, .page_size = 64),

	{ .group = "bytes", .name = "decode 1 x 128k bf16", .rows = ONE_128K },
	BYTES("e4m3", PAGED_E4M3, ">= 1.7"),
	BYTES("e5m2", PAGED_E5M2, ">= 1.7"),
	BYTES("i8", PAGED_I8, NULL),

	/* Long enough that little of what one has read is in the cache for the next. */
	{ .group = "mods", .name = "decode 16 x 8k", .rows = SIXTEEN_8K, .by_block = true },
	MOD("alibi", .score = "alibi"),
	MOD("soft cap", .score = "soft_cap"),
	MOD("window", .mask = "sliding_window", .window = 4096),
	MOD("document", .mask = "document"),

	/* vLLM's benchmark_paged_attention and attention_benchmarks, FlashInfer's bench_batch_decode,
	   benchmark_cpu_attn; MLA. */
	PAGES("decode 8 x 4k, 64/8 heads, f16", NULL, "<= 1.02", .rows = KV_ROWS({ 8, 1, 4096 }), .q_heads = 64,
	      .kv_heads = 8, .dtype = PAGED_F16),
	PAGES("decode 32 x 1k, 32/4 heads", ">= 0.85", "<= 1.02", .rows = KV_ROWS({ 32, 1, 1024 }), .q_heads = 32,
	      .kv_heads = 4),
	PAGES("decode 16 x 2k", ">= 0.85", "<= 1.02", .rows = KV_ROWS({ 16, 1, 2048 })),
	PAGES("decode 64 x 512, pages of 128", ">= 0.85", "<= 1.02", .rows = KV_ROWS({ 64, 1, 512 }), .page_size = 128),
	PAGES("decode 4 x 8k, MLA", NULL, "<= 1.02", .rows = KV_ROWS({ 4, 1, 8192 }), .latent = true),

	/* More of theirs: attention_benchmarks, bench_batch_decode, TileOPs, FA3's benchmark_mla_decode. */
	PAGES("decode 8 x 1k", NULL, NULL, .rows = KV_ROWS({ 8, 1, 1024 }), .more = true),
	PAGES("decode 32 x 1k", NULL, NULL, .rows = KV_ROWS({ 32, 1, 1024 }), .more = true),
	PAGES("decode 64 x 4k", NULL, NULL, .rows = KV_ROWS({ 64, 1, 4096 }), .more = true),
	PAGES("decode 1 x 16k, 32/4 heads", NULL, NULL, .rows = KV_ROWS({ 1, 1, 16384 }), .q_heads = 32, .kv_heads = 4,
	      .more = true),
	PAGES("decode 64 x 2k, 32/4 heads, e4m3", NULL, NULL, .rows = KV_ROWS({ 64, 1, 2048 }), .q_heads = 32,
	      .kv_heads = 4, .dtype = PAGED_E4M3, .more = true),
	PAGES("decode 32 x 4k, pages of 64", NULL, NULL, .rows = KV_ROWS({ 32, 1, 4096 }), .page_size = 64,
	      .more = true),
	PAGES("decode 8 x 32k, pages of 256", NULL, NULL, .rows = KV_ROWS({ 8, 1, 32768 }), .page_size = 256,
	      .more = true),
	PAGES("decode 64 x 2k, pages of 64", NULL, NULL, .rows = KV_ROWS({ 64, 1, 2048 }), .page_size = 64,
	      .more = true),
	PAGES("decode 8 x 4k, f32", NULL, NULL, .rows = KV_ROWS({ 8, 1, 4096 }), .dtype = PAGED_F32, .more = true),
	PAGES("decode 16 x 1k, MLA, pages of 128", NULL, NULL, .rows = KV_ROWS({ 16, 1, 1024 }), .latent = true,
	      .page_size = 128, .more = true),
	KV_GQA_SHAPES(GQA),
};

const struct bench_suite bench_suite_decode = {
	.name = "decode",
	.what = "attention of one query row a sequence, beside reading the same pages",
	.run = kv_suite_run,
	.kv_cases = figures,
	.n_kv_cases = BENCH_N(figures),
	.against = 1u << BENCH_AGAINST_CONTIGUOUS | 1u << BENCH_AGAINST_TORCH,
};
