/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases on a GPU.  bench/NOTES-gpu.md has the floors and goals;
 * peers/gpu_torch.py has the same batches under the same names.
 */
#include "bench/base.h"
#include "bench/kv/kv_case.h"
#include "bench/kv/kv_gpu.h"
#include "bench/suite.h"

/* A batch of decode, compared with the reader over the same pages. */
#define DECODE(title, wanted, ...)                                                                       \
	{ .group = title, .name = title, .limit = title ": pages read", .target = wanted, __VA_ARGS__ }, \
		KV_REFERENCE(title, ": pages read", KV_READ, __VA_ARGS__)

/* Permuted page tables, compared with pages in order. */
#define IN_ORDER(title, wanted, ...)                                                                  \
	{ .group = title, .name = title, .limit = title " in order", .target = wanted, __VA_ARGS__ }, \
		KV_REFERENCE(title, " in order", KV_ATTENTION, .contiguous = true, __VA_ARGS__)
#define PLACES(title, size, wanted)                              \
	IN_ORDER(title, wanted, .page_size = size, BATCH_16_8K), \
		KV_REFERENCE(title, ": pages read", KV_READ, .page_size = size, BATCH_16_8K)
#define PREFILL(title, ...) IN_ORDER(title, NULL, .page_size = 64, __VA_ARGS__)

#define APPEND(title, wanted, ...)   \
	{ .group = title,            \
	  .name = title,             \
	  .work = KV_APPEND,         \
	  .limit = title ": copied", \
	  .target = wanted,          \
	  __VA_ARGS__ },             \
		KV_REFERENCE(title, ": copied", KV_COPY, .copied = KV_APPEND, __VA_ARGS__)

/* Another process owns the pool. */
#define EXPORTED(by)                                                                                                  \
	{ .group = by,                                                                                                \
	  .name = "decode 16 x 8k, exported by " by,                                                                  \
	  .limit = "decode 16 x 8k, exported by " by ": pages read",                                                  \
	  .export = by,                                                                                               \
	  BATCH_16_8K },                                                                                              \
	{                                                                                                             \
		.group = by, .name = "decode 16 x 8k, exported by " by ": pages read", .work = KV_READ, .export = by, \
		BATCH_16_8K                                                                                           \
	}

/* Mods: NVRTC compiles those with numbers in their text; soft_cap is built in. */
#define MOD(of, title, mod, wanted, ...)                                                                      \
	{                                                                                                     \
		.group = "mods of " of, .name = of ", " title, .limit = of " without mods", .target = wanted, \
		.score = mod, __VA_ARGS__                                                                     \
	}

#define MLA(of, title, ...)                                                                                           \
	{ .group = of, .name = title, .limit = title ": pages read", .mla = true, .page_size = 64, __VA_ARGS__ },     \
	{                                                                                                             \
		.group = of, .name = title ": pages read", .work = KV_READ, .mla = true, .page_size = 64, __VA_ARGS__ \
	}

#define BATCH_16_8K KV_ROWS({ 16, 1, 8192 })
#define PROMPT_8K KV_ROWS({ 1, 8192, 8192 })

