/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is measured on a GPU.  bench/NOTES-gpu.md has the floors and goals, and
 * peers/gpu_torch.py the same batches by their names.
 */
#include "bench/gpu_scene.h"

/* A batch of decode beside the reader over the same pages. */
#define DECODE(title, wanted, ...)                                                                               \
	{ .group = title, .name = title, .limit = title ": pages read", .target = wanted, .rows = __VA_ARGS__ }, \
	{                                                                                                        \
		.group = title, .name = title ": pages read", .work = GPU_READ, .rows = __VA_ARGS__              \
	}

/* Permuted tables beside pages in their order. */
#define PLACES(title, size, wanted, ...)                                                                               \
	{ .group = title, .name = title " in order", .page_size = size, .contiguous = true, .rows = __VA_ARGS__ },     \
		{ .group = title,                                                                                      \
		  .name = title,                                                                                       \
		  .limit = title " in order",                                                                          \
		  .target = wanted,                                                                                    \
		  .page_size = size,                                                                                   \
		  .rows = __VA_ARGS__ },                                                                               \
	{                                                                                                              \
		.group = title, .name = title ": pages read", .work = GPU_READ, .page_size = size, .rows = __VA_ARGS__ \
	}

#define PREFILL(title, ...)                                                                                      \
	{ .group = title, .name = title " in order", .page_size = 64, .contiguous = true, .rows = __VA_ARGS__ }, \
	{                                                                                                        \
		.group = title, .name = title, .limit = title " in order", .page_size = 64, .rows = __VA_ARGS__  \
	}

#define APPEND(title, wanted, ...)                                                                  \
	{ .group = title,                                                                           \
	  .name = title,                                                                            \
	  .limit = title ": copied",                                                                \
	  .target = wanted,                                                                         \
	  .work = GPU_APPEND,                                                                       \
	  .rows = __VA_ARGS__ },                                                                    \
	{                                                                                           \
		.group = title, .name = title ": copied", .work = GPU_COPY_NEW, .rows = __VA_ARGS__ \
	}

/* Rows in braces: of each kind how many, query rows, tokens. */
#define ROWS(...)           \
	{                   \
		__VA_ARGS__ \
	}
#define BATCH_16_8K ROWS({ 16, 1, 8192 })
#define PROMPT_8K ROWS({ 1, 8192, 8192 })

