/* SPDX-License-Identifier: Apache-2.0 */
/* Decode: one query row per sequence, compared with reading the same pages. */
#include "bench/base.h"
#include "bench/kv/kv_case.h"
#include "bench/kv/kv_host.h"
#include "bench/suite.h"

/* Compared with reading its pages, with the roofline of reading and arithmetic, and with pages in order. */
#define PAGES_AND(peers, read_peers, title, share, places, ...)                                                       \
	{ .group = title,                                                                                             \
	  .name = title,                                                                                              \
	  KV_RELATIONS(KV_VS_LIMIT(title ": pages read", share), KV_VS_LIMIT(title ": roofline", NULL),               \
		       KV_VS_CONTIGUOUS(title ", pages in order", places), peers),                                    \
	  __VA_ARGS__ },                                                                                              \
		KV_REFERENCE(title, ": pages read", KV_READ,                                                          \
			     KV_RELATIONS(KV_VS_CONTIGUOUS(title ": read in order", NULL), read_peers), __VA_ARGS__), \
		KV_REFERENCE(title, ": roofline", KV_ROOFLINE, __VA_ARGS__), KV_PAGES_IN_ORDER(title, __VA_ARGS__),   \
		KV_REFERENCE(title, ": read in order", KV_READ, .contiguous = true, __VA_ARGS__)
#define PAGES(title, share, places, ...) PAGES_AND({ 0 }, { 0 }, title, share, places, __VA_ARGS__)

/* Compared also with vLLM. */
#define VLLM(title, share, places, ...)                                                                    \
	PAGES_AND(KV_VS_VLLM(title ": vllm", FASTER_THAN_VLLM), { 0 }, title, share, places, __VA_ARGS__), \
		KV_REFERENCE(title, ": vllm", KV_PEER, __VA_ARGS__)

/* Compared also with PyTorch and vLLM. */
#define BOTH(torch, vllm) torch, vllm
#define DECODE(title, share, places, faster, ...)                                                                   \
	PAGES_AND(BOTH(KV_VS_TORCH(title ": torch", faster), KV_VS_VLLM(title ": vllm", FASTER_THAN_VLLM)),         \
		  BOTH(KV_VS_TORCH(title ": torch", NULL), KV_VS_VLLM(title ": vllm", NULL)), title, share, places, \
		  __VA_ARGS__),                                                                                     \
		KV_REFERENCE(title, ": torch", KV_PEER, __VA_ARGS__),                                               \
		KV_REFERENCE(title, ": vllm", KV_PEER, __VA_ARGS__)

#define FASTER_THAN_VLLM ">= 1.0"

/* FlashInfer-Bench's gqa_paged_decode, 32 sequences of 1k. */
#define GQA(q, kv, page)                                                                                          \
	PAGES("decode " #q "/" #kv " heads, pages of " #page, NULL, NULL, KV_ROWS({ 32, 1, 1024 }), .q_heads = q, \
	      .kv_heads = kv, .page_size = page, .long_only = true)

/* Compared with the same batch in bf16. */
#define BYTES(type_name, type, wanted)                                                                            \
	{ .group = "bytes",                                                                                       \
	  .name = "decode 1 x 128k " type_name,                                                                   \
	  ONE_128K,                                                                                               \
	  .dtype = type,                                                                                          \
	  KV_RELATIONS(KV_VS_LIMIT("decode 1 x 128k " type_name ": pages read", NULL),                            \
		       { BENCH_REFERENCE_LIMIT, BENCH_SPEEDUP, "decode 1 x 128k bf16", wanted }) },               \
	{                                                                                                         \
		.group = "bytes", .name = "decode 1 x 128k " type_name ": pages read", .work = KV_READ, ONE_128K, \
		.dtype = type                                                                                     \
	}

/* Time per visited block, compared with causal without a mod. */
#define MOD(title, ...)                                                                                           \
	{                                                                                                         \
		.group = "mods", .name = "decode 16 x 8k " title, SIXTEEN_8K, .per_block = true,                  \
		KV_RELATIONS({ BENCH_REFERENCE_LIMIT, BENCH_SLOWDOWN, "decode 16 x 8k", "<= 1.05" }), __VA_ARGS__ \
	}

