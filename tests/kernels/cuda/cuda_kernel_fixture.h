/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cuda_kernel_fixture.h - runs CUDA kernels over a kernel fixture, on the host by simt_run.h
 *
 * Memory that a kernel may use is registered as a region of exactly its size,
 * so any access outside is an error.  A failed run fails the test with
 * simt_run()'s message.
 */
#ifndef PAGED_TESTS_CUDA_KERNEL_FIXTURE_H
#define PAGED_TESTS_CUDA_KERNEL_FIXTURE_H

#include "kernels/cuda/host/plan.h"
#include "kernels/mask/mask.h"
#include "tests/support/kernel_fixture.h"

#define CUDA_ARENA_MAX_REGIONS 64u

/** Regions that cuda_arena_destroy() removes; it frees those that are owned. */
struct cuda_arena {
	void *regions[CUDA_ARENA_MAX_REGIONS];
	bool owned[CUDA_ARENA_MAX_REGIONS];
	uint32_t n;
};

/** cuda_arena_register - allow kernels to access the caller's memory; returns its address (0 if size is 0) */
uint64_t cuda_arena_register(struct cuda_arena *arena, const void *data, size_t size, bool writable, const char *name);

/** cuda_arena_alloc - allocate memory that kernels may access: a copy of `data`, or 0xff bytes if `data` is NULL */
uint64_t cuda_arena_alloc(struct cuda_arena *arena, const void *data, size_t size, bool writable, const char *name);
void cuda_arena_destroy(struct cuda_arena *arena);

/** A planned batch. */
struct cuda_batch {
	struct cuda_arena arena;
	struct cuda_plan_params plan;
	struct cuda_plan_size size;
	struct cuda_plan_head *head;
	const struct cuda_row *rows;
	const uint32_t *first_work_item; /* [2][n_rows + 1] */
	int32_t *q_indptr, *kv_len;      /* of all rows; a test may corrupt them before cuda_batch_plan() */
	uint32_t *writable_from; /* 0, or CUDA_WRITABLE_SKIP; a test may set other values before cuda_batch_plan() */
	uint32_t *kv_first;
	uint32_t *table;
};

struct cuda_batch_params {
	const struct kernel_row *rows;
	uint32_t n_rows;
	uint32_t page_size;
	uint32_t n_q_heads, n_kv_heads, v_dim;
	uint32_t max_tile_q_rows; /* 0: CUDA_TILE_Q_ROWS */
	uint32_t prefill_tile_q_rows;
	uint32_t wide_kv_chunk_factor;
	uint32_t target_work_items; /* 0: the default */
	uint32_t max_kv_len;        /* 0: the rows' maximum */
};

void cuda_batch_create(struct cuda_batch *batch, const struct cuda_batch_params *params);
void cuda_batch_destroy(struct cuda_batch *batch);

/** cuda_batch_plan - run the kernel plan_batch */
void cuda_batch_plan(struct cuda_batch *batch, uint64_t seed);

/** cuda_kernel_run - run a kernel; fails the test on any error that simt_run() reports */
void cuda_kernel_run(const char *kernel, const void *params, uint32_t n_blocks, uint32_t n_threads, size_t shared_size,
		     uint64_t seed);

struct cuda_pages cuda_fixture_pages(struct cuda_arena *arena, const struct kernel_pages *pages, bool writable);
struct cuda_tensor cuda_fixture_tensor(struct cuda_arena *arena, const struct kernel_tensor *tensor, uint64_t n_tokens,
				       bool writable, const char *name);

struct cuda_attention_options {
	const char *kernel;
	const char *prefill; /* the kernel for rows with more than max_tile_q_rows q_rows; NULL: the same */
	uint32_t max_tile_q_rows;
	uint32_t target_work_items;
	uint32_t n_blocks;
	uint64_t seed;
	const struct block_mask *blocks;
	const void *mod;
	size_t mod_size;
};

/** cuda_fixture_attend - kernel_fixture_attend() by a CUDA kernel; fills the outputs with 0xff bytes first */
void cuda_fixture_attend(struct kernel_fixture *fixture, const struct cuda_attention_options *options);

/** cuda_fixture_check - run the kernels; a result that is not float64's fails the test */
void cuda_fixture_check(const struct kernel_fixture_params *params, const struct cuda_attention_options *options);

/** cuda_fixture_unmapped_faults - the faults of a kernel if entry `page` of the first row's page table is unmapped */
uint32_t cuda_fixture_unmapped_faults(const struct kernel_fixture_params *params, uint32_t page, const char *kernel,
				      uint32_t shared_size);

/** cuda_attention_run - like cuda_fixture_attend(), for any attention arguments */
void cuda_attention_run(const struct attention_args *args, uint64_t total_q,
			const struct cuda_attention_options *options);

#endif
