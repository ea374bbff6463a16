/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kernels.h - parameters of the CUDA kernels, for kernels and launchers
 *
 * Each kernel takes one of these structs by value.  Addresses are uint64_t and
 * refer to device memory; the host never dereferences them.  The semantics are
 * those of kernels/kernels.h, except for bits that depend on the order of a sum.
 *
 * A batch is planned on the device.  plan_batch reads the batch's lengths, which
 * an earlier kernel on the stream may have written, and checks them.  It writes
 * a struct cuda_row for each row, and the prefix sums by which the blocks of
 * attention find their work items.  All other kernels use only these checked
 * rows.  Attention runs with a grid of any size.  The grid and the plan's memory
 * depend only on the maxima, so a captured graph serves every batch within them.
 *
 * Faults are reported as bits in struct cuda_plan_head, which the planner
 * clears.  A row with invalid lengths becomes empty.  A table entry that is
 * not a page of the pool is neither read nor written.
 *
 * Split-KV: the lengths of a row alone decide how the row is split into KV
 * chunks.  The block that ends last combines them in their order, or the kernel
 * combine_kv_chunks if there are many.  A row's result therefore has the same
 * bits wherever its pages are and whichever rows share the batch.
 */
#ifndef PAGED_KERNELS_CUDA_KERNELS_H
#define PAGED_KERNELS_CUDA_KERNELS_H

#if !defined(__CUDACC_RTC__)
#include <stdint.h>
#endif

/** The values of enum paged_dtype. */
enum cuda_dtype { CUDA_F32 = 1, CUDA_F16 = 2, CUDA_BF16 = 3, CUDA_E4M3 = 4, CUDA_E5M2 = 5, CUDA_I8 = 18 };

/** Threads per block, and q_rows ((query, query head) pairs of one KV head) per tile. */
#define CUDA_PLAN_THREADS 256
#define CUDA_SCATTER_THREADS 256
#define CUDA_APPEND_THREADS 256
#define CUDA_COPY_THREADS 256
#define CUDA_MERGE_THREADS 128
#define CUDA_COMBINE_THREADS 128
#define CUDA_ATTENTION_THREADS 128
#define CUDA_MLA_THREADS 256
#define CUDA_TILE_Q_ROWS 16
#define CUDA_MAX_TILE_Q_ROWS 64
#define CUDA_PREFILL_THREADS 128
#define CUDA_PREFILL_TILE_Q_ROWS 128
#define CUDA_WGMMA_THREADS 384
/**
 * attention_mla_cluster_*: blocks of a cluster; their q_rows, of which the heads for each KV head are a multiple;
 * tokens of a tile, of which a page has a multiple, or a divisor that is CUDA_CLUSTER_LEAST_PAGE or more; and dims of a
 * box, which is what one copy moves of a page.
 */
#define CUDA_CLUSTER_BLOCKS 2
#define CUDA_CLUSTER_Q_ROWS (CUDA_CLUSTER_BLOCKS * CUDA_MAX_TILE_Q_ROWS)
#define CUDA_CLUSTER_TOKENS 64
#define CUDA_CLUSTER_LEAST_PAGE 8
#define CUDA_CLUSTER_DIMS 64
#define CUDA_BULK_THREADS 160
#define CUDA_BULK_TOKENS 8 /* adjacent tokens of a page that a bulk copy moves */

/** Bytes of dynamic shared memory of the attention kernels, by the largest dim that they support. */
#define CUDA_SIMT_SHARED_128 (28u << 10)
#define CUDA_SIMT_SHARED_256 (36u << 10)
#define CUDA_SIMT_SHARED_576 (56u << 10)
#define CUDA_MMA_SHARED_64 (84u << 10)
#define CUDA_MMA_SHARED_128 (113u << 10)
#define CUDA_MMA_SHARED_256 (148u << 10)
/** With fewer stages (mma_stages()): for devices whose blocks have 99 KiB, as sm_86, sm_89 and sm_120. */
#define CUDA_MMA_SHARED_128_LEAST (92u << 10)
#define CUDA_MMA_SHARED_256_LEAST (84u << 10)
#define CUDA_BYTES_SHARED_64 (54u << 10)
#define CUDA_BYTES_SHARED_128 (78u << 10)
#define CUDA_BYTES_SHARED_256 (93u << 10)
/**
 * Dynamic shared memory of attention_mla_f16 and _bf16: the most of a block on sm_80; with one more stage, for sm_90;
 * and with one stage and narrow tiles only, for blocks of 99 KiB.
 */