#define SKEW_ALIKE "decode 64 x 3056"
#define SKEW_UNLIKE "decode 1 x 128k, 63 x 1k"
#define ONE_128K KV_ROWS({ 1, 1, 131072 })
#define SIXTEEN_8K KV_ROWS({ 16, 1, 8192 })

static const struct kv_case cases[] = {
	DECODE("decode 1 x 4k", ">= 0.90", "<= 1.02", ">= 6", KV_ROWS({ 1, 1, 4096 })),
	DECODE("decode 1 x 8k", NULL, "<= 1.02", ">= 6", KV_ROWS({ 1, 1, 8192 })),
	DECODE("decode 1 x 128k", ">= 0.85", "<= 1.02", ">= 6", ONE_128K),

	/* The same number of bytes, in rows of equal and of different length. */
	{ .group = "skew",
	  .name = SKEW_ALIKE,
	  KV_ROWS({ 64, 1, 3056 }),
	  KV_RELATIONS(KV_VS_LIMIT(SKEW_ALIKE ": pages read", NULL), KV_VS_TORCH(SKEW_ALIKE ": torch", ">= 6"),
		       KV_VS_VLLM(SKEW_ALIKE ": vllm", FASTER_THAN_VLLM)) },
	{ .group = "skew", .name = SKEW_ALIKE ": pages read", .work = KV_READ, KV_ROWS({ 64, 1, 3056 }) },
	{ .group = "skew", .name = SKEW_ALIKE ": torch", .work = KV_PEER, KV_ROWS({ 64, 1, 3056 }) },
	{ .group = "skew", .name = SKEW_ALIKE ": vllm", .work = KV_PEER, KV_ROWS({ 64, 1, 3056 }) },
	{ .group = "skew",
	  .name = SKEW_UNLIKE,
	  KV_ROWS({ 1, 1, 131072 }, { 63, 1, 1024 }),
	  KV_RELATIONS(KV_VS_TORCH(SKEW_UNLIKE ": torch", ">= 6"), KV_VS_VLLM(SKEW_UNLIKE ": vllm", FASTER_THAN_VLLM),
		       { BENCH_REFERENCE_LIMIT, BENCH_SLOWDOWN, SKEW_ALIKE, "<= 1.05" }) },
	{ .group = "skew", .name = SKEW_UNLIKE ": torch", .work = KV_PEER, KV_ROWS({ 1, 1, 131072 }, { 63, 1, 1024 }) },
	{ .group = "skew", .name = SKEW_UNLIKE ": vllm", .work = KV_PEER, KV_ROWS({ 1, 1, 131072 }, { 63, 1, 1024 }) },

	PAGES("decode 1 x 4k, pages of 1", NULL, "<= 1.15", KV_ROWS({ 1, 1, 4096 }), .page_size = 1),
	PAGES("decode 1 x 128k, pages of 1", NULL, "<= 1.15", ONE_128K, .page_size = 1),
	PAGES("decode 1 x 128k, pages of 64", ">= 0.85", "<= 1.02", ONE_128K, .page_size = 64),

	{ .group = "bytes", .name = "decode 1 x 128k bf16", ONE_128K },
	BYTES("e4m3", PAGED_E4M3, ">= 1.7"),
	BYTES("e5m2", PAGED_E5M2, ">= 1.7"),
	BYTES("i8", PAGED_I8, NULL),

	/* The same number of visible keys, at the end of rows that gave back most of their pages, and from kv_first on.
	 */
	{ .group = "trimmed", .name = "decode 16 x 8k, not trimmed", SIXTEEN_8K },
	{ .group = "trimmed",
	  .name = "decode 16 x 8k of 64k, trimmed",
	  SIXTEEN_8K,
	  .kv_first = 57344,
	  KV_RELATIONS({ BENCH_REFERENCE_LIMIT, BENCH_SLOWDOWN, "decode 16 x 8k, not trimmed", "<= 1.02" }) },

	/* Long enough that little of the data that one case reads is in the cache for the next case. */
	{ .group = "mods", .name = "decode 16 x 8k", SIXTEEN_8K, .per_block = true },
	MOD("alibi", .score = "alibi"),
	MOD("soft cap", .score = "soft_cap"),
	MOD("window", .mask = "sliding_window", .window = 4096),
	MOD("document", .mask = "document"),

	/* vLLM's benchmark_paged_attention and attention_benchmarks, FlashInfer's bench_batch_decode,
	   benchmark_cpu_attn; MLA. */
	PAGES("decode 8 x 4k, 64/8 heads, f16", NULL, "<= 1.02", KV_ROWS({ 8, 1, 4096 }), .q_heads = 64, .kv_heads = 8,
	      .dtype = PAGED_F16),
	VLLM("decode 32 x 1k, 32/4 heads", ">= 0.85", "<= 1.02", KV_ROWS({ 32, 1, 1024 }), .q_heads = 32,
	     .kv_heads = 4),
	VLLM("decode 16 x 2k", ">= 0.85", "<= 1.02", KV_ROWS({ 16, 1, 2048 })),
	VLLM("decode 64 x 512, pages of 128", ">= 0.85", "<= 1.02", KV_ROWS({ 64, 1, 512 }), .page_size = 128),
	PAGES("decode 4 x 8k, MLA", NULL, "<= 1.02", KV_ROWS({ 4, 1, 8192 }), .mla = true),

	/* More cases of these: attention_benchmarks, bench_batch_decode, TileOPs, FA3's benchmark_mla_decode. */
	VLLM("decode 8 x 1k", NULL, NULL, KV_ROWS({ 8, 1, 1024 }), .long_only = true),
	VLLM("decode 32 x 1k", NULL, NULL, KV_ROWS({ 32, 1, 1024 }), .long_only = true),
	VLLM("decode 64 x 4k", NULL, NULL, KV_ROWS({ 64, 1, 4096 }), .long_only = true),
	PAGES("decode 1 x 16k, 32/4 heads", NULL, NULL, KV_ROWS({ 1, 1, 16384 }), .q_heads = 32, .kv_heads = 4,
	      .long_only = true),
	PAGES("decode 64 x 2k, 32/4 heads, e4m3", NULL, NULL, KV_ROWS({ 64, 1, 2048 }), .q_heads = 32, .kv_heads = 4,
	      .dtype = PAGED_E4M3, .long_only = true),
	PAGES("decode 32 x 4k, pages of 64", NULL, NULL, KV_ROWS({ 32, 1, 4096 }), .page_size = 64, .long_only = true),
	PAGES("decode 8 x 32k, pages of 256", NULL, NULL, KV_ROWS({ 8, 1, 32768 }), .page_size = 256,
	      .long_only = true),
	PAGES("decode 64 x 2k, pages of 64", NULL, NULL, KV_ROWS({ 64, 1, 2048 }), .page_size = 64, .long_only = true),
	PAGES("decode 8 x 4k, f32", NULL, NULL, KV_ROWS({ 8, 1, 4096 }), .dtype = PAGED_F32, .long_only = true),
	PAGES("decode 16 x 1k, MLA, pages of 128", NULL, NULL, KV_ROWS({ 16, 1, 1024 }), .mla = true, .page_size = 128,
	      .long_only = true),
	KV_GQA_SHAPES(GQA),
};

const struct bench_suite bench_suite_decode = {
	.name = "decode",
	.description = "attention of one query row per sequence, compared with reading the same pages",
	.run = kv_host_run,
	.kv_cases = cases,
	.n_kv_cases = BENCH_N(cases),
	.references = 1u << BENCH_REFERENCE_CONTIGUOUS | 1u << BENCH_REFERENCE_TORCH | 1u << BENCH_REFERENCE_VLLM,
};