static const struct kv_case cases[] = {
	/* Limits */
	{ .group = "limits", .name = "empty kernel", .work = KV_EMPTY, KV_ROWS({ 64, 1, 4096 }) },
	{ .group = "limits", .name = "1 GB read", .work = KV_READ, KV_ROWS({ 64, 1, 4096 }) },
	{ .group = "limits", .name = "1 GB read and written", .work = KV_COPY_HALF, KV_ROWS({ 64, 1, 4096 }) },
	{ .group = "limits", .name = "plan of 64 rows", .work = KV_PLAN, KV_ROWS({ 64, 1, 4096 }) },

	/* Decode: the most informative cases come first, because a run may be cut short. */
	DECODE("decode 16 x 8k", "<= 1.03 and 3 us", BATCH_16_8K),
	DECODE("decode 1 x 8k", "<= 13 us", KV_ROWS({ 1, 1, 8192 })),
	DECODE("decode 1 x 1k", "<= 5 us", KV_ROWS({ 1, 1, 1024 })),
	DECODE("decode 1 x 32k", "<= 36 us", KV_ROWS({ 1, 1, 32768 })),
	DECODE("decode 64 x 8k", "<= 1.03 and 3 us", KV_ROWS({ 64, 1, 8192 })),
	DECODE("decode 64 x 1k", "<= 1.03 and 3 us", KV_ROWS({ 64, 1, 1024 })),
	DECODE("decode 64 x 32k", "<= 1.03 and 3 us", KV_ROWS({ 64, 1, 32768 })),
	DECODE("decode 8 x 1k", "<= 12 us", KV_ROWS({ 8, 1, 1024 })),
	DECODE("decode 8 x 4k", "<= 36 us", KV_ROWS({ 8, 1, 4096 })),
	DECODE("decode 16 x 1k", NULL, KV_ROWS({ 16, 1, 1024 })),
	DECODE("decode 256 x 1k", "<= 1.03 and 3 us", KV_ROWS({ 256, 1, 1024 })),
	DECODE("decode 16 x 32k", "<= 1.03 and 3 us", KV_ROWS({ 16, 1, 32768 })),
	DECODE("decode 256 x 8k", "<= 1.03 and 3 us", KV_ROWS({ 256, 1, 8192 })),
	DECODE("decode 256 x 32k", "<= 1.03 and 3 us", KV_ROWS({ 256, 1, 32768 })),
	/* One KV head, as on a tensor-parallel rank of eight: a row has 256 KV chunks. */
	DECODE("decode 1 x 32k, 8/1 heads", NULL, .q_heads = 8, .kv_heads = 1, KV_ROWS({ 1, 1, 32768 })),
	DECODE("decode 16 x 32k, 8/1 heads", NULL, .q_heads = 8, .kv_heads = 1, KV_ROWS({ 16, 1, 32768 })),

	/* The same number of bytes, in rows of equal and of different length. */
	{ .group = "skew", .name = "decode 64 x 3056", KV_ROWS({ 64, 1, 3056 }) },
	{ .group = "skew",
	  .name = "decode 1 x 128k, 63 x 1k",
	  .limit = "decode 64 x 3056",
	  .target = "<= 1.05",
	  KV_ROWS({ 1, 1, 131072 }, { 63, 1, 1024 }) },

	PLACES("decode 16 x 8k, page 16", 16, "<= 1.01"),
	PLACES("decode 16 x 8k, page 1", 1, "<= 1.05"),
	PLACES("decode 16 x 8k, page 64", 64, "<= 1.01"),

	{ .group = "e4m3", .name = "decode 16 x 8k, bf16", BATCH_16_8K },
	{ .group = "e4m3",
	  .name = "decode 16 x 8k, e4m3",
	  .limit = "decode 16 x 8k, bf16",
	  .target = "<= 0.54",
	  .dtype = PAGED_E4M3,
	  BATCH_16_8K },

	/* Prompts and mixes */
	PREFILL("prefill 1 x 8k", PROMPT_8K),
	PREFILL("prefill 512 of 8k", KV_ROWS({ 1, 512, 8192 })),
	PREFILL("prefill 1 x 32k", KV_ROWS({ 1, 32768, 32768 })),
	PREFILL("mixed 2 x q2k, 8 x 1k", KV_ROWS({ 2, 2048, 2048 }, { 8, 1, 1024 })),
	PREFILL("mixed 2 x q4k, 32 x 1k", KV_ROWS({ 2, 4096, 4096 }, { 32, 1, 1024 })),

	/* Append and copies */
	APPEND("append 256 x 1", "<= 3 us", KV_ROWS({ 256, 1, 1024 })),
	APPEND("append 8 x 1", "<= 3 us", KV_ROWS({ 8, 1, 1024 })),
	APPEND("append 5000", "<= 12 us", KV_ROWS({ 1, 5000, 5000 })),
	APPEND("append 4993, 7 x 1", "<= 12 us", KV_ROWS({ 1, 4993, 4993 }, { 7, 1, 1024 })),
	APPEND("append 8 x 625", "<= 12 us", KV_ROWS({ 8, 625, 625 })),
	{ .group = "pages",
	  .name = "pages copied, 1024 of 32 layers",
	  .limit = "as many bytes by cuMemcpyDtoD",
	  .target = "<= 1.1",
	  .work = KV_COPY_PAGES,
	  KV_ROWS({ 1, 1, 16384 }) },
	{ .group = "pages", .name = "as many bytes by cuMemcpyDtoD", .work = KV_COPY_ALL, KV_ROWS({ 1, 1, 16384 }) },

	EXPORTED("vmm"),
	EXPORTED("legacy"),

	{ .group = "mods of decode", .name = "decode without mods", BATCH_16_8K },
	MOD("decode", "soft_cap built in", "soft_cap", "<= 1.02", BATCH_16_8K),
	MOD("decode", "alibi compiled", "alibi(32.0)", "<= 1.05", BATCH_16_8K),
	MOD("decode", "soft_cap compiled", "soft_cap(50.0)", "<= 1.05", BATCH_16_8K),
	{ .group = "mods of prefill", .name = "prefill without mods", .page_size = 64, PROMPT_8K },
	MOD("prefill", "soft_cap built in", "soft_cap", "<= 1.5", .page_size = 64, PROMPT_8K),
	MOD("prefill", "alibi compiled", "alibi(32.0)", "<= 1.05", .page_size = 64, PROMPT_8K),
	MOD("prefill", "soft_cap compiled", "soft_cap(50.0)", "<= 1.5", .page_size = 64, PROMPT_8K),

	/* 128 query heads on one latent head: computing is its limit, so no goal.  Then 16 heads: memory limits. */
	MLA("MLA", "decode 16 x 8k, MLA", BATCH_16_8K),
	MLA("MLA", "decode 1 x 8k, MLA", KV_ROWS({ 1, 1, 8192 })),
	MLA("MLA", "decode 1 x 32k, MLA", KV_ROWS({ 1, 1, 32768 })),
	MLA("MLA, 16 heads", "decode 64 x 8k, MLA, 16 heads", .q_heads = 16, KV_ROWS({ 64, 1, 8192 })),
};

const struct bench_suite bench_suite_gpu = {
	.name = "gpu",
	.description = "a layer of decode, prefill and append on a GPU, compared with reading the same pages",
	.run = kv_gpu_run,
	.kv_cases = cases,
	.n_kv_cases = BENCH_N(cases),
	.special = true,
};