#define CUDA_MLA_SHARED (163u << 10)
#define CUDA_MLA_SHARED_LEAST (74u << 10)
#define CUDA_MLA_SHARED_MORE (199u << 10)
/** Dynamic shared memory of attention_prefill_*: of dim 128, two blocks fit a multiprocessor of sm_80. */
#define CUDA_PREFILL_SHARED_64 (49u << 10)
#define CUDA_PREFILL_SHARED_128 (81u << 10)
/** Dynamic shared memory of attention_wgmma_*. */
#define CUDA_WGMMA_SHARED_64 (164u << 10)
#define CUDA_WGMMA_SHARED_128 (180u << 10)
/** Dynamic shared memory of attention_mla_wgmma_*: all that a block of sm_90 can have. */
#define CUDA_MLA_WGMMA_SHARED (227u << 10)
/** Dynamic shared memory of attention_bulk_*: two blocks fit a multiprocessor of sm_90. */
#define CUDA_BULK_SHARED_64 (97u << 10)
#define CUDA_BULK_SHARED_128 (113u << 10)
/** Dynamic shared memory of combine_kv_chunks, and the most of its blocks that a work item has work for. */
#define CUDA_COMBINE_SHARED (42u << 10)
#define CUDA_COMBINE_BLOCKS 4u
/** Dynamic shared memory of plan_batch. */
#define CUDA_PLAN_SHARED 256u

/**
 * KV chunks begin at multiples of this number of tokens.  The first one begins at the last multiple that is not past
 * the row's kv_first.
 */
#define CUDA_KV_CHUNK_UNIT 128u
/**
 * The most KV chunks that the last block of a tile combines; combine_kv_chunks combines more of them, with many blocks.
 * After attention_mla_* it combines all.
 */
#define CUDA_BLOCK_KV_CHUNKS 32u
/** Most KV chunks of a row: the most that target_work_items may be. */
#define CUDA_MAX_KV_CHUNKS 1024u
/**
 * With a wide_kv_chunk_factor in struct cuda_plan_params, a row's KV chunks have at least T tokens.  T is the smallest
 * CUDA_KV_CHUNK_UNIT * 2^i with T * T >= factor * n, where n is the number of tokens that the row attends to.
 *
 * - NARROW is the factor of rows with at most CUDA_TILE_Q_ROWS q_rows: 128 up to 4k tokens, 256 up to 16k, 512 up to
 *   64k, 1024 up to 256k.  Rows with more have the plan's wide_kv_chunk_factor.
 * - WIDE: 128 up to 1k tokens, 256 up to 4k, 512 up to 16k, 1024 up to 64k, 2048 up to 256k.
 * - CLUSTER is WIDE's place in plans for attention_mla_cluster: 128 up to 256 tokens, 256 up to 1k, 512 up to 4k, 1024
 *   up to 16k, 2048 up to 64k.
 *
 * A row alone takes a * T + b * n / T, where a is the time of a tile for one token, and b the time to write, read and
 * combine one chunk.  That is least if T * T is b / a * n, and b / a is about 3 tokens for 128 heads and 0.8 for 16
 * (estimates of bench/NOTES-gpu.md).  WIDE and NARROW are five times as large: a batch that fills the device gains by
 * fewer chunks, and its tiles take the same time.  CLUSTER is larger still: such a batch gains more by it than a row
 * alone loses.
 */
#define CUDA_WIDE_KV_CHUNK_FACTOR 16u
#define CUDA_CLUSTER_KV_CHUNK_FACTOR 64u
#define CUDA_NARROW_KV_CHUNK_FACTOR 4u
/** Kernels expand a block mask to bits this number of tokens at a time. */
#define CUDA_MASK_BITMAP_TOKENS 512u

enum cuda_plane_index { CUDA_K, CUDA_V, CUDA_N_PLANES };

/** One plane of one layer; strides in bytes, as in layout.h. */
struct cuda_plane {
	uint64_t address; /* of page 0, head 0, token 0 in the layer */
	uint64_t page_stride;
	uint64_t head_stride;
	uint64_t token_stride;
	uint32_t dim;
	uint32_t dtype;
};

