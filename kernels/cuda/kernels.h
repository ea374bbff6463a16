/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kernels.h - parameters of the kernels in GPU memory, for kernels and launchers
 *
 * Each kernel takes one of these structs by value.  Addresses are uint64_t and
 * mean the device's memory: the host never follows them.  Semantics are those
 * of kernels/kernels.h, but for bits that depend on the order of a sum.
 *
 * A batch is planned on the device: plan_batch reads its lengths, which a
 * kernel before it on the stream may have written, checks them, and writes
 * one struct cuda_row for each row and the prefix sums by which attention's
 * blocks find their work.  Every other kernel reads rows from there and so
 * never outside of what was checked.  The grid of attention is any number of
 * blocks; it and the plan's memory follow from the maxima alone, so a captured
 * graph serves every batch within them.
 *
 * What was wrong is told by bits in struct cuda_plan_head, which the planner
 * clears; a row with a fault is empty, and a page that is none is neither read
 * nor written.
 *
 * A row is cut into splits by its own lengths, and these are merged in logical
 * order by whichever block ends last: its result has the same bits wherever
 * its pages lie and whichever rows share the batch.
 */
#ifndef PAGED_KERNELS_CUDA_KERNELS_H
#define PAGED_KERNELS_CUDA_KERNELS_H

#if !defined(__CUDACC_RTC__)
#include <stdint.h>
#endif

/** enum paged_dtype's numbers. */
enum cuda_dtype { CUDA_F32 = 1, CUDA_F16 = 2, CUDA_BF16 = 3, CUDA_E4M3 = 4, CUDA_E5M2 = 5, CUDA_I8 = 18 };

/** Threads of a block, and lines (query rows times query heads of a KV head) of a tile. */
#define CUDA_PLAN_THREADS 256
#define CUDA_APPEND_THREADS 256
#define CUDA_COPY_THREADS 256
#define CUDA_MERGE_THREADS 128
#define CUDA_ATTENTION_THREADS 128
#define CUDA_MLA_THREADS 256
#define CUDA_TILE_LINES 16
#define CUDA_MAX_TILE_LINES 64

/** Dynamic shared memory of the attention kernels, by the largest dim that they take. */
#define CUDA_SIMT_SHARED_128 (28u << 10)
#define CUDA_SIMT_SHARED_256 (36u << 10)
#define CUDA_SIMT_SHARED_576 (56u << 10)
#define CUDA_MMA_SHARED_64 (84u << 10)
#define CUDA_MMA_SHARED_128 (92u << 10)
#define CUDA_MMA_SHARED_256 (148u << 10)
#define CUDA_BYTES_SHARED_64 (52u << 10)
#define CUDA_BYTES_SHARED_128 (76u << 10)
#define CUDA_BYTES_SHARED_256 (116u << 10)
/** Of attention_mla_*: all that a block has on sm_80. */
#define CUDA_MLA_SHARED (163u << 10)
/** And of plan_batch. */
#define CUDA_PLAN_SHARED 256u

/** Splits begin at multiples of this many tokens; so do the parts of a block mask that are looked at together. */
#define CUDA_SPLIT_UNIT 128u
#define CUDA_SEGMENT 512u

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
	struct cuda_plane scale[2]; /* of i8 likewise, f32; address 0: none */
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

/** What is wrong with a batch. */
enum cuda_fault {
	CUDA_FAULT_QUERIES = 1,   /* q_indptr falls, or passes the maximum */
	CUDA_FAULT_LENGTH = 2,    /* kv_len is negative or passes the maximum */
	CUDA_FAULT_PAGE = 4,      /* an unmapped page, or none of the pool's, below a length */
	CUDA_FAULT_POSITION = 8,  /* a token to append before 0 or past the table's row, or past the angles of rotary */
	CUDA_FAULT_CAPACITY = 16, /* more work than the plan has memory for: nothing was planned */
	CUDA_FAULT_INDEX = 32,    /* a mod's array index out of bounds */
	CUDA_FAULT_SHARED = 64,   /* a token to append where its row may not be written */
	CUDA_FAULT_BOUNDS = 128,  /* bounds of a gather that fall, or pass the row's length */
};

/** Of a row, beside a position: append leaves it alone; append may write nothing of it. */
#define CUDA_WRITABLE_SKIP 0xffffffffu
#define CUDA_WRITABLE_NONE 0xfffffffeu

/** A row as planned. */
struct cuda_row {
	int64_t q_base;
	uint32_t q_start;
	uint32_t q_len;
	uint32_t kv_len;
	uint32_t writable_from; /* tokens before it are not written */
	uint32_t tile_lines;
	uint32_t n_tiles;
	uint32_t split_tokens;
	uint32_t n_splits;
	uint32_t first_group; /* counters of (tile, KV head) */
	uint32_t first_line;  /* partial results [split][query row][query head] */
	int32_t b;            /* what mods see */
};

struct cuda_plan_head {
	uint32_t faults;    /* enum cuda_fault, or-ed */
	uint32_t fault_row; /* the highest row that has one */
	uint32_t n_items;
	uint32_t total_q;
};

/** Where a plan lies, for those who read it. */
struct cuda_plan {
	uint64_t head;       /* struct cuda_plan_head */
	uint64_t rows;       /* struct cuda_row [n_rows] */
	uint64_t first_item; /* uint32_t [n_rows + 1]; a row's items are [tile][KV head][split] */
	uint64_t table;      /* uint32_t [n_rows][table_stride] physical pages, UINT32_MAX: unmapped */
	uint32_t n_rows;
	uint32_t table_stride;
};