const struct gpu_figure gpu_figures[] = {
	/* Limits */
	{ .group = "limits", .name = "empty kernel", .work = GPU_EMPTY, .rows = ROWS({ 64, 1, 4096 }) },
	{ .group = "limits", .name = "1 GB read", .work = GPU_READ, .rows = ROWS({ 64, 1, 4096 }) },
	{ .group = "limits", .name = "1 GB read and written", .work = GPU_COPY, .rows = ROWS({ 64, 1, 4096 }) },
	{ .group = "limits", .name = "plan of 64 rows", .work = GPU_PLAN, .rows = ROWS({ 64, 1, 4096 }) },

	/* Decode: those that say most come first, for a run may be cut short. */
	DECODE("decode 16 x 8k", "<= 1.03 and 3 us", BATCH_16_8K),
	DECODE("decode 1 x 8k", "<= 13 us", ROWS({ 1, 1, 8192 })),
	DECODE("decode 1 x 1k", "<= 5 us", ROWS({ 1, 1, 1024 })),
	DECODE("decode 1 x 32k", "<= 36 us", ROWS({ 1, 1, 32768 })),
	DECODE("decode 64 x 8k", "<= 1.03 and 3 us", ROWS({ 64, 1, 8192 })),
	DECODE("decode 64 x 1k", "<= 1.03 and 3 us", ROWS({ 64, 1, 1024 })),
	DECODE("decode 64 x 32k", "<= 1.03 and 3 us", ROWS({ 64, 1, 32768 })),
	DECODE("decode 8 x 1k", "<= 12 us", ROWS({ 8, 1, 1024 })),
	DECODE("decode 8 x 4k", "<= 36 us", ROWS({ 8, 1, 4096 })),
	DECODE("decode 16 x 1k", NULL, ROWS({ 16, 1, 1024 })),
	DECODE("decode 256 x 1k", "<= 1.03 and 3 us", ROWS({ 256, 1, 1024 })),
	DECODE("decode 16 x 32k", "<= 1.03 and 3 us", ROWS({ 16, 1, 32768 })),
	DECODE("decode 256 x 8k", "<= 1.03 and 3 us", ROWS({ 256, 1, 8192 })),
	DECODE("decode 256 x 32k", "<= 1.03 and 3 us", ROWS({ 256, 1, 32768 })),

	/* As many bytes, in rows alike and unlike. */
	{ .group = "skew", .name = "decode 64 x 3056", .rows = ROWS({ 64, 1, 3056 }) },
	{ .group = "skew",
	  .name = "decode 1 x 128k, 63 x 1k",
	  .limit = "decode 64 x 3056",
	  .target = "<= 1.05",
	  .rows = ROWS({ 1, 1, 131072 }, { 63, 1, 1024 }) },

	PLACES("decode 16 x 8k, page 16", 16, "<= 1.01", BATCH_16_8K),
	PLACES("decode 16 x 8k, page 1", 1, "<= 1.05", BATCH_16_8K),
	PLACES("decode 16 x 8k, page 64", 64, "<= 1.01", BATCH_16_8K),

	{ .group = "e4m3", .name = "decode 16 x 8k, bf16", .rows = BATCH_16_8K },
	{ .group = "e4m3",
	  .name = "decode 16 x 8k, e4m3",
	  .limit = "decode 16 x 8k, bf16",
	  .target = "<= 0.54",
	  .dtype = PAGED_E4M3,
	  .rows = BATCH_16_8K },

	/* Prompts and mixes */
	PREFILL("prefill 1 x 8k", PROMPT_8K),
	PREFILL("prefill 512 of 8k", ROWS({ 1, 512, 8192 })),
	PREFILL("prefill 1 x 32k", ROWS({ 1, 32768, 32768 })),
	PREFILL("mixed 2 x q2k, 8 x 1k", ROWS({ 2, 2048, 2048 }, { 8, 1, 1024 })),
	PREFILL("mixed 2 x q4k, 32 x 1k", ROWS({ 2, 4096, 4096 }, { 32, 1, 1024 })),

	/* Append and copies */
	APPEND("append 256 x 1", "<= 3 us", ROWS({ 256, 1, 1024 })),
	APPEND("append 8 x 1", "<= 3 us", ROWS({ 8, 1, 1024 })),
	APPEND("append 5000", "<= 12 us", ROWS({ 1, 5000, 5000 })),
	APPEND("append 4993, 7 x 1", "<= 12 us", ROWS({ 1, 4993, 4993 }, { 7, 1, 1024 })),
	APPEND("append 8 x 625", "<= 12 us", ROWS({ 8, 625, 625 })),
	{ .group = "pages",
	  .name = "pages copied, 1024 of 32 layers",
	  .limit = "as many bytes by the driver",
	  .target = "<= 1.1",
	  .work = GPU_COPY_PAGES,
	  .rows = ROWS({ 1, 1, 16384 }) },
	{ .group = "pages",
	  .name = "as many bytes by the driver",
	  .work = GPU_COPY_ALL,
	  .rows = ROWS({ 1, 1, 16384 }) },

	/* Another process owns the pool. */
	{ .group = "vmm",
	  .name = "decode 16 x 8k, served by vmm",
	  .limit = "16 x 8k read by vmm",
	  .export = "vmm",
	  .rows = BATCH_16_8K },
	{ .group = "vmm", .name = "16 x 8k read by vmm", .work = GPU_READ, .export = "vmm", .rows = BATCH_16_8K },
	{ .group = "legacy",
	  .name = "decode 16 x 8k, served by legacy",
	  .limit = "16 x 8k read by legacy",
	  .export = "legacy",
	  .rows = BATCH_16_8K },
	{ .group = "legacy",
	  .name = "16 x 8k read by legacy",
	  .work = GPU_READ,
	  .export = "legacy",
	  .rows = BATCH_16_8K },

	/* Mods: those with numbers in them are compiled here, soft_cap is built in */
	{ .group = "mods of decode", .name = "decode without mods", .rows = BATCH_16_8K },
	{ .group = "mods of decode",
	  .name = "decode, soft_cap built in",
	  .limit = "decode without mods",
	  .target = "<= 1.02",
	  .score = "soft_cap",
	  .rows = BATCH_16_8K },
	{ .group = "mods of decode",
	  .name = "decode, alibi compiled",
	  .limit = "decode without mods",
	  .target = "<= 1.05",
	  .score = "alibi(32.0)",
	  .rows = BATCH_16_8K },
	{ .group = "mods of decode",
	  .name = "decode, soft_cap compiled",
	  .limit = "decode without mods",
	  .target = "<= 1.05",
	  .score = "soft_cap(50.0)",
	  .rows = BATCH_16_8K },
	{ .group = "mods of prefill", .name = "prefill without mods", .page_size = 64, .rows = PROMPT_8K },
	{ .group = "mods of prefill",
	  .name = "prefill, soft_cap built in",
	  .limit = "prefill without mods",
	  .target = "<= 1.5",
	  .score = "soft_cap",
	  .page_size = 64,
	  .rows = PROMPT_8K },
	{ .group = "mods of prefill",
	  .name = "prefill, alibi compiled",
	  .limit = "prefill without mods",
	  .target = "<= 1.05",
	  .score = "alibi(32.0)",
	  .page_size = 64,
	  .rows = PROMPT_8K },
	{ .group = "mods of prefill",
	  .name = "prefill, soft_cap compiled",
	  .limit = "prefill without mods",
	  .target = "<= 1.5",
	  .score = "soft_cap(50.0)",
	  .page_size = 64,
	  .rows = PROMPT_8K },

	/* 128 query heads on one latent head: computing is its limit, so no goal */
	{ .group = "latent",
	  .name = "latent decode 16 x 8k",
	  .limit = "latent pages read",
	  .latent = true,
	  .page_size = 64,
	  .rows = BATCH_16_8K },
	{ .group = "latent",
	  .name = "latent pages read",
	  .work = GPU_READ,
	  .latent = true,
	  .page_size = 64,
	  .rows = BATCH_16_8K },
};

const size_t gpu_n_figures = sizeof(gpu_figures) / sizeof(gpu_figures[0]);