struct cuda_pages {
	struct cuda_plane plane[2]; /* CUDA_K, CUDA_V */
	struct cuda_plane scale[2]; /* f32 scales of i8, CUDA_K, CUDA_V; address 0: none */
	uint32_t page_size;
	uint32_t n_pages;
	uint32_t n_kv_heads;
	uint32_t v_in_k; /* append writes no V */
};

/** A packed tensor [token][head][dim]; the last dimension is contiguous. */
struct cuda_tensor {
	uint64_t address; /* 0: none */
	int64_t token_stride;
	int64_t head_stride;
	int64_t batch_skip; /* as in struct kernel_tensor */
	uint32_t batch_tokens;
	uint32_t dtype;
	uint32_t dim;
	uint32_t unused;
};

/**
 * A CUtensorMap: a plane of one layer, for copies by the TMA unit.  It must begin at a multiple of 64 bytes.  (CUDA
 * 13's cuda.h aligns it to 128, but its cuTensorMapEncodeTiled() asks for 64, as CUDA 12's does.)
 */
struct cuda_tensor_map {
#ifdef __cplusplus
	alignas(64) uint64_t words[16];
#else
	_Alignas(64) uint64_t words[16];
#endif
};

/** Faults of a batch, found on the device. */
enum cuda_fault {
	CUDA_FAULT_QUERIES = 1, /* q_indptr decreases or exceeds max_total_q, or a row exceeds max_q_len */
	/* kv_len is negative, exceeds max_kv_len, or is below the kv_first of a row with queries */
	CUDA_FAULT_LENGTH = 2,
	/* a token from kv_first on and below a length is on an unmapped page, or on a page number outside the pool */
	CUDA_FAULT_PAGE = 4,
	CUDA_FAULT_POSITION = 8,  /* append at a position below 0, past the page table, or past the rotary angles */
	CUDA_FAULT_CAPACITY = 16, /* more work than the plan has memory for; nothing was planned */
	CUDA_FAULT_INDEX = 32,    /* a mod's array index is out of bounds */
	CUDA_FAULT_SHARED = 64,   /* append at a position that the row must not write */
	/* a gather's end is below its begin or past the row's kv_len, or a token is before its kv_first */
	CUDA_FAULT_BOUNDS = 128,
};

/** Values of writable_from that are not positions: append skips the row; every append to the row is a fault. */
#define CUDA_WRITABLE_SKIP 0xffffffffu
#define CUDA_WRITABLE_NONE 0xfffffffeu

/** A planned row. */
struct cuda_row {
	int64_t q_base;
	uint32_t q_start;
	uint32_t q_len;
	uint32_t kv_len;
	uint32_t writable_from; /* append must not write tokens before this one */
	uint32_t tile_q_rows;
	uint32_t n_tiles;
	uint32_t kv_chunk_tokens;
	uint32_t n_kv_chunks;
	uint32_t first_counter; /* index of the row's first counter; there is one for each (tile, KV head) */
	uint32_t first_state;   /* of the row's softmax states in the workspace, [KV chunk][query][query head] */
	int32_t b;              /* the batch index that mods see */
	uint32_t kv_first;      /* attention reads no key before it; at most kv_len */
};

struct cuda_plan_head {
	uint32_t faults;       /* enum cuda_fault, or-ed */
	uint32_t fault_row;    /* the highest row with a fault */
	uint32_t n_work_items; /* of attention_* except attention_prefill_* */
	uint32_t total_q;
	uint32_t n_prefill_items; /* of attention_prefill_* */
	uint32_t n_states;        /* of rows with several KV chunks */
	uint32_t most_kv_chunks;  /* of a row */
};

/** Device addresses of a plan, for the kernels that read it. */
struct cuda_plan {
	uint64_t head; /* struct cuda_plan_head */
	uint64_t rows; /* struct cuda_row [n_rows] */
	/*
	 * uint32_t [n_rows + 1]: number of each row's first work item; a row's items are [tile][KV head][KV chunk]. The
	 * same numbers of prefill items follow.  attention_prefill_* get the address of those.
	 */
	uint64_t first_work_item;
	uint64_t table; /* uint32_t [n_rows][table_stride]: physical pages; UINT32_MAX: unmapped */
	uint32_t n_rows;
	uint32_t table_stride;
};