/** plan_batch: 1 block of CUDA_PLAN_THREADS. */
struct cuda_plan_params {
	struct cuda_plan plan;
	uint64_t q_indptr;      /* int32_t [n_rows + 1] */
	uint64_t kv_len;        /* int32_t [n_rows] */
	uint64_t q_base;        /* int64_t or int32_t [n_rows]; 0: kv_len - q_len */
	uint64_t writable_from; /* uint32_t [n_rows], or 0: all may be written */
	uint64_t b;             /* int32_t [n_rows] what mods see, or 0: each row's place */
	uint64_t counters;      /* uint32_t [max_groups], to be set to 0 */
	uint32_t q_base_bytes;
	uint32_t page_size;
	uint32_t n_q_heads;
	uint32_t n_kv_heads;
	uint32_t max_total_q;
	uint32_t max_kv_len;     /* at most table_stride * page_size */
	uint32_t max_tile_lines; /* of rows that fill more than CUDA_TILE_LINES */
	uint32_t target_items;   /* a row is cut into about so many, which depends on nothing else in the batch */
	uint32_t max_items;
	uint32_t max_groups;
	uint32_t max_lines; /* partial results there is memory for */
	uint32_t unused;
};

/** struct kernel_rotary of kernels/kernels.h, its arrays in the device's memory. */
struct cuda_rotary {
	uint64_t cos_sin;   /* float [n_positions][dim]; 0: nothing is turned */
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
	uint64_t k_scale;   /* float [n_kv_heads] of e4m3 and e5m2, or 0: 1 */
	uint64_t v_scale;
	struct cuda_rotary rotary;
};

/** K, V, and the scales of both. */
#define CUDA_COPY_PLANES 4u

/** One side of a copy of pages: how it lies, and which. */
struct cuda_copy_side {
	uint64_t address[CUDA_COPY_PLANES];      /* of each plane's layer 0, page 0, head 0 */
	uint64_t layer_stride[CUDA_COPY_PLANES]; /* bytes */
	uint64_t page_stride[CUDA_COPY_PLANES];
	uint64_t head_stride[CUDA_COPY_PLANES];
	uint64_t pages;   /* uint32_t [n_copies]; 0: 0, 1, 2, ... */
	uint64_t n_pages; /* others are not touched */
};

/**
 * copy_pages: the first tokens of pages, all layers and heads, between two
 * places: page to page (copy on write), pages to a buffer and back.  Any number
 * of blocks of CUDA_COPY_THREADS.  Both sides' (page, head) begin at multiples
 * of 16 bytes.
 */
struct cuda_copy_params {
	struct cuda_copy_side from;
	struct cuda_copy_side to;
	uint64_t n_tokens;                       /* uint32_t [n_copies]; 0: page_size each */
	uint64_t faults;                         /* uint32_t, CUDA_FAULT_PAGE is or-ed in; or 0 */
	uint32_t token_stride[CUDA_COPY_PLANES]; /* bytes, both sides */
	uint32_t n_planes;
	uint32_t n_copies;
	uint32_t n_layers;
	uint32_t n_heads;
	uint32_t page_size;
	uint32_t unused;
};

/**
 * gather_tokens: of each planned row tokens [begin, end), one row's behind
 * another's, into packed tensors.  Any number of blocks of CUDA_COPY_THREADS.
 */
struct cuda_gather_params {
	struct cuda_pages pages;
	struct cuda_plan plan;
	struct cuda_tensor k; /* address 0: not wanted; so is v's */
	struct cuda_tensor v;
	uint64_t begin;   /* uint32_t [n_rows], or 0: from 0 on */
	uint64_t end;     /* likewise, or 0: to kv_len */
	uint64_t k_scale; /* float [n_kv_heads] of e4m3 and e5m2, or 0: 1 */
	uint64_t v_scale; /* V in K has K's */
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

/** struct block_mask of mask.h, its arrays in the device's memory. */
struct cuda_block_mask {
	uint64_t first_list; /* uint64_t [n_rows + 1]; 0: no mask */
	uint64_t start[2];   /* uint64_t; BLOCK_MASK_PARTIAL, BLOCK_MASK_FULL */
	uint64_t indices[2]; /* uint32_t */
	uint32_t n_rows;
	uint32_t n_heads;
	uint32_t q_block;
	uint32_t kv_block;
	uint32_t ascending; /* every list; 0: perhaps not */
	uint32_t unused;
};

/** attention_*: any number of blocks of as many threads as struct cuda_choice says. */
struct cuda_attention_params {
	struct cuda_pages pages;
	struct cuda_plan plan;
	struct cuda_tensor q;
	struct cuda_tensor out;
	struct cuda_block_mask blocks;
	uint64_t sink;    /* float [n_q_heads], or 0 */
	uint64_t lse;     /* float [total_q][n_q_heads], or 0 */
	uint64_t maximum; /* likewise */
	uint64_t mod;     /* what the mod of this module takes as its arguments */
	uint64_t counters;
	uint64_t partial_states; /* float [max_lines][2]: maximum, sum */
	uint64_t partial_values; /* float [max_lines][V dim] */
	uint32_t n_q_heads;
	float scale;
	uint32_t causal;
	uint32_t lse_without_sink;
	uint64_t k_scale; /* float [n_kv_heads] of e4m3 and e5m2, or 0: 1 */
	uint64_t v_scale;
};

#endif