/** plan_batch: 1 block of CUDA_PLAN_THREADS. */
struct cuda_plan_params {
	struct cuda_plan plan;
	uint64_t q_indptr;      /* int32_t [n_rows + 1] */
	uint64_t kv_len;        /* int32_t [n_rows] */
	uint64_t q_base;        /* int64_t or int32_t [n_rows]; 0: kv_len - q_len */
	uint64_t writable_from; /* uint32_t [n_rows], or 0: every position may be written */
	uint64_t b;             /* int32_t [n_rows]: the batch index that mods see, or 0: the row's index */
	uint64_t kv_first;      /* uint32_t [n_rows], or 0: 0 for each */
	uint64_t counters;      /* uint32_t [max_counters]; plan_batch sets them to 0 */
	uint32_t q_base_bytes;
	uint32_t page_size;
	uint32_t n_q_heads;
	uint32_t n_kv_heads;
	uint32_t max_total_q;
	uint32_t max_kv_len;        /* at most table_stride * page_size */
	uint32_t max_tile_q_rows;   /* q_rows per tile of rows with more than CUDA_TILE_Q_ROWS q_rows */
	uint32_t target_work_items; /* approximate number of work items per row, whatever else is in the batch */
	uint32_t max_work_items;
	uint32_t max_counters;
	uint32_t max_states; /* softmax states that fit in the workspace */
	/* q_rows per tile of rows with more than max_tile_q_rows q_rows, which are prefill items; 0: there are none */
	uint32_t prefill_tile_q_rows;
	uint32_t max_q_len; /* queries of a row: the launcher omits kernels that rows of this many do not need */
	uint32_t wide_kv_chunk_factor; /* see CUDA_WIDE_KV_CHUNK_FACTOR; 0: that limit does not apply */
};

/** Words of a struct cuda_scatter_record, which has 64 bytes with them: half a warp reads it at once. */
#define CUDA_SCATTER_WORDS 12

/** Consecutive words for device memory. */
struct cuda_scatter_record {
	uint64_t to; /* device address of the first word, a multiple of 4 */
	uint32_t n;  /* at most CUDA_SCATTER_WORDS */
	uint32_t unused;
	uint32_t words[CUDA_SCATTER_WORDS];
};

/** scatter_words: any number of blocks of CUDA_SCATTER_THREADS.  No two records write the same word. */
struct cuda_scatter_params {
	uint64_t records; /* struct cuda_scatter_record [n_records], in pinned host memory */
	uint32_t n_records;
	uint32_t unused;
};

/** struct kernel_rotary of kernels/kernels.h, with its arrays in device memory. */
struct cuda_rotary {
	uint64_t cos_sin;   /* float [n_positions][dim]; 0: no rotary embedding */
	uint64_t positions; /* uint32_t [total_q], or 0: q_base + i */
	struct cuda_tensor q;
	struct cuda_tensor q_out;
	uint32_t n_positions;
	uint32_t dim;
	uint32_t first;
	uint32_t interleaved;
	uint32_t n_q_heads; /* of q */
	uint32_t unused;
};

/** append_tokens: any number of blocks of CUDA_APPEND_THREADS. */
struct cuda_append_params {
	struct cuda_pages pages;
	struct cuda_plan plan;
	struct cuda_tensor k;
	struct cuda_tensor v;
	uint64_t positions; /* uint32_t [total_q], or 0: kv_len - q_len + i */
	uint64_t k_scale;   /* float [n_kv_heads] for e4m3 and e5m2; 0: scale 1 */
	uint64_t v_scale;
	struct cuda_rotary rotary;
};

/** K, V, and their scales. */
#define CUDA_COPY_PLANES 4u

/** The source or destination of a page copy: addresses, strides and page numbers. */
struct cuda_copy_side {
	uint64_t address[CUDA_COPY_PLANES];      /* of each plane's layer 0, page 0, head 0 */
	uint64_t layer_stride[CUDA_COPY_PLANES]; /* bytes */
	uint64_t page_stride[CUDA_COPY_PLANES];
	uint64_t head_stride[CUDA_COPY_PLANES];
	uint64_t pages;   /* uint32_t [n_copies]; 0: 0, 1, 2, ... */
	uint64_t n_pages; /* pages at or past this number are not accessed */
};

/**
 * copy_pages: copies the first tokens of pages, in all layers and heads, from
 * page to page (copy on write), or between pages and a buffer.  The grid is any
 * number of blocks of CUDA_COPY_THREADS.  On both sides each (page, head) begins
 * at a multiple of 16 bytes.
 */
struct cuda_copy_params {
	struct cuda_copy_side from;
	struct cuda_copy_side to;
	uint64_t n_tokens;                       /* uint32_t [n_copies]; 0: page_size each */
	uint64_t faults;                         /* uint32_t that CUDA_FAULT_PAGE is or-ed into; 0: none */
	uint32_t token_stride[CUDA_COPY_PLANES]; /* bytes, the same on both sides */
	uint32_t n_planes;
	uint32_t n_copies;
	uint32_t n_layers;
	uint32_t n_heads;
	uint32_t page_size;
	uint32_t unused;
};

/**
 * gather_tokens: copies tokens [begin, end) of each planned row into packed
 * tensors, row after row.  The grid is any number of blocks of CUDA_COPY_THREADS.
 */
struct cuda_gather_params {
	struct cuda_pages pages;
	struct cuda_plan plan;
	struct cuda_tensor k; /* address 0: do not gather K */
	struct cuda_tensor v; /* address 0: do not gather V */
	uint64_t begin;       /* uint32_t [n_rows]; 0: from kv_first */
	uint64_t end;         /* uint32_t [n_rows]; 0: to kv_len */
	uint64_t k_scale;     /* float [n_kv_heads] for e4m3 and e5m2; 0: scale 1 */
	uint64_t v_scale;     /* with V in K, the same as k_scale */
};

/** merge_results: any number of blocks of CUDA_MERGE_THREADS.  Tensors of n_tokens rows. */
struct cuda_merge_params {
	struct cuda_tensor part[2];
	uint64_t part_lse[2]; /* float [n_tokens][n_heads] */
	struct cuda_tensor out;
	uint64_t lse; /* or 0 */
	uint32_t n_tokens;
	uint32_t n_heads;
};

/** struct block_mask of mask.h, with its arrays in device memory. */
struct cuda_block_mask {
	uint64_t first_list; /* uint64_t [n_rows + 1]; 0: no mask */
	uint64_t start[2];   /* uint64_t; BLOCK_MASK_PARTIAL, BLOCK_MASK_FULL */
	uint64_t indices[2]; /* uint32_t */
	uint32_t n_rows;
	uint32_t n_heads;
	uint32_t q_block;
	uint32_t kv_block;
	uint32_t ascending; /* 1: every list is ascending; 0: unknown */
	uint32_t unused;
};

/**
 * attention_*: any number of blocks of as many threads as struct cuda_choice says.  combine_kv_chunks, with the same
 * parameters, after them, unless no row can have more than block_kv_chunks: any number of blocks of
 * CUDA_COMBINE_THREADS; V's dim is a multiple of 4.
 */
struct cuda_attention_params {
	struct cuda_pages pages;
	struct cuda_plan plan;
	struct cuda_tensor q;
	struct cuda_tensor out;
	struct cuda_block_mask blocks;
	uint64_t sink;      /* float [n_q_heads], or 0 */
	uint64_t lse;       /* float [total_q][n_q_heads], or 0 */
	uint64_t max_score; /* float [total_q][n_q_heads], or 0 */
	uint64_t mod;       /* struct cuda_mod_args for the mods of this module */
	uint64_t counters;
	uint64_t workspace_states; /* float [max_states][2]: row_max, row_sum */
	uint64_t workspace_values; /* float [max_states][V dim]: sums of weighted values */
	uint32_t n_q_heads;
	float scale;
	uint32_t causal;
	uint32_t lse_without_sink;
	uint64_t k_scale; /* float [n_kv_heads] for e4m3 and e5m2; 0: scale 1 */
	uint64_t v_scale;
	uint32_t shared_size; /* the launch's dynamic shared memory, which decides how many tiles kernels fetch ahead */
	uint32_t block_kv_chunks; /* tiles with more KV chunks are left to combine_kv_chunks */
};

/** attention_mla_cluster_*: a multiple of CUDA_CLUSTER_BLOCKS blocks; no block mask. */
struct cuda_attention_cluster_params {
	struct cuda_attention_params attention;
	/*
	 * The layer's K as a tensor [page][KV head][token][dim] of 2-byte elements.  A box is CUDA_CLUSTER_DIMS dims of
	 * a page's tokens, of CUDA_CLUSTER_TOKENS if the page has more.
	 */
	struct cuda_tensor_map keys;
};

#endif
